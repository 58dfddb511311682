"""Pure: whether enough directories of a stopped quorum are here to know all that was acknowledged.

Tests: tests/unit/ops/takeover/test_majority.py.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from metadata_log.errors import InvalidRequest
from metadata_log.ids import MIGRATING, Uuid, uuid_text
from metadata_log.records.quorum import Voter


def check_one_each(nodes: Sequence[int]) -> None:
    """Check that the directories are of one node each; `nodes` are whose they are.

    Raises:
        InvalidRequest: two are of one node.
    """
    if twice := sorted(node for node, count in Counter(nodes).items() if count > 1):
        raise InvalidRequest(
            f"two directories are of node {twice[0]}: take the one alone with which it votes"
        )


def check_are_voters_own(voters: Sequence[Voter], *, here: Mapping[int, Uuid | None]) -> None:
    """Check that the directories of voters are those with which they vote, where the quorum names these.

    `here` has the directory id of each node whose directory is here; None: it has none.

    Raises:
        InvalidRequest: one is of a voter, and has another directory id: what the voter acknowledged lies elsewhere.
    """
    for voter in voters:
        if voter.directory_id == MIGRATING or voter.node_id not in here:
            continue
        found = here[voter.node_id]
        if found != voter.directory_id:
            raise InvalidRequest(
                f"node {voter.node_id} votes with directory {uuid_text(voter.directory_id)}, and the one here is "
                f"{'without an id' if found is None else uuid_text(found)}: it may lack records that were acknowledged. "
                f"Take the former; if it is lost for ever, leave the latter out and say so: --gone {voter.node_id}"
            )


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
