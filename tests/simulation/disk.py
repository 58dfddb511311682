"""A disk in memory that loses what was not synced: writes reach the platter in any order, or in part, or not at all."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from metadata_log.errors import DiskFailed


@dataclass(slots=True)
class _Bytes:
    """A file's content: zeros wherever nothing was written."""

    size: int
    written: bytearray = field(default_factory=bytearray)

    def write(self, position: int, data: bytes) -> None:
        end = position + len(data)
        assert end <= self.size, "the journal's files never grow"
        if end > len(self.written):
            self.written.extend(bytes(end - len(self.written)))
        self.written[position:end] = data

    def read(self, position: int, size: int) -> bytes:
        data = bytes(self.written[position : position + size])
        return data + bytes(max(0, min(size, self.size - position) - len(data)))

    def copy(self) -> "_Bytes":
        return _Bytes(self.size, bytearray(self.written))


class SimulatedDisk:
    """Implements the journal's Disk. What is done is seen at once, and is durable only from `settle` on.

    The node performs a job (writes and their syncs), lets the simulated time of the sync pass, and settles. A crash
    before that keeps any prefix of the job's steps, and of its un-synced writes any subset, torn anywhere.
    """

    def __init__(self) -> None:
        self._live: dict[str, _Bytes] = {}
        self._durable: dict[str, _Bytes] = {}
        self._live_small: dict[str, bytes] = {}
        self._durable_small: dict[str, bytes] = {}
        self._steps: list[Callable[[], None]] = []
        self._unsynced: dict[str, list[tuple[int, bytes]]] = {}
        self.fails = False
        self.syncs_total = 0

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
        self._live = {name: content.copy() for name, content in self._durable.items()}
        self._live_small = dict(self._durable_small)

    # --- the Disk that the journal sees

    def names(self) -> list[str]:
        return sorted([*self._live, *self._live_small])

    def open(self, name: str) -> "SimulatedFile":
        return SimulatedFile(self, name)

    def create(self, name: str, size: int) -> "SimulatedFile":
        self._check()
        self._live[name] = _Bytes(size)

        def step() -> None:
            self._durable[name] = _Bytes(size)
            self._unsynced.pop(name, None)

        self._steps.append(step)
        return SimulatedFile(self, name)

    def remove(self, name: str) -> None:
        self._check()
        self._live.pop(name, None)
        self._live_small.pop(name, None)

        def step() -> None:
            self._durable.pop(name, None)
            self._durable_small.pop(name, None)
            self._unsynced.pop(name, None)

        self._steps.append(step)

    def replace(self, name: str, data: bytes) -> None:
        self._check()
        self._live_small[name] = data

        def step() -> None:
            self._durable_small[name] = data

        self._steps.append(step)

    def read(self, name: str) -> bytes | None:
        return self._live_small.get(name)

    # --- what an open file does

    def _check(self) -> None:
        if self.fails:
            raise DiskFailed("the simulated disk fails")

    def file_read(self, name: str, position: int, size: int) -> bytes:
        return self._live[name].read(position, size)

    def file_size(self, name: str) -> int:
        return self._live[name].size

    def file_write(self, name: str, position: int, data: bytes) -> None:
        self._check()
        self._live[name].write(position, data)

        def step() -> None:
            self._unsynced.setdefault(name, []).append((position, data))

        self._steps.append(step)

    def file_sync(self, name: str) -> None:
        self._check()
        self.syncs_total += 1

        def step() -> None:
            for position, data in self._unsynced.pop(name, []):
                self._durable[name].write(position, data)

        self._steps.append(step)


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
