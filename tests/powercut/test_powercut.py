"""Power cuts at thousands of points: nothing acknowledged is lost, nothing is invented, and each sync is needed."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest

import broker_agent.cache
import metadata_log.log.recovery
import metadata_log.node.disk.durable_files
import quorum.raft.journal.os_disk
import snapshots.download
import snapshots.snapshot_file
from metadata_log.log.segmented_log import SegmentedLog
from quorum.raft.journal.os_disk import OsFile
from tests.powercut.campaign import campaign
from tests.powercut.disk_model import ROOT, DiskModel, Move, Name, Sync, SyncDirectory, Write
from tests.powercut.recorder import Recorder, put_tree, tree_of
from tests.powercut.workloads import (
    WORKLOADS,
    CacheWorkload,
    CleanStopWorkload,
    DownloadsWorkload,
    JournalWorkload,
    NodeWorkload,
    SegmentsWorkload,
    SnapshotsWorkload,
    StockJournal,
    Workload,
)

POINTS = {
    "journal": 900,
    "segments": 700,
    "damaged segments": 300,
    "snapshots": 400,
    "downloads": 100,
    "format": 150,
    "cache": 300,
    "clean stop": 150,
    "node": 300,
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_nothing_promised_is_lost(name: str) -> None:
    outcome = campaign(WORKLOADS[name], seed=1, points=POINTS[name])
    assert [(loss.point, loss.error, loss.story) for loss in outcome.losses] == []
    assert outcome.points > POINTS[name] * 0.6


def test_the_librarys_own_journal_loses_what_it_acknowledged() -> None:
    outcome = campaign(StockJournal, seed=1, points=200, losses_max=None)
    assert len(outcome.losses) > outcome.points // 2


def _nothing(*_: object, **__: object) -> None:
    """In place of a sync."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "off"),
    [
        pytest.param(
            JournalWorkload, lambda: patch.object(OsFile, "sync", _nothing), id="journal-not-synced"
        ),
        pytest.param(
            JournalWorkload,
            lambda: patch.object(quorum.raft.journal.os_disk, "sync_directory", _nothing),
            id="directory-not-synced",
        ),
        pytest.param(
            NodeWorkload,
            lambda: patch.object(metadata_log.node.disk.durable_files, "sync_directory", _nothing),
            id="pointer-without-its-directory",
        ),
        pytest.param(
            NodeWorkload,
            lambda: patch.object(SegmentedLog, "sync", _nothing),
            id="snapshot-announced-before-segments-are-synced",
        ),
        pytest.param(
            SnapshotsWorkload,
            lambda: patch.object(snapshots.snapshot_file, "sync_directory", _nothing),
            id="snapshot-without-its-directory",
        ),
        pytest.param(
            CacheWorkload, lambda: patch.object(SegmentedLog, "sync", _nothing), id="cache-not-synced"
        ),
        *(
            pytest.param(
                make,
                lambda: patch.object(metadata_log.log.recovery, "_sync_file", _nothing),
                id=f"{make.name}-not-synced-after-a-kill",
            )
            for make in (SegmentsWorkload, CacheWorkload)
        ),
        pytest.param(
            SegmentsWorkload,
            lambda: patch.object(metadata_log.log.recovery, "_write_again", _nothing),
            id="segments-not-written-again-after-a-sync-that-failed",
        ),
        pytest.param(
            DownloadsWorkload,
            lambda: patch.object(snapshots.download, "os", SimpleNamespace(fsync=_nothing)),
            id="download-not-synced",
        ),
        pytest.param(
            DownloadsWorkload,
            lambda: patch.object(snapshots.download, "sync_directory", _nothing),
            id="download-without-its-directory",
        ),
        pytest.param(
            CleanStopWorkload,
            lambda: patch.object(broker_agent.cache, "sync_directory", _nothing),
            id="clean-stop-told-twice",
        ),
    ],
)
def test_each_sync_is_needed(
    make: Callable[[], Workload], off: Callable[[], AbstractContextManager[object]]
) -> None:
    """The runs of some seeds never come to a place where it matters."""
    with off():
        assert any(campaign(make, seed=seed, points=600).losses for seed in range(1, 5))


def test_the_recorder_misses_nothing(tmp_path: Path) -> None:
    """Every way in which Python writes a file is noted, or refused."""
    root = tmp_path / "root"
    root.mkdir()
    with Recorder(root) as recorder:
        (root / "folder").mkdir()
        (root / "folder" / "one").write_bytes(b"one")
        with (root / "two").open("ab") as file:
            file.write(b"two")
            file.flush()
            file.truncate(1)
        with (root / "two").open("rb+") as file:
            file.seek(1)
            file.write(b"xyz")
        (root / "two").rename(root / "folder" / "three")
        (root / "folder" / "one").unlink()
        with pytest.raises(AssertionError, match="text file"):
            (root / "text").write_text("text")
        with pytest.raises(AssertionError, match="link"):
            (root / "four").hardlink_to(root / "folder" / "three")
        (root / "read").write_bytes(b"")
        assert (root / "folder" / "three").read_bytes() == b"txyz"
    recorder.check()


def test_what_a_disk_may_hold(tmp_path: Path) -> None:
    model = DiskModel()
    for operation in (
        Name(ROOT, "a.part", 1, is_directory=False),
        Write(1, 0, b"first"),
        Sync(1),
        Write(1, 5, b" second"),
        Move(ROOT, "a.part", ROOT, "a"),
    ):
        model.take(operation)
    assert model.nothing() == {}
    assert model.everything() == {"a": b"first second"}
    model.take(SyncDirectory(ROOT))
    assert model.nothing() == {"a": b"first"}
    put_tree(model.everything(), tmp_path)
    assert tree_of(tmp_path) == model.everything()
