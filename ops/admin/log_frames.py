"""Edge: frames of the metadata log as tools read them: of a cluster over HTTP, or of files on this machine.
Tests: tests/unit/ops/verbs/test_log.py.
"""

import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log import limits
from metadata_log.batch import RecordBatch
from metadata_log.codec import DamagedFrame, FrameHeader, check_frame, damaged_answer, damaged_file, decode
from metadata_log.errors import InvalidRequest, OffsetInFuture
from metadata_log.node.disk.durable_files import renamed_os_errors
from ops.admin.exchange import Answer, Say, Unreachable, silent
from ops.when import AtOffset, AtTime, When, time_text

PAGE_BYTES: Final = 8 * limits.MIB
"""The most that one answer of /v1/log holds."""
SEGMENT_NAME: Final = re.compile(r"\d{20}\.log")


class Frame(NamedTuple):
    """A sound frame and its source: a byte of a file, or a node's answer (`position` is None)."""

    header: FrameHeader
    content: bytes
    source: Path | str
    position: int | None = None

    def batch(self) -> RecordBatch:
        """Return the decoded batch.

        Raises:
            DamagedFile: the content is not one of our batches.
            WrittenByAnotherVersion: the batch holds a record that this release does not know.
        """
        try:
            return decode(self.content)[0]
        except DamagedFrame as error:
            if self.position is None:
                raise damaged_answer(self.source, error) from error
            raise damaged_file(self.source, error, base=self.position) from error


def cluster_frames(ask: Callable[[str], Answer], *, first: str | None, until: str | None) -> Iterator[Frame]:
    """Yield frames from the one that contains `first` (None: where the log begins), page by page.

    It ends at `until`, else where the log ended when the first page was read. Offsets, or t<UNIX_MS>. A frame that holds the
    offset `until` is the last one.
    """
    end_offset: int | None = None
    stop = int(until) if until is not None and until.isdigit() else None
    while True:
        query = (
            {"max_bytes": str(PAGE_BYTES)}
            | ({"from": first} if first else {})
            | ({"until": until} if until else {})
        )
        answer = ask(f"/v1/log?{urllib.parse.urlencode(query)}")
        if end_offset is None:
            end_offset = high_watermark(answer)
        next_offset: int | None = None
        for frame in frames_in(answer):
            if frame.header.end_offset > end_offset:
                return
            yield frame
            next_offset = frame.header.end_offset
        if next_offset is None and stop is not None:
            if first is None or not first.isdigit() or int(first) < min(stop, end_offset):
                yield from _holding(ask, first, below=min(stop, end_offset))
            return
        if next_offset is None or next_offset >= end_offset:
            return
        first = str(next_offset)


def _holding(ask: Callable[[str], Answer], first: str | None, *, below: int) -> Iterator[Frame]:
    """Yield the frame that a page of `first` begins with, if it begins below an offset."""
    query = urllib.parse.urlencode({"max_bytes": "1"} | ({"from": first} if first else {}))
    for frame in islice(frames_in(ask(f"/v1/log?{query}")), 1):
        if frame.header.base_offset < below:
            yield frame


def high_watermark(answer: Answer) -> int:
    text = answer.headers.get("x-high-watermark", "")
    if not text.isdigit():
        raise Unreachable(f"{answer.url} answered without X-High-Watermark: is it a controller?")
    return int(text)


def frames_in(answer: Answer) -> Iterator[Frame]:
    at = 0
    while at < len(answer.body):
        try:
            header = check_frame(answer.body, at)
        except DamagedFrame as error:
            raise Unreachable(
                f"{answer.url} sent what is no frame: byte {error.at}: {error.reason}"
            ) from error
        yield Frame(header, answer.body[at : at + header.frame_bytes], answer.url)
        at += header.frame_bytes


def file_frames(path: Path, *, say: Say = silent) -> Iterator[Frame]:
    """Yield the frames of a data directory, a folder of segments, one segment or one snapshot, in order of their files.

    Nothing is opened for writing: the directory may be a running node's.
    """
    with renamed_os_errors(path):
        path.stat()
        folder = path / "log" if (path / "log").is_dir() else path
        files = sorted(folder.glob("*.log")) if path.is_dir() else [path]
        files = [
            file for file in files if file.is_file() and (file == path or SEGMENT_NAME.fullmatch(file.name))
        ]
        if not files:
            raise InvalidRequest(f"{path}: holds no segment of a metadata log")
        for file in files:
            data = file.read_bytes()
            at = 0
            while at < len(data):
                try:
                    header = check_frame(data, at)
                except DamagedFrame as error:
                    if not error.torn or file != files[-1]:
                        raise damaged_file(file, error) from error
                    say(f"{file}: byte {at}: {error.reason}: not wholly written, or torn by a crash")
                    return
                yield Frame(header, data[at : at + header.frame_bytes], file, at)
                at += header.frame_bytes


def within(
    frames: Iterable[Frame], *, first: When | None, until: When | None, say: Say = silent
) -> Iterator[Frame]:
    """Yield the frames between two positions; times are compared with the running maximum of the frames' own.

    A frame that contains the offset `first` or `until` belongs to it.

    Raises:
        OffsetInFuture: an offset lies beyond the frames.
    """
    latest_ms, end_offset, is_begun = 0, 0, False
    for frame in frames:
        header = frame.header
        latest_ms, end_offset = max(latest_ms, header.appended_at_ms), header.end_offset
        if not is_begun:
            is_begun = True
            _say_beginning(header, first, say)
        match until:
            case AtOffset(offset) if header.base_offset >= offset:
                return
            case AtTime(unix_ms) if latest_ms > unix_ms:
                return
        match first:
            case AtOffset(offset) if header.end_offset <= offset:
                continue
            case AtTime(unix_ms) if latest_ms < unix_ms:
                continue
        yield frame
    for what, asked in (("--from", first), ("--until", until)):
        if isinstance(asked, AtOffset) and asked.offset > end_offset:
            raise OffsetInFuture(f"{what} {asked.offset} lies beyond the end of what is here, {end_offset}")


def telling_of_its_beginning(
    frames: Iterable[Frame], *, first: When | None, begins_at: int, say: Say
) -> Iterator[Frame]:
    """Yield the frames of a cluster; say where its log begins, if that is behind what is asked for."""
    for place, frame in enumerate(frames):
        if place == 0 and frame.header.base_offset == begins_at:
            _say_beginning(frame.header, first, say)
        yield frame


def _say_beginning(header: FrameHeader, first: When | None, say: Say) -> None:
    """Say where a log begins, if that is behind what is asked for."""
    is_later = header.base_offset > 0 and (
        (isinstance(first, AtOffset) and first.offset < header.base_offset)
        or (isinstance(first, AtTime) and first.unix_ms < header.appended_at_ms)
    )
    if is_later:
        say(
            f"the log here begins at offset {header.base_offset}, {time_text(header.appended_at_ms)}: what came before it "
            "is not here"
        )
