"""Pure: lines about topics."""

from collections.abc import Sequence
from typing import Any, Final

from tests.differential.scripts import tiers
from tests.differential.scripts.picture import (
    LEFT_OUT,
    MIN_ISR,
    REGISTERED,
    UNCLEAN,
    Partition,
    Picture,
    State,
)
from tests.differential.scripts.tiers import REMOTE

_NAMES: Final = ("t1", "t2", "t3", "t4", "t5", "t6")
_COLLIDING: Final = ("a.b", "a_b")
_STRANGE: Final = ("", ".", "..", "has space", "x" * 250, "x" * 249, "__strange")


def configs(picture: Picture) -> dict[str, str]:
    """Return settings of a topic."""
    rng, drawn = picture.rng, dict[str, str]()
    if picture.chance(0.5):
        drawn[MIN_ISR] = str(rng.choice([1, 2, 2, 3]))
    if picture.chance(0.25):
        drawn[UNCLEAN] = rng.choice(["true", "true", "false"])
    if picture.chance(0.1):
        drawn["retention.ms"] = str(rng.randint(1, 10**9))
    return drawn | tiers.of_new_topic(picture)


def assignment(picture: Picture, replication_factor: int | None = None) -> list[int]:
    """Return replicas for a partition, mostly on brokers that are registered and with one that may lead."""
    pool = picture.ids(*REGISTERED) if picture.chance(0.9) else list(picture.brokers)
    if not pool:
        return [0]
    live = [broker_id for broker_id in pool if picture.is_active(broker_id)]
    count = replication_factor or picture.rng.choice([1, 2, 3, 3, 3, 4])
    drawn = picture.rng.sample(pool, min(count, len(pool)))
    if live and not set(drawn) & set(live) and picture.chance(0.8):
        drawn[0] = picture.rng.choice(live)
    return drawn


def create_topic(picture: Picture) -> None:
    rng, kind = picture.rng, picture.rng.random()
    name = _new_name(picture)
    if name is None or kind < 0.04:
        name = picture.pick(picture.topics, "t1")
    if kind > 0.97:
        name = rng.choice(_STRANGE)
    if len(picture.topics) > 6 and picture.chance(0.8):
        return
    topic: dict[str, Any] = {"name": name}
    settings = configs(picture)
    if picture.chance(0.04):
        settings[rng.choice([MIN_ISR, "no.such.config"])] = rng.choice(["0", "-1", "many"])
    if settings:
        topic["configs"] = settings
    validate = picture.chance(0.05)
    if kind < 0.15:
        # The picture does not follow automatic placement.
        topic["name"] = rng.choice(["p1", "p2", "p3"])
        topic["num_partitions"] = rng.choice([1, 2, 3, -1, 0, -2])
        topic["replication_factor"] = rng.choice([1, 2, 3, -1, 0, 9])
        picture.emit("CreateTopics", topics=[topic], validate_only=validate or LEFT_OUT)
        return
    count, factor = rng.choice([1, 1, 2, 3, 4]), rng.choice([1, 2, 3, 3, 3, 4])
    rows = [assignment(picture, factor) for _ in range(count)]
    factor = min(map(len, rows))
    rows = [row[:factor] for row in rows]
    is_bad = picture.chance(0.06)
    topic["assignments"] = rows
    if is_bad:
        _assign_badly(picture, topic, rows)
    picture.emit("CreateTopics", topics=[topic], validate_only=validate or LEFT_OUT)
    if not is_bad and not validate and _is_created(picture, name, rows, settings):
        picture.topics[name] = [Partition.created(row, _active(picture, row)) for row in rows]
        picture.configs[name] = settings
        picture.generations[name] = picture.generations.get(name, 0) + 1


def _new_name(picture: Picture) -> str | None:
    if picture.chance(0.05):
        return picture.rng.choice(_COLLIDING)
    unused = [name for name in _NAMES if name not in picture.topics]
    return picture.rng.choice(unused) if unused else None


def _active(picture: Picture, row: Sequence[int]) -> list[int]:
    return [broker_id for broker_id in row if picture.is_active(broker_id)]


def _is_created(picture: Picture, name: str, rows: Sequence[Sequence[int]], settings: dict[str, str]) -> bool:
    registered = set(picture.ids(*REGISTERED))
    return (
        name not in picture.topics
        and name not in _STRANGE[:5]
        and not (name in _COLLIDING and set(_COLLIDING) & set(picture.topics))
        and "no.such.config" not in settings
        and (picture.has_remote_storage or settings.get(REMOTE) != "true")
        and settings.get(MIN_ISR, "1") in "123"
        and all(_active(picture, row) and registered.issuperset(row) for row in rows)
    )


def _assign_badly(picture: Picture, topic: dict[str, Any], rows: list[list[int]]) -> None:
    match picture.rng.choice(["empty", "unknown", "twice", "factor", "gap", "both", "fenced"]):
        case "empty":
            rows[-1] = []
        case "unknown":
            rows[-1] = [77, *rows[-1][1:]]
        case "twice":
            rows[-1] = rows[-1] + rows[-1][:1]
        case "factor":
            rows.append(rows[0][:-1] or [0, 1])
        case "gap":
            topic["assignments"] = [
                {"partition_index": number + (number > 0), "broker_ids": row}
                for number, row in enumerate(rows + rows)
            ]
        case "both":
            topic[picture.rng.choice(["num_partitions", "replication_factor"])] = 1
        case _:
            topic["assignments"] = [(picture.ids(State.FENCED, State.STOPPING) or [77])[:1]]


def delete_topic(picture: Picture) -> None:
    if len(picture.topics) < 3 and picture.chance(0.8):
        return
    name, kind = picture.pick(picture.topics, "t1"), picture.rng.random()
    if kind < 0.15:
        picture.emit("DeleteTopics", topic_names=["nothing"])
        return
    if kind < 0.25:
        picture.emit("DeleteTopics", topic_ids=[picture.pick(picture.deleted, "nothing#1")])
        return
    topic_id = f"{name}#{picture.generations.get(name, 1)}"
    if kind < 0.4:
        picture.emit("DeleteTopics", topic_ids=[topic_id])
    else:
        picture.emit("DeleteTopics", topic_names=[name])
    if picture.topics.pop(name, None):
        picture.deleted.append(topic_id)
    picture.configs.pop(name, None)


def create_partitions(picture: Picture) -> None:
    name = picture.pick(picture.topics, "nothing") if picture.chance(0.93) else "nothing"
    have = picture.topics.get(name, [])
    count = len(have) + picture.rng.choice([1, 1, 1, 2, 0, -1])
    factor = len(have[0].replicas) if have else 1
    if picture.chance(0.1):
        factor += 1
    more = max(1, count - len(have)) + picture.chance(0.06)
    rows = [assignment(picture, factor) for _ in range(more)]
    if picture.chance(0.04):
        rows[0] = picture.rng.choice([[], [88], rows[0] + rows[0][:1]])
    if len(have) > 6:
        return
    assigned = rows if picture.chance(0.93) else None
    picture.emit("CreatePartitions", topics=[{"name": name, "count": count, "assignments": assigned}])
    isrs = [_active(picture, row) for row in rows]
    if (
        have
        and count == len(have) + len(rows)
        and all(isrs)
        and all(len(row) == len(have[0].replicas) for row in rows)
    ):
        have.extend(Partition.created(row, isr) for row, isr in zip(rows, isrs, strict=True))
