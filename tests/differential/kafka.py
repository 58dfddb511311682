"""Edge: the unmodified controller of Apache Kafka 4.3.1 in one process, driven by scripts as `metaquorum whatif` is.

`controller/java` puts a QuorumController together as Kafka's ControllerServer does, over a Raft client of one node that
commits at once, on a virtual clock. It is compiled here, once: Ivy, which PySpark brings, takes the jars of
`controller/ivy.xml` from Maven Central, Eclipse's compiler among them. So a Java runtime is all that a machine needs.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import ops.toolchain
from metadata_log.replay.session import JavaMissing, java_home

_SOURCES: Final = Path(__file__).parent / "controller"
_BUILD_TIMEOUT_S: Final = 900


class KafkaMissing(Exception):
    """Kafka's controller cannot be built or run here; the message has the cure."""


def built() -> Path:
    """Return the folder with the compiled controller and its jars; build it if it is missing.

    Raises:
        KafkaMissing: there is no Java or no PySpark, Maven Central cannot be reached, or the compiler failed.
    """
    sources = sorted(path for path in _SOURCES.rglob("*") if path.is_file())
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    folder = ops.toolchain.tools_directory() / f"kafka-controller-{version}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    print("building Kafka's controller (once, about a minute)", file=sys.stderr, flush=True)
    java = _java()
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        fresh = Path(scratch, "fresh")
        _ivy(java, fresh / "lib")
        _compile(java, fresh, [path for path in sources if path.suffix == ".java"])
        if not folder.is_dir():
            # Under a name of its own until it is whole: no process finds half of it.
            fresh.rename(folder)
    return folder


def answers(folder: Path, lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield Kafka's answer to each line of scripts that `Reset` separates.

    Raises:
        KafkaMissing: it ended before the last answer.
    """
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch, "script.jsonl")
        script.write_text("".join(json.dumps(line) + "\n" for line in lines))
        command = [
            *(_java(), "-Xss2m", "-XX:+UseSerialGC", "-Xshare:auto"),
            *("-cp", f"{folder / 'classes'}:{folder / 'lib'}/*", "differential.Main"),
        ]
        with (
            script.open() as stdin,
            subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
    if process.returncode != 0:
        raise KafkaMissing(f"Kafka's controller ended with exit code {process.returncode}: {command}")


def _java() -> str:
    try:
        return str(java_home() / "bin" / "java")
    except JavaMissing as missing:
        raise KafkaMissing(f"Kafka's controller needs Java: {missing.message}") from missing


def _ivy(java: str, lib: Path) -> None:
    """Take the jars from Maven Central; Ivy checks their sums, and keeps them in its own cache."""
    try:
        import pyspark
    except ImportError as error:
        raise KafkaMissing(
            "PySpark, which brings Ivy, is not here: pip install -e '.[replay,dev]'"
        ) from error
    jar = next((Path(pyspark.__path__[0]) / "jars").glob("ivy-*.jar"))
    _run(
        [
            *(java, "-jar", str(jar), "-ivy", str(_SOURCES / "ivy.xml"), "-warn", "-types", "jar", "bundle"),
            *("-retrieve", f"{lib}/[artifact]-[revision].[ext]"),
        ],
        failure="cannot take Kafka's jars from https://repo1.maven.org/maven2: "
        "reach it, with a JAVA_HOME whose Java trusts the certificates of your network",
    )


def _compile(java: str, folder: Path, sources: Sequence[Path]) -> None:
    jars = sorted((folder / "lib").glob("*.jar"))
    compiler = next(jar for jar in jars if jar.name.startswith("ecj-"))
    _run(
        [
            *(java, "-jar", str(compiler), "-source", "17", "-target", "17", "-nowarn"),
            *("-cp", os.pathsep.join(map(str, jars)), "-d", str(folder / "classes"), *map(str, sources)),
        ],
        failure="cannot compile tests/differential/controller/java",
    )


def _run(command: Sequence[str], *, failure: str) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KafkaMissing(f"{failure}: {error}") from error
    if ran.returncode != 0:
        raise KafkaMissing(f"{failure}\n{(ran.stdout + ran.stderr)[-4_000:]}")
