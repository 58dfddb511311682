"""Edge: brokers of Kafka: they register, send heartbeats, and are unregistered."""

from collections.abc import Coroutine
from functools import cache
from typing import Any, Final

from metadata_log.errors import InvalidRequest, MetadataError, Rejected
from metadata_log.ids import BrokerId, Uuid
from metadata_log.kafka.messages import answer_tail
from metadata_log.kafka.reading import Values
from metadata_log.wire.commands import BrokerHeartbeat, RegisterBroker
from metadata_log.wire.fetch import BrokerState
from metadata_log.wire.shapes import INT64_MAX
from quorum.decide.brokers import UnregisterBroker
from quorum.decide.heartbeat import HeartbeatAnswered
from quorum.kafka.door import (
    NO_THROTTLE,
    Answer,
    Api,
    Asked,
    Done,
    KafkaDoor,
    Parks,
    Waits,
)
from quorum.kafka.errors import NONE

BROKER_REGISTRATION, BROKER_HEARTBEAT, UNREGISTER_BROKER = 62, 63, 64


async def register(door: KafkaDoor, asked: Asked) -> Values:
    """Register a broker. The answer has no text, so a refusal is logged with it."""
    try:
        written = await door.controller.submit(_registration(asked.values), asked.caller)
    except MetadataError as error:
        if isinstance(error, Rejected):
            door.not_registered.note(asked.values[0], error)
        raise
    (broker_epoch,) = written.outcome
    return (NO_THROTTLE, NONE, broker_epoch)


def _registration(values: Values) -> RegisterBroker:
    """Return what a broker registers, checked as that of any other broker.

    Raises:
        InvalidRequest: names the field.
    """
    broker_id, cluster_id, incarnation_id, listeners, features, rack, migrates, log_dirs, previous = values
    if migrates:
        raise InvalidRequest("a broker that migrates from ZooKeeper cannot register")
    fields = {
        "cluster_id": cluster_id,
        "broker_id": broker_id,
        "incarnation_id": incarnation_id,
        "endpoints": listeners,
        "features": features,
        "rack": rack,
        "log_dirs": log_dirs,
        "previous_broker_epoch": previous,
    }
    return RegisterBroker.from_map(fields)


def heartbeat_of(_door: KafkaDoor, asked: Asked) -> BrokerHeartbeat:
    broker_id, broker_epoch, offset, want_fence, want_shut_down, offline, cordoned = asked.values
    return BrokerHeartbeat(
        broker_id=BrokerId(broker_id),
        broker_epoch=broker_epoch,
        incarnation_id=None,
        # Kafka's offset is that of the last record which the broker has applied.
        applied_offset=min(max(offset, -1), INT64_MAX - 1) + 1,
        position=None,
        want_fence=want_fence,
        want_shut_down=want_shut_down,
        offline_log_dirs=tuple(map(Uuid, offline)),
        cordoned_log_dirs=None if cordoned is None else tuple(map(Uuid, cordoned)),
    )


def heartbeat(door: KafkaDoor, asked: Asked, done: Done) -> Coroutine[Any, Any, Answer] | None:
    """Answer a heartbeat by `done` where it waits for the proof of leadership alone; else return what waits."""

    def answered(outcome: HeartbeatAnswered | MetadataError) -> None:
        done(outcome if isinstance(outcome, MetadataError) else _answer(outcome, asked.version))

    waiting = door.fetches.heartbeats.take(asked.made, asked.caller, arrived_ms=door.now_ms(), done=answered)
    return None if waiting is None else _answer_of(waiting, asked.version)


async def _answer_of(waiting: Coroutine[Any, Any, HeartbeatAnswered], version: int) -> Answer:
    return _answer(await waiting, version)


@cache
def _answer(answer: HeartbeatAnswered, version: int) -> bytes:
    """Return the bytes of an answer, of which there are few."""
    is_fenced = answer.state is BrokerState.FENCED
    values = (NO_THROTTLE, NONE, answer.is_caught_up, is_fenced, answer.should_shut_down)
    return answer_tail(BROKER_HEARTBEAT, version, values)


async def unregister(door: KafkaDoor, asked: Asked) -> Values:
    (broker_id,) = asked.values
    await door.controller.submit(UnregisterBroker(broker_id=BrokerId(broker_id)), asked.caller)
    return (NO_THROTTLE, NONE, None)


APIS: Final = (
    Api(BROKER_REGISTRATION, Waits(register), "RegisterBroker"),
    Api(BROKER_HEARTBEAT, Parks(heartbeat, heartbeat_of), "BrokerHeartbeat"),
    Api(UNREGISTER_BROKER, Waits(unregister), "UnregisterBroker", in_envelopes=True),
)
