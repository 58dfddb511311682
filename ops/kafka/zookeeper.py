"""Edge: a server of ZooKeeper, and Kafka's brokers under it: the old cluster from which `storage import-zookeeper` comes.

Tests: tests/kafka/test_from_zookeeper.py.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from metadata_log.node.addresses import HostPort, address_text
from ops.java_properties import properties_text
from ops.kafka.java import SERVER, java_command
from ops.kafka.real_quorum import START_TIMEOUT_S, STOP_TIMEOUT_S, NotStarted
from ops.toolchain.jars import ZOOKEEPER_VERSION, kafka_jars

ENSEMBLE: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_POLL_S: Final = 0.02
_OF_KRAFT: Final = ("process.roles", "node.id", "controller.", "broker.rack", "share.")
"""Settings that a broker under ZooKeeper does not know, by how they begin."""


class OldProcess:
    """One JVM of the old cluster, whose output goes to `log`."""

    def __init__(self, name: str, log: Path, main: str, settings: Path) -> None:
        self.name, self.log = name, log
        command = java_command(kafka_jars(ZOOKEEPER_VERSION), main, str(settings), log_level="INFO")
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 no shell
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def wait_until(self, ready: Callable[[str], bool]) -> None:
        """Wait until what the process has written says that it is ready.

        Raises:
            NotStarted: it ended, or START_TIMEOUT_S went by.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready(told := self.log.read_text(encoding="utf-8", errors="replace")):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NotStarted(f"{self.name} is not ready: {told[-2_000:]}")
            time.sleep(_POLL_S)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the process, and return once it is gone; one that does not end in time is killed."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def ensemble(directory: Path, *, address: HostPort) -> Iterator[str]:
    """Run an ensemble of one server below `directory`; give its address.

    Raises:
        NotStarted: it ended, or was not ready in time.
    """
    directory.mkdir(parents=True)
    settings = directory / "zookeeper.properties"
    host, port = address
    told = {
        "dataDir": str(directory / "data"),
        "clientPortAddress": host,
        "clientPort": str(port),
        "admin.enableServer": "false",
        # Thousands of nodes in a test are not worth a sync each.
        "forceSync": "no",
    }
    settings.write_text(properties_text(told))
    server = OldProcess("ZooKeeper", directory / "zookeeper.log", ENSEMBLE, settings)
    try:
        server.wait_until(lambda said: "binding to port" in said)
        yield address_text(address)
    finally:
        server.stop()


def old_broker_properties(kraft: Mapping[str, str], *, hosts: str) -> dict[str, str]:
    """Return the settings under ZooKeeper of a broker whose settings under KRaft these are."""
    kept = {name: value for name, value in kraft.items() if not name.startswith(_OF_KRAFT)}
    return {
        **kept,
        "broker.id": kraft["node.id"],
        "zookeeper.connect": hosts,
        "inter.broker.protocol.version": "3.9",
    }


@contextmanager
def old_broker(directory: Path, properties: Mapping[str, str]) -> Iterator[OldProcess]:
    """Run a broker of ZOOKEEPER_VERSION under ZooKeeper; its settings and its log lie in `directory`.

    Raises:
        NotStarted: it ended, or was not ready in time.
    """
    settings = directory / f"old-broker-{properties['broker.id']}.properties"
    settings.write_text(properties_text(properties))
    broker = OldProcess(f"broker {properties['broker.id']}", settings.with_suffix(".log"), SERVER, settings)
    try:
        broker.wait_until(lambda said: "started (kafka.server.KafkaServer)" in said)
        yield broker
    finally:
        broker.stop()
