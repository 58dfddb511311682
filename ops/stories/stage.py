"""Edge: the stage of a story: a cluster with links that may be held or cut, what the story does to it, and what it sees.

Every wait has a deadline, and names what did not come. What a story shows is checked where it is told: a story whose end is
another than the one it tells fails.
Tests: tests/kafka/stories.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from metadata_log.errors import Fault
from ops.kafka.clients import settings
from ops.local.cluster import LocalCluster
from ops.stories.links import Link, Links
from ops.stories.probe import SILENT, Probe
from ops.stories.requests import error_name
from ops.waits import NOT_YET, until

Seen = TypeVar("Seen")
Facts = dict[str, Any]
"""What a story saw, by name; tests and `learn -o json` read it."""
DEADLINE_S: Final = 120.0
"""Longer than a session, the time after which a follower leaves an ISR, and the start of a JVM, on a busy machine."""
POLL_S: Final = 0.01
DELIVERY_MS: Final = 60_000
_NOT_YET: Final = (*NOT_YET, KafkaException)
_OF_A_LEADER: Final = frozenset({"NONE", "OFFSET_NOT_AVAILABLE"})
"""How a leader answers a consumer that asks for the end; it may not know its high watermark yet."""


class StoryFailed(Fault):
    """What a story tells did not happen; the message has what was expected and what was seen."""


class WindowMissed(StoryFailed):
    """A follower that was held left the ISR before the story came to it: the machine was too slow for this attempt."""


@dataclass(slots=True)
class Sent:
    """What became of the records of one call, by their numbers, and the offset that each one got."""

    acknowledged: dict[int, int] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    """Kafka's word for the error of each record that was refused."""

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Take the report of a producer."""
        number = int(message.value() or b"-1")
        if error is not None:
            self.failed[number] = error.name()
        else:
            offset = message.offset()
            self.acknowledged[number] = -1 if offset is None else offset


class Stage(Probe):
    """A running cluster of three controllers and Kafka's brokers; `links` are by follower and leader."""

    def __init__(
        self,
        cluster: LocalCluster,
        every_link: Links,
        links: Mapping[tuple[int, int], Link],
        tell: Callable[[str], None],
    ) -> None:
        super().__init__(cluster)
        self.tell = tell
        self.ids = tuple(broker.id for broker in cluster.brokers)
        self._every_link = every_link
        self._links = links
        self.seen = 0
        """Observations that were as expected, since the story began."""
        self._steps = 0
        self._names = count(1)

    # --- telling

    def step(self, what: str, why: str) -> None:
        """Begin a step of the narration."""
        self._steps += 1
        self.tell(f"\n--- {self._steps}. {what}\n    {why}\n")

    def begin(self) -> None:
        """Count steps from 1 again, and observations: another story begins."""
        self._steps = self.seen = 0

    def expect(self, what: str, seen: Seen, expected: object) -> Seen:
        """Return what was seen, and tell it.

        Raises:
            StoryFailed: it is not what was expected.
        """
        if seen != expected:
            raise StoryFailed(f"{what}: expected {expected}, and saw {seen}")
        self.seen += 1
        self.tell(f"{what}: {seen}")
        return seen

    def until(self, what: str, look: Callable[[], Seen | None], *, deadline_s: float = DEADLINE_S) -> Seen:
        """Return the first true value of `look`; a broker that does not answer, or not as it should, is asked again.

        Raises:
            StoryFailed: there is none within `deadline_s`; the message has the last error.
        """
        return until(what, look, deadline_s=deadline_s, poll_s=POLL_S, failure=StoryFailed, not_yet=_NOT_YET)

    # --- the cluster

    def link(self, follower: int, leader: int) -> Link:
        """Return the link over which a follower fetches from a leader."""
        return self._links[follower, leader]

    def new_topic(
        self, about: str, replicas: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic with these replicas of each partition, wait until it is served, and return its name."""
        name = f"{about}-{next(self._names)}"
        self.create(name, replicas, configs or {})
        return name

    def create(self, name: str, replicas: Sequence[Sequence[int]], configs: Mapping[str, str]) -> None:
        """Create a topic through the active controller, and wait until each replica is there and in sync."""
        body = {
            "name": name,
            "assignment": [list(each) for each in replicas],
            "configs": dict(configs),
        }
        self.cluster.client(timeout_s=DEADLINE_S).write("POST", "/v1/topics", body)
        for number, ids in enumerate(replicas):
            for broker_id in ids:
                self.until(
                    f"broker {broker_id} has its replica of {name}:{number}",
                    partial(self._is_there, name, broker_id, number),
                )
            self.until_isr(name, ids, partition=number)

    def _is_there(self, topic: str, broker_id: int, partition: int) -> bool:
        return self.log_end(topic, broker_id, partition) is not None

    def until_isr(self, topic: str, ids: Sequence[int], *, partition: int = 0) -> None:
        """Wait until exactly these brokers are in sync, in any order."""
        self.until(
            f"the ISR of {topic}:{partition} is {sorted(ids)}",
            lambda: sorted(self.partition(topic, partition)["isr"]) == sorted(ids),
        )

    @contextmanager
    def window(self, ids: Sequence[int], *topics: str) -> Iterator[None]:
        """Run a block that shows something only while these brokers are in sync in all these topics.

        Raises:
            WindowMissed: they are not any more, whatever the block ended with; the story may be told again.
        """
        try:
            yield
        except StoryFailed as failed:
            self._still_in_sync(ids, topics, failed)
            raise
        self._still_in_sync(ids, topics, None)

    def _still_in_sync(self, ids: Sequence[int], topics: Sequence[str], cause: StoryFailed | None) -> None:
        for topic in topics:
            seen = sorted(self.partition(topic)["isr"])
            if seen != sorted(ids):
                text = f"the ISR of {topic} is {seen}, and was to be {sorted(ids)} still"
                raise WindowMissed(text) from cause

    def until_leader(self, topic: str, broker_id: int) -> dict[str, Any]:
        """Wait until a broker leads by the controller's state and serves as the leader (-1: there is no leader)."""

        def leads() -> dict[str, Any] | None:
            found = self.partition(topic)
            if found["leader"] != broker_id:
                return None
            if broker_id < 0:
                return found
            error, _ = self.latest(topic, broker_id)
            return found if error_name(error) in _OF_A_LEADER else None

        return self.until(f"broker {broker_id} leads {topic}", leads)

    def active_controller(self) -> int:
        """Return the active controller, once there is one."""
        active = self.until("a controller is active", lambda: asyncio.run(self.cluster.active()))
        return active.controller_id

    def kill(self, *node_ids: int) -> None:
        """Kill -9 nodes."""
        for node_id in node_ids:
            self.cluster.kill(node_id)

    def restart(self, node_id: int) -> None:
        """Start a node, and wait for nothing."""
        asyncio.run(self.cluster.start_one(node_id))

    def start(self, *node_ids: int) -> None:
        """Start nodes, and wait until the cluster is ready."""
        for node_id in node_ids:
            self.restart(node_id)
        asyncio.run(self.cluster.wait_until_ready())

    def heal(self) -> None:
        """Open all links, and start what does not run."""
        self._every_link.open_all()
        self.start(*(member.id for member in self.cluster.members if self.cluster.pid(member.id) is None))

    # --- replicas

    def until_high_watermark(self, topic: str, broker_id: int, expected: int) -> None:
        """Wait until a replica knows a high watermark."""
        self.until(
            f"broker {broker_id} has high watermark {expected} of {topic}",
            lambda: self.high_watermark(topic, broker_id) == expected,
        )

    def until_log_end(self, topic: str, broker_id: int, expected: int) -> None:
        """Wait until a replica's log ends at an offset."""
        self.until(
            f"the log of broker {broker_id} ends at {expected} in {topic}",
            lambda: self.log_end(topic, broker_id) == expected,
        )

    # --- records

    def producer(
        self, acks: str, *, bootstrap: Sequence[str] = (), linger_ms: int = 0, **more: str | float | bool
    ) -> Producer:
        """Return a producer that asks for these acknowledgements; `bootstrap` empty: it knows all brokers."""
        chosen = settings(
            bootstrap or self.bootstrap,
            acks=acks,
            linger_ms=linger_ms,
            message_timeout_ms=DELIVERY_MS,
            **more,
        )
        return Producer(chosen, logger=SILENT)

    def send(self, topic: str, numbers: range, *, acks: str, producer: Producer | None = None) -> Sent:
        """Send numbered records, and return once each is acknowledged or failed."""
        sent, sender = Sent(), producer or self.producer(acks)
        self.send_on(sender, topic, numbers, sent)
        if left := sender.flush(DEADLINE_S):
            raise StoryFailed(f"{left} records to {topic} were neither acknowledged nor refused")
        return sent

    def send_on(self, producer: Producer, topic: str, numbers: range, sent: Sent, *, size: int = 0) -> None:
        """Hand numbered records to a producer; `size` pads the header of each, so that an answer with one is known."""
        padding: dict[str, str | bytes | None] | None = {"padding": b"." * size} if size else None
        for number in numbers:
            producer.produce(
                topic, partition=0, value=b"%d" % number, headers=padding, on_delivery=sent.delivered
            )
            producer.poll(0)

    def send_large(self, topic: str, records: int, *, size: int) -> None:
        """Write so many records of this size, each in a batch of its own, to the leader alone."""
        sent, producer = Sent(), self.producer("1", batch_num_messages=1)
        for number in range(records):
            self.send_on(producer, topic, range(number, number + 1), sent, size=size)
        if left := producer.flush(DEADLINE_S):
            raise StoryFailed(f"{left} large records to {topic} were not acknowledged")

    def hold_records(self, link: Link, at_least: int) -> None:
        """Let answers of a held link pass until one with so many bytes waits, and leave that one waiting."""

        def wait() -> bool:
            held = link.held_bytes()
            if 0 < held < at_least:
                link.let_one_pass()  # an answer without these records, from before
            return held >= at_least

        self.until(f"an answer of {at_least} bytes waits on a link", wait)

    def until_sent(self, producers: Sequence[Producer], sent: Sent, expected: int) -> None:
        """Wait until so many records of these producers are acknowledged."""

        def acknowledged() -> bool:
            for producer in producers:
                producer.poll(0)
            return len(sent.acknowledged) >= expected

        self.until(f"{expected} records are acknowledged", acknowledged)
