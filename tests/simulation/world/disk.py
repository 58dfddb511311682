"""A disk in memory that loses what was not synced: writes reach the platter in any order, or in part, or not at all.

It also fills up, fails a sync, and lets single bits rot.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from metadata_log.errors import DiskFailed

PAGE_BYTES = 4096


@dataclass(slots=True)
class _Bytes:
    """A file's content: zeros wherever nothing else was written, and those at its end take no memory."""

    size: int = 0
    written: bytearray = field(default_factory=bytearray)

    def write(self, position: int, data: bytes) -> None:
        self.size = max(self.size, position + len(data))
        if position >= len(self.written):
            data = data.rstrip(b"\0")
            if not data:
                return
        end = position + len(data)
        if end > len(self.written):
            self.written.extend(bytes(end - len(self.written)))
        self.written[position:end] = data

    def read(self, position: int, size: int) -> bytes:
        data = bytes(self.written[position : position + size])
        return data + bytes(max(0, min(size, self.size - position) - len(data)))

    def copy(self) -> "_Bytes":
        return _Bytes(self.size, bytearray(self.written))


@dataclass(frozen=True, slots=True)
class Rot:
    """One bit that changed at rest; turned again, the file is what it was."""

    name: str
    position: int
    bit: int


class SimulatedDisk:
    """Implements the journal's Disk. What is done is seen at once, and is durable only from `settle` on.

    The node performs a job (writes and their syncs), lets the simulated time of the sync pass, and settles. A crash
    before that keeps any prefix of the job's steps, and of its un-synced writes any subset, torn anywhere. A kill keeps a
    prefix of the steps too, but what they wrote is seen by the next process, durable or not.
    """

    def __init__(self) -> None:
        self._live: dict[str, _Bytes] = {}
        self._durable: dict[str, _Bytes] = {}
        self._live_small: dict[str, bytes] = {}
        self._durable_small: dict[str, bytes] = {}
        self._steps: list[Callable[[], None]] = []
        self._unsynced: dict[str, list[tuple[int, bytes]]] = {}
        self._forgotten: dict[str, set[int]] = {}
        """Pages that a failed sync has marked clean: read back as written, yet never written again."""
        self.fails = False
        self.is_full = False
        """No file can be made, replaced, or grow; what there is of those there can be written."""
        self.no_appends = False
        """While full, not even what other files grow by."""
        self.sync_fails_once = False
        self.has_failed = False
        """Whether the weather made a call fail since this was last set to False."""
        self.syncs_total = 0
        """Of files and of directories."""

    def settle(self) -> None:
        """Make everything durable whose sync was called; other writes stay at risk."""
        for step in self._steps:
            step()
        self._steps.clear()

    def crash(self, rng: random.Random) -> None:
        """Lose power now."""
        for step in self._steps[: rng.randint(0, len(self._steps))]:
            step()
        self._steps.clear()
        for name, writes in self._unsynced.items():
            for position, data in writes:
                kept = rng.choice((0, rng.randint(0, len(data)), len(data)))
                if name in self._durable:
                    self._durable[name].write(position, data[:kept])
        self._unsynced.clear()
        self._forgotten.clear()
        self._live = {name: content.copy() for name, content in self._durable.items()}
        self._live_small = dict(self._durable_small)

    def after_crash(self, rng: random.Random) -> "SimulatedDisk":
        """Return what this disk would be if the power went now; nothing happens to this one."""
        assert not self._steps, "settle comes first"
        other = self.copy()
        other._durable = {name: content.copy() for name, content in self._durable.items()}
        other._durable_small = dict(self._durable_small)
        other._unsynced = {name: list(writes) for name, writes in self._unsynced.items()}
        other.crash(rng)
        return other

    def kill(self, rng: random.Random) -> None:
        """End the process, and not the machine: all that it had come to write is still seen, and at risk until a sync."""
        if self._forgotten:
            self.settle()  # only what is seen tells what such pages hold
            return
        for step in self._steps[: rng.randint(0, len(self._steps))]:
            step()
        self._steps.clear()
        self._live = {name: content.copy() for name, content in self._durable.items()}
        self._live_small = dict(self._durable_small)
        for name, writes in self._unsynced.items():
            for position, data in writes:
                self._live[name].write(position, data)

    def copy(self) -> "SimulatedDisk":
        """Return another disk that holds what this one shows, all of it durable."""
        other = SimulatedDisk()
        other._live = {name: content.copy() for name, content in self._live.items()}
        other._durable = {name: content.copy() for name, content in self._live.items()}
        other._live_small, other._durable_small = dict(self._live_small), dict(self._live_small)
        return other

    def lose(self, suffix: str) -> None:
        """Lose all files whose names end so, for good."""
        for files in (self._live, self._durable, self._live_small, self._durable_small):
            for name in [name for name in files if name.endswith(suffix)]:
                del files[name]
        for name in [name for name in self._unsynced if name.endswith(suffix)]:
            del self._unsynced[name]

    def become(self, other: "SimulatedDisk") -> None:
        """Hold what another disk shows, and nothing else; for a disk that no process uses."""
        same = other.copy()
        self._live, self._durable = same._live, same._durable
        self._live_small, self._durable_small = same._live_small, same._durable_small
        self._steps.clear()
        self._unsynced.clear()
        self._forgotten.clear()

    def durable(self, name: str) -> bytes | None:
        """Return the small file with this name that a loss of power would leave."""
        return self._durable_small.get(name)

    # --- bits that rot

    def rot(self, rng: random.Random) -> Rot | None:
        """Turn one bit of what is stored, anywhere; None if nothing is."""
        sizes = {name: len(content.written) for name, content in self._live.items() if content.written}
        sizes |= {name: len(data) for name, data in self._live_small.items() if data}
        if not sizes:
            return None
        name = rng.choice(sorted(sizes))
        rot = Rot(name, rng.randrange(sizes[name]), rng.randrange(8))
        self.turn(rot)
        return rot

    def turn(self, rot: Rot) -> None:
        for files in (self._live, self._durable):
            if rot.name in files and rot.position < len(files[rot.name].written):
                files[rot.name].written[rot.position] ^= 1 << rot.bit
        for small in (self._live_small, self._durable_small):
            data = small.get(rot.name)
            if data is not None and rot.position < len(data):
                turned = data[rot.position] ^ 1 << rot.bit
                small[rot.name] = data[: rot.position] + bytes([turned]) + data[rot.position + 1 :]

    # --- the Disk that the journal sees

    def names(self) -> list[str]:
        return sorted([*self._live, *self._live_small])

    def open(self, name: str) -> "SimulatedFile":
        return SimulatedFile(self, name)

    def create(self, name: str) -> "SimulatedFile":
        self._check(needs_room=True)
        self.syncs_total += 1
        self._live[name] = _Bytes()

        def step() -> None:
            self._durable[name] = _Bytes()
            self._unsynced.pop(name, None)

        self._steps.append(step)
        return SimulatedFile(self, name)

    def remove(self, name: str) -> None:
        self._check()
        self.syncs_total += 1
        self._live.pop(name, None)
        self._live_small.pop(name, None)

        def step() -> None:
            self._durable.pop(name, None)
            self._durable_small.pop(name, None)
            self._unsynced.pop(name, None)

        self._steps.append(step)

    def replace(self, name: str, data: bytes) -> None:
        self._check(needs_room=True)
        self.syncs_total += 2
        self._live_small[name] = data

        def step() -> None:
            self._durable_small[name] = data

        self._steps.append(step)

    def read(self, name: str) -> bytes | None:
        return self._live_small.get(name)

    # --- what an open file does

    def need_room(self) -> None:
        """Raise DiskFailed while the disk is full; asked by whatever else is kept on this disk."""
        self._check(needs_room=True)

    def _check(self, *, needs_room: bool = False) -> None:
        if self.fails or (needs_room and self.is_full):
            self.has_failed = self.has_failed or not self.fails
            raise DiskFailed("the simulated disk is full" if self.is_full else "the simulated disk fails")

    def file_read(self, name: str, position: int, size: int) -> bytes:
        return self._live[name].read(position, size)

    def file_size(self, name: str) -> int:
        return self._live[name].size

    def file_write(self, name: str, position: int, data: bytes) -> None:
        live = self._live[name]
        self._check(needs_room=position + len(data) > live.size)
        live.write(position, data)
        if name in self._forgotten:
            # A page that is written again is dirty as a whole: what a failed sync forgot of it goes along.
            pages = range(position // PAGE_BYTES, (position + len(data) - 1) // PAGE_BYTES + 1)
            if self._forgotten[name].intersection(pages):
                position, end = pages.start * PAGE_BYTES, min(pages.stop * PAGE_BYTES, live.size)
                data = live.read(position, end - position)
                self._forgotten[name].difference_update(pages)

        def step() -> None:
            self._unsynced.setdefault(name, []).append((position, data))

        self._steps.append(step)

    def file_sync(self, name: str) -> None:
        self._check()
        self.syncs_total += 1
        if self.sync_fails_once:
            self.sync_fails_once, self.has_failed = False, True
            self._forget(name)
            raise DiskFailed("the simulated disk failed to sync")

        def step() -> None:
            for position, data in self._unsynced.pop(name, []):
                self._durable[name].write(position, data)

        self._steps.append(step)

    def _forget(self, name: str) -> None:
        """Do what a kernel does after a failed write-back: mark the pages clean, though they are not on the disk."""
        self.settle()
        forgotten = self._forgotten.setdefault(name, set())
        for position, data in self._unsynced.pop(name, []):
            forgotten.update(range(position // PAGE_BYTES, (position + len(data) - 1) // PAGE_BYTES + 1))


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, name: str) -> None:
        self._disk = disk
        self._name = name

    def read(self, position: int, size: int) -> bytes:
        return self._disk.file_read(self._name, position, size)

    def write(self, position: int, data: bytes) -> None:
        self._disk.file_write(self._name, position, data)

    def size(self) -> int:
        return self._disk.file_size(self._name)

    def sync(self) -> None:
        self._disk.file_sync(self._name)

    def close(self) -> None:
        """Do nothing: closing syncs nothing."""
