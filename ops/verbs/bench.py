"""Edge: `bench NAME`: run one of the measurements in ops/bench."""

import argparse
import importlib
from typing import Any

from ops import render
from ops.bench.probes import watching
from ops.talk import say, show


def run_bench(args: argparse.Namespace) -> int:
    for peer in args.peer:
        if not args.has_peer:
            say(f"{peer} has nothing to compare here; we are measured alone")
    with watching() as withheld:
        result: dict[str, Any] = importlib.import_module(f"ops.bench.{args.bench}").run(args)
    result["probes"] |= withheld
    show(args, result, table=lambda: render.fields(_flat("", result)))
    return 0


def _flat(prefix: str, value: Any) -> list[tuple[str, str]]:
    """Return `ours.p50  1.2` lines of nested figures."""
    if not isinstance(value, dict):
        return [(prefix, render.plain(value))]
    return [line for key, item in value.items() for line in _flat(f"{prefix}.{key}" if prefix else key, item)]
