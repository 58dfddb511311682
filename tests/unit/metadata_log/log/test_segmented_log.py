"""Edge: the committed log on disk: frames are read back, a torn end is cut, and damage is refused."""

import errno
import os
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO
from unittest.mock import patch

import pytest

from metadata_log.codec import FrameHeader, check_frame, decode_all, read_header
from metadata_log.errors import DamagedFile, DiskFailed, InvariantBroken, OffsetCompacted
from metadata_log.image.metadata_image import EMPTY
from metadata_log.limits import RESERVE_BYTES
from metadata_log.log import readable_log, recovery, segment_file
from metadata_log.log.recovery import verify
from metadata_log.log.segment_file import check_frames
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.quorum import NoOpRecord
from metadata_log.records.registry import Record
from tests.support.histories import Step, claim, history_of, step_of
from tests.support.retained import retained


@pytest.fixture
def history() -> list[Step]:
    return [*history_of(7, 60)]


def written(directory: Path, history: list[Step], *, segment_bytes: int = 2_000) -> SegmentedLog:
    log = SegmentedLog.open(directory, segment_bytes=segment_bytes)
    for step in history:
        log.append(step.frame, read_header(step.frame))
    return log


def files(directory: Path, suffix: str = ".log") -> list[Path]:
    return sorted(directory.glob(f"*{suffix}"))


def whole(history: list[Step]) -> bytes:
    return b"".join(step.frame for step in history)


def small_history() -> list[Step]:
    """Return five batches of few bytes, for tests of every byte."""
    no_op = NoOpRecord()
    contents: list[list[Record]] = [[no_op], [no_op, FeatureLevelRecord("f", 1)], [no_op] * 3, [no_op]]
    steps = [step_of(EMPTY, [claim(EMPTY)])]
    for records in contents:
        steps.append(step_of(steps[-1].image, records))
    return steps


def test_an_empty_log_stands_at_zero(tmp_path: Path) -> None:
    log = SegmentedLog.open(tmp_path / "log")
    assert (log.log_start_offset, log.end_offset, log.last_epoch, log.last_crc, log.synced_end_offset) == (
        0,
    ) * 5
    assert log.read(0, max_bytes=1_000) == b""
    assert log.position_before(0) == (-1, 0)
    assert log.end_offset_at(10**15) == log.base_offset_from(0) == 0
    log.sync()
    log.close()
    assert files(tmp_path / "log") == []


def test_frames_are_kept_in_files_that_none_spans(tmp_path: Path, history: list[Step]) -> None:
    log = written(tmp_path / "log", history)
    last = history[-1].batch
    assert (log.end_offset, log.last_epoch, log.last_crc) == (
        last.end_offset,
        last.controller_epoch,
        last.crc,
    )
    assert len(files(tmp_path / "log")) > 3
    for path in files(tmp_path / "log"):
        batches = [batch for batch, _ in decode_all(path.read_bytes())]
        assert path.name == f"{batches[0].base_offset:020d}.log"
    assert b"".join(path.read_bytes() for path in files(tmp_path / "log")) == whole(history)
    log.close()
    again = SegmentedLog.open(tmp_path / "log", segment_bytes=2_000)
    assert (again.end_offset, again.last_epoch, again.last_crc) == (
        last.end_offset,
        last.controller_epoch,
        last.crc,
    )
    assert again.read(0, max_bytes=10**9) == whole(history)
    again.close()


def test_a_read_begins_with_the_frame_that_contains_the_offset(tmp_path: Path, history: list[Step]) -> None:
    log = written(tmp_path / "log", history)
    for index, step in enumerate(history):
        for offset in range(step.batch.base_offset, step.batch.end_offset):
            assert log.read(offset, max_bytes=1) == step.frame, "at least one frame, however small max_bytes"
        two = b"".join(s.frame for s in history[index : index + 2])
        assert log.read(step.batch.base_offset, max_bytes=len(two)) == two
        assert log.read(0, max_bytes=10**9, until=step.batch.end_offset) == whole(history[: index + 1])
        assert log.read(0, max_bytes=10**9, until=step.batch.end_offset - 1) == whole(history[:index])
    assert log.read(log.end_offset, max_bytes=1) == b""
    log.close()


def test_only_the_frame_that_follows_is_appended(tmp_path: Path, history: list[Step]) -> None:
    log = written(tmp_path / "log", history[:5])
    with pytest.raises(InvariantBroken, match="does not continue"):
        log.append(history[6].frame, read_header(history[6].frame))
    foreign = read_header(history[5].frame)._replace(previous_crc=1)
    with pytest.raises(InvariantBroken, match="does not continue"):
        log.append(history[5].frame, foreign)
    log.close()


@pytest.mark.parametrize("together", [1, 3, 7, 1_000])
def test_frames_appended_together_lie_as_if_they_were_appended_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: list[Step], together: int
) -> None:
    alone = written(tmp_path / "alone", history)
    alone.close()
    writes: list[int] = []
    write = os.write

    def counted(fd: int, data: bytes) -> int:
        writes.append(len(data))
        return write(fd, data[: len(data) // 2] if len(writes) % 5 == 1 else data)

    log = SegmentedLog.open(tmp_path / "together", segment_bytes=2_000)
    frames = [(step.frame, read_header(step.frame)) for step in history]
    monkeypatch.setattr(os, "write", counted)
    for first in range(0, len(frames), together):
        log.append_all(frames[first : first + together])
    monkeypatch.setattr(os, "write", write)
    log.close()
    lots = -(-len(frames) // together)
    halved = -(-len(writes) // 5)
    assert len(writes) - halved <= lots + len(files(tmp_path / "together"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "together").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "alone").iterdir()
    }


def test_of_frames_with_a_gap_none_is_appended(tmp_path: Path, history: list[Step]) -> None:
    log = SegmentedLog.open(tmp_path / "log", segment_bytes=2_000)
    frames = [(step.frame, read_header(step.frame)) for step in history]
    log.append_all([])
    with pytest.raises(InvariantBroken, match="does not continue"):
        log.append_all([*frames[:5], *frames[6:]])
    assert (log.end_offset, files(tmp_path / "log")) == (0, [])
    log.append_all(frames)
    assert log.end_offset == history[-1].batch.end_offset


def test_what_is_committed_again_must_be_the_same(tmp_path: Path, history: list[Step]) -> None:
    log = written(tmp_path / "log", history)
    for step in history:
        log.equals(step.frame, read_header(step.frame))
    others = [history_of(seed, 1)[0].frame for seed in range(8, 28)]
    sizes = {len(other) - len(history[0].frame) for other in others}
    assert min(sizes) < 0 < max(sizes)
    for other in others:
        with pytest.raises(InvariantBroken, match="byte 0") as broken:
            log.equals(other, read_header(other))
        assert broken.value.context == {"runbook": "two-histories.md"}
    path = log.files()[0].path
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    rotten = next(step for step in history if step.batch.end_offset == log.files()[0].end_offset)
    with pytest.raises(DamagedFile, match=str(path)):
        log.equals(rotten.frame, read_header(rotten.frame))
    log.close()


def test_positions_are_known_where_frames_end(tmp_path: Path, history: list[Step]) -> None:
    log = written(tmp_path / "log", history)
    ends = {step.batch.end_offset: (step.batch.controller_epoch, step.batch.crc) for step in history}
    for offset in range(1, log.end_offset + 1):
        assert log.position_before(offset) == ends.get(offset)
    assert log.position_before(log.end_offset + 1) is None
    log.close()


def test_a_reader_of_another_history_is_sent_back_to_the_last_frame_it_may_share(
    tmp_path: Path, history: list[Step]
) -> None:
    log = written(tmp_path / "log", history)
    batches = [step.batch for step in history]
    for epoch in range(batches[-1].controller_epoch + 2):
        for offset in range(1, log.end_offset + 5):
            shared = [b for b in batches if b.end_offset < offset and b.controller_epoch <= epoch]
            expected = (shared[-1].end_offset, shared[-1].controller_epoch) if shared else (0, 0)
            assert log.largest_common_end(epoch, offset) == expected
    log.close()


def test_times_are_looked_up_by_their_running_maximum(tmp_path: Path, history: list[Step]) -> None:
    log = written(tmp_path / "log", history)
    maxima, newest = [], 0
    for step in history:
        newest = max(newest, step.batch.appended_at_ms)
        maxima.append((newest, step.batch))
    for time_ms in sorted({m + d for m, _ in maxima for d in (-1, 0, 1)}):
        not_later = [batch.end_offset for m, batch in maxima if m <= time_ms]
        not_earlier = [batch.base_offset for m, batch in maxima if m >= time_ms]
        assert log.end_offset_at(time_ms) == (not_later[-1] if not_later else 0)
        assert log.base_offset_from(time_ms) == (not_earlier[0] if not_earlier else log.end_offset)
    log.close()


def test_a_sync_covers_what_was_appended_before_it(tmp_path: Path, history: list[Step]) -> None:
    log = written(tmp_path / "log", history[:30])
    assert log.synced_end_offset == 0
    failures: list[BaseException] = []

    def sync() -> None:
        try:
            for _ in range(50):
                log.sync()
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=sync) for _ in range(2)]
    for worker in workers:
        worker.start()
    for step in history[30:]:
        log.append(step.frame, read_header(step.frame))
    for worker in workers:
        worker.join()
    assert not failures
    log.sync()
    assert log.synced_end_offset == log.end_offset
    assert len(files(tmp_path / "log", ".index")) == len(files(tmp_path / "log")) - 1
    assert log.read(0, max_bytes=10**9) == whole(history)
    log.close()


@pytest.mark.parametrize("harm", ["missing", "stale", "cut", "wrong"])
def test_an_index_is_made_again(tmp_path: Path, history: list[Step], harm: str) -> None:
    directory = tmp_path / "log"
    written(directory, history).close()
    indexes = files(directory, ".index")
    before = indexes[1].read_bytes()
    match harm:
        case "missing":
            indexes[1].unlink()
        case "stale":
            shutil.copy(indexes[2], indexes[1])
        case "cut":
            indexes[1].write_bytes(before[:-1])
        case "wrong":
            indexes[1].write_bytes(before[:20] + b"\xff" + before[21:])
    log = SegmentedLog.open(directory, segment_bytes=2_000)
    assert log.read(0, max_bytes=10**9) == whole(history)
    assert indexes[1].read_bytes() == before
    log.close()


def test_an_index_that_leads_nowhere_is_not_believed(tmp_path: Path, history: list[Step]) -> None:
    log = written(tmp_path / "log", history)
    first = log._segments[0]
    first.entries = [entry._replace(position=entry.position + 3) for entry in first.entries]
    assert log.read(1, max_bytes=1) == history[0].frame
    log.close()


@pytest.mark.parametrize("which", [0, -1], ids=["a closed file", "the file that is written"])
@pytest.mark.parametrize("byte", [0, 6, 15], ids=["magic", "length", "offset"])
@pytest.mark.parametrize("nth", [0, 1])
def test_rot_that_a_read_meets_hurts_nothing_but_that_read(
    tmp_path: Path, history: list[Step], which: int, byte: int, nth: int
) -> None:
    """Goal: who reads old history at any offset is refused by file and byte, at once, and the log goes on."""
    log, count = written(tmp_path / "log", history[:40]), 40
    while sum(header.base_offset >= int(files(tmp_path / "log")[-1].stem) for header, _ in log.frames(0)) < 3:
        log.append(history[count].frame, read_header(history[count].frame))
        count += 1
    path = files(tmp_path / "log")[which]
    headers = [header for header, _ in log.frames(0)]
    inside = [header for header in headers if header.base_offset >= int(path.stem)][:6]
    rotten, position = inside[nth], nth * inside[0].frame_bytes
    data = bytearray(path.read_bytes())
    data[position + byte] ^= 1
    path.write_bytes(bytes(data))
    end_offset, size = log.end_offset, log.size
    for offset in (inside[2].base_offset, rotten.base_offset, inside[2].base_offset, rotten.base_offset):
        with pytest.raises(DamagedFile, match=f"{path}: byte {position}"):
            log.read(offset, max_bytes=10**9)
        with pytest.raises(DamagedFile, match=f"{path}: byte {position}"):
            log.position_before(rotten.end_offset)
    if nth:
        assert next(log.frames(inside[0].base_offset)) == (inside[0], history[headers.index(inside[0])].frame)
    assert (log.end_offset, log.size) == (end_offset, size)
    for step in history[count:]:
        log.append(step.frame, read_header(step.frame))
    log.begin_file()
    until = next(file.end_offset for file in log.files() if file.path == path)
    held = [step for step in history if int(path.stem) <= step.batch.base_offset < until]
    log.replace_segment(log.prepare_replacement(int(path.stem), whole(held)))
    assert log.read(0, max_bytes=10**9) == whole(history)
    log.close()


def test_a_file_that_a_retention_takes_just_before_it_is_opened_is_compacted(
    tmp_path: Path, history: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path / "log", history)
    log.sync()
    first = log.files()[0]
    reading = segment_file.reading

    def too_late(path: Path) -> AbstractContextManager[BinaryIO]:
        retained(log, bytes_max=0, older_than_ms=None, below=first.end_offset)
        return reading(path)

    with monkeypatch.context() as late:
        late.setattr("metadata_log.log.readable_log.reading", too_late)
        with pytest.raises(OffsetCompacted, match=f"begins at offset {first.end_offset} by now"):
            log.read(0, max_bytes=1_000)
    log.files()[0].path.unlink()
    with pytest.raises(DiskFailed):
        log.read(first.end_offset, max_bytes=1_000)
    log.close()


def test_what_is_prepared_for_a_file_that_a_retention_took_is_not_put_there(
    tmp_path: Path, history: list[Step]
) -> None:
    log = written(tmp_path / "log", history)
    log.sync()
    first = log.files()[0]
    frames = whole([step for step in history if step.batch.base_offset < first.end_offset])
    replacement = log.prepare_replacement(0, frames)
    retained(log, bytes_max=0, older_than_ms=None, below=first.end_offset)
    with pytest.raises(OffsetCompacted):
        log.replace_segment(replacement)
    assert not first.path.exists()
    assert verify(tmp_path / "log").start_offset == first.end_offset
    log.close()


def test_a_repair_that_fails_leaves_nothing(tmp_path: Path, history: list[Step]) -> None:
    log = written(tmp_path / "log", history)
    first = log.files()[0]
    frames = whole([step for step in history if step.batch.base_offset < first.end_offset])
    with (
        patch("metadata_log.node.disk.disk_space.free_bytes", return_value=RESERVE_BYTES),
        pytest.raises(DiskFailed, match="bytes are free"),
    ):
        log.prepare_replacement(0, frames)
    before = sorted(tmp_path.rglob("*"))

    def failing(_path: Path) -> Iterator[bytes]:
        yield b"a part"
        raise OSError(errno.ENOSPC, "No space left on device")

    with patch("metadata_log.node.disk.durable_files._readable_pages", failing), pytest.raises(DiskFailed):
        log.prepare_replacement(0, frames)
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != "quarantine"] == before
    log.close()


def test_frames_with_one_missing_replace_no_file(tmp_path: Path, history: list[Step]) -> None:
    """Goal: what a peer sends begins and ends as the file did, and lacks a frame between; the file stays as it is."""
    log = written(tmp_path / "log", history)
    first = log.files()[0]
    held = [step.frame for step in history if step.batch.base_offset < first.end_offset]
    assert len(held) >= 3
    with pytest.raises(DamagedFile, match="does not continue"):
        log.prepare_replacement(0, b"".join([held[0], *held[2:]]))
    with pytest.raises(DamagedFile, match="ends otherwise"):
        log.prepare_replacement(0, b"".join(held[:-1]))
    assert first.path.read_bytes() == b"".join(held)
    log.close()


def test_rot_at_an_entry_of_the_index_is_told_without_reading_all(
    tmp_path: Path, history: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_file, "INDEX_INTERVAL_BYTES", 1_000)
    log = written(tmp_path / "log", history, segment_bytes=10**6)
    entries = log._segments[0].entries
    assert len(entries) > 3
    path = log.files()[0].path
    data = bytearray(path.read_bytes())
    data[entries[2].position] ^= 1
    path.write_bytes(bytes(data))
    monkeypatch.setattr(readable_log, "scan", None)
    for offset in (entries[2].offset, entries[3].offset - 1):
        with pytest.raises(DamagedFile, match=f"{path}: byte {entries[2].position}"):
            log.read(offset, max_bytes=1)
    log.close()


def test_what_the_disk_does_not_give_is_damage(
    tmp_path: Path, history: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path / "log", history)
    file = log.files()[1]
    read_frame = segment_file.read_frame

    def failing(path: Path, opened: BinaryIO, position: int) -> tuple[FrameHeader, bytes]:
        if path == file.path and position > 0:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read_frame(path, opened, position)

    for module in (segment_file, readable_log):
        monkeypatch.setattr(module, "read_frame", failing)
    with pytest.raises(DamagedFile, match=f"{file.path}: cannot be read: Input/output error"):
        log.read(0, max_bytes=10**9)
    with pytest.raises(DamagedFile, match=f"{file.path}: cannot be read"):
        check_frames(file, 0, bytes_max=10**9)
    assert check_frames(log.files()[0], 0, bytes_max=10**9) == log.files()[0].size
    log.close()


def test_closed_files_are_not_read_at_the_start(
    tmp_path: Path, history: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "log", history).close()
    scanned: list[Path] = []
    scan = segment_file.scan

    def counting(segment: segment_file.Segment, **options: bool) -> bool:
        scanned.append(segment.path)
        return scan(segment, **options)

    monkeypatch.setattr(recovery, "scan", counting)
    SegmentedLog.open(tmp_path / "log", segment_bytes=2_000).close()
    assert scanned == [files(tmp_path / "log")[-1]]


def test_a_file_cut_anywhere_keeps_its_whole_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)  # a thousand openings, and nothing here depends on syncs
    monkeypatch.setattr("os.fdatasync", lambda _: None)
    history = small_history()
    data = whole(history)
    ends = [0]
    for step in history:
        ends.append(ends[-1] + len(step.frame))
    for cut in range(len(data) + 1):
        directory = tmp_path / "log"
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(data[:cut])
        log = SegmentedLog.open(directory)
        kept = max(end for end in ends if end <= cut)
        assert log.read(0, max_bytes=10**9) == data[:kept]
        assert log.torn_bytes == cut - kept
        for step in history[ends.index(kept) :]:
            log.append(step.frame, read_header(step.frame))
        assert log.read(0, max_bytes=10**9) == data
        log.close()
        shutil.rmtree(directory)


def test_a_flipped_bit_is_refused_by_file_and_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: damage is never taken for a tear, but in the last frame, which no reader can tell from one."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    history = small_history()
    data = whole(history)
    last = len(data) - len(history[-1].frame)
    rng = random.Random(5)
    directory = tmp_path / "log"
    directory.mkdir()
    path = directory / f"{0:020d}.log"
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        if at >= last:
            log = SegmentedLog.open(directory)
            assert log.read(0, max_bytes=10**9) == data[:last]
            log.close()
            continue
        begin, end = 0, 0
        for step in history:
            begin, end = end, end + len(step.frame)
            if at < end:
                break
        with pytest.raises(DamagedFile) as refused:
            SegmentedLog.open(directory)
        assert refused.value.context["path"] == str(path)
        assert refused.value.context["position"] == begin
        assert f"byte {begin}:" in refused.value.message
        assert path.read_bytes() == flipped, "what is refused is left as it is"


def test_pages_lost_by_a_power_failure_are_a_tear(tmp_path: Path) -> None:
    history = [*history_of(6, 150)]
    data = whole(history)
    assert len(data) > 4 * 4096
    for lost in (0, 1, 2):
        directory = tmp_path / str(lost)
        directory.mkdir()
        hole = bytearray(data)
        hole[lost * 4096 + 100 : (lost + 1) * 4096] = bytes(4096 - 100)
        (directory / f"{0:020d}.log").write_bytes(hole)
        log = SegmentedLog.open(directory)
        sound = log.read(0, max_bytes=10**9)
        assert data.startswith(sound)
        assert lost * 4096 + 100 - 2_000 < len(sound) <= lost * 4096 + 100
        log.close()


def test_a_tear_in_a_file_that_was_never_synced_takes_the_later_ones_along(
    tmp_path: Path, history: list[Step]
) -> None:
    log = written(tmp_path / "log", history)
    paths = files(tmp_path / "log")
    data = paths[1].read_bytes()
    paths[1].write_bytes(data[:-7])
    again = SegmentedLog.open(tmp_path / "log", segment_bytes=2_000)
    assert [path.name for path in again.discarded] == [path.name for path in paths[2:]]
    assert all(path.parent == tmp_path / "quarantine" for path in again.discarded)
    missing = [step for step in history if step.batch.base_offset >= again.end_offset]
    for step in missing:
        again.append(step.frame, read_header(step.frame))
    assert again.read(0, max_bytes=10**9) == whole(history)
    log.close()
    again.close()


def test_damage_in_a_closed_file_is_refused_when_it_is_read(tmp_path: Path, history: list[Step]) -> None:
    written(tmp_path / "log", history).close()
    path = files(tmp_path / "log")[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)
    log = SegmentedLog.open(tmp_path / "log", segment_bytes=2_000)
    with pytest.raises(DamagedFile, match=r"log: byte \d+: ") as refused:
        log.read(0, max_bytes=10**9)
    assert refused.value.context["path"] == str(path)
    log.close()
    with pytest.raises(DamagedFile) as verified:
        verify(tmp_path / "log")
    assert verified.value.message == refused.value.message


def test_an_old_file_put_back_is_refused(tmp_path: Path, history: list[Step]) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    path = directory / f"{0:020d}.log"
    path.write_bytes(whole(history[:3]) + history[1].frame)
    with pytest.raises(DamagedFile, match=f"byte {len(whole(history[:3]))}: a frame does not continue"):
        SegmentedLog.open(directory)


def test_a_missing_file_is_refused(tmp_path: Path, history: list[Step]) -> None:
    written(tmp_path / "log", history).close()
    files(tmp_path / "log")[2].unlink()
    with pytest.raises(DamagedFile, match="the log before it ends at"):
        SegmentedLog.open(tmp_path / "log")


def test_behind_a_missing_file_whose_frames_come_again_everything_is_set_aside(
    tmp_path: Path, history: list[Step]
) -> None:
    written(tmp_path / "log", history).close()
    paths = files(tmp_path / "log")
    end_offset = int(paths[2].stem)
    contents = [path.read_bytes() for path in paths[3:]]
    paths[2].unlink()
    log = SegmentedLog.open(tmp_path / "log", made_again_from=end_offset)
    assert log.end_offset == end_offset
    assert log.damage is not None and "the log before it ends at" in log.damage
    assert [path.read_bytes() for path in log.discarded] == contents
    assert {path.parent for path in log.discarded} == {tmp_path / "quarantine"}
    assert log.torn_bytes == 0
    assert files(tmp_path / "log") == paths[:2]


def test_verify_counts_and_changes_nothing(tmp_path: Path, history: list[Step]) -> None:
    written(tmp_path / "log", history).close()
    found = verify(tmp_path / "log")
    assert (found.frames, found.size, found.end_offset) == (
        60,
        len(whole(history)),
        history[-1].batch.end_offset,
    )
    last = files(tmp_path / "log")[-1]
    last.write_bytes(last.read_bytes()[:-3])
    torn = last.read_bytes()
    assert verify(tmp_path / "log").torn_bytes > 0
    assert last.read_bytes() == torn
    one = verify(files(tmp_path / "log")[1])
    assert (one.files, one.start_offset) == (1, int(files(tmp_path / "log")[1].stem))


def test_retention_removes_whole_files_below_the_snapshot(tmp_path: Path, history: list[Step]) -> None:
    log = written(tmp_path / "log", history)
    log.sync()
    paths = files(tmp_path / "log")
    bases = [int(path.stem) for path in paths]
    assert retained(log, bytes_max=0, older_than_ms=None, below=bases[1] - 1) == []
    assert retained(log, bytes_max=None, older_than_ms=None, below=10**9) == []
    assert retained(log, bytes_max=log.size, older_than_ms=None, below=10**9) == []
    assert retained(log, bytes_max=log.size - 1, older_than_ms=None, below=10**9) == paths[:1]
    assert retained(log, bytes_max=0, older_than_ms=None, below=bases[3]) == paths[1:3]
    assert log.log_start_offset == bases[3]
    kept = [step for step in history if step.batch.base_offset >= bases[3]]
    before = next(step.batch for step in history if step.batch.end_offset == bases[3])
    with pytest.raises(OffsetCompacted):
        log.read(0, max_bytes=1)
    for reopened in (False, True):
        if reopened:
            log.close()
            log = SegmentedLog.open(tmp_path / "log", segment_bytes=2_000)
        assert log.read(bases[3], max_bytes=10**9) == whole(kept)
        assert log.position_before(bases[3]) == (before.controller_epoch, before.crc)
        assert log.position_before(bases[3] - 1) is None
        assert log.largest_common_end(0, bases[3] + 1) == (bases[3], before.controller_epoch)
    removed = retained(log, bytes_max=None, older_than_ms=10**15, below=10**9)
    assert removed == paths[3:-1], "the last file stays"
    log.close()


def test_an_interrupted_retention_is_finished_at_the_next_start(tmp_path: Path, history: list[Step]) -> None:
    log = written(tmp_path / "log", history)
    log.sync()
    paths = files(tmp_path / "log")
    first = paths[0].read_bytes()
    retained(log, bytes_max=0, older_than_ms=None, below=int(paths[2].stem))
    log.close()
    paths[0].write_bytes(first)
    again = SegmentedLog.open(tmp_path / "log")
    assert again.log_start_offset == int(paths[2].stem)
    assert [path.name for path in again.discarded] == [paths[0].name]
    again.close()


def test_a_log_restarts_at_a_snapshot_beyond_its_end(tmp_path: Path, history: list[Step]) -> None:
    log = written(tmp_path / "log", history[:20])
    snapshot = history[39].batch
    before = files(tmp_path / "log")
    moved = log.restart_at(snapshot.end_offset, snapshot.controller_epoch, snapshot.crc)
    assert [path.name for path in moved] == [path.name for path in before]
    assert b"".join(path.read_bytes() for path in moved) == whole(history[:20])
    for reopened in (False, True):
        if reopened:
            log.close()
            log = SegmentedLog.open(tmp_path / "log")
        assert (log.log_start_offset, log.end_offset) == (snapshot.end_offset, snapshot.end_offset)
        assert (log.last_epoch, log.last_crc) == (snapshot.controller_epoch, snapshot.crc)
        assert log.position_before(snapshot.end_offset) == (snapshot.controller_epoch, snapshot.crc)
    for step in history[40:]:
        log.append(step.frame, read_header(step.frame))
    log.sync()
    assert log.read(snapshot.end_offset, max_bytes=10**9) == whole(history[40:])
    log.close()


def test_a_full_disk_is_named_with_its_cure(
    tmp_path: Path, history: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path / "log", history[:3])
    own = log._fd
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(log, "_fd", full.fileno())
        with pytest.raises(DiskFailed, match=rf"{tmp_path}.*No space left.*free at least \d+ bytes"):
            log.append(history[3].frame, read_header(history[3].frame))
    monkeypatch.setattr(log, "_fd", own)
    with pytest.raises(DiskFailed, match="No space left"):
        log.close()  # part of a frame may lie there, so nothing counts until `open` has cut it off


def test_a_header_is_what_append_and_frames_speak(tmp_path: Path, history: list[Step]) -> None:
    log = written(tmp_path / "log", history)
    pairs: list[tuple[FrameHeader, bytes]] = list(log.frames(history[10].batch.base_offset))
    assert [frame for _, frame in pairs] == [step.frame for step in history[10:]]
    assert all(check_frame(frame) == header for header, frame in pairs)
    log.close()
