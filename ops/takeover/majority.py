"""Pure: whether enough directories of a stopped quorum are here to know all that was acknowledged.

Tests: tests/unit/ops/takeover/test_majority.py.
"""

from collections.abc import Collection, Sequence

from metadata_log.errors import InvalidRequest


def check_majority(voters: Sequence[int], *, here: Collection[int], gone: Sequence[int]) -> None:
    """Check that the directories of a majority of the voters are here, or that the others are lost for ever.

    Raises:
        InvalidRequest: too few are, or `gone` names a voter that is here, or none at all.
    """
    if strange := [node for node in gone if node not in voters or node in here]:
        raise InvalidRequest(f"--gone {strange[0]}: is none of the controllers that are missing")
    missing = [node for node in voters if node not in here and node not in gone]
    needed = majority_of(voters)
    if len({*here} & {*voters}) < needed and missing:
        raise InvalidRequest(
            f"{len(here)} of the {len(voters)} voters' directories are here, and {needed} are needed: the others may hold "
            f"records that were acknowledged. Name the directory of {listed(missing)}, too; if it is lost for ever, say so: "
            f"--gone {missing[0]}"
        )


def majority_of(voters: Sequence[int]) -> int:
    return len(voters) // 2 + 1


def listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
