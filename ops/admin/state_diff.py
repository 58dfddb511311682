"""Pure: what differs between two states of a cluster, as GET /v1/state answers with them.
Tests: tests/unit/ops/admin/test_state_diff.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeAlias

State: TypeAlias = Mapping[str, Any]
Fields: TypeAlias = Mapping[str, Any]
QUIET: Final = frozenset({"leader_epoch", "partition_epoch"})
"""Fields that change with others, and say nothing beside these."""


def state_diff(before: State, after: State) -> Iterator[dict[str, Any]]:
    """Yield {"what","key","change","field","before","after"} for each field that differs, in the order of what and key.

    "change" is created, deleted or modified; of what was created or deleted there is one row, without a field. Partitions of
    a topic that was created or deleted have no rows of their own.
    """
    topics, topics_then = _topics(before), _topics(after)
    kept = topics.keys() & topics_then.keys()
    for what, was, now in (
        (
            "controller",
            _by(before, "controllers", "controller_id"),
            _by(after, "controllers", "controller_id"),
        ),
        ("voter", _by(before, "voters", "id"), _by(after, "voters", "id")),
        ("broker", _brokers(before), _brokers(after)),
        ("topic", topics, topics_then),
        ("partition", _partitions(before, kept), _partitions(after, kept)),
        ("config", _configs(before), _configs(after)),
        ("feature", _features(before), _features(after)),
        ("quota", _quotas(before), _quotas(after)),
        ("acl", _acls(before), _acls(after)),
        ("user", _users(before), _users(after)),
        ("token", _tokens(before), _tokens(after)),
    ):
        for key in sorted(was.keys() | now.keys()):
            yield from _changes(what, key, was.get(key), now.get(key))


def _changes(what: str, key: Any, was: Fields | None, now: Fields | None) -> Iterator[dict[str, Any]]:
    name = f"{key[0]}:{key[1]}" if isinstance(key, tuple) else str(key)
    row = {"what": what, "key": name, "change": "modified", "field": None, "before": None, "after": None}
    if was is None or now is None:
        yield row | {"change": "created" if was is None else "deleted"}
        return
    differing = [field for field in (was.keys() | now.keys()) if was.get(field) != now.get(field)]
    told = [field for field in differing if field not in QUIET] or differing
    for field in sorted(told):
        yield row | {"field": field, "before": was.get(field), "after": now.get(field)}


def _by(state: State, items: str, key: str) -> dict[Any, Fields]:
    return {one[key]: one for one in state[items]}


def _brokers(state: State) -> dict[Any, Fields]:
    """Return brokers with their features by name: a broker of Kafka lists them in another order at each of its starts."""
    return {
        one["broker_id"]: one | {"features": sorted(one.get("features", ()), key=lambda each: each["name"])}
        for one in state["brokers"]
    }


def _topics(state: State) -> dict[Any, Fields]:
    """Return topics without their partitions, which are rows of their own."""
    return {
        topic["name"]: {
            "topic_id": topic["topic_id"],
            "partitions": len(topic["partitions"]),
            **{f"config {name}": value for name, value in topic["configs"].items()},
        }
        for topic in state["topics"]
    }


def _partitions(state: State, topics: AbstractSet[str]) -> dict[Any, Fields]:
    return {
        (topic["name"], one["partition"]): one
        for topic in state["topics"]
        if topic["name"] in topics
        for one in topic["partitions"]
    }


def _configs(state: State) -> dict[Any, Fields]:
    """Return the settings of brokers and of the cluster; topics have theirs among their fields."""
    return {
        (f"{one['resource_type']}/{one['resource_name']}", one["name"]): one
        for one in state["configs"]
        if one["resource_type"] != "topic"
    }


def _features(state: State) -> dict[Any, Fields]:
    return {name: {"level": level} for name, level in state["features"].items()}


def _quotas(state: State) -> dict[Any, Fields]:
    return {entity_text(one["entity"]): one["quotas"] for one in state.get("quotas", ())}


def entity_text(parts: Iterable[Mapping[str, Any]]) -> str:
    """Return an entity of quotas as text: user=anna, client-id=<default>."""
    return ", ".join(
        f"{part['entity_type']}={'<default>' if part['entity_name'] is None else part['entity_name']}"
        for part in parts
    )


def _acls(state: State) -> dict[Any, Fields]:
    """Return ACLs by what they say; none is ever changed, only created and deleted."""
    return {
        f"{one['permission_type']} {one['principal']} from {one['host']}: {one['operation']} on "
        f"{one['pattern_type']} {one['resource_type']} {one['resource_name']}": {}
        for one in state.get("acls", ())
    }


def _users(state: State) -> dict[Any, Fields]:
    """Return the iterations of each of a user's mechanisms; a state shows nothing else of a credential."""
    return {
        one["user"]: {each["mechanism"]: each["iterations"] for each in one["credentials"]}
        for one in state.get("users", ())
    }


def _tokens(state: State) -> dict[Any, Fields]:
    return {one["token_id"]: one for one in state.get("tokens", ())}
