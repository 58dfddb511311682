"""Pure: why a partition or a broker is as it is, from the log's lines: for a reader, who may not fetch frames.

It says what changed, why, and by whom. Candidates and epochs need the states in between, which a reader does not get.
Tests: tests/unit/ops/admin/test_explain_lines.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from metadata_log.batch import Cause
from metadata_log.ids import NO_LEADER
from ops.admin.causes import why
from ops.admin.log_filter import Line
from ops.admin.steps_back import StepsBack

REGISTRATIONS: Final = ("RegisterBroker", "RegisterController")
FIELDS: Final = (
    *("replicas", "isr", "adding_replicas", "removing_replicas", "leader", "leader_recovery_state"),
    *("eligible_leader_replicas", "last_known_elr"),
)
"""Of a partition: what a change may change, its epochs and directories aside."""


def partition_changes(lines: Iterable[Line], topic: str, partition_id: int) -> Iterator[dict[str, Any]]:
    """Yield rows as `explain_partition`, without candidates and epochs; a deleted topic of the name is another one."""
    topic_id: str | None = None
    known: dict[str, Any] = {}
    back = StepsBack()
    for line in lines:
        record, kind = line["record"], line["type"]
        if kind in REGISTRATIONS:
            back.remember(_about(line))
        if kind == "Topic" and record["name"] == topic:
            topic_id = record["topic_id"]
        if topic_id is None or record.get("topic_id") != topic_id:
            continue
        if kind in {"TopicTombstone", "RemoveTopic"} and known.get("leader", NO_LEADER) != NO_LEADER:
            yield _row(back, line, {"leader": [known["leader"], NO_LEADER]})
            known["leader"] = NO_LEADER
        if record.get("partition_id") != partition_id:
            continue
        if kind == "Partition":
            known = {field: record.get(field) for field in FIELDS}
            yield _row(
                back, line, {"replicas": [[], record["replicas"]], "leader": [NO_LEADER, record["leader"]]}
            )
        elif kind == "PartitionChange":
            told = {field: record[field] for field in FIELDS if record.get(field) is not None}
            changed = {
                field: [known.get(field), value] for field, value in told.items() if known.get(field) != value
            }
            known |= told
            yield _row(back, line, changed)


def broker_changes(lines: Iterable[Line], broker_id: int) -> Iterator[dict[str, Any]]:
    """Yield rows as `explain_broker`."""
    back = StepsBack()
    for line in lines:
        record = line["record"]
        if record.get("broker_id") != broker_id:
            continue
        match line["type"]:
            case "RegisterBroker":
                fenced = "fenced" if record.get("fenced") else "not fenced"
                told = f"registered at epoch {record['broker_epoch']}, {fenced}"
            case "UnregisterBroker":
                told = "removed"
            case "BrokerRegistrationChange":
                told = _registration(record)
            case _:
                continue
        about = _about(line)
        yield about | {"changed": told, "steps_back": back.of(about)}
        if line["type"] in REGISTRATIONS:
            back.remember(about)


def _registration(record: Mapping[str, Any]) -> str:
    fenced, log_dirs, cordoned = (record.get(name) for name in ("fenced", "log_dirs", "cordoned_log_dirs"))
    told = [] if fenced is None else ["fenced" if fenced else "unfenced"]
    told += ["shuts down"] if record.get("in_controlled_shutdown") else []
    told += [] if log_dirs is None else [f"{len(log_dirs)} directories left"]
    told += [] if cordoned is None else [f"{len(cordoned)} directories cordoned"]
    return ", ".join(told) or "its last directory failed"


def _row(back: StepsBack, line: Line, changed: Mapping[str, Any]) -> dict[str, Any]:
    unknown: dict[str, Any] = {"leader_epoch": None, "partition_epoch": None, "rule": None, "candidates": []}
    about = _about(line)
    return about | {"changed": dict(changed)} | unknown | {"steps_back": back.of(about)}


def _about(line: Line) -> dict[str, Any]:
    cause = line["cause"]
    told = None if cause is None else Cause(cause["code"], cause["ref_offset"], cause["detail"])
    return {
        "offset": line["offset"],
        "time_ms": line["time_ms"],
        "cause": None if told is None else told.code,
        "why": why(told, line["operation"]),
        "rests_on": None if told is None else told.ref_offset,
        "actor": line["actor"],
        "request_id": line["request_id"],
    }
