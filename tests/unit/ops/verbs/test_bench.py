"""Edge: what every benchmark has in common."""

import inspect
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest

from ops import cli
from ops.bench.catalog import BENCHES, Bench
from ops.command_line.options import Noun, Output
from ops.verbs import bench as verbs
from ops.verbs.bench import run_bench


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

    def run(_bench: Bench) -> None:
        with TemporaryDirectory() as scratch:
            made.append(Path(scratch))
            signal.raise_signal(signal.SIGTERM)

    with patch.object(Bench, "measure", run), pytest.raises(KeyboardInterrupt):
        run_bench(Output(), Bench("any", "It measures.", no_peer="nobody else does it"), (), {})
    (scratch,) = made
    assert not scratch.exists()


@pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.name)
def test_each_benchmark_has_a_peer_or_says_why_not(bench: Bench) -> None:
    assert bool(bench.peers) != bool(bench.no_peer)
    assert "\n" not in bench.no_peer


@pytest.mark.usefixtures("kept_signals")
def test_why_there_is_no_peer_stands_in_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"ours": {"p50": 1.0}, "probes": {}}
    with patch.object(Bench, "measure", lambda _bench: answer):
        measured = Bench("any", "It measures.", no_peer="nobody else does it")
        run_bench(Output(output="json"), measured, (), {})
    assert json.loads(capsys.readouterr().out)["no_peer"] == "nobody else does it"


@pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.name)
def test_each_benchmark_takes_the_options_that_are_declared_for_it(bench: Bench) -> None:
    assert isinstance(verbs.NOUN, Noun)
    verb = verbs.NOUN.commands[bench.name]
    declared = {param.name for param in verb.params} - {"output", "as_json"}
    sizes = {"peers" if name == "peer" else name for name in declared} - (set() if bench.peers else {"peers"})
    taken = inspect.signature(bench.measure).parameters
    assert sizes <= set(taken)
    assert {name for name, each in taken.items() if each.default is each.empty} <= sizes


@pytest.mark.parametrize("words", [[], ["failover", "--peer", "etcd"], ["fanout", "--polls", "9"]])
def test_where_the_benchmarks_are_not_installed_the_verb_says_where_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.delitem(sys.modules, "ops.bench.catalog")
    monkeypatch.setitem(sys.modules, "ops.bench", None)
    monkeypatch.setattr(verbs, "NOUN", verbs._noun())
    assert cli.main(["bench", *words]) == 2
    assert "in the source repository of metaquorum" in capsys.readouterr().err
