"""Edge: Apache Kafka as jars of Maven Central, and the Java that runs them. Tests: tests/unit/ops/test_toolchain.py.

`kafka/ivy.xml` pins what is taken, and `kafka/SHA256SUMS` the content of each jar; `kafka_4_0/` and its like do so for the
releases with whose brokers a rolling upgrade begins, and `kafka_zookeeper/` for the last one whose brokers run under
ZooKeeper. Ivy, which PySpark brings, takes them, so a machine needs no Maven; it keeps them in its own cache as well. Java
is the one that Spark runs on.
"""

import fcntl
import hashlib
import importlib.util
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from metadata_log.replay.session import JavaMissing, java_home
from ops.toolchain import ToolMissing, say, tools_directory

KAFKA_VERSION: Final = "4.3.1"
OLDER_VERSIONS: Final = ("4.0.2", "4.1.1", "4.2.1")
ZOOKEEPER_VERSION: Final = "3.9.2"
"""The last release whose brokers run under ZooKeeper; its jars have ZooKeeper's server, too."""
PINNED: Final = Path(__file__).with_name("kafka")
_PINNED: Final = {
    KAFKA_VERSION: PINNED,
    "4.0.2": PINNED.with_name("kafka_4_0"),
    "4.1.1": PINNED.with_name("kafka_4_1"),
    "4.2.1": PINNED.with_name("kafka_4_2"),
    ZOOKEEPER_VERSION: PINNED.with_name("kafka_zookeeper"),
}
"""What is taken, by the release."""
QUICK_JVM: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""The optimizing compiler and a second collector thread cost more than they bring in a process that lives for minutes."""
_BUILD_TIMEOUT_S: Final = 900
"""The 97 jars are 56 MB: about a minute here; a slow network may need several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jars:
    """Kafka's servers and tools, and the java that runs them."""

    java: str
    folder: Path
    classes: Path | None = None
    """Their classes, as this java maps them into each process; None: not made (`ops/kafka/shared_classes.py`)."""

    @property
    def class_path(self) -> str:
        return f"{self.folder}/*"


def kafka_jars(release: str = KAFKA_VERSION) -> Jars:
    """Return Kafka's servers and tools of a release; take them from Maven Central if they are not here.

    Raises:
        ToolMissing: as `retrieve`, or no such release is pinned.
    """
    java, pinned = java_binary(), _PINNED.get(release)
    if pinned is None:
        raise ToolMissing(f"Kafka {release} is not pinned here: {', '.join(sorted(_PINNED))} are")
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(pinned.iterdir()))).hexdigest()
    folder = tools_directory() / f"kafka-{release}-{version[:12]}"
    if not folder.is_dir():
        with alone(folder.parent):
            if not folder.is_dir():
                with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                    fresh = Path(scratch, "fresh")
                    retrieve("node", fresh, pinned=pinned)
                    # Under a name of its own until it is whole: no process finds half of it.
                    fresh.rename(folder)
    found = folder.glob(shared_classes(java, "*"))
    # Java dies of a file that was cut off, and refuses one that is damaged otherwise.
    whole = (file for file in found if file.name == shared_classes(java, file.stat().st_size))
    return Jars(java=java, folder=folder, classes=next(whole, None))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other process fills a folder in this way, and keep others out meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "jars.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def shared_classes(java: str, size: int | str) -> str:
    """Return the name of the file of so many bytes that has the jars' classes for this java; any other java refuses it."""
    binary = Path(java).resolve()
    key = hashlib.sha256(f"{binary} {binary.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return f"classes-{key}-{size}.jsa"


def java_binary() -> str:
    """Return the java that Spark runs on.

    Raises:
        ToolMissing: there is none.
    """
    try:
        return str(java_home() / "bin" / "java")
    except JavaMissing as missing:
        raise ToolMissing(f"Kafka needs Java: {missing.message}") from missing


def retrieve(configuration: str, lib: Path, *, pinned: Path = PINNED, sums: Path | None = None) -> None:
    """Take the jars of a configuration of the ivy.xml or pom.xml in `pinned` from Maven Central into `lib`, and compare
    their sums.

    `sums` has them; None: SHA256SUMS beside it.

    Raises:
        ToolMissing: there is no Java or no PySpark, Maven Central cannot be reached, or a jar has another sum.
    """
    java, sums = java_binary(), sums or pinned / "SHA256SUMS"
    spark = importlib.util.find_spec("pyspark")
    if spark is None or not spark.submodule_search_locations:
        raise ToolMissing(
            "jars are taken by Ivy, which PySpark brings, and PySpark is not here: pip install 'metaquorum[replay]'"
        )
    declared = next(file for file in (pinned / "ivy.xml", pinned / "pom.xml") if file.exists())
    ivy = next(Path(spark.submodule_search_locations[0], "jars").glob("ivy-*.jar"))
    what = next((f"Kafka {each}" for each, at in _PINNED.items() if at == pinned), str(declared))
    say(f"taking the jars of {what} from Maven Central (once, about a minute)")
    # All checkouts of a user share Ivy's cache. Two processes that fill it at once fail, both.
    with alone(Path.home() / ".ivy2"):
        run(
            [
                *(java, *QUICK_JVM.split()),
                *("-jar", str(ivy), "-ivy", str(declared), "-warn", "-types", "jar", "bundle"),
                *("-confs", configuration, "-retrieve", f"{lib}/[artifact]-[revision].[ext]"),
            ],
            failure=f"cannot take the jars of {what} from https://repo1.maven.org/maven2: "
            "reach it, with a JAVA_HOME whose Java trusts the certificates of your network",
        )
    lines = sums.read_text(encoding="ascii").splitlines()
    wanted = {name: pinned_sum for pinned_sum, name in map(str.split, lines)}
    for jar in sorted(lib.iterdir()):
        found = hashlib.sha256(jar.read_bytes()).hexdigest()
        if wanted.get(jar.name) != found:
            raise ToolMissing(
                f"{jar.name} has the SHA-256 {found}, but {sums} pins {wanted.get(jar.name)}: "
                "remove ~/.ivy2/cache and try once more; if it stays so, do not run it"
            )


def run(command: Sequence[str], *, failure: str) -> None:
    """Run a build step; what it prints is part of its error.

    Raises:
        ToolMissing: it failed, or did not end in time.
    """
    try:
        ran = subprocess.run(  # noqa: S603 the commands above, no shell
            command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolMissing(f"{failure}: {error}") from error
    if ran.returncode != 0:
        raise ToolMissing(f"{failure}\n{(ran.stdout + ran.stderr)[-4_000:]}")
