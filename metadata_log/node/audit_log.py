"""Edge: the audit log of a node: JSON lines that say who asked for what, from where, and what came of it.

    doors --note--> buffer --at most AUDIT_WRITE_BYTES at once, in a thread--> FILE --full--> FILE.1, FILE.2, ...

A line is written shortly after its request is answered. The metadata log has each change with its actor, whatever happens
to this file. The node never waits for the file, and never stops because of it: while the file cannot be written, lines wait
in a buffer, `failure` says why, and what finds no room is counted as lost. A torn last line is that of a process that was
killed while it wrote: it is cut when the file is opened.
"""

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from metadata_log.limits import KIB, MIB
from metadata_log.node.audit_settings import AuditSettings
from metadata_log.node.clock import unix_ms

AUDIT_BUFFER_BYTES: Final = 4 * MIB
"""Lines that wait for the file: at 400 bytes each, 10,000 requests."""
AUDIT_WRITE_BYTES: Final = 64 * KIB
"""Of one write: the kernel takes it whole, unless the disk is full or the process is killed just then."""
AGAIN_S: Final = 1.0
"""Time until a failed write is tried again."""
GATHER_S: Final = 0.05
"""Lines of this time are written together."""
LAST_WORDS_S: Final = 2.0
"""A node that stops waits this long for the file."""
STRANGERS_PER_S: Final = 10
"""Lines about strangers, whom anybody may play: a flood of them would push all else out of the files."""
STRANGERS_BURST: Final = 200
MESSAGE_MAX: Final = 1_000
"""Characters of a message, which may quote what a client sent."""
RESOURCES_MAX: Final = 20
"""Resources that one line names; `resource_count` says how many there are."""


@dataclass(slots=True)
class Counts:
    """What became of lines since the start."""

    written: int = 0
    lost: int = 0
    strangers_left_out: int = 0


class AuditLog:
    """Takes lines on the event loop, and writes them in a thread within the context. Without a file it takes none."""

    def __init__(self, settings: AuditSettings, node: str, now_ms: Callable[[], int] = unix_ms) -> None:
        """`node` names the node whose doors these are, `Controller:1`; `now_ms` is Unix time."""
        self._settings = settings
        self._node = node
        self._now_ms = now_ms
        self.is_on = settings.file is not None
        self.counts = Counts()
        self.failure: str | None = None
        """Why the last write failed; None after one succeeded."""
        self._lines: deque[bytes] = deque()
        self._bytes_in = 0
        self._bytes_out = 0
        """Of lines that were taken, and of those that were written: each is changed by one thread alone."""
        self._wake = threading.Event()
        self._again = threading.Event()
        self._is_ending = False
        self._thread: threading.Thread | None = None
        self._writing = b""
        """What the thread writes now."""
        self._room_for_strangers = float(STRANGERS_BURST)
        self._strangers_at_s = 0.0
        self._left_out = 0
        self._file = None if settings.file is None else _File(settings.file, settings)

    @property
    def takes_reads(self) -> bool:
        return self.is_on and self._settings.reads

    def note(
        self,
        *,
        door: str,
        principal: str,
        address: str | None,
        operation: str,
        outcome: str,
        resources: Sequence[str] = (),
        resource_count: int | None = None,
        error: str | None = None,
        message: str | None = None,
        request_id: str | None = None,
        trace_id: str | None = None,
        offsets: Mapping[str, int] | None = None,
        by_stranger: bool = False,
    ) -> None:
        """Take one line; do nothing without a file.

        `outcome` is allowed, refused, unknown or failed. `offsets` are those of the change, {base, end}. `by_stranger`: it
        is about a sender without an identity.
        """
        if not self.is_on or (by_stranger and not self._admits_stranger()):
            return
        at_ms = self._now_ms()
        line = {
            "time": _time_text(at_ms),
            "node": self._node,
            "door": door,
            "principal": principal,
            "address": address,
            "operation": operation,
            "resources": resources[:RESOURCES_MAX],
            "resource_count": len(resources) if resource_count is None else resource_count,
            "outcome": outcome,
            "error": error,
            "message": None if message is None else message[:MESSAGE_MAX],
            "request_id": request_id,
            "trace_id": trace_id,
            "offsets": offsets,
        }
        if self._left_out:
            line["strangers_left_out"], self._left_out = self._left_out, 0
        encoded = _json(line) + b"\n"
        if self._bytes_in - self._bytes_out + len(encoded) > AUDIT_BUFFER_BYTES:
            self.counts.lost += 1
            return
        self._lines.append(encoded)
        self._bytes_in += len(encoded)
        self._wake.set()

    def _admits_stranger(self) -> bool:
        now_s = time.monotonic()
        passed_s, self._strangers_at_s = now_s - self._strangers_at_s, now_s
        self._room_for_strangers = min(
            self._room_for_strangers + passed_s * STRANGERS_PER_S, float(STRANGERS_BURST)
        )
        if self._room_for_strangers < 1:
            self._left_out += 1
            self.counts.strangers_left_out += 1
            return False
        self._room_for_strangers -= 1
        return True

    def reasons(self) -> Iterator[tuple[str, str]]:
        """Yield code and detail of what an operator should see to now."""
        if self.failure is not None:
            waiting = len(self._lines) + len(self._writing)
            detail = (
                f"{self.failure}; this node serves on, {waiting} lines wait and {self.counts.lost} are lost"
            )
            yield "AUDIT_NOT_WRITTEN", detail

    # --- the thread that writes

    def __enter__(self) -> Self:
        """Begin to write. Where there is no audit log, no thread begins."""
        if self._file is not None:
            self._thread = threading.Thread(
                target=self._run, args=(self._file,), name="audit log", daemon=True
            )
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Write the lines that are left, for LAST_WORDS_S at most: a disk may hang."""
        self._is_ending = True
        self._again.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(LAST_WORDS_S)

    def _run(self, file: "_File") -> None:
        self._append(file, b"")  # opens the file: what is wrong with it is known at once
        while True:
            while (data := self._writing or self._taken()) or self.failure is not None:
                if not self._append(file, data):
                    if self._is_ending:
                        return
                    self._again.wait(AGAIN_S)
            if self._is_ending:
                return
            self._wake.wait()
            if not self._is_ending:
                time.sleep(GATHER_S)
            self._wake.clear()

    def _taken(self) -> bytes:
        """Take the oldest lines for one write; they are in `_writing` until they are written."""
        taken: list[bytes] = []
        size = 0
        while self._lines and (not taken or size + len(self._lines[0]) <= AUDIT_WRITE_BYTES):
            taken.append(self._lines.popleft())
            size += len(taken[-1])
        self._writing = b"".join(taken)
        return self._writing

    def _append(self, file: "_File", data: bytes) -> bool:
        try:
            file.append(data)
        except OSError as error:
            self.failure = f"the audit log {file.path} cannot be written: {error.strerror or error}"
            return False
        self.failure = None
        self.counts.written += data.count(b"\n")
        self._bytes_out += len(data)
        self._writing = b""
        return True


class _File:
    """The file of an audit log, for one thread. Each call opens what another program moved away."""

    def __init__(self, path: Path, settings: AuditSettings) -> None:
        self.path = path
        self._settings = settings
        self._descriptor: int | None = None

    def append(self, data: bytes) -> None:
        """Append whole lines, all of them or none; a full file is moved aside before.

        Raises:
            OSError: the disk is full, or the file cannot be opened or moved.
        """
        descriptor = self._opened()
        size = os.fstat(descriptor).st_size
        if size and size + len(data) > self._settings.file_bytes:
            self._move_aside()
            descriptor = self._opened()
            size = os.fstat(descriptor).st_size
        try:
            done = os.write(descriptor, data) if data else 0
            while done < len(data):
                done += os.write(descriptor, data[done:])
        except OSError:
            os.ftruncate(descriptor, size)
            raise

    def _opened(self) -> int:
        if self._descriptor is not None:
            if _is_at(self.path, self._descriptor):
                return self._descriptor
            self._close()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = descriptor = os.open(self.path, flags, 0o600)
        _cut_torn_line(descriptor)
        return descriptor

    def _move_aside(self) -> None:
        self._close()
        keep = self._settings.files_kept
        for number in range(keep, 0, -1):
            with suppress(FileNotFoundError):
                source = self.path if number == 1 else Path(f"{self.path}.{number - 1}")
                source.replace(f"{self.path}.{number}")

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _cut_torn_line(descriptor: int) -> None:
    """Cut the bytes after the last end of a line: a process was killed while it wrote them."""
    end = size = os.fstat(descriptor).st_size
    while end:
        begin = max(end - AUDIT_WRITE_BYTES, 0)
        found = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if found >= 0:
            end = begin + found + 1
            break
        end = begin
    if end < size:
        os.ftruncate(descriptor, end)


def _json(line: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(line)
    except UnicodeEncodeError:  # half a surrogate pair, which the other library escapes
        return json.dumps(line).encode()


def _time_text(unix_time_ms: int) -> str:
    at = datetime.fromtimestamp(unix_time_ms / 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{unix_time_ms % 1000:03d}Z"


def no_audit_log() -> AuditLog:
    """Return an audit log that takes nothing."""
    return AuditLog(AuditSettings(), "")
