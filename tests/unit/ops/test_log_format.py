"""Edge: log lines as text and as JSON."""

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp.http_exceptions import BadHttpMessage

from ops.log_format import PROCESS_FAILED, JsonFormatter, TextFormatter, setup_logging


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in list(root.handlers):
        if handler not in handlers:
            root.removeHandler(handler)
            handler.close()
    for handler in handlers:
        if handler not in root.handlers:
            root.addHandler(handler)
    root.setLevel(level)
    logging.raiseExceptions = True


def record(message: str, **facts: object) -> logging.LogRecord:
    made = logging.getLogger("quorum.controller").makeRecord(
        "quorum.controller", 20, "f", 1, message, (), None
    )
    made.created = 1_767_268_800.25
    made.__dict__.update(facts)
    return made


def test_text_is_one_line_of_event_and_facts() -> None:
    line = TextFormatter().format(record("broker_fenced", broker_id=3, reason="it was silent", ids=[1, 2]))
    assert line == (
        "2026-01-01T12:00:00.250Z INFO quorum.controller broker_fenced "
        'broker_id=3 reason="it was silent" ids=[1, 2]'
    )


def test_a_strangers_newline_begins_no_line() -> None:
    assert "\n" not in TextFormatter().format(record("refused", name="a\n2026 INFO forged\x1b[0m"))


def test_json_has_the_facts_as_fields() -> None:
    assert json.loads(JsonFormatter().format(record("broker_fenced", broker_id=3, path=Path("/d")))) == {
        "time": "2026-01-01T12:00:00.250Z",
        "level": "INFO",
        "logger": "quorum.controller",
        "event": "broker_fenced",
        "broker_id": 3,
        "path": "/d",
    }


def test_a_traceback_is_kept_whole() -> None:
    try:
        raise ZeroDivisionError("x")
    except ZeroDivisionError:
        made = record(PROCESS_FAILED)
        made.exc_info = sys.exc_info()
    assert "ZeroDivisionError: x" in json.loads(JsonFormatter().format(made))["traceback"]
    assert TextFormatter().format(made).splitlines()[1] == "Traceback (most recent call last):"


def test_what_strangers_send_leaves_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAQUORUM_LOG", "none")
    setup_logging(tmp_path / "log")
    server = logging.getLogger("aiohttp.server")
    for error in (BadHttpMessage("no\nheader"), ValueError("a bug")):
        try:
            raise error
        except (BadHttpMessage, ValueError):
            server.exception("Error handling request from %s", "127.0.0.1")
    stranger, bug, *trace = (tmp_path / "log").read_text().splitlines()
    said = 'WARNING aiohttp.server Error handling request from 127.0.0.1 reason="400, message: no header"'
    assert stranger.endswith(said)
    assert " ERROR " in bug and trace[0].startswith("Traceback")


@pytest.mark.parametrize(
    ("style", "begins"), [("json", '{"time"'), ("text", "20"), ("none", ""), (None, '{"time"')]
)
def test_stderr_as_told_and_the_file_as_text(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    style: str | None,
    begins: str,
) -> None:
    if style is None:
        monkeypatch.delenv("METAQUORUM_LOG", raising=False)
    else:
        monkeypatch.setenv("METAQUORUM_LOG", style)
    file = tmp_path / "controller.log"
    setup_logging(file)
    logging.getLogger("quorum").info("controller_started", extra={"node_id": 1})
    logging.getLogger("ops").critical(PROCESS_FAILED)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(begins)
    assert bool(said.err) is bool(begins)
    assert "process_failed" not in said.err  # that line is the command's own
    started, failed = file.read_text().splitlines()
    assert started.endswith("INFO quorum controller_started node_id=1")
    assert failed.endswith("CRITICAL ops process_failed")
