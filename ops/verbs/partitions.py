"""Edge: `partitions list|elect|imbalance|reassign|rebalance|reassignments|explain`.

Tests: tests/cluster/test_http_surface.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from metadata_log.errors import NotAuthorized, UnknownTopicOrPartition
from metadata_log.wire.shapes import INT32_MAX
from ops.admin.cluster import Cluster
from ops.admin.items import ELECT
from ops.command_line import render
from ops.command_line.changes import (
    REFUSED,
    Change,
    carry_out,
    change_of_items,
    result_columns,
    show_foreseen,
)
from ops.command_line.guard import ask_first, guarded
from ops.command_line.options import (
    Network,
    Noun,
    R,
    argument,
    either,
    flag,
    network,
    option,
    reading,
    watchable,
)
from ops.command_line.partition_summary import SHOWN_MAX, summary
from ops.command_line.render import Column
from ops.command_line.talk import fail_usage, say
from ops.command_line.values import broker_id_list, existing_path, from_to, moment, seconds
from ops.verbs import placements, reassignments
from ops.when import AtOffset, When, time_text


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
    Column("leader", show=_leader, tone=lambda leader: "bad" if leader == -1 else ""),
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
ELECTED: Final = result_columns(*PARTITIONS[:3], done="elected")
NUMBER: Final = from_to(0, INT32_MAX)
NOUN: Final = Noun()


def _selections(run: R) -> R:
    """Declare a flag for each selection; they reach the verb as further keywords, at most one of them true."""
    for only, told in reversed(SELECTIONS.items()):
        run = flag(f"--{only}", help=told)(run)
    return either(*(only.replace("-", "_") for only in SELECTIONS))(run)


@NOUN.verb(
    "list",
    "List partitions, all or those that need somebody's attention; of many, by broker and topic first.",
    "partitions list --under-replicated",
    "partitions list --topic orders --not-preferred",
)
@option("--topic", metavar="NAME", help="of this topic alone")
@_selections
@watchable
@reading
def run_list(asked: Network, *, topic: str | None, **selected: bool) -> int:
    only = next((name.replace("_", "-") for name, is_given in selected.items() if is_given), None)
    client = asked.client()
    found = [*client.partitions(topic, only=only)]

    def table() -> str:
        rows = asked.table(
            PARTITIONS, found, empty="no partition" if only is None else f"no partition is {only}"
        )
        if len(found) <= SHOWN_MAX:
            return rows
        states = {broker["broker_id"]: broker["state"] for broker in client.brokers()}
        return f"{summary(found, states, asked.look)}\n\n{rows}"

    asked.show(found, table=table)
    return 0


@NOUN.verb(
    "elect",
    "Let the first replica of partitions lead again; with --unclean, let leaderless ones be led at any price.",
    "partitions elect --all --dry-run",
    "partitions elect --topic orders --partition 3",
    "partitions elect --topic orders --unclean --yes",
)
@option("--topic", metavar="NAME", help="its partitions that need an election")
@flag("--all", "of_all", help="those of all topics")
@either("topic", "of_all", required=True)
@option(
    "--partition",
    "numbers",
    multiple=True,
    read=NUMBER,
    metavar="N",
    help="with --topic: this one, whether it needs an election or not; may be repeated",
)
@flag("--unclean", help="messages that only the former ISR held are lost for good; it asks first")
@guarded
@change_of_items
def run_elect(
    asked: Change, *, topic: str | None, of_all: bool, numbers: Sequence[int], unclean: bool, yes: bool
) -> int:
    """Ask for elections; REFUSED if some partition did not get one that it needs."""
    if numbers and of_all:
        fail_usage("--partition is of one topic: name it with --topic")
    if numbers:
        wanted = [{"topic": topic, "partition": number} for number in numbers]
    else:
        needy = asked.client().partitions(topic, only="unavailable" if unclean else "not-preferred")
        wanted = [{"topic": one["topic"], "partition": one["partition"]} for one in needy]
    is_sure = yes or not unclean or not wanted or asked.dry_run
    if not ask_first("this elects leaders that are not in sync", lambda: _unclean(wanted), yes=is_sure):
        return REFUSED
    election = "unclean" if unclean else "preferred"
    return carry_out(asked, ELECT, wanted, ELECTED, empty="no partition needs it", election=election)


def _unclean(wanted: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    topics = Counter(one["topic"] for one in wanted)
    for topic, count in topics.most_common(SHOWN_MAX):
        yield f"{topic}: {count:,} partitions, whose messages that only the former ISR held are lost for good"
    if len(topics) > SHOWN_MAX:
        yield f"and {len(topics) - SHOWN_MAX:,} topics more"


@NOUN.verb(
    "imbalance",
    "Show which leaderships brokers lack that they are preferred for, or what the next balancing would write.",
    "partitions imbalance",
    "partitions imbalance --preview --percentage 10",
)
@flag("--preview", help="the records of a balancing now; nothing is written")
@option(
    "--percentage",
    read=from_to(0, 100),
    metavar="P",
    help="with --preview: for brokers that lack more than this share; default: as the controllers' settings say",
)
@watchable
@reading
def run_imbalance(asked: Network, *, preview: bool, percentage: int | None) -> int:
    client = asked.client()
    if percentage is not None and not preview:
        fail_usage("--percentage is of a preview: add --preview")
    answer = client.read("/v1/partitions/imbalance")
    if not preview:
        items = answer["items"]
        asked.show_items(items, IMBALANCE, empty="no broker is preferred")
        return 0
    from ops.admin.dry_run import what_balancing_writes

    share = answer["percentage"] if percentage is None else percentage
    return show_foreseen(asked, what_balancing_writes(client, share))


@NOUN.verb(
    "reassign",
    "Give partitions other replicas; those that go stay until the others are in sync. A plan is carried out a part at a "
    "time, and may be run again after an interruption.",
    "partitions reassign --topic orders --partition 3 --replicas 11,12,14",
    "partitions reassign --plan plan.json --dry-run",
    "partitions reassign --plan plan.json --at-most 100",
    "partitions reassign --topic orders --cancel",
)
@option("--topic", metavar="NAME")
@option(
    "--plan",
    read=existing_path,
    metavar="FILE",
    help='as kafka-reassign-partitions has it: {"partitions": [{"topic", "partition", "replicas"}]}; null cancels',
)
@either("topic", "plan", required=True)
@option("--partition", "numbers", multiple=True, read=NUMBER, metavar="N", help="may be repeated")
@option("--replicas", read=broker_id_list, metavar="ID,ID,...", help="the first one is preferred as leader")
@flag("--cancel", help="without --partition: all that are under way")
@either("replicas", "cancel")
@flag("--keep-replication-factor", help="refuse another number of replicas")
@option(
    "--at-most",
    read=NUMBER,
    metavar="N",
    help="with --plan: so many of it are under way at a time, and the next begin as these end; 0: no bound; default: "
    f"{reassignments.AT_MOST}",
)
@option(
    "--patience",
    read=seconds,
    metavar="DURATION",
    help="with --plan: give up once all under way are stuck for so long; default: 60s",
)
@change_of_items
def run_reassign(
    asked: Change,
    *,
    topic: str | None,
    plan: Path | None,
    numbers: Sequence[int],
    replicas: list[int] | None,
    cancel: bool,
    keep_replication_factor: bool,
    at_most: int | None,
    patience: float | None,
) -> int:
    more = {"allow_replication_factor_change": not keep_replication_factor}
    if plan is not None:
        return reassignments.run_plan(asked, plan, at_most=at_most, patience_s=patience, **more)
    if at_most is not None or patience is not None:
        fail_usage("--at-most and --patience are of a plan: --plan FILE")
    if not (numbers or cancel) or (numbers and replicas is None and not cancel):
        fail_usage("--partition with --replicas or --cancel is needed")
    assert topic is not None, "the options name a topic or a plan"
    named = numbers or [one["partition"] for one in asked.client().reassignments(topic)]
    if not named:
        say(f"no reassignment of {topic} is under way")
    wanted = [{"topic": topic, "partition": number, "replicas": replicas} for number in named]
    return reassignments.carry_out_all(asked, wanted, **more)


@NOUN.verb(
    "rebalance",
    "Move replicas until brokers have as many of them and lead as many partitions, in as many racks as can be, with the "
    "least movement. It asks first, waits until all is moved, and goes on where it was if it is run again.",
    "partitions rebalance --dry-run",
    "partitions rebalance --at-most 50 --yes",
)
@reassignments.reassigning
@flag("--dry-run", help="show the plan, and write nothing")
@guarded
@network
def run_rebalance(
    asked: Network, *, at_most: int | None, patience: float | None, dry_run: bool, yes: bool
) -> int:
    return placements.rebalance(asked, at_most=at_most, patience_s=patience, dry_run=dry_run, yes=yes)


def _topic_partition(text: str) -> tuple[str, int]:
    # A history's key is read, too: topic:orders/3.
    topic, colon, number = text.removeprefix("topic:").replace("/", ":").rpartition(":")
    if not topic or not colon or not number.isascii() or not number.isdigit():
        raise ValueError(f"{text!r} is not TOPIC:N")
    return topic, int(number)


@NOUN.verb(
    "explain",
    "Show each change of a partition: why, by whose request, and who was looked at in an election.",
    "partitions explain orders:3",
    "partitions explain orders:3 --until -1h -o json",
)
@argument("partition", "TOPIC:N", read=_topic_partition)
@option("--until", read=moment, metavar="WHEN", help="an end offset or a time; default: now")
@reading
def run_explain(asked: Network, *, partition: tuple[str, int], until: When | None) -> int:
    topic, number = partition
    found = [
        change
        for change in _changes(asked.client(), topic, number)
        if until is None
        or (
            change["offset"] < until.offset
            if isinstance(until, AtOffset)
            else change["time_ms"] <= until.unix_ms
        )
    ]
    if not found:
        raise UnknownTopicOrPartition(f"the log tells nothing of partition {topic}:{number}")
    asked.show(found, table=lambda: "\n\n".join(map(_explained, found)))
    return 0


@NOUN.verb(
    "reassignments",
    "List the reassignments under way; with --history, all that the log tells of, and how each ended.",
    "partitions reassignments",
    "partitions reassignments --history --since -1d",
    "partitions reassignments --history --topic orders -o jsonl",
)
@flag("--history", help="from the log; it is read from a follower")
@option("--topic", metavar="NAME", help="of topics of this name alone, deleted ones too")
@option(
    "--since",
    read=moment,
    metavar="WHEN",
    help="with --history: those that began at this offset or time, or later",
)
@option(
    "--limit",
    read=from_to(1, INT32_MAX),
    default=reassignments.HISTORY_LISTED,
    metavar="N",
    help=f"with --history: the first N; how to go on is said then; default: {reassignments.HISTORY_LISTED}",
)
@watchable
@reading
def run_reassignments(
    asked: Network, *, history: bool, topic: str | None, since: When | None, limit: int
) -> int:
    if history:
        return reassignments.show_history(asked, topic=topic, since=since, limit=limit)
    if since is not None:
        fail_usage("--since is of the history: add --history")
    items = asked.client().reassignments(topic)
    columns = reassignments.UNDER_WAY
    asked.show_items(items, columns, empty="no reassignment is under way")
    return 0


def _changes(client: Cluster, topic: str, number: int) -> list[dict[str, Any]]:
    """Return the changes of a partition, as far as this client may know them."""
    from ops.admin.explain import explain_partition
    from ops.admin.explain_lines import partition_changes
    from ops.admin.live_state import history
    from ops.admin.log_feed import feed_lines

    try:
        return list(explain_partition(history(client).steps, topic, number))
    except NotAuthorized:
        say("a reader sees no candidates and no epochs: they need the right to fetch the log")
        lines = feed_lines(client, topics=(topic,), first=None, until=None, follow=False)
        return list(partition_changes(lines, topic, number))


def _explained(change: dict[str, Any]) -> str:
    by = f", by {change['actor']}" if change["actor"] else ""
    lines = [f"{time_text(change['time_ms'])} offset {change['offset']}: {change['why']}{by}"]
    lines += [
        f"    {name} {render.plain(was)} -> {render.plain(now)}"
        for name, (was, now) in change["changed"].items()
    ]
    lines += [f"        {each['broker']}: {each['verdict']}" for each in change["candidates"]]
    if change["rule"] is not None:
        lines.append(f"    rule {change['rule']}")
    return "\n".join([*lines, *map(stepped_back, change["steps_back"])])


def stepped_back(step: Mapping[str, Any]) -> str:
    """Return the line of one step back from a change."""
    if step["why"] is None:
        return f"    because of offset {step['offset']}, which lies before what was read"
    by = f", by {step['actor']}" if step["actor"] else ""
    return f"    because of offset {step['offset']}, {time_text(step['time_ms'])}: {step['why']}{by}"
