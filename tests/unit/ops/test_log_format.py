"""Edge: log lines as text and as JSON."""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage

from metadata_log.node.recent_warnings import BY_STRANGER
from ops.log_format import (
    PROCESS_FAILED,
    STRANGERS_BURST_BYTES,
    STRANGERS_BYTES_PER_S,
    JsonFormatter,
    TextFormatter,
    setup_logging,
)


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
    made = logging.getLogger("quorum.controller.upkeep").makeRecord(
        "quorum.controller.upkeep", 20, "f", 1, message, (), None
    )
    made.created = 1_767_268_800.25
    made.__dict__.update(facts)
    return made


def test_text_is_one_line_of_event_and_facts() -> None:
    line = TextFormatter().format(record("broker_fenced", broker_id=3, reason="it was silent", ids=[1, 2]))
    assert line == (
        "2026-01-01T12:00:00.250Z INFO quorum.controller.upkeep broker_fenced "
        'broker_id=3 reason="it was silent" ids=[1, 2]'
    )


def test_a_strangers_newline_begins_no_line() -> None:
    assert "\n" not in TextFormatter().format(record("refused", name="a\n2026 INFO forged\x1b[0m"))


def test_json_has_the_facts_as_fields() -> None:
    assert json.loads(JsonFormatter().format(record("broker_fenced", broker_id=3, path=Path("/d")))) == {
        "time": "2026-01-01T12:00:00.250Z",
        "level": "INFO",
        "logger": "quorum.controller.upkeep",
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


def heard_by_the_server(tmp_path: Path, sent: bytes) -> str:
    """Return what a process logs of bytes that reach its HTTP port."""

    async def story() -> None:
        app = web.Application()
        runner = web.AppRunner(app)
        await runner.setup()
        assert runner.server is not None
        listener = await asyncio.get_running_loop().create_server(runner.server, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        writer.write(sent)
        async with asyncio.timeout(60):
            await reader.read()
        writer.close()
        listener.close()
        await runner.cleanup()

    setup_logging(tmp_path / "log")
    asyncio.run(story())
    return (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\nAuthorization: Bearer hunter2\x12\r\n\r\n", "Invalid header value char"),
        (
            b'POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity\r\n\r\n{"password": "hunter2"}',
            "Request has invalid",
        ),
        (b"GET /hunter2\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n", "InvalidURLError"),
        (b"GET *hunter2 HTTP/1.1\r\nHost: localhost\r\n\r\n", "InvalidURLError"),
        (
            b"GET / HTTP/1.1\r\nX: " + b"hunter2" * 2_000 + b"\r\n\r\n",
            "Got more than 8190 bytes when reading",
        ),
    ],
)
def test_no_log_quotes_what_is_not_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes, reason: str
) -> None:
    monkeypatch.setenv("METAQUORUM_LOG", "none")
    (line,) = heard_by_the_server(tmp_path, sent).splitlines()
    assert " WARNING aiohttp.server " in line and reason in line
    assert "hunter2" not in line and len(line) < 250


@pytest.mark.parametrize("caused_by", ["no HTTP", "a traceback", "our own event"])
def test_strangers_do_not_fill_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caused_by: str
) -> None:
    """Goal: bytes in a second are bounded, whatever the lines are. Method: a flood of each, and a clock that goes on."""
    monkeypatch.setenv("METAQUORUM_LOG", "json")
    setup_logging(tmp_path / "log")
    server = logging.getLogger("aiohttp.server")
    now = 1_000.0
    monkeypatch.setattr(time, "time", lambda: now)

    def lines_of(errors: int) -> tuple[int, list[str]]:
        before = (tmp_path / "log").read_text()
        for number in range(errors):
            if caused_by == "our own event":
                facts = {"address": "127.0.0.1", "detail": "x" * 50, BY_STRANGER: True}
                logging.getLogger("quorum.raft.transport").warning("raft_link_dropped", extra=facts)
                continue
            try:
                raise BadHttpMessage("x") if caused_by == "no HTTP" else ValueError(f"number {number}")
            except (BadHttpMessage, ValueError):
                server.exception("Error handling request from %s", "127.0.0.1")
        text = (tmp_path / "log").read_text()[len(before) :]
        return len(text), [line for line in text.splitlines() if line.startswith("1970")]

    size, first = lines_of(2_000)
    assert size < STRANGERS_BURST_BYTES + 1_000 and 10 < len(first) < 2_000
    logging.getLogger("quorum").warning("something_else")
    now += 20
    size, later = lines_of(2_000)
    assert size < 20 * STRANGERS_BYTES_PER_S + 1_000
    assert f"left_out={2_000 - len(first)}" in later[0] and not any("left_out" in line for line in later[1:])
    assert "something_else" in (tmp_path / "log").read_text()
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(events) == len(first) + len(later) + 1, "both handlers have the same lines"
    assert not any(BY_STRANGER in event for event in events)


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
