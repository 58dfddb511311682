"""Edge: the cache on disk: a crash, a flipped bit or a foreign file costs a longer fetch, and nothing else."""

import json
import random
from pathlib import Path

import pytest

import metadata_log.apply
from broker_agent.cache import CLEAN_STOP_FILE, Cache
from broker_agent.follower import Position, position_of
from metadata_log.batch import Envelope
from metadata_log.digest import EMPTY_BUCKETS, digest
from metadata_log.errors import DiskFailed, WrittenByAnotherVersion
from metadata_log.ids import Uuid
from metadata_log.image.metadata_image import EMPTY, buckets_of
from metadata_log.node.disk.durable_files import checked_json
from metadata_log.records.quorum import NoOpRecord
from snapshots import kept_digest
from snapshots.snapshot_file import SUFFIX, write_snapshot
from tests.support.fake_controller import CLUSTER_ID, FakeLog, format_broker
from tests.support.histories import A_NEWER_VERSION, A_TOPIC_ID_OF_INT, A_TYPE_UNKNOWN_HERE, frame_behind

SEEDS = [pytest.param(seed, marks=[pytest.mark.slow] * (seed >= 15)) for seed in range(60)]


@pytest.fixture
def history() -> FakeLog:
    log = FakeLog()
    for number in range(6):
        log.topic(f"t{number}", partitions=2)
    log.fill(100)
    return log


def a_cache(path: Path) -> Cache:
    return Cache(path, cluster_id=CLUSTER_ID)


def feed(cache: Cache, log: FakeLog, *, from_offset: int = 0, until: int = 10**9) -> None:
    for (header, frame), image in zip(log.frames, log.images[1:], strict=True):
        if from_offset <= header.base_offset and header.end_offset <= until:
            cache.append(frame, header)
            cache.applied(header, image)


def filled(path: Path, log: FakeLog, **bounds: int) -> None:
    format_broker(path)
    cache = a_cache(path)
    assert cache.open() is EMPTY
    feed(cache, log, **bounds)
    cache.close()


def test_what_was_written_comes_back(tmp_path: Path, history: FakeLog) -> None:
    filled(tmp_path, history)
    cache = a_cache(tmp_path)
    assert cache.open() == history.image
    assert cache.damaged_count == 0
    cache.close()


def test_an_unsynced_cache_comes_back_too(tmp_path: Path, history: FakeLog) -> None:
    """A kill -9 loses nothing that was written: the page cache is the kernel's."""
    format_broker(tmp_path)
    cache = a_cache(tmp_path)
    cache.open()
    feed(cache, history)
    again = a_cache(tmp_path)
    assert again.open() == history.image
    cache.close()
    again.close()


def test_a_snapshot_newer_than_the_log_is_gone_on_from(tmp_path: Path, history: FakeLog) -> None:
    filled(tmp_path, history, until=20)
    write_snapshot(history.image_at(59), tmp_path / "snapshots")
    cache = a_cache(tmp_path)
    assert cache.open() == history.image_at(59)
    feed(cache, history, from_offset=59)
    cache.close()
    cache = a_cache(tmp_path)
    assert cache.open() == history.image
    assert list((tmp_path / "quarantine").iterdir()) == []
    cache.close()


def answered(log: FakeLog, number: int) -> None:
    """Append what a request did, whose answer controllers keep."""
    envelope = Envelope("User:a", Uuid(bytes([number]) * 16), bytes(32), None, "CreateTopics", b"an answer")
    log.append(NoOpRecord(), envelope=envelope)


def test_a_broker_keeps_no_answers_to_requests(tmp_path: Path, history: FakeLog) -> None:
    """Controllers alone are asked for them once more."""
    answered(history, 1)
    in_snapshot = history.image
    answered(history, 2)
    assert len(history.image.results.by_id) == 2
    filled(tmp_path, history)
    cache = a_cache(tmp_path)
    assert cache.open() == history.image.without_results()
    cache.close()
    write_snapshot(in_snapshot, tmp_path / "snapshots")
    cache = a_cache(tmp_path)
    assert cache.open() == history.image.without_results()
    answered(history, 3)
    path = write_snapshot(history.image, tmp_path / "snapshots")
    assert cache.install(path.name.removesuffix(SUFFIX)) == history.image.without_results()
    cache.close()


def test_a_log_that_begins_behind_every_snapshot_is_of_no_use(tmp_path: Path, history: FakeLog) -> None:
    filled(tmp_path, history, until=20)
    write_snapshot(history.image_at(59), tmp_path / "snapshots")
    cache = a_cache(tmp_path)
    cache.open()
    feed(cache, history, from_offset=59)
    cache.close()
    (snapshot,) = (tmp_path / "snapshots").glob("*.snapshot")
    snapshot.unlink()
    cache = a_cache(tmp_path)
    assert cache.open() is EMPTY
    assert cache.damaged_count == 1
    assert "in quarantine" in cache.warnings["CACHE_SET_ASIDE"]
    cache.close()


def test_a_log_of_another_history_than_the_snapshots_is_set_aside(tmp_path: Path, history: FakeLog) -> None:
    other = FakeLog(unix_ms=5)
    other.fill(200)
    filled(tmp_path, other)
    write_snapshot(history.image_at(59), tmp_path / "snapshots")
    cache = a_cache(tmp_path)
    assert cache.open() == history.image_at(59)
    assert position_of(cache.open()) == Position(59, 1, history.image_at(59).last_crc)
    cache.close()
    assert len(list((tmp_path / "quarantine").iterdir())) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_no_flipped_bit_and_no_cut_does_more_than_cost_a_fetch(
    tmp_path: Path, history: FakeLog, seed: int
) -> None:
    """Goal: damage is set aside, never believed, never fatal. Method: one harm to one file at random; what opens is
    a state that the history had, and the cache takes the rest of the history from there.
    """
    rng = random.Random(seed)
    filled(tmp_path, history)
    for end_offset in (39, 79):
        write_snapshot(history.image_at(end_offset), tmp_path / "snapshots")
    a_cache(tmp_path).write_clean_stop(3)
    files = [
        path
        for path in sorted(tmp_path.rglob("*"))
        if path.is_file() and path.name not in ("meta.json", "lock")
    ]
    victim = rng.choice(files)
    data = bytearray(victim.read_bytes())
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    else:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    victim.write_bytes(data)
    cache = a_cache(tmp_path)
    assert cache.take_clean_stop() in (-1, 3)
    image = cache.open()
    assert any(image == known for known in history.images)
    feed(cache, history, from_offset=image.end_offset)
    cache.close()
    cache = a_cache(tmp_path)
    assert digest(cache.open()) == digest(history.image)
    cache.close()


def append_to_log(path: Path, log: FakeLog, body: bytes) -> tuple[Path, int]:
    """Append a sound frame of this body to the cache's one segment; return that, and the byte where it begins."""
    (file,) = (path / "log").glob("*.log")
    begins = file.stat().st_size
    file.write_bytes(file.read_bytes() + frame_behind(log.frames[-1][1], body))
    return file, begins


def test_a_record_of_the_wrong_kind_is_set_aside_as_any_damage_is(tmp_path: Path, history: FakeLog) -> None:
    filled(tmp_path, history)
    write_snapshot(history.image_at(59), tmp_path / "snapshots")
    file, begins = append_to_log(tmp_path, history, A_TOPIC_ID_OF_INT)
    cache = a_cache(tmp_path)
    assert cache.open() == history.image_at(59)
    assert cache.damaged_count == 1
    said = f"{file}: byte {begins}: a frame's body is not ours: topic_id of a TopicRecord: expected bytes, got int; "
    assert cache.warnings["CACHE_SET_ASIDE"].startswith(said)
    assert [path.name.startswith(file.name) for path in (tmp_path / "quarantine").iterdir()] == [True]
    feed(cache, history, from_offset=59)
    cache.close()
    cache = a_cache(tmp_path)
    assert cache.open() == history.image
    cache.close()


@pytest.mark.parametrize("body", [A_TYPE_UNKNOWN_HERE, A_NEWER_VERSION])
def test_what_a_newer_release_wrote_is_refused_by_file_and_byte_and_left_there(
    tmp_path: Path, history: FakeLog, body: bytes
) -> None:
    filled(tmp_path, history)
    file, begins = append_to_log(tmp_path, history, body)
    cache = a_cache(tmp_path)
    with pytest.raises(WrittenByAnotherVersion, match=f"^{file}: byte {begins}: record type [0-9]+ version"):
        cache.open()
    cache.close()
    assert list((tmp_path / "quarantine").iterdir()) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_any_end_of_the_log_that_a_crash_leaves_is_a_prefix(
    tmp_path: Path, history: FakeLog, seed: int
) -> None:
    rng = random.Random(seed)
    filled(tmp_path, history)
    (file,) = (tmp_path / "log").glob("*.log")
    data = file.read_bytes()
    file.write_bytes(data[: rng.randrange(len(data))] + bytes(rng.choice((0, 0, 300))))
    cache = a_cache(tmp_path)
    image = cache.open()
    assert any(image == known for known in history.images)
    assert cache.segments.end_offset == image.end_offset
    cache.close()


def test_a_rebuild_begins_strictly_below_what_was_refused(tmp_path: Path, history: FakeLog) -> None:
    filled(tmp_path, history, until=79)
    for end_offset in (19, 39, 79):
        write_snapshot(history.image_at(end_offset), tmp_path / "snapshots")
    cache = a_cache(tmp_path)
    cache.open()
    assert cache.rebuild(at_or_below=79, strictly_below=79) == history.image_at(39)
    assert cache.rebuild(at_or_below=58, strictly_below=39) == history.image_at(19)
    assert cache.rebuild(at_or_below=0, strictly_below=19) is EMPTY
    feed(cache, history)
    cache.close()
    cache = a_cache(tmp_path)
    assert cache.open() == history.image
    cache.close()


def test_a_due_snapshot_is_written_once_and_the_older_ones_go(
    tmp_path: Path, history: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_agent.cache.SNAPSHOT_BYTES_MIN", 500)
    format_broker(tmp_path)
    cache = a_cache(tmp_path)
    cache.open()
    cache.write_due_snapshot()
    assert cache.store.ids() == []
    for (header, frame), image in zip(history.frames, history.images[1:], strict=True):
        cache.append(frame, header)
        cache.applied(header, image)
        cache.write_due_snapshot()
    assert len(cache.store.ids()) == 2
    newest = cache.store.load(cache.store.ids()[-1])
    assert newest == history.image_at(newest.end_offset)
    cache.close()


def the_buckets_file(path: Path) -> str:
    return (path / kept_digest.FILE).read_text()


def test_the_next_start_need_not_count_the_snapshots_records(
    tmp_path: Path, history: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, history, until=59)
    write_snapshot(history.image_at(59), tmp_path / "snapshots")
    a_cache(tmp_path).open()  # counts, and keeps what it has counted

    def refuse(*_: object) -> None:
        raise AssertionError("the records were counted")

    monkeypatch.setattr(metadata_log.apply, "buckets_of", refuse)
    assert a_cache(tmp_path).open() == history.image_at(59)


def test_what_is_kept_of_a_digest_follows_the_newest_snapshot(tmp_path: Path, history: FakeLog) -> None:
    format_broker(tmp_path)
    cache = a_cache(tmp_path)
    cache.open()
    assert not (tmp_path / kept_digest.FILE).exists()
    feed(cache, history, until=59)
    cache._due = history.image_at(59)
    cache.write_due_snapshot()
    assert json.loads(the_buckets_file(tmp_path))["buckets"] == [
        *map(list, history.image_at(59).digest_buckets)
    ]
    write_snapshot(history.image, tmp_path / "snapshots")
    cache.install(cache.store.ids()[-1])
    assert json.loads(the_buckets_file(tmp_path))["buckets"] == [*map(list, history.image.digest_buckets)]
    cache.close()


@pytest.mark.parametrize(
    "kept",
    [
        b"",
        b"[]",
        b'{"version": 2, "buckets": []}',
        checked_json({"buckets": []}),
        checked_json({"buckets": [[0, 0]] * 256}),
        checked_json({"buckets": [[0, 0, "0"]] * 256}),
        checked_json({"buckets": EMPTY_BUCKETS}),  # another state's
    ],
)
def test_nothing_rests_on_what_is_kept_of_a_digest(tmp_path: Path, history: FakeLog, kept: bytes) -> None:
    filled(tmp_path, history)
    write_snapshot(history.image_at(59), tmp_path / "snapshots")
    (tmp_path / kept_digest.FILE).write_bytes(kept)
    cache = a_cache(tmp_path)
    image = cache.open()
    assert image == history.image
    assert image.digest_buckets == buckets_of(image)
    assert cache.damaged_count == 0
    assert json.loads(the_buckets_file(tmp_path))["buckets"] == [
        *map(list, history.image_at(59).digest_buckets)
    ]
    cache.close()


def test_a_disk_without_room_for_it_stops_nobody(
    tmp_path: Path, history: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise DiskFailed(f"{path}: no room for {len(content)} bytes")

    filled(tmp_path, history)
    write_snapshot(history.image_at(59), tmp_path / "snapshots")
    monkeypatch.setattr(kept_digest, "replace_file", refuse)
    cache = a_cache(tmp_path)
    assert cache.open() == history.image
    cache.close()


@pytest.mark.parametrize(
    ("content", "epoch"),
    [
        ('{"version": 1, "broker_epoch": 42}', 42),  # a file without a checksum is believed
        ('{"version": 1, "broker_epoch": 42, "crc32c": "00000000"}', -1),
        ('{"version": 2, "broker_epoch": 42}', -1),
        ('{"version": 1, "broker_epoch": -5}', -1),
        ('{"version": 1, "broker_epoch": "42"}', -1),
        ('{"version": 1}', -1),
        ("[]", -1),
        ("", -1),
    ],
)
def test_a_clean_stop_is_told_once(tmp_path: Path, content: str, epoch: int) -> None:
    (tmp_path / CLEAN_STOP_FILE).write_text(content)
    cache = a_cache(tmp_path)
    assert cache.take_clean_stop() == epoch
    assert cache.take_clean_stop() == -1
    cache.write_clean_stop(7)
    assert json.loads((tmp_path / CLEAN_STOP_FILE).read_text()) == {
        "version": 1,
        "broker_epoch": 7,
        "crc32c": "257181a1",
    }
    assert a_cache(tmp_path).take_clean_stop() == 7
