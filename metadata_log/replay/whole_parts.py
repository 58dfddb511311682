"""Pure: the whole parts of a log with damaged files that have a beginning, and the longest of them.

A record means nothing without what it changes. So a part after the damage can be read only from a state on.
Tests: tests/unit/metadata_log/replay/test_library.py.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from metadata_log.errors import DamagedFile


class Part(NamedTuple):
    """Offsets from `first` up to `until` (exclusive), and the state they rest on; None: the log's own beginning."""

    first: int
    until: int
    state: Path | None


def longest_part(
    path: Path, edges: Sequence[int], states: Callable[[], Iterable[tuple[Path, int]]], missing: list[str]
) -> Part:
    """Return the longest part of the log at `path`, and add to the lines of what is `missing` which part it is.

    `edges` has the first offset and the end (exclusive) of each whole stretch in turn, and `states` returns the files of
    states with the offset below which each holds the state, the oldest first.

    Raises:
        DamagedFile: no part has a beginning.
    """
    found = [*_parts(edges, states)]
    if not found:
        raise DamagedFile(
            f"{path}: {missing[0] if missing else 'it does not begin at offset 0'}; nothing can be told without the "
            "beginning of the log, or a snapshot behind what is missing"
        )
    part = max(found, key=lambda each: each.until - each.first)
    if missing:
        missing.append(f"told are the offsets {part.first}-{part.until - 1}, the longest part that is whole")
    return part


def _parts(edges: Sequence[int], states: Callable[[], Iterable[tuple[Path, int]]]) -> Iterator[Part]:
    """Yield a part for each whole stretch that has a beginning: offset 0, or else the oldest state in it."""
    for first, until in zip(edges[::2], edges[1::2], strict=True):
        if first == 0 < until:
            yield Part(0, until, None)
        elif first < until:
            inside = ((file, end_offset) for file, end_offset in states() if first <= end_offset < until)
            yield from (Part(end_offset, until, file) for file, end_offset in islice(inside, 1))
