"""Pure: a rough picture of a cluster, kept while a script is written, so that most requests mean something.

It aims at states that matter: leaderless partitions, eligible leader replicas, reassignments whose targets are dead,
controlled shutdowns under way. A wrong guess is one more invalid request.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar

from metadata_log.metadata_versions import ELIGIBLE_FROM
from metadata_log.records.features import METADATA_VERSION_LEVEL, METADATA_VERSION_MIN
from metadata_log.wire.shapes import INT64_MAX
from tests.support.kafka_answers import SECRET_KEY

T = TypeVar("T")
Line: TypeAlias = dict[str, Any]

LEFT_OUT: Final = object()
"""The value of a field that a line does not have."""
UNCLEAN: Final = "unclean.leader.election.enable"
MIN_ISR: Final = "min.insync.replicas"
CONTROLLER_ID: Final = 3_000
_DAY_MS: Final = 24 * 3600 * 1000


class State(Enum):
    NEW = "new"
    FENCED = "fenced"
    ONLINE = "online"
    STOPPING = "stopping"
    GONE = "gone"


REGISTERED: Final = (State.FENCED, State.ONLINE, State.STOPPING)


@dataclass(slots=True)
class Broker:
    broker_id: int
    rack: str | None
    log_dirs: list[str]
    state: State = State.NEW
    incarnation: int = 0
    contact_ms: int | None = None

    @property
    def is_registered(self) -> bool:
        return self.state in REGISTERED

    @property
    def incarnation_id(self) -> str:
        return f"b{self.broker_id}-{self.incarnation}"


@dataclass(slots=True)
class Partition:
    replicas: list[int]
    isr: list[int]
    leader: int = -1
    eligible: list[int] = field(default_factory=list)
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)
    is_recovering: bool = False

    @classmethod
    def created(cls, replicas: Sequence[int], isr: Sequence[int]) -> "Partition":
        return cls([*replicas], [*isr], isr[0] if isr else -1)

    @property
    def target(self) -> list[int]:
        return [each for each in self.replicas if each not in self.removing]

    @property
    def is_reassigned(self) -> bool:
        return bool(self.adding or self.removing)


def _level(rng: random.Random, *, has_eligible: bool) -> int:
    """Return the level of most clusters, or any that has what a cluster needs."""
    if rng.random() < 0.5:
        return METADATA_VERSION_LEVEL
    return rng.randint(ELIGIBLE_FROM if has_eligible else METADATA_VERSION_MIN, METADATA_VERSION_LEVEL)


class Picture:
    """The cluster as the script's lines so far should have left it; `lines` are these."""

    def __init__(self, seed: int, *, has_eligible: bool | None = None) -> None:
        self.rng = random.Random(seed)
        rng = self.rng
        drawn = rng.random() < 0.5
        self.has_eligible = drawn if has_eligible is None else has_eligible
        self.level = _level(rng, has_eligible=self.has_eligible)
        """Of metadata.version."""
        self.session_ms = rng.choice([9_000, 9_000, 9_000, 3_000, 18_000])
        self.static_unclean = rng.random() < 0.15
        self.cluster_unclean: str | None = None
        self.min_isr = rng.choice([1, 1, 2, 2, 3])
        self.has_remote_storage = rng.random() < 0.4
        self.now_ms = 0
        self.lines: list[Line] = []
        self.emit(
            "Options",
            metadata_version=self.level,
            eligible_leader_replicas=int(self.has_eligible),
            session_timeout_ms=self.session_ms,
            min_insync_replicas=self.min_isr,
            unclean_leader_election_enable=self.static_unclean,
            remote_log_storage_system_enable=self.has_remote_storage or LEFT_OUT,
            leader_imbalance_check_interval_seconds=rng.choice([300, 300, 60, 0]),
            default_replication_factor=rng.choice([1, 2, 3]),
            placement_seed=rng.randrange(1_000),
            **self._of_tokens(),
        )
        count, first = rng.randint(3, 7), rng.choice([0, 1, 1])
        self.brokers: dict[int, Broker] = {}
        for broker_id in range(first, first + count):
            log_dirs = [f"d{broker_id}{letter}" for letter in "abc"[: rng.choice([1, 1, 2, 3])]]
            rack = rng.choice([None, "r1", "r2", "r3"])
            self.brokers[broker_id] = Broker(broker_id, rack, log_dirs)
        self.topics: dict[str, list[Partition]] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.deleted: list[str] = []
        self.generations: dict[str, int] = {}
        self.tokens = 0
        """How many delegation tokens were issued."""

    def _of_tokens(self) -> Line:
        """Return the options about delegation tokens; in some scripts these are disabled."""
        rng = self.rng
        self.has_tokens = rng.random() < 0.9
        if not self.has_tokens:
            return {}
        return {
            "delegation_token_secret_key": SECRET_KEY,
            "delegation_token_max_lifetime_ms": rng.choice(
                [7 * _DAY_MS, 7 * _DAY_MS, 300_000, 900_000, INT64_MAX]
            ),
            "delegation_token_expiry_time_ms": rng.choice([_DAY_MS, 60_000, 240_000])
            if rng.random() < 0.97
            else INT64_MAX,
            "delegation_token_expiry_check_interval_ms": rng.choice([3_600_000, 3_600_000, 60_000, 10_000]),
        }

    def emit(self, op: str, **fields: Any) -> None:
        """Add a line, without the fields that are LEFT_OUT."""
        self.lines.append(
            {"op": op, **{name: value for name, value in fields.items() if value is not LEFT_OUT}}
        )

    # --- chance

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, items: Iterable[T], default: T) -> T:
        chosen = list(items)
        return self.rng.choice(chosen) if chosen else default

    def mostly(self, value: T, share: float, otherwise: T) -> T:
        """Return `value` with a probability of `share`."""
        return value if self.chance(share) else otherwise

    # --- looking

    def ids(self, *states: State) -> list[int]:
        return [broker.broker_id for broker in self.brokers.values() if broker.state in states]

    def any_broker(self, ids: Sequence[int] = ()) -> Broker:
        """Return one of these brokers; without any, one of all."""
        return self.brokers[self.rng.choice(list(ids) or list(self.brokers))]

    def is_active(self, broker_id: int, plus: int | None = None, minus: int | None = None) -> bool:
        """Answer whether a broker may lead, once `plus` has come back and `minus` is lost."""
        if broker_id == minus:
            return False
        broker = self.brokers.get(broker_id)
        return broker_id == plus or (broker is not None and broker.state is State.ONLINE)

    def partitions(self) -> list[tuple[str, int, Partition]]:
        return [
            (topic, number, partition)
            for topic, partitions in self.topics.items()
            for number, partition in enumerate(partitions)
        ]

    def any_partition(
        self, wanted: Callable[[Partition], bool] = lambda _: True
    ) -> tuple[str, int, Partition] | None:
        """Return a partition of those that are wanted; without any, one of all."""
        every = self.partitions()
        good = [each for each in every if wanted(each[2])] or every
        return self.rng.choice(good) if good else None

    # --- roughly what a controller does

    def _elects_uncleanly(self, topic: str) -> bool:
        value = self.configs.get(topic, {}).get(UNCLEAN, self.cluster_unclean)
        return self.static_unclean if value is None else value == "true"

    def settle(
        self,
        topic: str,
        partition: Partition,
        *,
        plus: int | None = None,
        minus: int | None = None,
        unclean: bool = False,
    ) -> None:
        """End a reassignment whose replicas are in sync, and elect a leader."""
        self._complete(partition)
        min_isr = int(self.configs.get(topic, {}).get(MIN_ISR, self.min_isr))
        if not self.has_eligible or len(partition.isr) >= min(min_isr, len(partition.replicas)):
            partition.eligible = []

        def is_active(broker_id: int) -> bool:
            return self.is_active(broker_id, plus, minus)

        def is_good(broker_id: int) -> bool:
            in_sync = broker_id in partition.isr
            return (in_sync or (not partition.isr and broker_id in partition.eligible)) and is_active(
                broker_id
            )

        if partition.leader >= 0 and is_good(partition.leader):
            return
        leader = next(filter(is_good, partition.replicas), -1)
        if leader < 0 and (unclean or self._elects_uncleanly(topic)):
            leader = next(filter(is_active, partition.replicas), -1)
            if leader >= 0:
                partition.is_recovering, partition.isr, partition.eligible = True, [leader], []
        elif leader in partition.eligible:
            partition.isr = [leader]
            partition.eligible = [each for each in partition.eligible if each != leader]
        partition.leader = leader

    @staticmethod
    def _complete(partition: Partition) -> None:
        if not partition.is_reassigned:
            return
        isr = [each for each in partition.isr if each not in partition.removing]
        waits = len(partition.adding) < len(partition.removing) and set(partition.target) - set(isr)
        if isr and set(partition.adding) <= set(isr) and not waits:
            partition.replicas, partition.isr = partition.target, isr
            partition.adding, partition.removing = [], []

    def lose(self, broker_id: int, *, is_unclean: bool = False) -> None:
        for topic, _, partition in self.partitions():
            if broker_id in partition.isr:
                rest = [each for each in partition.isr if each != broker_id]
                if self.has_eligible and not is_unclean:
                    partition.eligible = [*partition.eligible, broker_id]
                if rest or self.has_eligible:
                    partition.isr = rest
            if is_unclean and broker_id in partition.eligible:
                partition.eligible.remove(broker_id)
            self.settle(topic, partition, minus=broker_id)

    def fence(self, broker_id: int) -> None:
        self.lose(broker_id)
        self.brokers[broker_id].state = State.FENCED

    def unfence(self, broker_id: int) -> None:
        self.brokers[broker_id].state = State.ONLINE
        for topic, _, partition in self.partitions():
            if partition.leader < 0:
                self.settle(topic, partition)
