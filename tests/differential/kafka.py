"""Edge: the unmodified controller of Apache Kafka 4.3.1 in one process, driven by scripts as `metaquorum whatif` is.

`controller/java` puts a QuorumController together as Kafka's ControllerServer does, over a Raft client of one node that
commits at once, on a virtual clock. It is compiled here, once, with the jars of `ops/toolchain/kafka`, Eclipse's compiler
among them. So a Java runtime is all that a machine needs.
"""

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ops.toolchain import ToolMissing, jars, tools_directory

_SOURCES: Final = Path(__file__).parent / "controller"


def built() -> Path:
    """Return the folder with the compiled controller and its jars; build it if it is missing.

    Raises:
        ToolMissing: its jars or a Java are not to be had, or the compiler failed.
    """
    sources = sorted(path for path in (*_SOURCES.rglob("*"), *jars.PINNED.iterdir()) if path.is_file())
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    folder = tools_directory() / f"kafka-controller-{version}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        fresh = Path(scratch, "fresh")
        jars.retrieve("decisions", fresh / "lib")
        _compile(fresh, [path for path in sources if path.suffix == ".java"])
        if not folder.is_dir():
            # Under a name of its own until it is whole: no process finds half of it.
            fresh.rename(folder)
    return folder


def answers(folder: Path, lines: Iterable[dict[str, Any]], *, program: str = "Main") -> Iterator[Any]:
    """Yield Kafka's answer to each line of scripts that `Reset` separates, or to what another `program` reads.

    Raises:
        ToolMissing: it ended before the last answer.
    """
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch, "script.jsonl")
        script.write_text("".join(json.dumps(line) + "\n" for line in lines))
        command = [
            *(jars.java_binary(), "-Xss2m", *jars.QUICK_JVM.split(), "-Xshare:auto"),
            *("-cp", f"{folder / 'classes'}:{folder / 'lib'}/*", f"differential.{program}"),
        ]
        with (
            script.open() as stdin,
            subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
    if process.returncode != 0:
        raise ToolMissing(f"Kafka's controller ended with exit code {process.returncode}: {command}")


def _compile(folder: Path, sources: Sequence[Path]) -> None:
    found = sorted((folder / "lib").glob("*.jar"))
    compiler = next(jar for jar in found if jar.name.startswith("ecj-"))
    jars.run(
        [
            *(jars.java_binary(), *jars.QUICK_JVM.split(), "-jar", str(compiler)),
            *("-source", "17", "-target", "17", "-nowarn"),
            *("-cp", os.pathsep.join(map(str, found)), "-d", str(folder / "classes"), *map(str, sources)),
        ],
        failure="cannot compile tests/differential/controller/java",
    )
