"""Edge: the benchmark of idle connections refuses more of them than a controller takes."""

import resource
from collections.abc import Iterator

import pytest

from metadata_log.limits import HTTP_CONNECTIONS_MAX
from ops.bench import idle
from ops.cli import main
from ops.verbs.bench import BENCHES


@pytest.fixture
def kept_limit() -> Iterator[None]:
    """The benchmark raises this process's limit of open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("kept_limit")
def test_more_connections_than_a_controller_takes_are_refused_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(idle, "connections_max", lambda: 1_000)
    assert main(["bench", "idle", "--connections", "901"]) == 6
    (line,) = capsys.readouterr().err.splitlines()
    assert "BenchmarkFailed: 901 connections cannot be open at once here" in line
    assert "ask for --connections 900 or fewer, or raise the limit" in line


def test_the_most_that_may_be_asked_for_is_what_a_controller_takes() -> None:
    (bench,) = (bench for bench in BENCHES if bench.name == "idle")
    ((_, options),) = bench.flags
    assert options["default"] == HTTP_CONNECTIONS_MAX - idle.OWN
