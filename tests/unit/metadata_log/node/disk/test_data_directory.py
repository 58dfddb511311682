"""Edge: the owner of a data directory, its lock, and the reserve for a full disk."""

import errno
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from metadata_log.errors import DirectoryInUse, DiskFailed, ForeignDirectory
from metadata_log.ids import NodeId, Uuid, uuid_text
from metadata_log.node.disk import data_directory, disk_space
from metadata_log.node.disk.data_directory import (
    DirectoryLock,
    Meta,
    format_directory,
    is_fresh,
    let_only_join,
    load_meta,
    not_fresh_any_more,
    only_joins,
    read_meta,
    read_process_json,
    remove_process_json,
    write_process_json,
)
from metadata_log.node.disk.disk_space import Reserve, check_space
from metadata_log.node.disk.durable_files import quarantine, quarantine_copy, replace_file

CLUSTER = "C" * 22


def formatted(path: Path) -> Meta:
    return format_directory(
        path, role="controller", node_id=NodeId(1), cluster_id=CLUSTER, rng=random.Random(1)
    )


def test_a_formatted_directory_says_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    meta = formatted(path)
    assert sorted(entry.name for entry in path.iterdir()) == [
        "fresh",
        "journal",
        "log",
        "meta.json",
        "quarantine",
        "snapshots",
    ]
    assert json.loads((path / "meta.json").read_text()) == {
        "version": 1,
        "role": "controller",
        "id": 1,
        "cluster_id": CLUSTER,
        "directory_id": uuid_text(meta.directory_id),
        "crc32c": "c30f9751",
    }
    assert read_meta(path, "controller", 1, CLUSTER) == meta
    (path / "meta.json").write_text((path / "meta.json").read_text().replace('"id": 1', '"id": 3'))
    with pytest.raises(ForeignDirectory, match="checksum"):
        load_meta(path)


def test_a_broker_has_no_journal(tmp_path: Path) -> None:
    format_directory(tmp_path, role="broker", node_id=NodeId(11), cluster_id=CLUSTER, rng=random.Random(1))
    assert not (tmp_path / "journal").exists()
    assert not is_fresh(tmp_path)


def test_a_directory_is_fresh_until_its_journal_is_begun(tmp_path: Path) -> None:
    formatted(tmp_path)
    assert is_fresh(tmp_path)
    for _ in range(2):
        not_fresh_any_more(tmp_path)
        assert not is_fresh(tmp_path)


def test_what_a_disk_does_not_give_is_zeros_in_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir()
    damaged = tmp_path / "log" / "file"
    damaged.write_bytes(bytes(range(1, 251)) * 40)
    read = os.pread

    def failing(fd: int, size: int, at: int) -> bytes:
        if at == 4096:
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, size, at)

    monkeypatch.setattr("os.pread", failing)
    copy = quarantine_copy(damaged).read_bytes()
    whole = damaged.read_bytes()
    assert copy == whole[:4096] + bytes(4096) + whole[8192:]


def test_nothing_is_formatted_twice(tmp_path: Path) -> None:
    meta = formatted(tmp_path)
    with pytest.raises(ForeignDirectory, match=r"already formatted for controller 1.*move it away"):
        formatted(tmp_path)
    assert read_meta(tmp_path, "controller", 1, CLUSTER) == meta
    (tmp_path / "meta.json").unlink()
    (tmp_path / "journal" / "1.journal").write_bytes(b"votes")
    with pytest.raises(ForeignDirectory, match=r"journal: holds files.*meta\.json is gone"):
        formatted(tmp_path)


@pytest.mark.parametrize("name", ["notes.txt", "lock", "reserve", "PG_VERSION"])
def test_what_lies_there_is_not_formatted_over(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("somebody's")
    with pytest.raises(ForeignDirectory, match=rf"holds {name}, .* move it away"):
        formatted(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_directory_that_only_joins_keeps_its_mark_and_loses_that_of_a_format_cut_short(
    tmp_path: Path,
) -> None:
    joins, cut_short = tmp_path / "a", tmp_path / "b"
    meta = format_directory(
        joins,
        role="controller",
        node_id=NodeId(1),
        cluster_id=CLUSTER,
        rng=random.Random(1),
        only_joins=True,
    )
    not_fresh_any_more(joins)
    assert load_meta(joins) == meta
    assert only_joins(joins)
    cut_short.mkdir()
    (cut_short / "joins").touch()
    formatted(cut_short)
    assert not only_joins(cut_short)
    let_only_join(cut_short)
    assert only_joins(cut_short)


def test_a_format_cut_short_is_taken_up_again(tmp_path: Path) -> None:
    for folder in ("journal", "log", "lost+found", ".snapshots"):
        (tmp_path / folder).mkdir()
    (tmp_path / "meta.json.part").write_text("{")
    assert formatted(tmp_path) == load_meta(tmp_path)


@pytest.mark.parametrize(
    ("role", "node_id", "cluster_id", "says"),
    [
        ("controller", 1, "D" * 22, r"belongs to cluster C+, but the settings say D+"),
        ("broker", 1, CLUSTER, "belongs to role controller, but the settings say broker"),
        ("controller", 2, CLUSTER, "belongs to node 1, but the settings say 2"),
    ],
)
def test_a_foreign_directory_is_refused(
    tmp_path: Path, role: data_directory.Role, node_id: int, cluster_id: str, says: str
) -> None:
    formatted(tmp_path)
    with pytest.raises(ForeignDirectory, match=says):
        read_meta(tmp_path, role, node_id, cluster_id)


def test_an_unformatted_directory_is_told_its_cure(tmp_path: Path) -> None:
    with pytest.raises(ForeignDirectory, match="metaquorum storage format --config FILE"):
        read_meta(tmp_path, "controller", 1, CLUSTER)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"version":2,"crc32c":"0"}',
        b'{"version":1,"role":"king"}',
        b'{"version":1,"role":"broker"}',
    ],
)
def test_a_damaged_meta_json_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "meta.json").write_bytes(content)
    with pytest.raises(ForeignDirectory, match=r"meta\.json: does not say whose"):
        read_meta(tmp_path, "broker", 11, CLUSTER)


def test_one_process_holds_the_lock(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path):
        with pytest.raises(DirectoryInUse, match="in use by another process"):
            DirectoryLock(tmp_path).acquire()
        told(tmp_path, pid=os.getpid())
        with pytest.raises(DirectoryInUse, match=f"in use by process {os.getpid()}: stop it first"):
            DirectoryLock(tmp_path).acquire()
        killed = subprocess.Popen([sys.executable, "-c", ""])
        killed.wait()
        told(tmp_path, pid=killed.pid)  # the holder has not told of itself yet
        with pytest.raises(DirectoryInUse, match="in use by another process: stop it first"):
            DirectoryLock(tmp_path).acquire()
    with DirectoryLock(tmp_path):
        pass


def test_a_process_that_dies_leaves_the_lock_free(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from metadata_log.node.disk.data_directory import DirectoryLock\n"
        "DirectoryLock(Path(sys.argv[1])).acquire(); os.kill(os.getpid(), 9)"
    )
    died = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=False, cwd=Path(__file__).parents[5]
    )
    assert died.returncode == -9
    DirectoryLock(tmp_path).acquire()


def test_a_program_that_the_process_becomes_holds_the_lock(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from metadata_log.node.disk.data_directory import DirectoryLock\n"
        "lock = DirectoryLock(Path(sys.argv[1])); lock.acquire(); lock.outlive_exec(); os.execvp('cat', ['cat'])"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    root = Path(__file__).parents[5]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"here\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"here\n"
        with pytest.raises(DirectoryInUse):
            DirectoryLock(tmp_path).acquire()
        process.stdin.close()
    DirectoryLock(tmp_path).acquire()


def test_who_is_asked_about_goes_on_living() -> None:
    mortal = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); print('up', flush=True); input()"
    command = [sys.executable, "-c", mortal]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert data_directory.is_alive(process.pid)
        process.communicate(b"\n")
    assert process.returncode == 0
    assert not data_directory.is_alive(process.pid)


def told(path: Path, *, pid: int) -> None:
    write_process_json(
        path,
        role="broker",
        node_id=11,
        pid=pid,
        incarnation_id=Uuid(bytes(range(16))),
        http="http://127.0.0.1:1",
        raft=None,
        started_at_ms=5,
        log="broker.log",
    )


def test_process_json_is_as_the_format_says(tmp_path: Path) -> None:
    assert read_process_json(tmp_path) is None
    told(tmp_path, pid=os.getpid())
    assert read_process_json(tmp_path) == {
        "version": 1,
        "role": "broker",
        "id": 11,
        "pid": os.getpid(),
        "incarnation_id": "AAECAwQFBgcICQoLDA0ODw",
        "http": "http://127.0.0.1:1",
        "raft": None,
        "kafka": None,
        "started_at_ms": 5,
        "log": "broker.log",
    }
    remove_process_json(tmp_path)
    remove_process_json(tmp_path)
    assert read_process_json(tmp_path) is None
    (tmp_path / "process.json").write_bytes(b"{")
    assert read_process_json(tmp_path) is None


def test_quarantine_gives_each_file_a_place(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for number, name in enumerate(("x.log", "x.log.1", "x.log.2")):
        path = tmp_path / "log" / "x.log"
        path.write_text(str(number))
        assert quarantine(path) == tmp_path / "quarantine" / name
        assert (tmp_path / "quarantine" / name).read_text() == str(number)
        assert not path.exists()


def test_a_replaced_file_is_whole(tmp_path: Path) -> None:
    for content in (b"one", b"two"):
        replace_file(tmp_path / "f", content)
        assert (tmp_path / "f").read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


def test_an_error_of_the_disk_names_path_and_cure(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    with pytest.raises(DiskFailed, match=rf"{missing}.*No such file.*see who moved"):
        replace_file(missing / "f", b"")


def test_the_reserve_is_given_back_to_a_full_disk_by_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 10_000
    monkeypatch.setattr(disk_space, "free_bytes", lambda _: free)
    reserve = Reserve(tmp_path, size=1_000)
    assert reserve.at_start() == "made"
    assert (tmp_path / "reserve").stat().st_size == 1_000
    assert reserve.at_start() == "kept"
    free = 999
    assert reserve.at_start() == "released"
    assert not (tmp_path / "reserve").exists()
    assert reserve.at_start() == "no room"
    free = 2_999
    assert reserve.at_start() == "no room", "making it again would fill the disk"
    free = 3_000
    assert reserve.at_start() == "made"


def test_space_is_asked_for_by_path_and_bytes(tmp_path: Path) -> None:
    check_space(tmp_path, 1)
    with pytest.raises(DiskFailed, match=rf"{tmp_path}: only \d+ bytes are free and {10**18} are needed"):
        check_space(tmp_path, 10**18)


@pytest.mark.parametrize("how", ["removed", "replaced", "moved", "emptied"])
def test_a_data_directory_that_goes_while_a_process_runs_in_it_is_noticed(tmp_path: Path, how: str) -> None:
    """Otherwise it writes on, without an error, into files that no path names."""
    data = tmp_path / "data"
    data.mkdir()
    with DirectoryLock(data) as lock:
        lock.check()
        match how:
            case "removed":
                (data / "lock").unlink()
                data.rmdir()
            case "replaced":
                data.rename(tmp_path / "old")
                data.mkdir()
                (data / "lock").touch()
            case "moved":
                data.rename(tmp_path / "old")
            case "emptied":
                (data / "lock").unlink()
        with pytest.raises(DiskFailed, match="data"):
            lock.check()
