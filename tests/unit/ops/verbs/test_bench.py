"""Edge: what every benchmark has in common."""

import argparse
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from ops.verbs.bench import BENCHES, Bench, run_bench


@pytest.fixture
def kept_signals() -> Iterator[None]:
    """A benchmark takes both signals for an interruption."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("kept_signals")
def test_a_benchmark_that_is_terminated_leaves_nothing_behind() -> None:
    made: list[Path] = []

    def run(_args: argparse.Namespace) -> None:
        with TemporaryDirectory() as scratch:
            made.append(Path(scratch))
            signal.raise_signal(signal.SIGTERM)

    bench = SimpleNamespace(run=run)
    with patch("importlib.import_module", lambda _: bench), pytest.raises(KeyboardInterrupt):
        run_bench(argparse.Namespace(peer=[], no_peer="", bench="any"))
    (scratch,) = made
    assert not scratch.exists()


@pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.name)
def test_each_benchmark_has_a_peer_or_says_why_not(bench: Bench) -> None:
    assert bool(bench.peers) != bool(bench.no_peer)
    assert "\n" not in bench.no_peer


@pytest.mark.usefixtures("kept_signals")
def test_why_there_is_no_peer_stands_in_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"ours": {"p50": 1.0}, "probes": {}}
    bench = SimpleNamespace(run=lambda _args: answer)
    with patch("importlib.import_module", lambda _: bench):
        run_bench(argparse.Namespace(peer=[], no_peer="nobody else does it", bench="any", output="json"))
    assert json.loads(capsys.readouterr().out)["no_peer"] == "nobody else does it"
