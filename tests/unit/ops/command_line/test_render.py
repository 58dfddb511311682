"""Pure: answers as tables, JSON and YAML."""

import json
from typing import Any

import pytest

from ops.command_line import partition_summary, render
from ops.command_line.render import Column, Look
from ops.verbs import (
    brokers,
    configs,
    controllers,
    features,
    partitions,
    quorum,
    reassignments,
    snapshot,
    topics,
    whatif,
)

VALUE: dict[str, Any] = {
    "name": "orders",
    "configs": {},
    "partitions": [
        {"partition": 0, "isr": [11, 12], "leader": -1},
        {"partition": 1, "isr": [], "leader": 12},
    ],
    "rack": None,
    "odd": ["true", "no", "1e5", "a: b", "", "-x", "ü", True, 1.5],
}

AS_YAML = r"""
name: orders
configs: {}
partitions:
  - partition: 0
    isr:
      - 11
      - 12
    leader: -1
  - partition: 1
    isr: []
    leader: 12
rack: null
odd:
  - "true"
  - "no"
  - "1e5"
  - "a: b"
  - ""
  - "-x"
  - "ü"
  - true
  - 1.5
"""


def unused() -> str:
    raise AssertionError("no table was asked for")


def test_json_is_the_value() -> None:
    assert json.loads(render.rendered(VALUE, output="json", table=unused)) == VALUE


def test_json_lines_are_the_items() -> None:
    lines = render.rendered([VALUE, 1], output="jsonl", table=unused).split("\n")
    assert [json.loads(line) for line in lines] == [VALUE, 1]
    assert json.loads(render.rendered(VALUE, output="jsonl", table=unused)) == VALUE


def test_yaml_quotes_what_could_be_something_else() -> None:
    assert render.rendered(VALUE, output="yaml", table=unused) == AS_YAML.strip()


def test_yaml_of_nested_lists_and_of_nothing() -> None:
    assert render.rendered([[1, [2]], []], output="yaml", table=unused) == "- - 1\n  - - 2\n- []"
    assert render.rendered([], output="yaml", table=unused) == "[]"
    assert render.rendered({}, output="yaml", table=unused) == "{}"


def test_a_table_aligns_numbers_to_the_right() -> None:
    columns = (Column("name"), Column("partition_count", "PARTITIONS"), Column("rack"))
    items = [
        {"name": "a", "partition_count": 6, "rack": None},
        {"name": "longer", "partition_count": 12, "rack": "r1"},
    ]
    assert render.table(columns, items, empty="none").split("\n") == [
        "NAME    PARTITIONS  RACK",
        "a                6  -",
        "longer          12  r1",
    ]
    assert render.table(columns, [], empty="none") == "none"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, "-"),
        ("", "-"),
        (True, "yes"),
        ([11, 12], "11,12"),
        ([], "-"),
        ({"a": "1", "b": "2"}, "a=1,b=2"),
        ({"name": "P", "host": "h", "port": 1, "security_protocol": 0}, "P://h:1"),
        ([{"name": "P", "host": "h", "port": 1}, {"name": "Q", "host": "h", "port": 2}], "P://h:1,Q://h:2"),
        ([{"name": "v", "min": 1}, {"name": "w", "min": 2}], "{name=v,min=1},{name=w,min=2}"),
        ([[1, 2], [3], []], "[1,2],[3],[-]"),
        ("a\x1b[31m\nb", "a\\x1b[31m\\nb"),
    ],
)
def test_cells(value: object, cell: str) -> None:
    assert render.plain(value) == cell


def test_sizes_for_people() -> None:
    told = [render.bytes_text(count) for count in (0, 1023, 1434, 20 * 1024**2, 3 * 1024**3)]
    assert told == ["0 B", "1023 B", "1.4 KiB", "20.0 MiB", "3.0 GiB"]


def test_the_last_column_is_wrapped_where_a_table_is_too_wide() -> None:
    columns = (Column("name"), Column("why"))
    items = [{"name": "n" * 30, "why": "a word " * 20}, {"name": "n", "why": "/a/long/path" * 10}]
    lines = render.table(columns, items, empty="", look=Look(width=80)).split("\n")
    assert len(lines) == 1 + 3 + 1 and all(len(line) <= 80 for line in lines[:4])
    assert lines[2].startswith(" " * 32 + "a word") and lines[4].endswith("/a/long/path" * 10)
    assert len(render.table(columns, items, empty="", look=Look(width=None)).split("\n")) == 3


def test_a_wide_table_has_columns_more() -> None:
    columns = (Column("name"), Column("id", is_wide=True))
    items = [{"name": "a", "id": 1}]
    assert render.table(columns, items, empty="") == "NAME\na"
    assert render.table(columns, items, empty="", look=Look(is_wide=True)) == "NAME  ID\na      1"


NAME = "n" * 30
OFFSET = 123_456_789
ENDPOINTS = [{"name": "PLAINTEXT", "host": "h" * 26, "port": 19092, "security_protocol": 0}] * 2
TIME_MS = 1_764_000_000_000
WIDE = {
    "name": NAME,
    "topic": NAME,
    "topic_id": "i" * 22,
    "partition": 99_999,
    "partition_count": 99_999,
    "replication_factor": 3,
    "deleted_at_ms": TIME_MS,
    "gone_at_ms": TIME_MS,
    "leader": 1_003,
    "leader_epoch": 99_999,
    "replicas": [1_001, 1_002, 1_003],
    "isr": [1_001, 1_002, 1_003],
    "leader_recovery_state": "RECOVERED",
    "preferred": 1_001,
    "broker_id": 1_003,
    "state": "STOPPING",
    "broker_epoch": OFFSET,
    "rack": "r" * 26,
    "applied_offset": OFFSET,
    "lag_records": 99,
    "waits_for": None,
    "last_contact_ms_ago": 900,
    "metadata_age_ms": 900,
    "would_serve_stale": False,
    "control_state": "UNFENCED",
    "endpoints": ENDPOINTS,
    "controller_id": 3,
    "incarnation_id": "i" * 22,
    "registration_epoch": OFFSET,
    "registered_at_ms": TIME_MS,
    "is_voter": True,
    "linked": True,
    "features": [],
    "id": 3,
    "role": "leader",
    "reachable": True,
    "address": "h" * 26 + ":19092",
    "end_offset": OFFSET,
    "last_caught_up_ms_ago": 90,
    "directory_id": "d" * 22,
    "resource_type": "BROKER_LOGGER"[:6],
    "resource_name": NAME,
    "value": "a value " * 20,
    "source": "DYNAMIC_TOPIC_CONFIG",
    "type": "STRING",
    "error": "UNKNOWN_TOPIC_OR_PARTITION",
    "message": "it is not there, " * 9,
    "partitions": 12,
    "adding_replicas": [1_004],
    "removing_replicas": [1_005],
    "why_stuck": "broker 1004 is fenced " * 4,
    "begun_ms": TIME_MS,
    "begun_offset": OFFSET,
    "from": [1],
    "to": [1_001, 2],
    "actor": "User:" + NAME,
    "duration_ms": 99_000,
    "ended": "stuck: broker 1004 is fenced",
    "time_ms": TIME_MS,
    "offset": OFFSET,
    "changed": "registered at epoch 123456789, fenced",
    "why": "it was silent, " * 9,
    "broker": 1_001,
    "what": "lost",
    "records": 99_999,
    "leaders_moved": 99_999,
    "unclean": 9,
    "leaderless": 9,
    "under_min_isr": 99_999,
    "min_isr": 2,
    "led_elsewhere": 99,
    "controller": 3,
    "led": True,
    "successors": [1, 2, 4],
    "running": 5,
    "majority": 3,
    "writes": True,
    "percent": 99,
    "exceeds": True,
    "feature": NAME,
    "level": 9,
    "supported_min": 1,
    "supported_max": 99,
    "bytes": 9_999_999,
    "sha256": "s" * 64,
    "controller_epoch": 99,
    "leaders": 99_999,
    "not_in_sync": 99_999,
    "kind": "controller",
    "key": NAME + ":99999",
    "field": "eligible_leader_replicas",
    "node": 1_001,
    "version": "1.10.0",
    "supports": {"metaquorum.version": [1, 99]},
    "possible": 99,
    "newest": 99,
    "held_back_by": "node 1001 does not support it, " * 4,
}


def tables_of(module: Any) -> dict[str, tuple[Column, ...]]:
    return {
        f"{module.__name__}.{name}": value
        for name, value in vars(module).items()
        if isinstance(value, tuple) and value and all(isinstance(each, Column) for each in value)
    }


def test_every_table_fits_100_columns_for_names_of_30_letters() -> None:
    modules = (
        brokers,
        configs,
        controllers,
        features,
        partitions,
        quorum,
        reassignments,
        snapshot,
        topics,
        whatif,
    )
    found = {
        name: columns
        for module in (*modules, partition_summary)
        for name, columns in tables_of(module).items()
    }
    assert len(found) > 20
    for name, columns in found.items():
        lines = render.table(columns, [WIDE], empty="").split("\n")
        assert max(map(len, lines)) <= 100, (name, lines)


def test_every_column_is_a_key_of_the_json_that_formats_promise() -> None:
    """Goal: JSON is a superset of each table."""
    promised = {
        "topics": {"name", "topic_id", "partition_count", "replication_factor"},
        "partitions": {
            *("partition", "leader", "leader_epoch", "partition_epoch", "replicas", "isr", "adding_replicas"),
            *("removing_replicas", "leader_recovery_state", "eligible_leader_replicas", "last_known_elr"),
            "directories",
        },
        "brokers": {
            *("broker_id", "state", "broker_epoch", "incarnation_id", "rack", "endpoints", "applied_offset"),
            *("lag_records", "last_contact_ms_ago", "control_state", "waits_for"),
            *("metadata_age_ms", "would_serve_stale"),
        },
        "voters": {
            *("id", "address", "http", "role", "end_offset", "log_start_offset", "lag_records"),
            *("last_fetch_ms_ago", "last_caught_up_ms_ago", "reachable", "directory_id"),
        },
        "configs": {"resource_type", "resource_name", "name", "value"},
        "snapshots": {"id", "end_offset", "controller_epoch", "bytes", "sha256"},
    }
    shown = {
        "topics": topics.TOPICS,
        "partitions": topics.PARTITIONS,
        "brokers": brokers.BROKERS,
        "voters": quorum.CONTROLLERS,
        "configs": configs.CONFIGS,
        "snapshots": snapshot.SNAPSHOTS,
    }
    for what, columns in shown.items():
        assert {column.key for column in columns} <= promised[what], what
