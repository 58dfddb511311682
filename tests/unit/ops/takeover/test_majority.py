"""What a quorum acknowledged lies with a majority of its voters."""

import pytest

from metadata_log.errors import InvalidRequest
from ops.takeover.majority import check_majority, listed, majority_of


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


def test_a_majority_is_more_than_half() -> None:
    assert [majority_of(range(count)) for count in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
    assert listed((3, 1)) == "3, 1"
