"""Pure: the states that a disk may hold after a power cut at each operation of a run.

The disk is as hostile as POSIX lets it be:

- data written and not yet synced is kept, lost, or torn at any byte, each write by itself, in any order; a later
  write that was kept leaves zeros where an earlier one was lost;
- a sync of a file that fails makes nothing durable, and neither does a later one: what was written before it must be
  written again;
- a sync of a file makes its data and size durable, not its name;
- a name that was made, moved or removed is durable once a directory it concerns was synced; before that each such
  operation may have happened or not, whatever the others did. A rename itself is atomic;
- a file that is found under its new name with nothing synced is empty, or holds any part of what was written.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ROOT = 0
"""The directory of all files."""
LARGE_BYTES = 4096
"""Writes of more bytes are torn at sectors half of the time."""
SECTOR_BYTES = 512


class Write(NamedTuple):
    file: int
    position: int
    data: bytes


class Resize(NamedTuple):
    file: int
    size: int


class Sync(NamedTuple):
    file: int


class Name(NamedTuple):
    """A file or directory gets a name; `is_directory` where it was made as one."""

    directory: int
    name: str
    node: int
    is_directory: bool


class Move(NamedTuple):
    directory: int
    name: str
    to_directory: int
    to_name: str


class Remove(NamedTuple):
    directory: int
    name: str


class SyncFailed(NamedTuple):
    """The kernel tells of an error once; it counts what was not written as clean, and no later sync writes it."""

    file: int


class SyncDirectory(NamedTuple):
    directory: int


class Mark(NamedTuple):
    """Something that the code under test has promised, or begun, by now."""

    fact: object


Operation = Write | Resize | Sync | SyncFailed | Name | Move | Remove | SyncDirectory | Mark
NameOperation = Name | Move | Remove
Tree = Mapping[str, "bytes | Tree"]
"""Contents by name; a directory is a tree itself."""


@dataclass(slots=True)
class _File:
    durable: bytes = b""
    pending: list[Write | Resize] = field(default_factory=list)
    forgotten: list[Write | Resize] = field(default_factory=list)
    """In the kernel's cache alone since a failed sync."""


class DiskModel:
    """The disk after some prefix of the operations."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._names: dict[int, dict[str, int]] = {ROOT: {}}
        """What is durable, by directory."""
        self._pending: list[NameOperation] = []

    def take(self, operation: Operation) -> None:
        """Go on by one operation."""
        match operation:
            case Write() | Resize():
                self._files.setdefault(operation.file, _File()).pending.append(operation)
            case Sync():
                file = self._files.setdefault(operation.file, _File())
                file.forgotten = [write for write in file.forgotten if not _is_made_anew(write, file.pending)]
                file.durable, file.pending = _written(file.durable, file.pending), []
            case SyncFailed():
                file = self._files.setdefault(operation.file, _File())
                file.forgotten, file.pending = file.forgotten + file.pending, []
            case Name():
                if operation.is_directory:
                    self._names[operation.node] = {}
                else:
                    self._files.setdefault(operation.node, _File())
                self._pending.append(operation)
            case Move() | Remove():
                self._pending.append(operation)
            case SyncDirectory():
                self._sync_directory(operation.directory)
            case Mark():
                pass

    def _sync_directory(self, directory: int) -> None:
        """Make durable what concerns a directory, and what came before that to the directories it concerns."""
        directories, concerned, others = {directory}, list[NameOperation](), list[NameOperation]()
        for operation in reversed(self._pending):
            if directories.isdisjoint(_directories(operation)):
                others.append(operation)
            else:
                directories.update(_directories(operation))
                concerned.append(operation)
        self._pending = others[::-1]
        _carry_out(self._names, concerned[::-1])

    def everything(self) -> Tree:
        """Return the state in which all that was done has reached the disk."""
        contents = {
            node: _written(file.durable, file.forgotten + file.pending) for node, file in self._files.items()
        }
        return _tree(self._named(self._pending), contents, ROOT)

    def nothing(self) -> Tree:
        """Return the state in which only what was synced has reached the disk."""
        return _tree(self._names, {node: file.durable for node, file in self._files.items()}, ROOT)

    def anything(self, rng: random.Random) -> Tree:
        """Return one of the states in between."""
        kept = [one for one in self._pending if rng.random() < 0.5]
        if rng.random() < 0.5:
            kept = self._pending[: rng.randint(0, len(self._pending))]
        chance = rng.choice((0.2, 0.5, 0.9))
        contents = {
            node: _written(file.durable, _survivors(file.forgotten + file.pending, rng, chance))
            if file.forgotten or file.pending
            else file.durable
            for node, file in self._files.items()
        }
        return _tree(self._named(kept), contents, ROOT)

    def _named(self, operations: list[NameOperation]) -> dict[int, dict[str, int]]:
        if not operations:
            return self._names
        names = {directory: dict(entries) for directory, entries in self._names.items()}
        _carry_out(names, operations)
        return names


def _directories(operation: NameOperation) -> tuple[int, ...]:
    if isinstance(operation, Move):
        return (operation.directory, operation.to_directory)
    return (operation.directory,)


def _carry_out(names: dict[int, dict[str, int]], operations: list[NameOperation]) -> None:
    """Apply operations in order; one whose file is not there, because an earlier one was lost, does nothing."""
    for operation in operations:
        entries = names[operation.directory]
        match operation:
            case Name():
                entries[operation.name] = operation.node
            case Remove():
                entries.pop(operation.name, None)
            case Move():
                node = entries.pop(operation.name, None)
                if node is not None:
                    names[operation.to_directory][operation.to_name] = node


def _written(durable: bytes, writes: list[Write | Resize]) -> bytes:
    if not writes:
        return durable
    content = bytearray(durable)
    for write in writes:
        if isinstance(write, Resize):
            del content[write.size :]
            content.extend(bytes(write.size - len(content)))
            continue
        if write.position > len(content):
            content.extend(bytes(write.position - len(content)))
        content[write.position : write.position + len(write.data)] = write.data
    return bytes(content)


def _is_made_anew(write: Write | Resize, later: list[Write | Resize]) -> bool:
    """Answer whether later writes to the file, which are durable now, leave nothing of one that a failed sync forgot."""
    if isinstance(write, Resize):
        return any(isinstance(one, Resize) for one in later)
    end = write.position + len(write.data)
    return any(
        write.position >= one.size
        if isinstance(one, Resize)
        else one.position <= write.position and end <= one.position + len(one.data)
        for one in later
    )


def _survivors(pending: list[Write | Resize], rng: random.Random, chance: float) -> list[Write | Resize]:
    kept: list[Write | Resize] = []
    for write in pending:
        if rng.random() < chance:
            kept.append(write)
        elif isinstance(write, Write) and rng.random() < 0.5:
            size = rng.randint(0, len(write.data))
            if len(write.data) > LARGE_BYTES and rng.random() < 0.5:
                size -= size % SECTOR_BYTES
            if rng.random() < 0.5:
                kept.append(write._replace(data=write.data[:size]))
            else:
                kept.append(write._replace(position=write.position + size, data=write.data[size:]))
    return kept


def _tree(names: Mapping[int, Mapping[str, int]], contents: Mapping[int, bytes], directory: int) -> Tree:
    return {
        name: _tree(names, contents, node) if node in names else contents[node]
        for name, node in sorted(names[directory].items())
    }
