"""Edge: `python -m ops.kafka FILE.properties`: become one of Kafka's nodes, in a data directory as every node has one.

The directory is formatted as ours are: Kafka's own format takes the cluster from its `meta.json`. The JVM keeps `lock` open,
so a process is found, and its end is seen, as of every node. `process.json` is written before Kafka listens.
KAFKA_RELEASE chooses another of the pinned releases, KAFKA_FORMAT adds options to the format of a new directory.
As in Kafka's scripts, KAFKA_HEAP_OPTS and KAFKA_JVM_PERFORMANCE_OPTS replace the flags of its JVM.
Tests: tests/kafka.
"""

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Never

from metadata_log.errors import InvalidSettings, MetadataError
from metadata_log.ids import random_uuid
from metadata_log.node.clock import unix_ms
from metadata_log.node.disk.data_directory import DirectoryLock, Meta, load_meta, write_process_json
from ops.java_properties import read_properties
from ops.kafka.java import FORMAT, SERVER, java_command
from ops.kafka.properties import CLIENT_LISTENER
from ops.toolchain.jars import KAFKA_VERSION, Jars, kafka_jars

LOG_FILE: Final = "server.log"
FORMATTED: Final = "meta.properties"
"""Kafka's file in each of its directories that is formatted."""
RELEASE_VARIABLE: Final = "KAFKA_RELEASE"
FORMAT_VARIABLE: Final = "KAFKA_FORMAT"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ops.kafka")
    parser.add_argument("config", type=Path)
    try:
        _become(parser.parse_args().config)
    except MetadataError as error:
        print(error.message, file=sys.stderr)
        return 6


def _become(config: Path) -> Never:
    try:
        properties = read_properties(config.read_text(encoding="utf-8"))
        first_dir = Path(properties["log.dirs"].split(",")[0])
        node_id = int(properties["node.id"])
    except (OSError, ValueError, KeyError) as error:
        raise InvalidSettings(f"{config}: is no server.properties of a local node: {error!r}") from error
    data = first_dir.parent
    meta = load_meta(data)
    if meta.node_id != node_id:
        raise InvalidSettings(f"{config}: node.id is {node_id}, but {data} belongs to node {meta.node_id}")
    jars = kafka_jars(os.environ.get(RELEASE_VARIABLE, KAFKA_VERSION))
    lock = DirectoryLock(data)
    lock.acquire()
    lock.outlive_exec()
    if not (first_dir / FORMATTED).exists():
        _format(jars, meta, config)
    command = java_command(jars, SERVER, str(config), log_level="INFO", environment=os.environ)
    log = data / LOG_FILE
    _write_process_json(data, meta, properties, log)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.execv(command[0], command)  # noqa: S606 no shell: the process stays this one


def _format(jars: Jars, meta: Meta, config: Path) -> None:
    words = format_words(meta.cluster_id, config, os.environ)
    ran = subprocess.run(  # noqa: S603 no shell
        java_command(jars, FORMAT, *words),
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise InvalidSettings(f"{config}: kafka-storage cannot format it: {ran.stdout}{ran.stderr}")


def format_words(cluster_id: str, config: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the arguments of kafka-storage that format a node's directories."""
    options = environment.get(FORMAT_VARIABLE, "").split()
    return ["format", "--cluster-id", cluster_id, "--config", str(config), *options]


def _write_process_json(data: Path, meta: Meta, properties: dict[str, str], log: Path) -> None:
    listeners = dict(each.split("://", 1) for each in properties["listeners"].split(","))
    write_process_json(
        data,
        role=meta.role,
        node_id=meta.node_id,
        pid=os.getpid(),
        incarnation_id=random_uuid(random.SystemRandom()),
        http=None,
        raft=None,
        kafka=listeners.get(CLIENT_LISTENER) or next(iter(listeners.values())),
        started_at_ms=unix_ms(),
        log=str(log),
    )


if __name__ == "__main__":
    sys.exit(main())
