"""Edge: what a story sees of a cluster: the controllers' state, and what each broker answers about its replicas.

Tests: tests/kafka/stories.
"""

import logging
import socket
from collections.abc import Mapping
from itertools import count
from typing import Any, Final, Literal, NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource, ConfigSource

from metadata_log.kafka.batches import batch_bytes, framed
from metadata_log.node.addresses import read_address
from ops.kafka.clients import settings
from ops.local.cluster import LocalCluster
from ops.stories import requests
from ops.stories.requests import Answer

ANSWER_S: Final = 30.0
CLIENT_S: Final = 60.0

SILENT: Final = logging.getLogger("ops.stories.librdkafka")
"""What librdkafka would print is dropped."""
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


class Setting(NamedTuple):
    """A setting as a broker describes it: the value that counts, where it comes from, and the value of each source."""

    value: str
    source: str
    of_sources: Mapping[str, str]


class Probe:
    """Reads; it changes nothing but by `write_to`."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self._asked = count(1)

    @property
    def bootstrap(self) -> tuple[str, ...]:
        return tuple(broker.listens for broker in self.cluster.brokers)

    def address(self, broker_id: int) -> str:
        """Return where clients reach a broker."""
        return self.cluster.member(broker_id).listens

    def partition(self, topic: str, number: int = 0) -> dict[str, Any]:
        """Return a partition as the active controller has it: leader, leader_epoch, isr, replicas."""
        found: dict[str, Any] = self.cluster.client(timeout_s=CLIENT_S).read(f"/v1/topics/{topic}")[
            "partitions"
        ][number]
        return found

    def setting(self, kind: Literal["topic", "broker"], name: str, key: str) -> Setting:
        """Return a setting of a topic or a broker, as a broker describes it."""
        client = AdminClient(settings(self.bootstrap), logger=SILENT)
        resource = ConfigResource(kind, name)
        (described,) = client.describe_configs([resource], request_timeout=ANSWER_S).values()
        entry = described.result(ANSWER_S)[key]
        values = {ConfigSource(one.source).name: str(one.value) for one in entry.synonyms.values()}
        return Setting(str(entry.value), ConfigSource(entry.source).name, values)

    def ask(self, broker_id: int, api: tuple[int, int], body: bytes) -> Answer:
        """Return what one broker answers to one request, over a connection of its own.

        Raises:
            OSError: the broker is not there, or does not answer.
        """
        with socket.create_connection(read_address(self.address(broker_id)), ANSWER_S) as connection:
            connection.sendall(requests.request(api, next(self._asked), body))
            size = int.from_bytes(exactly(connection, 4), "big")
            answer = Answer(exactly(connection, size))
        answer.take("i")
        return answer

    def log_end(self, topic: str, broker_id: int, partition: int = 0) -> int | None:
        """Return the log end offset of a replica; None if the broker has none, or does not run."""
        try:
            error, offset = requests.read_list_offsets(
                self.ask(
                    broker_id,
                    requests.LIST_OFFSETS,
                    requests.list_offsets(topic, partition, replica_id=requests.DEBUGGER),
                )
            )
        except OSError:
            return None
        return offset if error == 0 else None

    def log_ends(self, topic: str) -> dict[int, int | None]:
        """Return the log end of each replica, in the order of replicas."""
        return {broker_id: self.log_end(topic, broker_id) for broker_id in self.partition(topic)["replicas"]}

    def latest(self, topic: str, broker_id: int, partition: int = 0) -> tuple[int, int]:
        """Return the error and the end that a consumer sees: the leader's high watermark."""
        asked = requests.list_offsets(topic, partition)
        return requests.read_list_offsets(self.ask(broker_id, requests.LIST_OFFSETS, asked))

    def fetched(
        self,
        topic: str,
        broker_id: int,
        offset: int,
        *,
        rack: str = "",
        api: tuple[int, int] = requests.FETCH,
    ) -> requests.Fetched:
        """Return what a consumer's fetch at an offset is answered by one broker."""
        body = requests.fetch(topic, 0, offset, version=api[1], rack=rack)
        return requests.read_fetch(self.ask(broker_id, api, body), version=api[1])

    def write_to(self, broker_id: int, topic: str) -> tuple[int, int]:
        """Send one record to a broker, whether or not it leads, and return the error and the offset of its answer."""
        batch = batch_bytes(framed([b"-1"]), count=1, base_offset=0, leader_epoch=-1, time_ms=0)
        return requests.read_produce(self.ask(broker_id, requests.PRODUCE, requests.produce(topic, 0, batch)))

    def high_watermark(self, topic: str, broker_id: int) -> int:
        """Return the high watermark that a replica knows, -1 if it answers with an error."""
        return self.fetched(topic, broker_id, 0).high_watermark


def exactly(connection: socket.socket, size: int) -> bytes:
    """Return the next bytes of a connection.

    Raises:
        OSError: the connection ends before.
    """
    pieces: list[bytes] = []
    while size:
        piece = connection.recv(size)
        if not piece:
            raise ConnectionResetError("the broker closed the connection")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
