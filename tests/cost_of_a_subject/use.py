"""Edge: the made-up subject in use: real processes of the scratch copy, its noun, the log, a restart, the export."""

import json
from collections.abc import Iterator
from pathlib import Path

from tests.support.scratch_cluster import cli, run, up


def use(root: Path, cluster: Path) -> Iterator[str]:
    """Run a cluster of one controller from the code in `root`, and yield a line for each thing that worked."""
    with up(root, cluster):
        cli(root, cluster, "budgets", "set", "alice", "--rate", "1000")
        cli(root, cluster, "budgets", "set", "bob", "--rate", "7")
        cli(root, cluster, "budgets", "set", "bob")
        refused = cli(root, cluster, "budgets", "set", "bob", expect=3)
        assert "has no budget" in refused, refused
        budgets = [{"user": "alice", "bytes_per_second": 1000}]
        assert json.loads(cli(root, cluster, "budgets", "list", "--json")) == budgets
        yield "command line, HTTP, decision, apply: a budget is set, changed, removed, refused, listed"
        types = [
            json.loads(line)["type"] for line in cli(root, cluster, "log", "dump", "-o", "jsonl").splitlines()
        ]
        assert types.count("UserBudget") == 3, types
        state = json.loads(cli(root, cluster, "state", "--json"))
        assert state["budgets"] == budgets
        yield "log dump and state show it"
        cli(root, cluster, "snapshot", "take")
        cli(root, cluster, "log", "export", "--to", str(cluster / "export"))
    with up(root, cluster):
        assert json.loads(cli(root, cluster, "state", "--json"))["budgets"] == budgets
        # Since then the controller has claimed and registered anew.
        then = json.loads(cli(root, cluster, "state", "--at", str(state["end_offset"]), "--json"))
        assert (then["budgets"], then["digest"]) == (budgets, state["digest"])
        yield "snapshot and restart keep it, and the digest holds"
    digests = {
        engine: json.loads(
            run(root, "replay", "digest", "--export", str(cluster / "export"), "--engine", engine, "--json")
        )
        for engine in ("duckdb", "fold")
    }
    assert digests["duckdb"]["digest"] == digests["fold"]["digest"], digests
    yield "the export's digest by DuckDB's SQL and by apply is the same, with the subject's lines in it"
