"""A full disk stops a controller cleanly, the others go on, and it recovers when there is room."""

import asyncio
import errno
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from metadata_log.limits import JOURNAL_FILE_BYTES
from ops.local.cluster import LocalCluster
from tests.support.processes import poll_until
from tests.support.wire import NO_ANSWER, Quorum, ask, calm, wait_until_all_agree

pytestmark = pytest.mark.slow
VICTIM = 2
DISK = "96m"
"""Two journal files, the reserve, and some room for what is written here."""


class Disk(Protocol):
    """The victim's disk, which can be made to refuse."""

    def starve_snapshots(self) -> None: ...

    def starve(self, pid: int) -> None: ...

    def feed(self) -> None: ...


class SmallDisk:
    """A file system of its own, filled up by a file that is in nobody's way."""

    def __init__(self, directory: Path) -> None:
        self._junk = directory / "junk"

    def starve_snapshots(self) -> None:
        self.starve(0)

    def starve(self, pid: int) -> None:
        with self._junk.open("ab", buffering=0) as file:
            for piece in (bytes(65_536), bytes(1)):
                try:
                    while True:
                        file.write(piece)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def feed(self) -> None:
        self._junk.unlink(missing_ok=True)


class SmallAllowance:
    """Where no file system may be mounted: a directory without rights, and a process that may write no more."""

    def __init__(self, directory: Path) -> None:
        self._snapshots = directory / "snapshots"

    def starve_snapshots(self) -> None:
        self._snapshots.chmod(0o500)

    def starve(self, pid: int) -> None:
        self.feed()
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def feed(self) -> None:
        self._snapshots.chmod(0o700)


@pytest.fixture
def victims(tmp_path: Path) -> Iterator[tuple[Quorum, Disk]]:
    """Three controllers, one of them on a small disk."""
    directory = tmp_path / "c"
    data = directory / f"controller-{VICTIM}"
    data.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(data)], capture_output=True, check=False
    )
    disk: Disk = SmallDisk(data) if mounted.returncode == 0 else SmallAllowance(data)
    cluster = LocalCluster(directory, controllers=3, brokers=0, adjust=calm)
    try:
        asyncio.run(cluster.start())
        wait_until_all_agree(cluster)
        poll_until(
            lambda: len(room := journal_sizes(data)) == 2 and set(room) == {JOURNAL_FILE_BYTES},
            deadline_s=60,
            what="the journal's next file is made",
        )
        yield Quorum(cluster), disk
    finally:
        asyncio.run(cluster.stop())
        if mounted.returncode == 0:
            subprocess.run(["umount", str(data)], check=True)


def journal_sizes(data: Path) -> list[int]:
    return [path.stat().st_size for path in (data / "journal").glob("*.journal")]


def write(quorum: Quorum, number: int) -> None:
    body = {"cluster": True, "set": {f"k{number % 20}": f"{number} " * 5_000}}
    quorum.ask("PATCH", "/v1/configs", body).ok()


def write_until_it_stops(quorum: Quorum) -> None:
    """Write until the victim cannot keep what it is sent, or, when it leads, what it is asked."""
    for number in range(1_000):
        try:
            write(quorum, number)
        except (*NO_ANSWER, AssertionError):
            # It led, and took the answer to this write with it; from any other controller this is a fault.
            poll_until(
                lambda: quorum.cluster.exit_code(VICTIM) is not None, deadline_s=60, what="the victim ends"
            )
        if quorum.cluster.exit_code(VICTIM) is not None:
            return
    raise AssertionError("it never ran out of room")


def check_that_it_stopped_cleanly(cluster: LocalCluster, *words: str) -> None:
    """Exit 6 and one line: what, where, and what to do."""
    poll_until(lambda: cluster.exit_code(VICTIM) is not None, deadline_s=60, what="the victim ends")
    assert cluster.exit_code(VICTIM) == 6
    said = (cluster.directory / f"controller-{VICTIM}.stderr").read_text()
    assert said.count("\n") == 1
    assert "Traceback" not in said
    for word in (str(cluster.data(VICTIM)), *words):
        assert word in said


def health(quorum: Quorum) -> tuple[int, str]:
    told = subprocess.run(
        [
            sys.executable,
            "-m",
            "ops.cli",
            "quorum",
            "health",
            "--expect-brokers",
            "0",
            "--bootstrap",
            ",".join(quorum.cluster.bootstrap),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return told.returncode, told.stdout


def yellow(quorum: Quorum) -> str:
    """Return what `quorum health` says if it exits with 10, else nothing."""
    code, said = health(quorum)
    return said if code == 10 else ""


def test_a_controller_on_a_full_disk_stops_and_recovers(victims: tuple[Quorum, Disk]) -> None:
    quorum, disk = victims
    cluster = quorum.cluster
    write(quorum, 0)
    pid = cluster.pid(VICTIM)
    assert pid is not None
    disk.starve(pid)
    write_until_it_stops(quorum)
    check_that_it_stopped_cleanly(cluster, "then start again")
    for number in range(3):
        write(quorum, number)  # the other two go on
    reserve = cluster.data(VICTIM) / "reserve"
    if isinstance(disk, SmallDisk):
        # Started on the full disk it lives on its reserve, and is well for a while.
        asyncio.run(cluster.start_one(VICTIM))
        wait_until_all_agree(quorum.cluster)
        assert not reserve.exists()
        disk.starve(0)
        write_until_it_stops(quorum)
        asyncio.run(cluster.start_one(VICTIM))
        check_that_it_stopped_cleanly(cluster, "bytes are free", "then start the node again")
    disk.feed()
    asyncio.run(cluster.start_one(VICTIM))
    wait_until_all_agree(quorum.cluster)
    write(quorum, 7)
    wait_until_all_agree(quorum.cluster)
    poll_until(lambda: health(quorum)[0] == 0, deadline_s=60, what="the quorum is healthy")


def test_a_snapshot_that_cannot_be_written_is_abandoned(victims: tuple[Quorum, Disk]) -> None:
    quorum, disk = victims
    cluster = quorum.cluster
    disk.starve_snapshots()
    refused = ask(cluster.http(VICTIM), "POST", "/v1/snapshots")
    assert "snapshots" in refused.error(429, "THROTTLING_QUOTA_EXCEEDED")["message"]
    assert list((cluster.data(VICTIM) / "snapshots").iterdir()) == []

    def is_ready_and_complains() -> bool:
        told = ask(cluster.http(VICTIM), "GET", "/readyz").value()
        codes = {reason["code"] for reason in told["reasons"]}
        return told["ready"] and {"SNAPSHOT_FAILED"} <= codes <= {"SNAPSHOT_FAILED", "DISK_NEARLY_FULL"}

    # A busy machine may give it another reason for a moment.
    poll_until(is_ready_and_complains, deadline_s=60, what="it is ready, and says that it took no snapshot")
    said = poll_until(lambda: yellow(quorum), deadline_s=60, what="the quorum is yellow")
    assert said.startswith("yellow")
    assert str(cluster.data(VICTIM) / "snapshots") in said
    disk.feed()
    ask(cluster.http(VICTIM), "POST", "/v1/snapshots").ok(201)
    poll_until(
        lambda: ask(cluster.http(VICTIM), "GET", "/readyz").ok()["reasons"] == [],
        deadline_s=60,
        what="the victim has nothing to complain of",
    )
    poll_until(lambda: health(quorum)[0] == 0, deadline_s=60, what="the quorum is healthy")
    assert cluster.exit_code(VICTIM) is None
    assert list((cluster.data(VICTIM) / "quarantine").iterdir()) == []
