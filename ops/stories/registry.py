"""Pure: the stories that `metaquorum learn` tells, and that tests/kafka/stories looks at.

Tests: tests/unit/ops/stories/test_registry.py.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Story(NamedTuple):
    """One story: its file in ops/stories has `run(stage)`, which returns what it saw."""

    about: str
    """One line of help."""
    module: str
    rows: tuple[str, ...]
    """The rows of the founding documents that it shows, by the ids of tests/rows."""
    brokers: int = 3


STORIES: Final[Mapping[str, Story]] = {
    "high-watermark": Story(
        "A follower at 7 of 10 records: what is committed, and when a write is acknowledged.",
        "watermark",
        ("A10", "A12"),
    ),
    "readers": Story(
        "Who serves clients: the leader, and a follower in the reader's rack.", "readers", ("A13",)
    ),
    "isr": Story(
        "Two followers leave the ISR, one silent and one too slow, and return by themselves.",
        "isr",
        ("A11", "A15", "A16"),
    ),
    "failover": Story(
        "A leader is lost and returns: truncation, a high watermark that goes back, clients that find the new leader.",
        "failover",
        ("A9", "A59", "A75"),
    ),
    "acks": Story(
        "acks 0, 1 and all: records kept and lost when a leader, a controller, or both are killed.",
        "acks",
        ("A65", "A66", "A67", "A68", "A69", "A70", "A71", "A73"),
        brokers=4,
    ),
    "groups": Story(
        "Consumer groups: 4 partitions over 2, 4 and 5 consumers, coordinators, how members join, where keys go.",
        "groups",
        ("A76", "A79", "A80", "A82", "A83"),
    ),
    "offsets": Story(
        "Committed offsets: where a group begins and goes on, what is delivered again, which commits count.",
        "offsets",
        ("A77", "A78", "A84", "A85", "A86"),
    ),
}
