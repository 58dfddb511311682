"""Pure: which lines of the log an operator asks for, by broker, actor, type and cause.
Tests: tests/unit/ops/admin/test_log_filter.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ops.admin.causes import OF_A_LIST

Line: TypeAlias = Mapping[str, Any]
"""What `log dump` prints of a record, as docs/formats.md has it."""
BROKER_RESOURCE: Final = 4
"""The resource type of a broker's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a line has to be: one of each kind that is named; of a kind that is not named, anything."""

    brokers: frozenset[int] = frozenset()
    actors: tuple[str, ...] = ()
    """In full (User:anna@10.0.0.7), or without the address (User:anna)."""
    types: frozenset[str] = frozenset()
    """In lower case."""
    causes: frozenset[str] = frozenset()
    """Codes of causes, or names of operations, in lower case; one that takes a list has its name without the end, too."""

    def of(self, lines: Iterable[Line]) -> Iterator[Line]:
        return (line for line in lines if self.takes(line))

    def takes(self, line: Line) -> bool:
        cause, operation = line["cause"] or {}, str(line["operation"])
        return (
            (not self.types or line["type"].lower() in self.types)
            and (not self.actors or any(_is_actor(line["actor"], one) for one in self.actors))
            and (
                not self.causes
                or not self.causes.isdisjoint(
                    str(name).lower()
                    for name in (cause.get("code"), operation, operation.removesuffix(OF_A_LIST))
                )
            )
            and (not self.brokers or any(_concerns(line, one) for one in self.brokers))
        )


def _is_actor(actor: str | None, wanted: str) -> bool:
    return actor is not None and (actor == wanted or actor.startswith(f"{wanted}@"))


def _concerns(line: Line, broker_id: int) -> bool:
    """Answer whether a record is about a broker, was caused by it, or changes what it leads, holds or has in sync."""
    record, cause = line["record"], line["cause"] or {}
    if broker_id in (record.get("broker_id"), record.get("leader"), cause.get("detail", {}).get("broker_id")):
        return True
    if record.get("resource_type") == BROKER_RESOURCE and record.get("resource_name") == str(broker_id):
        return True
    if line["actor"] == f"Broker:{broker_id}":
        return True
    held = ("replicas", "isr", "adding_replicas", "removing_replicas")
    return any(broker_id in (record.get(name) or ()) for name in held)
