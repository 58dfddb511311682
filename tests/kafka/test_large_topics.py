"""Edge: a large topic is created, reported and deleted over the listener for Kafka's brokers, without an election."""

from pathlib import Path

import pytest

from tests.kafka.large_topics import large_topics
from tests.support.wire import calm

pytestmark = pytest.mark.slow


async def test_a_large_topic_costs_no_election(tmp_path: Path) -> None:
    """The timers are those of a busy machine. `python -m tests.kafka --large-topics N` has those of a release, and the
    simulation bounds each turn of the loop.
    """
    large = await large_topics(tmp_path / "c", times=2, adjust=calm)
    assert (len(large.created), len(large.altered), large.elections) == (2, 2, 0)
