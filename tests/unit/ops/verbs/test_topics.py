"""Edge: what an operator is told about a topic before it is made."""

import pytest

from ops.verbs.topics import PLACEMENTS, few_partitions
from quorum.decide.placement import Placement


@pytest.mark.parametrize(
    ("partitions", "brokers", "hint"),
    [
        (3, 5, "3 partitions on 5 brokers: 2 brokers will lead none of them"),
        (5, 5, None),
        (6, 5, None),
        (1, 0, None),
    ],
)
def test_fewer_partitions_than_brokers_are_worth_a_word(
    partitions: int, brokers: int, hint: str | None
) -> None:
    """A7; a replica list with a broker twice, [1, 1, 2], is refused by the decision."""
    assert few_partitions(partitions, brokers=brokers) == hint


def test_topics_are_placed_in_the_ways_that_the_controller_knows() -> None:
    assert tuple(map(str, Placement)) == PLACEMENTS
