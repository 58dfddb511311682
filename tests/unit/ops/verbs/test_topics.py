"""Edge: what an operator is told about a topic before it is made."""

import pytest

from ops.verbs.topics import few_partitions


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
