"""Pure: a controller without Raft: decisions are applied at once, on a clock that scripts move.

Its timers are those of Kafka's controller: the session check, preferred balancing, the unclean sweep and that of
delegation tokens.
Tests: tests/unit/quorum/whatif/test_losses.py.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from metadata_log.apply import apply, image_of
from metadata_log.batch import NO_ENVELOPE, Cause, RecordBatch
from metadata_log.codec import packed_records
from metadata_log.ids import BrokerId, NodeId
from metadata_log.image.features import metadata_level
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.kafka_settings import REMOTE_STORAGE_SYSTEM
from metadata_log.limits import RECORDS_PER_BATCH_MAX, SESSION_CHECK_AGAIN_MS
from metadata_log.metadata_versions import TRANSACTIONS_FROM
from metadata_log.records.brokers import RegisterBrokerRecord
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, MIN_IN_SYNC_REPLICAS, ConfigRecord
from metadata_log.records.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METAQUORUM_VERSION,
    METAQUORUM_VERSION_LEVEL,
    FeatureLevelRecord,
)
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.wire.commands import Command
from metadata_log.wire.shapes import INT32_MAX
from quorum.controller.changes import Changes, carry_out
from quorum.controller.token_hmacs import TokenHmacs
from quorum.decide.context import DecideContext, TokenRules, TopicDefaults, TopicPolicy
from quorum.decide.decision import Decision
from quorum.decide.effective_configs import UNCLEAN_LEADER_ELECTION
from quorum.decide.fencing import fence
from quorum.decide.java import JavaRandom
from quorum.decide.registry import decide
from quorum.decide.sweeps import Sweep, SweepKind
from quorum.decide.tokens import TokenSweep
from quorum.whatif.kafka_records import count_in_kafka
from quorum.whatif.sessions import ScriptSessions

CLUSTER_ID: Final = "whatif-cluster"
CHECKS_PER_TIMEOUT: Final = 8
FOUNDED_AT_MS: Final = 1_000_000_000
"""The time of day at which an empty cluster begins; the clock of Kafka's controller begins there, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a script may choose of its cluster, or a controller's settings say of it; an interval of 0 means never."""

    eligible_leader_replicas: int = 0
    session_timeout_ms: int = 9_000
    default_replication_factor: int = 3
    num_partitions: int = 1
    min_insync_replicas: int = 1
    undelete_window_ms: int = 0
    partitions_per_topic_max: int = INT32_MAX
    replication_factor_min: int = 1
    remote_log_storage_system_enable: bool = False
    unclean_leader_election_enable: bool = False
    leader_imbalance_check_interval_seconds: int = 300
    leader_imbalance_per_broker_percentage: int = 0
    unclean_leader_election_interval_ms: int = 300_000
    controller_id: int = 3_000
    placement_seed: int = 0
    metadata_version: int = METADATA_VERSION_LEVEL
    takes_unstable_levels: bool = True
    delegation_token_secret_key: str = ""
    """Empty: there are no delegation tokens."""
    delegation_token_max_lifetime_ms: int = 604_800_000
    delegation_token_expiry_time_ms: int = 86_400_000
    delegation_token_expiry_check_interval_ms: int = 3_600_000

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> "Options":
        """Return the options of a cluster whose active controller answers GET /v1/quorum/settings with `settings`."""
        features = settings.get("features", {})  # an older controller does not say them
        told = {
            **settings["topics"],
            **settings["elections"],
            **settings,
            "takes_unstable_levels": features.get("unstable_levels", False),
        }
        return cls(**{name: told[name] for name in cls.__dataclass_fields__ if name in told})


@dataclass(frozen=True, slots=True)
class Written:
    """One batch, at `at_ms` since the beginning of the script."""

    at_ms: int
    records: tuple[Record, ...]
    cause: Cause | None
    has_eligible: bool
    """Whether eligible leader replicas were on before it."""
    level: int
    """That of metadata.version before it."""


@dataclass(slots=True)
class _Timer:
    due_ms: int
    set_at: int
    period_ms: int
    run: Callable[[], bool]
    """Answers whether it must run again at once."""


class Cluster:
    """One controller's state, its sessions and its clock; `written` has what was written since `take_written`.

    With `checks_as_brokers` it is asked by clients, and not by Kafka's brokers, which refuse some requests themselves.
    `linked` are the controllers that run; None: nothing is known of links, and no controller is taken for dead. `rng` draws
    ids and the keys of secrets' masks; without one they follow from the seed, so a reader of a mask can also draw its key.
    """

    def __init__(
        self,
        options: Options,
        image: MetadataImage | None = None,
        *,
        checks_as_brokers: bool = False,
        linked: Collection[NodeId] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.options = options
        self._checks_as_brokers = checks_as_brokers
        self._linked = linked
        self.image = founded(options) if image is None else image
        self.cluster_id = self.image.quorum.cluster_id or CLUSTER_ID
        self.now_ms = 0
        self._began_at_ms = self.image.last_time_ms
        self.tokens = TokenHmacs()
        self.tokens.use(options.delegation_token_secret_key.encode() or None)
        self.tokens.on_restored(self.image)
        self.sessions = ScriptSessions(session_timeout_ms=options.session_timeout_ms)
        self.changes = Changes()
        if image is not None:
            self.sessions.grant(image, 0)
        self.rng = random.Random(options.placement_seed) if rng is None else rng
        self._placement_rng = JavaRandom(options.placement_seed)
        self._written: list[Written] = []
        self._timers: list[_Timer] = []
        self._timers_set = 0
        # Those of one instant run in this order, in which Kafka's hash map has their names.
        if self.tokens.is_on:
            period_ms = options.delegation_token_expiry_check_interval_ms
            self._set_timer(period_ms, lambda: self.sweep(TokenSweep()))
        if options.leader_imbalance_check_interval_seconds:
            period_ms = 1_000 * options.leader_imbalance_check_interval_seconds
            percentage = options.leader_imbalance_per_broker_percentage
            self._set_timer(
                period_ms, lambda: self.sweep(Sweep(SweepKind.BALANCE, imbalance_percentage=percentage))
            )
        if options.unclean_leader_election_interval_ms:
            period_ms = options.unclean_leader_election_interval_ms
            self._set_timer(period_ms, lambda: self.sweep(Sweep(SweepKind.UNCLEAN)))
        self._set_timer(options.session_timeout_ms // CHECKS_PER_TIMEOUT, self._check_sessions)

    # --- decisions

    def decide(self, command: Command, *, requester: str = "") -> Decision:
        """Decide a command of a principal and carry out what it leads to, in as many parts as it takes; return the last
        one's decision.
        """
        decision = decide(self.context(requester), command)
        self.carry_out(decision)
        while decision.walked is not None or (decision.more and self.changes.elected_to is None):
            decision = decide(self.context(requester), command)
            self.carry_out(decision)
        while self.changes.is_electing and (elections := self.changes.next()) is not None:
            self.carry_out(elections.next_part(self.context()))
        return decision

    def carry_out(self, decision: Decision) -> None:
        """Write a decision's records and make its changes of sessions."""
        if decision.refusal is None and decision.records:
            self.write(decision.records, decision.cause)
        carry_out(decision, self.sessions, self.changes, now_ms=self.now_ms)

    def write(self, records: Sequence[Record], cause: Cause | None = None) -> None:
        """Apply a batch.

        Raises:
            PolicyViolation: clients ask, and the records are more bytes than a batch may have.
        """
        image = self.image
        if self._checks_as_brokers:
            packed_records(records)
        batch = RecordBatch(
            base_offset=image.end_offset,
            controller_epoch=image.controller_epoch,
            appended_at_ms=self._unix_ms(),
            previous_crc=image.last_crc,
            crc=image.last_crc,
            envelope=NO_ENVELOPE,
            records=tuple(records),
        )
        has_eligible = image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0
        level = metadata_level(image.features)
        written = Written(self.now_ms, tuple(records), cause, has_eligible, level)
        # Scripts count offsets as Kafka's records do.
        end_offset = image.end_offset + count_in_kafka(written.records, has_eligible=has_eligible)
        after, delta = apply(image, batch)
        self.image = replace(after, end_offset=end_offset)
        self.tokens.on_applied(batch, b"", self.image, delta)
        self._written.append(written)
        for record in records:
            if isinstance(record, RegisterBrokerRecord):
                self.sessions.registered(
                    record.broker_id, record.broker_epoch, batch_offset=batch.base_offset
                )

    def take_written(self) -> list[Written]:
        """Return what was written since the last call."""
        written, self._written = self._written, []
        return written

    def context(self, requester: str = "") -> DecideContext:
        """Return what a decision now rests on, for a principal that asks."""
        options = self.options
        return DecideContext(
            image=self.image,
            sessions=self.sessions,
            changes=self.changes,
            now_ms=self.now_ms,
            rng=self.rng,
            cluster_id=self.cluster_id,
            node_id=options.controller_id,
            static_configs={
                MIN_IN_SYNC_REPLICAS: str(options.min_insync_replicas),
                UNCLEAN_LEADER_ELECTION: str(options.unclean_leader_election_enable).lower(),
                REMOTE_STORAGE_SYSTEM: str(options.remote_log_storage_system_enable).lower(),
            },
            topic_defaults=TopicDefaults(
                options.num_partitions, options.default_replication_factor, options.undelete_window_ms
            ),
            topic_policy=TopicPolicy(options.partitions_per_topic_max, options.replication_factor_min),
            unix_ms=self._unix_ms(),
            checks_as_brokers=self._checks_as_brokers,
            takes_unstable_levels=options.takes_unstable_levels,
            placement_rng=self._placement_rng,
            records_max=RECORDS_PER_BATCH_MAX,
            is_linked=lambda node_id: self._linked is None or node_id in self._linked,
            requester=requester,
            tokens=self._token_rules(),
        )

    def _token_rules(self) -> TokenRules | None:
        if not self.tokens.is_on:
            return None
        options = self.options
        return TokenRules(
            options.delegation_token_max_lifetime_ms,
            options.delegation_token_expiry_time_ms,
            self.tokens.id_of,
        )

    # --- time

    def _unix_ms(self) -> int:
        return self._began_at_ms + self.now_ms

    def advance(self, ms: int, alive: Collection[BrokerId]) -> None:
        """Move the clock, and run each timer that is due on the way.

        Brokers `alive` that have a session renew it all the time.
        """
        end_ms = self.now_ms + ms
        while True:
            timer = min(self._timers, key=lambda timer: (timer.due_ms, timer.set_at))
            if timer.due_ms > end_ms:
                break
            self._move_to(timer.due_ms, alive)
            again = timer.run()
            timer.due_ms = self.now_ms + (SESSION_CHECK_AGAIN_MS if again else timer.period_ms)
            timer.set_at = self._next_set()
        self._move_to(end_ms, alive)

    def expire(self, broker_id: BrokerId) -> bool:
        """Let a broker's session end now; False if it has none."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or not self.sessions.is_known(broker_id, broker.broker_epoch):
            return False
        self.sessions.end(broker_id, broker.broker_epoch, now_ms=self.now_ms)
        while self.sessions.is_known(broker_id, broker.broker_epoch):
            self._check_sessions()
        return True

    def _move_to(self, now_ms: int, alive: Collection[BrokerId]) -> None:
        self.now_ms = now_ms
        for broker_id in alive:
            broker = self.image.brokers.get(broker_id)
            if broker is not None and self.sessions.is_known(broker_id, broker.broker_epoch):
                self.sessions.heard_of(broker_id, broker.broker_epoch, now_ms=now_ms)

    def _set_timer(self, period_ms: int, run: Callable[[], bool]) -> None:
        self._timers.append(_Timer(self.now_ms + period_ms, self._next_set(), period_ms, run))

    def _next_set(self) -> int:
        self._timers_set += 1
        return self._timers_set

    def _check_sessions(self) -> bool:
        pair = self.sessions.take_expired(self.now_ms)
        if pair is None:
            return False
        broker_id, broker_epoch = pair
        broker = self.image.brokers.get(broker_id)
        more = broker is not None and broker.broker_epoch == broker_epoch
        while more:
            decision = fence(self.context(), broker_id=broker_id, broker_epoch=broker_epoch)
            self.carry_out(decision)
            more = decision.more
        return True

    def sweep(self, sweep: Sweep | TokenSweep) -> bool:
        """Hold one part of a sweep; answer whether it is not at its end."""
        decision = sweep.part(self.context())
        self.carry_out(decision)
        return decision.more


def activation(options: Options) -> tuple[Record, ...]:
    """Return the records of a founding that this project has as well."""
    records: list[Record] = [FeatureLevelRecord(METADATA_VERSION, options.metadata_version)]
    if options.eligible_leader_replicas:
        records += [
            FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, options.eligible_leader_replicas),
            ConfigRecord(BROKER, CLUSTER_DEFAULT, MIN_IN_SYNC_REPLICAS, str(options.min_insync_replicas)),
        ]
    return tuple(records)


def founded(options: Options) -> MetadataImage:
    """Return the state of an empty cluster at the offset where Kafka's begins: after a control record, and a transaction
    where its level has them.
    """
    records = activation(options)
    others = 3 if options.metadata_version >= TRANSACTIONS_FROM else 1
    header = SnapshotHeaderRecord(
        cluster_id=CLUSTER_ID,
        end_offset=others + len(records),
        controller_epoch=1,
        last_time_ms=FOUNDED_AT_MS,
        last_crc=0,
    )
    # The level of our own records is not among Kafka's, so it takes no offset of theirs.
    levels = (FeatureLevelRecord(METAQUORUM_VERSION, METAQUORUM_VERSION_LEVEL),)
    return image_of((*records, *levels), header=header)
