"""Which runs come by what a mutant replaces: a run that never calls it is the same run under the mutant.

So a mutant is tried only on the runs that call its target. All targets are watched at once, in runs without a mutant.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest.mock import patch

Run = tuple[Any, int]
"""A kind of runs, and a seed."""
Holder = tuple[Any, str]


def calls(
    targets: dict[str, Holder], runs: Sequence[Run], run: Callable[[Any, int], object]
) -> dict[str, list[int]]:
    """Return for each target that can be watched the positions of the runs that call it."""
    called: set[str] = set()
    found: dict[str, list[int]] = {}
    with ExitStack() as watched:
        for target, (holder, attribute) in targets.items():
            shipped = vars(holder).get(attribute)
            if (watching := _watched(shipped, called, target)) is not None:
                watched.enter_context(patch.object(holder, attribute, watching))
                found[target] = []
        for position, (kind, seed) in enumerate(runs):
            called.clear()
            run(kind, seed)
            for target in called:
                found[target].append(position)
    return found


def _watched(shipped: object, called: set[str], target: str) -> object | None:
    """Return what stands in for a function and notes its calls; None for anything else: that may be read unseen."""
    if isinstance(shipped, staticmethod | classmethod):
        inner = _watched(shipped.__func__, called, target)
        return None if inner is None else type(shipped)(inner)  # type: ignore[arg-type]  # a function
    if isinstance(shipped, property) and shipped.fget is not None:
        getter = _watched(shipped.fget, called, target)
        return None if getter is None else property(getter, shipped.fset, shipped.fdel)  # type: ignore[arg-type]  # a function
    if not isinstance(shipped, FunctionType):
        return None

    @wraps(shipped)
    def noted(*args: Any, **rest: Any) -> Any:
        called.add(target)
        return shipped(*args, **rest)

    return noted


def write(path: Path, runs: Iterable[Run], found: dict[str, list[int]]) -> None:
    path.write_text(json.dumps({"runs": repr(list(runs)), "called": found}))


def read(path: Path, runs: Iterable[Run]) -> dict[str, list[int]] | None:
    """Return what was written, unless it is of other runs."""
    if not path.exists():
        return None
    known = json.loads(path.read_text())
    called: dict[str, list[int]] = known["called"]
    return called if known["runs"] == repr(list(runs)) else None
