"""What other threads, a crash and a refusing disk meet at each step of writing a snapshot: all of it, or nothing of it."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from metadata_log.errors import DamagedFile, DiskFailed
from snapshots import snapshot_file
from snapshots.snapshot_file import write_snapshot
from snapshots.store import SnapshotStore
from tests.support.histories import history_of

OLD, NEW = (step.image for step in history_of(4, 40)[19::20])
SEAMS = ("fdatasync", "fsync", "replace", "sync_directory")
OWNERS = {"replace": Path, "sync_directory": snapshot_file}


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    store = SnapshotStore(tmp_path / "snapshots")
    write_snapshot(OLD, store.directory)
    return store


def write(store: SnapshotStore, seam: str, step: Callable[[], object]) -> None:
    """Write NEW, with a step before each call of that name, but for those of the step itself."""
    owner = OWNERS.get(seam, os)
    shipped = getattr(owner, seam)

    def seamed(*arguments: Any) -> Any:
        with patch.object(owner, seam, shipped):
            step()
        return shipped(*arguments)

    with patch.object(owner, seam, seamed):
        write_snapshot(NEW, store.directory)


def all_are_sound(store: SnapshotStore) -> bool:
    """Whether everything that has the name of a snapshot is a whole one, with NEW in the end or without."""
    for snapshot_id in store.ids():
        store.check(snapshot_id)
    return store.load_newest_at_or_below().image in (OLD, NEW)


def what_a_crash_leaves_is_sound(store: SnapshotStore) -> bool:
    left = store.directory.with_name("left")
    shutil.copytree(store.directory, left / "snapshots")
    started = SnapshotStore(left / "snapshots")
    sound = all_are_sound(started) and len(list(started.directory.iterdir())) == len(started.ids())
    shutil.rmtree(left)
    return sound


CHECKS = (all_are_sound, what_a_crash_leaves_is_sound)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("seam", SEAMS)
def test_it_is_there_whole_or_not_at_all(
    store: SnapshotStore, seam: str, check: Callable[[SnapshotStore], bool]
) -> None:
    met: list[bool] = []
    write(store, seam, lambda: met.append(check(store)))
    assert met and all(met)
    assert store.load_newest_at_or_below().image == NEW


@pytest.mark.parametrize("seam", ["fdatasync", "replace"])
def test_another_thread_retires_meanwhile(store: SnapshotStore, seam: str) -> None:
    """A snapshot that is being written is none yet: it is not removed, and the newest one stays for it."""
    old = store.latest()
    write(store, seam, lambda: store.retire(1))
    assert store.ids()[0] == old
    assert store.load_newest_at_or_below().image == NEW


@pytest.mark.parametrize("seam", SEAMS)
def test_a_step_that_the_disk_refuses_leaves_nothing(store: SnapshotStore, seam: str) -> None:
    def refuse() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for _ in range(2):
        with pytest.raises(DiskFailed, match="No space left on device: free at least"):
            write(store, seam, refuse)
        assert [path.stem for path in store.directory.iterdir()] == store.ids()
        assert store.load_newest_at_or_below().image == OLD
    assert write_snapshot(NEW, store.directory).exists()


@pytest.mark.parametrize("seam", ["fdatasync", "replace"])
def test_one_that_is_taken_away_before_it_has_its_name_is_written_again(
    store: SnapshotStore, seam: str
) -> None:
    with pytest.raises(DiskFailed):
        write(
            store, seam, lambda: SnapshotStore(store.directory)
        )  # it removes what an interrupted write left
    assert store.load_newest_at_or_below().image == OLD
    assert write_snapshot(NEW, store.directory).exists()


@pytest.mark.parametrize("check", CHECKS)
def test_one_written_under_its_own_name_is_noticed(
    store: SnapshotStore, check: Callable[[SnapshotStore], bool]
) -> None:
    with patch.object(Path, "with_name", lambda path, _: path), pytest.raises(DamagedFile):
        write(store, "fdatasync", lambda: check(store) or pytest.fail("not whole"))
