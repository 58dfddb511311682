"""Edge: a file layer under which the shipped code works on real files; it records the order of all operations.

While a `Recorder` is entered, the functions of `os` that change files, and `open` for writing, note what they did
below its root. Reading goes past it. What it cannot note (text files, memory maps, links) it refuses, so that nothing
is ever changed behind its back; `Recorder.check` compares what was noted with the real tree.
"""

import builtins
import errno
import fcntl
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Self
from unittest.mock import patch

from tests.powercut.disk_model import (
    ROOT,
    DiskModel,
    Mark,
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

_open, _close, _pwrite, _write = os.open, os.close, os.pwrite, os.write
_io_open = io.open
_REFUSED = (
    "link",
    "symlink",
    "writev",
    "pwritev",
    "sendfile",
    "copy_file_range",
    "sync",
    "removedirs",
    "renames",
)


class Recorder:
    """Notes what is done below `root`, an existing and empty directory."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.fails_next_sync = False
        """Whether the next sync of a file fails, once, and makes nothing durable."""
        self.operations: list[Operation] = []
        self._nodes: dict[str, int] = {str(self.root): ROOT}
        """By absolute path, as things are named now."""
        self._directories = {ROOT}
        self._descriptors: dict[int, int] = {}
        self._next = ROOT + 1
        self._patches: list[Any] = []

    def mark(self, fact: object) -> None:
        """Note what the code under test has promised, or begun, by now."""
        self.operations.append(Mark(fact))

    def __enter__(self) -> Self:
        replaced: dict[str, Callable[..., Any]] = {
            "open": self._os_open,
            "close": self._os_close,
            "write": self._os_write,
            "pwrite": self._os_pwrite,
            "ftruncate": self._os_ftruncate,
            "truncate": self._os_truncate,
            "posix_fallocate": self._os_fallocate,
            "fsync": self._os_sync,
            "fdatasync": self._os_sync,
            "rename": self._os_rename,
            "replace": self._os_rename,
            "unlink": self._os_unlink,
            "remove": self._os_unlink,
            "mkdir": self._os_mkdir,
            "rmdir": self._os_rmdir,
        }
        for name in _REFUSED:
            replaced[name] = self._refuser(name)
        self._patches = [patch.object(os, name, function) for name, function in replaced.items()]
        self._patches += [
            patch.object(io, "open", self._file_open),
            patch.object(builtins, "open", self._file_open),
        ]
        for one in self._patches:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in reversed(self._patches):
            one.stop()
        self._patches.clear()

    def check(self) -> None:
        """Raise AssertionError if the operations do not add up to what lies on the real disk."""
        model = DiskModel()
        for operation in self.operations:
            model.take(operation)
        assert model.everything() == tree_of(self.root)

    # --- what the code under test calls

    def _path(self, path: Any) -> str | None:
        """Return an absolute path if it lies below the root."""
        text = str(Path(path).absolute()) if not isinstance(path, int) else ""
        return text if text == str(self.root) or text.startswith(f"{self.root}/") else None

    def _named(self, path: str, *, is_directory: bool) -> int:
        node = self._next
        self._next += 1
        self._nodes[path] = node
        if is_directory:
            self._directories.add(node)
        head, name = os.path.split(path)
        self.operations.append(Name(self._nodes[head], name, node, is_directory))
        return node

    def _os_open(self, path: Any, flags: int, mode: int = 0o777, **how: Any) -> int:
        inside = self._path(path)
        existed = inside is None or inside in self._nodes
        descriptor = _open(path, flags, mode, **how)
        if inside is not None:
            node = self._nodes[inside] if existed else self._named(inside, is_directory=False)
            self._descriptors[descriptor] = node
            if existed and flags & os.O_TRUNC:
                self.operations.append(Resize(node, 0))
        return descriptor

    def _os_close(self, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)
        _close(descriptor)

    def _os_pwrite(self, descriptor: int, data: Any, position: int) -> int:
        written = _pwrite(descriptor, data, position)
        if descriptor in self._descriptors:
            self.operations.append(Write(self._descriptors[descriptor], position, bytes(data)[:written]))
        return written

    def _os_write(self, descriptor: int, data: Any) -> int:
        if descriptor not in self._descriptors:
            return _write(descriptor, data)
        appends = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
        position = os.fstat(descriptor).st_size if appends else os.lseek(descriptor, 0, os.SEEK_CUR)
        written = _write(descriptor, data)
        self.operations.append(Write(self._descriptors[descriptor], position, bytes(data)[:written]))
        return written

    def _os_ftruncate(self, descriptor: int, size: int) -> None:
        _REAL["ftruncate"](descriptor, size)
        if descriptor in self._descriptors:
            self.operations.append(Resize(self._descriptors[descriptor], size))

    def _os_truncate(self, path: Any, size: int) -> None:
        _REAL["truncate"](path, size)
        inside = self._path(path)
        if isinstance(path, int):
            self.operations.append(Resize(self._descriptors[path], size))
        elif inside is not None:
            self.operations.append(Resize(self._nodes[inside], size))

    def _os_fallocate(self, descriptor: int, offset: int, size: int) -> None:
        _REAL["posix_fallocate"](descriptor, offset, size)
        if descriptor in self._descriptors:
            self.operations.append(Resize(self._descriptors[descriptor], os.fstat(descriptor).st_size))

    def _os_sync(self, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        node = self._descriptors.get(number)
        if self.fails_next_sync and node is not None and node not in self._directories:
            self.fails_next_sync = False
            self.operations.append(SyncFailed(node))
            raise OSError(errno.EIO, "Input/output error")
        _REAL["fsync"](number)
        if node is not None:
            self.operations.append(SyncDirectory(node) if node in self._directories else Sync(node))

    def _os_rename(self, source: Any, target: Any, **how: Any) -> None:
        before, after = self._path(source), self._path(target)
        assert (before is None) == (after is None), "a move across the root cannot be noted"
        _REAL["replace"](source, target, **how)
        if before is None or after is None:
            return
        node = self._nodes.pop(before)
        assert node not in self._directories, "a move of a directory cannot be noted"
        self._nodes[after] = node
        (head, name), (to_head, to_name) = os.path.split(before), os.path.split(after)
        self.operations.append(Move(self._nodes[head], name, self._nodes[to_head], to_name))

    def _os_unlink(self, path: Any, **how: Any) -> None:
        _REAL["unlink"](path, **how)
        self._gone(path)

    def _os_rmdir(self, path: Any, **how: Any) -> None:
        _REAL["rmdir"](path, **how)
        self._gone(path)

    def _gone(self, path: Any) -> None:
        inside = self._path(path)
        if inside is not None:
            del self._nodes[inside]
            head, name = os.path.split(inside)
            self.operations.append(Remove(self._nodes[head], name))

    def _os_mkdir(self, path: Any, mode: int = 0o777, **how: Any) -> None:
        _REAL["mkdir"](path, mode, **how)
        inside = self._path(path)
        if inside is not None:
            self._named(inside, is_directory=True)

    def _file_open(self, file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **how: Any) -> IO[Any]:
        if isinstance(file, int) or self._path(file) is None or not set(mode) & set("wax+"):
            return _io_open(file, mode, buffering, *rest, **how)
        assert "b" in mode, "a text file that is written cannot be noted"
        both = "+" in mode
        flags = os.O_CLOEXEC | (os.O_RDWR if both else os.O_WRONLY)
        flags |= {
            "w": os.O_CREAT | os.O_TRUNC,
            "a": os.O_CREAT | os.O_APPEND,
            "x": os.O_CREAT | os.O_EXCL,
        }.get(mode.replace("b", "").replace("+", ""), 0)
        raw = _RawFile(os.open(file, flags, 0o666), readable=both)
        return io.BufferedRandom(raw) if both else io.BufferedWriter(raw)

    def _refuser(self, name: str) -> Callable[..., Any]:
        def refuse(*_: object, **__: object) -> None:
            raise AssertionError(f"os.{name} cannot be noted")

        return refuse


_REAL = {name: getattr(os, name) for name in (
    "ftruncate", "truncate", "posix_fallocate", "fsync", "replace", "unlink", "rmdir", "mkdir"
)}  # fmt: skip


class _RawFile(io.RawIOBase):
    """What Python's buffered files write through: the noted functions of `os`, whichever are in force."""

    def __init__(self, descriptor: int, *, readable: bool) -> None:
        self._descriptor = descriptor
        self._readable = readable

    def fileno(self) -> int:
        return self._descriptor

    def readable(self) -> bool:
        return self._readable

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return os.lseek(self._descriptor, offset, whence)

    def readinto(self, buffer: Any) -> int:
        data = os.read(self._descriptor, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        return os.write(self._descriptor, data)

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        os.ftruncate(self._descriptor, size)
        return size

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)


def tree_of(directory: Path) -> Tree:
    """Return what lies in a directory."""
    return {
        path.name: tree_of(path) if path.is_dir() else path.read_bytes()
        for path in sorted(directory.iterdir())
    }


def put_tree(tree: Tree, directory: Path) -> None:
    """Write a tree into an empty directory."""
    for name, content in tree.items():
        path = directory / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.mkdir()
            put_tree(content, path)
