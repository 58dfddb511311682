"""Real processes: killed, stopped, cut short and started again; nothing acknowledged is lost, and all agree in the end."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.admin.client import ClusterClient
from ops.local.cluster import LocalCluster
from ops.local.layout import Member
from ops.waits import until_async
from quorum.node.config import ControllerSettings, SnapshotSettings
from tests.support.active import active_of, is_old
from tests.support.processes import free_port, poll_until
from tests.support.verbs import run_verb
from tests.support.wire import (
    NO_ANSWER,
    Quorum,
    ask,
    calm,
    shared,
    wait_until_all_agree,
    with_limits,
)
from tests.support.writers import Writer

pytestmark = pytest.mark.slow
DEADLINE_S = 60.0


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return json.load(answer)


def get_or_none(url: str) -> Any:
    try:
        return get(url)
    except (*NO_ANSWER, ValueError):
        return None


async def until(predicate: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Return the first true value of `predicate`; a node that does not answer is asked again."""

    async def look() -> Any:
        return await asyncio.to_thread(predicate)

    return await until_async(what, look, deadline_s=deadline_s, poll_s=0.02, failure=AssertionError)


def digests(cluster: LocalCluster, *, brokers: bool = True) -> set[tuple[int, str]]:
    """Return (end_offset, digest) of every running node, all at rest or not."""
    found = set()
    for member in cluster.controllers:
        found.add(tuple(get(f"{member.http}/v1/quorum")["digest"].values()))
    for member in cluster.brokers if brokers else ():
        found.add(tuple(get(f"{member.http}/v1/status")["digest"].values()))
    return found


async def all_agree(cluster: LocalCluster, *, brokers: bool = True) -> tuple[int, str]:
    def agreed() -> tuple[int, str] | None:
        try:
            found = digests(cluster, brokers=brokers)
        except NO_ANSWER:
            return None
        return found.pop() if len(found) == 1 else None

    agreed_on: tuple[int, str] = await until(agreed, "one digest on all nodes")
    return agreed_on


async def active_id(cluster: LocalCluster) -> int:
    return (await active_of(cluster)).controller_id


def topic(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "partitions": 3, "replication_factor": 3} | more


def run(story: Callable[[LocalCluster], Awaitable[None]], cluster: LocalCluster) -> None:
    """Run a cluster for one test. Other files use it."""

    async def main() -> None:
        async with cluster:
            # The cluster is ready when a majority is up; the stories begin with all.
            await asyncio.to_thread(wait_until_all_agree, cluster)
            await story(cluster)

    asyncio.run(main())


@pytest.fixture(scope="module")
def of_six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with shared(
        LocalCluster(tmp_path_factory.mktemp("six") / "c", controllers=3, brokers=3, adjust=calm)
    ) as running:
        yield running


@pytest.fixture(scope="module")
def of_controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three controllers with the timers of a release."""
    with shared(LocalCluster(tmp_path_factory.mktemp("three") / "c", controllers=3, brokers=0)) as running:
        yield running


@pytest.fixture
def six(of_six: LocalCluster) -> LocalCluster:
    wait_until_all_agree(of_six)
    asyncio.run(of_six.wait_until_ready())
    return of_six


@pytest.fixture
def three(of_controllers: LocalCluster) -> LocalCluster:
    wait_until_all_agree(of_controllers)
    return of_controllers


async def test_every_acknowledged_write_survives_kill_9_of_all_controllers_at_once(
    three: LocalCluster,
) -> None:
    client = three.client(timeout_s=DEADLINE_S)

    def write(number: int) -> None:
        client.write("PATCH", "/v1/configs", {"cluster": True, "set": {f"k{number}": str(number)}})

    with Writer(write) as writer:
        for _ in range(2):
            writer.goes_on("at the controllers that run", writes=21)
            for member in three.controllers:
                three.signal(member.id, signal.SIGKILL)
            for member in three.controllers:
                three.kill(member.id)
                await three.start_one(member.id)
        writer.goes_on("at the controllers that came back")
    acknowledged = writer.acknowledged
    items = three.client(timeout_s=DEADLINE_S).read("/v1/configs?cluster=1")["items"]
    names = {item["name"] for item in items}
    missing = [number for number in acknowledged if f"k{number}" not in names]
    assert not missing
    assert len(acknowledged) > 40
    await all_agree(three)


def metaquorum(cluster: LocalCluster, *words: str, code: int = 0) -> Any:
    """Return what `metaquorum WORDS` prints once the active controller answers; `code`: how it must end."""
    line = [*words, "--json", "--bootstrap", ",".join(cluster.bootstrap), "--timeout", "60s"]

    def ended() -> "subprocess.CompletedProcess[str] | None":
        done = run_verb(*line, timeout_s=2 * DEADLINE_S)
        return None if is_old(done.stderr) else done

    done = poll_until(ended, deadline_s=DEADLINE_S, what=f"the active controller answers {words}")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


async def test_a_roll_of_all_brokers_leaves_no_partition_leaderless_and_every_isr_whole(
    six: LocalCluster,
) -> None:
    client = six.client(timeout_s=DEADLINE_S)
    client.write("POST", "/v1/topics", topic("rolled", partitions=12, replication_factor=3))

    def isr_sizes() -> set[int]:
        partitions = client.read("/v1/topics/rolled")["partitions"]
        assert all(partition["leader"] in partition["isr"] for partition in partitions)
        return {len(partition["isr"]) for partition in partitions}

    foreseen = metaquorum(six, "whatif", "--lose", f"broker={six.brokers[0].id}")
    for member, how in zip(six.brokers, (signal.SIGKILL, signal.SIGTERM, signal.SIGTERM), strict=True):
        six.signal(member.id, how)
        await until(lambda: isr_sizes() == {2}, f"broker {member.id} left all ISRs")
        if how == signal.SIGKILL:
            written = metaquorum(six, "log", "dump", "--from", str(foreseen["end_offset"]))
            happened = [
                {"type": line["type"], **line["record"]}
                for line in written
                if (line["cause"] or {}).get("code") == "SESSION_EXPIRED"
            ]
            assert happened == foreseen["steps"][0]["records"], "whatif said exactly what was written"
            assert foreseen["suffering"] == []
        six.kill(member.id)
        await six.start_one(member.id)
        await until(lambda: isr_sizes() == {3}, f"broker {member.id} is in all ISRs again")
    moved = metaquorum(six, "partitions", "list", "--not-preferred")
    assert moved, "the broker that was stopped last leads nothing"
    foreseen = metaquorum(six, "partitions", "elect", "--all", "--dry-run")
    elected = metaquorum(six, "partitions", "elect", "--all")
    written = metaquorum(six, "log", "dump", "--from", str(foreseen["end_offset"]))
    assert [{"type": line["type"], **line["record"]} for line in written] == foreseen["records"]
    assert [one["error"] for one in elected] == [None] * len(moved)
    assert [one["leader"] for one in elected] == [one["preferred"] for one in moved]
    assert metaquorum(six, "partitions", "list", "--not-preferred") == []
    await all_agree(six)


async def test_a_killed_broker_is_fenced_its_leaderships_move_and_it_comes_back_with_what_it_lacked(
    six: LocalCluster,
) -> None:
    client = six.client(timeout_s=DEADLINE_S)
    client.write("POST", "/v1/topics", topic("orders", partitions=6))
    await all_agree(six)
    six.kill(11)

    def fenced() -> bool:
        return bool(client.read("/v1/brokers/11")["state"] == "OFFLINE")

    await until(fenced, "broker 11 is fenced")
    partitions = client.read("/v1/topics/orders")["partitions"]
    assert all(partition["leader"] in (12, 13) for partition in partitions)
    assert all(11 not in partition["isr"] for partition in partitions)

    def survivor_knows() -> bool:
        told = get_or_none(f"{six.http(12)}/v1/metadata")
        return told is not None and {broker["broker_id"] for broker in told["brokers"]} == {12, 13}

    await until(survivor_knows, "broker 12 heard of it")
    await six.start_one(11)
    await six.wait_until_ready()
    status = get(f"{six.http(11)}/v1/status")
    assert status["snapshots_fetched"] == 0
    assert 0 < status["records_fetched"] < status["applied_offset"]
    await all_agree(six)


async def test_another_controller_takes_over_and_the_old_one_rejoins(six: LocalCluster) -> None:
    """A34, A36: exactly one is active, and after its end exactly one other, under a higher epoch."""

    old = await active_id(six)
    epoch = get(f"{six.http(old)}/v1/quorum")["controller_epoch"]
    six.kill(old)
    six.client(timeout_s=DEADLINE_S).write("POST", "/v1/topics", topic("a"))
    new = await active_id(six)
    assert new != old
    assert get(f"{six.http(new)}/v1/quorum")["controller_epoch"] > epoch
    await six.start_one(old)
    await all_agree(six)
    states = {item["state"] for item in six.client(timeout_s=60).read("/v1/brokers")["items"]}
    assert states == {"ONLINE"}, "no broker was fenced for the controllers' own trouble"


async def test_a_controller_that_slept_answers_nothing_from_the_past(three: LocalCluster) -> None:
    """A43: another wrote meanwhile; the one that wakes up answers with what that one wrote, or not at all."""

    old = await active_id(three)
    three.signal(old, signal.SIGSTOP)
    others = [member.http for member in three.controllers if member.id != old]
    body = json.dumps({"cluster": True, "set": {"k": "new"}}).encode()

    def written() -> bool:
        for url in others:
            request = urllib.request.Request(
                f"{url}/v1/configs", body, {"Content-Type": "application/json"}, method="PATCH"
            )
            try:
                with urllib.request.urlopen(request, timeout=5):
                    return True
            except NO_ANSWER:
                continue
        return False

    await until(written, "a survivor writes")
    three.signal(old, signal.SIGCONT)
    told = get_or_none(f"{three.http(old)}/v1/configs?cluster=1")  # None: it refused
    assert told is None or "k" in {item["name"] for item in told["items"]}
    await all_agree(three)


def small_snapshots(settings: ControllerSettings) -> ControllerSettings:
    return replace(calm(settings), snapshot=SnapshotSettings(bytes=20_000, keep=1))


TAIL_ENTRIES = 100
"""A leader keeps so many entries behind its snapshot here; one of a release keeps more, which take longer to write."""


def short_tails(directory: Path) -> Callable[[Member], Mapping[str, str]]:
    here = with_limits(directory, RAFT_TAIL_ENTRIES=TAIL_ENTRIES)
    return lambda _: here


async def write_beyond_a_snapshot(cluster: LocalCluster) -> None:
    client = cluster.client(timeout_s=DEADLINE_S)
    for number in range(2 * TAIL_ENTRIES):
        client.write("PATCH", "/v1/configs", {"cluster": True, "set": {f"k{number % 10}": "x" * 600}})

    def stand_on_a_snapshot_of_all() -> bool:
        for member in cluster.controllers:
            if cluster.pid(member.id) is None:
                continue
            taken = ask(member.http, "POST", "/v1/snapshots")
            pointer = cluster.data(member.id) / "journal" / "snapshot.pointer"
            if taken.status != 201 or not pointer.exists():
                return False
            if taken.value()["id"].encode() not in pointer.read_bytes():
                return False
        return True

    # Only then is the log behind it trimmed.
    await until(
        stand_on_a_snapshot_of_all, "the journals of all that run stand on a snapshot of all that was written"
    )


async def has_installed_one(cluster: LocalCluster, node_id: int) -> bool:
    metrics = await asyncio.to_thread(ask, cluster.http(node_id), "GET", "/metrics")
    return re.search(rb"^metaquorum_snapshots_installed_total [1-9]", metrics.body, re.MULTILINE) is not None


async def test_controllers_that_were_never_started_or_lag_far_behind_catch_up_through_a_snapshot(
    tmp_path: Path,
) -> None:
    cluster = LocalCluster(
        tmp_path / "c",
        controllers=3,
        brokers=0,
        adjust=small_snapshots,
        environment=short_tails(tmp_path),
    )
    try:
        cluster.prepare()
        first, second, late = (member.id for member in cluster.controllers)
        await cluster.start_one(first)
        await cluster.start_one(second)
        await active_of(cluster)
        await write_beyond_a_snapshot(cluster)
        await cluster.start_one(late)
        await all_agree(cluster, brokers=False)
        assert await has_installed_one(cluster, late)

        leading = await active_id(cluster)
        behind = next(node_id for node_id in (first, second) if node_id != leading)
        cluster.kill(behind)
        await write_beyond_a_snapshot(cluster)
        await cluster.start_one(behind)
        await all_agree(cluster, brokers=False)
        assert await has_installed_one(cluster, behind)
        for member in cluster.controllers:
            cluster.kill(member.id)
        for member in cluster.controllers:
            await cluster.start_one(member.id)
        await all_agree(cluster, brokers=False)
    finally:
        await cluster.stop()


def run_node(role: str, config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ops.cli", role, "run", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
        env={**os.environ, "METAQUORUM_LOG": "none"},
    )


async def test_a_node_that_cannot_run_says_why_in_one_line(three: LocalCluster) -> None:
    """Each wrong directory or address: exit 6; a wrong file: exit 3; one line that says what to do, no traceback."""

    one = three.directory / three.member(1).config
    other = three.directory / "other.toml"
    text = one.read_text()

    def refused(config: Path, *words: str, code: int = 6) -> None:
        ended = run_node("controller", config)
        assert ended.returncode == code, ended.stderr
        assert "Traceback" not in ended.stderr
        for word in words:
            assert word in ended.stderr, ended.stderr

    refused(one, "in use", "stop it first")  # a second process on the same directory

    wrong = text.replace(three.cluster_id, "B" * 22)
    other.write_text(wrong)
    refused(other, "cluster")

    other.write_text(text.replace('data_dir = "', 'data_dir = "/nonexistent/'))
    refused(other, "storage format")

    other.write_text(text + "\nnonsense = 1\n")
    refused(other, "nonsense", code=3)

    three.kill(2)
    two, data = three.directory / three.member(2).config, three.data(2)
    journal = next(path for path in sorted((data / "journal").iterdir()) if path.suffix == ".journal")
    kept = journal.read_bytes()
    damaged = bytearray(kept)
    damaged[60] ^= 0x40
    journal.write_bytes(damaged)
    refused(two, journal.name)
    journal.write_bytes(kept)

    await three.start_one(2)
    await all_agree(three, brokers=False)


async def test_a_second_broker_of_the_same_id_ends_and_names_the_first(
    six: LocalCluster, tmp_path: Path
) -> None:
    twin = six.directory / "twin.toml"
    text = (six.directory / six.member(11).config).read_text()
    port = free_port()
    text = re.sub(r"^data_dir = .*$", f'data_dir = "{tmp_path / "twin"}"', text, flags=re.MULTILINE)
    text = re.sub(r"^http = .*$", f'http = "http://127.0.0.1:{port}"', text, flags=re.MULTILINE)
    text = re.sub(r"^registration_timeout_ms = .*$", "", text, flags=re.MULTILINE)
    twin.write_text("registration_timeout_ms = 15000\n" + text)  # enough for one answer
    formatted = ["storage", "format", "--config", str(twin)]
    await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "ops.cli", *formatted], check=True, capture_output=True
    )
    ended = await asyncio.to_thread(run_node, "broker", twin)
    assert ended.returncode == 3, ended.stderr
    assert "broker 11" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert get(f"{six.http(11)}/v1/status")["state"] == "ONLINE"


async def test_sigterm_stops_brokers_and_controllers_cleanly(six: LocalCluster) -> None:
    client = six.client(timeout_s=DEADLINE_S)
    client.write("POST", "/v1/topics", topic("stopped", partitions=8))
    six.signal(11, signal.SIGTERM)
    await until(lambda: six.exit_code(11) is not None, "broker 11 ends")
    assert six.exit_code(11) == 0
    assert not (six.data(11) / "process.json").exists()
    partitions = client.read("/v1/topics/a")["partitions"]
    assert all(partition["leader"] in (12, 13) for partition in partitions)
    leader = await active_id(six)
    six.signal(leader, signal.SIGTERM)
    await until(lambda: six.exit_code(leader) is not None, "the active controller ends")
    assert six.exit_code(leader) == 0
    client.write("POST", "/v1/topics", topic("written", replication_factor=2))
    await six.start_one(leader)
    await six.start_one(11)
    await six.wait_until_ready()
    await all_agree(six)


def test_leadership_is_handed_over(six: LocalCluster) -> None:
    quorum = Quorum(six)
    before = quorum.ask("GET", "/v1/quorum").value()["leader_id"]
    target = next(
        voter["id"] for voter in quorum.ask("GET", "/v1/quorum").value()["voters"] if voter["id"] != before
    )
    assert quorum.transfer(target) == target
    assert quorum.ask("GET", "/v1/quorum").value()["leader_id"] == target
    quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"handed": "over"}}).ok()
    assert quorum.ask("POST", "/v1/quorum/transfer", {"to": target}).ok() == {"leader_id": target}
    quorum.ask("POST", "/v1/quorum/transfer", {"to": 77}).error(400, "INVALID_REQUEST")
    ask(quorum.others[0], "POST", "/v1/quorum/transfer", {"to": None}).error(421, "NOT_CONTROLLER")
    assert quorum.transfer(None) != target


async def test_an_outside_broker_needs_only_msgpack_and_http(six: LocalCluster) -> None:
    """It registers, follows, is told to go, and has the state of the offset where it stopped."""

    script = Path(__file__).parents[1] / "support" / "outside_broker.py"
    outside = subprocess.Popen(
        [sys.executable, str(script), six.cluster_id, "40", *six.bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    client = six.client(timeout_s=DEADLINE_S)
    try:
        await until(lambda: state_of(client, 40) == "ONLINE", "the outside broker is online")
        client.write(
            "POST",
            "/v1/topics",
            topic("outside", assignment=[[40, 11], [11, 40]], partitions=-1, replication_factor=-1),
        )
        told, _ = await asyncio.to_thread(outside.communicate, "", DEADLINE_S)
    finally:
        outside.kill()
    last = json.loads(told)
    state = client.read(f"/v1/state?at={last['end_offset']}")
    assert (state["end_offset"], state["digest"]) == (last["end_offset"], last["digest"])
    leaders = [partition["leader"] for partition in client.read("/v1/topics/outside")["partitions"]]
    assert leaders == [11, 11]
    await all_agree(six)


def state_of(client: ClusterClient, broker_id: int) -> str | None:
    items = client.read("/v1/brokers")["items"]
    return next((item["state"] for item in items if item["broker_id"] == broker_id), None)
