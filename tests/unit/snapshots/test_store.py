"""Edge: the directory of snapshots."""

import errno
import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from metadata_log.errors import DamagedFile, DiskFailed, SnapshotNotFound
from snapshots.snapshot_file import snapshot_id, write_snapshot
from snapshots.store import SnapshotStore
from tests.support.histories import Step, history_of


@pytest.fixture
def steps() -> list[Step]:
    return [*history_of(2, 40)[9::10]]


@pytest.fixture
def store(tmp_path: Path, steps: list[Step]) -> SnapshotStore:
    store = SnapshotStore(tmp_path / "snapshots")
    for step in steps:
        write_snapshot(step.image, store.directory)
    return store


def id_of(step: Step) -> str:
    return snapshot_id(step.image.end_offset, step.image.controller_epoch)


def test_ids_are_in_log_order(store: SnapshotStore, steps: list[Step]) -> None:
    assert store.ids() == [id_of(step) for step in steps]
    assert store.latest() == id_of(steps[-1])


def test_what_is_seen_at_the_start_is_durable_from_then_on(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process killed between a file's new name and the sync of it: the next one sees the file, and stands on it."""
    synced: list[Path] = []
    monkeypatch.setattr("snapshots.store.sync_directory", synced.append)
    (store.directory / "1.part").touch()
    SnapshotStore(store.directory)
    assert synced == [store.directory]


def test_an_empty_store_has_nothing(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "snapshots")
    assert store.latest() is None
    assert store.load_newest_at_or_below() == (None, None, ())
    with pytest.raises(SnapshotNotFound):
        store.path(snapshot_id(1, 1))
    with pytest.raises(SnapshotNotFound):
        store.path("../meta.json")


def test_the_newest_below_an_offset(store: SnapshotStore, steps: list[Step]) -> None:
    end = steps[2].image.end_offset
    assert store.load_newest_at_or_below().image == steps[3].image
    assert store.load_newest_at_or_below(end).image == steps[2].image
    assert store.load_newest_at_or_below(end - 1).image == steps[1].image
    assert store.load_newest_at_or_below(0).image is None


def test_damaged_ones_go_to_quarantine_and_the_next_older_serves(
    tmp_path: Path, store: SnapshotStore, steps: list[Step]
) -> None:
    damaged = store.path(id_of(steps[3]))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    loaded = store.load_newest_at_or_below()
    assert (loaded.snapshot_id, loaded.image) == (id_of(steps[2]), steps[2].image)
    (quarantined,) = loaded.quarantined
    assert quarantined.snapshot_id == id_of(steps[3])
    assert quarantined.moved_to == tmp_path / "quarantine" / damaged.name
    assert quarantined.moved_to.exists()
    assert not damaged.exists()
    write_snapshot(steps[3].image, store.directory)
    damaged.write_bytes(b"")
    with pytest.raises(DamagedFile) as refused:
        store.load(id_of(steps[3]))
    assert refused.value.context["moved_to"] == tmp_path / "quarantine" / f"{damaged.name}.1"


def test_one_that_rotted_is_found_before_it_is_sent(store: SnapshotStore, steps: list[Step]) -> None:
    told: list[str] = []
    store.on_damage = lambda snapshot_id, _error: told.append(snapshot_id)
    rotten = id_of(steps[3])
    store.check(rotten)
    store.sha256(rotten)
    path = store.path(rotten)
    path.write_bytes(path.read_bytes()[:-9] + b"!" + path.read_bytes()[-8:])
    with pytest.raises(DamagedFile):
        store.check(rotten)
    assert told == [rotten]
    assert rotten not in store.ids()
    with pytest.raises(SnapshotNotFound):
        store.sha256(rotten)


def test_who_meets_a_rotten_one_together_sets_it_aside_once(
    store: SnapshotStore, steps: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: brokers that a commit woke ask for the same snapshot at once; that stops nobody."""
    damaged = store.path(id_of(steps[3]))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    together = threading.Barrier(2)
    check = store._check

    def checked(path: Path) -> None:
        try:
            check(path)
        finally:
            together.wait(60)

    monkeypatch.setattr(store, "_check", checked)
    told: list[str] = []
    store.on_damage = lambda snapshot_id, _: told.append(snapshot_id)

    def meet(_: int) -> type[Exception]:
        with pytest.raises((DamagedFile, SnapshotNotFound)) as refused:
            store.check(id_of(steps[3]))
        return refused.type

    with ThreadPoolExecutor(2) as threads:
        met = set(threads.map(meet, range(2)))
    assert met == {DamagedFile, SnapshotNotFound}
    assert told == [id_of(steps[3])]
    assert store.latest() == id_of(steps[2])


def test_one_that_was_replaced_while_it_was_read_stays(store: SnapshotStore, steps: list[Step]) -> None:
    damaged = store.path(id_of(steps[3]))

    def replaced(path: Path) -> None:
        path.rename(path.with_suffix(".moved"))
        write_snapshot(steps[3].image, store.directory)
        raise DamagedFile("what was read was not what was written")

    with patch.object(store, "_check", replaced), pytest.raises(SnapshotNotFound):
        store.check(id_of(steps[3]))
    assert damaged.exists()


def test_one_that_is_retired_while_it_is_found_rotten_is_gone(
    store: SnapshotStore, steps: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    def retired(path: Path) -> None:
        path.unlink()
        raise DamagedFile("what was read was not what was written")

    monkeypatch.setattr(store, "_check", retired)
    with pytest.raises(SnapshotNotFound):
        store.check(id_of(steps[3]))
    set_aside = store._set_aside

    def late(path: Path) -> Path:
        path.unlink()
        return set_aside(path)

    monkeypatch.setattr(store, "_check", lambda path: retired(path.with_name("none")) if path else None)
    monkeypatch.setattr(store, "_set_aside", late)
    path = store.path(id_of(steps[2]))
    path.with_name("none").touch()
    with pytest.raises(SnapshotNotFound):
        store.check(id_of(steps[2]))


def test_one_that_is_retired_while_it_is_read_is_not_here(store: SnapshotStore, steps: list[Step]) -> None:
    for read in (store.sha256, store.size, store.check, store.load):
        with pytest.raises(SnapshotNotFound), patch.object(Path, "exists", return_value=True):
            read(snapshot_id(10**6, 1))


def test_one_that_the_disk_does_not_give_goes_to_quarantine(
    store: SnapshotStore, steps: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: Path) -> str:
        raise DiskFailed("no", path=str(path), errno=errno.EIO)

    monkeypatch.setattr("snapshots.store.sha256_of", failing)
    monkeypatch.setattr(store, "_check", failing)
    with pytest.raises(SnapshotNotFound, match="cannot be read: Input/output error"):
        store.sha256(id_of(steps[3]))
    with pytest.raises(DamagedFile, match="cannot be read: Input/output error"):
        store.check(id_of(steps[2]))
    assert store.latest() == id_of(steps[1])


def test_retiring_keeps_the_newest_and_the_pinned(store: SnapshotStore, steps: list[Step]) -> None:
    """B68"""
    ids = [id_of(step) for step in steps]
    assert store.retire(2, {ids[0]}) == [ids[1]]
    assert store.ids() == [ids[0], ids[2], ids[3]]
    assert store.retire(1) == [ids[0], ids[2]]
    assert store.ids() == [ids[3]]


def test_the_space_of_those_unlinked_is_freed_by_whoever_closes_them(
    store: SnapshotStore, steps: list[Step]
) -> None:
    ids = [id_of(step) for step in steps]
    size = store.size(ids[0])
    with ExitStack() as files:
        assert store.unlink(3, (), files) == [ids[0]]
        assert store.ids() == ids[1:]
        (held,) = (path.stat() for path in Path("/proc/self/fd").iterdir() if _is_unlinked(path))
        assert held.st_size == size
    assert not any(map(_is_unlinked, Path("/proc/self/fd").iterdir()))


def _is_unlinked(descriptor: Path) -> bool:
    try:
        return descriptor.stat().st_nlink == 0 and ".snapshot" in str(descriptor.readlink())
    except OSError:
        return False  # that of the listing itself


def test_hash_and_size_are_those_of_the_file(store: SnapshotStore, steps: list[Step]) -> None:
    content = store.path(id_of(steps[1])).read_bytes()
    for _ in range(2):
        assert store.sha256(id_of(steps[1])) == hashlib.sha256(content).hexdigest()
    assert store.size(id_of(steps[1])) == len(content)


def test_an_interrupted_write_is_removed_and_an_interrupted_download_is_not(tmp_path: Path) -> None:
    directory = tmp_path / "snapshots"
    directory.mkdir()
    (directory / "x.snapshot.part").write_bytes(b"1")
    (directory / "x.snapshot.download").write_bytes(b"1")
    store = SnapshotStore(directory)
    assert [path.name for path in directory.iterdir()] == ["x.snapshot.download"]
    assert store.ids() == []
