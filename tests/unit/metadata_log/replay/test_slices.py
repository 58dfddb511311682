"""A log read in slices has the rows of its export, wherever it lies and however it is cut."""

import http.server
import json
import logging
import random
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metadata_log import codec
from metadata_log.codec import DamagedFrame, FrameHeader
from metadata_log.errors import (
    BrokerNotAvailable,
    DamagedFile,
    InvalidRequest,
    NotAuthorized,
)
from metadata_log.log import segment_file
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.replay import controller_client
from metadata_log.replay.columns import SCHEMA
from metadata_log.replay.controller_client import ControllerClient, Shown, controllers
from metadata_log.replay.damaged import export_whole_part
from metadata_log.replay.export import export_log
from metadata_log.replay.slices.controllers import ControllerLog
from metadata_log.replay.slices.exports import ExportLog
from metadata_log.replay.slices.segments import SegmentLog
from metadata_log.replay.slices.slicing import SlicedLog
from metadata_log.replay.slices.wanted import TYPE_NAMES, Span, Wanted
from metadata_log.replay.source import export_directory
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, Step, history_of

pytestmark = pytest.mark.slow

HISTORY = [*history_of(11, 240)]
END = HISTORY[-1].batch.end_offset
EVERYTHING = Wanted()
INHERITED = ("topic_name", "topic_seq", "controller_id")
"""What a row has from records before it, which a slice does not know."""


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("export")
    for until in (END // 2, None):
        export_log(frames_of(HISTORY), to, cluster_id=CLUSTER_ID, until=until)
    return to


def written(history: Sequence[Step], to: Path, *, files: int = 4) -> Path:
    """Write a folder of segments."""
    to.mkdir(parents=True, exist_ok=True)
    size = -(-len(history) // files)
    for first in range(0, len(history), size):
        part = history[first : first + size]
        path = to / f"{part[0].batch.base_offset:020d}.log"
        path.write_bytes(b"".join(step.frame for step in part))
    return to


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(HISTORY, tmp_path_factory.mktemp("log"))


@pytest.fixture(scope="module")
def rows(export: Path) -> pa.Table:
    """Return all rows in order of offset."""
    files = sorted(export.glob("records/*.parquet"))
    return pa.concat_tables([pq.read_table(path, partitioning=None) for path in files]).sort_by("log_offset")


def read(
    log: SlicedLog, wanted: Wanted = EVERYTHING, *, first: int | None = None, until: int | None = None
) -> Any:
    log.refresh()
    slices = log.slices(
        log.begins_at if first is None else first, log.ends_at if until is None else until, wanted
    )
    batches = [batch for piece in slices for batch in piece.read(wanted)]
    schema = pa.schema([SCHEMA.field(name) for name in wanted.columns])
    return pa.Table.from_batches(batches, schema=schema)


def own(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows by offset without what they inherit."""
    found: list[dict[str, Any]] = table.drop_columns([*INHERITED]).sort_by("log_offset").to_pylist()
    return found


class _Controller(http.server.BaseHTTPRequestHandler):
    """As a controller of three: a status that names a follower, and the log in pages of a few frames."""

    lag: ClassVar[int] = 0
    status: ClassVar[int] = 200
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        code, body = self.status, b'{"error":"NOT_AUTHORIZED","message":"no","family":"Rejected"}'
        if code == 200 and url.path == "/v1/quorum":
            body = json.dumps(self._status()).encode()
        elif code == 200:
            query = dict(urllib.parse.parse_qsl(url.query))
            first, until = int(query["from"]), int(query["until"])
            steps = [s for s in HISTORY if s.batch.end_offset > first and s.batch.end_offset <= until]
            body = b"".join(step.frame for step in steps[:40])
        self.asked.append(self.headers["Host"])
        self.send_response(code)
        if code == 302:
            body, elsewhere = b"", self.headers["Host"].replace("127.0.0.1", "localhost")
            self.send_header("Location", f"http://{elsewhere}{self.path}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _status(self) -> dict[str, Any]:
        leader = f"http://{self.headers['Host']}".replace("localhost", "127.0.0.1")
        here = leader.replace("127.0.0.1", "localhost")
        return {
            "cluster_id": CLUSTER_ID,
            "log_start_offset": 0,
            "high_watermark": END,
            "voters": [
                {"http": leader, "role": "leader", "reachable": True},
                {"http": here, "role": "follower", "reachable": True},
                {"http": "http://127.0.0.1:1", "role": None, "reachable": False},
            ],
        }

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def controller() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Controller)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    _Controller.asked, _Controller.status = [], 200
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def logs(export: Path, segments: Path, controller: str) -> list[SlicedLog]:
    return [
        SegmentLog(segments, slice_bytes=1),
        ExportLog(export, slice_records=100),
        ControllerLog(controllers(controller), slice_records=397),
    ]


def test_every_source_has_the_rows_of_the_export(
    export: Path, segments: Path, controller: str, rows: pa.Table
) -> None:
    for log in logs(export, segments, controller):
        found = read(log)
        assert found.schema == SCHEMA and own(found) == own(rows), log.name
        assert (log.cluster_id, log.begins_at, log.ends_at) == (CLUSTER_ID, 0, END)
    assert read(ExportLog(export)).sort_by("log_offset").to_pylist() == rows.to_pylist()


def test_what_a_record_does_not_say_is_null_however_it_is_cut(segments: Path) -> None:
    whole = read(SegmentLog(segments))
    assert whole.to_pylist() == read(SegmentLog(segments, slice_bytes=1)).to_pylist()
    for row in whole.to_pylist():
        assert (row["controller_id"] is not None) == (row["type_name"] == "ControllerClaim")
        assert row["topic_seq"] is None


def test_two_parts_have_each_batch_once(export: Path, segments: Path, controller: str) -> None:
    """Goal: a stream neither skips nor repeats, wherever it is cut. Method: cuts within batches and between them."""
    rng, wanted = random.Random(12), Wanted(columns=("log_offset", "batch_base"))
    for log in logs(export, segments, controller):
        for cut in (1, END - 1, *(rng.randrange(END) for _ in range(3))):
            parts = [read(log, wanted, first=0, until=cut), read(log, wanted, first=cut, until=END)]
            assert all(base < cut for base in parts[0]["batch_base"].to_pylist())
            offsets = [offset for part in parts for offset in part["log_offset"].to_pylist()]
            assert sorted(offsets) == list(range(END))


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        (Wanted(offsets=Span(30, 61)), lambda row: 30 <= row["log_offset"] < 61),
        (Wanted(offsets=Span(END - 5)), lambda row: row["log_offset"] >= END - 5),
        (Wanted(epochs=Span(2, 3)), lambda row: row["controller_epoch"] == 2),
        (
            Wanted(types=frozenset({TYPE_NAMES["Topic"], TYPE_NAMES["Config"]})),
            lambda row: row["type_name"] in {"Topic", "Config"},
        ),
        (
            Wanted(times_ms=Span(HISTORY[90].batch.appended_at_ms, HISTORY[150].batch.appended_at_ms)),
            lambda row: (
                HISTORY[90].batch.appended_at_ms
                <= row["ts"].timestamp() * 1000
                < HISTORY[150].batch.appended_at_ms
            ),
        ),
        (Wanted(types=frozenset()), lambda _: False),
    ],
)
def test_bounds_are_exact(
    wanted: Wanted, where: Any, export: Path, segments: Path, controller: str, rows: pa.Table
) -> None:
    expected = [row["log_offset"] for row in rows.to_pylist() if where(row)]
    for log in logs(export, segments, controller):
        assert sorted(read(log, wanted)["log_offset"].to_pylist()) == expected, log.name


def test_the_index_leaves_slices_unread(tmp_path: Path) -> None:
    """Goal: what is not wanted is not read. Method: a log with indexes, as a controller closes its files."""
    written(HISTORY, tmp_path, files=8)
    SegmentedLog.open(tmp_path).close()
    assert len(list(tmp_path.glob("*.index"))) == 7
    log = SegmentLog(tmp_path)
    log.refresh()
    middle = HISTORY[150].batch
    for wanted in (
        Wanted(offsets=Span(middle.base_offset, middle.base_offset + 1)),
        Wanted(epochs=Span(HISTORY[-1].batch.controller_epoch)),
        Wanted(times_ms=Span(max(step.batch.appended_at_ms for step in HISTORY))),
    ):
        assert 1 <= len(log.slices(0, END, wanted)) < len(log.slices(0, END, Wanted())) == 8
    assert read(log, Wanted(offsets=Span(middle.base_offset, middle.base_offset + 1))).num_rows == 1


def test_few_columns_are_those_alone(export: Path, segments: Path, controller: str, rows: pa.Table) -> None:
    names = ("type_name", "log_offset")
    for log in logs(export, segments, controller):
        found = read(log, Wanted(columns=names)).sort_by("log_offset")
        assert found.to_pylist() == rows.select(names).to_pylist()


def test_a_log_that_grows_is_read_on_from_where_it_ended(tmp_path: Path, rows: pa.Table) -> None:
    """Goal: a writer does not disturb. Method: frames cut anywhere, files closed and begun between looks."""
    log, seen = SegmentLog(tmp_path), []
    offset = 0
    for count in (30, 60, 90, 150, 240):
        written(HISTORY[:count], tmp_path, files=1 + count // 60)
        last = max(tmp_path.glob("*.log"))
        if count < len(HISTORY):
            with last.open("ab") as file:
                file.write(HISTORY[count].frame[: 20 + count // 10])
        log.refresh()
        assert log.ends_at == HISTORY[count - 1].batch.end_offset
        seen.append(read(log, first=offset))
        offset = log.ends_at
        for path in tmp_path.glob("*.log"):
            path.unlink()
        log = SegmentLog(tmp_path)
    assert own(pa.concat_tables(seen)) == own(rows)


@pytest.mark.parametrize("known", [3, 20, 60])
def test_a_frame_whose_writer_goes_on_while_it_is_read_is_no_tear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    """Method: a part of a frame is read; its rest and the frames behind it are written before anybody looks again."""
    written(HISTORY[:10], tmp_path, files=1)
    (path,) = tmp_path.glob("*.log")
    path.write_bytes(path.read_bytes() + HISTORY[10].frame[:known])
    rest = HISTORY[10].frame[known:] + b"".join(step.frame for step in HISTORY[11:20])
    check_frame = codec.check_frame

    def writing(data: bytes, at: int = 0) -> FrameHeader:
        nonlocal rest
        try:
            return check_frame(data, at)
        except DamagedFrame:
            with path.open("ab") as file:
                file.write(rest)
            rest = b""
            raise

    monkeypatch.setattr(segment_file, "check_frame", writing)
    log = SegmentLog(tmp_path)
    log.refresh()
    assert log.ends_at == HISTORY[19].batch.end_offset
    assert not rest


# --- damage


def damaged(tmp_path: Path) -> tuple[Path, int, Step]:
    """Return a folder whose second file has one wrong byte, and the byte and the batch where."""
    written(HISTORY, tmp_path)
    path = sorted(tmp_path.glob("*.log"))[1]
    steps = [step for step in HISTORY if step.batch.base_offset >= int(path.stem)]
    at = sum(len(step.frame) for step in steps[:5])
    data = bytearray(path.read_bytes())
    data[at + 45] ^= 1
    path.write_bytes(data)
    return path, at, steps[5]


@pytest.mark.parametrize("is_indexed", [False, True])
def test_damage_is_named_or_reported_as_missing(
    is_indexed: bool, tmp_path: Path, rows: pa.Table, caplog: pytest.LogCaptureFixture
) -> None:
    if is_indexed:
        SegmentedLog.open(written(HISTORY, tmp_path)).close()
    path, at, step = damaged(tmp_path)
    where = f"the damage begins at offset {step.batch.base_offset}; --skip-damaged"
    with pytest.raises(DamagedFile, match=rf"{path}: byte {at}: a frame's crc.*: {where}"):
        read(SegmentLog(tmp_path))
    with caplog.at_level(logging.WARNING):
        found = read(SegmentLog(tmp_path, skips_damaged=True))
    missing = [row for row in found.to_pylist() if row["type_name"] == "Missing"]
    ((first, last, about),) = [
        (row["log_offset"], row["batch_last_offset"], json.loads(row["cause_detail"])) for row in missing
    ]
    assert (first, last) == (step.batch.base_offset, step.batch.last_offset)
    assert (about["source"], about["byte"]) == (str(path), at) and "crc" in about["reason"]
    assert f"{path}: byte {at}" in caplog.text and f"the offsets {first}-{last} are missing" in caplog.text
    sound = found.filter(pa.compute.greater_equal(found["type"], 0))
    assert own(sound) == [row for row in own(rows) if not first <= row["log_offset"] <= last]


def test_a_file_that_is_missing_is_reported(tmp_path: Path, rows: pa.Table) -> None:
    written(HISTORY, tmp_path)
    first_file, gone, following, _ = sorted(tmp_path.glob("*.log"))
    gone.unlink()
    where = f"a file between {first_file} and {following}, or the end of the first, is gone"
    gap = f"the offsets {int(gone.stem)}-{int(following.stem) - 1} are missing: {where}"
    with pytest.raises(DamagedFile, match=f"{gap}: copy that file from"):
        read(SegmentLog(tmp_path))
    with pytest.raises(DamagedFile, match=gap):
        export_directory(tmp_path, tmp_path / "to")
    export_directory(tmp_path, tmp_path / "before", until=int(gone.stem))
    with pytest.raises(DamagedFile, match=gap):
        export_directory(tmp_path, tmp_path / "before")
    _, lines = export_whole_part(tmp_path, tmp_path / "whole")
    assert lines[0] == gap
    found = read(SegmentLog(tmp_path, skips_damaged=True))
    ((first, last, reason),) = [
        (row["log_offset"], row["batch_last_offset"], json.loads(row["cause_detail"])["reason"])
        for row in found.to_pylist()
        if row["type_name"] == "Missing"
    ]
    assert (first, last + 1, reason) == (int(gone.stem), int(following.stem), where)
    assert found.num_rows == END - (last + 1 - first) + 1


def test_damage_at_the_beginning_and_the_end_of_a_file_is_reported(tmp_path: Path) -> None:
    written(HISTORY, tmp_path)
    _, path, following, _ = sorted(tmp_path.glob("*.log"))
    steps = [s for s in HISTORY if int(path.stem) <= s.batch.base_offset < int(following.stem)]
    data = bytearray(path.read_bytes())
    data[45] ^= 1
    data[-1] ^= 1
    path.write_bytes(data)
    found = read(SegmentLog(tmp_path, skips_damaged=True))
    missing = [row["log_offset"] for row in found.to_pylist() if row["type_name"] == "Missing"]
    assert missing == [steps[0].batch.base_offset, steps[-1].batch.base_offset]


# --- controllers


def test_a_follower_is_asked_before_the_leader(controller: str) -> None:
    read(ControllerLog(controllers(controller)))
    port = controller.rpartition(":")[2]
    assert _Controller.asked[0] == f"127.0.0.1:{port}", "the one that was named tells who is who"
    assert set(_Controller.asked[1:]) == {f"localhost:{port}"}
    _Controller.asked = []
    read(ControllerLog(controllers(controller), asks_followers=False))
    assert set(_Controller.asked) == {f"127.0.0.1:{port}"}


def test_another_controller_answers_where_one_does_not(controller: str, rows: pa.Table) -> None:
    assert own(read(ControllerLog(controllers(f"http://127.0.0.1:1,{controller}")))) == own(rows)


def test_who_may_not_read_is_told_what_to_show(controller: str) -> None:
    _Controller.status = 403
    with pytest.raises(NotAuthorized, match="token_file, or cert and key"):
        read(ControllerLog(controllers(controller)))


def test_a_redirect_is_not_followed_since_the_token_would_go_along(controller: str, tmp_path: Path) -> None:
    _Controller.status = 302
    (tmp_path / "token").write_text("t" * 43)
    (tmp_path / "token").chmod(0o600)
    client = controllers(controller, Shown(token_file=tmp_path / "token", insecure=True))
    with pytest.raises(BrokerNotAvailable, match="answered 302: name a controller's HTTP endpoint"):
        client.body("/v1/quorum", patience_s=0)
    assert _Controller.asked == [controller.removeprefix("http://")]


def test_a_token_goes_where_it_was_given_and_never_in_the_clear(
    controller: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("t" * 43)
    (tmp_path / "token").chmod(0o600)
    shown = Shown(token_file=tmp_path / "token")
    with pytest.raises(BrokerNotAvailable, match="a token goes to https:// addresses alone"):
        controllers(controller, shown).body("/v1/quorum", patience_s=0)
    assert _Controller.asked == []
    status = {"voters": [{"http": "https://two:1", "role": "follower", "reachable": True}]}
    monkeypatch.setattr(ControllerClient, "json", lambda *_, **__: status)
    assert controllers("https://one:1", shown).followers_first().urls == ("https://one:1",)
    proven = replace(shown, ca=tmp_path / "ca.crt")
    assert controllers("https://one:1", proven).followers_first().urls == ("https://two:1", "https://one:1")


def test_an_answer_without_end_is_read_up_to_a_bound(
    controller: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_client, "ANSWER_BYTES_MAX", 1)
    with pytest.raises(BrokerNotAvailable, match="answered with more than 1 bytes"):
        controllers(controller).body("/v1/quorum", patience_s=0)


def test_followers_are_asked_at_addresses_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = (
        "https://two:1",
        "http://three:1",
        "file:///etc/passwd",
        "https://name@four:1",
        "https://five:1/v1",
    )
    status = {"voters": [{"http": url, "role": "follower", "reachable": True} for url in told]}
    monkeypatch.setattr(ControllerClient, "json", lambda *_, **__: status)
    asked = ("https://two:1", "http://three:1", "https://one:1")
    assert controllers("https://one:1").followers_first().urls == asked


def test_the_follower_that_answers_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none leads, it does not know for 3 s that the others are frozen."""
    roles = {1: "follower", 2: "leader", 3: "follower", 4: "follower"}
    voters = [
        {
            "id": node,
            "http": f"http://{node}:1",
            "role": role,
            "reachable": True,
            "silent_ms": 3_000 if node == 4 else None,
        }
        for node, role in roles.items()
    ]
    monkeypatch.setattr(ControllerClient, "json", lambda *_, **__: {"voters": voters, "node_id": 3})
    urls = controllers("http://9:1").followers_first().urls
    assert urls == ("http://3:1", "http://1:1", "http://2:1", "http://9:1")


def test_with_an_authority_nothing_is_sent_in_the_clear(controller: str) -> None:
    client = controllers(controller, Shown(ca=Path("ca.crt")))
    with pytest.raises(BrokerNotAvailable, match="name https:// addresses alone"):
        client.body("/v1/quorum", patience_s=0)
    assert _Controller.asked == []


def test_nobody_at_the_url_is_one_line() -> None:
    with pytest.raises(BrokerNotAvailable, match="no controller answers there"):
        controllers("http://127.0.0.1:1").body("/v1/quorum", patience_s=0)


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    for log in (SegmentLog(tmp_path), SegmentLog(tmp_path / "none")):
        with pytest.raises(InvalidRequest, match="holds no log"):
            log.refresh()
    with pytest.raises(InvalidRequest, match="metaquorum log export --to"):
        ExportLog(tmp_path).refresh()


def test_an_export_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    export_log(frames_of(HISTORY[:50]), tmp_path, cluster_id=CLUSTER_ID)
    (file,) = tmp_path.glob("records/*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamagedFile, match="SHA-256"):
        read(ExportLog(tmp_path))
