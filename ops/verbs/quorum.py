"""Edge: `quorum status|health|transfer`, and the voter verbs of `voters.py`; the first two need no leader."""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from metadata_log import limits
from metadata_log.errors import InvalidRequest, NotController, Rejected, Unavailable
from metadata_log.records.features import METAQUORUM_VERSION
from metadata_log.wire.shapes import INT32_MAX
from ops.admin.client import ClusterClient
from ops.admin.cluster import Cluster
from ops.admin.exchange import Unreachable
from ops.admin.health import EXIT_CODES, disagreements, merged_status
from ops.admin.survey import check_is_let_in, judged, none_answers, survey
from ops.command_line import render
from ops.command_line.options import Network, Noun, flag, network, option, reading, watchable
from ops.command_line.partition_summary import causes
from ops.command_line.render import Column, Look, Tone
from ops.command_line.talk import patience, say
from ops.command_line.values import from_to, seconds
from ops.verbs import voters
from ops.when import duration_text

LOOK_AGAIN_S: Final = 0.25
EXAMINED_MAX: Final = 1_000
"""So many partitions a page of the route has: one request says why."""
_TONES: Final[Mapping[str, Tone]] = {"green": "good", "yellow": "warning", "red": "bad"}


def _ago(ms: Any) -> str:
    return "-" if ms is None else f"{duration_text(ms)} ago"


def _own_levels(supports: Any) -> str:
    levels = (supports or {}).get(METAQUORUM_VERSION)
    return "-" if levels is None else f"{levels[0]} to {levels[1]}"


CONTROLLERS: Final = (
    Column("id"),
    Column("role"),
    Column("address"),
    Column("end_offset"),
    Column("lag_records", "LAG"),
    Column("last_fetch_ms_ago", "LAST FETCH", _ago, is_wide=True),
    Column("last_caught_up_ms_ago", "CAUGHT UP", _ago),
    Column("reachable", tone=render.good_if(True)),
    Column("directory_id", "DIRECTORY", is_wide=True),
)


RELEASES: Final = (
    Column("node"),
    Column("version"),
    Column("supports", METAQUORUM_VERSION.upper(), _own_levels),
    Column("address", is_wide=True),
)
LEVELS: Final = (
    Column("feature"),
    Column("level"),
    Column("possible"),
    Column("newest"),
    Column("held_back_by", "HELD BACK BY"),
)
NOUN: Final = Noun()


@NOUN.verb(
    "status",
    "Show which controller leads and how far each voter is. Asks all of them; exit code 4 if none leads.",
    "quorum status",
    "quorum status -o json",
)
@watchable
@network
def run_status(asked: Network) -> int:
    """Show the leader's view; without a leader, that of the controller with the longest log."""
    client = asked.client()
    nodes = survey(client)
    check_is_let_in(nodes)
    status = merged_status(nodes)
    if status is None:
        raise Unreachable(f"{none_answers(nodes)}{client.cure}")
    for node in nodes:
        if node.quorum is None:
            say(f"{node.url} {node.failure}")
    for disagreement in disagreements(nodes):
        say(disagreement)
    asked.show(status, table=lambda: status_text(status, asked.look))
    if status["leader_id"] == -1:
        raise NotController("no controller leads now")
    return 0


def status_text(status: dict[str, Any], look: Look) -> str:
    digest = status["digest"]
    head = render.fields(
        [
            ("cluster", status["cluster_id"]),
            ("leader", "none known" if status["leader_id"] == -1 else f"controller {status['leader_id']}"),
            ("controller epoch", str(status["controller_epoch"])),
            ("high watermark", f"{status['high_watermark']} (log begins at {status['log_start_offset']})"),
            ("state digest", f"{digest['value']} at {digest['end_offset']}"),
            *([("voters", "a change is in flight")] if status["change_pending"] else []),
        ]
    )
    # A node of an earlier release knows no time of a fetch, and names no observer that is gone.
    controllers = [{"last_fetch_ms_ago": None, **row} for row in (*status["voters"], *status["observers"])]
    locked_out = "".join(
        f"\ncontroller {row['id']}: {row['locked_out']}" for row in controllers if row.get("locked_out")
    )
    gone = "".join(
        f"\nobserver {row['id']} is gone: its last fetch was {_ago(row['last_fetch_ms_ago'])}"
        for row in status.get("observers_gone", ())
    )
    return (
        f"{head}\n\n{render.table(CONTROLLERS, controllers, empty='no voters', look=look)}{locked_out}{gone}"
    )


@NOUN.verb(
    "versions",
    "Show which release each node runs, which level of each feature is finalized and which is possible, and what is next.",
    "quorum versions",
    "quorum versions -o json",
)
@reading
def run_versions(asked: Network) -> int:
    """Show releases and levels; what this client may not read is left out, and said."""
    from ops.admin import versions

    client = asked.client()
    nodes = versions.nodes(client)
    supported: dict[str, dict[str, list[int]]] = {}
    try:
        supported = versions.ranges(client)
    except (Rejected, Unavailable) as error:
        say(f"which levels each node supports is not known: {error.message}")
    features = versions.levels(client)
    rows = [one | {"supports": supported.get(one["node"])} for one in nodes]
    step = versions.next_step(nodes, features)
    of_features = [one._asdict() for one in features]
    value = {"nodes": rows, "features": of_features, "next": step}

    def table() -> str:
        releases = asked.table(RELEASES, rows, empty="no node answers")
        return f"{releases}\n\n{asked.table(LEVELS, of_features, empty='')}\n\nnext: {step}"

    asked.show(value, table=table)
    return 0


@NOUN.verb(
    "transfer",
    "Have another controller lead, before work on the host of the one that does.",
    "quorum transfer",
    "quorum transfer --to 2 --dry-run",
)
@option(
    "--to",
    read=from_to(0, INT32_MAX),
    metavar="ID",
    help="default: of the voters that hold the whole log, the one linked longest",
)
@flag("--dry-run", help="say who could take over; change nothing")
@network
def run_transfer(asked: Network, *, to: int | None, dry_run: bool) -> int:
    """Transfer leadership. Without --to the request is not repeated: a repetition would move leadership again."""
    client = asked.client()
    if dry_run:
        return _show_successors(asked, client, to)
    transferred = client.write("POST", "/v1/quorum/transfer", {"to": to}, repeatable=to is not None)
    asked.show(transferred, table=lambda: f"controller {transferred['leader_id']} leads")
    return 0


def _show_successors(asked: Network, client: ClusterClient, to: int | None) -> int:
    """Show the voters that a transfer could go to, as the leader sees them."""
    status = merged_status(survey(client))
    if status is None or status["leader_id"] == -1:
        raise NotController("no controller leads now")
    leader_id = status["leader_id"]
    able = [
        voter["id"]
        for voter in status["voters"]
        if voter["reachable"] and voter["id"] != leader_id and to in (None, voter["id"])
    ]
    if to is not None and to == leader_id:
        able = [leader_id]
    if not able:
        who = "no other voter" if to is None else f"controller {to} is no voter that"
        raise InvalidRequest(f"{who} is reachable: leadership would stay with {leader_id}")
    planned = {"leader_id": leader_id, "successors": able, "records": []}
    says = (
        f"controller {leader_id} leads; {render.plain(able)} could take over\n"
        "no record is written for it; whoever leads next claims the log, as after any election"
    )
    asked.show(planned, table=lambda: says)
    return 0


for _name, _about, _run in (
    (
        "add-voter",
        "Let a controller vote that follows as an observer and holds the whole log.",
        voters.run_add,
    ),
    (
        "remove-voter",
        "Take a controller's vote; if it runs it goes on as an observer. It asks first.",
        voters.run_remove,
    ),
):
    NOUN.verb(_name, _about, f"quorum {_name} --id 4 --dry-run", f"quorum {_name} --id 4")(_run)
NOUN.verb(
    "replace-voter",
    "Let a controller's new disk vote in place of its lost one. May be run again after an interruption.",
    "quorum replace-voter --id 3 --dry-run",
    "quorum replace-voter --id 3 --timeout 5m",
)(voters.run_replace)


@NOUN.verb(
    "health",
    "Judge the cluster: green, yellow or red, and why (exit code 0, 10, 20; 3: you need an identity, or --ca).",
    "quorum health",
    "quorum health --wait --for 30s --expect-brokers 3",
)
@flag("--wait", help="until it is green, at most --for")
@option("--for", "wait_s", read=seconds, default=30.0, metavar="DURATION", help="default: 30s")
@option("--expect-brokers", read=from_to(0, limits.BROKERS_MAX), metavar="N", help="online ones")
@watchable
@network
def run_health(asked: Network, *, wait: bool, wait_s: float, expect_brokers: int | None) -> int:
    """Show the cluster's health; with --wait, ask again until it is green or the time is over."""
    client = asked.client()
    deadline = time.monotonic() + wait_s
    health = judged(client, expect_brokers=expect_brokers)
    with patience("waiting until the cluster is green"):
        while wait and health["health"] != "green" and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN_S)
            health = judged(client, expect_brokers=expect_brokers)
    asked.show(health, table=lambda: health_text(client, health, asked.look))
    return EXIT_CODES[health["health"]]


def health_text(client: Cluster, health: Mapping[str, Any], look: Look) -> str:
    tone = _TONES[health["health"]]
    lines = [look.painted(health["health"], tone), *_reasons(health), *_partitions(health)]
    return "\n".join([*lines, *(f"    {line}" for line in _why_under_replicated(client, health))])


def _why_under_replicated(client: Cluster, health: Mapping[str, Any]) -> Iterator[str]:
    """Yield because of which brokers replicas are not in sync, from a bounded number of the partitions."""
    if not (health["partitions"] or {}).get("under_replicated"):
        return
    with suppress(Unavailable, Rejected):
        some = list(islice(client.partitions(only="under-replicated"), EXAMINED_MAX))
        states = {broker["broker_id"]: broker["state"] for broker in client.brokers()}
        if len(some) == EXAMINED_MAX:
            yield f"of the first {EXAMINED_MAX:,} that are under-replicated:"
        yield from causes(some, states)


def _reasons(judged: Mapping[str, Any]) -> Iterator[str]:
    for key, mark in (("reasons", ""), ("recent_warnings", "recent warning: ")):
        for reason in judged[key]:
            yield f"  {mark}{reason['code']}: {reason['detail']}"


def _partitions(judged: Mapping[str, Any]) -> Iterator[str]:
    if judged["partitions"] is not None:
        yield "  partitions: " + ", ".join(
            f"{count} {name.replace('_', ' ')}" if name != "partitions" else str(count)
            for name, count in judged["partitions"].items()
        )
