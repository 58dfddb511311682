"""Edge: a running cluster's log is read as its controller has it, and told as an export of it is."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from metadata_log import replay
from metadata_log.digest import digest
from metadata_log.errors import BrokerNotAvailable
from metadata_log.replay.catalog import TABLES
from metadata_log.replay.controller_client import ControllerClient
from metadata_log.replay.export import export_log
from metadata_log.replay.live_log import LiveLog
from metadata_log.replay.plain import plain_rows_of
from metadata_log.replay.report import report_of
from metadata_log.replay.tables import RECORDS
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, Step, history_of

HISTORY = [*history_of(1, 60)]
END = HISTORY[-1].batch.end_offset
PAGE = 40
"""Offsets that one answer holds."""


def saying(monkeypatch: pytest.MonkeyPatch, gives: Sequence[Step], *, silent: bool = False) -> list[str]:
    """Let a controller say that it has HISTORY, and answer with the frames it gives; return what it is asked for."""
    asked: list[str] = []
    status = {"log_start_offset": 0, "high_watermark": END, "cluster_id": CLUSTER_ID}

    def body(_client: ControllerClient, path: str, **_: Any) -> bytes:
        asked.append(path)
        if silent:
            raise BrokerNotAvailable("nothing listens there")
        if path == "/v1/quorum":
            return json.dumps(status).encode()
        first = int(parse_qs(urlsplit(path).query)["from"][0])
        return b"".join(step.frame for step in gives if first <= step.batch.base_offset < first + PAGE)

    monkeypatch.setattr(ControllerClient, "body", body)
    monkeypatch.setattr(ControllerClient, "followers_first", lambda client: client)
    monkeypatch.setattr(ControllerClient, "alone", lambda client: client)
    return asked


@pytest.mark.slow
@pytest.mark.parametrize("gives_up_to", [0, 30, 60])
def test_a_controller_that_has_less_than_it_says_is_not_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gives_up_to: int
) -> None:
    saying(monkeypatch, HISTORY[:gives_up_to])
    if gives_up_to == len(HISTORY):
        assert LiveLog("http://there").export(tmp_path)["digest"] == digest(HISTORY[-1].image)
    else:
        end = HISTORY[gives_up_to].batch.base_offset
        with pytest.raises(BrokerNotAvailable, match=f"there has nothing at offset {end} of .* try again"):
            LiveLog("http://there").export(tmp_path)


@pytest.mark.slow
def test_it_is_asked_before_it_is_read_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the controller answers while the reader is imported. Method: a log that is not read yet; then its pages."""
    asked = saying(monkeypatch, HISTORY)
    log = LiveLog("http://there")
    log._answer.result(timeout=10)
    firsts = [int(parse_qs(urlsplit(path).query)["from"][0]) for path in asked if path.startswith("/v1/log")]
    assert firsts == [0]
    log.export(tmp_path)
    firsts = [int(parse_qs(urlsplit(path).query)["from"][0]) for path in asked if path.startswith("/v1/log")]
    assert len(firsts) > 1
    assert firsts == sorted(set(firsts))


def test_why_it_is_not_there_is_said_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    saying(monkeypatch, HISTORY, silent=True)
    log = LiveLog("http://there")
    log._answer.exception(timeout=10)
    with pytest.raises(BrokerNotAvailable, match="nothing listens there"):
        log.check()
    with pytest.raises(BrokerNotAvailable, match="nothing listens there"):
        replay.open("http://there")


@pytest.mark.slow
def test_a_part_of_a_log_that_passes_through_is_told_as_its_export(tmp_path: Path) -> None:
    """Goal: the same for a log that goes on from a snapshot. Method: both exports of it; each table of both."""
    image = HISTORY[len(HISTORY) // 2].image
    for name, is_passing in (("passing", True), ("whole", False)):
        export_log(
            frames_of(HISTORY),
            tmp_path / name,
            cluster_id=CLUSTER_ID,
            snapshot=image,
            begins_at=image.end_offset,
            is_passing=is_passing,
        )
    passing, whole = (replay.open(tmp_path / name) for name in ("passing", "whole"))
    assert len(passing.export.files) == 2, "the state at its beginning, and records"
    for name in TABLES:
        ours, theirs = (plain_rows_of(log.engine.answer(log.table(name))) for log in (passing, whole))
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), name
    assert report_of(passing) == report_of(whole)


@pytest.mark.slow
def test_a_small_log_that_passes_through_is_told_as_its_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what the reader derives is what an export holds. Method: the files, each table, and the report of both."""
    saying(monkeypatch, HISTORY)
    export_log(frames_of(HISTORY), tmp_path, cluster_id=CLUSTER_ID)
    live, exported = replay.open("http://there"), replay.open(tmp_path)
    assert [file.family for file in live.export.files] == [RECORDS]
    for name in TABLES:
        ours, theirs = (plain_rows_of(log.engine.answer(log.table(name))) for log in (live, exported))
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), name
    assert report_of(live) == report_of(exported)
    assert "the same as the log's own fold" in report_of(live)
