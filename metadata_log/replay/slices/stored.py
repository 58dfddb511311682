"""Edge: files of the log on other file systems than the local one: object stores and HDFS, named by URI and only read.

pyarrow's file systems read them, in the planner and in the executors alike, since Python workers of Spark cannot reach the
Hadoop client of their JVM. So the credentials are those of the process, not those in Spark's settings.
Tests: tests/unit/metadata_log/replay/test_stored.py.
"""

import io
import re
import urllib.parse
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, Literal, NamedTuple, cast

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from metadata_log.errors import DiskFailed, InvalidRequest
from metadata_log.limits import MIB

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_HADOOP_NAMES: Final = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names of stores that pyarrow knows by another."""
_CURES: Final = {
    "hdfs": "set JAVA_HOME, HADOOP_HOME and CLASSPATH=$(hadoop classpath --glob) for the driver and the executors",
    "s3": "see AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL on the driver and the executors",
    "gs": "see GOOGLE_APPLICATION_CREDENTIALS on the driver and the executors",
}
"""What to look at where a store does not answer."""
READ_AHEAD_BYTES: Final = MIB
"""Asked of a store at once where frames are read one after the other: each request costs some 10 ms."""


class _Size(NamedTuple):
    st_size: int


@dataclass(frozen=True, slots=True)
class StoredPath:
    """A path on another file system, with the methods of pathlib.Path that readers of the log use.

    `uri` names the file system; `path` lies in it. Both can be sent to an executor, which opens the file system itself.
    """

    uri: str
    path: str

    def __str__(self) -> str:
        """Name scheme and path; what may hold credentials is left out."""
        named = urllib.parse.urlsplit(self.uri)
        host = named.netloc.rpartition("@")[2] if named.scheme in {"hdfs", "viewfs"} else ""
        return f"{named.scheme}://{host}/{self.path}" if host else f"{named.scheme}://{self.path}"

    def __truediv__(self, below: str) -> "StoredPath":
        return StoredPath(self.uri, str(PurePosixPath(self.path) / below))

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def stem(self) -> str:
        return PurePosixPath(self.path).stem

    @property
    def parent(self) -> "StoredPath":
        return StoredPath(self.uri, str(PurePosixPath(self.path).parent))

    def __lt__(self, other: "StoredPath") -> bool:
        return self.path < other.path

    def with_suffix(self, suffix: str) -> "StoredPath":
        return StoredPath(self.uri, str(PurePosixPath(self.path).with_suffix(suffix)))

    def is_dir(self) -> bool:
        return self._info().type is pa.fs.FileType.Directory

    def is_file(self) -> bool:
        return self._info().type is pa.fs.FileType.File

    def exists(self) -> bool:
        return self._info().type is not pa.fs.FileType.NotFound

    def stat(self) -> _Size:
        found = self._info()
        if found.type is pa.fs.FileType.NotFound:
            raise FileNotFoundError(f"{self}: no such file")
        return _Size(found.size or 0)

    def iterdir(self) -> Iterator["StoredPath"]:
        with self.renamed_errors():
            found = _file_system(self.uri).get_file_info(pa.fs.FileSelector(self.path))
        return (StoredPath(self.uri, each.path.rstrip("/")) for each in found)

    def glob(self, pattern: str) -> Iterator["StoredPath"]:
        first, _, rest = pattern.partition("/")
        for each in self.iterdir() if self.is_dir() else ():
            if fnmatchcase(each.name, first):
                yield from each.glob(rest) if rest else (each,)

    def open(self, mode: Literal["rb"] = "rb", buffering: int = READ_AHEAD_BYTES) -> BinaryIO:
        assert mode == "rb", "the log is only read"
        with self.renamed_errors():
            file = _file_system(self.uri).open_input_file(self.path)
        return io.BufferedReader(_Reading(self, file), max(buffering, READ_AHEAD_BYTES))

    def read_bytes(self) -> bytes:
        with self.open() as file:
            return file.read()

    def renamed_errors(self) -> AbstractContextManager[None]:
        """Name this path and the cure in what its store answers.

        Raises:
            DiskFailed: the store does not answer, or refuses.
        """
        return _renamed_errors(str(self), self.uri)

    def _info(self) -> Any:
        with self.renamed_errors():
            return _file_system(self.uri).get_file_info(self.path)


class _Reading(io.RawIOBase):
    """An open file of a store."""

    def __init__(self, path: StoredPath, file: Any) -> None:
        self._path, self._file = path, file

    def readinto(self, into: Any) -> int:
        with self._path.renamed_errors():
            count: int = self._file.readinto(into)
            return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at: int = self._file.seek(offset, whence)
        return at

    def tell(self) -> int:
        at: int = self._file.tell()
        return at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


def names_another_file_system(text: str) -> bool:
    """Answer whether a text is a URI that `path_of` turns into no local path."""
    scheme = _URI.match(text)
    return scheme is not None and scheme[1].lower() != "file"


def path_of(text: str) -> Path:
    """Return a local path as one of pathlib, and one on another file system, given as URI, as a StoredPath.

    Raises:
        InvalidRequest: no file system is known by the URI's scheme, or it is malformed.
        DiskFailed: its file system cannot be opened.
    """
    scheme = _URI.match(text)
    if scheme is None:
        return Path(text)
    uri = _HADOOP_NAMES.get(scheme[1].lower(), scheme[1].lower()) + text[len(scheme[1]) :]
    named = urllib.parse.urlsplit(uri)
    if named.scheme == "file":
        if named.netloc not in {"", "localhost"}:
            raise InvalidRequest(f"{text} names the host {named.netloc}: name a local file as file:///PATH")
        return Path(urllib.parse.unquote(named.path))
    name = f"{named.scheme}://{named.netloc.rpartition('@')[2]}{named.path}"
    try:
        with _renamed_errors(name, uri):
            _, path = _opened(uri)
    except ValueError as error:  # pyarrow's ArrowInvalid is one
        reason = str(error).splitlines()[0].partition(": ")[0]
        raise InvalidRequest(
            f"{name}: {reason}: name a local path, or one of hdfs, viewfs, s3a, s3, gs or abfss"
        ) from error
    # Readers of the log use what StoredPath has of a Path.
    return cast("Path", StoredPath(uri, path.rstrip("/")))


@contextmanager
def parquet_file(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file on any file system."""
    with path.open("rb") as file, pq.ParquetFile(file) as opened:
        yield opened


@lru_cache(maxsize=16)
def _opened(uri: str) -> tuple[Any, str]:
    file_system, path = pa.fs.FileSystem.from_uri(uri)
    return file_system, path


def _file_system(uri: str) -> Any:
    return _opened(uri)[0]


@contextmanager
def _renamed_errors(name: str, uri: str) -> Iterator[None]:
    """Turn what a store answers into one line with the cure; a missing file stays FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        scheme = uri.partition(":")[0].replace("viewfs", "hdfs")
        cure = _CURES.get(scheme, "see its address and its credentials on the driver and the executors")
        reason = str(error).splitlines()[0].removesuffix(".")
        raise DiskFailed(f"{name}: {reason}: {cure}", path=name) from error
