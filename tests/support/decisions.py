"""Edge: a cluster without Raft: commands are decided, encoded, decoded and applied at once, on a clock that stands still.

`World` runs commands given as text and renders what was written; transcripts, tables and property tests share it.
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence

from metadata_log.apply import apply, is_next
from metadata_log.batch import NO_ENVELOPE
from metadata_log.codec import decode, encode
from metadata_log.ids import LOST, MIGRATING, NO_LEADER, UNASSIGNED, BrokerId, NodeId, TopicId, Uuid
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from metadata_log.limits import FETCH_BYTES_DEFAULT
from metadata_log.records.brokers import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FeatureRange,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.configs import BROKER, TOPIC, ConfigRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.quorum import Voter, VoterEndpoint
from metadata_log.records.registry import Record, type_name
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord
from metadata_log.wire.commands import BrokerHeartbeat, Command, RegisterBroker
from metadata_log.wire.fetch import FetchRequest
from quorum.controller.changes import Changes, carry_out
from quorum.controller.sessions import Sessions
from quorum.decide.brokers import UnregisterBroker
from quorum.decide.configs import AlterConfigs
from quorum.decide.context import NOBODY, DecideContext, TopicDefaults
from quorum.decide.decision import Decision
from quorum.decide.fencing import fence
from quorum.decide.heartbeat import HeartbeatAnswered, unchanged
from quorum.decide.quorum import claim
from quorum.decide.registry import decide
from quorum.decide.topics import CreateTopic, DeleteTopic

CLUSTER_ID = "transcript-of-acluster"
CONTROLLER = NodeId(9000)
FEATURES = (FeatureRange("metadata.version", 25, 30), FeatureRange("metaquorum.version", 1, 5))
_RESERVED = {"MIGRATING": MIGRATING, "UNASSIGNED": UNASSIGNED, "LOST": LOST}


def word_uuid(word: str) -> Uuid:
    """Return the uuid a word stands for: the same word, the same uuid."""
    return _RESERVED.get(word) or Uuid(hashlib.md5(word.encode()).digest())


def ids(text: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(one)) for one in text.split(",") if one)


def registration(broker_id: int, **changes: object) -> RegisterBroker:
    fields: dict[str, object] = {
        "cluster_id": CLUSTER_ID,
        "broker_id": BrokerId(broker_id),
        "incarnation_id": word_uuid(f"b{broker_id}-1"),
        "endpoints": (BrokerEndpoint("PLAINTEXT", f"b{broker_id}", 9092, 0),),
        "features": FEATURES,
        "rack": None,
        "log_dirs": (word_uuid(f"d{broker_id}a"),),
        "previous_broker_epoch": -1,
    }
    return RegisterBroker(**(fields | changes))  # type: ignore[arg-type]


def creation(name: str, **changes: object) -> CreateTopic:
    fields: dict[str, object] = {
        "name": name,
        "partitions": -1,
        "replication_factor": -1,
        "assignment": None,
        "configs": {},
        "validate_only": False,
    }
    return CreateTopic(**(fields | changes))  # type: ignore[arg-type]


class World:
    """One controller with its soft state; `records` are those of the last batch."""

    def __init__(
        self,
        *,
        session_timeout_ms: int = 9000,
        seed: int = 1,
        records_max: int = 10_000,
        turns_are_short: bool = False,
        undelete_window_ms: int = 0,
    ) -> None:
        self.image = EMPTY
        self.sessions = Sessions(session_timeout_ms=session_timeout_ms)
        self.changes = Changes()
        self.now_ms = 0
        self.rng = random.Random(seed)
        self.records_max = records_max
        self.turns_are_short = turns_are_short
        self.topic_defaults = TopicDefaults(undelete_window_ms=undelete_window_ms)
        """Whether the time of a part is over whenever somebody looks."""
        self.registered_at: dict[int, int] = {}
        self.envelope = NO_ENVELOPE
        """Of the batches that follow."""
        self.frames: list[bytes] = []
        self.watchers: list[Callable[[MetadataImage, MetadataImage, Delta], None]] = []
        """Each is called with every batch: the image before, the image after, and what changed."""
        self._words: dict[bytes, str] = {uuid: word for word, uuid in _RESERVED.items()}
        self._topic_names: dict[TopicId, str] = {}
        self._check_ms = session_timeout_ms // 8
        voters = (
            Voter(CONTROLLER, word_uuid("controller"), (VoterEndpoint("CONTROLLER", "c", 9093),), 0, 1),
        )
        self.write(claim(EMPTY, node_id=CONTROLLER, cluster_id=CLUSTER_ID, voters=voters).records)

    # --- what is done

    def write(self, records: Sequence[Record]) -> None:
        """Apply records as a controller would: through the bytes of a frame."""
        if not records:
            return
        epoch = self.image.controller_epoch or 1
        _, frame = encode(
            base_offset=self.image.end_offset,
            controller_epoch=epoch,
            appended_at_ms=self.now_ms,
            previous_crc=self.image.last_crc,
            envelope=self.envelope,
            records=records,
        )
        self.frames.append(frame)
        batch, _ = decode(frame)
        assert is_next(self.image, batch)
        for offset, record in enumerate(batch.records, batch.base_offset):
            if isinstance(record, RegisterBrokerRecord):
                self.registered_at[record.broker_id] = offset
            if isinstance(record, TopicRecord):
                self._topic_names[record.topic_id] = record.name
        image_before = self.image
        self.image, delta = apply(image_before, batch)
        for watch in self.watchers:
            watch(image_before, self.image, delta)

    def context(self, *, ineligible: frozenset[BrokerId] = NOBODY) -> DecideContext:
        """Return what a decision rests on. As in the controller, brokers that a walk takes out of service are ineligible."""
        return DecideContext(
            image=self.image,
            sessions=self.sessions,
            changes=self.changes,
            now_ms=self.now_ms,
            rng=self.rng,
            cluster_id=CLUSTER_ID,
            ineligible=ineligible | self.changes.leaving(),
            records_max=self.records_max,
            unix_ms=self.now_ms,
            topic_defaults=self.topic_defaults,
            is_turn_over=lambda: self.turns_are_short,
        )

    def decide(self, command: Command) -> Decision:
        """Decide a command and carry out what it leads to."""
        decision = self._made(self.context(), command)
        self.carry_out(decision)
        return decision

    def _made(self, context: DecideContext, command: Command) -> Decision:
        """Decide a command; of a heartbeat, also see that the short way says the same or nothing."""
        short = (
            unchanged(self.image, self.sessions, command) if isinstance(command, BrokerHeartbeat) else None
        )
        decision = decide(context, command)
        assert short in (None, decision)
        return decision

    def carry_out(self, decision: Decision) -> None:
        self.write(decision.records)
        carry_out(decision, self.sessions, self.changes, now_ms=self.now_ms)

    def elect(self) -> list[Decision]:
        """Hold the elections that are due to their end; return their parts."""
        parts: list[Decision] = []
        while (elections := self.changes.next()) is not None:
            parts.append(elections.next_part(self.context()))
            self.carry_out(parts[-1])
        return parts

    def request(self, broker_id: int, **changes: object) -> FetchRequest:
        broker = self.image.brokers.get(BrokerId(broker_id))
        fields: dict[str, object] = {
            "cluster_id": CLUSTER_ID,
            "broker_id": BrokerId(broker_id),
            "broker_epoch": -1 if broker is None else broker.broker_epoch,
            "incarnation_id": word_uuid("nobody") if broker is None else broker.incarnation_id,
            "fetch_offset": 0,
            "last_epoch": -1,
            "last_crc": 0,
            "applied_offset": self.image.end_offset,
            "want_fence": False,
            "want_shut_down": False,
            "offline_log_dirs": (),
            "cordoned_log_dirs": None,
            "max_bytes": FETCH_BYTES_DEFAULT,
            "max_wait_ms": 0,
        }
        return FetchRequest(**(fields | changes))  # type: ignore[arg-type]

    def decided(self, command: Command, *, ineligible: frozenset[BrokerId] = NOBODY) -> Decision:
        """Decide a command and carry out nothing."""
        return self._made(self.context(ineligible=ineligible), command)

    def heartbeat(self, broker_id: int, **changes: object) -> Decision:
        return self.decide(self.request(broker_id, **changes).heartbeat())

    def expire(self, broker_id: int, broker_epoch: int) -> list[Decision]:
        """Fence a broker in as many parts as it takes."""
        parts: list[Decision] = []
        while not parts or parts[-1].more:
            ineligible = frozenset({BrokerId(broker_id)}) if parts else frozenset()
            decision = fence(
                self.context(ineligible=ineligible),
                broker_id=BrokerId(broker_id),
                broker_epoch=broker_epoch,
            )
            self.carry_out(decision)
            parts.append(decision)
        self.sessions.forget(BrokerId(broker_id), broker_epoch)
        return parts

    def advance(self, ms: int, alive: Iterable[int]) -> list[Decision]:
        """Move the clock, check sessions at each eighth of the timeout, and hear from those alive all the time."""
        end_ms, decisions, alive = self.now_ms + ms, [], list(alive)
        while self._check_ms <= end_ms:
            self.now_ms = self._check_ms
            self._hear(alive)
            expired = self.sessions.expired(self.now_ms)
            if expired is None:
                self._check_ms += self.sessions.session_timeout_ms // 8
                continue
            self._check_ms += 10
            broker = self.image.brokers.get(expired[0])
            if broker is not None and broker.broker_epoch == expired[1]:
                decisions += self.expire(expired[0], expired[1])
            self.sessions.forget(expired[0], expired[1])
        self.now_ms = end_ms
        self._hear(alive)
        return decisions

    def _hear(self, alive: Iterable[int]) -> None:
        for broker_id in map(BrokerId, alive):
            broker = self.image.brokers.get(broker_id)
            reported = self.sessions.applied_offset(broker_id)
            if broker is not None and reported is not None:
                self.sessions.contact(
                    broker_id, broker.broker_epoch, now_ms=self.now_ms, applied_offset=reported
                )

    # --- what is done, as text

    def run(self, line: str) -> list[str]:
        """Run one line of a transcript and return what it led to."""
        verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        match verb:
            case "register":
                return self._told(self.decide(self._registration(int(plain[0]), options)))
            case "heartbeat":
                changes = self._heartbeat_changes(int(plain[0]), plain[1:], options)
                return self._told_heartbeat(self.heartbeat(int(plain[0]), **changes))
            case "unregister":
                return self._told(self.decide(UnregisterBroker(broker_id=BrokerId(int(plain[0])))))
            case "expire":
                broker = self.image.brokers[BrokerId(int(plain[0]))]
                return self.rendered(self.expire(broker.broker_id, broker.broker_epoch))
            case "advance":
                alive = options.get("alive", "")
                heard = self.image.brokers if alive == "all" else ids(alive)
                return self.rendered(self.advance(int(plain[0]), heard))
            case "create":
                return self._told(self.decide(self._creation(plain, options)))
            case "delete":
                return self._told(self.decide(DeleteTopic(name=plain[0])))
            case "set" | "unset":
                kind, _, name = plain[0].partition(":")
                command = AlterConfigs(
                    resource_type=TOPIC if kind == "topic" else BROKER,
                    resource_name=name,
                    set=options,
                    unset=tuple(plain[1:]),
                )
                return self._told(self.decide(command))
            case "isr":
                name, _, partition_id = plain[0].rpartition("-")
                self.write(
                    [PartitionChangeRecord(self.image.topics.ids[name], int(partition_id), isr=ids(plain[1]))]
                )
                return []
            case "state":
                return self._state()
        raise AssertionError(f"no such command: {verb}")

    def _registration(self, broker_id: int, options: dict[str, str]) -> RegisterBroker:
        changes: dict[str, object] = {}
        if "incarnation" in options:
            changes["incarnation_id"] = word_uuid(options["incarnation"])
        if "dirs" in options:
            changes["log_dirs"] = tuple(map(self._uuid, filter(None, options["dirs"].split(","))))
        if "rack" in options:
            changes["rack"] = options["rack"]
        self._uuid(f"d{broker_id}a")
        return registration(broker_id, **changes)

    def _heartbeat_changes(
        self, broker_id: int, plain: list[str], options: dict[str, str]
    ) -> dict[str, object]:
        changes: dict[str, object] = {"want_fence": "fence" in plain, "want_shut_down": "shutdown" in plain}
        if "applied" in options:
            base, sign, by = options["applied"].partition("-")
            end = self.image.end_offset if base == "end" else self.registered_at[broker_id] + 1
            changes["applied_offset"] = end - int(by) if sign else end
        if "cordoned" in options:
            changes["cordoned_log_dirs"] = tuple(
                map(self._uuid, filter(None, options["cordoned"].split(",")))
            )
        return changes

    def _creation(self, plain: list[str], options: dict[str, str]) -> CreateTopic:
        changes: dict[str, object] = {}
        if "on" in options:
            changes["assignment"] = tuple(map(ids, options.pop("on").split("/")))
        if "partitions" in options:
            changes["partitions"] = int(options.pop("partitions"))
        if "replicas" in options:
            changes["replication_factor"] = int(options.pop("replicas"))
        return creation(plain[0], configs=options, **changes)

    def _uuid(self, word: str) -> Uuid:
        uuid = word_uuid(word)
        self._words[uuid] = word
        return uuid

    # --- what is shown

    def _told(self, decision: Decision) -> list[str]:
        if decision.refusal is not None:
            return [f"! {decision.refusal.error}: {decision.refusal.message}"]
        return self.rendered([decision])

    def _told_heartbeat(self, decision: Decision) -> list[str]:
        if decision.refusal is not None:
            return self._told(decision)
        answer = answered(decision)
        told = answer.state.value + (", may shut down" if answer.should_shut_down else "")
        return [*self.rendered([decision]), f"-> {told}"]

    def rendered(self, decisions: Iterable[Decision]) -> list[str]:
        """Return one line a record; a line of its own says what a batch was written for."""
        lines: list[str] = []
        for decision in decisions:
            if decision.records:
                lines += [] if decision.cause is None else [f"[{decision.cause.code}]"]
                lines += [self.render(record) for record in decision.records]
        return lines

    def render(self, record: Record) -> str:
        match record:
            case RegisterBrokerRecord():
                flags = ("fenced " if record.fenced else "") + (
                    "stopping " if record.in_controlled_shutdown else ""
                )
                return f"broker {record.broker_id} registered at {record.broker_epoch} {flags}{self._dirs(record.log_dirs)}"
            case UnregisterBrokerRecord():
                return f"broker {record.broker_id} unregistered"
            case BrokerRegistrationChangeRecord():
                what = {True: "fenced", False: "unfenced", None: ""}[record.fenced]
                what += "stopping" if record.in_controlled_shutdown else ""
                what += "" if record.log_dirs is None else self._dirs(record.log_dirs)
                cordoned = record.cordoned_log_dirs
                what += "" if cordoned is None else f"cordoned {self._dirs(cordoned) or 'none'}"
                return f"broker {record.broker_id} {what}"
            case TopicRecord():
                return f"topic {record.name}"
            case RemoveTopicRecord():
                return f"topic {self._topic_names[record.topic_id]} removed"
            case ConfigRecord():
                kind = "topic" if record.resource_type == TOPIC else "broker"
                return f"config {kind}:{record.resource_name} {record.name}={record.value}"
            case PartitionRecord():
                name = f"{self._topic_names[record.topic_id]}-{record.partition_id}"
                return (
                    f"partition {name} replicas {_list(record.replicas)} isr {_list(record.isr)} leader {record.leader} "
                    f"in {self._dirs(record.directories)}"
                )
            case PartitionChangeRecord():
                name = f"{self._topic_names[record.topic_id]}-{record.partition_id}"
                parts = [] if record.isr is None else [f"isr {_list(record.isr)}"]
                if record.leader is not None:
                    parts.append("no leader" if record.leader == NO_LEADER else f"leader {record.leader}")
                parts += [] if record.leader_recovery_state is None else ["recovering"]
                return f"partition {name} {', '.join(parts)}"
        return type_name(record)

    def _dirs(self, uuids: Sequence[Uuid]) -> str:
        return ",".join(self._words.get(uuid, uuid.hex()) for uuid in uuids)

    def _state(self) -> list[str]:
        lines = []
        for broker_id, broker in sorted(self.image.brokers.items()):
            session = self.sessions.has_session(broker_id, broker.broker_epoch, now_ms=self.now_ms)
            flags = "fenced" if broker.fenced else "unfenced"
            flags += ", stopping" if broker.in_controlled_shutdown else ""
            lines.append(f"broker {broker_id} {flags}{', session' if session else ''}")
        for name, topic_id in sorted(self.image.topics.ids.items()):
            for partition_id, p in enumerate(self.image.topics.by_id[topic_id].partitions):
                leader = "no leader" if p.leader == NO_LEADER else f"leader {p.leader}"
                lines.append(
                    f"partition {name}-{partition_id} replicas {_list(p.replicas)} isr {_list(p.isr)} {leader}, "
                    f"epochs {p.leader_epoch} and {p.partition_epoch}{', recovering' if p.leader_recovery_state else ''}"
                )
        return lines


def answered(decision: Decision) -> HeartbeatAnswered:
    """Return what a heartbeat is answered."""
    assert isinstance(decision.outcome, HeartbeatAnswered)
    return decision.outcome


def _list(values: Sequence[int]) -> str:
    return ",".join(map(str, values)) or "none"


def invariants_hold(
    image: MetadataImage, *, halfway: frozenset[int] = frozenset(), with_restored: bool = False
) -> None:
    """Check what must be true after every batch; brokers `halfway` through their fencing may still lead.

    `with_restored`: a leaderless partition may have the ISR that it had when its topic was deleted, or what is left of it.
    """
    for topic in image.topics.by_id.values():
        for partition in topic.partitions:
            is_waiting = with_restored and partition.leader == NO_LEADER
            assert partition.isr or is_waiting, "an ISR is never empty"
            assert set(partition.isr) <= set(partition.replicas)
            assert len(set(partition.replicas)) == len(partition.replicas) == len(partition.directories)
            if partition.leader != NO_LEADER:
                assert partition.leader in partition.isr
                assert not image.brokers[partition.leader].fenced or partition.leader in halfway
            for broker_id in partition.isr if len(partition.isr) > 1 and not is_waiting else ():
                assert not image.brokers[broker_id].fenced or broker_id in halfway
