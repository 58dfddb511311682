"""A disk in memory. A power cut may lose any part of any write that is not synced.

It implements the journal's `Disk` and `File`. It is deterministic: chance comes in as an argument of
`crash`. Under a simulated clock a sync takes time: with `defer_syncs = True` nothing becomes durable before
`settle()`, and a crash in between happens at some point among the operations made since, never against
their order."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from metadata_log.errors import DiskFailed

SECTOR_BYTES = 512


class _Content:
    """Bytes of one file; what was never written reads as zeros, and those at its end take no memory."""

    def __init__(self, size: int = 0, written: bytes = b"") -> None:
        self.size = size
        self.written = bytearray(written)

    def copy(self) -> "_Content":
        return _Content(self.size, bytes(self.written))

    def read(self, position: int, size: int) -> bytes:
        size = max(0, min(size, self.size - position))
        return bytes(self.written[position : position + size]).ljust(size, b"\0")

    def write(self, position: int, data: bytes) -> None:
        self.size = max(self.size, position + len(data))
        if position >= len(self.written):
            data = data.rstrip(b"\0")
            if not data:
                return
        if len(self.written) < position:
            self.written.extend(bytes(position - len(self.written)))
        self.written[position : position + len(data)] = data


@dataclass(frozen=True, slots=True)
class _Write:
    name: str
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Sync:
    name: str


@dataclass(frozen=True, slots=True)
class _Put:
    """A file made or replaced as a whole; durable when the call returns."""

    name: str
    content: _Content


@dataclass(frozen=True, slots=True)
class _Remove:
    name: str


_Operation = _Write | _Sync | _Put | _Remove
Keep = Callable[[str, int, bytes], list[tuple[int, bytes]]]
"""(name, position, data) of an un-synced write -> the parts of it that reached the platter."""


def nothing(_name: str, _position: int, _data: bytes) -> list[tuple[int, bytes]]:
    return []


def everything(_name: str, position: int, data: bytes) -> list[tuple[int, bytes]]:
    return [(position, data)]


def any_sectors(rng: random.Random) -> Keep:
    """Lose a write, keep it, or keep any of its sectors, each with the same chance."""

    def keep(_name: str, position: int, data: bytes) -> list[tuple[int, bytes]]:
        match rng.randrange(3):
            case 0:
                return []
            case 1:
                return [(position, data)]
        parts = []
        start = position
        while start < position + len(data):
            end = min(position + len(data), (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if rng.random() < 0.5:
                parts.append((start, data[start - position : end - position]))
            start = end
        return parts

    return keep


class MemoryFile:
    def __init__(self, disk: "MemoryDisk", name: str) -> None:
        self._disk = disk
        self._name = name
        self._boot = disk.boot

    def read(self, position: int, size: int) -> bytes:
        return self._content().read(position, size)

    def write(self, position: int, data: bytes) -> None:
        self._content()
        self._disk.perform(_Write(self._name, position, bytes(data)))

    def size(self) -> int:
        return self._content().size

    def sync(self) -> None:
        self._content()
        self._disk.perform(_Sync(self._name))

    def close(self) -> None:
        """Nothing to give back."""

    def _content(self) -> _Content:
        assert self._boot == self._disk.boot, f"{self._name} was opened before the crash"
        return self._disk.visible[self._name]


class MemoryDisk:
    """`visible` is what the running process reads, `durable` what a crash certainly leaves."""

    def __init__(self) -> None:
        self.visible: dict[str, _Content] = {}
        self.durable: dict[str, _Content] = {}
        self.boot = 0
        self.defer_syncs = False
        self.free_bytes: int | None = None
        """Room left for files to grow; None is no bound."""
        self.before: Callable[[str, str], None] = lambda _operation, _name: None
        """Called with (write | sync | create | remove | replace, name); what it raises happens instead."""
        self._since: list[_Operation] = []

    # --- Disk

    def names(self) -> list[str]:
        return sorted(self.visible)

    def open(self, name: str) -> MemoryFile:
        if name not in self.visible:
            raise DiskFailed(f"cannot open {name}: no such file")
        return MemoryFile(self, name)

    def create(self, name: str) -> MemoryFile:
        assert name not in self.visible, f"{name} exists"
        self.perform(_Put(name, _Content()))
        return MemoryFile(self, name)

    def remove(self, name: str) -> None:
        if self.free_bytes is not None:
            self.free_bytes += self.visible[name].size
        self.perform(_Remove(name))

    def replace(self, name: str, data: bytes) -> None:
        self.perform(_Put(name, _Content(len(data), data)))

    def read(self, name: str) -> bytes | None:
        content = self.visible.get(name)
        return None if content is None else content.read(0, content.size)

    # --- what a test does to it

    def crash(self, keep: Keep | random.Random = nothing) -> None:
        """Lose power. Open files are dead; then what is left is all there is, and is durable.

        With deferred syncs and a generator, the crash strikes after any number of the syncs under way; a
        `keep` function strikes before the first of them.
        """
        syncs = sum(not isinstance(operation, _Write) for operation in self._since)
        returned = keep.randint(0, syncs) if isinstance(keep, random.Random) else 0
        choose = any_sectors(keep) if isinstance(keep, random.Random) else keep
        waiting: list[_Write] = []
        for operation in self._since:
            if isinstance(operation, _Write):
                waiting.append(operation)
            elif returned == 0:
                break  # this call had not returned, so nothing behind it was asked for yet
            else:
                returned -= 1
                waiting = self._make_durable(operation, waiting)
        for write in waiting:
            for position, data in choose(write.name, write.position, write.data):
                self.durable[write.name].write(position, data)
        self.restart()

    def restart(self) -> None:
        """Take away what is not durable, and every open file."""
        self.visible = {name: content.copy() for name, content in self.durable.items()}
        self._since = []
        self.boot += 1

    def kill(self) -> None:
        """End the process but not the machine: un-synced writes stay visible, and may still be lost later."""
        self.boot += 1

    def settle(self) -> None:
        """Let the deferred syncs return."""
        waiting: list[_Write] = []
        for operation in self._since:
            if isinstance(operation, _Write):
                waiting.append(operation)
            else:
                waiting = self._make_durable(operation, waiting)
        self._since = list(waiting)

    def copy(self) -> "MemoryDisk":
        """Return another disk with the same bytes, all durable."""
        other = MemoryDisk()
        other.durable = {name: content.copy() for name, content in self.visible.items()}
        other.restart()
        return other

    def flip_bit(self, name: str, position: int, bit: int) -> None:
        """Let one bit rot."""
        for files in (self.visible, self.durable):
            byte = files[name].read(position, 1)[0]
            files[name].write(position, bytes([byte ^ (1 << bit)]))

    def cut(self, name: str, size: int) -> None:
        for files in (self.visible, self.durable):
            files[name] = _Content(size, files[name].read(0, size))

    def perform(self, operation: _Operation) -> None:
        match operation:
            case _Write(name, position, data):
                self.before("write", name)
                self._take_room(name, position + len(data) - self.visible[name].size)
                self.visible[name].write(position, data)
            case _Sync(name):
                self.before("sync", name)
            case _Put(name, content):
                self.before("create" if not content.written else "replace", name)
                self.visible[name] = content.copy()
            case _Remove(name):
                self.before("remove", name)
                del self.visible[name]
        self._since.append(operation)
        if not self.defer_syncs and not isinstance(operation, _Write):
            self.settle()

    def _take_room(self, name: str, size: int) -> None:
        if self.free_bytes is None or size <= 0:
            return
        if size > self.free_bytes:
            raise DiskFailed(f"cannot write {name}: no space left on device")
        self.free_bytes -= size

    def _make_durable(self, operation: _Sync | _Put | _Remove, waiting: list[_Write]) -> list[_Write]:
        """Apply one returned call to `durable`; return the writes that still wait."""
        match operation:
            case _Sync(name):
                for write in waiting:
                    if write.name == name:
                        self.durable[name].write(write.position, write.data)
            case _Put(name, content):
                self.durable[name] = content.copy()
            case _Remove(name):
                del self.durable[name]
        return [write for write in waiting if write.name != operation.name]
