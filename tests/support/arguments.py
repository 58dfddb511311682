"""Pure: numeric arguments of the long campaigns: anything else is a usage error, not a traceback."""

from argparse import ArgumentTypeError


def positive(text: str) -> int:
    """Return a number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def seeds(text: str) -> tuple[int, int | None]:
    """Return the first seed and the last, None where only the first is named: `5..9` or `5`."""
    first, dots, last = text.partition("..")
    if not first.isdecimal() or (dots and not (last.isdecimal() and int(first) <= int(last))):
        raise ArgumentTypeError(f"{text!r} is neither FIRST..LAST nor FIRST")
    return int(first), int(last) if dots else None
