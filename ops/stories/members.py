"""Edge: members of a consumer group, as consumers of the classic protocol are: each request of theirs is sent by hand.

A consumer of a client library joins, gets its share and commits by itself. Here a story does each step, so that it sees the
leader, the generation and the errors. Offsets of groups are kept in an internal topic that the stories place themselves.
Tests: tests/kafka/stories.
"""

import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Final, Self

from metadata_log.errors import Rejected
from metadata_log.node.addresses import read_address
from ops.stories import requests
from ops.stories.probe import ANSWER_S, exactly
from ops.stories.requests import Answer, Joined, error_name
from ops.stories.stage import Stage

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 4
SESSION_MS: Final = 120_000
"""Its member sends heartbeats only where a story shows one: it must not be taken for dead between two steps."""
REBALANCE_MS: Final = 60_000
_LATER: Final = frozenset({"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"})


def place_offsets_topic(stage: Stage) -> None:
    """Create the topic in which groups keep their offsets on the first three brokers, unless it is there."""
    first, second, third = stage.ids[:3]
    replicas = [
        (first, second, third),
        (second, third, first),
        (third, first, second),
        (first, third, second),
    ]
    with suppress(Rejected):
        stage.create(OFFSETS_TOPIC, replicas, {"cleanup.policy": "compact"})


def partition_of(group: str) -> int:
    """Return the partition of the offsets topic that a group belongs to: Java's hash of its name, modulo the partitions."""
    hashed = 0
    for unit in group.encode("utf-16-be")[1::2]:
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    return abs(signed) % OFFSETS_PARTITIONS


def coordinator(stage: Stage, group: str, *, asked: int) -> int:
    """Return the broker that coordinates a group, as the broker `asked` says."""

    def found() -> int | None:
        body = requests.find_coordinator(group)
        error, broker_id = requests.read_find_coordinator(stage.ask(asked, requests.FIND_COORDINATOR, body))
        return broker_id if error == 0 else None

    return stage.until(f"broker {asked} knows the coordinator of {group}", found)


def committed(stage: Stage, group: str, topic: str, partition: int = 0) -> int:
    """Return the committed offset of a group, -1 where there is none."""

    def found() -> tuple[int, int] | None:
        at = coordinator(stage, group, asked=stage.ids[0])
        body = requests.offset_fetch(group, topic, partition)
        answer = requests.read_offset_fetch(stage.ask(at, requests.OFFSET_FETCH, body))
        return None if error_name(answer[0]) in _LATER else answer

    error, offset = stage.until(f"the coordinator of {group} knows its offsets", found)
    assert error == 0, error_name(error)
    return offset


class Member:
    """One member with a connection of its own to the group's coordinator."""

    def __init__(self, stage: Stage, group: str, topic: str) -> None:
        self._stage = stage
        self._group = group
        self._topic = topic
        self._asked = count(1)
        self._connection = stage.until(f"the coordinator of {group} takes a connection", self._connect)
        self.member_id = ""
        self.generation = -1

    def _connect(self) -> socket.socket:
        address = self._stage.address(coordinator(self._stage, self._group, asked=self._stage.ids[0]))
        return socket.create_connection(read_address(address), ANSWER_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._connection:
            if error is None and self.member_id:
                self._ask(requests.LEAVE_GROUP, requests.leave_group(self._group, self.member_id))

    def join(self) -> Joined:
        """Join, and return what came of it once all members have joined."""

        def answered() -> Joined | None:
            self.begin_to_join()
            joined = self.joined()
            return None if error_name(joined.error) in _LATER else joined

        return self._stage.until(f"a member joins {self._group}", answered)

    def begin_to_join(self) -> None:
        """Send the request to join; the coordinator answers once all members have sent theirs."""
        body = requests.join_group(
            self._group, self.member_id, [self._topic], session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS
        )
        self._send(requests.JOIN_GROUP, body)

    def joined(self) -> Joined:
        """Return the answer to the request to join."""
        joined = requests.read_join_group(self._answer())
        self.member_id, self.generation = joined.member_id, joined.generation
        return joined

    def begin_to_sync(self, shares: Mapping[str, Iterable[int]]) -> None:
        """Ask for this member's share; the leader sends the shares of all."""
        of_topic = {member: (self._topic, partitions) for member, partitions in shares.items()}
        self._send(
            requests.SYNC_GROUP,
            requests.sync_group(self._group, self.generation, self.member_id, of_topic),
        )

    def share(self) -> tuple[int, ...]:
        """Return the partitions that the answer gives to this member."""
        error, partitions = requests.read_sync_group(self._answer())
        assert error == 0, error_name(error)
        return partitions

    def heartbeat(self) -> str:
        """Return what a heartbeat is answered."""
        return error_name(requests.read_error(self._ask(requests.HEARTBEAT, self._named(self.generation))))

    def commit(self, offset: int, *, partition: int = 0, generation: int | None = None) -> str:
        """Return what the commit of an offset is answered; `generation` None: the present one."""
        named = self._named(self.generation if generation is None else generation)
        body = requests.offset_commit(named, self._topic, partition, offset)
        return error_name(requests.read_offset_commit(self._ask(requests.OFFSET_COMMIT, body)))

    def _named(self, generation: int) -> bytes:
        return requests.of_member(self._group, generation, self.member_id)

    def _ask(self, api: tuple[int, int], body: bytes) -> Answer:
        self._send(api, body)
        return self._answer()

    def _send(self, api: tuple[int, int], body: bytes) -> None:
        self._connection.sendall(requests.request(api, next(self._asked), body))

    def _answer(self) -> Answer:
        answer = Answer(exactly(self._connection, int.from_bytes(exactly(self._connection, 4), "big")))
        answer.take("i")
        return answer
