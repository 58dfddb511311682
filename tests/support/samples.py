"""Edge: the sample brokers of docs/samples, built once, in Go with Go and in Java with Eclipse's compiler."""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ops.toolchain import ToolMissing, jars, tools_directory
from tests.differential import kafka

SOURCES: Final = Path(__file__).resolve().parents[2] / "docs" / "samples"
GO, JAVA = SOURCES / "broker.go", SOURCES / "Broker.java"


def go_broker() -> Sequence[str]:
    """Return the command of the sample in Go.

    Raises:
        ToolMissing: Go is not here, or the sample does not compile.
    """
    go = shutil.which("go")
    if go is None:
        raise ToolMissing("the sample broker in Go needs Go: install Go 1.24 or newer (https://go.dev/dl)")

    def compile_to(folder: Path) -> None:
        command = [go, "build", "-o", str(folder / "broker"), str(GO)]
        jars.run(command, failure=f"cannot compile {GO}")

    return [str(_built(GO, compile_to) / "broker")]


def java_broker() -> Sequence[str]:
    """Return the command of the sample in Java.

    Raises:
        ToolMissing: Java or its compiler is not to be had, or the sample does not compile.
    """
    java = jars.java_binary()

    def compile_to(folder: Path) -> None:
        compiler = next((kafka.built() / "lib").glob("ecj-*.jar"))
        command = [java, "-jar", str(compiler), "-17", "-failOnWarning", "-d", str(folder), str(JAVA)]
        jars.run(command, failure=f"cannot compile {JAVA}")

    return [java, "-XX:+UseSerialGC", "-cp", str(_built(JAVA, compile_to)), "Broker"]


def _built(source: Path, compile_to: Callable[[Path], None]) -> Path:
    """Return the folder with what a source was compiled to; compile it where it is not there yet."""
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    folder = tools_directory() / f"sample-{source.suffix[1:]}-{version}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            fresh = Path(scratch, "fresh")
            fresh.mkdir()
            compile_to(fresh)
            if not folder.is_dir():
                # Under a name of its own until it is whole: no process finds half of it.
                fresh.rename(folder)
    return folder
