"""Edge: `partitions list|elect|imbalance|reassign|reassignments|explain`."""

import argparse
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

from metadata_log.errors import UnknownTopicOrPartition
from metadata_log.limits import ELECTIONS_MAX
from metadata_log.wire.shapes import INT32_MAX
from ops import render
from ops.admin.client import ClusterClient
from ops.arguments import Noun, client_from, existing_path, from_to, moment, seconds
from ops.item_requests import ItemRequest, add_flags, carry_out, result_columns
from ops.render import Column
from ops.talk import fail_usage, show
from ops.verbs import reassignments
from ops.when import AtOffset, time_text


def _leader(leader: Any) -> str:
    return "none" if leader == -1 else str(leader)


SELECTIONS: Final = {
    "unavailable": "those without a leader",
    "under-replicated": "those whose ISR lacks a replica",
    "under-min-isr": "those that refuse writes with acks=all: their ISR is smaller than min.insync.replicas",
    "at-min-isr": "those that one loss more brings there",
    "not-preferred": "those whose first replica does not lead",
}
PARTITIONS: Final = (
    Column("topic"),
    Column("partition"),
    Column("leader", show=_leader),
    Column("preferred"),
    Column("replicas"),
    Column("isr"),
)
IMBALANCE: Final = (
    Column("broker_id", "BROKER"),
    Column("preferred"),
    Column("led_elsewhere", "LED ELSEWHERE"),
    Column("percent"),
    Column("exceeds", "GETS THEM BACK", lambda exceeds: "yes" if exceeds else "no"),
)
ELECTION: Final = ItemRequest(
    operation="ElectLeaders",
    method="POST",
    path="/v1/partitions/elect",
    items="partitions",
    items_max=ELECTIONS_MAX,
    columns=result_columns(*PARTITIONS[:3], done="elected"),
    empty="no partition needs it",
)


def add_parsers(noun: Noun) -> None:
    listing = noun.verb(
        "list",
        "List partitions, all or those that need somebody's attention.",
        run=run_list,
        parent=noun.flags.network,
        examples=("partitions list --under-replicated", "partitions list --topic orders --not-preferred"),
    )
    listing.add_argument("--topic", metavar="NAME", help="of this topic alone")
    which = listing.add_mutually_exclusive_group()
    for only, help_text in SELECTIONS.items():
        which.add_argument(f"--{only}", dest="only", action="store_const", const=only, help=help_text)
    elect = noun.verb(
        "elect",
        "Let the first replica of partitions lead again; with --unclean, let leaderless ones be led at any price.",
        run=run_elect,
        parent=noun.flags.network,
        examples=(
            "partitions elect --all --dry-run",
            "partitions elect --topic orders --partition 3",
            "partitions elect --topic orders --unclean",
        ),
    )
    what = elect.add_mutually_exclusive_group(required=True)
    what.add_argument("--topic", metavar="NAME", help="its partitions that need an election")
    what.add_argument("--all", action="store_true", help="those of all topics")
    elect.add_argument(
        "--partition",
        action="append",
        type=from_to(0, INT32_MAX),
        metavar="N",
        help="with --topic: this one, whether it needs an election or not; may be repeated",
    )
    elect.add_argument(
        "--unclean", action="store_true", help="messages that only the former ISR held are lost for good"
    )
    add_flags(elect)
    imbalance = noun.verb(
        "imbalance",
        "Show which leaderships brokers lack that they are preferred for, or what the next balancing would write.",
        run=run_imbalance,
        parent=noun.flags.network,
        examples=("partitions imbalance", "partitions imbalance --preview --percentage 10"),
    )
    imbalance.add_argument(
        "--preview", action="store_true", help="the records of a balancing now; nothing is written"
    )
    imbalance.add_argument(
        "--percentage",
        type=from_to(0, 100),
        metavar="P",
        help="with --preview: for brokers that lack more than this share; default: as the controllers' settings say",
    )
    _add_reassign(noun)


def _add_reassign(noun: Noun) -> None:
    reassign = noun.verb(
        "reassign",
        "Give partitions other replicas; those that go stay until the others are in sync. A plan is carried out a part at "
        "a time, and may be run again after an interruption.",
        run=reassignments.run_reassign,
        parent=noun.flags.network,
        examples=(
            "partitions reassign --topic orders --partition 3 --replicas 11,12,14",
            "partitions reassign --plan plan.json --dry-run",
            "partitions reassign --plan plan.json --at-most 100",
            "partitions reassign --topic orders --cancel",
        ),
    )
    what = reassign.add_mutually_exclusive_group(required=True)
    what.add_argument("--topic", metavar="NAME")
    what.add_argument(
        "--plan",
        type=existing_path,
        metavar="FILE",
        help='as kafka-reassign-partitions has it: {"partitions": [{"topic", "partition", "replicas"}]}; null cancels',
    )
    reassign.add_argument(
        "--partition", action="append", type=from_to(0, INT32_MAX), metavar="N", help="may be repeated"
    )
    how = reassign.add_mutually_exclusive_group()
    how.add_argument(
        "--replicas", type=_broker_ids, metavar="ID,ID,...", help="the first one is preferred as leader"
    )
    how.add_argument("--cancel", action="store_true", help="without --partition: all that are under way")
    reassign.add_argument(
        "--keep-replication-factor", action="store_true", help="refuse another number of replicas"
    )
    reassign.add_argument(
        "--at-most",
        type=from_to(0, INT32_MAX),
        metavar="N",
        help="with --plan: so many of it are under way at a time, and the next begin as these end; 0: no bound; default: "
        f"{reassignments.AT_MOST}",
    )
    reassign.add_argument(
        "--patience",
        type=seconds,
        metavar="DURATION",
        help="with --plan: give up once all under way are stuck for so long; default: 60s",
    )
    add_flags(reassign)
    explain = noun.verb(
        "explain",
        "Show each change of a partition: why, by whose request, and who was looked at in an election.",
        run=run_explain,
        parent=noun.flags.network,
        examples=("partitions explain orders:3", "partitions explain orders:3 --until -1h -o json"),
    )
    explain.add_argument("partition", type=_topic_partition, metavar="TOPIC:N")
    explain.add_argument("--until", type=moment, metavar="WHEN", help="an end offset or a time; default: now")
    listing = noun.verb(
        "reassignments",
        "List the reassignments under way; with --history, all that the log tells of, and how each ended.",
        run=reassignments.run_list,
        parent=noun.flags.network,
        examples=(
            "partitions reassignments",
            "partitions reassignments --history --since -1d",
            "partitions reassignments --history --topic orders -o jsonl",
        ),
    )
    listing.add_argument("--history", action="store_true", help="from the log; it is read from a follower")
    listing.add_argument("--topic", metavar="NAME", help="of topics of this name alone, deleted ones too")
    listing.add_argument(
        "--since",
        type=moment,
        metavar="WHEN",
        help="with --history: those that began at this offset or time, or later",
    )
    listing.add_argument(
        "--limit",
        type=from_to(1, INT32_MAX),
        default=reassignments.HISTORY_LISTED,
        metavar="N",
        help=f"with --history: the first N; how to go on is said then; default: {reassignments.HISTORY_LISTED}",
    )


def _topic_partition(text: str) -> tuple[str, int]:
    # A history's key is read, too: topic:orders/3.
    topic, colon, number = text.removeprefix("topic:").replace("/", ":").rpartition(":")
    if not topic or not colon or not number.isascii() or not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not TOPIC:N")
    return topic, int(number)


def _broker_ids(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of broker ids, such as 11,12,13")
    return [int(word) for word in words]


def run_list(args: argparse.Namespace) -> int:
    found = [*_partitions(client_from(args), args.topic, only=args.only)]
    show(args, found, table=lambda: render.table(PARTITIONS, found, empty="no such partition"))
    return 0


def run_elect(args: argparse.Namespace) -> int:
    """Ask for elections; REFUSED if some partition did not get one that it needs."""
    if args.partition is not None and args.topic is None:
        fail_usage("--partition is of one topic: name it with --topic")
    if args.partition is not None:
        wanted = [{"topic": args.topic, "partition": number} for number in args.partition]
    else:
        only = "unavailable" if args.unclean else "not-preferred"
        needy = _partitions(client_from(args), args.topic, only=only)
        wanted = [{"topic": one["topic"], "partition": one["partition"]} for one in needy]
    return carry_out(args, ELECTION, wanted, election="unclean" if args.unclean else "preferred")


def run_imbalance(args: argparse.Namespace) -> int:
    client = client_from(args)
    if args.percentage is not None and not args.preview:
        fail_usage("--percentage is of a preview: add --preview")
    answer = client.read("/v1/partitions/imbalance")
    if not args.preview:
        items = answer["items"]
        show(args, items, table=lambda: render.table(IMBALANCE, items, empty="no broker is preferred"))
        return 0
    from ops.dry_run import show_balancing

    return show_balancing(args, answer["percentage"] if args.percentage is None else args.percentage)


def run_explain(args: argparse.Namespace) -> int:
    from ops.admin.explain import explain_partition
    from ops.admin.live_state import history

    topic, number = args.partition
    until = args.until
    found = [
        change
        for change in explain_partition(history(client_from(args)).steps, topic, number)
        if until is None
        or (
            change["offset"] < until.offset
            if isinstance(until, AtOffset)
            else change["time_ms"] <= until.unix_ms
        )
    ]
    if not found:
        raise UnknownTopicOrPartition(f"the log tells nothing of partition {topic}:{number}")
    show(args, found, table=lambda: "\n\n".join(map(_explained, found)))
    return 0


def _explained(change: dict[str, Any]) -> str:
    by = f", by {change['actor']}" if change["actor"] else ""
    lines = [f"{time_text(change['time_ms'])} offset {change['offset']}: {change['why']}{by}"]
    lines += [
        f"    {name} {render.plain(was)} -> {render.plain(now)}"
        for name, (was, now) in change["changed"].items()
    ]
    lines += [f"        {each['broker']}: {each['verdict']}" for each in change["candidates"]]
    return "\n".join(lines)


def _partitions(client: ClusterClient, topic: str | None, *, only: str | None) -> Iterator[dict[str, Any]]:
    """Yield the partitions of a topic, or of all, that are as one of SELECTIONS says."""
    wanted = {"topic": topic, "only": only}
    while True:
        query = urlencode({key: value for key, value in wanted.items() if value is not None})
        page = client.read(f"/v1/partitions?{query}")
        for partition in page["items"]:
            yield {**partition, "preferred": partition["replicas"][0]}
        if page["next_after"] is None:
            return
        wanted["after"] = page["next_after"]
