"""Pure: the long changes of one reign: which are under way, how far each is, and which of them makes the next part.

A change of many partitions is made in parts: each fits into one batch and one turn of the leader's loop. The first part is
decided with the request that leads to it, so what fits into one batch stays one. The others are made one at a time, in turn.
What was begun is finished: a request about the same broker that comes meanwhile waits for the end.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from metadata_log.batch import Cause, Envelope, RecordBatch
from metadata_log.errors import MetadataError
from metadata_log.ids import BrokerId, Uuid
from metadata_log.image import begun as begun_changes
from metadata_log.image.begun import Begun
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import PartitionKey
from metadata_log.wire.commands import BrokerHeartbeat, RegisterBroker
from quorum.controller.sessions import Sessions
from quorum.decide.brokers import UnregisterBroker, kind_of_departure
from quorum.decide.canonical import IdempotencyKey
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision, Elected, ElectionDue, PartMade, Walk, Walked, WalkKind
from quorum.decide.heartbeat import elect_part
from quorum.decide.long_changes import next_part
from quorum.decide.registry import DECISIONS

HEARTBEAT: Final = DECISIONS[BrokerHeartbeat].operation
REGISTER: Final = DECISIONS[RegisterBroker].operation
UNREGISTER: Final = DECISIONS[UnregisterBroker].operation
FENCE_STALE: Final = "maybeFenceStaleBroker"
"""The name of the event in Kafka's QuorumController."""

ELECTIONS: Final = "elections"
"""The key of the elections: one pass over all partitions without a leader, for all brokers."""
STAYS: Final = (WalkKind.STOPS, WalkKind.FAILED)
"""Walks after which the broker is in service, or goes by another one."""

NextPart: TypeAlias = Callable[[DecideContext], Decision]
"""Decides the next part, on the image after the one before."""


class LastPart(NamedTuple):
    """The last part of a change as it was made."""

    decision: Decision
    envelope: Envelope
    batch: RecordBatch | None


Ended: TypeAlias = LastPart | MetadataError | None
"""How a change ended: with its last part, with a refusal of it, or before: another did it, or the reign is over."""


@dataclass(slots=True, eq=False)
class LongChange:
    """One change under way. `key` is the broker that it is about, or what tells it from others; `request` is that of the
    client whose answer the last part is. `actor` None: the controller itself.

    Attributes:
        takes_out: its end is the end of the broker's registration, or of its service: until then the broker gets no answer.
        waiting: each is called once, when the change ends.
    """

    key: Hashable
    next_part: NextPart
    operation: str
    actor: str | None = None
    request: IdempotencyKey | None = None
    takes_out: bool = False
    waiting: list[Callable[[Ended], None]] = field(default_factory=list)

    def end(self, ended: Ended) -> None:
        waiting, self.waiting = self.waiting, []
        for told in waiting:
            told(ended)


class Changes:
    """The long changes of one reign."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, LongChange] = {}
        """In the order in which they make their next parts."""
        self._walks: dict[BrokerId, Walked] = {}
        """How far the change of each broker is."""
        self._elected_to: PartitionKey | None = None
        self._elects_again = False
        """A broker may lead that could not when the pass began: it runs once more."""
        self._elects_for: BrokerId | None = None

    def __len__(self) -> int:
        return len(self._under_way)

    def __iter__(self) -> Iterator[LongChange]:
        return iter(tuple(self._under_way.values()))

    # --- which

    def under_way(self, key: Hashable) -> LongChange | None:
        return self._under_way.get(key)

    def takes_out(self, broker_id: BrokerId) -> bool:
        """Answer whether a broker is being fenced or removed, or gives way to another process."""
        change = self._under_way.get(broker_id)
        return change is not None and change.takes_out

    def begin(self, change: LongChange) -> None:
        """Begin a change whose first part is made, or that another reign had begun."""
        assert change.key not in self._under_way, "what is asked for meanwhile waits for the end"
        self._under_way[change.key] = change

    def next(self) -> LongChange | None:
        """Return the change that makes the next part; the others make theirs before it makes another one."""
        for key, change in self._under_way.items():
            del self._under_way[key]
            self._under_way[key] = change
            return change
        return None

    def over(self, change: LongChange) -> None:
        """Forget a change whose last part is made; the elections go on if they are to run once more."""
        if change.key == ELECTIONS and self.is_electing:
            return
        self._under_way.pop(change.key, None)
        if isinstance(change.key, int):
            self._walks.pop(BrokerId(change.key), None)

    # --- how far

    def carry_out(self, change: PartMade) -> None:
        """Make a change that a decision lists."""
        match change:
            case Walked(walk, visited):
                if visited is None:
                    self._walks.pop(walk.broker_id, None)
                else:
                    self._walks[walk.broker_id] = change
            case ElectionDue(broker_id):
                self.elect_for(broker_id)
            case Elected(visited, more):
                if self._elected_to is None:
                    # It began at the first partition; a batch may have had room for none.
                    self._elects_again = more and visited is None
                self._elected_to = visited if more else None
                if self.is_electing:
                    self._begin_elections()
                else:
                    self._under_way.pop(ELECTIONS, None)

    def visited(self, walk: Walk) -> PartitionKey | None:
        """Return the partition after which a walk goes on; None: it begins at the first."""
        walked = self._walks.get(walk.broker_id)
        return walked.visited if walked is not None and walked.walk == walk else None

    def leaving(self) -> frozenset[BrokerId]:
        """Return the brokers that get nothing: a change takes them out of service, of a directory, or of leaderships."""
        return frozenset(self._walks).union(BrokerId(key) for key in self._under_way if isinstance(key, int))

    def failing_directories(self, broker_id: BrokerId) -> tuple[Uuid, ...]:
        """Return the log directories of a broker whose failure is being carried out in parts."""
        walked = self._walks.get(broker_id)
        return () if walked is None else walked.walk.log_dirs

    # --- elections

    @property
    def elected_to(self) -> PartitionKey | None:
        """The partition after which the elections under way go on; None: the next ones begin at the first."""
        return self._elected_to

    @property
    def is_electing(self) -> bool:
        """Whether partitions without a leader may still wait for their election."""
        return self._elected_to is not None or self._elects_again

    def elect_for(self, broker_id: BrokerId | None) -> None:
        """Have all partitions without a leader looked at: a broker may lead that could not, or there are more of them."""
        self._elects_again = True
        self._elects_for = broker_id
        self._begin_elections()

    def _begin_elections(self) -> None:
        if ELECTIONS not in self._under_way:
            self.begin(LongChange(ELECTIONS, self._elect, operation=HEARTBEAT))

    def _elect(self, context: DecideContext) -> Decision:
        known = self._elects_for if self._elects_for in context.image.brokers else None
        up = known or next(filter(context.image.is_active, sorted(context.image.brokers)), None)
        return elect_part(context, broker_id=up)

    # --- what the reign before had begun

    def take_over(self, image: MetadataImage) -> None:
        """Begin what a state shows begun: changes that take brokers out, controlled shutdowns, and elections."""
        for broker_id, begun in sorted(image.begun.items()):
            broker = image.brokers.get(broker_id)
            if broker is None or begun.broker_epoch != broker.broker_epoch:
                continue
            self.begin(_taken_over(image, broker, begun))
        for broker_id, broker in sorted(image.brokers.items()):
            is_stopping = broker.in_controlled_shutdown and not broker.fenced
            if is_stopping and broker_id not in self._under_way and image.topics.leads_any(broker_id):
                walk = Walk(WalkKind.STOPS, broker_id, broker.broker_epoch)
                self.begin(
                    of_walk(walk, Cause("CONTROLLED_SHUTDOWN", broker.broker_epoch, {"broker_id": broker_id}))
                )
        if image.topics.counts.leaderless:
            self.elect_for(None)


def of_walk(walk: Walk, cause: Cause, *, actor: str | None = None, operation: str = HEARTBEAT) -> LongChange:
    """Return the change of a broker whose parts are those of a walk over its partitions."""
    return LongChange(
        walk.broker_id,
        partial(next_part, walk, cause),
        operation,
        actor=actor,
        takes_out=walk.kind not in STAYS,
    )


def _taken_over(image: MetadataImage, broker: BrokerImage, begun: Begun) -> LongChange:
    """Return what finishes a change of the reign before. Of a registration the log does not say what would register: the
    former process is fenced, and the other one registers.
    """
    kind, operation = WalkKind.LEAVES, HEARTBEAT
    match begun.cause:
        case begun_changes.SESSION_EXPIRED:
            operation = FENCE_STALE
        case begun_changes.BROKER_UNREGISTERED:
            kind, operation = WalkKind.REMOVED, UNREGISTER
        case begun_changes.BROKER_REGISTERED:
            kind, operation = kind_of_departure(image, is_clean=begun.is_clean), REGISTER
        case begun_changes.LOG_DIR_OFFLINE:
            kind = WalkKind.FAILED
    log_dirs = begun.log_dirs if kind is WalkKind.FAILED else ()
    walk = Walk(kind, broker.broker_id, broker.broker_epoch, log_dirs)
    change = of_walk(walk, begun_changes.cause_of(broker.broker_id, begun), operation=operation)
    if begun.request_id is not None and begun.request_sha256 is not None:
        change.request = IdempotencyKey(request_id=begun.request_id, sha256=begun.request_sha256)
    return change


def carry_out(decision: Decision, sessions: Sessions, changes: Changes, *, now_ms: int) -> None:
    """Make what a decision changes beside the log."""
    for change in decision.session_changes:
        if isinstance(change, PartMade):
            changes.carry_out(change)
        else:
            sessions.carry_out(change, now_ms=now_ms)
