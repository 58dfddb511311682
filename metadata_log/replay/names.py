"""Pure: names in place of the integers that records hold, for the tables that an analyst reads.

Files keep the integers: the state digest counts them, and an export reads its own files back. A table gets the names where
it is handed out. The table `records`, which is the log itself, keeps the integers, and the analyses compute with them.
A number without a name is shown as text. Tests: tests/unit/metadata_log/replay/test_library.py.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from metadata_log.records.configs import BROKER, TOPIC
from metadata_log.records.partitions import RECOVERED, RECOVERING

RESOURCE_TYPES: Final[Mapping[int, str]] = {
    TOPIC: "TOPIC",
    BROKER: "BROKER",
    8: "BROKER_LOGGER",
    16: "CLIENT_METRICS",
    32: "GROUP",
}
"""Source: Kafka's ConfigResource.Type."""
ACL_RESOURCE_TYPES: Final[Mapping[int, str]] = {
    2: "TOPIC",
    3: "GROUP",
    4: "CLUSTER",
    5: "TRANSACTIONAL_ID",
    6: "DELEGATION_TOKEN",
    7: "USER",
}
"""Source: Kafka's ResourceType, which has other numbers than ConfigResource.Type."""
RECOVERY_STATES: Final[Mapping[int, str]] = {RECOVERED: "RECOVERED", RECOVERING: "RECOVERING"}
"""Source: Kafka's LeaderRecoveryState."""
SECURITY_PROTOCOLS: Final[Mapping[int, str]] = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
"""Source: Kafka's SecurityProtocol."""
CHANGED: Final[Mapping[int, str]] = {1: "leader", 2: "isr", 4: "replicas", 8: "reassignment"}
"""Bits of `changed` in partition_changes."""
FLAGS: Final[Mapping[int, str]] = {
    1: "leaderless",
    2: "under_replicated",
    8: "not_preferred",
    16: "reassigning",
}
"""Bits of `flags` in partition_changes; `not_preferred`: another than the first replica leads."""


class Named(NamedTuple):
    """A column that shows names: its type, its meaning, and SQL for it from an expression of the column of integers."""

    type: str
    meaning: str
    sql: Callable[[str, str], str]
    """From the expression and the engine's name."""


def numbers(names: Mapping[int, str]) -> str:
    """Return which number has which name, as text."""
    return ", ".join(f"{number} {name}" for number, name in names.items())


def _code(expression: str, names: Mapping[int, str]) -> str:
    cases = " ".join(f"WHEN {number} THEN '{name}'" for number, name in names.items())
    return f"CASE {expression} {cases} ELSE CAST({expression} AS STRING) END"


def _bits(expression: str, names: Mapping[int, str], engine: str) -> str:
    """Return SQL for the list of the bits' names; bits without a name are added up to one number."""
    rest = f"({expression} & {-1 - sum(names)})"
    found = [
        *(f"CASE WHEN ({expression} & {bit}) <> 0 THEN '{name}' END" for bit, name in names.items()),
        f"CASE WHEN {rest} <> 0 THEN CAST({rest} AS STRING) END",
    ]
    made, bit = ("list_value", "lambda bit:") if engine == "duckdb" else ("array", "bit ->")
    filtered = f"filter({made}({', '.join(found)}), {bit} bit IS NOT NULL)"
    return f"CASE WHEN {expression} IS NOT NULL THEN {filtered} END"


def _endpoints(expression: str, engine: str) -> str:
    fields = {field: f"e.{field}" for field in ("name", "host", "port")}
    fields["security_protocol"] = _code("e.security_protocol", SECURITY_PROTOCOLS)
    if engine == "duckdb":
        struct = ", ".join(f"'{field}': {value}" for field, value in fields.items())
        return f"list_transform({expression}, lambda e: {{{struct}}})"
    struct = ", ".join(f"'{field}', {value}" for field, value in fields.items())
    return f"transform({expression}, e -> named_struct({struct}))"


def _codes(meaning: str, names: Mapping[int, str]) -> Named:
    return Named("STRING", meaning, lambda expression, _engine: _code(expression, names))


def _bit_names(meaning: str, names: Mapping[int, str]) -> Named:
    told = (
        f"{meaning}: {', '.join(names.values())} (in the export's files a number: {numbers(names)}, added up)"
    )
    return Named("ARRAY<STRING>", told, lambda expression, engine: _bits(expression, names, engine))


_ENDPOINT_TYPE: Final = "ARRAY<STRUCT<name: STRING, host: STRING, port: INT, security_protocol: STRING>>"

NAMED: Final[Mapping[str, Named]] = {
    "resource_type": _codes(
        "TOPIC or BROKER; with Kafka's brokers also CLIENT_METRICS or GROUP", RESOURCE_TYPES
    ),
    "leader_recovery_state": _codes("RECOVERED, or RECOVERING from an unclean election", RECOVERY_STATES),
    "prev_leader_recovery_state": _codes("as it was before", RECOVERY_STATES),
    "changed": _bit_names("what changed", CHANGED),
    "flags": _bit_names("the partition's condition", FLAGS),
    "prev_flags": _bit_names("its condition before", FLAGS),
    "endpoints": Named(_ENDPOINT_TYPE, "where it listens", _endpoints),
    "prev_endpoints": Named(_ENDPOINT_TYPE, "where that listened", _endpoints),
}
"""The columns that hold integer codes, by name, in all tables but `records` and those of `_OF_ACLS`."""
_OF_ACLS: Final[Mapping[str, Named]] = {
    **NAMED,
    "resource_type": _codes("what kind of resource the ACL concerns, such as TOPIC", ACL_RESOURCE_TYPES),
}


def names_in(table: str) -> Mapping[str, Named]:
    """Return the columns that hold integer codes in a table of the catalog other than `records`, by name."""
    return _OF_ACLS if table in {"acls", "acl_changes"} else NAMED


def named(column: str, engine: str, *, table: str, of: str = "") -> str:
    """Return SQL that shows a table's column, which may be qualified by `of` ("b."), with names where it holds codes."""
    shown = names_in(table).get(column)
    return f"{of}{column}" if shown is None else shown.sql(f"{of}{column}", engine)
