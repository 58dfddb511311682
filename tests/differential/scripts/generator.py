"""Pure: random scripts of controller operations; the same seed gives the same script."""

from collections.abc import Callable, Sequence
from typing import Final

from tests.differential.scripts import acls, brokers, clients, partitions, settings, tokens, topics
from tests.differential.scripts.picture import Line, Picture, State

LINES: Final = 200
"""Of one script, its Options and the closing State included."""

_ACTIONS: Final[Sequence[tuple[Callable[[Picture], None], float]]] = (
    (brokers.register, 6),
    (brokers.heartbeat, 26),
    (brokers.fence_broker, 5),
    (brokers.unregister, 1.2),
    (brokers.advance, 6),
    (topics.create_topic, 7),
    (topics.delete_topic, 1.5),
    (topics.create_partitions, 2.5),
    (partitions.alter_partition, 20),
    (partitions.elect, 5),
    (partitions.reassign, 10),
    (partitions.list_reassignments, 1),
    (partitions.assign_directories, 2.5),
    (settings.alter_configs, 6),
    (settings.allocate_producer_ids, 0.7),
    (settings.update_features, 0.6),
    (acls.create_acls, 1.2),
    (acls.delete_acls, 0.6),
    (settings.register_controller, 0.2),
    (clients.alter_quotas, 1.5),
    (clients.alter_credentials, 1.5),
    (tokens.some, 1.2),
    (tokens.create, 0.6),
    (tokens.renew, 0.6),
    (tokens.expire, 0.6),
    (settings.state, 1),
)
"""Each with its share."""


def script(seed: int, *, has_eligible: bool | None = None, lines: int = LINES) -> list[Line]:
    """Return a script; with `has_eligible` left out, eligible leader replicas are on in half of all."""
    picture = Picture(seed, has_eligible=has_eligible)
    _begin(picture)
    actions, shares = zip(*_ACTIONS, strict=True)
    while len(picture.lines) < lines - 1:
        if len(picture.ids(State.ONLINE)) < 0.6 * len(picture.brokers) and picture.chance(0.45):
            _bring_back(picture)
        elif len(picture.topics) < 3 and picture.chance(0.3):
            topics.create_topic(picture)
        else:
            picture.rng.choices(actions, shares)[0](picture)
    del picture.lines[lines - 1 :]
    settings.state(picture)
    return picture.lines


def _begin(picture: Picture) -> None:
    for broker in picture.brokers.values():
        broker.incarnation, broker.state = 1, State.FENCED
        picture.emit(
            "RegisterBroker",
            broker_id=broker.broker_id,
            rack=broker.rack,
            log_dirs=broker.log_dirs,
            incarnation_id=broker.incarnation_id,
        )
    for broker in picture.brokers.values():
        if picture.chance(0.9):
            picture.emit("BrokerHeartbeat", broker_id=broker.broker_id)
            broker.contact_ms = picture.now_ms
            picture.unfence(broker.broker_id)
            if picture.chance(0.7):
                gap_ms = picture.rng.randint(200, picture.session_ms // 4)
                picture.emit("AdvanceTime", ms=gap_ms, alive=[])
                picture.now_ms += gap_ms


def _bring_back(picture: Picture) -> None:
    away = picture.ids(State.FENCED, State.NEW, State.GONE)
    if not away:
        return
    broker_id = picture.rng.choice(away)
    if picture.brokers[broker_id].state is State.FENCED:
        brokers.heartbeat(picture, broker_id)
    else:
        brokers.register(picture)
