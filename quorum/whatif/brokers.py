"""Pure: the operations of scripts on brokers and on time. Tests: tests/unit/quorum/whatif/test_kafka_scripts.py."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from metadata_log.errors import OutcomeUnknown, StaleBrokerEpoch
from metadata_log.ids import BrokerId, NodeId
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange
from metadata_log.records.features import (
    BROKERS_FEATURES,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
)
from metadata_log.wire.commands import (
    AllocateProducerIds,
    BrokerHeartbeat,
    RegisterBroker,
    RegisterController,
)
from metadata_log.wire.fetch import BrokerState
from quorum.decide.brokers import BrokerRegistered, UnregisterBroker
from quorum.decide.heartbeat import HeartbeatAnswered
from quorum.decide.java import in_uuid_order
from quorum.decide.producer_ids import ProducerIdsAllocated
from quorum.whatif.operation import Answer, Line, Run, number, or_default, replicas

_FEATURES: Final = (
    FeatureRange(METADATA_VERSION, 7, METADATA_VERSION_LEVEL),
    FeatureRange(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 1),
)
"""What a broker has whose line names no features, as where Kafka's controller is driven; the others follow the cluster."""


def register(run: Run, line: Line) -> Answer:
    broker_id, names = number(line["broker_id"]), run.names
    listeners, features = line.get("listeners"), line.get("features")
    command = RegisterBroker(
        cluster_id=or_default(line, "cluster_id", run.cluster.cluster_id),
        broker_id=BrokerId(broker_id),
        incarnation_id=names.uuid(or_default(line, "incarnation_id", f"b{broker_id}-1")),
        endpoints=(BrokerEndpoint("PLAINTEXT", f"b{broker_id}", 9092, 0),)
        if listeners is None
        else tuple(
            BrokerEndpoint(
                each["name"],
                or_default(each, "host", f"b{broker_id}"),
                or_default(each, "port", 9092),
                or_default(each, "security_protocol", 0),
            )
            for each in listeners
        ),
        features=_usual_features(run) if features is None else _feature_ranges(features),
        rack=line.get("rack"),
        log_dirs=tuple(map(names.uuid, or_default(line, "log_dirs", [f"d{broker_id}a"]))),
        previous_broker_epoch=run.broker_epoch(line.get("previous_broker_epoch"), broker_id, missing=-1),
    )
    outcome = run.decide(command)
    assert isinstance(outcome, BrokerRegistered)
    return {"response": {"broker_epoch": outcome.broker_epoch}}


def heartbeat(run: Run, line: Line) -> Answer:
    cluster, broker_id = run.cluster, BrokerId(number(line["broker_id"]))
    broker_epoch = run.broker_epoch(line.get("broker_epoch"), broker_id)
    broker = run.image.brokers.get(broker_id)
    registered_at = -1
    if broker is not None:
        registered_at = cluster.sessions.registration_offset(broker_id, broker.broker_epoch)
    offset = run.offset(line.get("current_metadata_offset"), registered_at=registered_at)
    cluster.sessions.heard_of(broker_id, broker_epoch, now_ms=cluster.now_ms)
    cordoned = line.get("cordoned_log_dirs")
    command = BrokerHeartbeat(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        incarnation_id=None,
        applied_offset=offset + 1,
        position=None,
        want_fence=bool(line.get("want_fence")),
        want_shut_down=bool(line.get("want_shut_down")),
        offline_log_dirs=tuple(map(run.names.uuid, or_default(line, "offline_log_dirs", []))),
        cordoned_log_dirs=None if cordoned is None else tuple(map(run.names.uuid, cordoned)),
        is_late=bool(line.get("late")),
    )
    if command.is_late:
        with suppress(StaleBrokerEpoch):
            run.decide(command)
        raise OutcomeUnknown("the request stood in the queue past its deadline")
    outcome = run.decide(command)
    assert isinstance(outcome, HeartbeatAnswered)
    is_fenced = outcome.state is BrokerState.FENCED
    is_leaving = cluster.sessions.shutdown_offset(broker_id, broker_epoch) is not None
    return {
        "response": {
            "is_caught_up": outcome.is_caught_up,
            "is_fenced": is_fenced,
            "in_controlled_shutdown": is_leaving and not is_fenced,
            "should_shut_down": outcome.should_shut_down,
        }
    }


def unregister(run: Run, line: Line) -> Answer:
    run.decide(UnregisterBroker(broker_id=BrokerId(number(line["broker_id"]))))
    return {}


def register_controller(run: Run, line: Line) -> Answer:
    controller_id = number(line["controller_id"])
    run.decide(
        RegisterController(
            cluster_id=run.cluster.cluster_id,
            controller_id=NodeId(controller_id),
            incarnation_id=run.names.uuid(or_default(line, "incarnation_id", f"c{controller_id}-1")),
            endpoints=(BrokerEndpoint("CONTROLLER", f"c{controller_id}", 9093, 0),),
            features=_feature_ranges(or_default(line, "features", [])),
        )
    )
    return {}


def _feature_ranges(features: Sequence[Line]) -> tuple[FeatureRange, ...]:
    return tuple(
        FeatureRange(each["name"], each["min_supported_version"], each["max_supported_version"])
        for each in features
    )


def _usual_features(run: Run) -> tuple[FeatureRange, ...]:
    """Return what a broker supports whose line does not say it: also the features with which the script's cluster began."""
    others = (
        FeatureRange(name, 0, level) for name, level in BROKERS_FEATURES.items() if name in run.began_with
    )
    return (*_FEATURES, *others)


def fence_broker(run: Run, line: Line) -> Answer:
    return {"response": {"expired": run.cluster.expire(BrokerId(number(line["broker_id"])))}}


def advance(run: Run, line: Line) -> Answer:
    alive = or_default(line, "alive", [])
    heard = sorted(run.image.brokers) if alive == "all" else list(replicas(alive))
    run.cluster.advance(number(line["ms"]), heard)
    return {}


def allocate_producer_ids(run: Run, line: Line) -> Answer:
    broker_id = BrokerId(number(line["broker_id"]))
    outcome = run.decide(
        AllocateProducerIds(
            broker_id=broker_id, broker_epoch=run.broker_epoch(line.get("broker_epoch"), broker_id)
        )
    )
    assert isinstance(outcome, ProducerIdsAllocated)
    return {"response": {"producer_id_start": outcome.first, "producer_id_len": outcome.length}}


def state(run: Run, _: Line) -> Answer:
    """Show brokers by id and topics by name."""
    image, word, sessions = run.image, run.names.word, run.cluster.sessions
    brokers = [
        {
            "broker_id": broker_id,
            "broker_epoch": broker.broker_epoch,
            "incarnation_id": word(broker.incarnation_id),
            "fenced": broker.fenced,
            "in_controlled_shutdown": broker.in_controlled_shutdown,
            "session": sessions.is_known(broker_id, broker.broker_epoch),
            "log_dirs": [word(log_dir) for log_dir in in_uuid_order(broker.log_dirs)],
        }
        for broker_id, broker in sorted(image.brokers.items())
    ]
    topics = [
        {
            "name": name,
            "topic_id": word(topic_id),
            "partitions": [
                {
                    "partition": number,
                    "leader": partition.leader,
                    "leader_epoch": partition.leader_epoch,
                    "partition_epoch": partition.partition_epoch,
                    "leader_recovery_state": partition.leader_recovery_state,
                    "replicas": [*partition.replicas],
                    "isr": [*partition.isr],
                    "adding_replicas": [*partition.adding_replicas],
                    "removing_replicas": [*partition.removing_replicas],
                    "eligible_leader_replicas": [*partition.eligible_leader_replicas],
                    "last_known_elr": [*partition.last_known_elr],
                    "directories": [word(directory) for directory in partition.directories],
                }
                for number, partition in enumerate(image.topics.by_id[topic_id].partitions)
            ],
        }
        for name, topic_id in sorted(image.topics.ids.items())
    ]
    return {
        "response": {
            "next_offset": image.end_offset,
            "time_ms": run.cluster.now_ms,
            "brokers": brokers,
            "topics": topics,
        }
    }


OPERATIONS: Final[Mapping[str, Callable[[Run, Mapping[str, Any]], Answer]]] = {
    "RegisterBroker": register,
    "BrokerHeartbeat": heartbeat,
    "UnregisterBroker": unregister,
    "RegisterController": register_controller,
    "FenceBroker": fence_broker,
    "AdvanceTime": advance,
    "AllocateProducerIds": allocate_producer_ids,
    "State": state,
}
