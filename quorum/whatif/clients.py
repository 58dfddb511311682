"""Pure: the operations of scripts on quotas of clients. Tests: tests/unit/quorum/whatif/test_kafka_scripts.py."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from metadata_log.records.quotas import QuotaEntity
from quorum.decide.quotas import AlterClientQuotas, EntityChange, QuotaChange
from quorum.whatif.operation import Answer, Line, Run, result


def alter_quotas(run: Run, line: Line) -> Answer:
    command = AlterClientQuotas(
        entries=tuple(map(_entry, line["entries"])), validate_only=bool(line.get("validate_only"))
    )
    outcome = run.decide(command)
    return {"results": [result(each.error, each.message) for each in outcome.results]}  # type: ignore[attr-defined]


def _entry(entry: Line) -> EntityChange:
    return EntityChange(
        tuple(QuotaEntity(part["entity_type"], part.get("entity_name")) for part in entry["entity"]),
        tuple(
            QuotaChange(change["key"], None if change.get("remove") else float(change["value"]))
            for change in entry["ops"]
        ),
    )


OPERATIONS: Final[Mapping[str, Callable[[Run, Mapping[str, Any]], Answer]]] = {
    "AlterClientQuotas": alter_quotas,
}
