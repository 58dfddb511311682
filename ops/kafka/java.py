"""Pure: the commands that run Kafka's nodes and tools. Tests: tests/unit/ops/kafka/test_java.py."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ops.toolchain.jars import QUICK_JVM, Jars

SERVER: Final = "kafka.Kafka"
CONNECT: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
FORMAT: Final = "kafka.tools.StorageTool"
TOOLS: Final[Mapping[str, str]] = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-storage": FORMAT,
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
"""Kafka's shell scripts and the classes that they run."""

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_LOG_SETTINGS_BEFORE_4: Final = Path(__file__).with_name("log4j.properties")
SMALL_HEAP: Final = "-Xms64m -Xmx384m"


def java_command(
    jars: Jars, main: str, *arguments: str, log_level: str = "WARN", environment: Mapping[str, str] = {}
) -> list[str]:
    """Return the command that runs a class of Kafka's.

    KAFKA_HEAP_OPTS and KAFKA_JVM_PERFORMANCE_OPTS of `environment` replace the flags of a small JVM, as in Kafka's scripts.
    """
    return [
        jars.java,
        *environment.get("KAFKA_HEAP_OPTS", SMALL_HEAP).split(),
        *environment.get("KAFKA_JVM_PERFORMANCE_OPTS", QUICK_JVM).split(),
        *(() if jars.classes is None else _shared(jars.classes)),
        f"-Dlog4j2.configurationFile=file:{_LOG_SETTINGS}",
        f"-Dlog4j.configuration=file:{_LOG_SETTINGS_BEFORE_4}",
        f"-Dkafka.log.level={log_level}",
        *("-cp", jars.class_path, main),
        *arguments,
    ]


def _shared(classes: Path) -> tuple[str, ...]:
    """Return the flags with which a JVM maps a file of classes. It goes on without it, in silence, where it is damaged."""
    return (f"-XX:SharedArchiveFile={classes}", "-XX:+VerifySharedSpaces", "-Xlog:cds*=off")
