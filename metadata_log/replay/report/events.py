"""Edge: the lines of the report's timeline, each made of rows of the catalog's tables.
Tests: tests/unit/metadata_log/replay/test_report.py.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from metadata_log.ids import NO_LEADER
from metadata_log.printable import printable
from metadata_log.records.configs import CLUSTER_DEFAULT
from metadata_log.replay.report.section import Told
from metadata_log.replay.report.start import SERVING
from metadata_log.replay.report.words import by, cause, clock, duration, lasted, shown

EVENTS_MAX: Final = 200
"""Lines of the timeline; of more, the newest are shown."""


SETTINGS_SHOWN: Final = 3
"""Settings that one event names; of a change of more, the first."""


_RESOURCES: Final = {
    "TOPIC": "topic",
    "BROKER": "broker",
    "CLIENT_METRICS": "client metrics",
    "GROUP": "group",
}
"""Kafka's types of resources that have settings."""


_NOT_TOLD: Final = (None, "", "BROKER_UNREGISTERED", "STOPPED_OR_SILENT")
"""Causes of a broker's end after which the log does not tell how its process ended."""


class _Event(NamedTuple):
    log_offset: int
    time: datetime
    text: str


def timeline(told: Told) -> str:
    """Return what happened, line by line: a new kind of event is an entry of `TELLS`."""
    intervals, repeated = told.rows("broker_state_intervals"), told.rows("repeated_registrations")
    events = [
        *_broker_events(intervals, repeated, told.first_offset),
        *(event for table, tells in TELLS.items() for event in tells(told.rows(table))),
    ]
    ordered = sorted(events)
    newest = ordered[-EVENTS_MAX:]
    lines = ["## What happened", ""]
    if len(newest) < len(ordered):
        lines.append(f"The newest {len(newest)} of {len(ordered):,} events.\n")
    day = None
    for event in newest:
        if event.time.date() != day:
            day = event.time.date()
            lines += ["", f"**{day.isoformat()}**", ""] if len(lines) > 2 else [f"**{day.isoformat()}**", ""]
        lines.append(f"- {clock(event.time)} offset {event.log_offset}: {printable(event.text)}")
    return "\n".join(lines)


def _claimed(claims: Sequence[dict[str, Any]]) -> Iterable[_Event]:
    for place, claim in enumerate(claims):
        text = f"controller {claim['controller_id']} took over with epoch {claim['controller_epoch']}"
        if place and claim["silent_ms"] is not None:
            text += f", {duration(claim['silent_ms'])} after the last record before"
        elif claim["kind"] == "founded":
            text = f"the cluster was founded; controller {claim['controller_id']} took charge"
            text += f" with epoch {claim['controller_epoch']}"
        yield _Event(claim["first_offset"], claim["ts"], text)


def _broker_events(
    intervals: Sequence[dict[str, Any]], repeated: Sequence[dict[str, Any]], first_offset: int
) -> Iterable[_Event]:
    """Tell of each change of a broker's state from an offset on, and of registrations that were repeated, which seldom
    change one.
    """
    repeated_at = {registration["log_offset"] for registration in repeated}
    last: dict[int, dict[str, Any]] = {}
    for interval in intervals:
        broker_id = interval["broker_id"]
        before, last[broker_id] = last.get(broker_id), interval
        if interval["from_offset"] >= first_offset and interval["from_offset"] not in repeated_at:
            yield _Event(
                interval["from_offset"], interval["from_ts"], _broker_text(interval, before, first_offset)
            )
    for registration in repeated:
        text = f"broker {registration['broker_id']} registered once more, by the same process"
        if registration["state"] != registration["prev_state"]:
            text += f": {registration['state'].lower()}, no longer {registration['prev_state'].lower()}"
        yield _Event(registration["log_offset"], registration["ts"], text)


def _broker_text(interval: dict[str, Any], before: dict[str, Any] | None, first_offset: int) -> str:
    broker = f"broker {interval['broker_id']}"
    why = cause(interval["cause_code"], interval["cause_detail"])
    is_new = before is None or before["broker_epoch"] != interval["broker_epoch"]
    # In Kafka's log the epoch is the offset of the registration's batch.
    if interval["from_offset"] == interval["broker_epoch"] or (
        is_new and interval["cause_code"] == "BROKER_REGISTERED"
    ):
        detail = json.loads(interval["cause_detail"] or "{}")
        ending = ", after a clean stop" if detail.get("clean") else ", after an unclean stop"
        if before is not None and before["cause_code"] in _NOT_TOLD and before["state"] not in SERVING:
            ending = ""
        if before is None:
            # A broker that was removed before a part of the log is as unknown in it as a new one.
            return f"{broker} registered{'' if first_offset else ' for the first time'}"
        return f"{broker} registered again{ending}"
    match interval["state"]:
        case "ONLINE":
            if before is None:
                return f"{broker} is online"
            if before["from_offset"] < first_offset:
                return (
                    f"{broker} unfenced: online; it was {before['state'].lower()} from before these offsets"
                )
            return f"{broker} unfenced: online after {lasted(before)} {before['state'].lower()}"
        case "STOPPING":
            return f"{broker} asked to stop: its leaderships move away"
        case "OFFLINE" if interval["cause_code"] == "BROKER_UNREGISTERED":
            return f"{broker} removed from the cluster"
        case "OFFLINE" if interval["cause_code"] == "SHUTDOWN_GRANTED":
            return f"{broker} stopped cleanly"
        case _:
            return f"{broker} fenced ({why or 'stopped, or silent'})"


def _topic_events(topics: Sequence[dict[str, Any]]) -> Iterable[_Event]:
    for topic in topics:
        verb = topic_verb(topic)
        yield _Event(topic["log_offset"], topic["ts"], f"topic {topic['topic_name']} {verb}{by(topic)}")


def topic_verb(topic: dict[str, Any]) -> str:
    match topic["type_name"]:
        case "Topic":
            return "created"
        case "TopicTombstone":
            return f"deleted, and can be restored for {duration(topic['grace_ms'])}"
        case "TopicRestore":
            return "restored"
        case _ if topic["cause_code"] == "UNDELETE_WINDOW_PASSED":
            return "gone: the time in which it could be restored has passed"
        case _:
            return "deleted"


def _config_events(settings: Sequence[dict[str, Any]]) -> Iterable[_Event]:
    """Return, for each batch, the settings of each resource that it changed; a topic's removal covers its settings."""
    groups: dict[tuple[int, str, str], list[dict[str, Any]]] = {}
    for setting in settings:
        if setting["op"] == "delete":
            continue
        of = (setting["batch_base"], setting["resource_type"], setting["resource_name"])
        groups.setdefault(of, []).append(setting)
    for (_, resource_type, resource_name), group in groups.items():
        if resource_type == "BROKER" and resource_name == CLUSTER_DEFAULT:
            whose = "all brokers"
        else:
            whose = f"{_RESOURCES.get(resource_type, f'resource {resource_type}')} {resource_name}"
        changes = ", ".join(
            f"{setting['config_name']} deleted"
            if setting["config_value"] is None
            else f"{setting['config_name']}={shown(setting['config_value'])}"
            for setting in group[:SETTINGS_SHOWN]
        )
        if len(group) > SETTINGS_SHOWN:
            changes += f" and {len(group) - SETTINGS_SHOWN:,} more"
        s = "" if len(group) == 1 else "s"
        first = group[0]
        yield _Event(first["log_offset"], first["ts"], f"setting{s} of {whose} changed{by(first)}: {changes}")


def _cluster_events(events: Sequence[dict[str, Any]]) -> Iterable[_Event]:
    for event in events:
        text = (
            f"feature {event['feature_name']} finalized at {event['feature_level']}{by(event)}"
            if event["type_name"] == "FeatureLevel"
            else f"broker {event['broker_id']} got producer ids below {event['next_producer_id']:,}"
        )
        yield _Event(event["log_offset"], event["ts"], text)


def _moved(moves: Sequence[dict[str, Any]]) -> Iterable[_Event]:
    """Tell of each batch how many leaderships left each broker, and where to."""
    groups: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for move in moves:
        groups.setdefault((move["batch_base"], move["prev_leader"]), []).append(move)
    for (_, prev_leader), group in groups.items():
        count = sum(move["partition_count"] for move in group)
        takers = ", ".join(
            f"{move['partition_count']} left without a leader"
            if move["leader"] == NO_LEADER
            else f"{move['partition_count']} to broker {move['leader']}"
            for move in group
        )
        s = "" if count == 1 else "s"
        what = (
            f"{count} leaderless partition{s} got a leader"
            if prev_leader == NO_LEADER
            else f"broker {prev_leader} lost {count} leadership{s}"
        )
        why = cause(group[0]["cause_code"], group[0]["cause_detail"])
        yield _Event(
            min(move["log_offset"] for move in group),
            min(move["ts"] for move in group),
            f"{what}: {takers}" + (f" ({why})" if why else ""),
        )


TELLS: Final[Mapping[str, Callable[[Sequence[dict[str, Any]]], Iterable[_Event]]]] = {
    "controller_takeovers": _claimed,
    "topic_events": _topic_events,
    "config_changes": _config_events,
    "cluster_events": _cluster_events,
    "leader_moves": _moved,
}
"""What tells of the rows of each table."""
