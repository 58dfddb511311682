"""Edge: what type checkers tell an analyst of the library: tables of the engine that was named, and its frames."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
SHOWN = """
from metadata_log import replay

log = replay.open("export")
reveal_type(log.sql("SELECT 1", hosts=[{"broker_id": 11}], racks={"rack": ["a"]}, fencings_before=log.fencings()))
reveal_type(log.between(1, 2).leader_intervals())
reveal_type(log.state_at(5)["partitions"])
reveal_type(log.diff(1, 2))
reveal_type(replay.open("export", "spark").sql("SELECT 1"))
reveal_type(replay.lake("lake")["a cluster"].table("records"))
"""


def checked(text: str, folder: Path) -> list[str]:
    """Return what mypy says of a script, as it sees the library without this project's own settings."""
    script = folder / "notebook.py"
    script.write_text(text)
    asked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports", "silent"),
            *("--cache-dir", str(ROOT / ".mypy_cache" / "of_users"), str(script)),
        ],
        cwd=folder, env={"MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return asked.stdout.splitlines()


@pytest.mark.slow
def test_an_analyst_gets_types(tmp_path: Path) -> None:
    *told, refused, _count = checked(SHOWN + "log.sql('SELECT 1', hosts=3)\n", tmp_path)
    duckdb, spark = "duckdb._relation.DuckDBPyRelation", "pyspark.sql.dataframe.DataFrame"
    assert [line.partition('type is "')[2].rstrip('"') for line in told] == [duckdb] * 4 + [spark, duckdb]
    assert 'incompatible type "int"' in refused
