"""Edge: the made-up subject in use: real processes of the scratch copy, its noun, the log, a restart, the export."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.processes import poll_until

READY_S = 90.0


def use(root: Path, cluster: Path) -> Iterator[str]:
    """Run a cluster of one controller from the code in `root`, and yield a line for each thing that worked."""
    with _up(root, cluster):
        _cli(root, cluster, "quotas", "set", "alice", "--rate", "1000")
        _cli(root, cluster, "quotas", "set", "bob", "--rate", "7")
        _cli(root, cluster, "quotas", "set", "bob")
        refused = _cli(root, cluster, "quotas", "set", "bob", expect=3)
        assert "has no quota" in refused, refused
        quotas = [{"user": "alice", "bytes_per_second": 1000}]
        assert json.loads(_cli(root, cluster, "quotas", "list", "--json")) == quotas
        yield "command line, HTTP, decision, apply: a quota is set, changed, removed, refused, listed"
        types = [
            json.loads(line)["type"]
            for line in _cli(root, cluster, "log", "dump", "-o", "jsonl").splitlines()
        ]
        assert types.count("UserQuota") == 3, types
        state = json.loads(_cli(root, cluster, "state", "--json"))
        assert state["quotas"] == quotas
        yield "log dump and state show it"
        _cli(root, cluster, "snapshot", "take")
        _cli(root, cluster, "log", "export", "--to", str(cluster / "export"))
    with _up(root, cluster):
        assert json.loads(_cli(root, cluster, "state", "--json"))["quotas"] == quotas
        # Since then the controller has claimed and registered anew.
        then = json.loads(_cli(root, cluster, "state", "--at", str(state["end_offset"]), "--json"))
        assert (then["quotas"], then["digest"]) == (quotas, state["digest"])
        yield "snapshot and restart keep it, and the digest holds"
    digests = {
        engine: json.loads(
            _run(root, "replay", "digest", "--export", str(cluster / "export"), "--engine", engine, "--json")
        )
        for engine in ("duckdb", "fold")
    }
    assert digests["duckdb"]["digest"] == digests["fold"]["digest"], digests
    yield "the export's digest by DuckDB's SQL and by apply is the same, with the subject's lines in it"


@contextmanager
def _up(root: Path, cluster: Path) -> Iterator[None]:
    command = [
        sys.executable,
        "-m",
        "ops.cli",
        "up",
        "--controllers",
        "1",
        "--brokers",
        "0",
        "--dir",
        str(cluster),
    ]
    process = subprocess.Popen(
        command, cwd=root, env=_environment(root), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        poll_until(lambda: _is_ready(root, cluster), deadline_s=READY_S, what="the cluster is ready")
        yield
    finally:
        process.terminate()
        process.wait(60)


def _is_ready(root: Path, cluster: Path) -> bool:
    file = cluster / "cluster.json"
    if not file.exists():
        return False
    try:
        described: dict[str, Any] = json.loads(file.read_bytes())
    except ValueError:
        return False
    return described.get("state") == "ready"


def _cli(root: Path, cluster: Path, *words: str, expect: int = 0) -> str:
    bootstrap = ",".join(json.loads((cluster / "cluster.json").read_bytes())["bootstrap"])
    return _run(root, *words, "--bootstrap", bootstrap, expect=expect)


def _run(root: Path, *words: str, expect: int = 0) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "ops.cli", *words],
        cwd=root,
        env=_environment(root),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == expect, (words, ran.returncode, ran.stderr)
    return ran.stdout if expect == 0 else ran.stderr


def _environment(root: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(root)}
