"""Edge: Kafka's tools say in the one JVM of the tests what each says in a JVM of its own."""

import os
import random
import re
from pathlib import Path

import pytest
from py4j import java_gateway
from pyspark.errors.exceptions.captured import install_exception_handler

from metadata_log.ids import random_uuid, uuid_text
from ops.kafka import tools
from ops.kafka.__main__ import FORMAT_VARIABLE, FORMATTED, format_words
from ops.kafka.real_quorum import RealQuorum
from ops.kafka.tools import ToolFailed
from ops.toolchain.jars import KAFKA_VERSION
from tests.support.kafka_tools import format_node, run_tool

pytestmark = pytest.mark.slow

CLUSTER_ID = "bWV0YXF1b3J1bS1wZWVyMA"


def said(run: str, name: str, *arguments: str) -> str:
    """Return what a tool says, or how it failed."""
    try:
        return {"together": run_tool, "alone": tools.run_tool}[run](name, *arguments)
    except ToolFailed as failed:
        return failed.message


@pytest.mark.parametrize(
    "words",
    [
        ("kafka-topics", "--version"),
        ("kafka-topics", "--describe"),
        ("kafka-configs", "--describe", "--entity-type", "planets"),
        ("kafka-reassign-partitions", "--list"),
        ("kafka-features", "describe", "--nothing"),
        ("kafka-metadata-quorum",),
        ("kafka-dump-log", "--files", "/nowhere/00000000000000000000.log"),
    ],
    ids=lambda words: words[0],
)
def test_each_says_what_it_says_alone(words: tuple[str, ...]) -> None:
    """Goal: an exit ends the tool and not the JVM, and its code and all words are kept. Method: versions, and misuse."""
    ours, own = (said(run, *words) for run in ("together", "alone"))
    # Of an exception that was not caught a JVM prints the stack as well.
    assert ours == own or ours.startswith(own.partition("\n\tat ")[0])
    assert run_tool("kafka-topics", "--version").strip() == KAFKA_VERSION


def test_a_session_of_spark_in_the_same_process_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_gateway, "get_return_value", java_gateway.get_return_value)  # it is put back
    install_exception_handler()
    with pytest.raises(ToolFailed, match=r"exit code 1: .*bootstrap-server"):
        run_tool("kafka-topics", "--describe")


def test_nodes_are_formatted_as_they_format_themselves(tmp_path: Path) -> None:
    """Goal: the same files; only ids that are drawn differ. Method: a controller with its founding options, twice."""
    for folder in ("here", "itself"):
        (tmp_path / folder).mkdir()
    drawn = uuid_text(random_uuid(random.Random(1)))
    voters = {1: ("127.0.0.1", 9301)}
    quorums = [
        RealQuorum(tmp_path / folder, brokers=0, voters=voters, cluster_id=CLUSTER_ID, further=[])
        for folder in ("here", "itself")
    ]
    options = {**os.environ, FORMAT_VARIABLE: f"--initial-controllers 1@127.0.0.1:9301:{drawn}"}
    format_node(quorums[0].config(1), options)
    words = format_words(CLUSTER_ID, quorums[1].config(1), options)
    tools.run_tool("kafka-storage", *words)
    ours, own = (
        {path.relative_to(quorum.data(1)): path for path in quorum.data(1).rglob("*") if path.is_file()}
        for quorum in quorums
    )
    assert ours.keys() == own.keys()
    assert any(path.name == FORMATTED for path in ours)
    for path in (path for path in ours if path.name == FORMATTED):
        one, other = (re.sub("(?m)^#.*$", "", found[path].read_text()) for found in (ours, own))
        assert one == other
