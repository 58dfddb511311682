"""The audit log's file: whole lines, bounded, never in the way of the node."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from metadata_log.limits import MIB
from metadata_log.node import audit_log
from metadata_log.node.audit_log import (
    AUDIT_BUFFER_BYTES,
    MESSAGE_MAX,
    STRANGERS_BURST,
    AuditLog,
    no_audit_log,
)
from metadata_log.node.audit_settings import AuditSettings


@asynccontextmanager
async def writing(
    file: Path, *, size: int = 64 * MIB, keep: int = 4, now_ms: int = 1_790_000_000_123
) -> AsyncIterator[AuditLog]:
    with AuditLog(
        AuditSettings(file=file, file_bytes=size, files_kept=keep), "Controller:1", lambda: now_ms
    ) as log:
        yield log


def note(log: AuditLog, operation: str = "CreateTopics", **more: Any) -> None:
    log.note(
        **{"door": "http", "principal": "User:anna", "address": "10.0.0.1", "outcome": "allowed"} | more,
        operation=operation,
    )


def lines(file: Path) -> list[dict[str, Any]]:
    text = file.read_text(encoding="utf-8")
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_line_has_every_field_whatever_is_known(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with writing(file) as log:
        note(log, resources=["topic a"], offsets={"base": 3, "end": 5}, trace_id="ab", request_id="r")
    (line,) = lines(file)
    assert line == {
        "time": "2026-09-21T14:13:20.123Z",
        "node": "Controller:1",
        "door": "http",
        "principal": "User:anna",
        "address": "10.0.0.1",
        "operation": "CreateTopics",
        "resources": ["topic a"],
        "resource_count": 1,
        "outcome": "allowed",
        "error": None,
        "message": None,
        "request_id": "r",
        "trace_id": "ab",
        "offsets": {"base": 3, "end": 5},
    }
    assert file.stat().st_mode & 0o777 == 0o600


async def test_what_a_client_wrote_breaks_no_line(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with writing(file) as log:
        for text in ("a\nb", '"}', "\ud800", "\u2028", "x" * 100_000):
            note(log, message=text)
    found = [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]
    assert [line["message"] for line in found] == ["a\nb", '"}', "\ud800", "\u2028", "x" * MESSAGE_MAX]


async def test_a_full_file_is_moved_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with writing(file, size=10_000, keep=2) as log:
        for number in range(200):
            note(log, f"O{number}")
            if number % 10 == 0:
                await until(lambda: log.counts.written == number + 1)  # noqa: B023 awaited at once
    kept = [file.with_name("audit.jsonl.2"), file.with_name("audit.jsonl.1"), file]
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    assert all(0 < each.stat().st_size <= 10_000 for each in kept)
    operations = [line["operation"] for each in kept for line in lines(each)]
    assert operations == [f"O{number}" for number in range(200 - len(operations), 200)]


async def test_a_torn_line_is_cut_and_whole_ones_stay(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    for torn in (b'{"time":', b"x" * 200_000):
        file.write_bytes(b'{"operation": "old"}\n' + torn)
        async with writing(file) as log:
            note(log, "new")
        assert [line["operation"] for line in lines(file)] == ["old", "new"]
    file.write_bytes(b"no end of a line at all")
    async with writing(file) as log:
        note(log, "new")
    assert [line["operation"] for line in lines(file)] == ["new"]


async def test_a_file_that_cannot_be_written_is_said_and_its_lines_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "AGAIN_S", 0.01)
    file = tmp_path / "missing" / "audit.jsonl"
    async with writing(file) as log:
        await until(lambda: log.failure is not None)
        file.parent.mkdir()
        await until(lambda: log.failure is None)
        assert file.exists(), "it is tried again though no line waits"
        file.unlink()
        file.parent.rmdir()
        note(log)
        await until(lambda: log.failure is not None)
        ((code, detail),) = log.reasons()
        assert code == "AUDIT_NOT_WRITTEN"
        assert str(file) in detail
        assert "No such file" in detail
        file.parent.mkdir()
        await until(lambda: log.failure is None and log.counts.written == 1)
        assert list(log.reasons()) == []
        assert len(lines(file)) == 1


async def test_lines_without_room_are_counted_as_lost(tmp_path: Path) -> None:
    log = AuditLog(AuditSettings(file=tmp_path / "a"), "Controller:1")
    for _ in range(AUDIT_BUFFER_BYTES // 1_000):
        note(log, message="x" * MESSAGE_MAX)
    assert 0 < log.counts.lost < 2_000


async def test_strangers_push_nothing_out(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with writing(file) as log:
        for _ in range(STRANGERS_BURST + 1_000):
            note(log, "GET /", outcome="refused", by_stranger=True)
        note(log, "CreateTopics")
    found = lines(file)
    assert STRANGERS_BURST < len(found) < STRANGERS_BURST + 50
    assert found[-1]["operation"] == "CreateTopics"
    assert found[-1]["strangers_left_out"] == log.counts.strangers_left_out > 900


async def test_a_file_that_another_program_moves_away_is_made_again(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with writing(file) as log:
        note(log, "one")
        await until(lambda: log.counts.written == 1)
        file.rename(tmp_path / "elsewhere")
        note(log, "two")
    assert [line["operation"] for line in lines(tmp_path / "elsewhere")] == ["one"]
    assert [line["operation"] for line in lines(file)] == ["two"]


async def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("keep")
    file = tmp_path / "audit.jsonl"
    file.symlink_to(victim)
    async with writing(file) as log:
        note(log)
        await until(lambda: log.failure is not None)
    assert victim.read_text() == "keep"


async def test_without_a_file_nothing_is_kept() -> None:
    log = no_audit_log()
    note(log)
    assert (log.is_on, log.takes_reads, log.counts.lost) == (False, False, 0)
    assert log._lines == type(log._lines)()
