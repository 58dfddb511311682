"""Exports of large logs are kept: opened again they are the same, grown ones are continued, and nothing stale is shown."""

import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from metadata_log import replay
from metadata_log.codec import read_header
from metadata_log.errors import DamagedFile, InvalidRequest
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.replay import export_cache
from metadata_log.replay.kinds import PARTITION
from metadata_log.replay.tables import read_manifest
from tests.support import kafka_log as by_hand
from tests.support.histories import history_of

pytestmark = pytest.mark.slow

HISTORY = [*history_of(31, 60)]
END = HISTORY[-1].batch.end_offset


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every log, however small, in a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(export_cache, "CACHED_FROM_BYTES", 0)
    return tmp_path / "cache" / "metaquorum" / "exports"


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the exports: each is the offset up to which it was asked to go on from."""
    made: list[int] = []
    update = export_cache._bring_up_to_date

    def counting(entry: Path, files: list[Path], export: export_cache.Export) -> None:
        def counted(to: Path) -> object:
            before = read_manifest(to)
            made.append(0 if before is None else before.end_offset)
            return export(to)

        update(entry, files, counted)

    monkeypatch.setattr(export_cache, "_bring_up_to_date", counting)
    return made


def _written(folder: Path, steps: int, *, segment_bytes: int = 4_000) -> Path:
    log = SegmentedLog.open(folder, segment_bytes=segment_bytes)
    for step in HISTORY[:steps]:
        if step.batch.base_offset >= log.end_offset:
            log.append(step.frame, read_header(step.frame))
    log.sync()
    log.close()
    return folder


def test_a_log_that_is_opened_again_is_not_exported_again(
    tmp_path: Path, root: Path, exports: list[int]
) -> None:
    path = _written(tmp_path / "log", 60)
    before = {file.name: file.stat().st_mtime_ns for file in path.iterdir()}
    with replay.open(path) as one, replay.open(path) as other:
        assert exports == [0]
        assert one.export.directory != other.export.directory
        assert one.records().order("log_offset").fetchall() == other.records().order("log_offset").fetchall()
        assert one.export.digest == other.export.digest
    assert not list((root / "open").iterdir())
    assert {file.name: file.stat().st_mtime_ns for file in path.iterdir()} == before, (
        "nothing is written beside the log"
    )


def test_what_is_new_is_added(tmp_path: Path, exports: list[int]) -> None:
    """Goal: a log that grows costs what is new. Method: in the same file, and in files behind it; as if exported at once."""
    path = tmp_path / "log"
    for steps in (20, 23, 60):
        with replay.open(_written(path, steps)) as log:
            assert log.export.end_offset == HISTORY[steps - 1].batch.end_offset
            digest = log.export.digest
    assert exports == [0, HISTORY[19].batch.end_offset, HISTORY[22].batch.end_offset]
    fresh = shutil.copytree(path, tmp_path / "copy")
    with replay.open(fresh) as log:
        assert log.export.digest == digest


def test_nothing_stale_is_shown(tmp_path: Path, exports: list[int]) -> None:
    """Goal: the answer is of the files that are there. Method: shorter, of another history, and damaged in
    each file, all under the same names.
    """
    path = _written(tmp_path / "log", 40)
    replay.open(path).close()
    shutil.rmtree(path)
    with replay.open(_written(path, 20)) as log:
        assert log.export.end_offset == HISTORY[19].batch.end_offset
    other = [*history_of(7, 40)]
    shutil.rmtree(path)
    written = SegmentedLog.open(path, segment_bytes=4_000)
    for step in other:
        written.append(step.frame, read_header(step.frame))
    written.sync()
    written.close()
    with replay.open(path) as log:
        assert log.export.end_offset == other[-1].batch.end_offset
    assert exports == [0, 0, 0]
    for file in sorted(path.glob("*.log")):
        whole = file.read_bytes()
        file.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
        with pytest.raises(DamagedFile):
            replay.open(path)
        file.write_bytes(whole)
    with replay.open(path) as log:
        assert log.export.end_offset == other[-1].batch.end_offset


def test_kafkas_log_is_kept_too(tmp_path: Path, exports: list[int]) -> None:
    first = [
        by_hand.batch(0, [by_hand.leader_change(1, [1])], control=2),
        by_hand.batch(1, [by_hand.topic("t", bytes(15) + b"t")]),
    ]
    log = by_hand.written(tmp_path / "kafka", first)
    assert replay.open(log).export.end_offset == 2
    with (log / PARTITION / f"{0:020d}.log").open("ab") as file:
        file.write(by_hand.batch(2, [by_hand.topic("u", bytes(15) + b"u")]))
    for _ in range(2):
        with replay.open(log) as opened:
            assert (opened.export.end_offset, len(opened.topics().fetchall())) == (3, 2)
    assert exports == [0, 2]


def test_an_open_log_outlives_the_cache(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no reader loses a file. Method: the cache is emptied, by its bound and by hand, while a log is open."""
    log = replay.open(_written(tmp_path / "a", 40))
    monkeypatch.setattr(export_cache, "CACHE_BYTES_MAX", 0)
    replay.open(_written(tmp_path / "b", 20)).close()
    entries = [entry for entry in root.iterdir() if entry.is_dir() and entry.name != "open"]
    assert len(entries) == 1, "the bound holds, and what was opened last stays"
    shutil.rmtree(entries[0])
    assert log.sql("SELECT count(*) FROM records").fetchall() == [(HISTORY[39].batch.end_offset,)]
    log.close()
    assert not list((root / "open").iterdir())


def test_a_reader_that_was_killed_leaves_nothing_for_long(tmp_path: Path, root: Path) -> None:
    path = _written(tmp_path / "log", 20)
    ran = multiprocessing.get_context("spawn").Process(target=_open_and_die, args=(path,))
    ran.start()
    ran.join()
    assert len(list((root / "open").iterdir())) == 1
    with replay.open(path):
        assert len(list((root / "open").iterdir())) == 1


def _open_and_die(path: Path) -> None:
    export_cache.CACHED_FROM_BYTES = 0  # type: ignore[misc]
    log = replay.open(path)
    assert log.export.directory.is_dir()
    os._exit(9)


def test_many_processes_open_one_log_at_once(tmp_path: Path) -> None:
    path = _written(tmp_path / "log", 60)
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert set(pool.map(_end_offset, [path] * 6)) == {END}


def _end_offset(path: Path) -> int:
    export_cache.CACHED_FROM_BYTES = 0  # type: ignore[misc]
    with replay.open(path) as log:
        ((count,),) = log.sql("SELECT count(*) FROM records").fetchall()
        return int(count)


def test_without_a_cache_a_log_is_read_all_the_same(tmp_path: Path, root: Path) -> None:
    root.parent.parent.write_text("no directory")
    with replay.open(_written(tmp_path / "log", 20)) as log:
        assert log.export.end_offset == HISTORY[19].batch.end_offset
    with pytest.raises(InvalidRequest):
        replay.open(tmp_path / "nothing")
