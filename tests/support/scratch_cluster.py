"""Edge: a cluster of one controller that runs from a scratch copy of the code, and its command line."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.processes import poll_until

READY_S = 180.0


@contextmanager
def up(root: Path, cluster: Path) -> Iterator[None]:
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


def cli(root: Path, cluster: Path, *words: str, expect: int = 0) -> str:
    bootstrap = ",".join(json.loads((cluster / "cluster.json").read_bytes())["bootstrap"])
    return run(root, *words, "--bootstrap", bootstrap, expect=expect)


def run(root: Path, *words: str, expect: int = 0) -> str:
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
