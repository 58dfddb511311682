"""Edge: what all nodes of a cluster say of themselves: needs no leader, and waits briefly for each node.

`survey` asks the controllers, `judged` the brokers as well, and judges the whole by `health.py`.
Tests: tests/unit/ops/verbs/test_quorum.py.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

from metadata_log.errors import (
    AuthenticationFailed,
    Fault,
    InvalidRequest,
    MetadataError,
    NotAuthorized,
    OutcomeUnknown,
    Rejected,
    Unavailable,
)
from metadata_log.node.addresses import http_url
from metadata_log.node.attempts import Attempt, answers_in_time
from metadata_log.node.leaderless import says_leaderless
from metadata_log.records.brokers import SSL_PROTOCOL
from ops.admin.client import ClusterClient, controllers_named
from ops.admin.exchange import NOT_TAKEN, NOT_TRUSTED, WRONG_PROTOCOL, Answer, Unreachable
from ops.admin.health import NodeAnswers, aged, is_broker_list, is_quorum, is_ready, judge
from ops.admin.items import chunks
from ops.admin.search import certificate_cure, trust_cure, waiting_for

T = TypeVar("T")

ONE_NODE_S: Final = 2.0
"""If no node answers within this time, all are silent."""
SILENT_S: Final = 0.4
"""A node that takes longer counts as silent, once another has answered: one that hangs must not delay the answers of the
others. On a busy machine, where all are slow, each has as much more time."""
ELECTED_S: Final = 0.2
"""Where no controller says that it leads, one that was elected meanwhile has this long to answer."""
BROKERS_AT_A_TIME: Final = 32
ASKED_ROUNDS: Final = 3
"""First the bootstrap list, then the controllers that it names, then the observers, which only the leader names."""
_SILENT: Final = f"does not answer (no answer within {SILENT_S:g} s)"


def judged(
    client: ClusterClient, nodes: Sequence[NodeAnswers] | None = None, *, expect_brokers: int | None = None
) -> dict[str, Any]:
    """Return the cluster's health: `health` is green, yellow or red, and `reasons` say why.

    `nodes` are what a survey just found; without them, there is one.

    Raises:
        AuthenticationFailed, NotAuthorized: as `check_is_let_in`, so nothing is known of their health.
    """
    nodes = survey(client) if nodes is None else nodes
    check_is_let_in(nodes)
    brokers = _brokers(client, nodes)
    broker_ready, broker_failures = _broker_ready(client, brokers or [])
    # A node that answers late makes the others' answers old.
    now_s = time.monotonic()
    return judge(
        [node.aged(now_s) for node in nodes],
        brokers,
        broker_ready={
            broker_id: aged(ready, now_s - answered_s)
            for broker_id, (ready, answered_s) in broker_ready.items()
        },
        broker_failures=broker_failures,
        expect_brokers=expect_brokers,
        own=client.credentials.dates,
        now_s=time.time(),
    )


def check_is_let_in(nodes: Sequence[NodeAnswers]) -> None:
    """Check that a node lets this client in.

    Raises:
        AuthenticationFailed, NotAuthorized: all of them refuse it, or it trusts the certificate of none.
        InvalidRequest: no address speaks as its URL says.
    """
    refusals = [node.refusal for node in nodes]
    if refusals and refusals[0] is not None and None not in refusals:
        raise refusals[0]


def none_answers(nodes: Sequence[NodeAnswers]) -> str:
    """Return what is said where no controller answers, and why each does not."""
    return f"no controller answers: {', '.join(f'{node.url} {node.failure}' for node in nodes)}"


def surveyed(client: ClusterClient) -> list[NodeAnswers]:
    """Return what `survey` does; where controllers answer and none names a leader, no read of the client waits for one."""
    nodes = survey(client)
    if {node.quorum["leader_id"] for node in nodes if node.quorum is not None} == {-1}:
        client.expect_no_leader()
    return nodes


def survey(client: ClusterClient) -> list[NodeAnswers]:
    """Ask all controllers at once, then those that only the answers name: a bootstrap list may be incomplete.

    A broker in the list passes on what the active controller says of the quorum. That counts only where no controller
    answers itself.
    """
    timeout_s = min(client.timeout_s, ONE_NODE_S)
    brokers: list[NodeAnswers] = []

    def ask(attempt: Attempt) -> NodeAnswers | None:
        url = attempt.url
        answers: dict[str, Any] = {"quorum": None, "ready": None}
        for key, path, is_sound in (("quorum", "/v1/quorum", is_quorum), ("ready", "/readyz", is_ready)):
            try:
                answer = client.ask_one(url, path, timeout_s=timeout_s)
            except Unreachable as error:
                failure = f"does not answer ({error.message.removeprefix(f'{url}: ')})"
                code = _cause(error)
                refusal: MetadataError | None = None
                if code == NOT_TRUSTED:
                    refusal = _mistrusted(client, error)
                elif code == NOT_TAKEN:
                    refusal = AuthenticationFailed(f"{error.message}; {certificate_cure()}")
                elif code == WRONG_PROTOCOL:
                    refusal = InvalidRequest(error.message)
                if refusal is not None:
                    return NodeAnswers(url=url, **answers, failure=failure, refusal=refusal)
                return NodeAnswers(url=url, **answers, failure=failure, failure_code=code)
            body = _json(answer)
            if not is_sound(body):
                refusal = _refusal(answer)
                failure = f"answers {path} with {answer.status}, and not as a controller does"
                if refusal is not None:
                    failure = f"refuses this client: {refusal.message}"
                return NodeAnswers(url=url, **answers, failure=failure, refusal=refusal)
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
        asked = in_time(client, urls, ask, lambda node: node is None or node.quorum is not None)
        for url in urls:
            node = asked.get(url, NodeAnswers(url=url, quorum=None, ready=None, failure=_SILENT))
            nodes += [] if node is None else [node]
        urls = _not_asked(nodes, brokers)
    client.note_heard(node.url for node in nodes if node.quorum is not None)
    client.note_silent(node.url for node in nodes if node.quorum is None)
    return nodes if any(node.quorum is not None for node in nodes) else [*nodes, *brokers]


def in_time(
    client: ClusterClient,
    urls: Sequence[str],
    ask: Callable[[Attempt], T],
    is_sound: Callable[[T], bool],
) -> dict[str, T]:
    """Return the answers of the nodes that are not silent, by URL."""
    return answers_in_time(
        urls,
        ask,
        is_sound=is_sound,
        least_s=min(client.timeout_s, SILENT_S),
        most_s=min(client.timeout_s, ONE_NODE_S),
        waited=lambda attempt: client.say(waiting_for(attempt.url, ())),
    )


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


def _refusal(answer: Answer) -> MetadataError | None:
    """Return the error of a node that refuses this client for want of an identity or a right; None for any other answer."""
    if answer.status not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return None
    try:
        error = answer.error()
    except Unreachable:
        return None
    return error if isinstance(error, AuthenticationFailed | NotAuthorized) else None


def _mistrusted(client: ClusterClient, error: Unreachable) -> AuthenticationFailed:
    cure = trust_cure(client.credentials)
    return AuthenticationFailed(f"this client does not trust the node at {error.message}; {cure}")


def _brief(client: ClusterClient, urls: Sequence[str], most_s: float) -> ClusterClient:
    return ClusterClient(
        urls,
        timeout_s=min(client.timeout_s, most_s),
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
    # A broker registers any endpoint it likes: with the token, a process that listens there could act as this client.
    asking = ClusterClient(
        client.bootstrap,
        timeout_s=min(client.timeout_s, ONE_NODE_S),
        rng=client.rng,
        credentials=replace(client.credentials, token=None),
    )

    failures: dict[int, tuple[str, str]] = {}
    running = {
        http_url(
            (endpoint["host"], endpoint["port"]), tls=endpoint["security_protocol"] == SSL_PROTOCOL
        ): broker["broker_id"]
        for broker in brokers
        if broker["state"] != "OFFLINE"
        for endpoint in broker["endpoints"][:1]
    }

    def ask(attempt: Attempt) -> tuple[Mapping[str, Any], float] | None:
        try:
            ready = asking.ask_one(attempt.url, "/readyz").json()
        except Unreachable as error:
            cause = _cause(error)
            if cause not in (None, NOT_TAKEN, NOT_TRUSTED, WRONG_PROTOCOL):
                failures[running[attempt.url]] = (cause, error.message)
            return None
        return (ready, time.monotonic()) if is_ready(ready) else None

    answers: dict[int, tuple[Mapping[str, Any], float]] = {}
    for urls in chunks(list(running), BROKERS_AT_A_TIME):
        for url, ready in in_time(client, urls, ask, lambda ready: ready is not None).items():
            if ready is not None:
                answers[running[url]] = ready
    return answers, failures


def _cause(error: Unreachable) -> str | None:
    """Return the code of a date of the node's certificate, or another one of `exchange.py`, if that is why."""
    cause = error.context.get("cause")
    return cause if isinstance(cause, str) else None


def _brokers(client: ClusterClient, nodes: Sequence[NodeAnswers]) -> list[dict[str, Any]] | None:
    """Return the brokers as the active controller lists them; None if no active controller answers.

    A controller that claims to lead is asked first. If one fails, each of the others is asked by itself. Where none leads,
    one that was elected meanwhile has ELECTED_S to answer, unless there has been no leader for long.
    """
    quorums = [(node.url, node.quorum) for node in nodes if node.quorum is not None]
    quorums.sort(key=lambda one: one[1]["leader_id"] != one[1]["node_id"])
    urls = [url for url, _ in quorums]
    leads = any(quorum["leader_id"] == quorum["node_id"] for _, quorum in quorums)
    with suppress(Unavailable, OutcomeUnknown):
        if urls and not leads and all(_has_long_known_of_none(client, url) for url in urls):
            return None
        for some in (urls, *([url] for url in urls)) if urls else ():
            with suppress(Rejected, Fault):
                brief = _brief(client, some, ONE_NODE_S if leads else ELECTED_S)
                listed = brief.read("/v1/brokers")
                if is_broker_list(listed):
                    return cast("list[dict[str, Any]]", listed["items"])
    return None


def _has_long_known_of_none(client: ClusterClient, url: str) -> bool:
    """Return whether a controller says now that there has been no leader for long."""
    with suppress(Unreachable):
        return says_leaderless(client.ask_one(url, "/v1/brokers", timeout_s=ONE_NODE_S).headers)
    return False
