"""Edge: the commands that run Kafka's nodes and tools."""

import zipfile
from pathlib import Path

import pytest

from ops.kafka import java
from ops.toolchain.jars import Jars, kafka_jars

JARS = Jars(java="/j/bin/java", folder=Path("/k"))


def test_a_small_jvm_unless_kafkas_variables_say_otherwise() -> None:
    command = java.java_command(JARS, java.SERVER, "a.properties", log_level="INFO")
    assert command[0] == "/j/bin/java"
    assert command[-4:] == ["-cp", "/k/*", "kafka.Kafka", "a.properties"]
    assert "-Xmx384m" in command and "-Dkafka.log.level=INFO" in command
    large = {"KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseG1GC"}
    command = java.java_command(JARS, java.SERVER, environment=large)
    assert command[1:3] == ["-Xmx1g", "-XX:+UseG1GC"]
    assert not {*java.QUICK_JVM.split(), *java.SMALL_HEAP.split()} & set(command)


def test_the_log_settings_are_beside_the_code() -> None:
    command = java.java_command(JARS, java.TOOLS["kafka-topics"], "--list")
    for option in ("-Dlog4j2.configurationFile=file:", "-Dlog4j.configuration=file:"):
        named = next(word for word in command if word.startswith(option))
        assert Path(named.partition("file:")[2]).is_file()


@pytest.mark.slow
def test_each_tool_is_a_class_of_a_jar() -> None:
    names = {
        name for jar in kafka_jars().folder.glob("kafka*.jar") for name in zipfile.ZipFile(jar).namelist()
    }
    assert [tool for tool, main in java.TOOLS.items() if f"{main.replace('.', '/')}.class" not in names] == []
