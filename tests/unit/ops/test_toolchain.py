"""Edge: the pinned Go modules name the versions under which binaries are stored and reported; so are the jars of Kafka."""

import hashlib
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest

from metadata_log.replay.session import JavaMissing
from ops import toolchain
from ops.toolchain import jars


@pytest.mark.parametrize(
    "tool", [toolchain._ETCD, toolchain._PROMTOOL, toolchain._TOXIPROXY], ids=lambda tool: tool.name
)
def test_the_module_requires_the_version_its_binary_is_named_after(tool: toolchain._Tool) -> None:
    module = Path(toolchain.__file__).parent / tool.module
    path, _, _ = tool.package.partition("/cmd/")
    assert f"require {path} v{tool.version}\n" in (module / "go.mod").read_text()
    assert f"{path} v{tool.version} h1:" in (module / "go.sum").read_text(), "its checksum is pinned"
    assert f'import _ "{tool.package}"' in (module / "tools.go").read_text(), "go mod tidy keeps it"


def test_without_go_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "tools_directory", lambda: tmp_path)
    with pytest.raises(toolchain.ToolMissing, match=r"install Go 1\.24"):
        toolchain.toxiproxy_binary()
    with pytest.raises(toolchain.ToolMissing, match=r"install Go 1\.26"):
        toolchain.etcd_binary()


def test_a_failed_build_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text("#!/bin/sh\nexit 1\n")
    go.chmod(0o755)
    tools = tmp_path / "tools"
    monkeypatch.setenv("PATH", str(go.parent))
    monkeypatch.setattr(toolchain, "tools_directory", lambda: tools)
    with pytest.raises(toolchain.ToolMissing, match=r"cannot build toxiproxy-server 2\.5\.0"):
        toolchain.toxiproxy_binary()
    assert list(tools.iterdir()) == []


def test_of_a_checkout_the_tools_stay_inside(tmp_path: Path) -> None:
    assert toolchain.tools_directory() == Path(__file__).resolve().parents[3] / ".tools"


@pytest.mark.parametrize("release", [jars.KAFKA_VERSION, *jars.OLDER_VERSIONS, jars.ZOOKEEPER_VERSION])
def test_every_jar_of_kafka_is_pinned_to_one_version_and_one_sum(release: str) -> None:
    pinned = jars._PINNED[release]
    asked = re.findall(
        r'org="org.apache.kafka" name="([^"]+)" rev="([^"]+)"', (pinned / "ivy.xml").read_text()
    )
    assert {version for _, version in asked} == {release}
    lines = [line.split() for line in (pinned / "SHA256SUMS").read_text().splitlines()]
    assert all(re.fullmatch("[0-9a-f]{64}", found) for found, _ in lines)
    names = [name for _, name in lines]
    assert len(names) == len(set(names)) and {f"{name}-{version}.jar" for name, version in asked} < set(names)


@pytest.mark.parametrize(("content", "fails"), [(b"as pinned", False), (b"another", True)])
def test_a_jar_with_another_sum_is_refused(
    content: bytes, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib, sums = tmp_path / "lib", tmp_path / "sums"
    lib.mkdir()
    sums.write_text(f"{hashlib.sha256(b'as pinned').hexdigest()}  a-1.jar\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(jars, "run", lambda command, *, failure: (lib / "a-1.jar").write_bytes(content))
    if not fails:
        jars.retrieve("node", lib, sums=sums)
        return
    with pytest.raises(toolchain.ToolMissing, match=r"a-1\.jar has the SHA-256 .* remove ~/\.ivy2/cache"):
        jars.retrieve("node", lib, sums=sums)


def test_without_java_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise JavaMissing("install a JDK")

    monkeypatch.setattr(jars, "java_home", missing)
    with pytest.raises(toolchain.ToolMissing, match="Kafka needs Java: install a JDK"):
        jars.kafka_jars()


def test_a_release_of_kafka_that_is_not_pinned_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "java_binary", lambda: "java")
    with pytest.raises(
        toolchain.ToolMissing, match=r"Kafka 4\.2\.0 is not pinned here: 3\.9\.2, 4\.0\.2, 4\.1\.1, .* are"
    ):
        jars.kafka_jars("4.2.0")


def test_processes_that_need_the_jars_at_once_take_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: nodes that are started together on a fresh machine do not fill one cache at the same time."""
    taken: list[Path] = []
    all_at_once = Barrier(3)

    def retrieve(_configuration: str, lib: Path, **_: object) -> None:
        taken.append(lib)
        with suppress(BrokenBarrierError):
            all_at_once.wait(0.2)
        lib.mkdir()

    monkeypatch.setattr(jars, "java_binary", lambda: sys.executable)
    monkeypatch.setattr(jars, "tools_directory", lambda: tmp_path)
    monkeypatch.setattr(jars, "retrieve", retrieve)
    with ThreadPoolExecutor(3) as threads:
        found = {*threads.map(lambda _: jars.kafka_jars().folder, range(3))}
    assert len(found) == len(taken) == 1


def test_ivy_runs_once_at_a_time_whatever_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the jars of nodes, of a sample and of the oracle are taken by checkouts at once, and all fill one cache."""
    running: list[Path] = []

    def run(_command: object, *, failure: str) -> None:
        running.append(tmp_path)
        time.sleep(0.02)
        assert len(running) == 1, failure
        running.clear()

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(jars, "run", run)
    (tmp_path / "lib").mkdir()
    with ThreadPoolExecutor(3) as threads:
        taken = [threads.submit(jars.retrieve, "node", tmp_path / "lib") for _ in range(3)]
    assert [each.result() for each in taken] == [None] * 3


def test_classes_that_were_cut_off_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no process of Kafka ends with SIGBUS for a file that was copied, or written, in part."""
    monkeypatch.setattr(jars, "java_binary", lambda: sys.executable)
    monkeypatch.setattr(jars, "tools_directory", lambda: tmp_path)
    monkeypatch.setattr(jars, "retrieve", lambda _configuration, lib, **_: lib.mkdir())
    folder = jars.kafka_jars().folder
    file = folder / jars.shared_classes(sys.executable, 100)
    for size, is_used in ((0, False), (99, False), (100, True), (101, False)):
        file.write_bytes(bytes(size))
        assert jars.kafka_jars().classes == (file if is_used else None), size
    file.rename(folder / jars.shared_classes("/bin/sh", 101))
    assert jars.kafka_jars().classes is None, "of another java"
