"""Edge: `topics create|list|describe|delete|undelete|add-partitions|alter`."""

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from metadata_log.errors import MetadataError, TopicAlreadyExists
from metadata_log.limits import CONFIG_VALUE_BYTES_MAX
from metadata_log.wire.shapes import INT32_MAX
from ops.admin.cluster import Cluster, quoted
from ops.admin.items import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    UNDELETE_TOPICS,
    ItemRequest,
    Sent,
    send_items,
)
from ops.admin.log_feed import lines_between
from ops.command_line import render
from ops.command_line.changes import (
    AS_IT_WAS,
    REFUSED,
    Change,
    carry_out,
    change,
    change_of_items,
    result_columns,
    show_foreseen,
)
from ops.command_line.guard import ask_first, guarded
from ops.command_line.options import Network, Noun, argument, flag, option, reading, watchable
from ops.command_line.partition_summary import BY_BROKER, SHOWN_MAX, by_broker, short
from ops.command_line.render import PLAIN, Column, Look
from ops.command_line.talk import fail_usage, say
from ops.command_line.values import from_to, uuid_of
from ops.when import duration_text, time_text

PLACEMENTS: Final = ("striped", "plain")
TOPICS = (
    Column("name"),
    Column("topic_id", is_wide=True),
    Column("partition_count", "PARTITIONS"),
    Column("replication_factor"),
)
DELETED = (
    Column("name"),
    Column("topic_id", is_wide=True),
    Column("partition_count", "PARTITIONS"),
    Column("deleted_at_ms", "DELETED AT", time_text),
    Column("gone_at_ms", "GONE AT", time_text),
)


CREATED: Final = result_columns(Column("name"), Column("topic_id", is_wide=True), done="created")
DELETED_NOW: Final = result_columns(Column("name"), Column("topic_id", is_wide=True), done="deleted")
GROWN: Final = result_columns(
    Column("name"), Column("partitions", show=lambda count: "-" if count == -1 else str(count)), done="grown"
)
ALTERED: Final = result_columns(Column("name"), Column("what"), done="altered")
RESTORED: Final = result_columns(Column("name"), Column("topic_id", is_wide=True), done="restored")
LEADER: Final = Column(
    "leader",
    show=lambda leader: "none" if leader == -1 else str(leader),
    tone=lambda leader: "bad" if leader == -1 else "",
)
PARTITIONS = (
    Column("partition"),
    LEADER,
    Column("leader_epoch", "EPOCH"),
    Column("replicas"),
    Column("isr"),
    Column("leader_recovery_state", "RECOVERY"),
)


NOUN: Final = Noun()
_placement: Final = option(
    "--placement",
    choices=PLACEMENTS,
    default=PLACEMENTS[0],
    help="striped: as Kafka does, over racks and by chance (default); plain: i mod n, i + 1 mod n, ...",
)


def _assignment(text: str) -> list[list[int]]:
    try:
        assignment = json.loads(text)
    except ValueError:
        assignment = None
    if not isinstance(assignment, list) or not assignment or not all(map(_is_replicas, assignment)):
        raise ValueError(f"{text!r}: wanted the broker ids of each partition: [[11,12],[12,13]]")
    return assignment


def _is_replicas(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) and item is not True for item in value)


@NOUN.verb(
    "create",
    "Create topics, all of the same kind.",
    "topics create orders --partitions 6 --replication-factor 3 --config retention.ms=86400000",
    "topics create a b c --partitions 1 --replication-factor 3 --all-or-nothing --dry-run",
    "topics create orders --if-not-exists",
    "topics create pinned --assignment '[[11,12],[12,13]]'",
)
@argument("names", "NAME...", nargs=-1, required=True)
@option(
    "--partitions", read=from_to(1, INT32_MAX), metavar="N", help="default: num_partitions of the controllers"
)
@option(
    "--replication-factor",
    read=from_to(1, 32767),
    metavar="R",
    help="default: default_replication_factor of the controllers",
)
@option(
    "--assignment", read=_assignment, metavar="JSON", help="replicas of each partition: [[11,12],[12,13]]"
)
@option("--config", multiple=True, metavar="K=V", help="may be repeated")
@flag("--validate-only", help="write nothing")
@flag("--if-not-exists", help="a topic that exists is left as it is, whatever its kind, and is no error")
@_placement
@change_of_items
def run_create(
    asked: Change,
    *,
    names: Sequence[str],
    partitions: int | None,
    replication_factor: int | None,
    assignment: list[list[int]] | None,
    config: Sequence[str],
    validate_only: bool,
    if_not_exists: bool,
    placement: str,
) -> int:
    """Create topics by counts, or by the replicas of each partition; one by itself is shown in full."""
    if assignment is not None and (partitions is not None or replication_factor is not None):
        fail_usage("--assignment says how many partitions and replicas; leave the two counts out")
    kind = {
        "partitions": -1 if partitions is None else partitions,
        "replication_factor": -1 if replication_factor is None else replication_factor,
        "assignment": assignment,
        "configs": key_values(config),
        "placement": placement,
    }
    if len(names) > 1:
        topics = [{"name": name, **kind} for name in names]
        harmless = (TopicAlreadyExists.error,) if if_not_exists else ()
        code = carry_out(
            asked, CREATE_TOPICS, topics, CREATED, validate_only=validate_only, harmless=harmless
        )
        count = partitions or len(assignment or ())
        if code == 0 and count and not asked.dry_run:
            _advise(asked.client(), count)
        return code
    body = {"name": names[0], **kind}
    if asked.dry_run:
        return asked.foreseen(CREATE_TOPICS.operation, body)
    client, is_new = asked.client(), True
    try:
        topic = client.write("POST", CREATE_TOPICS.path, body | {"validate_only": validate_only})
    except TopicAlreadyExists:
        if not if_not_exists:
            raise
        say(f"{names[0]} exists already, and was left as it is")
        topic, is_new = client.topic(names[0]), False
    asked.show(topic, table=lambda: topic_summary(topic, asked.look))
    if is_new:
        _advise(client, len(topic["partitions"]))
    return 0


def _advise(client: Cluster, partitions: int) -> None:
    """Say what follows from few partitions; where the brokers are not shown to this client, nothing."""
    with suppress(MetadataError):  # the topics are there
        online = [one for one in client.brokers() if one["state"] == "ONLINE"]
        if (advice := few_partitions(partitions, brokers=len(online))) is not None:
            say(advice)


def few_partitions(partitions: int, *, brokers: int) -> str | None:
    """Return what an operator should know of a topic with fewer partitions than there are brokers online; None: nothing."""
    if partitions >= brokers:
        return None
    idle = brokers - partitions
    return (
        f"{partitions} partition{'s' if partitions > 1 else ''} on {brokers} brokers: "
        f"{idle} broker{'s' if idle > 1 else ''} will lead none of them"
    )


@NOUN.verb("list", "List topics.", "topics list", "topics list --deleted")
@flag("--deleted", help="those that were deleted and can be restored, and until when")
@watchable
@reading
def run_list(asked: Network, *, deleted: bool) -> int:
    client = asked.client()
    if deleted:
        gone = client.deleted_topics()
        asked.show_items(gone, DELETED, empty="no deleted topics")
        return 0
    items = client.topics()
    asked.show_items(items, TOPICS, empty="no topics")
    return 0


@NOUN.verb("describe", "Show a topic and its partitions.", "topics describe orders")
@argument("name", "NAME")
@watchable
@reading
def run_describe(asked: Network, *, name: str) -> int:
    topic = asked.client().topic(name)
    asked.show(topic, table=lambda: topic_table(topic, asked.look))
    return 0


@NOUN.verb(
    "delete",
    "Delete topics. They can be restored for as long as undelete_window_ms in the controllers' settings says. Asks first.",
    "topics delete orders",
    "topics delete orders --now --yes",
    "topics delete a b --id AQEBAQEBAQEBAQEBAQEBAQ --all-or-nothing --yes",
)
@argument("names", "NAME...", nargs=-1)
@option("--id", "ids", multiple=True, read=uuid_of("topic"), metavar="ID", help="may be repeated")
@flag("--now", help="for ever; also one that was deleted and could be restored")
@guarded
@change_of_items
def run_delete(asked: Change, *, names: Sequence[str], ids: Sequence[str], now: bool, yes: bool) -> int:
    topics = [{"name": name} for name in names] + [{"topic_id": topic_id} for topic_id in ids]
    if not topics:
        fail_usage("name a topic, or give its id with --id")
    what = f"this deletes {', '.join(map(render.plain, (*names, *ids)))}"
    effects = partial(_deletion, asked, {*names, *ids}, now=now)
    if not ask_first(what, effects, yes=yes or asked.dry_run):
        return REFUSED
    if len(topics) > 1 or ids:
        return carry_out(asked, DELETE_TOPICS, topics, DELETED_NOW, now=now)
    if asked.dry_run:
        return asked.foreseen(DELETE_TOPICS.operation, {**topics[0], "now": now})
    query = "?now=true" if now else ""
    deleted = asked.client().write("DELETE", f"/v1/topics/{quoted(names[0])}{query}")
    asked.show(deleted, table=lambda: f"deleted {render.plain(deleted['name'])}")
    return 0


def _deletion(asked: Change, named: Collection[str], *, now: bool) -> Iterator[str]:
    """Yield what a deletion comes to: how much is deleted, and for how long it can be restored."""
    client = asked.client()
    window_ms = client.read("/v1/topics?deleted=true")["undelete_window_ms"]
    unknown = set(named)
    for topic in client.topics():
        if not unknown.isdisjoint((topic["name"], topic["topic_id"])):
            unknown -= {topic["name"], topic["topic_id"]}
            yield f"{topic['name']}: {topic['partition_count']:,} partitions of {topic['replication_factor']} replicas"
    for each in sorted(unknown):
        yield f"{each}: {'is deleted already, or never was' if now else 'there is no such topic'}"
    if now or not window_ms:
        yield f"for ever: {'--now says so' if now else 'undelete_window_ms is 0'}"
    else:
        yield f"restored within {duration_text(window_ms)} by: metaquorum topics undelete NAME"


@NOUN.verb(
    "undelete",
    "Restore deleted topics: each has its id, settings and partitions as before.",
    "topics undelete orders",
    "topics undelete AQEBAQEBAQEBAQEBAQEBAQ --dry-run",
)
@argument("topics", "NAME|ID...", nargs=-1, required=True)
@change_of_items
def run_undelete(asked: Change, *, topics: Sequence[str]) -> int:
    """Restore topics; what is the id of a deleted topic is taken for one, and anything else for a name."""
    ids = {topic["topic_id"] for topic in asked.client().deleted_topics()}
    named = [{"topic_id" if each in ids else "name": each} for each in topics]
    return carry_out(asked, UNDELETE_TOPICS, named, RESTORED)


@NOUN.verb(
    "add-partitions",
    "Give topics more partitions.",
    "topics add-partitions orders --to 12",
    "topics add-partitions orders --to 12 --dry-run",
)
@argument("names", "NAME...", nargs=-1, required=True)
@option(
    "--to", "count", read=from_to(1, INT32_MAX), required=True, metavar="N", help="the number it shall have"
)
@option(
    "--assignment", read=_assignment, metavar="JSON", help="replicas of each new partition: [[11,12],[12,13]]"
)
@_placement
@change_of_items
def run_add_partitions(
    asked: Change,
    *,
    names: Sequence[str],
    count: int,
    assignment: list[list[int]] | None,
    placement: str,
) -> int:
    growth = {"partitions": count, "assignment": assignment, "placement": placement}
    return carry_out(asked, CREATE_PARTITIONS, [{"name": name, **growth} for name in names], GROWN)


@NOUN.verb(
    "alter",
    "Change topics: set and unset settings, and give them more partitions.",
    "topics alter orders --config retention.ms=86400000 --unset cleanup.policy --dry-run",
    "topics alter orders payments --partitions 12",
)
@argument("names", "NAME...", nargs=-1, required=True)
@option("--config", multiple=True, metavar="K=V", help="may be repeated; K=@FILE, K=- as of `configs set`")
@option("--unset", multiple=True, metavar="K", help="the default counts again; may be repeated")
@option("--partitions", read=from_to(1, INT32_MAX), metavar="N", help="the number it shall have")
@change
def run_alter(
    asked: Change,
    *,
    names: Sequence[str],
    config: Sequence[str],
    unset: Sequence[str],
    partitions: int | None,
) -> int:
    """Change settings first, then numbers of partitions; each is a request of its own, with a result for each topic."""
    requests: list[tuple[ItemRequest, str, list[dict[str, Any]]]] = []
    if config or unset:
        settings = {"set": key_values(config), "unset": list(dict.fromkeys(unset))}
        requests.append((ALTER_CONFIGS, "settings", [{"topic": name, **settings} for name in names]))
    if partitions is not None:
        growth = {"partitions": partitions, "assignment": None, "placement": PLACEMENTS[0]}
        requests.append((CREATE_PARTITIONS, "partitions", [{"name": name, **growth} for name in names]))
    if not requests:
        fail_usage("--config, --unset or --partitions is needed")
    client = asked.client()
    if asked.dry_run:
        from ops.admin.dry_run import DryRun

        dry = DryRun(client)
        for request, _, items in requests:
            dry.decide_items(request, items)
        return show_foreseen(asked, dry.foreseen())
    results: list[dict[str, Any]] = []
    idle: list[str] = []
    for request, what, items in requests:
        sent = send_items(client, request, items)
        changed = _changed(client, request, sent, names)
        for name, result in zip(names, sent.results, strict=True):
            told = {"name": name, "what": what, "changed": changed.get(name, False)}
            results.append(told | {"error": result["error"], "message": result["message"]})
        if not sent.is_written and all(one["error"] is None for one in sent.results):
            idle.append(what)
    if idle:
        say(f"{' and '.join(idle)}: nothing was written, all was as asked already")
    shown = [
        one | {"error": AS_IT_WAS} if (one["changed"], one["error"]) == (False, None) else one
        for one in results
    ]
    asked.show(results, table=lambda: asked.table(ALTERED, shown, empty=""))
    return REFUSED if any(one["error"] for one in results) else 0


def _changed(
    client: Cluster, request: ItemRequest, sent: Sent, names: Sequence[str]
) -> dict[str, bool | None]:
    """Return which topics were changed, of those that were not refused; None is not known."""
    accepted = [name for name, one in zip(names, sent.results, strict=True) if one["error"] is None]
    if request is not ALTER_CONFIGS or len(accepted) < 2 or not sent.is_written:
        return dict.fromkeys(accepted, sent.is_written)
    try:
        lines = [line for base, end in sent.spans for line in lines_between(client, base, end)]
    except MetadataError:  # this client may not read, or no controller can show it now
        return dict.fromkeys(accepted)
    written = {line["record"].get("resource_name") for line in lines}
    return {name: name in written for name in accepted}


def topic_table(topic: Mapping[str, Any], look: Look = PLAIN) -> str:
    """Return a topic as a summary and a row for each partition."""
    rows = render.table(PARTITIONS, topic["partitions"], empty="no partitions", look=look)
    return f"{topic_summary(topic, look)}\n\n{rows}"


def topic_summary(topic: Mapping[str, Any], look: Look = PLAIN) -> str:
    """Return a topic in a few lines, and what each broker has of it where it has many partitions."""
    partitions = topic["partitions"]
    lacking = sum(len(one["isr"]) < len(one["replicas"]) for one in partitions)
    leaderless = sum(one["leader"] == -1 for one in partitions)
    numbers = sorted({len(one["replicas"]) for one in partitions})
    lines = [
        ("name", render.plain(topic["name"])),
        *([("topic_id", topic["topic_id"])] if look.is_wide else []),
        ("configs", render.plain(topic["configs"])),
        ("partitions", f"{len(partitions):,} of {' or '.join(map(str, numbers)) or 'no'} replicas"),
        *([("leaderless", look.painted(f"{leaderless:,}", "bad"))] if leaderless else []),
        *([("under-replicated", look.painted(f"{lacking:,}", "warning"))] if lacking else []),
    ]
    if len(partitions) <= SHOWN_MAX:
        return render.fields(lines)
    return f"{render.fields(lines)}\n\n{short(BY_BROKER, by_broker(partitions), look)}"


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
    """Return a value as given, or a file's content for `@FILE`; None for `-`, which means the standard input.

    A value on the command line is shown by `ps` and kept by the shell: secrets come from elsewhere. `@@` means one `@`.
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
