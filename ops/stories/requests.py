"""Pure: the requests of Kafka's protocol that stories send by themselves, and their answers.

Clients hide what stories are about: the log end of a follower, the generation of a group, a refusal that is repeated.
All are of versions before the flexible ones. Integers are big-endian; a string has its length in 2 bytes, bytes and arrays
in 4. Source: the message schemas of Apache Kafka 4.3.
Tests: tests/unit/ops/stories/test_requests.py.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

PRODUCE: Final = (0, 7)
FETCH: Final = (1, 11)
FETCH_WITHOUT_RACK: Final = (1, 10)
"""The newest version in which a consumer cannot say that it may read from a follower."""
LIST_OFFSETS: Final = (2, 5)
OFFSET_COMMIT: Final = (8, 6)
OFFSET_FETCH: Final = (9, 5)
FIND_COORDINATOR: Final = (10, 2)
JOIN_GROUP: Final = (11, 3)
HEARTBEAT: Final = (12, 2)
LEAVE_GROUP: Final = (13, 2)
SYNC_GROUP: Final = (14, 2)

ERRORS: Final[Mapping[int, str]] = {
    0: "NONE",
    1: "OFFSET_OUT_OF_RANGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    9: "REPLICA_NOT_AVAILABLE",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    22: "ILLEGAL_GENERATION",
    25: "UNKNOWN_MEMBER_ID",
    27: "REBALANCE_IN_PROGRESS",
    78: "OFFSET_NOT_AVAILABLE",
}
"""Kafka's words for the errors that stories may meet."""
LATEST: Final = -1
CONSUMER: Final = -1
DEBUGGER: Final = -2
"""The replica id of a reader that asks any replica for its log end, instead of the leader for its high watermark."""


def error_name(code: int) -> str:
    """Return Kafka's word for an error."""
    return ERRORS.get(code, f"error {code}")


class Answer:
    """An answer, read from its beginning on."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, form: str) -> int:
        """Return one integer in a form of `struct`: b, h, i or q."""
        (value,) = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(f">{form}")
        return int(value)

    def text(self) -> str:
        """Return a string; empty where it is null."""
        return self._piece(self.take("h")).decode()

    def bytes_(self) -> bytes:
        """Return bytes; none where they are null."""
        return self._piece(self.take("i"))

    def many(self) -> Iterator[int]:
        """Yield a number for each item of an array that follows; none where it is null."""
        yield from range(max(0, self.take("i")))

    def _piece(self, length: int) -> bytes:
        piece = self._data[self._at : self._at + max(0, length)]
        self._at += max(0, length)
        return piece


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def _bytes(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def _many(items: Iterable[bytes]) -> bytes:
    found = list(items)
    return struct.pack(">i", len(found)) + b"".join(found)


def _one_partition(topic: str, partition: bytes) -> bytes:
    return _many([_text(topic) + _many([partition])])


def request(api: tuple[int, int], correlation_id: int, body: bytes) -> bytes:
    """Return a request with its size in front."""
    header = struct.pack(">hhi", *api, correlation_id) + _text("a story")
    return _bytes(header + body)


# --- records


def list_offsets(topic: str, partition: int, *, replica_id: int = CONSUMER) -> bytes:
    """Return the body that asks for the end of a partition; the current leader epoch is left out."""
    return struct.pack(">ib", replica_id, 0) + _one_partition(
        topic, struct.pack(">iiq", partition, -1, LATEST)
    )


def read_list_offsets(answer: Answer) -> tuple[int, int]:
    """Return the error and the offset."""
    answer.take("i")
    for _ in answer.many():
        answer.text()
        for _ in answer.many():
            answer.take("i")
            error = answer.take("h")
            answer.take("q")
            return error, answer.take("q")
    raise ValueError("the answer has no partition")


class Fetched(NamedTuple):
    """What a fetch of one partition answered; `preferred` is the broker to read from instead, -1: this one."""

    error: int
    high_watermark: int
    records: bytes
    preferred: int = -1


def fetch(
    topic: str, partition: int, offset: int, *, version: int, rack: str = "", at_most: int = 1 << 20
) -> bytes:
    """Return the body that fetches a partition as a consumer, at once and without a session."""
    head = struct.pack(">iiiibii", CONSUMER, 0, 0, at_most, 0, 0, -1)
    one = struct.pack(">iiqqi", partition, -1, offset, -1, at_most)
    with_rack = _text(rack) if version >= FETCH[1] else b""
    return head + _one_partition(topic, one) + _many([]) + with_rack


def read_fetch(answer: Answer, *, version: int) -> Fetched:
    """Return what the answer has of its one partition."""
    answer.take("i")
    error = answer.take("h")
    answer.take("i")
    for _ in answer.many():
        answer.text()
        for _ in answer.many():
            answer.take("i")
            error = error or answer.take("h")
            high_watermark = answer.take("q")
            answer.take("q")
            answer.take("q")
            for _ in answer.many():
                answer.take("q")
                answer.take("q")
            preferred = answer.take("i") if version >= FETCH[1] else -1
            return Fetched(error, high_watermark, answer.bytes_(), preferred)
    return Fetched(error, -1, b"")


def produce(topic: str, partition: int, records: bytes, *, acks: int = 1, timeout_ms: int = 10_000) -> bytes:
    """Return the body that writes a record batch; no transaction."""
    return struct.pack(">hhi", -1, acks, timeout_ms) + _one_partition(
        topic, struct.pack(">i", partition) + _bytes(records)
    )


def read_produce(answer: Answer) -> tuple[int, int]:
    """Return the error and the first offset."""
    for _ in answer.many():
        answer.text()
        for _ in answer.many():
            answer.take("i")
            return answer.take("h"), answer.take("q")
    raise ValueError("the answer has no partition")


# --- groups


def find_coordinator(group: str) -> bytes:
    """Return the body that asks for the coordinator of a group."""
    return _text(group) + struct.pack(">b", 0)


def read_find_coordinator(answer: Answer) -> tuple[int, int]:
    """Return the error and the broker."""
    answer.take("i")
    error = answer.take("h")
    answer.text()
    return error, answer.take("i")


class Joined(NamedTuple):
    """What a member gets when it joins; only the leader gets `members`."""

    error: int
    generation: int
    leader: str
    member_id: str
    members: tuple[str, ...]


def join_group(
    group: str, member_id: str, topics: Iterable[str], *, session_ms: int, rebalance_ms: int
) -> bytes:
    """Return the body with which a consumer joins; its one protocol is "range"."""
    subscription = struct.pack(">h", 0) + _many(map(_text, topics)) + _bytes(b"")
    return (
        _text(group)
        + struct.pack(">ii", session_ms, rebalance_ms)
        + _text(member_id)
        + _text("consumer")
        + _many([_text("range") + _bytes(subscription)])
    )


def read_join_group(answer: Answer) -> Joined:
    """Return what the member got."""
    answer.take("i")
    error, generation = answer.take("h"), answer.take("i")
    answer.text()
    leader, member_id = answer.text(), answer.text()
    members = []
    for _ in answer.many():
        members.append(answer.text())
        answer.bytes_()
    return Joined(error, generation, leader, member_id, tuple(members))


def sync_group(
    group: str, generation: int, member_id: str, shares: Mapping[str, tuple[str, Iterable[int]]]
) -> bytes:
    """Return the body with which a member asks for its share; the leader's has the topic and partitions of each member."""
    assigned = (
        _text(member) + _bytes(assignment(topic, partitions))
        for member, (topic, partitions) in shares.items()
    )
    return _text(group) + struct.pack(">i", generation) + _text(member_id) + _many(assigned)


def assignment(topic: str, partitions: Iterable[int]) -> bytes:
    """Return a member's share as the leader writes it."""
    numbers = _many(struct.pack(">i", partition) for partition in partitions)
    return struct.pack(">h", 0) + _many([_text(topic) + numbers]) + _bytes(b"")


def read_sync_group(answer: Answer) -> tuple[int, tuple[int, ...]]:
    """Return the error and the partitions of the member's share, which is of one topic."""
    answer.take("i")
    error = answer.take("h")
    share = Answer(answer.bytes_() or assignment("", ()))
    share.take("h")
    found: list[int] = []
    for _ in share.many():
        share.text()
        found.extend(share.take("i") for _ in share.many())
    return error, tuple(found)


def of_member(group: str, generation: int, member_id: str) -> bytes:
    """Return the body of a heartbeat: a member with its generation."""
    return _text(group) + struct.pack(">i", generation) + _text(member_id)


def leave_group(group: str, member_id: str) -> bytes:
    """Return the body with which a member leaves."""
    return _text(group) + _text(member_id)


def read_error(answer: Answer) -> int:
    """Return the error of an answer that has nothing else."""
    answer.take("i")
    return answer.take("h")


def offset_commit(member: bytes, topic: str, partition: int, offset: int) -> bytes:
    """Return the body with which a member, as `of_member` names it, commits one offset."""
    one = struct.pack(">iqi", partition, offset, -1) + _text("")
    return member + _one_partition(topic, one)


def read_offset_commit(answer: Answer) -> int:
    """Return the error of the one partition."""
    answer.take("i")
    for _ in answer.many():
        answer.text()
        for _ in answer.many():
            answer.take("i")
            return answer.take("h")
    raise ValueError("the answer has no partition")


def offset_fetch(group: str, topic: str, partition: int) -> bytes:
    """Return the body that asks for one committed offset."""
    return _text(group) + _one_partition(topic, struct.pack(">i", partition))


def read_offset_fetch(answer: Answer) -> tuple[int, int]:
    """Return the error and the committed offset, -1 where there is none."""
    answer.take("i")
    found = (0, -1)
    for _ in answer.many():
        answer.text()
        for _ in answer.many():
            answer.take("i")
            offset = answer.take("q")
            answer.take("i")
            answer.text()
            found = (answer.take("h"), offset)
    return (answer.take("h") or found[0], found[1])
