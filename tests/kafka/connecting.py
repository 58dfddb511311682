"""Edge: Kafka Connect beside a cluster: one worker in distributed mode, the heaviest ordinary client of a Kafka cluster."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ops.java_properties import properties_text
from ops.kafka.clients import NotAnswered, producing, read_to_end
from ops.kafka.java import CONNECT, java_command
from ops.toolchain.jars import kafka_jars
from tests.support.processes import free_port, poll_until

DEADLINE_S: Final = 120.0
BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
TEXT: Final = "org.apache.kafka.connect.storage.StringConverter"


class Worker:
    """A worker of Connect, asked over its own HTTP interface."""

    def __init__(self, address: str, log: Path) -> None:
        self._address = address
        self._log = log

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the answer of the worker; None where it gives none, as while its group forms."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://{self._address}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except OSError:
            return None

    def connect(self, name: str, **config: str) -> None:
        """Have a connector run: `config` has underscores for dots."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        poll_until(
            lambda: self.ask("PUT", f"/connectors/{name}/config", settings),
            deadline_s=DEADLINE_S,
            what=f"connector {name} is taken; the worker's last words: {self.last_words()}",
        )

    def failures(self, name: str) -> list[str]:
        """Return why tasks of a connector, or it itself, do not run."""
        status = self.ask("GET", f"/connectors/{name}/status")
        if status is None:
            return ["no status"]
        parts = [status["connector"], *status["tasks"]]
        return [part.get("trace", part["state"]) for part in parts if part["state"] != "RUNNING"]

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3_000:]


@contextmanager
def connect_worker(directory: Path, bootstrap: Sequence[str]) -> Iterator[Worker]:
    """Run a worker whose three topics, and what it writes, have three replicas; its sources write exactly once."""
    directory.mkdir()
    address = f"127.0.0.1:{free_port()}"
    config, log = directory / "worker.properties", directory / "worker.log"
    config.write_text(
        properties_text(
            {
                "bootstrap.servers": ",".join(bootstrap),
                "group.id": "connect",
                "key.converter": BYTES,
                "value.converter": BYTES,
                **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")},
                **{f"{kind}.storage.replication.factor": "3" for kind in ("config", "offset", "status")},
                "offset.storage.partitions": "3",
                "status.storage.partitions": "1",
                "exactly.once.source.support": "enabled",
                "listeners": f"http://{address}",
                "plugin.discovery": "service_load",
            }
        )
    )
    with log.open("wb") as written:
        process = subprocess.Popen(
            java_command(kafka_jars(), CONNECT, str(config)),
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
        )
    worker = Worker(address, log)
    try:
        yield worker
    finally:
        process.kill()
        process.wait()


def mirror(bootstrap: Sequence[str], topic: str) -> dict[str, str]:
    """Return the settings of MirrorMaker's source connector that copies a topic within one cluster, to `copy.TOPIC`."""
    clusters = {
        f"{side}_cluster_{key}": value
        for side, alias in (("source", "copy"), ("target", "here"))
        for key, value in (("alias", alias), ("bootstrap_servers", ",".join(bootstrap)))
    }
    return {
        "connector_class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "tasks_max": "2",
        "topics": topic,
        "replication_factor": "3",
        "offset-syncs_topic_replication_factor": "3",
        "sync_topic_acls_enabled": "false",
        "source_consumer_auto_offset_reset": "earliest",
        **clusters,
    }


def lines_of(file: Path, topic: str) -> dict[str, str]:
    """Return the settings of the connector that writes each line of a file to a topic."""
    return {
        "connector_class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks_max": "1",
        "file": str(file),
        "topic": topic,
        "value_converter": TEXT,
    }


def more_is_copied(bootstrap: Sequence[str], file: Path, turn: int) -> None:
    """Write records to the topic and lines to the file, and wait until each is in its copy, once."""
    before = set(read_to_end(bootstrap, "sales")) if turn else set()
    with producing(bootstrap, "sales", per_second=50) as sent:
        poll_until(lambda: len(sent.acknowledged) >= 300, deadline_s=DEADLINE_S, what="records are written")
    assert not sent.failed
    with file.open("a") as written:
        written.writelines(f"{number}\n" for number in range(100 * turn, 100 * turn + 100))
    written_so_far = read_to_end(bootstrap, "sales")
    assert before <= set(written_so_far)
    for topic, wanted in (
        ("copy.sales", dict(written_so_far)),
        ("lines", dict.fromkeys(range(100 * turn + 100), 1)),
    ):
        poll_until(
            lambda topic=topic, wanted=wanted: found_in(bootstrap, topic) == wanted,  # type: ignore[misc]
            deadline_s=DEADLINE_S,
            what=f"{topic} has all of {len(wanted)} numbers",
        )


def found_in(bootstrap: Sequence[str], topic: str) -> dict[int, int]:
    """Return how often each number is there by transactions that were committed; nothing before the topic is there."""
    try:
        return dict(read_to_end(bootstrap, topic, isolation_level="read_committed"))
    except (NotAnswered, KeyError):
        return {}
