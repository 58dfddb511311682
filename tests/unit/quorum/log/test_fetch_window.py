"""Edge: the window of committed frames in memory answers as the log on disk does."""

from pathlib import Path

from metadata_log.codec import read_header
from metadata_log.log.segmented_log import SegmentedLog
from quorum.log.fetch_window import FetchWindow
from tests.support.histories import history_of


def test_it_answers_as_the_segments_do(tmp_path: Path) -> None:
    history = [*history_of(1, 80)]
    log = SegmentedLog.open(tmp_path / "log")
    window = FetchWindow(bytes_max=3_000)
    for step in history:
        header = read_header(step.frame)
        log.append(step.frame, header)
        window.append(header, step.frame)
        assert window.end_offset == log.end_offset
    assert 0 < window.start_offset < window.end_offset
    for offset in range(log.end_offset + 2):
        held = window.start_offset <= offset <= window.end_offset
        for max_bytes in (1, 300, 10**6):
            assert window.read(offset, max_bytes) == (log.read(offset, max_bytes=max_bytes) if held else None)
        assert window.position_before(offset) == (log.position_before(offset) if held else None)
    assert len(window.read(window.start_offset, 10**6) or b"") <= 3_000
    log.close()


def test_it_forgets_in_bulk_and_keeps_its_bound() -> None:
    history = [*history_of(2, 20)]
    window = FetchWindow(bytes_max=2_000)
    header = read_header(history[0].frame)
    end = 0
    for _ in range(5_000):
        moved = header._replace(base_offset=end, record_count=1)
        window.append(moved, history[0].frame)
        end += 1
    assert window.end_offset == end
    assert window.start_offset == end - 2_000 // len(history[0].frame)
    assert len(window._frames) < 3_000
    assert window.position_before(window.start_offset) == (header.controller_epoch, header.crc)


def test_a_batch_larger_than_the_window_is_not_held() -> None:
    step = history_of(2, 1)[0]
    window = FetchWindow(bytes_max=10)
    window.append(read_header(step.frame), step.frame)
    end = step.batch.end_offset
    assert (window.start_offset, window.end_offset) == (end, end)
    assert window.read(end, 1) == b""
    assert window.read(0, 1) is None
    assert window.position_before(end) == (step.batch.controller_epoch, step.batch.crc)


def test_after_a_snapshot_it_begins_at_its_end() -> None:
    window = FetchWindow()
    assert (window.read(0, 1), window.position_before(0)) == (b"", (-1, 0))
    window.reset(900, 7, 42)
    assert (window.start_offset, window.end_offset) == (900, 900)
    assert window.position_before(900) == (7, 42)
    assert window.position_before(899) is None
    assert window.read(899, 1) is None
