"""What a quorum acknowledged lies with a majority of its voters."""

import pytest

from metadata_log.errors import InvalidRequest
from metadata_log.ids import MIGRATING, NodeId
from metadata_log.records.quorum import Voter
from ops.takeover.majority import check_are_voters_own, check_majority, check_one_each, listed, majority_of
from tests.support.histories import small_uuid


@pytest.mark.parametrize(
    ("voters", "here", "gone"),
    [
        ((1,), {1}, ()),
        ((1, 2, 3), {1, 2, 3}, ()),
        ((1, 2, 3), {1, 3}, ()),
        ((1, 2, 3), {2}, (1, 3)),
        ((1, 2, 3, 4, 5), {2, 3}, (1, 4, 5)),
    ],
)
def test_a_majority_is_enough_and_so_is_all_that_is_left(
    voters: tuple[int, ...], here: set[int], gone: tuple[int, ...]
) -> None:
    check_majority(voters, here=here, gone=gone)


@pytest.mark.parametrize(
    ("here", "gone", "says"),
    [
        ({1}, (), "1 of the 3 voters' directories are here, and 2 are needed.*directory of 2, 3"),
        ({1}, (2,), "Name the directory of 3, too.*--gone 3"),
        ({1}, (1,), "--gone 1: is none of the controllers that are missing"),
        ({1, 2}, (9,), "--gone 9: is none"),
    ],
)
def test_too_few_are_refused_with_what_is_missing(here: set[int], gone: tuple[int, ...], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        check_majority((1, 2, 3), here=here, gone=gone)


def test_the_directories_of_voters_are_their_own() -> None:
    voters = [Voter(NodeId(node), uuid, (), 0, 1) for node, uuid in ((1, small_uuid(1)), (2, MIGRATING))]
    check_are_voters_own(voters, here={1: small_uuid(1), 2: small_uuid(9), 3: None})
    check_are_voters_own(voters, here={2: None})
    for other in (small_uuid(9), None):
        with pytest.raises(InvalidRequest, match=r"node 1 votes with directory .*acknowledged.*--gone 1"):
            check_are_voters_own(voters, here={1: other})


def test_a_node_has_one_directory() -> None:
    check_one_each([1, 2])
    with pytest.raises(InvalidRequest, match="two directories are of node 2"):
        check_one_each([2, 1, 2])


def test_a_majority_is_more_than_half() -> None:
    assert [majority_of(range(count)) for count in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
    assert listed((3, 1)) == "3, 1"
