"""Edge: a snapshot as a file: a pure function of the log, read back to the same image, refused when a bit is wrong."""

import gc
import random
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgpack
import pytest

from metadata_log import limits
from metadata_log.codec import decode_all, frame_of
from metadata_log.digest import digest
from metadata_log.errors import DamagedFile
from metadata_log.ids import BrokerId, NodeId, TopicId
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.image.quorum import Claimant
from metadata_log.records.features import METAQUORUM_VERSION, FeatureLevelRecord
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.registry import to_row
from metadata_log.records.snapshots import SnapshotFooterRecord, SnapshotHeaderRecord
from metadata_log.records.topics import TopicRecord
from snapshots import snapshot_file
from snapshots.snapshot_file import (
    check_snapshot,
    position_of,
    read_header,
    read_snapshot,
    snapshot_frames,
    snapshot_id,
    write_snapshot,
)
from tests.support.histories import claim, history_of, small_uuid, step_of


def an_image(seed: int = 1, batches: int = 40) -> MetadataImage:
    return history_of(seed, batches)[-1].image


def test_an_id_is_a_position() -> None:
    """B66"""
    assert snapshot_id(900, 7) == "00000000000000000900-0000000007"
    assert position_of("00000000000000000900-0000000007") == (900, 7)
    assert snapshot_id(1_057_305, 5) == "00000000000001057305-0000000005"
    for text in ("", "900-7", "00000000000000000900-0000000007.snapshot", "../../etc/passwd"):
        with pytest.raises(ValueError, match="not the id of a snapshot"):
            position_of(text)


@pytest.mark.parametrize(("level", "known"), [(2, None), (3, Claimant(NodeId(2), is_kept=True))])
def test_a_snapshot_names_the_controller_of_a_claim_that_was_written_at_a_level_that_knows_it(
    tmp_path: Path, level: int, known: Claimant | None
) -> None:
    """Goal: no node names another leader of an epoch than its claim does, and nodes of the release before read snapshots.
    Method: the level rises after the claim; equal logs then have equal snapshots all the same.
    """
    at_level = step_of(EMPTY, [claim(EMPTY), FeatureLevelRecord(METAQUORUM_VERSION, level)]).image
    claimed = step_of(at_level, [claim(at_level, controller_id=2)]).image
    image = step_of(claimed, [FeatureLevelRecord(METAQUORUM_VERSION, 3)]).image
    assert image.claimant is not None
    assert image.claimant.controller_id == 2
    path = write_snapshot(image, tmp_path)
    assert to_row(read_header(path))[1] == (0 if known is None else 1)
    again = read_snapshot(path)
    assert again.claimant == known
    assert again == image
    assert b"".join(snapshot_frames(again)) == path.read_bytes()
    newer = step_of(again, [claim(again, controller_id=3)]).image
    assert newer.claimant == (3, True)


def test_the_claim_that_founds_a_cluster_is_in_its_snapshots() -> None:
    image = step_of(EMPTY, [claim(EMPTY), FeatureLevelRecord(METAQUORUM_VERSION, 3)]).image
    assert image.claimant == (1, True)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_written_is_read(tmp_path: Path, seed: int) -> None:
    image = an_image(seed)
    path = write_snapshot(image, tmp_path)
    assert path.name == f"{snapshot_id(image.end_offset, image.controller_epoch)}.snapshot"
    again = read_snapshot(path)
    assert again == image
    assert (again.digest_buckets, again.topics.index) == (image.digest_buckets, image.topics.index)
    assert b"".join(snapshot_frames(again)) == path.read_bytes(), "the same bytes, whoever writes it"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("seed", range(3))
def test_what_rots_is_found_without_making_the_image(tmp_path: Path, seed: int) -> None:
    path = write_snapshot(an_image(seed), tmp_path)
    whole = path.read_bytes()
    check_snapshot(path)
    ends = list(accumulate(len(frame) for _, frame in decode_all(whole)))
    flipped = (
        whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(0, len(whole), 7)
    )
    for damaged in (b"", *(whole[:end] for end in ends[:-1]), *(whole[: end - 1] for end in ends), *flipped):
        path.write_bytes(damaged)
        with pytest.raises(DamagedFile, match=path.name):
            check_snapshot(path)


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("wrong", [None, 1.5, "x", b"", (b"",), ("x",), (1.0, (2,)), ({},), True, {}])
def test_a_partition_with_a_field_of_another_kind_is_refused(tmp_path: Path, wrong: Any, moves: bool) -> None:
    """Goal: whoever reads a snapshot takes short cuts with partitions, above all with those that do not move."""
    one = (BrokerId(1),)
    few = one if moves else ()
    whole = PartitionRecord(
        TopicId(small_uuid(1)), 0, one, one, one[0], 0, 0, 0, few, few, few, few, (small_uuid(2),)
    )
    image = step_of(step_of(EMPTY, [claim(EMPTY)]).image, [TopicRecord(whole.topic_id, "t"), whole]).image
    path = write_snapshot(image, tmp_path)
    batches = [batch for batch, _ in decode_all(path.read_bytes())]
    for field, right in zip(PartitionRecord._fields, whole, strict=True):
        if type(wrong) is type(right) and not isinstance(wrong, tuple):
            continue
        frames, crc, base_offset = [], 0, 0
        for batch in batches:
            records = [
                record._replace(**{field: wrong}) if isinstance(record, PartitionRecord) else record
                for record in batch.records
            ]
            rows = [to_row(record) for record in records]
            frame, crc = frame_of(
                msgpack.packb(((None,) * 6, rows)),
                base_offset=base_offset,
                record_count=len(rows),
                controller_epoch=batch.controller_epoch,
                appended_at_ms=batch.appended_at_ms,
                previous_crc=crc,
            )
            frames.append(frame)
            base_offset += len(rows)
        path.write_bytes(b"".join(frames))
        with pytest.raises(DamagedFile, match=path.name):
            read_snapshot(path)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_process_that_keeps_things_frozen_keeps_them_so(tmp_path: Path, *, frozen: bool) -> None:
    path = write_snapshot(an_image(), tmp_path)
    if frozen:
        gc.freeze()
    try:
        read_snapshot(path)
        assert (gc.get_freeze_count() > 0) is frozen
    finally:
        gc.unfreeze()


def test_who_writes_one_rests_behind_each_frame(tmp_path: Path) -> None:
    """C17"""
    rests: list[float] = []
    path = write_snapshot(an_image(), tmp_path, rest=rests.append)
    assert len(rests) == len(list(decode_all(path.read_bytes())))
    assert all(seconds >= 0 for seconds in rests)


def test_header_first_footer_last_and_all_frames_of_the_last_batch(tmp_path: Path) -> None:
    """B67"""
    image = an_image()
    path = write_snapshot(image, tmp_path)
    batches = [batch for batch, _ in decode_all(path.read_bytes())]
    header = SnapshotHeaderRecord(
        "A" * 22, image.end_offset, image.controller_epoch, image.last_time_ms, image.last_crc
    )
    assert batches[0].records == (header,)
    assert read_header(path) == header
    between = [record for batch in batches[1:-1] for record in batch.records]
    assert between == list(image.to_records())
    assert batches[-1].records == (SnapshotFooterRecord(len(between), digest(image)),)
    offset = crc = 0
    for batch in batches:
        assert (batch.base_offset, batch.previous_crc) == (offset, crc)
        assert (batch.controller_epoch, batch.appended_at_ms) == (image.controller_epoch, image.last_time_ms)
        assert set(batch.envelope) == {None}
        offset, crc = batch.end_offset, batch.crc


@pytest.mark.slow
def test_no_frame_exceeds_its_bounds(tmp_path: Path) -> None:
    image = step_of(EMPTY, [claim(EMPTY)]).image
    wide = tuple(BrokerId(b) for b in range(11, 61))
    for number in range(3):
        topic_id = TopicId(small_uuid(number))
        directories = tuple(small_uuid(b) for b in wide)
        partitions = [
            PartitionRecord(topic_id, i, wide, wide, wide[0], 0, 0, 0, (), (), (), (), directories)
            for i in range(700)
        ]
        image = step_of(image, [TopicRecord(topic_id, f"wide-{number}"), *partitions]).image
    for number in range(3, 6):
        topic_id, one = TopicId(small_uuid(number)), (BrokerId(11),)
        partitions = [
            PartitionRecord(topic_id, i, one, one, one[0], 0, 0, 0, (), (), (), (), (small_uuid(11),))
            for i in range(9_000)
        ]
        image = step_of(image, [TopicRecord(topic_id, f"long-{number}"), *partitions]).image
    path = write_snapshot(image, tmp_path)
    frames = list(decode_all(path.read_bytes()))
    counts = [len(batch.records) for batch, _ in frames]
    sizes = [len(frame) - 40 for _, frame in frames]
    assert max(counts) == limits.RECORDS_PER_BATCH_MAX
    assert limits.BATCH_BYTES_MAX - 1_500 < max(sizes) <= limits.BATCH_BYTES_MAX
    assert read_snapshot(path) == image


@pytest.mark.slow
def test_any_flipped_bit_is_refused_by_file_and_byte(tmp_path: Path) -> None:
    path = write_snapshot(an_image(batches=6), tmp_path)
    data = path.read_bytes()
    rng = random.Random(1)
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(DamagedFile, match=rf"{path.name}: byte \d+: "):
            read_snapshot(path)
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        with pytest.raises(DamagedFile, match=rf"{path.name}: byte \d+: "):
            read_snapshot(path)
    path.write_bytes(data + data)
    with pytest.raises(DamagedFile, match=f"byte {len(data)}: bytes follow the footer"):
        read_snapshot(path)


def test_a_snapshot_under_another_name_is_refused(tmp_path: Path) -> None:
    image = an_image()
    path = write_snapshot(image, tmp_path)
    renamed = path.rename(tmp_path / f"{snapshot_id(1, 1)}.snapshot")
    with pytest.raises(DamagedFile, match=f"that of snapshot {path.stem}"):
        read_snapshot(renamed)
    free = renamed.rename(tmp_path / "copy-for-a-friend")
    assert read_snapshot(free) == image
    with pytest.raises(DamagedFile):
        read_snapshot(free, expected_id=snapshot_id(1, 1))


def test_a_footer_that_lies_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = an_image()
    monkeypatch.setattr(snapshot_file, "digest", lambda _: "0" * 64)
    path = write_snapshot(image, tmp_path)
    monkeypatch.undo()
    with pytest.raises(DamagedFile, match="state digest"):
        read_snapshot(path)
