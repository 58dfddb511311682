"""Logs on other file systems are read as those beside us, and what is no log for slices is refused with the cure."""

import pickle
import urllib.parse
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest

from metadata_log.errors import DamagedFile, DiskFailed, InvalidRequest
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.replay.export import export_log
from metadata_log.replay.slices import stored
from metadata_log.replay.slices.opened import sliced_log
from metadata_log.replay.slices.wanted import Wanted
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, history_of
from tests.support.kafka_log import unpacked

pytestmark = pytest.mark.slow

HISTORY = [*history_of(11, 120)]
END = HISTORY[-1].batch.end_offset


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a data directory, an export, and a lake of two clusters."""
    root = tmp_path_factory.mktemp("stores") / "logs"
    log = root / "data" / "log"
    log.mkdir(parents=True)
    for first in (0, 40, 80):
        part = HISTORY[first : first + 40]
        (log / f"{part[0].batch.base_offset:020d}.log").write_bytes(b"".join(step.frame for step in part))
    SegmentedLog.open(log).close()
    export_log(frames_of(HISTORY), root / "export", cluster_id=CLUSTER_ID)
    for cluster in ("one", "two"):
        export_log(frames_of(HISTORY[:9]), root / "lake" / f"cluster={cluster}", cluster_id=CLUSTER_ID)
    return root


def serve(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let s3://logs be a folder of that name; `python -m tests.spark_cluster` asks a server instead."""
    opened = stored._opened
    stores = pa.fs.SubTreeFileSystem(str(bucket.parent), pa.fs.LocalFileSystem())

    def found(uri: str) -> tuple[Any, str]:
        named = urllib.parse.urlsplit(uri)
        if named.scheme != "s3":
            return opened(uri)
        if named.netloc != "logs":
            raise OSError(f"AWS Error ACCESS_DENIED for bucket '{named.hostname}'.\nHTTP status 403")
        return stores, named.netloc + named.path

    monkeypatch.setattr(stored, "_opened", found)


def rows(of: str) -> list[dict[str, Any]]:
    """Return the rows of slices that were sent to whoever reads them."""
    log = sliced_log(of)
    log.refresh()
    slices = pickle.loads(pickle.dumps(log.slices(log.begins_at, log.ends_at, Wanted())))
    found = [row for piece in slices for batch in piece.read(Wanted()) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["log_offset"])


@pytest.mark.parametrize("folder", ["data", "data/log", "export"])
def test_an_object_store_and_a_file_uri_have_the_rows_of_the_path(
    bucket: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    serve(bucket, monkeypatch)
    expected = rows(f"{bucket}/{folder}")
    assert len(expected) == END
    for uri in (
        f"s3a://logs/{folder}?region=us-east-1",
        f"file:{bucket}/{folder}",
        f"file://{bucket}/{folder}/",
    ):
        assert rows(uri) == expected


def test_damage_on_a_store_is_named_there(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = min(bucket.glob("data/log/*.log"))
    data = bytearray(first.read_bytes())
    at = len(HISTORY[0].frame)
    data[at + 45] ^= 1
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / first.name).write_bytes(data)
    serve(tmp_path / "logs", monkeypatch)
    with pytest.raises(DamagedFile, match=f"^s3://logs/{first.name}: byte {at}: a frame's crc"):
        rows("s3a://logs")


def test_what_cannot_be_opened_is_one_line_with_the_cure(
    bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(bucket, monkeypatch)
    for of, error, message in (
        ("s3a://me:secret@theirs/log?x=y", DiskFailed, "^s3://theirs/log: AWS .*': see AWS_ACCESS_KEY_ID"),
        ("hdfs://me:secret@127.0.0.1:1/log", DiskFailed, r"^hdfs://127.0.0.1:1/log: .*CLASSPATH=\$\(hadoop"),
        ("ftp://there/log", InvalidRequest, "^ftp://there/log: .*: name a local path, or one of hdfs"),
        ("file://there/log", InvalidRequest, "as file:///PATH"),
        ("s3a://logs/none", InvalidRequest, "^s3://logs/none holds no log"),
    ):
        with pytest.raises(error, match=message) as caught:
            sliced_log(of).refresh()
        assert "\n" not in str(caught.value)


def test_a_lake_is_read_where_it_has_one_cluster(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(bucket, monkeypatch)
    for lake in (f"{bucket}/lake", "s3a://logs/lake"):
        with pytest.raises(InvalidRequest, match=r"2 clusters: load one of .*lake/cluster=one"):
            sliced_log(lake)
    (tmp_path / "cluster=one").symlink_to(bucket / "lake" / "cluster=one")
    assert rows(str(tmp_path)) == rows(f"{bucket}/lake/cluster=one")


def test_the_log_of_kafka_is_to_be_exported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = next(unpacked(tmp_path / "logs").rglob("__cluster_metadata-0"))
    serve(tmp_path / "logs", monkeypatch)
    for of in (str(kafka), str(kafka.parent), f"s3a://logs/{kafka.relative_to(tmp_path / 'logs')}"):
        with pytest.raises(InvalidRequest, match=r"metaquorum log export .* --format kafka --to EXPORT"):
            sliced_log(of)
