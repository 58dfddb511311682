"""Edge: an export goes on from the history that it holds, and from no other, however long the other one is."""

import json
import random
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from metadata_log import replay
from metadata_log.codec import read_header
from metadata_log.errors import InvalidRequest, InvariantBroken
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.replay import source
from metadata_log.replay.damaged import export_whole_part
from metadata_log.replay.export import export_log
from metadata_log.replay.kafka.log import export_kafka
from metadata_log.replay.kinds import MANIFEST, PARTITION
from metadata_log.replay.source import export_files
from snapshots.snapshot_file import write_snapshot
from tests.support import kafka_log as by_hand
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, Step, history_of, random_history

pytestmark = pytest.mark.slow

OURS = [*history_of(7, 40)]
OTHER = [*history_of(8, 40)]
END = OURS[-1].batch.end_offset

Export = Callable[[list[Step], Path], dict[str, Any]]


def _of_frames(history: list[Step], to: Path) -> dict[str, Any]:
    return export_log(frames_of(history), to, cluster_id=CLUSTER_ID)


def _written(history: list[Step], directory: Path) -> Path:
    log = SegmentedLog.open(directory / "log", segment_bytes=2_000)
    for step in history:
        log.append(step.frame, read_header(step.frame))
    log.sync()
    log.close()
    return directory


def _of_files(history: list[Step], to: Path) -> dict[str, Any]:
    directory = to.parent / f"data-{history[-1].batch.crc}-{len(history)}"
    return export_files(directory if directory.exists() else _written(history, directory), to)


def _of_whole_parts(history: list[Step], to: Path) -> dict[str, Any]:
    directory = to.parent / f"data-{history[-1].batch.crc}-{len(history)}"
    return export_whole_part(directory if directory.exists() else _written(history, directory), to)[0]


EVERY_WAY = pytest.mark.parametrize("export", [_of_frames, _of_files, _of_whole_parts])


@EVERY_WAY
def test_another_history_is_refused_however_short_it_is(tmp_path: Path, export: Export) -> None:
    """The refusal names what both have at the last offset in common, and nothing of the export changes."""
    export(OURS, tmp_path / "to")
    before = (tmp_path / "to" / MANIFEST).read_bytes()
    for batches in (1, 2, 20, 39, 40):
        other = OTHER[:batches]
        last = other[-1].batch
        with pytest.raises(InvariantBroken, match="this is another history") as refused:
            export(other, tmp_path / "to")
        if last.end_offset <= END:
            assert f"CRC-32C {last.crc:08x} that ends at offset {last.end_offset}" in refused.value.message
            assert f"{tmp_path / 'to'}, which ends at offset {END}, has a batch" in refused.value.message
        assert (tmp_path / "to" / MANIFEST).read_bytes() == before


def test_a_history_that_parted_late_is_refused_too(tmp_path: Path) -> None:
    """Both begin alike: an older copy that went on by itself, for less long, as long, and longer."""
    _of_frames(OURS, tmp_path / "to")
    before = (tmp_path / "to" / MANIFEST).read_bytes()
    for parted_at, more in product((10, 38), (1, 5, 60)):
        common = OURS[:parted_at]
        parted = [*common, *random_history(random.Random(9), more, onto=common[-1].image)]
        with pytest.raises(InvariantBroken, match="another history"):
            _of_frames(parted, tmp_path / "to")
        assert (tmp_path / "to" / MANIFEST).read_bytes() == before


@EVERY_WAY
def test_an_older_copy_adds_nothing_and_both_ends_are_told(
    tmp_path: Path, export: Export, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = export(OURS, tmp_path / "to")
    assert export(OURS, tmp_path / "to") == manifest
    assert not caplog.messages
    for batches in (1, 20, 39):
        caplog.clear()
        assert export(OURS[:batches], tmp_path / "to") == manifest
        end = OURS[batches - 1].batch.end_offset
        assert f"the log ends at offset {end}, and {tmp_path / 'to'} at {END}" in caplog.text


def test_an_export_in_parts_compares_the_log_at_each_part(tmp_path: Path) -> None:
    for until in (OURS[5].batch.end_offset, OURS[20].batch.end_offset):
        export_log(frames_of(OURS), tmp_path / "to", cluster_id=CLUSTER_ID, until=until)
    other_parts: tuple[int | None, ...] = (None, OTHER[2].batch.end_offset, 1)
    for part in other_parts:
        with pytest.raises(InvariantBroken, match="another history"):
            export_log(frames_of(OTHER), tmp_path / "to", cluster_id=CLUSTER_ID, until=part)
    # What is asked for may be there already.
    export_log(frames_of(OURS), tmp_path / "to", cluster_id=CLUSTER_ID, until=1)
    export_log(frames_of(OURS), tmp_path / "to", cluster_id=CLUSTER_ID)
    assert json.loads((tmp_path / "to" / MANIFEST).read_bytes())["end_offset"] == END


def test_a_log_without_an_offset_in_common_is_refused(tmp_path: Path) -> None:
    export_log(
        frames_of(OURS), tmp_path / "to", cluster_id=CLUSTER_ID, from_offset=OURS[30].batch.base_offset
    )
    with pytest.raises(InvalidRequest, match="they have none in common"):
        export_log(frames_of(OURS[:10]), tmp_path / "to", cluster_id=CLUSTER_ID)


def test_a_lake_holds_one_history_of_a_copied_id(tmp_path: Path) -> None:
    """A cluster id that everybody copies: the longer log first, then the shorter one of another cluster."""
    export_files(_written(OURS, tmp_path / "a"), tmp_path / "lake", in_lake=True)
    other = _written(OTHER[:20], tmp_path / "b")
    with pytest.raises(InvariantBroken, match="another history"):
        export_files(other, tmp_path / "lake", in_lake=True)


# --- Kafka's logs

FOUNDED = by_hand.batch(0, [by_hand.leader_change(1, [1, 2, 3])], control=2)


def _topic(base: int, name: str) -> bytes:
    return by_hand.batch(base, [by_hand.topic(name, bytes([base]) * 16)])


LONG = [FOUNDED, *(_topic(base, f"t{base}") for base in range(1, 9))]


@pytest.mark.parametrize("in_lake", [False, True])
def test_another_history_of_kafka_is_refused_however_short_it_is(tmp_path: Path, in_lake: bool) -> None:
    export_kafka(by_hand.written(tmp_path / "a", LONG[:4], LONG[4:]), tmp_path / "to", in_lake=in_lake)
    for length in (2, 5, 9, 12):
        other = [FOUNDED, *(_topic(base, f"u{base}") for base in range(1, length))]
        second = by_hand.written(tmp_path / f"b{length}", other)
        with pytest.raises(InvariantBroken, match="this is another history"):
            export_kafka(second, tmp_path / "to", in_lake=in_lake)


def test_an_older_copy_of_kafkas_log_adds_nothing_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = by_hand.written(tmp_path / "a", LONG[:4], LONG[4:])
    manifest = export_kafka(whole, tmp_path / "to")
    assert export_kafka(whole, tmp_path / "to") == manifest
    assert not caplog.messages
    for place, length in enumerate((1, 4, 6)):
        caplog.clear()
        older = by_hand.written(tmp_path / f"older-{place}", LONG[:length])
        assert export_kafka(older, tmp_path / "to") == manifest
        assert f"the log ends at offset {length}, and {tmp_path / 'to'} at 9" in caplog.text


# --- the end of a log that is lost


def test_a_lost_end_beside_a_newer_checkpoint_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = by_hand.written(tmp_path / "kafka", LONG[:4])
    partition = directory / PARTITION
    (partition / f"{3:020d}-{1:010d}.checkpoint").write_bytes(b"")
    assert replay.open(directory).missing == ()
    (partition / f"{9:020d}-{1:010d}.checkpoint").write_bytes(b"")
    (partition / f"{11:020d}.snapshot").write_bytes(b"")  # of producers, which is none of the log
    for path in (directory, partition):
        (line,) = replay.open(path, format="kafka").missing
        assert re.search(
            r"ends at offset 4, .*checkpoint has the state at 9: the offsets 4-8 are missing", line
        )
        caplog.clear()
        export_files(path, tmp_path / f"to-{path.name}")
        assert line in caplog.text


def test_a_lost_end_beside_a_newer_snapshot_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = _written(OURS[:20], tmp_path / "data")
    (directory / "snapshots").mkdir()
    write_snapshot(OURS[10].image, directory / "snapshots")
    assert replay.open(directory).missing == ()
    write_snapshot(OURS[30].image, directory / "snapshots")
    end, newest = OURS[19].batch.end_offset, OURS[30].batch.end_offset
    for path in (directory, directory / "log"):
        (line,) = replay.open(path).missing
        assert f"the offsets {end}-{newest - 1} are missing" in line
    export_files(directory, tmp_path / "to")
    assert line in caplog.text
    caplog.clear()
    export_files(directory, tmp_path / "part", until=OURS[9].batch.end_offset)
    assert not caplog.messages


def test_a_snapshot_that_a_node_writes_meanwhile_is_no_lost_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory = _written(OURS[:20], tmp_path / "data")
    (directory / "snapshots").mkdir()
    exported = source.export_directory

    def exporting(*places: Path, **part: Any) -> dict[str, Any]:
        manifest = exported(*places, **part)
        write_snapshot(OURS[30].image, directory / "snapshots")
        return manifest

    monkeypatch.setattr(source, "export_directory", exporting)
    export_files(directory, tmp_path / "to")
    assert not caplog.messages
