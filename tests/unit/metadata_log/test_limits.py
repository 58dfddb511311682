"""Pure: the bounds depend on each other, and a process does not start where one of them is broken."""

import pytest

from metadata_log import limits


def test_the_bounds_fit_together() -> None:
    limits.check_relations()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("BATCH_BYTES_MAX", limits.FRAME_BYTES_MAX, "a batch and its envelope fit into a frame"),
        ("RAFT_IN_FLIGHT_BYTES", limits.RAFT_OUTBOX_BYTES_MAX, "what is in flight fits into a link"),
        ("LOOP_SLICE_MS", limits.HEARTBEAT_MS, "delays no heartbeat"),
        ("ROUND_MS", limits.HEARTBEAT_MS, "nor do two rounds"),
        ("ELECTION_TIMEOUT_MIN_MS", limits.HEARTBEAT_MS, "one lost heartbeat starts no election"),
        ("STREAM_SAYS_MS", limits.FORWARD_READ_SILENCE_MAX_MS, "is not cut by a broker"),
        ("BROKERS_MAX", limits.HTTP_CONNECTIONS_MAX, "may park a fetch"),
    ],
)
def test_a_relation_that_does_not_hold_is_named(
    name: str, value: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, name, value)
    with pytest.raises(AssertionError, match=why):
        limits.check_relations()
