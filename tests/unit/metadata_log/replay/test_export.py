"""The export equals the log, for any log, and wherever the export began, stopped and continued."""

import errno
import hashlib
import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metadata_log.digest import digest
from metadata_log.errors import (
    DamagedFile,
    DiskFailed,
    InconsistentClusterId,
    InvalidRequest,
    InvariantBroken,
    OffsetCompacted,
    OffsetInFuture,
    PositionOutOfRange,
    WrittenByAnotherVersion,
)
from metadata_log.ids import TopicId
from metadata_log.records.topics import TopicRecord
from metadata_log.replay.catalog import FAMILIES
from metadata_log.replay.columns import Columns, by_name, records_of
from metadata_log.replay.digest import state_digest
from metadata_log.replay.export import export_log
from metadata_log.replay.tables import open_export
from tests.support.exports import frames_of, image_at
from tests.support.histories import CLUSTER_ID, PASSPHRASE, history_of, random_history, small_uuid

pytestmark = pytest.mark.slow


def test_the_exported_rows_add_up_to_the_image_at_any_offset(tmp_path: Path) -> None:
    """Goal: SQL and fold agree with `apply` everywhere. Method: a random history, exported whole; the digests of both
    at the end, at the beginning and at random offsets, inside batches too.
    """
    rng = random.Random(0)
    history = random_history(rng, 120)
    end_offset = history[-1].batch.end_offset
    manifest = export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    assert (manifest["first_offset"], manifest["end_offset"]) == (0, end_offset)
    assert manifest["digest"] == digest(history[-1].image)
    for at in (None, 0, *(rng.randrange(end_offset) for _ in range(5))):
        image = image_at(history, end_offset if at is None else at)
        for engine in ("duckdb", "fold"):
            assert state_digest(tmp_path, at=at, engine=engine) == {
                "end_offset": image.end_offset,
                "digest": digest(image),
                "engine": engine,
            }


def test_an_export_in_parts_is_the_export_in_one(tmp_path: Path) -> None:
    """Goal: going on from a manifest changes nothing. Method: one history in one run, and in four; all records, derived
    changes and digests are the same.
    """
    rng = random.Random(1)
    history = random_history(rng, 120)
    end_offset = history[-1].batch.end_offset
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    export_log(frames_of(history), whole, cluster_id=CLUSTER_ID)
    for until in sorted(rng.randrange(1, end_offset) for _ in range(3)):
        cut = image_at(history, until).end_offset
        if cut:
            manifest = export_log(frames_of(history), parts, cluster_id=CLUSTER_ID, until=until)
            assert (manifest["end_offset"], manifest["digest"]) == (cut, digest(image_at(history, cut)))
    export_log(frames_of(history), parts, cluster_id=CLUSTER_ID)
    for family in FAMILIES:
        in_parts = [pq.read_table(path) for path in open_export(parts).paths(family)]
        in_one = [pq.read_table(path) for path in open_export(whole).paths(family)]
        assert _rows(in_parts) == _rows(in_one)
    at = rng.randrange(end_offset)
    for engine in ("duckdb", "fold"):
        assert state_digest(parts, at=at, engine=engine)["digest"] == digest(image_at(history, at))


def test_an_export_may_begin_at_a_snapshot(tmp_path: Path) -> None:
    """Goal: a log whose beginning is gone can be exported. Method: begin at a random offset with an image at or before
    it, go on in a second run, and compare digests there and later.
    """
    rng = random.Random(2)
    history = random_history(rng, 120)
    end_offset = history[-1].batch.end_offset
    first = rng.randrange(end_offset // 4, end_offset // 2)
    snapshot = image_at(history, rng.randrange(first))
    until = rng.randrange(end_offset // 2 + 20, end_offset)
    manifest = export_log(
        frames_of(history), tmp_path, cluster_id=CLUSTER_ID, from_offset=first, until=until, snapshot=snapshot
    )
    assert manifest["first_offset"] == image_at(history, first).end_offset
    export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    for at in (manifest["first_offset"], until, rng.randrange(first, end_offset), end_offset):
        for engine in ("duckdb", "fold"):
            assert state_digest(tmp_path, at=at, engine=engine)["digest"] == digest(image_at(history, at))
    with pytest.raises(OffsetCompacted):
        state_digest(tmp_path, at=manifest["first_offset"] - 1, engine="duckdb")


def test_a_column_that_an_older_release_did_not_write_gives_the_fields_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TopicRecord, "_field_defaults", {"name": "unnamed"})
    topics = [TopicRecord(TopicId(small_uuid(number)), f"t{number}") for number in range(3)]
    whole = Columns().snapshot_table(topics, time_ms=0)
    assert [record for _, record in records_of(whole)] == topics
    older = whole.drop_columns(["topic_name"])
    for table in (older, by_name(older)):
        assert [record for _, record in records_of(table)] == [one._replace(name="unnamed") for one in topics]


def test_columns_are_matched_by_name(tmp_path: Path) -> None:
    """Goal: exports of older and newer releases are read and continued. Method: an export's files rewritten without
    `cause_detail` and with a column of no release; digests, and an export that goes on behind it.
    """
    history = [*history_of(3, 120)]
    middle = image_at(history, history[-1].batch.end_offset // 2).end_offset
    export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID, until=middle)
    fields = json.loads((tmp_path / "manifest.json").read_bytes())
    for file in fields["files"]:
        path = tmp_path / file["path"]
        table = pq.read_table(path, partitioning=None)
        older = table.drop_columns([name for name in ("cause_detail",) if name in table.column_names])
        pq.write_table(older.add_column(0, "unknown", pa.array(["x"] * len(older), pa.string())), path)
        content = path.read_bytes()
        file |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    del fields["crc32c"]
    (tmp_path / "manifest.json").write_text(json.dumps(fields))
    for end_offset in (middle, history[-1].batch.end_offset):
        for engine in ("duckdb", "fold"):
            assert state_digest(tmp_path, engine=engine)["digest"] == digest(image_at(history, end_offset))
        export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)


def _rows(tables: list[pa.Table]) -> list[dict[str, Any]]:
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row["log_offset"], row["partition"] if row.get("pkey") else 0))


def test_files_are_immutable_and_leftovers_of_a_dead_run_go(tmp_path: Path) -> None:
    history = [*history_of(1, 60)]
    middle = history[30].batch.end_offset
    first = export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID, until=middle)
    leftover = tmp_path / "records" / f"seg={middle:020d}.parquet"
    leftover.write_bytes(b"half a file")
    foreign = tmp_path / "records" / "notes.parquet"
    foreign.write_bytes(b"not ours")
    second = export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    assert second["files"][: len(first["files"])] == first["files"]
    assert pq.read_table(leftover).num_rows == second["end_offset"] - middle
    assert foreign.exists()
    assert second == export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID), (
        "nothing new: nothing written"
    )
    assert json.loads((tmp_path / "manifest.json").read_bytes()) == second


def test_a_file_whose_sync_failed_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another sync of the same file would succeed, and write nothing of what the kernel counts as clean by then."""
    history = [*history_of(1, 20)]
    refused: list[int] = []

    def refuse(descriptor: int) -> None:
        if not refused:
            refused.append(os.dup(descriptor))  # held, so that its number is not given to another file
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("metadata_log.replay.export_writer.os.fsync", refuse)
    with pytest.raises(DiskFailed, match="Input/output error"):
        export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    assert not (tmp_path / "manifest.json").exists()
    manifest = export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    named = {(tmp_path / file["path"]).stat().st_ino for file in manifest["files"]}
    assert os.fstat(refused[0]).st_ino not in named
    os.close(refused[0])


def test_secrets_are_not_exported(tmp_path: Path) -> None:
    """C18: Goal: no exported byte holds a sensitive value. Method: random histories set some; look for them in the rows.

    A name that only a later release holds for a secret's has its value in the rows that an older one wrote without a key.
    """
    history = [*history_of(1, 300)]
    export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    seen: set[str] = set()
    passphrases: set[str] = set()
    for path in (*open_export(tmp_path).paths("records"), *open_export(tmp_path).paths("snapshots")):
        for row in pq.read_table(path).to_pylist():
            if row["config_value"] is not None and row["config_name"].endswith("password"):
                seen.add(re.sub("[0-9a-f]{64}$", "", row["config_value"]))
            if row["config_name"] == PASSPHRASE and row["config_value"] is not None:
                passphrases.add(re.sub("[0-9a-f]{64}$", "", row["config_value"]))
    assert seen == {"sha256:", "hmac-sha256:"}, "the history sets passwords with and without a key"
    assert {"hmac-sha256:"} < passphrases <= {"hmac-sha256:", "1", "a long värde", ""}, (
        "without a key: the plain text"
    )


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_each_file_of_an_export_has_the_mode_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    """Goal: whoever may read the rows may read the manifest. Method: two runs, over a part that an earlier one left."""
    history = [*history_of(3, 20)]
    (tmp_path / "manifest.json.part").touch(mode=0o600)
    before = os.umask(umask)
    try:
        for at in (history[10].batch.end_offset, None):
            export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID, until=at)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert "manifest.json" in modes
    assert set(modes.values()) == {mode}, modes


def test_another_cluster_another_history_and_a_gap_are_refused(tmp_path: Path) -> None:
    history = [*history_of(3, 60)]
    other = [*history_of(4, 60)]
    middle = history[30].batch.end_offset
    before = export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID, until=middle)
    with pytest.raises(InconsistentClusterId):
        export_log(frames_of(history), tmp_path, cluster_id="B" * 22)
    with pytest.raises(InvariantBroken):
        export_log(
            lambda offset, until: iter([next(frames_of(other)(offset, until))]),
            tmp_path,
            cluster_id=CLUSTER_ID,
        )
    with pytest.raises(PositionOutOfRange):
        export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID, from_offset=middle + 1)
    with pytest.raises(OffsetCompacted):
        export_log(frames_of(history[40:]), tmp_path, cluster_id=CLUSTER_ID)
    assert json.loads((tmp_path / "manifest.json").read_bytes()) == before


def test_an_export_that_is_none_or_damaged_is_named(tmp_path: Path) -> None:
    history = [*history_of(5, 30)]
    with pytest.raises(InvalidRequest, match="holds no export"):
        state_digest(tmp_path, engine="duckdb")
    with pytest.raises(InvalidRequest, match="nothing to export"):
        export_log(frames_of([]), tmp_path, cluster_id=CLUSTER_ID)
    export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    with pytest.raises(OffsetInFuture):
        state_digest(tmp_path, at=history[-1].batch.end_offset + 1, engine="duckdb")
    records = open_export(tmp_path).paths("records")[0]
    whole = records.read_bytes()
    records.write_bytes(whole[:-1])
    with pytest.raises(DamagedFile, match="bytes"):
        state_digest(tmp_path, engine="duckdb")
    records.write_bytes(_turned(whole, len(whole) // 2))
    with pytest.raises(
        DamagedFile, match=r"seg=0+\.parquet: its SHA-256 is not the manifest's: export again to another"
    ):
        state_digest(tmp_path, engine="duckdb")
    records.write_bytes(whole)
    manifest = (tmp_path / "manifest.json").read_bytes()
    last_digit = manifest.index(b",", manifest.index(b'"end_offset": ')) - 1
    (tmp_path / "manifest.json").write_bytes(_turned(manifest, last_digit))
    with pytest.raises(DamagedFile, match="its checksum is wrong"):
        state_digest(tmp_path, engine="duckdb")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(DamagedFile, match="manifest"):
        state_digest(tmp_path, engine="duckdb")
    newer = json.dumps({"format_version": 2, "parts": [], "crc32c": "00000000"})
    (tmp_path / "manifest.json").write_text(newer)
    with pytest.raises(WrittenByAnotherVersion, match="a newer release wrote it; nothing is damaged"):
        open_export(tmp_path)
    with pytest.raises(WrittenByAnotherVersion, match="use that release, or a newer one"):
        export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    assert (tmp_path / "manifest.json").read_text() == newer
    for content in (newer.replace("2", "0"), "[]", '{"name": "an app"}'):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(DamagedFile, match=r"no manifest of an export: .* keep this one until"):
            open_export(tmp_path)


def _turned(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_nothing_is_added_to_an_export_whose_end_is_damaged(tmp_path: Path) -> None:
    """Goal: what a later run writes rests on the state that was exported, not on what its bytes have become."""
    history = [*history_of(6, 60)]
    export_log(frames_of(history[:30]), tmp_path, cluster_id=CLUSTER_ID)
    state = open_export(tmp_path).snapshot(history[29].batch.end_offset)
    assert state is not None
    whole = state.read_bytes()
    manifest = (tmp_path / "manifest.json").read_bytes()
    for at in range(8, len(whole) - 8, len(whole) // 20):
        state.write_bytes(_turned(whole, at))
        with pytest.raises(DamagedFile, match="SHA-256"):
            export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    assert (tmp_path / "manifest.json").read_bytes() == manifest


def test_an_export_of_the_whole_log_is_left_unread(tmp_path: Path) -> None:
    """Goal: a silent log that is followed costs no read of a large state. Method: a state that would be refused if read."""
    history = [*history_of(7, 60)]
    manifest = export_log(frames_of(history[:30]), tmp_path, cluster_id=CLUSTER_ID)
    state = open_export(tmp_path).snapshot(history[29].batch.end_offset)
    assert state is not None
    whole = state.read_bytes()
    state.write_bytes(_turned(whole, len(whole) // 2))
    for frames, until in ((frames_of(history[:30]), None), (frames_of(history), manifest["end_offset"])):
        assert export_log(frames, tmp_path, cluster_id=CLUSTER_ID, until=until) == manifest
    with pytest.raises(DamagedFile, match="SHA-256"):
        export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    state.write_bytes(whole)
    assert export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)["digest"] == digest(
        history[-1].image
    )
