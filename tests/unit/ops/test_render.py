"""Pure: answers as tables, JSON and YAML."""

import json
from typing import Any

import pytest

from ops import render
from ops.render import Column
from ops.verbs import brokers, configs, quorum, snapshot, topics

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
  - "\u00fc"
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
        },
        "voters": {
            *("id", "address", "http", "role", "end_offset", "log_start_offset", "lag_records"),
            *("last_caught_up_ms_ago", "reachable", "directory_id"),
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
