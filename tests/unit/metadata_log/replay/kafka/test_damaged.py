"""Damaged files of Kafka's log end no work: the longest whole part that has a beginning is read."""

from pathlib import Path

import pytest

from metadata_log import replay
from metadata_log.errors import DamagedFile
from metadata_log.replay.kafka.log import export_kafka
from metadata_log.replay.kinds import PARTITION
from tests.support import kafka_log as by_hand

pytestmark = pytest.mark.slow

TOPIC = bytes(15) + b"\x77"
STATE = [by_hand.topic("t", TOPIC), by_hand.partition(TOPIC, 0, [11, 12])]
FOUNDED = by_hand.batch(0, [by_hand.leader_change(1, [1, 2, 3])], control=2)
FIRST = [FOUNDED, by_hand.batch(1, STATE), by_hand.batch(3, [by_hand.topic("u", bytes(15) + b"u")])]
LATER = [by_hand.batch(4 + n, [by_hand.topic(f"v{n}", bytes(14) + b"v" + bytes([n]))]) for n in range(6)]


def _written(tmp_path: Path) -> Path:
    return by_hand.written(tmp_path, FIRST, LATER[:4], LATER[4:])


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_stands_before_damage_is_read(place: int, tmp_path: Path) -> None:
    """Goal: damage ends the part, wherever it is. Method: each batch of the second segment, and what follows it."""
    log = _written(tmp_path)
    path = log / PARTITION / f"{4:020d}.log"
    _flip(path, sum(map(len, LATER[:place])) + 40)
    with pytest.raises(DamagedFile):
        replay.open(log)
    opened = replay.open(log, skip_damaged=True)
    assert (opened.export.first_offset, opened.export.end_offset) == (0, 4 + place)
    assert opened.missing[0].startswith(f"the offsets {4 + place}-{4 + place} are missing: {path}: byte")
    assert opened.missing[-1] == f"told are the offsets 0-{3 + place}, the longest part that is whole"
    assert opened.topics().aggregate("count(*)").fetchall() == [(2 + place,)]


def test_what_stands_behind_damage_is_read_from_a_checkpoint(tmp_path: Path) -> None:
    log = _written(tmp_path)
    folder = log / PARTITION
    _flip(folder / f"{0:020d}.log", len(FOUNDED) + 40)
    state = [*STATE, by_hand.topic("u", bytes(15) + b"u"), by_hand.topic("v0", bytes(14) + b"v\0")]
    (folder / f"{5:020d}-{1:010d}.checkpoint").write_bytes(by_hand.checkpoint(5, state))
    opened = replay.open(log, skip_damaged=True)
    assert (opened.export.first_offset, opened.export.end_offset) == (5, 10)
    assert opened.topics().aggregate("count(*)").fetchall() == [(8,)]


def test_a_missing_file_and_a_damaged_end_are_told(tmp_path: Path) -> None:
    log = _written(tmp_path)
    (log / PARTITION / f"{4:020d}.log").unlink()
    last = log / PARTITION / f"{8:020d}.log"
    _flip(last, len(LATER[4]) + 40)
    opened = replay.open(log, skip_damaged=True)
    assert opened.missing[:2] == (
        f"the offsets 4-7 are missing: no file holds them before {last}",
        f"the offsets from 9 on are missing: {last}: byte {len(LATER[4])}: "
        + opened.missing[1].rpartition(": byte ")[2].partition(": ")[2],
    )
    assert opened.export.end_offset == 4


def test_a_whole_log_lacks_nothing(tmp_path: Path) -> None:
    log = _written(tmp_path / "a")
    assert replay.open(log, skip_damaged=True).missing == ()
    assert replay.open(log, skip_damaged=True).export.digest == export_kafka(log, tmp_path / "to")["digest"]


def test_without_a_beginning_nothing_is_told(tmp_path: Path) -> None:
    log = _written(tmp_path)
    _flip(log / PARTITION / f"{0:020d}.log", 40)
    with pytest.raises(DamagedFile, match="nothing can be told without the beginning"):
        replay.open(log, skip_damaged=True)
