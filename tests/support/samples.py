"""Edge: the sample brokers of docs/samples, built once: in Go with Go, in Java with Eclipse's compiler, both with the
libraries that their own files pin.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ops.toolchain import ToolMissing, jars, tools_directory
from tests.differential import kafka

SAMPLES: Final = Path(__file__).resolve().parents[2] / "docs" / "samples"
GO, JAVA = SAMPLES / "go", SAMPLES / "java"


def go_broker() -> Sequence[str]:
    """Return the command of the sample in Go.

    Raises:
        ToolMissing: Go is not here, its library is not to be had, or the sample does not compile.
    """
    go = shutil.which("go")
    if go is None:
        raise ToolMissing("the sample broker in Go needs Go: install Go 1.24 or newer (https://go.dev/dl)")

    def compile_to(folder: Path) -> None:
        # A GOFLAGS or a go.work of the user's could replace what go.sum pins.
        command = ["env", "GOFLAGS=", "GOWORK=off", go, "build", "-C", str(GO), "-mod=readonly"]
        failure = f"cannot compile {GO}; its library comes from the module proxy that `go env GOPROXY` names"
        jars.run([*command, "-o", str(folder / "broker"), "."], failure=failure)

    return [str(_built(GO, compile_to) / "broker")]


def java_broker() -> Sequence[str]:
    """Return the command of the sample in Java.

    Raises:
        ToolMissing: Java, its compiler or the library is not to be had, or the sample does not compile.
    """
    java = jars.java_binary()

    def compile_to(folder: Path) -> None:
        compiler = next((kafka.built() / "lib").glob("ecj-*.jar"))
        jars.retrieve("runtime", folder / "lib", pinned=JAVA)
        libraries = ":".join(map(str, sorted((folder / "lib").iterdir())))
        options = ("-17", "-failOnWarning", "-cp", libraries, "-d", str(folder / "classes"))
        sources = map(str, sorted(JAVA.glob("*.java")))
        jars.run(
            [java, *jars.QUICK_JVM.split(), "-jar", str(compiler), *options, *sources],
            failure=f"cannot compile the sources in {JAVA}",
        )

    built = _built(JAVA, compile_to)
    return [java, "-XX:+UseSerialGC", "-cp", f"{built / 'classes'}:{built / 'lib'}/*", "Broker"]


def _built(sources: Path, compile_to: Callable[[Path], None]) -> Path:
    """Return the folder with what a sample was compiled to; compile it where it is not there yet."""
    files = sorted(file for file in sources.iterdir() if file.is_file())
    version = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    folder = tools_directory() / f"sample-{sources.name}-{version}"
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
