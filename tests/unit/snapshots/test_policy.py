"""Edge: when snapshots are due."""

from metadata_log.codec import read_header
from metadata_log.ids import SnapshotId
from snapshots.policy import SnapshotClock, SnapshotPolicy, to_retire
from tests.support.histories import Step, history_of

POLICY = SnapshotPolicy(bytes=2_000, age_ms=400_000)


def due_at(history: list[Step], clock: SnapshotClock) -> list[int]:
    due = []
    for step in history:
        clock = clock.after(read_header(step.frame))
        if clock.is_due(POLICY, appended_at_ms=step.batch.appended_at_ms):
            due.append(step.batch.end_offset)
            clock = SnapshotClock.at_snapshot(step.batch.appended_at_ms)
    return due


def test_all_nodes_take_the_same_snapshots_wherever_they_began() -> None:
    for seed in range(10):
        history = [*history_of(seed, 80)]
        due = due_at(history, SnapshotClock())
        assert due
        for began_at in due:
            behind = [step for step in history if step.batch.base_offset >= began_at]
            (snapshot,) = [step for step in history if step.batch.end_offset == began_at]
            clock = SnapshotClock.at_snapshot(snapshot.image.last_time_ms)
            assert due_at(behind, clock) == [offset for offset in due if offset > began_at]


def test_due_by_bytes_at_the_first_batch_end_that_reaches_them() -> None:
    """B65"""
    history = [*history_of(1, 5)]
    headers = [read_header(step.frame) for step in history]
    clock = SnapshotClock()
    for header in headers:
        clock = clock.after(header)
    size = sum(header.frame_bytes for header in headers)
    assert clock.is_due(SnapshotPolicy(bytes=size, age_ms=10**15), appended_at_ms=headers[-1].appended_at_ms)
    assert not clock.is_due(
        SnapshotPolicy(bytes=size + 1, age_ms=10**15), appended_at_ms=headers[-1].appended_at_ms
    )


def test_due_by_age_counts_from_the_first_batch_or_the_last_snapshot() -> None:
    """B65: 0 is never, as in Kafka."""
    header = read_header(history_of(1, 1)[0].frame)._replace(appended_at_ms=1_000)
    policy = SnapshotPolicy(bytes=10**9, age_ms=500)
    clock = SnapshotClock().after(header)
    assert not clock.is_due(policy, appended_at_ms=1_499)
    assert clock.is_due(policy, appended_at_ms=1_500)
    assert not SnapshotClock.at_snapshot(1_500).after(header).is_due(policy, appended_at_ms=1_999)
    assert not clock.is_due(SnapshotPolicy(bytes=10**9, age_ms=0), appended_at_ms=10**12), "0: never by age"


def test_what_may_go() -> None:
    """B68"""
    ids = [SnapshotId(text) for text in "abcd"]
    assert to_retire(ids, keep=2, pinned=frozenset()) == ["a", "b"]
    assert to_retire(ids, keep=2, pinned={"a"}) == ["b"]
    assert to_retire(ids, keep=9, pinned=frozenset()) == []
