"""A controller whose files of the committed log were damaged has them again from its peers."""

import asyncio
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from metadata_log.limits import FRAME_BYTES_MAX
from ops import cli
from quorum.node.config import ControllerSettings
from tests.support.processes import poll_until
from tests.support.wire import (
    FRAME,
    NO_ANSWER,
    Quorum,
    Reply,
    ask,
    controllers,
    frames_of,
    wait_until_all_agree,
)

pytestmark = pytest.mark.slow


def _small_segments(settings: ControllerSettings) -> ControllerSettings:
    return replace(settings, log=replace(settings.log, segment_bytes=FRAME_BYTES_MAX))


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Quorum]:
    with _with_closed_files(tmp_path / "c") as running:
        yield running


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    """The same for the tests behind each of which every controller has all again, and reports nothing."""
    with _with_closed_files(tmp_path_factory.mktemp("repaired") / "c") as running:
        yield running


@contextmanager
def _with_closed_files(directory: Path) -> Iterator[Quorum]:
    """Run three controllers with two closed files of the log each."""
    with controllers(directory, adjust=_small_segments) as running:
        for number in range(46):
            body = {"cluster": True, "set": {f"k{key}": f"{number:09} " * 3_000 for key in range(5)}}
            running.ask("PATCH", "/v1/configs", body).ok()
        _wait_until_written(running)
        yield running


def _follower(quorum: Quorum) -> int:
    leader = quorum.ask("GET", "/v1/quorum").value()["leader_id"]
    return next(member.id for member in quorum.cluster.controllers if member.id != leader)


def _files(quorum: Quorum, node_id: int) -> list[Path]:
    return sorted((quorum.cluster.data(node_id) / "log").glob("*.log"))


def _wait_until_written(quorum: Quorum) -> None:
    """Wait until the files of every controller hold all that is committed: its state is ahead of them for a moment."""
    wait_until_all_agree(quorum.cluster)
    end = quorum.ask("GET", "/v1/quorum").ok()["high_watermark"]
    for member in quorum.cluster.controllers:
        poll_until(
            partial(_holds, quorum, member.id, end),
            deadline_s=60,
            what=f"{end} is in the files of {member.id}",
        )


def _holds(quorum: Quorum, node_id: int, end_offset: int) -> bool:
    try:
        return frames_of(_files(quorum, node_id)[-1].read_bytes())[-1].end_offset >= end_offset
    except (IndexError, struct.error, ValueError):
        return False  # a new file, or a frame that is being written


def _damage(path: Path, at: int) -> None:
    """Flip a bit in place, under whoever writes to the file."""
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def _contents(quorum: Quorum, node_id: int) -> list[bytes]:
    return [path.read_bytes() for path in _files(quorum, node_id)]


def _kept(quorum: Quorum, node_id: int) -> set[str]:
    """Return the names of the damaged files that are kept, each time under another one."""
    return {path.name for path in (quorum.cluster.data(node_id) / "quarantine").iterdir()}


def _wait_until_whole(quorum: Quorum, node_id: int, wanted: list[bytes], *, kept_before: set[str]) -> None:
    poll_until(
        lambda: _contents(quorum, node_id)[: len(wanted)] == wanted,
        deadline_s=60,
        what="the log is whole again",
    )
    poll_until(lambda: _is_up(quorum, node_id), deadline_s=60, what="it is ready")
    assert _kept(quorum, node_id) > kept_before, "the damaged file is kept"


def _wait_until_it_says(quorum: Quorum, node_id: int, reasons: list[str]) -> None:
    """Wait until these lasting conditions are all that a controller reports: others pass, such as a link that is made."""
    poll_until(
        lambda: _is_up(quorum, node_id) and _reasons(quorum, node_id) == reasons,
        deadline_s=60,
        what=f"{node_id} reports {reasons}",
    )


def test_a_file_that_rotted_is_replaced_by_what_a_peer_has(repaired: Quorum) -> None:
    quorum = repaired
    victim = _follower(quorum)
    wanted = _contents(quorum, victim)[:-1]
    assert len(wanted) >= 2
    _take_snapshot(quorum, victim)
    quorum.cluster.kill(victim)
    assert cli.main(["log", "verify", str(quorum.cluster.data(victim))]) == 0, (
        "its journal and pointer among it"
    )
    before = _kept(quorum, victim)
    _damage(_files(quorum, victim)[0], 1_000_000)
    asyncio.run(quorum.cluster.start_one(victim))
    _wait_until_whole(quorum, victim, wanted, kept_before=before)
    _wait_until_it_says(quorum, victim, [])
    metrics = ask(quorum.cluster.http(victim), "GET", "/metrics").body.decode()
    assert "metaquorum_log_files_repaired_total 1.0" in metrics


def _take_snapshot(quorum: Quorum, node_id: int) -> None:
    """Take one, and wait until the journal stands on it. Whoever is taking one already has to be asked again."""
    taken = poll_until(
        lambda: reply if (reply := _asked_for_a_snapshot(quorum, node_id)).status == 201 else None,
        deadline_s=60,
        what="a snapshot is taken",
    )
    assert taken is not None
    name = taken.ok(201)["id"].encode()
    pointer = quorum.cluster.data(node_id) / "journal" / "snapshot.pointer"
    poll_until(
        lambda: pointer.exists() and name in pointer.read_bytes(),
        deadline_s=60,
        what="the pointer is written",
    )


def _asked_for_a_snapshot(quorum: Quorum, node_id: int) -> Reply:
    return ask(quorum.cluster.http(node_id), "POST", "/v1/snapshots")


def _is_up(quorum: Quorum, node_id: int) -> bool:
    try:
        return bool(ask(quorum.cluster.http(node_id), "GET", "/readyz").status == 200)
    except NO_ANSWER:
        return False


def _reasons(quorum: Quorum, node_id: int) -> list[str]:
    told = ask(quorum.cluster.http(node_id), "GET", "/readyz").value()
    return [reason["code"] for reason in told["reasons"]]


def test_a_file_that_rots_while_it_is_read_stops_nobody(repaired: Quorum) -> None:
    quorum = repaired
    victim = _follower(quorum)
    wanted = _contents(quorum, victim)[:-1]
    _take_snapshot(quorum, victim)
    quorum.cluster.kill(victim)
    asyncio.run(quorum.cluster.start_one(victim))
    poll_until(lambda: _is_up(quorum, victim), deadline_s=60, what="it runs")
    before = _kept(quorum, victim)
    _damage(_files(quorum, victim)[0], 1_000_000)
    url, whole = quorum.cluster.http(victim), "/v1/log?consistency=stale&from=0&max_bytes=8388608"

    def is_met() -> bool:
        page = ask(url, "GET", whole)
        return page.status != 200 or len(page.body) <= 1_000_000 or _kept(quorum, victim) > before

    poll_until(is_met, deadline_s=60, what="a reader meets the damage")
    assert quorum.cluster.exit_code(victim) is None
    _wait_until_whole(quorum, victim, wanted, kept_before=before)
    poll_until(lambda: ask(url, "GET", whole).status == 200, deadline_s=60, what="all of it is read again")


@pytest.mark.parametrize("which", [0, -1], ids=["a closed file", "the file that is written"])
def test_a_frame_whose_header_rots_is_replaced_while_all_goes_on(repaired: Quorum, which: int) -> None:
    """Goal: readers at that very place, and by time, are told; the leader itself leads on, and has the file again."""
    quorum = repaired
    leader = quorum.ask("GET", "/v1/quorum").value()["leader_id"]
    url = quorum.cluster.http(leader)
    wanted = b"".join(_contents(quorum, leader))
    before, times = _kept(quorum, leader), _times_repaired(url)
    path = _files(quorum, leader)[which]
    content = path.read_bytes()
    frames = frames_of(content)
    rotten = frames[len(frames) // 2]
    _damage(path, content.index(rotten.crc.to_bytes(4)) - FRAME.size + 4)
    until = quorum.ask("GET", "/v1/quorum").value()["high_watermark"] - 1  # so that it is read from the disk
    by_time = ask(url, "GET", f"/v1/log?from=t{rotten.time_ms}&until={until}")
    assert by_time.status in (200, 503)
    told = ask(url, "GET", f"/v1/log?from={rotten.base_offset}&until={until}")
    assert told.status == 200 or told.error(503, "KAFKA_STORAGE_ERROR")
    quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"k": "after"}}).ok()
    poll_until(
        lambda: b"".join(_contents(quorum, leader)).startswith(wanted),
        deadline_s=60,
        what="the log is whole again",
    )
    assert quorum.cluster.exit_code(leader) is None
    _wait_until_it_says(quorum, leader, [])
    (name,) = _kept(quorum, leader) - before
    kept = (quorum.cluster.data(leader) / "quarantine" / name).read_bytes()
    assert kept != content[: len(kept)], "the damaged file is kept"
    poll_until(
        lambda: ask(url, "GET", f"/v1/log?from={rotten.base_offset}&until={until}").status == 200,
        deadline_s=60,
        what="it is read again",
    )
    assert _times_repaired(url) == times + 1


def _times_repaired(url: str) -> float:
    metrics = ask(url, "GET", "/metrics").body.decode()
    (value,) = re.findall(r"^metaquorum_log_files_repaired_total (\S+)$", metrics, re.MULTILINE)
    return float(value)


def test_an_end_that_was_lost_below_the_snapshot_is_fetched_before_it_goes_on(quorum: Quorum) -> None:
    victim = _follower(quorum)
    _take_snapshot(quorum, victim)
    wanted = _contents(quorum, victim)
    quorum.cluster.kill(victim)
    last = _files(quorum, victim)[-1]
    _damage(last, 10_000)
    asyncio.run(quorum.cluster.start_one(victim))
    poll_until(lambda: _is_up(quorum, victim), deadline_s=60, what="it runs")
    _wait_until_whole(quorum, victim, wanted[:-1], kept_before=set())
    # The last file may have grown by what was claimed meanwhile.
    poll_until(
        lambda: _contents(quorum, victim)[-1].startswith(wanted[-1]),
        deadline_s=60,
        what="the last file is whole",
    )
    _wait_until_it_says(quorum, victim, ["LOG_CUT"])
    quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"k": "after"}}).ok()


def _cut(path: Path, by: int) -> None:
    os.truncate(path, path.stat().st_size - by)


LOSSES: dict[str, Callable[[list[Path]], object]] = {
    "the last file": lambda files: files[-1].unlink(),
    "all of the last file": lambda files: os.truncate(files[-1], 0),
    "a piece of its end": lambda files: _cut(files[-1], 5),
    "all files": lambda files: subprocess.run(["rm", *map(str, files)], check=True),
    "the directory": lambda files: shutil.rmtree(files[0].parent),
}


def _has_grown(quorum: Quorum, node_id: int, size: int) -> bool:
    return len(b"".join(_contents(quorum, node_id))) > size


def test_what_a_log_lost_without_a_trace_is_fetched_too(
    repaired: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is gone, or short as after a crash, is no damage; but the journal stands on a snapshot beyond it."""
    quorum = repaired
    victim = _follower(quorum)
    _take_snapshot(quorum, victim)
    for lost, lose in LOSSES.items():
        wanted = b"".join(_contents(quorum, victim))
        quorum.cluster.kill(victim)
        lose(_files(quorum, victim))
        assert cli.main(["log", "verify", str(quorum.cluster.data(victim))]) == 6, lost
        assert "ops/runbooks/damaged-segment.md" in capsys.readouterr().err, lost
        asyncio.run(quorum.cluster.start_one(victim))
        poll_until(lambda: _is_up(quorum, victim), deadline_s=60, what="it runs")
        grown = partial(_has_grown, quorum, victim, len(wanted))
        poll_until(grown, deadline_s=60, what="the registration of this start is in its log")
        assert b"".join(_contents(quorum, victim)).startswith(wanted), lost
        _wait_until_it_says(quorum, victim, [])
        told = ask(quorum.cluster.http(victim), "GET", "/readyz").value()
        assert "LOG_COMPLETED" in {fault["code"] for fault in told["recent_warnings"]}, lost
        _take_snapshot(quorum, victim)
        _wait_until_written(quorum)


def test_what_a_log_lost_and_nobody_has_is_said(
    quorum: Quorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are stopped: this node asks them in vain, for a second here, and says what it lacks."""
    victim = _follower(quorum)
    _take_snapshot(quorum, victim)
    others = [member.id for member in quorum.cluster.controllers if member.id != victim]
    for node_id in (victim, *others):
        quorum.cluster.kill(node_id)
    _files(quorum, victim)[-1].unlink()
    first = tmp_path / "first"
    first.mkdir()
    (first / "sitecustomize.py").write_text(
        "import quorum.log.completion\nquorum.log.completion.COMPLETE_LOG_MS = 1_000\n"
    )
    with monkeypatch.context() as impatient:
        impatient.setenv("PYTHONPATH", str(first), prepend=os.pathsep)
        asyncio.run(quorum.cluster.start_one(victim))

    def gave_up() -> bool:
        try:
            return "LOG_CUT" in _reasons(quorum, victim)
        except NO_ANSWER:
            return False

    poll_until(gave_up, deadline_s=60, what="it goes on without what it lacks")
    for node_id in others:
        asyncio.run(quorum.cluster.start_one(node_id))
    _wait_until_it_says(quorum, victim, ["LOG_CUT"])
    assert list((quorum.cluster.data(victim) / "quarantine").iterdir()), "what it held is kept"


def test_a_snapshot_that_rotted_is_named_by_whoever_meets_it(quorum: Quorum) -> None:
    node_id = quorum.ask("GET", "/v1/quorum").value()["leader_id"]
    _take_snapshot(quorum, node_id)
    (path,) = (quorum.cluster.data(node_id) / "snapshots").glob("*.snapshot")
    _damage(path, path.stat().st_size // 2)
    end = quorum.ask("GET", "/v1/brokers").ok()["end_offset"]
    quorum.ask("GET", f"/v1/state?at={end}").ok()
    _wait_until_it_says(quorum, node_id, ["SNAPSHOT_SET_ASIDE"])
    metrics = ask(quorum.cluster.http(node_id), "GET", "/metrics").body.decode()
    assert 'metaquorum_health_reason{code="SNAPSHOT_SET_ASIDE"} 1.0' in metrics
    assert (quorum.cluster.data(node_id) / "quarantine" / path.name).exists()


def test_a_snapshot_that_rotted_is_not_served_and_another_is_taken(quorum: Quorum) -> None:
    """Goal: who is far behind gets on. The bytes at rest are read before they are sent, not only as they were written."""
    node_id = quorum.ask("GET", "/v1/quorum").value()["leader_id"]
    url = quorum.cluster.http(node_id)
    _take_snapshot(quorum, node_id)
    (path,) = (quorum.cluster.data(node_id) / "snapshots").glob("*.snapshot")
    assert ask(url, "GET", f"/v1/metadata/snapshots/{path.stem}").body == path.read_bytes()
    quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"k": "v"}}).ok()
    _damage(path, path.stat().st_size // 2)
    refused = ask(url, "GET", f"/v1/metadata/snapshots/{path.stem}")
    assert refused.status == 404
    assert refused.value()["error"] == "SNAPSHOT_NOT_FOUND"

    def offered() -> list[str]:
        return [offer["id"] for offer in ask(url, "GET", "/v1/snapshots").value()["items"]]

    poll_until(lambda: len(offered()) > 0, deadline_s=60, what="another is taken")
    (other,) = offered()
    assert other > path.stem
    assert ask(url, "GET", f"/v1/metadata/snapshots/{other}").status == 200
    _wait_until_it_says(quorum, node_id, ["SNAPSHOT_SET_ASIDE"])


def test_a_snapshot_that_rotted_is_found_though_nobody_asks_for_it(quorum: Quorum) -> None:
    victim = _follower(quorum)
    _take_snapshot(quorum, victim)
    quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"k": "v"}}).ok()
    wait_until_all_agree(quorum.cluster)
    _take_snapshot(quorum, victim)
    older, _ = sorted((quorum.cluster.data(victim) / "snapshots").glob("*.snapshot"))
    quorum.cluster.kill(victim)
    _damage(older, older.stat().st_size // 2)
    asyncio.run(quorum.cluster.start_one(victim))
    set_aside = quorum.cluster.data(victim) / "quarantine" / older.name
    poll_until(set_aside.exists, deadline_s=60, what="the scrub has found it")
    _wait_until_it_says(quorum, victim, ["SNAPSHOT_SET_ASIDE"])


def test_a_voter_whose_journal_lost_its_end_or_is_gone_does_not_go_on(
    quorum: Quorum, capfd: pytest.CaptureFixture[str]
) -> None:
    """Goal: sectors of zeros, which look like a torn end, are told from one by the log, which reaches further; and
    no controller begins a second history, whatever else is gone.
    """
    victim = _follower(quorum)
    _take_snapshot(quorum, victim)
    quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"k": "v" * 2_000}}).ok()
    _wait_until_written(quorum)
    quorum.cluster.kill(victim)
    files = sorted((quorum.cluster.data(victim) / "journal").glob("*.journal"))
    file = max(file for file in files if b"MQJB" in file.read_bytes())
    whole = file.read_bytes()
    at = whole.rindex(b"v" * 1_000) // 512 * 512
    file.write_bytes(whole[:at] + bytes(len(whole) - at))
    _assert_refused(quorum, victim, capfd, "journal: ends below offset")
    data = quorum.cluster.data(victim)
    for lost in ("journal", "log", "snapshots"):
        for file in (data / lost).iterdir():
            file.unlink()
        _assert_refused(quorum, victim, capfd, "journal: is empty, though it was begun")
        assert list((data / "journal").iterdir()) == []


def _assert_refused(quorum: Quorum, node_id: int, capfd: pytest.CaptureFixture[str], why: str) -> None:
    """Start a controller whose journal is lost: it ends, and says what to do."""
    config = quorum.cluster.directory / quorum.cluster.member(node_id).config
    assert cli.main(["controller", "run", "--config", str(config)]) == 6
    said = capfd.readouterr().err
    assert "DamagedFile" in said
    assert why in said
    quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"k": "the others serve on"}}).ok()
    assert "metaquorum quorum replace-voter" in said
