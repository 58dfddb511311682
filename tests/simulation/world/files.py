"""Directories in memory, on which shipped code works through `os` and `open`, as it does on a real disk.

During `in_memory` each path below ROOT is a file of the volume that its first part names; all other paths are those of the
machine. What a loss of power leaves is decided by the model of `tests.powercut`. A sync is where other processes go on: see
`jobs`.
"""

import errno
import fnmatch
import io
import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn
from unittest.mock import patch

from tests.powercut.disk_model import ROOT as ROOT_NODE
from tests.powercut.disk_model import (
    DiskModel,
    Move,
    Name,
    Operation,
    Remove,
    Resize,
    Sync,
    SyncDirectory,
    SyncFailed,
    Tree,
    Write,
)
from tests.simulation.world.disk import SimulatedDisk
from tests.simulation.world.jobs import check_alive, rest

ROOT: Final = "/simulated"
_FIRST_DESCRIPTOR: Final = 1 << 24
"""Beyond those of the machine."""
_worlds: list[dict[str, "Volume"]] = []
"""The volumes of the world that runs, by the first part of their paths; before them those of one that waits for it."""
_opened: dict[int, "_Opened"] = {}
_real_open = io.open


class _Opened:
    """What a descriptor stands for."""

    __slots__ = ("appends", "node", "position", "volume")

    def __init__(self, volume: "Volume", node: int, *, appends: bool) -> None:
        self.volume, self.node, self.appends, self.position = volume, node, appends, 0


class Volume:
    """The directories of one node. What is done is seen at once, and survives a loss of power once it is synced."""

    def __init__(self, name: str, disk: SimulatedDisk) -> None:
        """`disk` is the one that it shares with the node's journal: both are full, or fail, together."""
        self.path = Path(ROOT) / name
        self.disk = disk
        self._model = DiskModel()
        self._names: dict[int, dict[str, int]] = {ROOT_NODE: {}}
        """The entries of each directory; whatever else has a number is a file."""
        self._contents: dict[int, bytearray] = {}
        self._nodes = ROOT_NODE

    def format(self, *folders: str) -> None:
        """Make folders that are durable, as the command that formats a data directory does."""
        for folder in folders:
            self._add(ROOT_NODE, folder, is_directory=True)
        self._did(SyncDirectory(ROOT_NODE))

    # --- what befalls it

    def end(self) -> None:
        """Let the process end that uses it: what it wrote is still in the kernel's cache."""
        for descriptor in [number for number, opened in _opened.items() if opened.volume is self]:
            del _opened[descriptor]

    def crash(self, rng: random.Random) -> None:
        """Lose power: of what was not synced any part is left."""
        self.end()
        match rng.randrange(10):
            case 0 | 1:
                tree = self._model.nothing()
            case 2:
                tree = self._model.everything()
            case _:
                tree = self._model.anything(rng)
        self._model, self._names, self._contents = DiskModel(), {ROOT_NODE: {}}, {}
        self._put(ROOT_NODE, tree)

    def _put(self, directory: int, tree: Tree) -> None:
        for name, content in tree.items():
            node = self._add(directory, name, is_directory=not isinstance(content, bytes))
            if isinstance(content, bytes):
                self._write(node, 0, content)
                self._did(Sync(node))
            else:
                self._put(node, content)
        self._did(SyncDirectory(directory))

    def rewrite(self, path: Path, content: bytes) -> None:
        """Let a file hold other bytes, as if it had been written so: a bit of it turned, or somebody put it there."""
        directory, name = self._parent(os.fspath(path))
        node = self._names[directory].get(name)
        if node is None:
            node = self._add(directory, name, is_directory=False)
        self._resize(node, 0)
        self._write(node, 0, content)
        self._did(Sync(node))
        self._did(SyncDirectory(directory))

    def tree(self, directory: int = ROOT_NODE) -> Tree:
        """Return what is seen in it now."""
        return {
            name: self.tree(node) if node in self._names else bytes(self._contents[node])
            for name, node in sorted(self._names[directory].items())
        }

    def after_crash(self) -> Tree:
        """Return what is certainly left if the power went now."""
        return self._model.nothing()

    # --- paths

    def _parent(self, path: str) -> tuple[int, str]:
        *folders, name = path[len(str(self.path)) + 1 :].split("/")
        directory = ROOT_NODE
        for folder in folders:
            node = self._names[directory].get(folder)
            if node is None or node not in self._names:
                raise _error(errno.ENOENT, path)
            directory = node
        return directory, name

    def _node(self, path: str) -> int:
        if path == str(self.path):
            return ROOT_NODE
        directory, name = self._parent(path)
        node = self._names[directory].get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    # --- what is done to it

    def _did(self, operation: Operation) -> None:
        self._model.take(operation)

    def _add(self, directory: int, name: str, *, is_directory: bool) -> int:
        self._nodes += 1
        node = self._nodes
        self._names[directory][name] = node
        if is_directory:
            self._names[node] = {}
        else:
            self._contents[node] = bytearray()
        self._did(Name(directory, name, node, is_directory))
        return node

    def _write(self, node: int, position: int, data: bytes) -> None:
        content = self._contents[node]
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data
        self._did(Write(node, position, data))

    def _resize(self, node: int, size: int) -> None:
        content = self._contents[node]
        del content[size:]
        content.extend(bytes(size - len(content)))
        self._did(Resize(node, size))

    def _check(self, path: str, *, needs_room: bool = False) -> None:
        check_alive()
        disk = self.disk
        if disk.fails or (needs_room and disk.is_full):
            disk.has_failed = disk.has_failed or not disk.fails
            raise _error(errno.ENOSPC if disk.is_full else errno.EIO, path)

    # --- what the functions of `os` do

    def open(self, path: str, flags: int) -> int:
        if path == str(self.path):
            node = ROOT_NODE
        else:
            directory, name = self._parent(path)
            known = self._names[directory].get(name)
            if known is None:
                if not flags & os.O_CREAT:
                    raise _error(errno.ENOENT, path)
                # While the disk is full, the file that the log goes on in is made as long as that may grow.
                self._check(path, needs_room=not flags & os.O_APPEND or self.disk.no_appends)
                node = self._add(directory, name, is_directory=False)
            elif flags & os.O_EXCL:
                raise _error(errno.EEXIST, path)
            else:
                node = known
                if flags & os.O_TRUNC:
                    self._check(path)
                    self._resize(node, 0)
        descriptor = max(_opened, default=_FIRST_DESCRIPTOR) + 1
        _opened[descriptor] = _Opened(self, node, appends=bool(flags & os.O_APPEND))
        return descriptor

    def write_at(self, opened: _Opened, position: int, data: bytes) -> int:
        grows = position + len(data) > len(self._contents[opened.node])
        self._check(str(self.path), needs_room=grows and (not opened.appends or self.disk.no_appends))
        self._write(opened.node, position, data)
        return len(data)

    def size(self, node: int) -> int:
        return len(self._contents[node])

    def read(self, node: int, position: int, size: int) -> bytes:
        return bytes(self._contents[node][position : position + size])

    def sync(self, node: int) -> None:
        """Make durable what is in a file, or the names in a directory; whoever else is due goes on meanwhile."""
        rest()
        disk = self.disk
        self._check(str(self.path))
        disk.syncs_total += 1
        if node in self._names:
            self._did(SyncDirectory(node))
        elif disk.sync_fails_once:
            disk.sync_fails_once, disk.has_failed = False, True
            self._did(SyncFailed(node))
            raise _error(errno.EIO, str(self.path))
        else:
            self._did(Sync(node))

    def stat(self, path: str) -> os.stat_result:
        return self.stat_of(self._node(path))

    def stat_of(self, node: int) -> os.stat_result:
        if node in self._names:
            return os.stat_result((stat.S_IFDIR | 0o700, node, 0, 1, 0, 0, 0, 0, 0, 0))
        return os.stat_result((stat.S_IFREG | 0o600, node, 0, 1, 0, 0, len(self._contents[node]), 0, 0, 0))

    def names(self, path: str) -> list[str]:
        return list(self._names[self._node(path)])

    def make_directory(self, path: str) -> None:
        directory, name = self._parent(path)
        if name in self._names[directory]:
            raise _error(errno.EEXIST, path)
        self._check(path)
        self._add(directory, name, is_directory=True)

    def remove(self, path: str) -> None:
        self._check(path)
        directory, name = self._parent(path)
        if self._names[directory].pop(name, None) is None:
            raise _error(errno.ENOENT, path)
        self._did(Remove(directory, name))

    def move(self, path: str, target: str) -> None:
        self._check(path)
        (directory, name), (to_directory, to_name) = self._parent(path), self._parent(target)
        if name not in self._names[directory]:
            raise _error(errno.ENOENT, path)
        self._names[to_directory][to_name] = self._names[directory].pop(name)
        self._did(Move(directory, name, to_directory, to_name))

    def truncate(self, path: str, size: int) -> None:
        self._check(path)
        self._resize(self._node(path), size)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class _Reader(io.BytesIO):
    """An open file that is read: what it held when it was opened."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        opened = _opened[descriptor]
        super().__init__(opened.volume.read(opened.node, 0, opened.volume.size(opened.node)))

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        _opened.pop(self._descriptor, None)
        super().close()


class _Writer(io.RawIOBase):
    """What a buffered file writes through."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return os.write(self._descriptor, data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            _opened.pop(self._descriptor, None)


# --- what stands for `os` and `open`


def _volume_of(path: Any) -> tuple["Volume | None", str]:
    text = path if isinstance(path, str) else os.fspath(path) if isinstance(path, Path) else ""
    if not text.startswith(ROOT):
        return None, ""
    return _worlds[-1][text.split("/", 3)[2]], text


def _of_path(name: str, done: Callable[..., Any]) -> Callable[..., Any]:
    """Return what does `done` on a volume, and otherwise the function of `os` by that name."""
    shipped = getattr(os, name)

    def function(path: Any = ".", *args: Any, **rest: Any) -> Any:
        volume, text = _volume_of(path)
        return shipped(path, *args, **rest) if volume is None else done(volume, text, *args, **rest)

    return function


def _of_descriptor(name: str, done: Callable[..., Any]) -> Callable[..., Any]:
    shipped = getattr(os, name)

    def function(descriptor: int, *args: Any) -> Any:
        if descriptor < _FIRST_DESCRIPTOR:
            return shipped(descriptor, *args)
        opened = _opened.get(descriptor)
        if opened is None:
            raise OSError(errno.EBADF, "the process that opened it has ended")
        return done(opened, *args)

    return function


def _close(shipped: Callable[[int], None]) -> Callable[[int], None]:
    def close(descriptor: int) -> None:
        if descriptor < _FIRST_DESCRIPTOR:
            shipped(descriptor)
        else:
            _opened.pop(descriptor, None)

    return close


def _written(opened: _Opened, data: Any) -> int:
    data = bytes(data)
    position = opened.volume.size(opened.node) if opened.appends else opened.position
    opened.position = position + len(data)
    return opened.volume.write_at(opened, position, data)


def _move(volume: Volume, path: str, target: Any) -> None:
    other, text = _volume_of(target)
    assert other is volume, "nothing moves from one node to another"
    volume.move(path, text)


@contextmanager
def _scanned(volume: Volume, path: str) -> Iterator[Iterator[Any]]:
    """Stand for `os.scandir`, as far as a search by pattern asks."""
    is_directory = {name: stat.S_ISDIR(volume.stat(f"{path}/{name}").st_mode) for name in volume.names(path)}
    yield iter(
        [
            SimpleNamespace(name=name, path=f"{path}/{name}", is_dir=lambda which=which, **_: which)
            for name, which in is_directory.items()
        ]
    )


def _file_open(file: Any, mode: str = "r", *args: Any, **rest: Any) -> Any:
    volume, text = _volume_of(file)
    if volume is None:
        return _real_open(file, mode, *args, **rest)
    if mode == "rb":
        return _Reader(volume.open(text, os.O_RDONLY))
    if mode == "rb+":
        return _Writer(volume.open(text, os.O_RDWR))
    assert mode in ("wb", "xb"), f"no file of a simulated node is opened as {mode}"
    how = os.O_TRUNC if mode == "wb" else os.O_EXCL
    return io.BufferedWriter(_Writer(volume.open(text, os.O_WRONLY | os.O_CREAT | how)))


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(_volume: Volume, path: str, *_: object, **__: object) -> NoReturn:
        raise AssertionError(f"os.{name} is not simulated: {path}")

    return refuse


_OF_PATHS: Final[dict[str, Callable[..., Any]]] = {
    "open": lambda volume, path, flags, _mode=0o777: volume.open(path, flags),
    "stat": lambda volume, path, **_: volume.stat(path),
    "lstat": lambda volume, path, **_: volume.stat(path),
    "listdir": Volume.names,
    "scandir": _scanned,
    "mkdir": lambda volume, path, _mode=0o777: volume.make_directory(path),
    "unlink": Volume.remove,
    "remove": Volume.remove,
    "rename": _move,
    "replace": _move,
    "truncate": Volume.truncate,
    **{name: _refuse(name) for name in ("link", "symlink", "rmdir", "statvfs", "utime", "chmod")},
}
_OF_DESCRIPTORS: Final[dict[str, Callable[..., Any]]] = {
    "write": _written,
    "pwrite": lambda opened, data, position: opened.volume.write_at(opened, position, bytes(data)),
    "pread": lambda opened, size, position: opened.volume.read(opened.node, position, size),
    "fsync": lambda opened: opened.volume.sync(opened.node),
    "fdatasync": lambda opened: opened.volume.sync(opened.node),
    "fstat": lambda opened: opened.volume.stat_of(opened.node),
}


def _glob(shipped: Callable[..., Any]) -> Callable[..., Any]:
    def glob(path: Path, pattern: str, **rest: Any) -> Any:
        volume, text = _volume_of(path)
        if volume is None:
            return shipped(path, pattern, **rest)
        return [path / name for name in fnmatch.filter(volume.names(text), pattern)]

    return glob


@contextmanager
def in_memory(volumes: dict[str, Volume]) -> Iterator[None]:
    """Let what lies below ROOT be simulated: the volumes there by name, which may change meanwhile."""
    functions = {name: _of_path(name, done) for name, done in _OF_PATHS.items()}
    functions |= {name: _of_descriptor(name, done) for name, done in _OF_DESCRIPTORS.items()}
    functions["close"] = _close(os.close)
    patches = [patch.object(os, name, function) for name, function in functions.items()]
    patches += [patch("io.open", _file_open), patch("builtins.open", _file_open)]
    # Some releases of Python hold a reference to os.scandir for it.
    patches.append(patch.object(Path, "glob", _glob(Path.glob)))
    with ExitStack() as patched:
        for one in patches:
            patched.enter_context(one)
        _worlds.append(volumes)
        try:
            yield
        finally:
            _worlds.pop()
            _opened.clear()
