"""Edge: an ordinary client of a Kafka cluster, librdkafka through confluent-kafka: topics, numbered records, what was read.

Tests: tests/kafka/test_real_quorum.py.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from metadata_log.errors import Unavailable
from metadata_log.node.identity.credentials import TlsFiles

REQUEST_TIMEOUT_S: Final = 30.0
DELIVERY_TIMEOUT_S: Final = 120.0
"""A producer repeats a record for as long; longer than any pause of a cluster that recovers."""
LINGER_MS: Final = 50
"""How long a producer gathers records for one batch. An idempotent producer has five batches under way to a broker at most;
while a further one is due, librdkafka's thread for that broker polls without waiting (confluentinc/librdkafka#3692). With
few milliseconds that takes a processor for each broker which is slow to answer."""

_silent: Final = logging.getLogger("ops.kafka.clients.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class NotAnswered(Unavailable):
    """A Kafka cluster refused a request, or did not carry it out in time; the message has librdkafka's words."""

    error, code = "BROKER_NOT_AVAILABLE", 8


def settings(bootstrap: Sequence[str], **more: str | float | bool) -> dict[str, Any]:
    """Return settings of a client: `more` has underscores for dots. What it would print is dropped."""
    return {
        "bootstrap.servers": ",".join(bootstrap),
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 200,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def certificate(files: TlsFiles) -> dict[str, Any]:
    """Return what a client under TLS shows, and whom it trusts, as `more` of `settings`."""
    return {
        "security_protocol": "ssl",
        "ssl_ca_location": str(files.ca),
        "ssl_certificate_location": str(files.certificate),
        "ssl_key_location": str(files.key),
    }


class Admin:
    """Creates and deletes topics through the brokers, one request after the other."""

    def __init__(self, bootstrap: Sequence[str], **more: str | float | bool) -> None:
        self._client = AdminClient(settings(bootstrap, **more), logger=_silent)

    def create_topic(
        self, name: str, *, partitions: int = 1, replicas: int = 1, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        """Create a topic.

        Without an operation timeout librdkafka takes a request for granted that the controller had no time to carry out.

        Raises:
            NotAnswered: it was refused, or not acknowledged within `timeout_s`.
        """
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas)
        (created,) = self._client.create_topics(
            [topic], operation_timeout=timeout_s, request_timeout=timeout_s
        ).values()
        _result(created, f"topic {name} was not created")

    def delete_topic(self, name: str, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Delete a topic.

        Raises:
            NotAnswered: it was refused, or not acknowledged within `timeout_s`.
        """
        (deleted,) = self._client.delete_topics(
            [name], operation_timeout=timeout_s, request_timeout=timeout_s
        ).values()
        _result(deleted, f"topic {name} was not deleted")

    def topics(self, *, timeout_s: float = REQUEST_TIMEOUT_S) -> dict[str, dict[int, int]]:
        """Return the leader of each partition of each topic, -1 where there is none, as one broker knows them."""
        try:
            listed = self._client.list_topics(timeout=timeout_s).topics
        except KafkaException as error:
            raise NotAnswered(f"no broker listed the topics: {error}") from error
        return {
            name: {number: partition.leader for number, partition in topic.partitions.items()}
            for name, topic in listed.items()
        }


def _result(future: Any, failure: str) -> None:
    try:
        future.result(timeout=DELIVERY_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        raise NotAnswered(f"{failure}: {error}") from error


@dataclass(slots=True)
class Sent:
    """What became of the records of a producer, by their numbers."""

    acknowledged: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    longest_gap_s: float = 0.0
    """Between two acknowledgements."""


@contextmanager
def producing(
    bootstrap: Sequence[str], topic: str, *, per_second: float, **more: str | float | bool
) -> Iterator[Sent]:
    """Send numbered records with acks=all and idempotence while the block runs; after it each is acknowledged or failed."""
    chosen = settings(
        bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        message_timeout_ms=int(DELIVERY_TIMEOUT_S * 1000),
        **more,
    )
    sent = Sent()
    stop = threading.Event()
    producer = Producer(chosen, logger=_silent)
    thread = threading.Thread(target=_produce, args=(producer, topic, per_second, sent, stop))
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()


def _produce(producer: Producer, topic: str, per_second: float, sent: Sent, stop: threading.Event) -> None:
    last = time.monotonic()

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal last
        number = int(message.value() or b"-1")
        if error is not None:
            sent.failed[number] = str(error)
            return
        now = time.monotonic()
        sent.longest_gap_s, last = max(sent.longest_gap_s, now - last), now
        sent.acknowledged.append(number)

    number, due = 0, time.monotonic()
    while not stop.is_set():
        producer.produce(topic, key=b"%d" % (number % 97), value=b"%d" % number, on_delivery=delivered)
        number, due = number + 1, due + 1 / per_second
        producer.poll(max(0.0, due - time.monotonic()))
    producer.flush(DELIVERY_TIMEOUT_S)


def read_to_end(
    bootstrap: Sequence[str], topic: str, *, timeout_s: float = DELIVERY_TIMEOUT_S, **more: str | float | bool
) -> Counter[int]:
    """Return how often each number is in a topic, up to its present end.

    Raises:
        NotAnswered: the end was not reached within `timeout_s`.
    """
    consumer = Consumer(
        settings(bootstrap, group_id=f"reads-{topic}", enable_auto_commit=False, **more), logger=_silent
    )
    try:
        partitions = consumer.list_topics(topic, timeout=timeout_s).topics[topic].partitions
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=timeout_s)[1]
            for number in partitions
        }
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        return _read(consumer, ends, deadline=time.monotonic() + timeout_s)
    except KafkaException as error:
        raise NotAnswered(f"topic {topic} cannot be read: {error}") from error
    finally:
        consumer.close()


def _read(consumer: Consumer, ends: Mapping[int, int], *, deadline: float) -> Counter[int]:
    found: Counter[int] = Counter()
    while any(
        position.offset < ends[position.partition]
        for position in consumer.position(
            [TopicPartition(each.topic, each.partition) for each in consumer.assignment()]
        )
        if ends[position.partition]
    ):
        if time.monotonic() > deadline:
            raise NotAnswered(f"not all records were read: {sum(found.values())} of {sum(ends.values())}")
        for message in consumer.consume(1000, timeout=0.5):
            if message.error() is None:
                found[int(message.value() or b"-1")] += 1
    return found
