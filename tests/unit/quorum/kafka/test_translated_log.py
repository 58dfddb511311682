"""The committed log as Kafka's batches: the same bytes however they come about, once each, and within bounds."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from metadata_log import limits
from metadata_log.apply import Applied, apply
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.kafka.batches import batches
from metadata_log.kafka.translation import translating
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.topics import TopicRestoreRecord
from metadata_log.sliced import at_once
from quorum.kafka.replies import Position, SendRecords, reply_to
from quorum.kafka.translated_log import TranslatedLog, split
from quorum.log.committed_log import CommittedLog
from quorum.log.fetch_window import FetchWindow
from tests.support.histories import Step, claim, history_of, step_of

MOST = 1 << 30


def history(seed: int, count: int = 40) -> list[Step]:
    """Return a random history without a restored topic."""
    while True:
        steps = [*history_of(seed, count)]
        if not any(TopicRestoreRecord in map(type, step.batch.records) for step in steps):
            return steps
        seed += 100


def theirs(steps: Sequence[Step]) -> bytes:
    """Return the whole log as Kafka's, made at once."""
    made, before = [], EMPTY
    for step in steps:
        made.append(
            at_once(
                translating(
                    step.batch, level=30, voters=step.image.quorum.voters or (), deleted=before.topics.deleted
                )
            )
        )
        before = step.image
    return b"".join(made)


class Node:
    """The two logs of one controller; its clock stands still."""

    def __init__(self, segments: SegmentedLog) -> None:
        self.log = CommittedLog(segments)
        self.theirs = TranslatedLog(self.log, listener=None, now_ms=lambda: 0)
        self.image = EMPTY

    def apply(self, steps: Sequence[Step], *, rests: bool = True) -> None:
        for step in steps:
            applied: Applied = apply(self.image, step.batch)
            self.image = applied.image
            if step.batch.claim is not None:
                self.theirs.on_activity(active=True)
            for listener in (self.log, self.theirs):
                listener.on_applied(step.batch, step.frame, self.image, applied.delta)
            if rests:
                self.rest()

    def rest(self) -> None:
        self.log.on_rest()
        self.theirs.on_rest()

    def restore(self, image: MetadataImage) -> None:
        self.image = image
        for listener in (self.log, self.theirs):
            listener.on_restored(image)

    async def until_ready(self) -> None:
        async with asyncio.timeout(60):
            while not self.theirs.is_ready():
                await asyncio.sleep(0)

    async def read(self, offset: int, max_bytes: int = MOST) -> bytes:
        await self.until_ready()
        if self.theirs.is_cold(offset):
            return await self.theirs.read_cold(offset, max_bytes=max_bytes)
        return self.theirs.read(offset, max_bytes=max_bytes)


@contextmanager
def node(directory: Path) -> Iterator[Node]:
    segments = SegmentedLog.open(directory, segment_bytes=1 << 20)
    try:
        yield Node(segments)
    finally:
        segments.close()


@pytest.mark.parametrize("seed", range(4))
def test_the_same_bytes_are_read_warm_and_cold_from_every_offset(tmp_path: Path, seed: int) -> None:
    """Goal: it makes no difference to brokers which controller they ask, and when. Method: a window from the log's beginning
    on, one that begins at its end, and every offset, also one inside a batch.
    """
    steps = history(seed, 20)
    whole = theirs(steps)
    places = [(header.base_offset, header.end_offset) for header, _ in split(whole)]
    assert [batch.base_offset for batch in batches(whole)] == [base for base, _ in places]

    async def story() -> None:
        with node(tmp_path / "warm") as warm, node(tmp_path / "cold") as cold:
            await warm.until_ready()
            for step in steps:
                warm.apply([step])
                await warm.until_ready()
            cold.apply(steps, rests=False)
            cold.rest()
            await cold.until_ready()
            end = steps[-1].image.end_offset
            assert warm.log.end_offset == end and not warm.theirs.is_cold(0) and cold.theirs.is_cold(end - 1)
            for offset in range(end):
                at = sum(header.frame_bytes for header, _ in split(whole) if header.end_offset <= offset)
                assert await warm.read(offset) == whole[at:], offset
                assert await cold.read(offset) == whole[at:], offset
            assert warm.theirs.translated == len(steps) and cold.theirs.translated == 0

    asyncio.run(story())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_every_position_in_the_log_gets_records(tmp_path: Path, seed: int) -> None:
    """Goal: no broker that follows is told to truncate, wherever it stopped. Method: each end of each of Kafka's batches."""
    steps = history(seed)
    with node(tmp_path) as one:
        one.apply(steps)
        end = one.log.end_offset
        for header, _ in split(theirs(steps)):
            sent = reply_to(
                Position(header.end_offset, header.controller_epoch),
                epochs=one.theirs.epochs,
                high_watermark=end,
                newest=None,
            )
            assert sent == (SendRecords(header.end_offset) if header.end_offset < end else None)


def test_an_answer_holds_whole_batches_up_to_a_bound_and_at_least_one(tmp_path: Path) -> None:
    steps = history(3)
    parts = [batch for _, batch in split(theirs(steps))]

    async def story() -> None:
        with node(tmp_path) as one:
            await one.until_ready()
            one.apply(steps)
            await one.until_ready()
            assert await one.read(0, 1) == parts[0]
            assert await one.read(0, len(parts[0]) + len(parts[1])) == parts[0] + parts[1]
            assert await one.read(0, len(parts[0]) + len(parts[1]) - 1) == parts[0]

    asyncio.run(story())


def test_what_is_wanted_is_translated_once_and_what_is_not_wanted_never(tmp_path: Path) -> None:
    steps = history(1, 30)

    async def story() -> None:
        with node(tmp_path) as one:
            one.apply(steps[:10])
            assert one.theirs.translated == 0
            await one.until_ready()
            one.apply(steps[10:20])
            assert one.theirs.translated == 0
            for _ in range(3):
                await one.until_ready()
                assert one.theirs.translated == 10

    asyncio.run(story())


def test_a_large_batch_is_translated_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no turn of the loop is long, and brokers are told when all of it is there."""
    before = next(step for step in reversed(history(5)) if step.image.topics.by_id)
    topic_id = next(iter(before.image.topics.by_id))
    change = PartitionChangeRecord(topic_id, 0, leader=None, isr=None)
    large = step_of(before.image, [change] * 1_000)
    pieces = 4
    monkeypatch.setattr("metadata_log.node.pace.Pieces.pieces_max", pieces)

    async def story() -> None:
        with node(tmp_path) as one:
            told: list[int] = []
            one.restore(before.image)
            assert one.theirs.is_ready()
            one.theirs.on_translated = lambda: told.append(one.theirs.translated)
            one.apply([large])
            assert not one.theirs.is_ready()
            assert not told
            while not told:
                assert one.theirs.translated <= 1
                await asyncio.sleep(0)
            assert one.theirs.is_ready()
            assert one.theirs.read(large.batch.base_offset, max_bytes=MOST)

    asyncio.run(story())


def test_the_window_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KAFKA_WINDOW_BYTES", 4_000)
    steps = history(2)

    async def story() -> None:
        with node(tmp_path) as one:
            one.theirs._window = FetchWindow(bytes_max=4_000)
            await one.until_ready()
            for step in steps:
                one.apply([step])
                await one.until_ready()
            assert len(theirs(steps)) > 8_000
            assert sum(map(len, one.theirs._window._frames)) <= 4_000
            assert await one.read(0) == theirs(steps)

    asyncio.run(story())


@pytest.mark.slow
@pytest.mark.parametrize("bound", ["KAFKA_UNTRANSLATED_BYTES", "KAFKA_BEHIND_BYTES_MAX"])
def test_what_nobody_wants_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """Goal: without brokers the log costs nothing. Method: records at hand go at a bound, and are then decoded; a window
    that is far behind begins at the end.
    """
    monkeypatch.setattr(limits, bound, 2_000)
    steps = history(4)

    async def story() -> None:
        with node(tmp_path) as one:
            await one.until_ready()
            one.apply(steps)
            assert sum(size for _, size in one.theirs._kept.values()) <= limits.KAFKA_UNTRANSLATED_BYTES
            assert await one.read(0) == theirs(steps)
            was_passed_over = one.theirs.translated == 0
            assert was_passed_over is (bound == "KAFKA_BEHIND_BYTES_MAX")

    asyncio.run(story())


def test_a_node_that_began_with_a_snapshot_offers_what_is_behind_it(tmp_path: Path) -> None:
    steps = history(6)
    cut = len(steps) // 2
    image = steps[cut - 1].image

    async def story() -> None:
        with node(tmp_path / "whole") as whole, node(tmp_path / "later") as later:
            whole.apply(steps)
            later.restore(image)
            later.apply(steps[cut:])
            assert (later.theirs.epochs.start, later.theirs.epochs.epoch_before) == (
                image.end_offset,
                image.controller_epoch,
            )
            await later.until_ready()
            assert await later.read(image.end_offset) == await whole.read(image.end_offset)
            for epoch in range(image.controller_epoch, later.image.controller_epoch + 1):
                ends = [
                    each.theirs.epochs.end_of(epoch, high_watermark=later.log.end_offset)
                    for each in (whole, later)
                ]
                assert ends[0] == ends[1]
            assert await later.theirs.read_cold(image.end_offset - 1, max_bytes=MOST) == b""

    asyncio.run(story())


def restored() -> tuple[list[Step], Step]:
    """Return a history that ends behind a restored topic, and the step that restored it."""
    for seed in range(100):
        steps = [*history_of(seed, 60)]
        for place, step in enumerate(steps[:-2]):
            if TopicRestoreRecord in map(type, step.batch.records):
                behind = steps[: place + 2]
                if TopicRestoreRecord not in map(type, behind[-1].batch.records):
                    return behind, step
    raise AssertionError("no history restores a topic")


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_log_is_offered_from_a_restored_topic_on(tmp_path: Path, is_seen: bool) -> None:
    """Goal: no broker reads of a topic that came back, for which Kafka's log has no record. Method: the record is seen when
    it is applied, or first when it is translated.
    """
    steps, at = restored()

    async def story() -> None:
        with node(tmp_path) as one:
            await one.until_ready()
            if not is_seen:
                one.theirs._begin_behind = lambda offset: None  # type: ignore[method-assign]
            one.apply(steps[:-1])
            if is_seen:
                assert one.theirs.epochs.start == at.batch.end_offset
            else:
                del one.theirs._begin_behind
            one.apply(steps[-1:])
            await one.until_ready()
            assert one.theirs.epochs.start == at.batch.end_offset
            assert one.theirs.epochs.epoch_before == at.batch.controller_epoch
            assert await one.theirs.read_cold(at.batch.base_offset, max_bytes=MOST) == b""
            found = await one.read(at.batch.end_offset)
            assert next(batch.base_offset for batch in batches(found)) == at.batch.end_offset

    asyncio.run(story())


def test_a_cold_read_that_meets_a_restored_topic_ends_before_it(tmp_path: Path) -> None:
    steps, at = restored()

    async def story() -> None:
        with node(tmp_path) as one:
            one.theirs._begin_behind = lambda offset: None  # type: ignore[method-assign]
            one.apply(steps)
            await one.until_ready()
            del one.theirs._begin_behind
            found = await one.theirs.read_cold(0, max_bytes=MOST)
            assert [*batches(found)][-1].end_offset == at.batch.base_offset
            assert one.theirs.epochs.start == at.batch.end_offset

    asyncio.run(story())


def test_a_retention_moves_the_start_and_keeps_the_epoch_before_it(tmp_path: Path) -> None:
    steps = history(7)
    with node(tmp_path) as one:
        one.apply(steps)
        epochs = {step.image.end_offset: step.image.controller_epoch for step in steps}
        for end, epoch in epochs.items():
            one.log.segments._start = one.log.segments._start._replace(offset=end)
            assert (one.theirs.epochs.start, one.theirs.epochs.epoch_before) == (end, epoch)


def test_a_restart_forgets_the_window(tmp_path: Path) -> None:
    steps = history(8)

    async def story() -> None:
        with node(tmp_path) as one:
            await one.until_ready()
            one.apply(steps[:5])
            await one.until_ready()
            one.restore(steps[-1].image)
            await one.until_ready()
            more = step_of(one.image, [claim(one.image)])
            one.apply([more])
            assert len([*batches(await one.read(more.batch.base_offset))]) == 1

    asyncio.run(story())
