"""Edge: `plan` and `apply`: topics, settings, ACLs and quotas that a file declares.
Tests: tests/unit/ops/verbs/test_declared.py.
"""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ops.admin.items import (
    ALTER_CONFIGS,
    ALTER_QUOTAS,
    CREATE_ACLS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    ItemRequest,
    send_items,
)
from ops.command_line.changes import REFUSED
from ops.command_line.guard import ask_first, guarded
from ops.command_line.options import Network, R, Verb, argument, flag, network, reading
from ops.command_line.render import Column
from ops.command_line.talk import fail_usage, say
from ops.command_line.values import existing_file, text_of
from ops.verbs.acls import say_doubts

if TYPE_CHECKING:
    from ops.admin.cluster import Cluster
    from ops.admin.declared import Declared, Drift

DRIFTED: Final = 10
"""The exit code where the cluster differs from the file."""
DIFFERENCES: Final = (
    Column("resource"),
    Column("what"),
    Column("declared"),
    Column("now", show=lambda now: "-" if now is None else str(now)),
)
RESULTS: Final = (Column("resource"), Column("error", "WHY"), Column("message"))


def _deleting(run: R) -> R:
    told = "ACLs and quotas that are not declared go, where the file has such a part; topics and settings never do"
    return flag("--delete", "deletes", help=told)(run)


@argument("file", "FILE", read=existing_file)
@_deleting
@reading
def run_plan(asked: Network, *, file: Path, deletes: bool) -> int:
    """Show how a cluster differs from a file of TOML or JSON; exit code 10 if it does."""
    declared = _declared(file)
    return _show(asked, _drift(asked.client(), declared, deletes=deletes))


@argument("file", "FILE", read=existing_file)
@_deleting
@flag("--dry-run", help="as `plan`: show what differs, and write nothing")
@guarded
@network
def run_apply(asked: Network, *, file: Path, deletes: bool, dry_run: bool, yes: bool) -> int:
    """Make a cluster as a file declares it; what the file does not name is left alone."""
    declared = _declared(file)
    client = asked.client()
    drift = _drift(client, declared, deletes=deletes)
    if dry_run:
        return _show(asked, drift)
    say_doubts(drift.access.creations)
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
        (CREATE_ACLS, drift.access.creations),
        (DELETE_ACLS, drift.access.ends),
        (ALTER_QUOTAS, drift.access.quotas),
    ):
        failed += _sent(client, request, items)
    left = _drift(client, declared, deletes=deletes)
    value = {"applied": len(drift.differences) - len(left.differences), "left": _rows(left), "failed": failed}

    def table() -> str:
        head = f"{value['applied']} differences removed, {len(left.differences)} left"
        return f"{head}\n\n{asked.table(RESULTS, failed, empty='')}" if failed else head

    asked.show(value, table=table)
    return REFUSED if failed else 0


PLAN: Final = Verb(run_plan, examples=("plan cluster.toml", "plan cluster.json -o json"))
APPLY: Final = Verb(run_apply, examples=("apply cluster.toml --dry-run", "apply cluster.toml --delete --yes"))


def _declared(file: Path) -> "Declared":
    from ops.admin.declared import read_declared

    try:
        text = text_of(file)
        return read_declared(tomllib.loads(text) if file.suffix == ".toml" else json.loads(text))
    except ValueError as error:
        fail_usage(f"{file} cannot be read: {error}")


def _drift(client: "Cluster", declared: "Declared", *, deletes: bool) -> "Drift":
    from ops.admin.declared import drift
    from ops.admin.live_state import live_image

    return drift(declared, live_image(client), deletes=deletes)


def _show(asked: Network, drift: "Drift") -> int:
    say_doubts(drift.access.creations)
    if (count := len(drift.access.undeclared)) > 0:
        first = drift.access.undeclared[0]
        say(
            f"{count:,} ACLs and quotas are not declared ({first.resource}: {first.what}): --delete removes them"
        )
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
            yield {"resource": _resource(item), "error": result["error"], "message": result["message"]}


def _resource(item: dict[str, Any]) -> str:
    """Return what an item of a request is about."""
    if "principal" in item:
        return f"acls of {item['resource_type'].lower()} {item['resource_name']}: {item['principal']}"
    if entity := [
        f"{word}={item[word] or '<default>'}" for word in ("user", "client_id", "ip") if word in item
    ]:
        return f"quotas of {', '.join(entity)}"
    name = item.get("name") or item.get("topic")
    if name is not None:
        return f"topic {name}"
    return f"broker {item['broker']}" if "broker" in item else "cluster"
