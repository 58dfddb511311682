"""Edge: what every benchmark has in common."""

import argparse
import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from ops.verbs.bench import run_bench


def test_a_benchmark_that_is_terminated_leaves_nothing_behind() -> None:
    made: list[Path] = []

    def run(_args: argparse.Namespace) -> None:
        with TemporaryDirectory() as scratch:
            made.append(Path(scratch))
            signal.raise_signal(signal.SIGTERM)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    bench = SimpleNamespace(run=run)
    try:
        with patch("importlib.import_module", lambda _: bench), pytest.raises(KeyboardInterrupt):
            run_bench(argparse.Namespace(peer=[], has_peer=False, bench="any"))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    (scratch,) = made
    assert not scratch.exists()
