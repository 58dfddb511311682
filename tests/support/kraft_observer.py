"""Pure: a broker of Kafka as it follows the metadata log: the state machine of an observer of KRaft.

It ends where the process of a real broker ends: two leaders in one epoch, a leader without an address, a truncation below
its high watermark, a high watermark that falls, a snapshot that does not replace its log. Source: KafkaRaftClient 4.3.1.
"""

from typing import NamedTuple

from metadata_log.ids import Uuid
from metadata_log.kafka.batches import Batch, batches
from metadata_log.kafka.messages import ANSWERS, message_reader
from quorum.kafka.fetches import FETCH, Fetch
from quorum.kafka.replies import Position

NONE, NOT_LEADER, FENCED, UNKNOWN_EPOCH = 0, 6, 74, 75
VERSION = 18
NOBODY = -1
MAX_WAIT_MS = 500


class Ended(Exception):
    """A real broker's process would end."""


class Answered(NamedTuple):
    """The fields of an answer that an observer looks at."""

    error: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int]
    leader: int
    epoch: int
    snapshot: tuple[int, int]
    records: bytes
    endpoints: dict[int, tuple[str, int]]


def answered(tail: bytes, version: int = VERSION) -> Answered:
    """Read an answer: all that comes after its correlation id."""
    values, at = message_reader(ANSWERS[FETCH], version)(tail, 1)
    assert at == len(tail) and tail[:1] == b"\0"
    _, error, _, topics, endpoints = values
    if error:
        return Answered(error, -1, -1, (-1, -1), NOBODY, -1, (-1, -1), b"", {})
    ((_, _, (partition,)),) = topics
    _, error, high_watermark, _, start, diverging, leader, snapshot, _, _, records = partition
    addresses = {node_id: (host, port) for node_id, host, port, _ in endpoints}
    return Answered(
        error, high_watermark, start, diverging, leader[0], leader[1], snapshot, records, addresses
    )


class KraftObserver:
    """One broker. `log` has all batches that it holds, `records` nothing: what they add up to is for who reads them."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.epoch = 0
        self.leader = NOBODY
        self.log: list[Batch] = []
        self.snapshot = (0, 0)
        """Where its log begins."""
        self.wanted: tuple[int, int] | None = None
        """The snapshot that it was told to fetch."""
        self.high_watermark = 0

    @property
    def position(self) -> Position:
        if self.log:
            return Position(self.log[-1].end_offset, self.log[-1].leader_epoch)
        return Position(*self.snapshot)

    def fetch(self, *, max_bytes: int = 1 << 20, version: int = VERSION) -> Fetch:
        """Return what it asks next: its leader, or any controller where it knows none."""
        known = self.high_watermark if version >= VERSION else (1 << 63) - 1
        return Fetch(
            version,
            self.position,
            self.epoch,
            MAX_WAIT_MS,
            max_bytes,
            known,
            self.node_id,
            Uuid(bytes([self.node_id] * 16)),
            f"Broker:{self.node_id}",
        )

    def read(self, answer: Answered) -> None:
        """Do what an answer says.

        Raises:
            Ended: a real broker would end.
        """
        if answer.epoch < self.epoch or answer.error == UNKNOWN_EPOCH:
            return
        is_known = answer.leader in (NOBODY, self.leader) or self.leader == NOBODY
        if answer.epoch == self.epoch and not is_known:
            raise Ended(f"epoch {self.epoch} has leaders {self.leader} and {answer.leader}")
        if answer.leader != NOBODY and answer.leader not in answer.endpoints:
            raise Ended(f"nobody said where leader {answer.leader} is")
        was = self.epoch, self.leader
        if answer.epoch > self.epoch:
            self.epoch, self.leader = answer.epoch, NOBODY
        if answer.leader != NOBODY:
            self.leader = answer.leader
        if answer.error in (FENCED, NOT_LEADER) or was[0] != self.epoch:
            return
        if answer.error != NONE or self.leader == NOBODY:
            return
        self._follow(answer)

    def _follow(self, answer: Answered) -> None:
        if answer.diverging != (-1, -1):
            epoch, end = answer.diverging
            own_end = max((batch.end_offset for batch in self.log if batch.leader_epoch <= epoch), default=0)
            cut = min(own_end, end)
            if cut < self.high_watermark:
                raise Ended(f"a truncation to {cut}, below the high watermark {self.high_watermark}")
            self.log = [batch for batch in self.log if batch.end_offset <= cut]
            return
        if answer.snapshot != (-1, -1):
            end, epoch = answer.snapshot
            if (epoch, end) <= (self.position.epoch, self.position.offset):
                raise Ended(f"snapshot {answer.snapshot} does not replace a log at {self.position}")
            self.wanted = answer.snapshot
            return
        for batch in batches(answer.records):
            if batch.end_offset <= self.position.offset:
                continue
            if batch.base_offset != self.position.offset or batch.leader_epoch < self.position.epoch:
                raise Ended(f"a batch at {batch.base_offset}, epoch {batch.leader_epoch} at {self.position}")
            self.log.append(batch)
        self._advance(answer.high_watermark)

    def _advance(self, high_watermark: int) -> None:
        known = min(high_watermark, self.position.offset)
        if known < self.high_watermark:
            raise Ended(f"the high watermark falls from {self.high_watermark} to {known}")
        self.high_watermark = known

    def load(self, snapshot: tuple[int, int]) -> None:
        """Begin with a snapshot that was fetched whole."""
        self.snapshot, self.log, self.wanted = snapshot, [], None
        self.high_watermark = max(self.high_watermark, snapshot[0])

    def restart(self) -> None:
        """Begin anew with what is on the disk: epoch and log; leader and high watermark are not."""
        self.leader, self.wanted = NOBODY, None
        self.high_watermark = self.snapshot[0]
