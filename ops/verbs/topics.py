"""Edge: `topics create|list|describe|delete|undelete|add-partitions`."""

import argparse
import json
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from metadata_log.limits import CONFIG_VALUE_BYTES_MAX, REQUEST_ITEMS_MAX
from metadata_log.wire.commands import Placement
from metadata_log.wire.shapes import INT32_MAX
from ops import render
from ops.arguments import Noun, client_from, from_to, uuid_of
from ops.dry_run import show_what_if
from ops.item_requests import ItemRequest, add_flags, carry_out, result_columns
from ops.render import Column
from ops.talk import fail_usage, say, show
from ops.when import time_text

TOPICS = (
    Column("name"),
    Column("topic_id"),
    Column("partition_count", "PARTITIONS"),
    Column("replication_factor"),
)
DELETED = (
    Column("name"),
    Column("topic_id"),
    Column("partition_count", "PARTITIONS"),
    Column("deleted_at_ms", "DELETED AT", time_text),
    Column("gone_at_ms", "GONE AT", time_text),
)


def _request(operation: str, path: str, identity: str, *, done: str) -> ItemRequest:
    """Return where topics are sent; a result shows a topic's name and `identity`."""
    return ItemRequest(
        operation=operation,
        method="POST",
        path=path,
        items="topics",
        items_max=REQUEST_ITEMS_MAX,
        columns=result_columns(Column("name"), Column(identity), done=done),
    )


CREATION: Final = _request("CreateTopics", "/v1/topics", "topic_id", done="created")
DELETION: Final = _request("DeleteTopics", "/v1/topics/delete", "topic_id", done="deleted")
GROWTH: Final = _request("CreatePartitions", "/v1/topics/partitions", "partitions", done="grown")
RESTORATION: Final = _request("UndeleteTopics", "/v1/topics/undelete", "topic_id", done="restored")
PARTITIONS = (
    Column("partition"),
    Column("leader", show=lambda leader: "none" if leader == -1 else str(leader)),
    Column("leader_epoch", "EPOCH"),
    Column("replicas"),
    Column("isr"),
    Column("leader_recovery_state", "RECOVERY"),
)


def add_parsers(noun: Noun) -> None:
    create = noun.verb(
        "create",
        "Create topics, all of the same kind.",
        run=run_create,
        parent=noun.flags.network,
        examples=(
            "topics create orders --partitions 6 --replication-factor 3 --config retention.ms=86400000",
            "topics create a b c --partitions 1 --replication-factor 3 --all-or-nothing --dry-run",
            "topics create pinned --assignment '[[11,12],[12,13]]'",
        ),
    )
    create.add_argument("names", nargs="+", metavar="NAME")
    create.add_argument("--partitions", type=from_to(1, INT32_MAX), metavar="N")
    create.add_argument("--replication-factor", type=from_to(1, 32767), metavar="R")
    create.add_argument("--assignment", metavar="JSON", help="replicas of each partition: [[11,12],[12,13]]")
    create.add_argument("--config", action="append", default=[], metavar="K=V", help="may be repeated")
    create.add_argument("--validate-only", action="store_true", help="write nothing")
    add_flags(create)
    lists = noun.verb(
        "list",
        "List topics.",
        run=run_list,
        parent=noun.flags.network,
        examples=("topics list", "topics list --deleted"),
    )
    lists.add_argument(
        "--deleted", action="store_true", help="those that were deleted and can be restored, and until when"
    )
    describe = noun.verb(
        "describe",
        "Show a topic and its partitions.",
        run=run_describe,
        parent=noun.flags.network,
        examples=("topics describe orders",),
    )
    describe.add_argument("name", metavar="NAME")
    delete = noun.verb(
        "delete",
        "Delete topics. They can be restored for as long as undelete_window_ms in the controllers' settings says.",
        run=run_delete,
        parent=noun.flags.network,
        examples=(
            "topics delete orders",
            "topics delete orders --now",
            "topics delete a b --id AQEBAQEBAQEBAQEBAQEBAQ --all-or-nothing",
        ),
    )
    delete.add_argument("names", nargs="*", metavar="NAME")
    delete.add_argument(
        "--id", action="append", default=[], type=uuid_of("topic"), metavar="ID", help="may be repeated"
    )
    delete.add_argument(
        "--now", action="store_true", help="for ever; also one that was deleted and could be restored"
    )
    add_flags(delete)
    undelete = noun.verb(
        "undelete",
        "Restore deleted topics: each has its id, settings and partitions as before.",
        run=run_undelete,
        parent=noun.flags.network,
        examples=("topics undelete orders", "topics undelete AQEBAQEBAQEBAQEBAQEBAQ --dry-run"),
    )
    undelete.add_argument("topics", metavar="NAME|ID", nargs="+")
    add_flags(undelete)
    grow = noun.verb(
        "add-partitions",
        "Give topics more partitions.",
        run=run_add_partitions,
        parent=noun.flags.network,
        examples=("topics add-partitions orders --to 12", "topics add-partitions orders --to 12 --dry-run"),
    )
    grow.add_argument("names", nargs="+", metavar="NAME")
    grow.add_argument(
        "--to", type=from_to(1, INT32_MAX), required=True, metavar="N", help="the number it shall have"
    )
    grow.add_argument(
        "--assignment", metavar="JSON", help="replicas of each new partition: [[11,12],[12,13]]"
    )
    add_flags(grow)
    for verb in (create, grow):
        verb.add_argument(
            "--placement",
            choices=tuple(Placement),
            default=Placement.STRIPED,
            help="striped: as Kafka does, over racks and by chance (default); plain: i mod n, i + 1 mod n, ...",
        )


def run_add_partitions(args: argparse.Namespace) -> int:
    assignment = None if args.assignment is None else _assignment(args)
    growth = {"partitions": args.to, "assignment": assignment, "placement": args.placement}
    return carry_out(args, GROWTH, [{"name": name, **growth} for name in args.names])


def run_create(args: argparse.Namespace) -> int:
    """Create topics by counts, or by the replicas of each partition; one by itself is shown in full."""
    assignment = None if args.assignment is None else _assignment(args)
    if assignment is None and (args.partitions is None or args.replication_factor is None):
        fail_usage("--partitions and --replication-factor, or --assignment, are needed")
    if assignment is not None and (args.partitions is not None or args.replication_factor is not None):
        fail_usage("--assignment says how many partitions and replicas; leave the two counts out")
    kind = {
        "partitions": -1 if args.partitions is None else args.partitions,
        "replication_factor": -1 if args.replication_factor is None else args.replication_factor,
        "assignment": assignment,
        "configs": key_values(args.config),
        "placement": args.placement,
    }
    if not args.dry_run:
        online = [one for one in client_from(args).read("/v1/brokers")["items"] if one["state"] == "ONLINE"]
        count = args.partitions if assignment is None else len(assignment)
        if (hint := few_partitions(count, brokers=len(online))) is not None:
            say(hint)
    if len(args.names) > 1:
        topics = [{"name": name, **kind} for name in args.names]
        return carry_out(args, CREATION, topics, validate_only=args.validate_only)
    body = {"name": args.names[0], **kind}
    if args.dry_run:
        return show_what_if(args, CREATION.operation, body)
    client = client_from(args)
    topic = client.write("POST", "/v1/topics", body | {"validate_only": args.validate_only})
    show(args, topic, table=lambda: topic_table(topic))
    return 0


def few_partitions(partitions: int, *, brokers: int) -> str | None:
    """Return what an operator should know of a topic with fewer partitions than there are brokers online; None: nothing."""
    if partitions >= brokers:
        return None
    return (
        f"{partitions} partitions on {brokers} brokers: {brokers - partitions} brokers will lead none of them"
    )


def run_list(args: argparse.Namespace) -> int:
    if args.deleted:
        deleted = _deleted(args)["items"]
        show(args, deleted, table=lambda: render.table(DELETED, deleted, empty="no deleted topics"))
        return 0
    items = client_from(args).read("/v1/topics")["items"]
    show(args, items, table=lambda: render.table(TOPICS, items, empty="no topics"))
    return 0


def run_describe(args: argparse.Namespace) -> int:
    topic = client_from(args).read(f"/v1/topics/{quoted(args.name)}")
    show(args, topic, table=lambda: topic_table(topic))
    return 0


def run_delete(args: argparse.Namespace) -> int:
    topics = [{"name": name} for name in args.names] + [{"topic_id": topic_id} for topic_id in args.id]
    if not topics:
        fail_usage("name a topic, or give its id with --id")
    if len(topics) > 1 or args.id:
        return carry_out(args, DELETION, topics, now=args.now)
    if args.dry_run:
        return show_what_if(args, DELETION.operation, {**topics[0], "now": args.now})
    query = "?now=true" if args.now else ""
    deleted = client_from(args).write("DELETE", f"/v1/topics/{quoted(args.names[0])}{query}")
    show(args, deleted, table=lambda: f"deleted {render.plain(deleted['name'])} ({deleted['topic_id']})")
    return 0


def run_undelete(args: argparse.Namespace) -> int:
    """Restore topics; what is the id of a deleted topic is taken for one, and anything else for a name."""
    ids = {topic["topic_id"] for topic in _deleted(args)["items"]}
    return carry_out(
        args, RESTORATION, [{"topic_id" if each in ids else "name": each} for each in args.topics]
    )


def _deleted(args: argparse.Namespace) -> Any:
    return client_from(args).read("/v1/topics?deleted=true")


def topic_table(topic: Mapping[str, Any]) -> str:
    head = render.fields((key, render.plain(topic[key])) for key in ("name", "topic_id", "configs"))
    return f"{head}\n\n{render.table(PARTITIONS, topic['partitions'], empty='no partitions')}"


def quoted(name: str) -> str:
    """Return a name as one segment of a path; dots alone would be taken for a folder."""
    segment = urllib.parse.quote(name, safe="")
    return segment.replace(".", "%2E") if set(segment) == {"."} else segment


def key_values(pairs: Sequence[str]) -> dict[str, str]:
    """Return K=V pairs as a map; the value is what follows the first `=`."""
    found: dict[str, str | None] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            fail_usage(f"{pair!r} is not K=V")
        if key in found:
            fail_usage(f"{key} is given twice")
        found[key] = _value_of(key, value)
    if list(found.values()).count(None) > 1:
        fail_usage("the standard input has one value: K=- stands for one setting")
    return {key: _from_stdin(key) if value is None else value for key, value in found.items()}


def _value_of(key: str, given: str) -> str | None:
    """Return a value as given, or a file's content for `@FILE`; None for `-`, which stands for the standard input.

    A value on the command line is shown by `ps` and kept by the shell: secrets come from elsewhere. `@@` stands for one `@`.
    """
    if given == "-":
        return None
    if not given.startswith("@"):
        return given
    if given.startswith("@@"):
        return given[1:]
    try:
        return _without_last_newline(Path(given[1:]).read_bytes()[: CONFIG_VALUE_BYTES_MAX + 3])
    except (OSError, ValueError) as error:
        fail_usage(f"{key}=@FILE: {getattr(error, 'strerror', None) or 'the file is not UTF-8'}: {given[1:]}")


def _from_stdin(key: str) -> str:
    try:
        return _without_last_newline(sys.stdin.buffer.read(CONFIG_VALUE_BYTES_MAX + 3))
    except ValueError:
        fail_usage(f"{key}=-: what was read is not UTF-8")


def _without_last_newline(content: bytes) -> str:
    return content.decode().removesuffix("\n").removesuffix("\r")


def _assignment(args: argparse.Namespace) -> list[list[int]]:
    try:
        assignment = json.loads(args.assignment)
    except ValueError:
        assignment = None
    if not isinstance(assignment, list) or not assignment or not all(map(_is_replicas, assignment)):
        wanted = "wanted the broker ids of each partition: [[11,12],[12,13]]"
        fail_usage(f"--assignment {args.assignment!r}: {wanted}")
    return assignment


def _is_replicas(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) and item is not True for item in value)
