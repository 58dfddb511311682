"""Reads of the past, computed in a thread or by the process that reads the past: the same answers, and the same errors."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from metadata_log import limits
from metadata_log.codec import decode_all
from metadata_log.digest import digest
from metadata_log.errors import LogDamaged, OffsetCompacted, OffsetInFuture, ThrottlingQuotaExceeded
from metadata_log.image.metadata_image import Delta
from metadata_log.log.lines import lines_of, log_lines
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.http.encodings import json_bytes
from metadata_log.node.http.state_answer import state_items
from metadata_log.node.threads import Threads
from quorum.log import past as past_module
from quorum.log.committed_log import CommittedLog
from quorum.log.history_process import HistoryProcess
from quorum.log.past import Past
from snapshots.fold import fold
from snapshots.snapshot_file import write_snapshot
from snapshots.store import SnapshotStore
from tests.support.histories import history_of
from tests.support.retained import retained

HISTORY = [*history_of(7, 60)]
END = HISTORY[-1].image.end_offset
Story = Callable[[Past, SnapshotStore, CommittedLog], Awaitable[None]]


@pytest.fixture(scope="module")
def process() -> Iterator[HistoryProcess]:
    process = HistoryProcess("quorum.log.past")
    yield process
    process.shut_down()


def tell(directory: Path, story: Story, process: HistoryProcess | None, *, states_max: int = 4) -> None:
    """Tell a story beside a log of HISTORY with a snapshot in its middle."""

    async def main() -> None:
        threads = Threads("reads", threads=1)
        with closing(SegmentedLog.open(directory / "log", segment_bytes=2_000)) as segments:
            log = CommittedLog(segments, read_in_thread=threads.run)
            for step in HISTORY:
                log.on_applied(step.batch, step.frame, step.image, Delta())
            log.on_rest()
            store = SnapshotStore(directory / "snapshots", directory / "quarantine")
            write_snapshot(HISTORY[30].image, store.directory)
            past = Past(log, store, threads=threads, process=process, states_max=states_max)
            await story(past, store, log)
            await threads.shut_down()

    asyncio.run(main())


async def all_of(past: Past, at: int) -> bytes:
    async with past.state_at(at) as state:
        return b"".join([piece async for piece in state.pieces(as_msgpack=False)])


@pytest.mark.slow
@pytest.mark.parametrize("has_process", [True, False])
def test_states_and_lines_are_those_of_the_plain_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: HistoryProcess, has_process: bool
) -> None:
    monkeypatch.setattr(limits, "LINES_HERE_BYTES_MAX", 0)
    monkeypatch.setattr(limits, "ANSWER_PIECE_BYTES", 700)

    async def story(past: Past, _store: SnapshotStore, log: CommittedLog) -> None:
        for step in HISTORY:
            at = step.image.end_offset
            assert json.loads(await all_of(past, at))["digest"] == digest(step.image)
            if step.batch.end_offset - step.batch.base_offset > 1:
                inside = json.loads(await all_of(past, at - 1))
                assert inside["end_offset"] == step.batch.base_offset, "inside a batch: as it was before it"
        assert await all_of(past, END) == b"".join(state_items(HISTORY[-1].image, as_msgpack=False))
        frames = log.read(0, max_bytes=10 * limits.MIB)
        expected = [line for batch, _ in decode_all(frames) for line in log_lines(batch, from_offset=3)]
        told, end = [], 3
        while end < END:
            lines, end, _ = await past.lines(frames, end)
            assert len(lines) < 700 + max(map(len, lines.splitlines())) + 1, (
                "bounded by the lines, not the frames"
            )
            told += [json.loads(line) for line in lines.splitlines()]
        assert told == expected

    tell(tmp_path, story, process if has_process else None)


@pytest.mark.parametrize("has_process", [True, False])
def test_what_cannot_be_read_is_refused_by_name(
    tmp_path: Path, process: HistoryProcess, has_process: bool
) -> None:
    async def story(past: Past, store: SnapshotStore, log: CommittedLog) -> None:
        with pytest.raises(OffsetInFuture):
            await all_of(past, END + 1)
        frames = bytearray(log.read(0, max_bytes=10 * limits.MIB))
        frames[200] ^= 1
        with pytest.raises(LogDamaged):
            await past.lines(bytes(frames), 0)
        (snapshot_id,) = store.ids()
        path = store.path(snapshot_id)
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
        expected = json_bytes(HISTORY[40].image.end_offset)
        state = await all_of(past, HISTORY[40].image.end_offset)
        assert json_bytes(json.loads(state)["end_offset"]) == expected, "the log alone has it too"
        assert not store.ids(), "the damaged snapshot is in quarantine"
        retained(log.segments, bytes_max=0, older_than_ms=None, below=END)
        with pytest.raises(OffsetCompacted):
            await all_of(past, HISTORY[40].image.end_offset)

    tell(tmp_path, story, process if has_process else None)


def test_a_state_is_dropped_when_its_reader_is_done(tmp_path: Path, process: HistoryProcess) -> None:
    async def story(past: Past, _store: SnapshotStore, _log: CommittedLog) -> None:
        async with past.state_at(END) as state:
            reader = asyncio.create_task(all_of(past, END))
            async with asyncio.timeout(60):
                while not past._states._waiting:
                    await asyncio.sleep(0)
            assert not reader.done(), "one state is held at a time here"
            reader.cancel()
        with pytest.raises(ThrottlingQuotaExceeded, match="has lost the state"):
            await anext(state.pieces(as_msgpack=True))
        await all_of(past, END)

    tell(tmp_path, story, process, states_max=1)


@pytest.mark.parametrize("has_process", [True, False])
def test_a_read_that_waits_too_long_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: HistoryProcess, has_process: bool
) -> None:
    monkeypatch.setattr(limits, "LINES_HERE_BYTES_MAX", 0)

    async def story(past: Past, _store: SnapshotStore, log: CommittedLog) -> None:
        async with past.state_at(END):
            with monkeypatch.context() as patch:
                patch.setattr(limits, "PAST_READ_WAIT_MAX_MS", 0)
                with pytest.raises(
                    ThrottlingQuotaExceeded, match="too long for its turn among the past states"
                ):
                    await all_of(past, END)
        gate = threading.Event()
        busy = asyncio.ensure_future(past._threads.run(gate.wait))
        await asyncio.sleep(0)
        with pytest.raises(ThrottlingQuotaExceeded, match="too long for its turn among the reads"):
            await past.lines(log.read(0, max_bytes=limits.MIB), 0, order=1, begin_by_s=0)
        gate.set()
        await busy
        assert await all_of(past, END)

    tell(tmp_path, story, process if has_process else None, states_max=1)


@pytest.mark.slow
def test_a_process_that_was_killed_is_started_anew(tmp_path: Path) -> None:
    process = HistoryProcess("quorum.log.past")

    async def story(past: Past, _store: SnapshotStore, _log: CommittedLog) -> None:
        async with past.state_at(END) as state:
            assert process._child is not None
            os.kill(process._child.pid, signal.SIGKILL)
            with pytest.raises(ThrottlingQuotaExceeded, match="ask again"):
                await anext(state.pieces(as_msgpack=True))
        assert await all_of(past, END)

    try:
        tell(tmp_path, story, process)
    finally:
        process.shut_down()
    with pytest.raises(ThrottlingQuotaExceeded):
        process.call("forget", [])


LAST_IN_LINE = 19
"""The priority behind all others."""


@pytest.mark.slow
def test_the_process_ends_with_its_parent_and_computes_beside_it() -> None:
    process = HistoryProcess("quorum.log.past")
    process.call("forget", [])
    assert process._child is not None
    assert process._link is not None
    niceness = os.getpriority(os.PRIO_PROCESS, process._child.pid)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert niceness > own or niceness == own == LAST_IN_LINE, "it gives way to the controller"
    process._link.close()  # as the kernel does when a process is killed
    deadline = time.monotonic() + 60
    while process._child is not None and process._child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process._child is not None
    assert process._child.returncode == 0
    process.shut_down()


def test_lines_of_no_frames_are_none() -> None:
    assert lines_of(b"", 5) == (b"", 5, None)


def test_what_the_process_was_not_told_to_drop_it_is_told_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[int]] = []

    async def story(past: Past, _store: SnapshotStore, _log: CommittedLog) -> None:
        async def there(_work: str, keys: list[int], *, order: int = 0) -> None:
            del order
            told.append(keys)
            await asyncio.sleep(0)
            if keys == [1] and told.count([1]) == 1:
                raise ThrottlingQuotaExceeded("too many wait")

        monkeypatch.setattr(past, "_there", there)
        past._left = [1]
        first = asyncio.create_task(past._forget_there())
        await asyncio.sleep(0)
        past._left.append(2)
        await past._forget_there()
        await first
        assert past._left == [1]
        await past._forget_there()
        assert (told, past._left) == ([[1], [2], [1]], [])

    tell(tmp_path, story, None)


@pytest.mark.slow
def test_a_later_state_whose_reader_went_while_a_thread_made_it_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def slow(*args: object, **named: object) -> object:
        began.set()
        assert goes_on.wait(10)
        return fold(*args, **named)  # type: ignore[arg-type]

    async def story(past: Past, _store: SnapshotStore, log: CommittedLog) -> None:
        monkeypatch.setattr(past_module, "fold", slow)
        asked = asyncio.create_task(past.difference(0, log.end_offset, 1))
        while not began.is_set():
            await asyncio.sleep(0.001)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        goes_on.set()
        await past._threads.run(int)
        assert not past_module._AHEAD and not past_module._IMAGES

    tell(tmp_path, story, None)


def test_a_question_near_the_last_one_reads_no_snapshot(tmp_path: Path, process: HistoryProcess) -> None:
    """Goal: a timeline that is scrubbed, and a loss that is foreseen twice, fold what lies between and nothing else."""

    async def story(past: Past, store: SnapshotStore, _log: CommittedLog) -> None:
        at = HISTORY[40].image.end_offset
        first = await all_of(past, at)
        (snapshot_id,) = store.ids()
        hidden = tmp_path / "hidden"
        path = store.path(snapshot_id)
        path.rename(hidden)
        path.write_bytes(b"nothing that could be read")
        progress = past_module.Progress()
        assert await all_of(past, at) == first
        async with past.state_at(END, progress):
            assert progress.doing == "reading the log from there on"
        changed = await past.difference(at, END, 1)
        assert changed["from"]["end_offset"] == at and changed["to"]["end_offset"] == END
        hidden.rename(path)
        before = HISTORY[35].image.end_offset
        assert json.loads(await all_of(past, before))["digest"] == digest(HISTORY[35].image), (
            "below all that is warm"
        )

    tell(tmp_path, story, process)


def test_what_fails_in_the_process_is_refused_by_name(tmp_path: Path, process: HistoryProcess) -> None:
    async def story(past: Past, _store: SnapshotStore, log: CommittedLog) -> None:
        frames = bytearray(log.read(0, max_bytes=10 * limits.MIB))
        frames[200] ^= 1
        async with past.state_at(END) as state:
            with pytest.raises(LogDamaged):
                await state.ahead(bytes(frames))
            await past._there("forget", [state._key])
            with pytest.raises(ThrottlingQuotaExceeded, match="lost the state"):
                await state.view("summary", 1)
            with pytest.raises(ThrottlingQuotaExceeded, match="lost the state"):
                await state.losses({}, [11])

    tell(tmp_path, story, process)


def test_the_process_that_reads_the_past_imports_no_server() -> None:
    """Its first answer waits for its imports: those of HTTP took as long as all others together."""
    script = "import quorum.log.past, sys; print('aiohttp' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
