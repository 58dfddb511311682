"""The committed log of one controller: what has been applied becomes durable again and again."""

import asyncio
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from metadata_log.codec import read_header
from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import Delta
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.sliced import at_once
from quorum.log import committed_log
from quorum.log.committed_log import CommittedLog
from tests.support.histories import history_of
from tests.support.lab import Lab


class _Enough(Exception):
    pass


def test_what_is_appended_is_synced_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_log, "SEGMENT_SYNC_S", 0.0)
    history = iter(history_of(1, 4))
    synced: list[int] = []
    with closing(SegmentedLog.open(tmp_path, segment_bytes=1 << 20)) as segments:
        log = CommittedLog(segments)

        def append() -> None:
            step = next(history, None)
            if step is None:
                raise _Enough
            log.on_applied(step.batch, step.frame, step.image, Delta())
            log.on_rest()

        async def run_in_thread(sync: Callable[[], object]) -> None:
            sync()
            assert log.unsynced_bytes == 0
            assert segments.synced_end_offset == segments.end_offset == log.end_offset
            synced.append(log.end_offset)
            append()

        append()
        with pytest.raises(_Enough):
            asyncio.run(log.keep_syncing(run_in_thread))
    assert len(synced) == 4 and synced == sorted(set(synced))


async def test_what_is_applied_without_a_rest_is_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = [*history_of(2, 20)]
    writes: list[int] = []
    write = os.write

    def counted(fd: int, data: bytes) -> int:
        writes.append(len(data))
        return write(fd, data)

    lab = Lab()
    controller = lab.controllers[1]
    with closing(SegmentedLog.open(tmp_path, segment_bytes=1 << 20)) as segments:
        log = CommittedLog(segments)
        controller.attach(lab.quorum.nodes[NodeId(1)], [log])
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", counted)
            at_once(controller.committing(b"".join(step.frame for step in history)))
            assert (writes, log.end_offset) == ([], 0)
            controller.on_rest()
        assert writes == [sum(len(step.frame) for step in history)] == [log.unsynced_bytes]
        assert segments.end_offset == log.end_offset == controller.committed.end_offset
        assert log.read(0, max_bytes=1 << 20) == segments.read(0, max_bytes=1 << 20)


async def test_when_a_batch_was_appended_is_read_in_a_thread(tmp_path: Path) -> None:
    history = [*history_of(3, 20)]
    in_threads = 0

    async def run_in_thread(work: Callable[..., Any], *args: object) -> Any:
        nonlocal in_threads
        in_threads += 1
        return work(*args)

    with closing(SegmentedLog.open(tmp_path, segment_bytes=1 << 20)) as segments:
        log = CommittedLog(segments, read_in_thread=run_in_thread)
        for step in history:
            log.on_applied(step.batch, step.frame, step.image, Delta())
        log.on_rest()
        for number, step in enumerate(history, start=1):
            batch = step.batch
            assert await log.appended_at_ms(batch.base_offset) == batch.appended_at_ms
            assert in_threads == number
        assert await log.appended_at_ms(history[-1].batch.end_offset) is None
        inside = next(step.batch for step in history if len(step.batch.records) > 1).base_offset + 1
        assert await log.appended_at_ms(inside) is None


@pytest.mark.parametrize("at_a_time", [1, 6])
def test_what_a_retention_took_may_be_applied_once_more(tmp_path: Path, at_a_time: int) -> None:
    """Goal: a node starts whose journal reaches further back than its segments. Method: all frames once more."""
    history = [*history_of(3, 6)]
    kept = history[2].image
    with closing(SegmentedLog.open(tmp_path, segment_bytes=1 << 20)) as segments:
        segments.restart_at(kept.end_offset, kept.controller_epoch, kept.last_crc)
        segments.append_all([(step.frame, read_header(step.frame)) for step in history[3:5]])
        log = CommittedLog(segments)
        for first in range(0, len(history), at_a_time):
            for step in history[first : first + at_a_time]:
                log.on_applied(step.batch, step.frame, step.image, Delta())
            log.on_rest()
        assert log.end_offset == segments.end_offset == history[-1].image.end_offset
        frames = b"".join(step.frame for step in history[3:])
        assert segments.read(kept.end_offset, max_bytes=len(frames)) == frames
