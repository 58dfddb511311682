"""What a controller says of how long it has known of no leader, and what else may stand there."""

import pytest
from multidict import CIMultiDict

from metadata_log.node.leaderless import says_leaderless


@pytest.mark.parametrize(
    ("said", "expected"),
    [("1000", True), ("999", False), ("", False), ("²", False), ("-1000", False), ("9" * 5_000, False)],
)
def test_only_a_number_counts(said: str, expected: bool) -> None:
    assert says_leaderless({"x-leaderless-ms": said}) is expected
    assert says_leaderless(CIMultiDict({"X-Leaderless-Ms": said})) is expected


def test_a_node_that_does_not_say_it_may_have_a_leader() -> None:
    assert not says_leaderless({})
