"""Edge: what a controller, a manifest or a folder of others names is a value before it touches a disk or an engine."""

import http.server
import json
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from metadata_log import replay
from metadata_log.errors import BrokerNotAvailable, DamagedFile, InvalidRequest, MetadataError
from metadata_log.node.disk.durable_files import crc_of_json
from metadata_log.replay.engines import DuckDb
from metadata_log.replay.export import export_log
from metadata_log.replay.live_log import LiveLog
from metadata_log.replay.tables import lake_directory, open_export
from metadata_log.wire.answers import cluster_name, log_status, offered_snapshots
from ops.admin.client import ClusterClient
from ops.admin.exchange import Unreachable
from ops.admin.export import export_cluster
from ops.admin.live_state import live_image
from snapshots.snapshot_file import position_of
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, history_of

HISTORY = [*history_of(7, 30)]
OUTSIDE = ("../../evil", "/etc/passwd", "a/b", "..", "", "x'y", "a\n", "a" * 200, "*", "a\x00b", "é")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("of-all") / "export"
    export_log(frames_of(HISTORY), directory, cluster_id=CLUSTER_ID)
    return directory


@pytest.fixture
def export(exported: Path, tmp_path: Path) -> Path:
    """Return an export that a test may change."""
    return Path(shutil.copytree(exported, tmp_path / "export"))


@contextmanager
def saying(answers: dict[str, Any]) -> Iterator[str]:
    """Run what answers each path with JSON, as any program at an address may."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers.get(self.path.partition("?")[0])).encode()
            self.send_response(200)
            self.send_header("X-High-Watermark", "9")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()


def status(**different: Any) -> dict[str, Any]:
    return {
        "cluster_id": CLUSTER_ID,
        "log_start_offset": 5,
        "high_watermark": 9,
        "node_id": 1,
        "leader_id": 1,
        "voters": [],
        "observers": [],
    } | different


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_from_outside_are_no_folders_and_no_sql(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no id of a cluster"):
        cluster_name(name)
    with pytest.raises(InvalidRequest):
        lake_directory(tmp_path, name)
    with pytest.raises(InvalidRequest):
        export_log(frames_of(HISTORY), tmp_path / "export", cluster_id=name)
    assert not (tmp_path / "export").exists()
    for snapshot_id in (name, f"{0:020d}-{1:010d}{name or '/'}", "0" * 19 + "٣-" + "0" * 10):
        with pytest.raises(ValueError, match="not the id"):
            position_of(snapshot_id)
        with pytest.raises(ValueError, match="id"):
            offered_snapshots({"items": [{"id": snapshot_id, "end_offset": 9}]})
    assert cluster_name(CLUSTER_ID) == CLUSTER_ID and cluster_name("MkU3OEVBNTcwNTJENDM2Qg")


@pytest.mark.parametrize("name", ["../../../evil", "00000000000000000009-0000000001/../../evil"])
@pytest.mark.parametrize("reading", ["replay", "export", "state"])
def test_an_id_of_a_snapshot_writes_nothing_outside(tmp_path: Path, name: str, reading: str) -> None:
    """Goal: nobody who answers chooses a path. Method: a server whose snapshot has such an id, and every reader of it."""
    answers = {
        "/v1/quorum": status(),
        "/v1/brokers": {"items": []},
        "/v1/snapshots": {"items": [{"id": name, "end_offset": 9}]},
        f"/v1/metadata/snapshots/{name}": {"evil": True},
    }
    with saying(answers) as url:
        client = ClusterClient((url,), timeout_s=5, rng=random.Random(1))
        ask: dict[str, Callable[[], object]] = {
            "replay": lambda: LiveLog(url).export(tmp_path / "to"),
            "export": lambda: export_cluster(client, to=tmp_path / "to"),
            "state": lambda: live_image(client),
        }
        with pytest.raises((BrokerNotAvailable, Unreachable), match="items"):
            ask[reading]()


@pytest.mark.parametrize(
    "different", [{"cluster_id": "../../evil"}, {"log_start_offset": "0 OR 1"}, {"high_watermark": -1}]
)
def test_what_a_status_says_is_checked_before_it_names_a_folder(
    tmp_path: Path, different: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"cluster|offset|watermark"):
        log_status(status(**different))
    lake = tmp_path / "lake" / "inner"
    with saying({"/v1/quorum": status(**different), "/v1/brokers": {"items": []}}) as url:
        client = ClusterClient((url,), timeout_s=0.3, rng=random.Random(1))
        with pytest.raises(MetadataError):
            export_cluster(client, to=lake, in_lake=True)
        with pytest.raises(MetadataError):
            LiveLog(url).export(lake)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def _rewritten(export: Path, change: Callable[[dict[str, Any]], None]) -> None:
    fields = json.loads((export / "manifest.json").read_bytes())
    fields.pop("crc32c")
    change(fields)
    (export / "manifest.json").write_text(json.dumps(fields | {"crc32c": crc_of_json(fields)}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields["files"][0].update(path="../../secret.parquet"),
        lambda fields: fields["files"][0].update(path="/etc/passwd"),
        lambda fields: fields["files"][0].update(path="records/../../x.parquet"),
        lambda fields: fields["files"][0].update(path="records/seg=*.parquet"),
        lambda fields: fields["files"][0].update(last_offset="9 OR 1=1"),
        lambda fields: fields.update(cluster_id="x' AS cluster, * FROM read_text('/etc/passwd') --"),
        lambda fields: fields.update(end_offset="0 OR true"),
        lambda fields: fields.update(superseded=[{"path": "../x", "bytes": 1, "superseded_at_ms": 0}]),
        lambda fields: fields.update(log_format="../x"),
    ],
)
def test_a_manifest_of_others_names_nothing_outside_of_its_export(
    export: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    _rewritten(export, change)
    for reading in (lambda: open_export(export), lambda: replay.open(export)):
        with pytest.raises(DamagedFile, match="no manifest of an export"):
            reading()


def test_a_lake_with_a_folder_of_another_name_is_refused(export: Path, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    export.rename(tmp_path / "lake" / "cluster=*")
    with pytest.raises(InvalidRequest, match="no id of a cluster"):
        replay.lake(tmp_path / "lake")


def test_a_query_reads_and_writes_no_file_beside_the_export(export: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    log = replay.open(export)
    assert log.sql("SELECT count(*) FROM records").fetchall() == [(HISTORY[-1].batch.end_offset,)]
    for query in (
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM '{secret}'",
        f"SELECT * FROM read_text('{export}/../secret.csv')",
        f"SELECT * FROM glob('{tmp_path}/*')",
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        f"ATTACH '{tmp_path}/other.db'",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "INSTALL httpfs",
    ):
        with pytest.raises(InvalidRequest):
            log.sql(query).fetchall()
    assert not (tmp_path / "out.csv").exists()
    # Tables that no query named before, and other views of the same log, are read all the same.
    assert log.table("controller_takeovers").fetchall()
    assert log.between(3).sql("SELECT min(log_offset) FROM records").fetchall()


@pytest.mark.slow
def test_an_engine_that_ran_a_query_opens_further_logs(export: Path, tmp_path: Path) -> None:
    engine = DuckDb(is_quick=True)
    first = replay.open(export, engine)
    count = first.sql("SELECT count(*) FROM records").fetchall()
    export_log(frames_of(HISTORY), tmp_path / "another", cluster_id=CLUSTER_ID)
    assert replay.open(tmp_path / "another", engine).sql("SELECT count(*) FROM records").fetchall() == count
    assert engine.apart() is not engine
