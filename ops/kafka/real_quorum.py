"""Edge: a whole cluster of Kafka's own: three controllers in a quorum of theirs, and brokers; the peer of ours.

Tests: tests/kafka/test_real_quorum.py.
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from metadata_log import limits
from metadata_log.errors import Unavailable
from metadata_log.ids import NodeId, random_uuid, uuid_text
from metadata_log.node.addresses import HostPort, address_text
from metadata_log.node.disk.data_directory import Role, format_directory
from ops.java_properties import properties_text, read_properties
from ops.kafka.__main__ import FORMAT_VARIABLE, LOG_FILE
from ops.kafka.properties import broker_properties, controller_properties, voters_text
from ops.local import member_processes
from ops.local.layout import HOST, free_ports

CONTROLLERS: Final = (1, 2, 3)
START_TIMEOUT_S: Final = 240.0
STOP_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.005
_STARTED: Final = "Kafka Server started"
_ACTIVE: Final = re.compile(r"^\[([^]]+)] INFO .*Becoming the active controller at epoch (\d+)", re.MULTILINE)
TUNED: Final[Mapping[str, str]] = {
    "controller.quorum.fetch.timeout.ms": "300",
    "controller.quorum.election.timeout.ms": "150",
    "controller.quorum.election.backoff.max.ms": "50",
    "controller.quorum.request.timeout.ms": "300",
    "controller.quorum.retry.backoff.ms": "10",
    "controller.quorum.append.linger.ms": "0",
    "metadata.max.idle.interval.ms": "100",
}
"""The quickest timers at which a quiet quorum of Kafka's kept its leader on a machine of two cores."""


class NotStarted(Unavailable):
    """A node of Kafka's ended, or was not ready in time; the message has what it wrote last."""

    error, code = "BROKER_NOT_AVAILABLE", 8


class RealQuorum:
    """Some controllers and brokers, below a directory of their own.

    `cluster_id` and `voters` (where each controller listens) are drawn where they are not given. `settings` are added to
    those of every node. With `further`, the voters can change: nodes find them in the log, which they look for at the
    controllers' addresses and these; without it every node names the voters. No port that is `taken` is drawn. `founding` is
    added to the options of the controllers' format.
    """

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int,
        timers: Mapping[str, str] = {},
        environment: Mapping[str, str] = {},
        cluster_id: str | None = None,
        voters: Mapping[int, HostPort] | None = None,
        settings: Mapping[str, str] = {},
        further: Sequence[HostPort] | None = None,
        taken: Iterable[int] = (),
        founding: str = "",
    ) -> None:
        rng = random.SystemRandom()
        ports = free_ports({port for _, port in (*(voters or {}).values(), *(further or ()))} | {*taken}, rng)
        self.directory = directory
        self._environment = dict(environment)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.cluster_id = cluster_id or uuid_text(random_uuid(rng))
        self.voters = dict(voters or {node_id: (HOST, next(ports)) for node_id in CONTROLLERS})
        self.brokers: dict[int, str] = {}
        self._founding = founding
        found = {"controller.quorum.voters": voters_text(self.voters)}
        if further is not None:
            found = {
                "controller.quorum.bootstrap.servers": ",".join(
                    map(address_text, (*self.voters.values(), *further))
                )
            }
            initial = ",".join(
                f"{node_id}@{address_text(address)}:{uuid_text(random_uuid(rng))}"
                for node_id, address in self.voters.items()
            )
            self._founding += f" --initial-controllers {initial}"
        for node_id, address in self.voters.items():
            own = controller_properties(node_id, address=address, voters={}, data=self.data(node_id))
            del own["controller.quorum.voters"]
            self._lay(node_id, "controller", {**own, **found, **timers, **settings})
        for node_id in range(limits.FIRST_BROKER_ID, limits.FIRST_BROKER_ID + brokers):
            address = (HOST, next(ports))
            own = broker_properties(
                node_id, address=address, controllers=(), data=self.data(node_id), brokers=brokers
            )
            del own["controller.quorum.bootstrap.servers"]
            # Both sides of a fetch have the same timer.
            shared = {name: value for name, value in timers.items() if name.startswith("controller.quorum")}
            self._lay(node_id, "broker", {**own, **found, **shared, **settings})
            self.brokers[node_id] = address_text(address)

    def change(self, node_id: int, settings: Mapping[str, str]) -> None:
        """Change the properties of a node, which it reads when it is started next."""
        found = read_properties(self.config(node_id).read_text())
        self.config(node_id).write_text(properties_text({**found, **settings}))

    def use(self, environment: Mapping[str, str]) -> None:
        """Change variables of the nodes that are started from now on."""
        self._environment |= environment

    @property
    def bootstrap(self) -> tuple[str, ...]:
        return tuple(self.brokers.values())

    def config(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}.properties"

    def data(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}"

    def log_text(self, node_id: int) -> str:
        """Return what a node has written so far."""
        log = self.data(node_id) / LOG_FILE
        return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""

    def pid(self, node_id: int) -> int:
        return self._processes[node_id].pid

    def active(self) -> int:
        """Return the controller that said last that it is the active one."""
        claims = [
            (int(epoch), node_id)
            for node_id in self.voters
            for _, epoch in _ACTIVE.findall(self.log_text(node_id))
        ]
        if not claims:
            raise NotStarted("no controller of Kafka's was active yet")
        return max(claims)[1]

    def start(self, node_id: int) -> None:
        """Start a node, which must not run; `wait_until_started` waits for it."""
        variables = dict(self._environment)
        if node_id in self.voters and self._founding:
            variables[FORMAT_VARIABLE] = self._founding
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        with (self.directory / f"node-{node_id}.stderr").open("wb") as output:
            self._processes[node_id] = member_processes.begun(
                ["ops.kafka", str(self.config(node_id))], {**os.environ, **variables}, output
            )

    def wait_until_started(self, node_id: int, *, times: int = 1) -> None:
        """Wait until a node has said that it is started, for the `times`-th time.

        Raises:
            NotStarted: it ended, or START_TIMEOUT_S went by.
        """

        def started() -> bool:
            if self._processes[node_id].poll() is not None:
                raise NotStarted(f"node {node_id} ended: {self._last_words(node_id)}")
            return self.log_text(node_id).count(_STARTED) >= times

        _until(started, START_TIMEOUT_S, lambda: f"node {node_id} is not ready: {self._last_words(node_id)}")

    def kill(self, node_id: int) -> None:
        """Kill -9 a node, and return once it is gone."""
        self.end(node_id, signal.SIGKILL)

    def end(self, node_id: int, number: signal.Signals) -> None:
        """Send a node a signal that ends it, and return once it is gone."""
        self._processes[node_id].send_signal(number)
        self._processes[node_id].wait()

    def restart(self, *node_ids: int) -> None:
        """Start nodes that were killed, and wait for all: a controller is started once a majority is there."""
        times = {node_id: self.log_text(node_id).count(_STARTED) + 1 for node_id in node_ids}
        for node_id in node_ids:
            self.start(node_id)
        for node_id in node_ids:
            self.wait_until_started(node_id, times=times[node_id])

    def stop(self) -> None:
        """Stop the brokers, then the controllers; kill what does not end in time."""
        brokers = [process for node_id, process in self._processes.items() if node_id not in self.voters]
        others = [process for node_id, process in self._processes.items() if node_id in self.voters]
        for group in (brokers, others):
            for process in group:
                process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_TIMEOUT_S
            for process in group:
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def kill_all(self) -> None:
        for process in self._processes.values():
            process.kill()

    def _lay(self, node_id: int, role: Role, properties: Mapping[str, str]) -> None:
        format_directory(
            self.data(node_id),
            role=role,
            node_id=NodeId(node_id),
            cluster_id=self.cluster_id,
            rng=random.SystemRandom(),
        )
        self.config(node_id).write_text(properties_text(properties))

    def _last_words(self, node_id: int) -> str:
        said = (self.directory / f"node-{node_id}.stderr").read_text() or self.log_text(node_id)
        return said[-2_000:]


@contextmanager
def real_quorum(
    directory: Path,
    *,
    brokers: int = 3,
    timers: Mapping[str, str] = {},
    environment: Mapping[str, str] = {},
) -> Iterator[RealQuorum]:
    """Run a cluster of Kafka's own below `directory`; `timers` are settings of its quorum, `environment` of all its JVMs.

    Raises:
        NotStarted: a node ended, or was not ready in time.
    """
    directory.mkdir(parents=True, exist_ok=True)
    quorum = RealQuorum(directory, brokers=brokers, timers=timers, environment=environment)
    try:
        nodes = (*quorum.voters, *quorum.brokers)
        for node_id in nodes:
            quorum.start(node_id)
        for node_id in nodes:
            quorum.wait_until_started(node_id)
        yield quorum
    except BaseException:
        quorum.kill_all()
        raise
    finally:
        quorum.stop()


def _until(true: Callable[[], bool], timeout_s: float, failure: Callable[[], str]) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise NotStarted(failure())
        time.sleep(_POLL_S)
