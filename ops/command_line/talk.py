"""Edge: how verbs print: results on stdout, messages on stderr."""

import io
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Final, NoReturn

from metadata_log.printable import printable
from ops.given import Misuse

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
PATIENCE_S: Final = 2.0
"""After this many seconds, a line says that work continues."""


def put(text: str, *, output: str = "table", flush: bool = False) -> None:
    """Print a result, whatever the encoding of stdout: what is for machines stays what its format says.

    JSON and HTML escape by their own rules where stdout is not UTF-8. In text, a letter that the encoding lacks is shown
    by its number (`accept_any_encoding`).
    """
    if not _is_utf8(sys.stdout.encoding):
        text = _escaped(text, output)
    print(text, flush=flush)


def replace_closed_streams() -> None:
    """Let a standard stream that the caller closed (`>&-`) lead to /dev/null.

    Python leaves None in its place. The next file that is opened would get its number, and what a library writes there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 until the process ends


def accept_any_encoding() -> None:
    """Let no letter end a verb: what the encoding of stdout or stderr lacks is shown by its number (U+2192)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _is_utf8(encoding: str | None) -> bool:
    return (encoding or "utf-8").lower().replace("-", "").replace("_", "") in {"utf8", "utf8sig", "cp65001"}


def _escaped(text: str, output: str) -> str:
    if text.isascii():
        return text
    match output:
        case "json" | "jsonl":  # every letter that is not ASCII is part of a string
            return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)
        case "html":
            return text.encode("ascii", "xmlcharrefreplace").decode("ascii")
        case _:
            return text


def say(message: str) -> None:
    """Print one line for the operator on stderr. If it cannot be written, the exit code still reports the error."""
    with suppress(OSError):
        print(f"metaquorum: {one_line(message)}", file=sys.stderr, flush=True)


@contextmanager
def patience(message: str) -> Iterator[None]:
    """Say on stderr that work goes on, once it has taken PATIENCE_S."""
    timer = Timer(PATIENCE_S, lambda: say(f"{message} ..."))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def fail_usage(message: str) -> NoReturn:
    """End in a usage error of the verb that was called: exit code 2."""
    raise Misuse(message)


def one_line(text: str) -> str:
    """Return text without line breaks and control characters."""
    return printable(" ".join(text.split()))
