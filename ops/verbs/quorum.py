"""Edge: the arguments of all `quorum` verbs, and what `status`, `health` and `transfer` do; the first two need no leader."""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

from metadata_log import limits
from metadata_log.errors import Fault, InvalidRequest, NotController, OutcomeUnknown, Rejected, Unavailable
from metadata_log.node.addresses import http_url
from metadata_log.records.brokers import SSL_PROTOCOL
from metadata_log.wire.shapes import INT32_MAX
from ops import render
from ops.admin.client import Answer, ClusterClient, Unreachable, controllers_named
from ops.admin.health import (
    EXIT_CODES,
    NodeAnswers,
    aged,
    disagreements,
    is_broker_list,
    is_quorum,
    is_ready,
    judge,
    merged_status,
)
from ops.arguments import Noun, client_from, from_to, seconds, uuid_of
from ops.render import Column
from ops.talk import say, show
from ops.verbs import voters
from ops.when import duration_text

ONE_NODE_S: Final = 2.0
"""A node that takes longer counts as silent: one that hangs must not delay the answers of the others."""
ONE_BROKER_S: Final = 1.0
BROKERS_AT_A_TIME: Final = 32
ASKED_ROUNDS: Final = 3
"""First the bootstrap list, then the controllers that it names, then the observers, which only the leader names."""
LOOK_AGAIN_S: Final = 0.25


def _ago(ms: Any) -> str:
    return "-" if ms is None else f"{duration_text(ms)} ago"


CONTROLLERS: Final = (
    Column("id"),
    Column("role"),
    Column("address"),
    Column("end_offset"),
    Column("lag_records", "LAG"),
    Column("last_caught_up_ms_ago", "CAUGHT UP", _ago),
    Column("reachable"),
    Column("directory_id", "DIRECTORY"),
)


def add_parsers(noun: Noun) -> None:
    noun.verb(
        "status",
        "Show who leads and how far each voter is. Asks every controller; needs no leader.",
        run=run_status,
        parent=noun.flags.network,
        examples=("quorum status", "quorum status -o json"),
    )
    transfer = noun.verb(
        "transfer",
        "Have another controller lead, before work on the host of the one that does.",
        run=run_transfer,
        parent=noun.flags.network,
        examples=("quorum transfer", "quorum transfer --to 2 --dry-run"),
    )
    transfer.add_argument(
        "--to",
        type=from_to(0, INT32_MAX),
        metavar="ID",
        help="default: of the voters that hold the whole log, the one linked longest",
    )
    transfer.add_argument("--dry-run", action="store_true", help="say who could take over; change nothing")
    _add_voter_parsers(noun)
    health = noun.verb(
        "health",
        "Judge the cluster: green, yellow or red, and why (exit code 0, 10, 20).",
        run=run_health,
        parent=noun.flags.network,
        examples=("quorum health", "quorum health --wait --for 30s --expect-brokers 3"),
    )
    health.add_argument("--wait", action="store_true", help="until it is green, at most --for")
    health.add_argument(
        "--for", dest="wait_s", type=seconds, default=30.0, metavar="DURATION", help="default: 30s"
    )
    health.add_argument(
        "--expect-brokers", type=from_to(0, limits.BROKERS_MAX), metavar="N", help="online ones"
    )


def _add_voter_parsers(noun: Noun) -> None:
    add = noun.verb(
        "add-voter",
        "Let a controller vote that follows as an observer and holds the whole log.",
        run=voters.run_add,
        parent=noun.flags.network,
        examples=("quorum add-voter --id 4 --dry-run", "quorum add-voter --id 4"),
    )
    remove = noun.verb(
        "remove-voter",
        "Take a controller's vote; if it runs it goes on as an observer.",
        run=voters.run_remove,
        parent=noun.flags.network,
        examples=("quorum remove-voter --id 4 --dry-run", "quorum remove-voter --id 4"),
    )
    replace = noun.verb(
        "replace-voter",
        "Let a controller's new disk vote in place of its lost one. May be run again after an interruption.",
        run=voters.run_replace,
        parent=noun.flags.patient,
        examples=("quorum replace-voter --id 3 --dry-run", "quorum replace-voter --id 3 --timeout 5m"),
    )
    for verb in (add, remove, replace):
        verb.add_argument("--id", type=from_to(0, INT32_MAX), required=True, metavar="N")
        verb.add_argument("--dry-run", action="store_true", help="check, and show the records; write nothing")
    for verb, default in ((add, "the observer's"), (remove, "the voter's")):
        verb.add_argument(
            "--directory-id", type=uuid_of("directory"), metavar="D", help=f"default: {default}"
        )
    add.add_argument("--raft", metavar="HOST:PORT", help="where voters reach it; default: as it says itself")


def run_status(args: argparse.Namespace) -> int:
    """Show the leader's view; without a leader, that of the controller with the longest log."""
    client = client_from(args)
    nodes = ask_all(client)
    status = merged_status(nodes)
    if status is None:
        silent = ", ".join(f"{node.url} {node.failure}" for node in nodes)
        raise Unreachable(f"no controller answers: {silent}{client.cure}")
    for node in nodes:
        if node.quorum is None:
            say(f"{node.url} {node.failure}")
    for disagreement in disagreements(nodes):
        say(disagreement)
    show(args, status, table=lambda: _table(status))
    return 0


def _table(status: dict[str, Any]) -> str:
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
    controllers = [*status["voters"], *status["observers"]]
    locked_out = "".join(
        f"\ncontroller {row['id']}: {row['locked_out']}" for row in controllers if row.get("locked_out")
    )
    return f"{head}\n\n{render.table(CONTROLLERS, controllers, empty='no voters')}{locked_out}"


def run_transfer(args: argparse.Namespace) -> int:
    """Transfer leadership. Without --to the request is not repeated: a repetition would move leadership again."""
    client = client_from(args)
    if args.dry_run:
        return _show_successors(args, client)
    transferred = client.write("POST", "/v1/quorum/transfer", {"to": args.to}, repeatable=args.to is not None)
    show(args, transferred, table=lambda: f"controller {transferred['leader_id']} leads")
    return 0


def _show_successors(args: argparse.Namespace, client: ClusterClient) -> int:
    """Show the voters that a transfer could go to, as the leader sees them."""
    status = merged_status(ask_all(client))
    if status is None or status["leader_id"] == -1:
        raise NotController("no controller leads now")
    leader_id = status["leader_id"]
    able = [
        voter["id"]
        for voter in status["voters"]
        if voter["reachable"] and voter["id"] != leader_id and args.to in (None, voter["id"])
    ]
    if args.to is not None and args.to == leader_id:
        able = [leader_id]
    if not able:
        who = "no other voter" if args.to is None else f"controller {args.to} is no voter that"
        raise InvalidRequest(f"{who} is reachable: leadership would stay with {leader_id}")
    planned = {"leader_id": leader_id, "successors": able, "records": []}
    says = (
        f"controller {leader_id} leads; {render.plain(able)} could take over\n"
        "no record is written for it; whoever leads next claims the log, as after any election"
    )
    show(args, planned, table=lambda: says)
    return 0


def run_health(args: argparse.Namespace) -> int:
    """Show the cluster's health; with --wait, ask again until it is green or the time is over."""
    client = client_from(args)
    deadline = time.monotonic() + args.wait_s
    while True:
        nodes = ask_all(client)
        brokers = _brokers(client, nodes)
        broker_ready, broker_failures = _broker_ready(client, brokers or [])
        # A node that answers late makes the others' answers old.
        now_s = time.monotonic()
        judged = judge(
            [node.aged(now_s) for node in nodes],
            brokers,
            broker_ready={
                broker_id: aged(ready, now_s - answered_s)
                for broker_id, (ready, answered_s) in broker_ready.items()
            },
            broker_failures=broker_failures,
            expect_brokers=args.expect_brokers,
            own=client.credentials.dates,
            now_s=time.time(),
        )
        if not args.wait or judged["health"] == "green" or time.monotonic() >= deadline:
            break
        time.sleep(LOOK_AGAIN_S)
    show(args, judged, table=lambda: "\n".join([judged["health"], *_reasons(judged), *_partitions(judged)]))
    return EXIT_CODES[judged["health"]]


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


def ask_all(client: ClusterClient) -> list[NodeAnswers]:
    """Ask all controllers at once, then those that only the answers name: a bootstrap list may be incomplete.

    A broker in the list passes on what the active controller says of the quorum. That counts only where no controller
    answers itself.
    """
    timeout_s = min(client.timeout_s, ONE_NODE_S)
    brokers: list[NodeAnswers] = []

    def ask(url: str) -> NodeAnswers | None:
        answers: dict[str, Any] = {"quorum": None, "ready": None}
        for key, path, is_sound in (("quorum", "/v1/quorum", is_quorum), ("ready", "/readyz", is_ready)):
            try:
                answer = client.ask_one(url, path, timeout_s=timeout_s)
            except Unreachable as error:
                failure = f"does not answer ({error.message.removeprefix(f'{url}: ')})"
                return NodeAnswers(url=url, **answers, failure=failure, failure_code=_cause(error))
            body = _json(answer)
            if not is_sound(body):
                failure = f"answers {path} with {answer.status}, and not as a controller does"
                return NodeAnswers(url=url, **answers, failure=failure)
            answers[key] = body
            if answer.came_by_a_broker:
                brokers.append(
                    NodeAnswers(url=url, **answers, failure="is a broker; no controller answers itself")
                )
                return None
        return NodeAnswers(url=url, **answers, answered_s=time.monotonic())

    nodes: list[NodeAnswers] = []
    urls = list(client.bootstrap)
    for _ in range(ASKED_ROUNDS):
        if urls:
            with ThreadPoolExecutor(len(urls)) as threads:
                nodes += (node for node in threads.map(ask, urls) if node is not None)
        urls = _not_asked(nodes, brokers)
    return nodes if any(node.quorum is not None for node in nodes) else [*nodes, *brokers]


def _not_asked(nodes: Sequence[NodeAnswers], brokers: Sequence[NodeAnswers]) -> list[str]:
    """Return the URLs of controllers that the answers name and that have not answered yet."""
    named = {
        node_id: url
        for node in (*brokers, *nodes)
        if node.quorum is not None
        for node_id, url in controllers_named(node.quorum).items()
    }
    answered = {node.quorum["node_id"] for node in nodes if node.quorum is not None}
    asked = {node.url for node in nodes}
    left = [url for node_id, url in named.items() if node_id not in answered and url not in asked]
    return list(dict.fromkeys(left))


def _json(answer: Answer) -> Any:
    """Return an answer's JSON; None if it is no JSON. The caller checks the shape in either case."""
    try:
        return answer.json()
    except Unreachable:
        return None


def _brief(client: ClusterClient, urls: Sequence[str]) -> ClusterClient:
    return ClusterClient(
        urls,
        timeout_s=min(client.timeout_s, ONE_NODE_S),
        rng=client.rng,
        credentials=client.credentials,
    )


def _broker_ready(
    client: ClusterClient, brokers: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, tuple[Mapping[str, Any], float]], dict[int, tuple[str, str]]]:
    """Return the brokers' own /readyz answers with their times (monotonic, in s), by broker id, and failures.

    Failures are code and reason of those whose certificate is not valid now.
    A broker that does not answer, or is none of our agents, is absent: its health rests on the controllers' view alone.
    """
    # A broker registers any endpoint it likes: with the token, whoever listens there could act as this client.
    asking = ClusterClient(
        client.bootstrap,
        timeout_s=min(client.timeout_s, ONE_BROKER_S),
        rng=client.rng,
        credentials=replace(client.credentials, token=None),
    )

    failures: dict[int, tuple[str, str]] = {}

    def ask(broker: Mapping[str, Any]) -> tuple[Mapping[str, Any], float] | None:
        try:
            endpoint = broker["endpoints"][0]
            ready = asking.ask_one(
                http_url(
                    (endpoint["host"], endpoint["port"]), tls=endpoint["security_protocol"] == SSL_PROTOCOL
                ),
                "/readyz",
            ).json()
        except Unreachable as error:
            cause = _cause(error)
            if cause is not None:
                failures[broker["broker_id"]] = (cause, error.message)
            return None
        return (ready, time.monotonic()) if is_ready(ready) else None

    running = [broker for broker in brokers if broker["state"] != "OFFLINE" and broker["endpoints"]]
    with ThreadPoolExecutor(BROKERS_AT_A_TIME) as threads:
        answers = zip(running, threads.map(ask, running), strict=True)
        return {broker["broker_id"]: ready for broker, ready in answers if ready is not None}, failures


def _cause(error: Unreachable) -> str | None:
    """Return the code of a date of the node's certificate, if that is why it was not asked."""
    cause = error.context.get("cause")
    return cause if isinstance(cause, str) else None


def _brokers(client: ClusterClient, nodes: Sequence[NodeAnswers]) -> list[dict[str, Any]] | None:
    """Return the brokers as the active controller lists them; None if no active controller answers.

    A controller that claims to lead is asked first. If one fails, each of the others is asked by itself.
    """
    quorums = [(node.url, node.quorum) for node in nodes if node.quorum is not None]
    quorums.sort(key=lambda one: one[1]["leader_id"] != one[1]["node_id"])
    urls = [url for url, _ in quorums]
    with suppress(Unavailable, OutcomeUnknown):
        for some in (urls, *([url] for url in urls)) if urls else ():
            with suppress(Rejected, Fault):
                listed = _brief(client, some).read("/v1/brokers")
                if is_broker_list(listed):
                    return cast("list[dict[str, Any]]", listed["items"])
    return None
