"""Edge: how verbs print: results on stdout, messages on stderr."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Any, Final, NoReturn

from ops import render

PATIENCE_S: Final = 2.0
"""After so long, a line says that work goes on."""


def show(args: argparse.Namespace, value: Any, *, table: Callable[[], str]) -> None:
    """Print a result as the flags ask for it."""
    if shown := render.rendered(value, output=args.output, table=table):
        print(shown)


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


def fail_usage(args: argparse.Namespace, message: str) -> NoReturn:
    """End in a usage error of the verb that was called: exit code 2."""
    args.fail(message)
    raise AssertionError("an argument parser's error does not return")


def one_line(text: str) -> str:
    """Return text without line breaks and control characters."""
    return "".join(
        letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(text.split())
    )
