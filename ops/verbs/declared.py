"""Edge: `plan` and `apply`: topics and settings that a file declares. Tests: tests/unit/ops/verbs/test_declared.py."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ops.admin.items import ALTER_CONFIGS, CREATE_PARTITIONS, CREATE_TOPICS, ItemRequest, send_items
from ops.changes import REFUSED
from ops.guard import ask_first, guarded
from ops.options import Network, Verb, argument, flag, network, reading
from ops.render import Column
from ops.talk import fail_usage
from ops.values import existing_file, text_of

if TYPE_CHECKING:
    from ops.admin.cluster import Cluster
    from ops.admin.declared import Drift

DRIFTED: Final = 10
"""The exit code where the cluster differs from the file."""
DIFFERENCES: Final = (
    Column("resource"),
    Column("what"),
    Column("declared"),
    Column("now", show=lambda now: "-" if now is None else str(now)),
)
RESULTS: Final = (Column("resource"), Column("error", "WHY"), Column("message"))


@argument("file", "FILE", read=existing_file)
@reading
def run_plan(asked: Network, *, file: Path) -> int:
    """Show how a cluster differs from a file of TOML or JSON; exit code 10 if it does."""
    return _show(asked, _drift(asked.client(), file))


@argument("file", "FILE", read=existing_file)
@flag("--dry-run", help="as `plan`: show what differs, and write nothing")
@guarded
@network
def run_apply(asked: Network, *, file: Path, dry_run: bool, yes: bool) -> int:
    """Make a cluster as a file declares it; what the file does not name is left alone."""
    client = asked.client()
    drift = _drift(client, file)
    if dry_run:
        return _show(asked, drift)
    what = f"this makes the cluster as {file} declares"
    if drift.differences and not ask_first(what, lambda: _lines(drift), yes=yes):
        return REFUSED
    failed = [
        {"resource": f"{one.resource}: {one.what}", "error": "UNABLE", "message": _unable(one.what)}
        for one in drift.unable
    ]
    for request, items in (
        (CREATE_TOPICS, drift.creations),
        (CREATE_PARTITIONS, drift.growths),
        (ALTER_CONFIGS, drift.alterations),
    ):
        failed += _sent(client, request, items)
    left = _drift(client, file)
    value = {"applied": len(drift.differences) - len(left.differences), "left": _rows(left), "failed": failed}

    def table() -> str:
        head = f"{value['applied']} differences removed, {len(left.differences)} left"
        return f"{head}\n\n{asked.table(RESULTS, failed, empty='')}" if failed else head

    asked.show(value, table=table)
    return REFUSED if failed else 0


PLAN: Final = Verb(run_plan, examples=("plan cluster.toml", "plan cluster.json -o json"))
APPLY: Final = Verb(run_apply, examples=("apply cluster.toml --dry-run", "apply cluster.toml --yes"))


def _drift(client: "Cluster", file: Path) -> "Drift":
    from ops.admin.declared import drift, read_declared
    from ops.admin.live_state import live_image

    try:
        text = text_of(file)
        declared = read_declared(tomllib.loads(text) if file.suffix == ".toml" else json.loads(text))
    except ValueError as error:
        fail_usage(f"{file} declares nothing: {error}")
    return drift(declared, live_image(client))


def _show(asked: Network, drift: "Drift") -> int:
    asked.show_items(_rows(drift), DIFFERENCES, empty="all is as declared")
    return DRIFTED if drift.differences else 0


def _rows(drift: "Drift") -> list[dict[str, Any]]:
    return [one._asdict() for one in drift.differences]


def _lines(drift: "Drift") -> Iterator[str]:
    for one in drift.differences:
        yield f"{one.resource}: {one.what} {'is not there' if one.now is None else one.now}, declared {one.declared}"


def _unable(what: str) -> str:
    if what == "partitions":
        return "a topic cannot lose partitions"
    return "`partitions reassign --plan` changes it"


def _sent(client: "Cluster", request: ItemRequest, items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Send items, and yield those that were refused."""
    if not items:
        return
    for item, result in zip(items, send_items(client, request, items).results, strict=True):
        if result["error"] is not None:
            name = item.get("name") or item.get("topic")
            broker = f"broker {item['broker']}" if "broker" in item else "cluster"
            resource = broker if name is None else f"topic {name}"
            yield {"resource": resource, "error": result["error"], "message": result["message"]}
