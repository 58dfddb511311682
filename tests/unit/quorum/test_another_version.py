"""A file of another version is refused by a named error; it is not cut, quarantined or reported as damaged."""

import json
import random
import struct
from pathlib import Path

import google_crc32c
import msgpack
import pytest

from metadata_log.codec import read_header
from metadata_log.errors import DamagedFile, ForeignDirectory, UnknownFormat, WrittenByAnotherVersion
from metadata_log.ids import NodeId, Uuid
from metadata_log.log.recovery import verify
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.disk.data_directory import format_directory, load_meta
from metadata_log.node.disk.durable_files import crc_of_json
from ops import cli
from quorum.raft.journal.journal import Journal
from quorum.raft.journal.os_disk import OsDisk
from quorum.raft.pointer import Pointer
from snapshots.snapshot_file import write_snapshot
from snapshots.store import SnapshotStore
from tests.support.histories import A_TYPE_UNKNOWN_HERE, Step, frame_behind, history_of, of_format_2

SAYS = "another version of metaquorum wrote it; nothing is damaged"


@pytest.fixture
def history() -> list[Step]:
    return [*history_of(5, 20)]


def test_a_meta_json(tmp_path: Path) -> None:
    format_directory(tmp_path, role="broker", node_id=NodeId(11), cluster_id="A" * 22, rng=random.Random(1))
    file = tmp_path / "meta.json"
    fields = json.loads(file.read_bytes()) | {"version": 2, "new": "field"}
    del fields["crc32c"]
    file.write_text(json.dumps(fields | {"crc32c": crc_of_json(fields)}))
    with pytest.raises(WrittenByAnotherVersion, match=rf"meta\.json: version 2 is unknown.*{SAYS}"):
        load_meta(tmp_path)
    file.write_text(json.dumps(fields | {"crc32c": "00000000"}))
    with pytest.raises(ForeignDirectory, match="its checksum is wrong"):
        load_meta(tmp_path)


def test_a_record_of_a_type_unknown_here(
    tmp_path: Path, history: list[Step], capsys: pytest.CaptureFixture[str]
) -> None:
    """B79"""
    known = [step.frame for step in history]
    frames = [*known, frame_behind(known[-1], A_TYPE_UNKNOWN_HERE)]
    file = tmp_path / f"{0:020}.log"
    file.write_bytes(b"".join(frames))
    assert cli.main(["log", "dump", str(file)]) == 6
    said = capsys.readouterr().err
    assert f"WrittenByAnotherVersion: {file}: byte {len(b''.join(known))}: record type 7777" in said
    assert SAYS in said


@pytest.mark.parametrize("at", [0, 19])
def test_a_segment(tmp_path: Path, history: list[Step], at: int) -> None:
    log = SegmentedLog.open(tmp_path, segment_bytes=10**6)
    for step in history:
        log.append(step.frame, read_header(step.frame))
    log.close()
    (path,) = tmp_path.glob("*.log")
    before = b"".join(step.frame for step in history[:at])
    behind = b"".join(step.frame for step in history[at + 1 :])
    content = before + of_format_2(history[at].frame) + behind
    path.write_bytes(content)
    for open_it in (
        lambda: SegmentedLog.open(tmp_path, segment_bytes=10**6, made_again_from=0),
        lambda: verify(path),
    ):
        with pytest.raises(
            WrittenByAnotherVersion, match=rf"\.log: byte {len(before)}: frame format 2.*{SAYS}"
        ):
            open_it()
        assert path.read_bytes() == content
    # Without a crc that fits, it is rot.
    path.write_bytes(before + history[at].frame[:2] + b"\x02" + history[at].frame[3:] + behind)
    SegmentedLog.open(tmp_path, segment_bytes=10**6, made_again_from=0).close()
    assert path.read_bytes() == before


def test_a_snapshot(tmp_path: Path, history: list[Step]) -> None:
    (tmp_path / "snapshots").mkdir()
    path = write_snapshot(history[-1].image, tmp_path / "snapshots")
    data = path.read_bytes()
    end = 40 + struct.unpack_from(">I", data, 4)[0]
    path.write_bytes(of_format_2(data[:end]) + data[end:])
    store = SnapshotStore(tmp_path / "snapshots", tmp_path / "quarantine")
    with pytest.raises(WrittenByAnotherVersion, match=rf"{path.name}: byte 0: frame format 2.*{SAYS}"):
        store.load_newest_at_or_below()
    assert path.exists()


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_pointer(version: int) -> None:
    voters = {NodeId(1): Uuid(b"d" * 16)}
    pointer = Pointer.to(
        "00000000000000000060", b"seal", before=(b"\x10a", 7, 2), last=(b"\x10b", 8, 3), voters=voters
    )
    fields = msgpack.unpackb(pointer.to_bytes()[:-4])
    body = msgpack.packb([version, *fields[1:3]])
    with pytest.raises(UnknownFormat, match=f"version {version} is unknown to this release"):
        Pointer.from_bytes(body + google_crc32c.value(body).to_bytes(4, "big"))


def test_a_journal(tmp_path: Path) -> None:
    def opened() -> Journal:
        return Journal.open(OsDisk(tmp_path), random_bytes=random.Random(1).randbytes, file_bytes=4_096)

    journal = opened()
    journal.setCurrentTerm(1, None)
    batch = journal.take_batch()
    assert batch is not None
    journal.write(batch)
    journal.completed(batch)
    journal.close()
    path = min(tmp_path.iterdir())
    data = path.read_bytes()
    head = data[:7] + b"\x02" + data[8:32]
    path.write_bytes(head + google_crc32c.value(head).to_bytes(4, "big") + data[36:])
    with pytest.raises(WrittenByAnotherVersion, match=f"{path.name}: version 2 is unknown.*{SAYS}"):
        opened()
    path.write_bytes(head + data[32:])
    with pytest.raises(DamagedFile, match="its header is damaged"):
        opened()
