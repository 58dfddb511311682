"""Edge: the plan, files, ports and processes of a local cluster; no node is started here."""

import asyncio
import errno
import fcntl
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import pytest

from metadata_log.errors import DirectoryInUse, InvalidSettings
from metadata_log.ids import Uuid, uuid_text
from metadata_log.node.addresses import address_text, read_address
from metadata_log.node.disk.data_directory import DirectoryLock, load_meta, write_process_json
from ops.java_properties import read_properties
from ops.local.cluster import Active, ClusterMismatch, LocalCluster
from ops.local.layout import free_ports, read_cluster_file
from ops.local.member_processes import ended_with
from ops.processes import is_locked, running_process
from ops.settings import load_broker_settings, load_controller_settings
from tests.support.processes import poll_until

ROOT: Final = Path(__file__).parents[4]


def prepared(
    directory: Path, *, controllers: int | None = None, brokers: int | None = None, single: bool = False
) -> LocalCluster:
    cluster = LocalCluster(directory, controllers=controllers, brokers=brokers, single=single)
    cluster.prepare()
    cluster._release()
    return cluster


def cluster_json(directory: Path) -> dict[str, object]:
    told: dict[str, object] = json.loads((directory / "cluster.json").read_bytes())
    return told


def test_cluster_json_is_as_specified(tmp_path: Path) -> None:
    cluster = prepared(tmp_path / "c", controllers=2, brokers=1)
    told = cluster_json(tmp_path / "c")
    assert list(told) == [
        *("version", "cluster_id", "state", "pid", "started_at_ms", "bootstrap", "controllers", "brokers"),
    ]
    assert (told["version"], told["state"], told["pid"]) == (1, "starting", os.getpid())
    assert told["bootstrap"] == [member.http for member in cluster.controllers]
    first = cluster.controllers[0]
    assert cluster.controllers[0].to_json() == {
        "id": 1,
        "http": first.http,
        "raft": first.raft,
        "directory_id": first.directory_id,
        "config": "controller-1.toml",
        "data": "controller-1",
    }
    assert list(cluster.brokers[0].to_json()) == ["id", "http", "config", "data"]
    assert [member.id for member in cluster.members] == [1, 2, 11]


@pytest.mark.parametrize(("brokers", "replicas"), [(0, 3), (1, 1), (2, 2), (3, 3), (5, 3)])
def test_a_topic_whose_creator_names_no_replicas_fits_on_the_brokers(
    brokers: int, replicas: int, tmp_path: Path
) -> None:
    prepared(tmp_path / "c", controllers=1, brokers=brokers)
    settings = load_controller_settings(tmp_path / "c" / "controller-1.toml")
    assert settings.topics.default_replication_factor == replicas


def test_a_cluster_of_kafkas_brokers(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c", controllers=2, brokers=2, kafka=True)
    cluster.prepare()
    cluster._release()
    _, known, brokers = read_cluster_file(tmp_path / "c" / "cluster.json")
    assert (known, brokers) == (cluster.controllers, cluster.brokers)
    addresses = [member.to_json()["kafka"] for member in known]
    assert len({*addresses, *(member.raft for member in known)}) == 4
    for broker in brokers:
        assert list(broker.to_json()) == ["id", "kafka", "config", "data"]
        assert load_meta(tmp_path / "c" / broker.data).cluster_id == cluster.cluster_id
        properties = read_properties((tmp_path / "c" / broker.config).read_text())
        assert properties["controller.quorum.bootstrap.servers"] == ",".join(map(str, addresses))
        assert properties["listeners"] == f"CLIENTS://{broker.kafka}"
        assert properties["log.dirs"] == str(tmp_path / "c" / broker.data / "kafka-logs-1")
        assert properties["offsets.topic.replication.factor"] == "2"
        assert cluster.start_command(broker.id).endswith(f"-m ops.kafka {tmp_path / 'c' / broker.config}")
    for member in known:
        settings = load_controller_settings(tmp_path / "c" / member.config)
        assert settings.kafka_address is not None
        assert address_text(settings.kafka_address) == member.kafka
        assert [address_text(voter.kafka or ("", 0)) for voter in settings.voters] == addresses


async def test_a_broker_of_kafkas_that_is_online_and_does_not_listen_yet_is_waited_for(
    tmp_path: Path,
) -> None:
    class Online(LocalCluster):
        """Its brokers are online, as Kafka's are from before they open their listeners."""

        async def active(self) -> Active:
            states = {broker.id: "ONLINE" for broker in self.brokers}
            return Active(controller_id=1, controller_epoch=1, broker_states=states)

    cluster = Online(tmp_path / "c", controllers=1, brokers=2, kafka=True)
    cluster.prepare()
    cluster._release()
    first, second = (read_address(broker.listens) for broker in cluster.brokers)
    assert await cluster.missing() == "brokers [11, 12] are online, and do not listen yet"
    with socket.create_server(first):
        assert await cluster.missing() == "brokers [12] are online, and do not listen yet"
        with socket.create_server(second):
            assert await cluster.missing() is None


def test_a_cluster_whose_controllers_have_brokers_in_their_processes(tmp_path: Path) -> None:
    """Goal: a start finds again what shares a process; brokers that are added have processes of their own."""
    directory = tmp_path / "c"
    shapes = []
    for controllers, brokers, single in ((2, 3, True), (None, 4, False), (None, None, True)):
        cluster = LocalCluster(directory, controllers=controllers, brokers=brokers, single=single)
        cluster.prepare()
        cluster._release()
        _, _, known = read_cluster_file(directory / "cluster.json")
        assert known == cluster.brokers
        shapes.append([broker.process_of for broker in known])
    assert shapes == [[1, 2, None], [1, 2, None, None], [1, 2, None, None]]
    assert [len(prepared(tmp_path / "one", single=True).members)] == [2]
    both = f"controller run --config {directory}/controller-2.toml --broker {directory}/broker-12.toml"
    assert [cluster.start_command(node).endswith(both) for node in (2, 12, 13)] == [True, True, False]
    assert cluster.text_log(12) == cluster.text_log(2)
    apart = prepared(tmp_path / "apart", controllers=1, brokers=1)
    with pytest.raises(ClusterMismatch, match="a process for each node"):
        LocalCluster(apart.directory, single=True).prepare()
    file = directory / "cluster.json"
    file.write_text(file.read_text().replace('"process_of": 2', '"process_of": 7'))
    with pytest.raises(InvalidSettings, match="process of 7, which is no controller"):
        LocalCluster(directory).prepare()


def test_brokers_that_are_added_are_as_those_that_are_there(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    for count in (1, 3):
        cluster = LocalCluster(directory, brokers=count, kafka=count == 1)
        cluster.prepare()
        cluster._release()
    assert [broker.is_of_kafka for broker in cluster.brokers] == [True] * 3
    plain = prepared(tmp_path / "plain", controllers=1, brokers=1)
    with pytest.raises(ClusterMismatch, match="without a listener for Kafka"):
        LocalCluster(plain.directory, kafka=True).prepare()


def test_settings_and_directories_agree(tmp_path: Path) -> None:
    cluster = prepared(tmp_path)
    for member in cluster.controllers:
        settings = load_controller_settings(tmp_path / member.config)
        meta = load_meta(tmp_path / member.data)
        assert settings.data_dir == tmp_path / member.data
        assert settings.own.directory_id == meta.directory_id
        assert uuid_text(meta.directory_id) == member.directory_id
        assert settings.timing.session_timeout_ms == 3_000
        assert settings.own.http == member.http
    for member in cluster.brokers:
        broker = load_broker_settings(tmp_path / member.config)
        assert broker.controllers == cluster.bootstrap
        assert load_meta(tmp_path / member.data).cluster_id == cluster.cluster_id == broker.cluster_id


def test_a_second_start_keeps_all_and_may_add_brokers(tmp_path: Path) -> None:
    first = prepared(tmp_path, controllers=1, brokers=1)
    again = prepared(tmp_path)
    assert again.members == first.members
    assert again.cluster_id == first.cluster_id
    more = prepared(tmp_path, controllers=1, brokers=3)
    assert more.members[:2] == first.members
    assert [member.id for member in more.brokers] == [11, 12, 13]


def test_another_shape_is_refused(tmp_path: Path) -> None:
    prepared(tmp_path, controllers=3, brokers=2)
    for controllers, brokers in ((5, None), (1, None), (None, 1)):
        with pytest.raises(ClusterMismatch, match=r"--controllers|--brokers"):
            prepared(tmp_path, controllers=controllers, brokers=brokers)


def test_a_cut_short_start_is_completed(tmp_path: Path) -> None:
    """Goal: what is missing of the plan is made by the plan, with the ids it already promised."""
    first = prepared(tmp_path, controllers=2, brokers=0)
    config, meta = tmp_path / "controller-2.toml", tmp_path / "controller-2" / "meta.json"
    config.unlink()
    meta.unlink()
    prepared(tmp_path)
    assert uuid_text(load_meta(tmp_path / "controller-2").directory_id) == first.controllers[1].directory_id
    assert config.exists()


def test_a_wiped_controller_is_not_formatted_again_a_broker_is(tmp_path: Path) -> None:
    """Goal: a voter that lost its disk never comes back under the identity it had."""
    prepared(tmp_path, controllers=1, brokers=1)
    for name in ("controller-1", "broker-11"):
        (tmp_path / name / "meta.json").unlink()
    prepared(tmp_path)
    assert not (tmp_path / "controller-1" / "meta.json").exists()
    assert (tmp_path / "broker-11" / "meta.json").exists()


@pytest.mark.parametrize("name", ["../b", "/tmp/b", "a/b", "..", ".", "", "a\n"])
@pytest.mark.parametrize("field", ["config", "data"])
def test_a_cluster_json_names_nothing_outside_of_its_directory(tmp_path: Path, name: str, field: str) -> None:
    row = {"id": 11, "http": "http://127.0.0.1:1", "config": "b.toml", "data": "b"} | {field: name}
    told = {"version": 1, "cluster_id": "c", "controllers": [], "brokers": [row]}
    (tmp_path / "cluster.json").write_text(json.dumps(told))
    with pytest.raises(InvalidSettings, match="is no name in this directory"):
        read_cluster_file(tmp_path / "cluster.json")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"version": 2}', '{"version": 1, "cluster_id": "x"}'])
def test_a_damaged_cluster_json_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(InvalidSettings, match=r"cluster\.json: does not describe a cluster"):
        prepared(tmp_path)


def test_only_one_runs_a_cluster(tmp_path: Path) -> None:
    holder = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    try:
        with pytest.raises(DirectoryInUse, match="another `metaquorum up`"):
            LocalCluster(tmp_path).prepare()
    finally:
        os.close(holder)
    prepared(tmp_path)


def test_ports_lie_below_the_ephemeral_range_and_differ(tmp_path: Path) -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = free_ports({12_345}, random.Random(1))
    chosen = [next(ports) for _ in range(200)]
    assert len(set(chosen)) == 200
    assert 12_345 not in chosen
    assert max(chosen) < max(low, 11_000, 32_768)
    cluster = prepared(tmp_path)
    addresses = [m.http.rpartition(":")[2] for m in cluster.members]
    addresses += [m.raft.rpartition(":")[2] for m in cluster.members if m.raft]
    assert len(set(addresses)) == 9


def tell(data: Path, pid: int) -> None:
    write_process_json(
        data,
        role="broker",
        node_id=11,
        pid=pid,
        incarnation_id=Uuid(bytes(16)),
        http="http://h:1",
        raft=None,
        started_at_ms=1,
        log="/l",
    )


def test_a_process_is_found_by_its_file_and_its_lock(tmp_path: Path) -> None:
    assert running_process(tmp_path) is None
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    tell(tmp_path, os.getpid())
    running = running_process(tmp_path)
    assert running is not None
    assert running["pid"] == os.getpid()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    tell(tmp_path, dead.pid)
    assert running_process(tmp_path) is None
    tell(tmp_path, os.getpid())
    lock.release()
    assert running_process(tmp_path) is None


@pytest.mark.parametrize("may_read", [True, False])
def test_a_process_of_another_user_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_read: bool
) -> None:
    """The system is played, for the tests may run as root: the lock may not be written, or not even read."""
    sound = os.open

    def refuse(path: Path, flags: int) -> int:
        if flags & os.O_RDWR or not may_read:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return sound(path, flags)

    tell(tmp_path, os.getpid())
    with DirectoryLock(tmp_path):
        monkeypatch.setattr(os, "open", refuse)
        assert running_process(tmp_path) is not None
        monkeypatch.undo()
    monkeypatch.setattr(os, "open", refuse)
    assert (running_process(tmp_path) is None) == may_read
    monkeypatch.undo()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    tell(tmp_path, dead.pid)
    monkeypatch.setattr(os, "open", refuse)
    assert not is_locked(tmp_path)


A_NODE: Final = """
import os, pathlib, signal, sys
from metadata_log.node.disk.data_directory import (DirectoryLock, write_process_json)
data = pathlib.Path(sys.argv[1])
with DirectoryLock(data):
    said = {"incarnation_id": bytes(16), "http": "", "raft": None, "started_at_ms": 1, "log": ""}
    write_process_json(data, role="broker", node_id=11, pid=os.getpid(), **said)
    signal.pause()
"""


def test_who_runs_behind_a_child_that_came_too_late_is_told_to_stop_as_well(tmp_path: Path) -> None:
    """As after a kill -9 of the starter: what it had just started holds the directory before the child that is to."""
    cluster = LocalCluster(tmp_path, controllers=1, brokers=1)
    cluster.prepare()
    data = cluster.data(11)
    left_behind = subprocess.Popen([sys.executable, "-c", A_NODE, str(data)], env={"PYTHONPATH": str(ROOT)})
    late = cluster._children[11] = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        poll_until(lambda: running_process(data), deadline_s=60, what="process.json")
        asyncio.run(cluster.stop())
        assert (left_behind.wait(), late.wait()) == (-signal.SIGTERM, -signal.SIGTERM)
    finally:
        left_behind.kill()
        late.kill()


TOLD: Final = """
import pathlib, signal, sys
ended, name = pathlib.Path(sys.argv[1]), sys.argv[2]
def stop(*_):
    (ended / name).write_text(" ".join(sorted(path.name for path in ended.iterdir())))
    sys.exit()
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
signal.pause()
"""


def test_controllers_stop_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: each leader finds somebody who takes over at once. Method: each notes who had ended when it was told."""
    monkeypatch.setattr("ops.local.cluster.STOP_APART_S", 60.0)
    cluster, ended = LocalCluster(tmp_path / "c", controllers=3, brokers=0), tmp_path / "ended"
    cluster.prepare()
    ended.mkdir()
    for member in cluster.controllers:
        child = subprocess.Popen(
            [sys.executable, "-c", TOLD, str(ended), str(member.id)], stdout=subprocess.PIPE
        )
        cluster._children[member.id] = child
        with child.stdout or nullcontext() as lines:
            assert lines is not None and lines.readline() == b"ready\n"
    asyncio.run(cluster.stop())
    assert [(ended / name).read_text() for name in "123"] == ["", "1", "1 2"]


async def test_a_controller_that_does_not_end_keeps_no_other_from_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ops.local.cluster.STOP_APART_S", 0.0)
    cluster = LocalCluster(tmp_path / "c", controllers=3, brokers=0)
    cluster.prepare()
    pause = [sys.executable, "-c", "import signal; signal.pause()"]
    children = {member.id: subprocess.Popen(pause) for member in cluster.controllers}
    cluster._children.update(children)
    first, *others = children.values()
    held = cluster.signal
    monkeypatch.setattr(
        cluster, "signal", lambda node_id, number: held(node_id, number) if node_id != 1 else None
    )
    stopping = asyncio.ensure_future(cluster.stop())
    while any(child.poll() is None for child in others):
        await asyncio.sleep(0.01)
    assert first.poll() is None
    first.kill()
    await stopping


def test_the_command_that_starts_a_node_again(tmp_path: Path) -> None:
    cluster = prepared(tmp_path / "with space", controllers=1, brokers=1)
    words = shlex.split(cluster.start_command(11))
    assert words[-4:] == ["broker", "run", "--config", str(tmp_path / "with space" / "broker-11.toml")]


def test_exit_codes_for_people() -> None:
    assert [ended_with(code) for code in (0, 6, -9)] == ["exit code 0", "exit code 6", "SIGKILL"]
