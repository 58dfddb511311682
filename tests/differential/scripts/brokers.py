"""Pure: lines about brokers and time."""

from typing import Any, Final

from tests.differential.scripts.picture import LEFT_OUT, REGISTERED, Broker, Picture, State

_NO_SUCH_BROKER: Final = 99


def register(picture: Picture) -> None:
    rng, kind = picture.rng, picture.rng.random()
    fresh = picture.ids(State.NEW, State.GONE)
    broker = picture.any_broker(fresh if fresh and picture.chance(0.5) else ())
    fields = {"broker_id": broker.broker_id, "rack": broker.rack, "log_dirs": broker.log_dirs}
    if kind < 0.1:
        _register_badly(picture, broker, fields)
        return
    if kind < 0.3 and broker.is_registered:
        picture.emit("RegisterBroker", incarnation_id=broker.incarnation_id, **fields)
        return
    broker.incarnation += 1
    previous = rng.choice([LEFT_OUT, LEFT_OUT, "current", "current", "previous", 7])
    picture.emit(
        "RegisterBroker", incarnation_id=broker.incarnation_id, previous_broker_epoch=previous, **fields
    )
    if broker.contact_ms is not None and broker.is_registered:
        broker.incarnation -= 1  # the incarnation before has a session: this one is refused
        return
    picture.lose(broker.broker_id, is_unclean=picture.has_eligible and previous != "current")
    broker.state, broker.contact_ms = State.FENCED, None


def _register_badly(picture: Picture, broker: Broker, fields: dict[str, Any]) -> None:
    rng = picture.rng
    bad = rng.choice(["cluster", "none", "reserved", "twice", "other", "features", "no features"])
    fields["incarnation_id"] = f"b{broker.broker_id}-x{len(picture.lines)}"
    match bad:
        case "cluster":
            fields["cluster_id"] = "another-cluster"
        case "none":
            fields["log_dirs"] = []
        case "reserved":
            fields["log_dirs"] = [rng.choice(["LOST", "UNASSIGNED", "MIGRATING"])]
        case "twice":
            fields["log_dirs"] = broker.log_dirs + broker.log_dirs[:1]
        case "other":
            fields["log_dirs"] = picture.any_broker().log_dirs[:1]
        case "features":
            feature = {"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 6}
            fields["features"] = [feature]
        case _:
            fields["features"] = []
    picture.emit("RegisterBroker", **fields)


def heartbeat(picture: Picture, broker_id: int | None = None) -> None:
    rng = picture.rng
    if broker_id is None:
        broker_id = picture.any_broker(picture.ids(*REGISTERED)).broker_id
    broker, kind = picture.brokers[broker_id], rng.random()
    if kind < 0.04:
        epoch = rng.choice(["+1000", "-1", "previous", 0])
        picture.emit("BrokerHeartbeat", broker_id=broker_id, broker_epoch=epoch)
        return
    if not broker.is_registered:
        picture.emit("BrokerHeartbeat", broker_id=broker_id)
        return
    broker.contact_ms = picture.now_ms
    if kind < 0.06:
        offset = rng.choice([LEFT_OUT, "end-3"])
        picture.emit("BrokerHeartbeat", broker_id=broker_id, late=True, current_metadata_offset=offset)
        return
    fields: dict[str, Any] = {}
    if kind < 0.12:
        fields["offline_log_dirs"] = [rng.choice([*broker.log_dirs, "nowhere"])]
    if picture.chance(0.04):
        fields["cordoned_log_dirs"] = rng.sample(broker.log_dirs, rng.randint(0, len(broker.log_dirs)))
    offset = rng.choice([LEFT_OUT, LEFT_OUT, LEFT_OUT, "end-1", "end-4", "registration"])
    match broker.state:
        case State.FENCED:
            _heartbeat_of_fenced(picture, broker_id, kind, offset, fields)
        case State.ONLINE:
            _heartbeat_of_online(picture, broker, kind, offset, fields)
        case _:
            _heartbeat_of_stopping(picture, broker_id, offset, fields)


def _heartbeat_of_fenced(
    picture: Picture, broker_id: int, kind: float, offset: object, fields: dict[str, Any]
) -> None:
    if kind < 0.2:
        picture.emit("BrokerHeartbeat", broker_id=broker_id, want_fence=True, **fields)
    elif kind < 0.28:
        behind = "registration-1"
        picture.emit("BrokerHeartbeat", broker_id=broker_id, current_metadata_offset=behind, **fields)
    elif kind < 0.34:
        picture.emit("BrokerHeartbeat", broker_id=broker_id, want_shut_down=True, **fields)
    else:
        picture.emit("BrokerHeartbeat", broker_id=broker_id, current_metadata_offset=offset, **fields)
        picture.unfence(broker_id)


def _heartbeat_of_online(
    picture: Picture, broker: Broker, kind: float, offset: object, fields: dict[str, Any]
) -> None:
    broker_id = broker.broker_id
    if kind < 0.2:
        stops = picture.chance(0.3)
        picture.emit("BrokerHeartbeat", broker_id=broker_id, want_fence=True, want_shut_down=stops, **fields)
        picture.fence(broker_id)
    elif kind < 0.4:
        leads = _leads_any(picture, broker_id)
        picture.emit(
            "BrokerHeartbeat",
            broker_id=broker_id,
            want_shut_down=True,
            current_metadata_offset=offset,
            **fields,
        )
        if leads:
            broker.state = State.STOPPING
            picture.lose(broker_id)
        else:
            picture.fence(broker_id)
    else:
        picture.emit("BrokerHeartbeat", broker_id=broker_id, current_metadata_offset=offset, **fields)


def _heartbeat_of_stopping(picture: Picture, broker_id: int, offset: object, fields: dict[str, Any]) -> None:
    picture.emit(
        "BrokerHeartbeat",
        broker_id=broker_id,
        want_shut_down=not picture.chance(0.1),
        want_fence=picture.chance(0.05),
        current_metadata_offset=offset,
        **fields,
    )
    if not _leads_any(picture, broker_id) and picture.chance(0.6):
        picture.fence(broker_id)


def _leads_any(picture: Picture, broker_id: int) -> bool:
    return any(partition.leader == broker_id for _, _, partition in picture.partitions())


def fence_broker(picture: Picture) -> None:
    broker = picture.any_broker(picture.ids(State.ONLINE, State.STOPPING))
    picture.emit("FenceBroker", broker_id=broker.broker_id)
    if broker.contact_ms is not None:
        broker.contact_ms = None
        if broker.is_registered:
            picture.fence(broker.broker_id)


def unregister(picture: Picture) -> None:
    if picture.chance(0.8):
        broker_id = picture.any_broker(picture.ids(State.FENCED)).broker_id
    else:
        broker_id = picture.rng.choice([*picture.brokers, _NO_SUCH_BROKER])
    picture.emit("UnregisterBroker", broker_id=broker_id)
    broker = picture.brokers.get(broker_id)
    if broker is not None and broker.is_registered:
        picture.lose(broker_id)
        for _, _, partition in picture.partitions():
            partition.eligible = [each for each in partition.eligible if each != broker_id]
        broker.state, broker.contact_ms = State.GONE, None


def advance(picture: Picture) -> None:
    """Let time pass; up to three brokers fall silent."""
    rng, kind = picture.rng, picture.rng.random()
    if kind < 0.5:
        ms = rng.randint(50, 2_500)
    elif kind < 0.8:
        ms = picture.session_ms * 9 // 8 + rng.randint(100, 4_000)
    else:
        ms = rng.choice([60_500, 301_000, 301_000, 605_000])
    heard = {
        broker.broker_id: broker.contact_ms
        for broker in picture.brokers.values()
        if broker.contact_ms is not None
    }
    wanted = 0 if picture.chance(0.3) else rng.choice([1, 1, 1, 2, 3])
    silent = rng.sample(list(heard), min(wanted, len(heard)))
    alive = [broker_id for broker_id in picture.brokers if broker_id not in silent]
    picture.emit("AdvanceTime", ms=ms, alive=alive if silent else "all")
    picture.now_ms += ms
    for broker_id in heard:
        if broker_id not in silent:
            picture.brokers[broker_id].contact_ms = picture.now_ms
    for broker_id in sorted(silent, key=lambda each: heard[each]):
        if heard[broker_id] + picture.session_ms < picture.now_ms:
            broker = picture.brokers[broker_id]
            broker.contact_ms = None
            if broker.state in (State.ONLINE, State.STOPPING):
                picture.fence(broker_id)
