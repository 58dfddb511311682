"""Edge: kinds of values on the command line: each reader returns the value, or raises ValueError saying what is wanted.
Tests: tests/unit/ops/test_cli.py.
"""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from metadata_log.ids import uuid_from_text
from ops import when

WAIT_MAX_S: Final = 24 * 3600.0
"""The longest duration of an option: a socket takes no timeout of a hundred years."""


def moment(text: str) -> when.When:
    return when.parse_when(text, now_ms=time.time_ns() // 1_000_000)


def seconds(text: str) -> float:
    duration_s = when.parse_duration_ms(text) / 1_000
    if duration_s > WAIT_MAX_S:
        raise ValueError(f"{text!r} is longer than a day")
    return duration_s


def broker_id_list(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() for word in words):
        raise ValueError(f"{text!r} is no list of broker ids, such as 11,12,13")
    return [int(word) for word in words]


def existing_path(text: str) -> Path:
    if not Path(text).exists():
        raise ValueError(f"there is no {text}")
    return Path(text)


def existing_file(text: str) -> Path:
    """Read the path of a file that is there."""
    path = existing_path(text)
    if path.is_dir():
        raise ValueError(f"{text} is a directory: name a file")
    return path


def text_of(path: Path) -> str:
    """Return the text of a file that an operator named; raises ValueError saying in plain words why it has none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise ValueError(error.strerror) from error


def local_cluster(text: str) -> Path:
    """Read the folder of a cluster of `metaquorum up`."""
    path = existing_path(text)
    if not (path / "cluster.json").exists():
        raise ValueError(f"{text} is no folder of `metaquorum up`: it has no cluster.json")
    return path


def directory(text: str) -> Path:
    """Read the path of a directory, or of one to be made: no file is on the way."""
    path = Path(text)
    there = next((step for step in (path, *path.parents) if os.path.lexists(step)), path.parent)
    if os.path.lexists(there) and not there.is_dir():
        raise ValueError(f"{there} is no directory: name one, or one to be made")
    return path


def log_place(text: str) -> Path | str:
    """Read where a log is: the URLs of controllers as they are, else a directory, or a file that holds a state."""
    from metadata_log.replay.kinds import kind_of

    if re.match(r"https?://", text):
        return text
    path = Path(text)
    return path if path.is_file() and kind_of(path) is not None else directory(text)


def uuid_of(what: str) -> Callable[[str], str]:
    """Return what reads the id of such a thing as 22 characters."""

    def parse(text: str) -> str:
        try:
            uuid_from_text(text)
        except ValueError as error:
            raise ValueError(f"{text!r} is not the id of a {what}: {error}") from error
        return text

    return parse


def from_to(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise ValueError(f"{text!r} is no whole number from {low} to {high}")
        return int(text)

    return parse
