"""Edge: a cluster on this machine: controllers and brokers as real processes, below one directory.

    DIR/cluster.json   what runs where, for outside programs; replaced by rename at every change
    DIR/lock           held (flock) by the process that runs the cluster
    DIR/NODE.toml      settings of one node
    DIR/NODE/          its data directory, with its text log

Nodes run in sessions of their own, so Ctrl-C reaches only the starter, and nodes outlive a starter that is killed.
The next start finds them by process.json and the lock on their data directory. A node that ends is not restarted.
"""

import asyncio
import fcntl
import json
import os
import random
import shlex
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from metadata_log.errors import DirectoryInUse, DiskFailed, Fault, Rejected
from metadata_log.ids import random_uuid, uuid_text
from metadata_log.node.addresses import read_address
from metadata_log.node.disk.durable_files import (
    DIRECTORY_MODE,
    FILE_MODE,
    renamed_os_errors,
    replace_file,
)
from metadata_log.node.identity.credentials import TlsFiles
from metadata_log.node.identity.ownership import check_folder
from ops.admin.client import ClusterClient
from ops.admin.exchange import NO_CREDENTIALS, Credentials, Unreachable
from ops.local.layout import (
    PRINCIPALS,
    Layout,
    Member,
    free_ports,
    new_brokers,
    new_controllers,
    ports_of,
    read_cluster_file,
)
from ops.local.member_processes import (
    KAFKA_STOP_TIMEOUT_S,
    POLL_S,
    ROOT,
    STOP_TIMEOUT_S,
    NotReady,
    ended_with,
    guest_of,
    host_of,
    metaquorum_command,
    started,
    stderr_of,
)
from ops.processes import is_locked, running_process
from ops.waits import pause_s
from quorum.node.config import ControllerSettings

if TYPE_CHECKING:
    from ops.certificates import Authority

READY_TIMEOUT_S: Final = 120.0
"""Each node takes 1 to 2 s of a processor until it serves; a busy machine gives all of them together a tenth of one."""
KAFKA_READY_TIMEOUT_S: Final = 240.0
"""Of a cluster with Kafka's brokers: each is formatted and started by a JVM, 5 to 10 s of a processor."""
STOP_APART_S: Final = 1.0
"""A controller is told to stop once the one before has ended, or after this time. A leader whose followers stop with it
would wait for one of them to take over, for two election timeouts."""
ASK_TIMEOUT_S: Final = 1.0

State: TypeAlias = Literal["starting", "ready", "stopping", "stopped"]


class ClusterMismatch(Rejected):
    """The directory holds a cluster of another shape than the one asked for."""

    error, code = "INVALID_REQUEST", 42


class NodeFailed(Fault):
    """A node ended while the cluster started; the context has its `exit_code`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """The active controller, and the state it gives each registered broker."""

    controller_id: int
    controller_epoch: int
    broker_states: Mapping[int, str]


def _as_it_is(settings: ControllerSettings) -> ControllerSettings:
    return settings


def _as_we_are(_: Member) -> Mapping[str, str]:
    return {}


def _this_release(_: Member) -> Path:
    return ROOT


TLS_FOLDER: Final = "tls"
ADMIN_FILES: Final = {
    name: f"{TLS_FOLDER}/{file}"
    for name, file in (("ca", "ca.crt"), ("cert", "admin.crt"), ("key", "admin.key"))
}
"""What a client of a cluster with TLS shows, and whom it trusts, by the names of the CLI's flags."""


class LocalCluster:
    """A cluster below `directory`, which is created if it does not exist.

    `controllers` and `brokers` None: as many as the directory has, or three in a new one. `adjust` changes the settings of
    controllers when their files are first written; `environment` gives variables to the nodes started here, and `code` names
    the folder with the release that a node runs. `secure`: a new cluster has TLS and identity, with an authority of its own
    below tls/; one that exists stays as it is. `kafka`: the brokers of a new cluster are Kafka's, for which its controllers
    listen. `single`: each controller of a new cluster, one by default, has a broker in its process.

        async with LocalCluster(path, brokers=1) as cluster:
            cluster.kill(cluster.controllers[0].id)
    """

    def __init__(
        self,
        directory: Path,
        *,
        controllers: int | None = None,
        brokers: int | None = None,
        adjust: Callable[[ControllerSettings], ControllerSettings] = _as_it_is,
        environment: Callable[[Member], Mapping[str, str]] = _as_we_are,
        code: Callable[[Member], Path] = _this_release,
        secure: bool = False,
        kafka: bool = False,
        single: bool = False,
    ) -> None:
        self.directory = directory.resolve()
        self.cluster_id = ""
        self.controllers: tuple[Member, ...] = ()
        self.brokers: tuple[Member, ...] = ()
        self._wanted = (controllers, brokers)
        self._secure = secure
        self._single = single
        self.is_for_kafka = kafka
        """Whether the brokers are Kafka's."""
        self._credentials = NO_CREDENTIALS
        self._adjust = adjust
        self._environment = environment
        self._code = code
        self._rng = random.SystemRandom()
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._lock_fd: int | None = None
        self._state: State = "starting"
        self._started_at_ms = 0

    # --- members and processes

    @property
    def bootstrap(self) -> tuple[str, ...]:
        return tuple(member.http for member in self.controllers)

    @property
    def members(self) -> tuple[Member, ...]:
        return (*self.controllers, *self.brokers)

    def member(self, node_id: int) -> Member:
        return next(member for member in self.members if member.id == node_id)

    def data(self, node_id: int) -> Path:
        return self.directory / self.member(node_id).data

    def http(self, node_id: int) -> str:
        return self.member(node_id).http

    def pid(self, node_id: int) -> int | None:
        """Return the process of a node, ours or started by hand; None if none runs."""
        child = self._children.get(node_id)
        if child is not None and child.poll() is None:
            return child.pid
        process = running_process(self.data(node_id))
        return None if process is None else int(process["pid"])

    def exit_code(self, node_id: int, *, pid: int | None = None) -> int | None:
        """Return the exit code of our child process: minus the signal's number if a signal ended it; None: it runs.

        Also None if `pid` is another process, which was started by hand after the child had ended.
        """
        child = self._children.get(node_id)
        return None if child is None or pid not in (None, child.pid) else child.poll()

    def client(self, *, timeout_s: float = 10.0) -> ClusterClient:
        return ClusterClient(
            self.bootstrap, timeout_s=timeout_s, rng=self._rng, credentials=self._credentials
        )

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What a client shows under the admin's certificate; None without TLS."""
        return self._credentials.tls

    @property
    def admin_files(self) -> TlsFiles | None:
        """The admin's certificate; None without TLS."""
        if not self._secure:
            return None
        return TlsFiles(*(self.directory / ADMIN_FILES[name] for name in ("cert", "key", "ca")))

    def start_command(self, node_id: int) -> str:
        """Return the shell command that starts a node again."""
        member = host_of(self.member(node_id), self.controllers)
        guest = guest_of(member, self.brokers)
        config = shlex.quote(str(self.directory / member.config))
        if member.is_of_kafka:
            return f"{shlex.quote(sys.executable)} -m ops.kafka {config}"
        both = "" if guest is None else f" --broker {shlex.quote(str(self.directory / guest.config))}"
        return f"{metaquorum_command()} {member.role} run --config {config}{both}"

    def last_words(self, node_id: int) -> str:
        """Return the last line that a node wrote, which usually says why it ended."""
        member = host_of(self.member(node_id), self.controllers)
        for file in (stderr_of(self.directory, member), self.text_log(node_id)):
            with suppress(OSError):
                lines = file.read_bytes()[-4_096:].decode(errors="replace").split("\n")
                found = [line.strip() for line in lines if line.strip()]
                if found:
                    return found[-1]
        return "it said nothing"

    def text_log(self, node_id: int) -> Path:
        """Return the file into which a node writes what it does."""
        member = host_of(self.member(node_id), self.controllers)
        return self.data(member.id) / ("server.log" if member.is_of_kafka else f"{member.role}.log")

    # --- start and stop

    async def start(self, *, timeout_s: float | None = None) -> None:
        """Format the missing nodes, start those that do not run, and wait until the cluster is ready.

        Raises:
            DirectoryInUse: another process runs this cluster.
            InvalidSettings: the directory is another user's, or others may change it.
            ClusterMismatch: the directory has other numbers of nodes.
            NodeFailed: a node ended instead of starting.
            NotReady: no active controller, or a broker not online or silent, within `timeout_s`.
        """
        self.prepare()
        for member in self.members:
            await self.start_one(member.id)
        await self.wait_until_ready(timeout_s=timeout_s)

    def prepare(self) -> None:
        """Lock the directory, and create or complete its files; no process is started yet."""
        with renamed_os_errors(self.directory):
            self.directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        check_folder(self.directory)  # a user who may change it chooses what is run from it, and stopped
        self._lock_fd = _locked(self.directory)
        try:
            self._started_at_ms = time.time_ns() // 1_000_000
            file = self.directory / "cluster.json"
            if file.exists():
                self.cluster_id, self.controllers, self.brokers = read_cluster_file(file)
            else:
                self.cluster_id = uuid_text(random_uuid(self._rng))
            self._plan()
            authority = None
            if self._secure:
                authority, self._credentials = _authority_of(self.directory, self.cluster_id)
            # The plan is on disk before any node is formatted, so that an interrupted start can be completed.
            self.set_state("starting")
            layout = Layout(self.directory, self.cluster_id, self.controllers, self._rng, authority)
            for member in self.controllers:
                layout.complete_controller(member, self._adjust, brokers=len(self.brokers))
            for member in self.brokers:
                if member.is_of_kafka:
                    layout.complete_kafka_broker(member, brokers=len(self.brokers))
                else:
                    layout.complete_broker(member)
        except BaseException:
            # Do not stop nodes that we did not prepare: they may belong to a running cluster.
            self._release()
            raise

    async def start_one(self, node_id: int) -> None:
        """Start one node, unless it runs, with the broker in its process, or the controller in whose process it runs."""
        if self.pid(node_id) is not None:
            return
        member = host_of(self.member(node_id), self.controllers)
        guest = guest_of(member, self.brokers)
        child = started(
            self.directory,
            member,
            guest=guest,
            code=self._code(member),
            environment=self._environment(member),
        )
        self._children |= {one.id: child for one in (member, guest) if one is not None}

    async def wait_until_ready(self, *, timeout_s: float | None = None) -> None:
        """Wait for one active controller and every broker Online; each of Kafka's takes connections, too.

        `timeout_s` None: as long as nodes of their kind may need.

        Raises:
            NodeFailed: a node ended meanwhile.
            NotReady: the cluster was not ready within `timeout_s`.
        """
        timeout_s = timeout_s or (KAFKA_READY_TIMEOUT_S if self.is_for_kafka else READY_TIMEOUT_S)
        began = time.monotonic()
        while missing := await self.missing():
            for member in self.members:
                code = self.exit_code(member.id)
                if code is not None and self.pid(member.id) is None:
                    raise NodeFailed(
                        f"{member.role} {member.id} ended with {ended_with(code)}: {self.last_words(member.id)}",
                        exit_code=code,
                    )
            waited_s = time.monotonic() - began
            if waited_s > timeout_s:
                raise NotReady(f"not ready within {timeout_s:g} s: {missing}")
            await asyncio.sleep(pause_s(waited_s, POLL_S))
        self.set_state("ready")

    async def missing(self) -> str | None:
        """Return what the cluster still lacks to be ready; None: it is ready."""
        active = await self.active()
        if active is None:
            return "there is no active controller"
        waiting = [member.id for member in self.brokers if active.broker_states.get(member.id) != "ONLINE"]
        if waiting:
            return f"brokers {waiting} are not online"
        # The controllers unfence a broker of Kafka's before it opens its listeners.
        deaf = [member.id for member in self.brokers if member.is_of_kafka and not await _listens(member)]
        return f"brokers {deaf} are online, and do not listen yet" if deaf else None

    async def active(self) -> "Active | None":
        """Return the active controller and its view of the brokers; None: no controller is active."""
        answers = await asyncio.gather(
            *(
                object_at(self.client(timeout_s=ASK_TIMEOUT_S), member.http, "/v1/brokers")
                for member in self.controllers
            )
        )
        for member, answer in zip(self.controllers, answers, strict=True):
            if answer is not None:
                return Active(
                    controller_id=member.id,
                    controller_epoch=answer["controller_epoch"],
                    broker_states={item["broker_id"]: item["state"] for item in answer["items"]},
                )
        return None

    def kill(self, node_id: int) -> None:
        """Kill -9 one node, and return once it is gone."""
        self.signal(node_id, signal.SIGKILL)
        child = self._children.get(node_id)
        if child is not None:
            child.wait()
        while running_process(self.data(node_id)) is not None:
            time.sleep(POLL_S / 10)

    def signal(self, node_id: int, number: signal.Signals) -> None:
        """Send a signal to one node, if it runs."""
        pid = self.pid(node_id)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def stop(self) -> None:
        """Stop brokers, then controllers, including those started by hand; kill those that do not end in time.

        Raises:
            DiskFailed: all nodes have ended, but cluster.json could not be written.
        """
        if self._lock_fd is None:
            return
        with suppress(DiskFailed):  # the nodes must end in any case; the write is tried again after them
            self.set_state("stopping")
        is_single = any(member.process_of is not None for member in self.brokers)
        await self._stop_all(self.brokers, apart_s=STOP_APART_S if is_single else 0.0)
        await self._stop_all(self.controllers, apart_s=STOP_APART_S)
        try:
            self.set_state("stopped")
        finally:
            self._release()

    async def _stop_all(self, members: Sequence[Member], *, apart_s: float) -> None:
        def is_there(member: Member) -> bool:
            child = self._children.get(member.id)
            return (child is not None and child.poll() is None) or is_locked(self.directory / member.data)

        announced: set[int] = set()
        patience_s = KAFKA_STOP_TIMEOUT_S if any(member.is_of_kafka for member in members) else STOP_TIMEOUT_S
        deadline = time.monotonic() + patience_s + apart_s * len(members)
        waiting, next_at = list(members), 0.0
        told: list[Member] = []
        # process.json disappears shortly before the process and its lock do.
        while any(map(is_there, members)):
            while waiting and (time.monotonic() >= next_at or not any(map(is_there, told))):
                told.append(waiting.pop(0))
                next_at = time.monotonic() + apart_s
            for member in told:
                # If our child came too late, another process may run here: one that a killed starter left behind.
                pid = self.pid(member.id)
                if pid is not None and pid not in announced:
                    announced.add(pid)
                    self.signal(member.id, signal.SIGTERM)
                    # A process that is stopped (SIGSTOP) receives SIGTERM only once it continues.
                    self.signal(member.id, signal.SIGCONT)
            if time.monotonic() > deadline:
                self.kill_all()
            await asyncio.sleep(POLL_S)

    def kill_all(self) -> None:
        """Kill -9 every node, so that `stop` has nothing to wait for."""
        for member in self.members:
            self.signal(member.id, signal.SIGKILL)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    # --- files

    def set_state(self, state: State) -> None:
        """Replace cluster.json; the addresses of nodes that `metaquorum move` has moved meanwhile stay as they are there."""
        self._state = state
        file = self.directory / "cluster.json"
        if file.exists():
            there = {one.id: one for group in read_cluster_file(file)[1:] for one in group}
            self.controllers = tuple(there.get(one.id, one) for one in self.controllers)
            self.brokers = tuple(there.get(one.id, one) for one in self.brokers)
        layout = {
            "version": 1,
            "cluster_id": self.cluster_id,
            "state": state,
            "pid": os.getpid(),
            "started_at_ms": self._started_at_ms,
            "bootstrap": list(self.bootstrap),
            "controllers": [member.to_json() for member in self.controllers],
            "brokers": [member.to_json() for member in self.brokers],
        }
        if self._secure:
            layout["admin"] = ADMIN_FILES
        replace_file(file, json.dumps(layout, indent=2).encode() + b"\n")

    def _release(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _plan(self) -> None:
        """Choose ids and ports for the nodes that are wanted and missing."""
        controllers, brokers = self._wanted
        fresh = not self.controllers
        controllers = controllers or ((1 if self._single else 3) if fresh else len(self.controllers))
        of_new = controllers if self._single else 3
        brokers = (of_new if fresh else len(self.brokers)) if brokers is None else brokers
        if not fresh and controllers != len(self.controllers):
            raise ClusterMismatch(
                f"{self.directory} holds {len(self.controllers)} controllers; voters do not change by a restart: "
                f"leave --controllers out, or take another --dir"
            )
        if brokers < len(self.brokers):
            raise ClusterMismatch(f"{self.directory} holds {len(self.brokers)} brokers: leave --brokers out")
        if not fresh:
            is_secure = self.controllers[0].http.startswith("https://")
            if self._secure and not is_secure:
                raise ClusterMismatch(f"{self.directory} holds a cluster without TLS: take another --dir")
            self._secure = is_secure
            is_for_kafka = self.controllers[0].kafka is not None
            if self.is_for_kafka and not is_for_kafka:
                raise ClusterMismatch(
                    f"{self.directory} holds a cluster without a listener for Kafka: take another --dir"
                )
            self.is_for_kafka = is_for_kafka
            if self._single and all(member.process_of is None for member in self.brokers):
                raise ClusterMismatch(f"{self.directory} has a process for each node: take another --dir")
        ports = free_ports(ports_of(self.members), self._rng)
        if fresh:
            self.controllers = new_controllers(
                controllers, ports, self._rng, tls=self._secure, kafka=self.is_for_kafka
            )
        hosts = [member.id for member in self.controllers] if fresh and self._single else []
        self.brokers += new_brokers(
            range(len(self.brokers), brokers), ports, tls=self._secure, kafka=self.is_for_kafka, hosts=hosts
        )


async def _listens(member: Member) -> bool:
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            _, connection = await asyncio.open_connection(*read_address(member.listens))
            connection.close()
            await connection.wait_closed()
    except OSError:  # of which a time-out is one
        return False
    return True


async def object_at(client: ClusterClient, url: str, path: str) -> dict[str, Any] | None:
    """Return the JSON object that one node answers; None if it answers otherwise, or not."""
    try:
        answer = await asyncio.to_thread(client.ask_one, url, path)
        value = answer.json() if answer.ok else None
    except Unreachable:
        return None
    return value if isinstance(value, dict) else None


def admin_variables(cluster: LocalCluster) -> dict[str, str]:
    """Return the variables by which the CLI finds the admin's certificate; none without TLS."""
    if cluster.tls is None:
        return {}
    return {f"METAQUORUM_{name.upper()}": str(cluster.directory / file) for name, file in ADMIN_FILES.items()}


def _authority_of(directory: Path, cluster_id: str) -> tuple["Authority", Credentials]:
    """Return the authority of a cluster with TLS, and the admin's certificate."""
    from ops.certificates import ADMIN, Authority

    authority = Authority(directory / TLS_FOLDER, cluster_id=cluster_id)
    authority.write_principals(directory / PRINCIPALS)
    return authority, Credentials(authority.certify("user", ADMIN).client())


def _locked(directory: Path) -> int:
    """Return the descriptor that holds the lock of a cluster's directory."""
    with renamed_os_errors(directory):
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise DirectoryInUse(
            f"{directory}: another `metaquorum up` runs this cluster: stop it, or take another --dir"
        ) from error
    return fd
