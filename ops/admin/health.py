"""Pure: the health of a cluster, from its nodes' answers: green, yellow or red, and the reasons."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from metadata_log.errors import MetadataError
from metadata_log.limits import VOTER_CAUGHT_UP_MS
from metadata_log.node.identity.certificate_dates import Dated
from metadata_log.wire.shapes import convert
from ops.when import duration_text

Health: TypeAlias = Literal["green", "yellow", "red"]
EXIT_CODES: Final[Mapping[Health, int]] = {"green": 0, "yellow": 10, "red": 20}
RED_CONDITIONS: Final = frozenset(
    {
        "PARTITIONS_OFFLINE",
        "PARTITIONS_UNDER_MIN_ISR",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_NOT_YET_VALID",
        "AUTHORITY_EXPIRED",
        "AUTHORITY_NOT_YET_VALID",
        "SECOND_QUORUM",
        "CERTIFICATE_REVOKED",
    }
)
"""What nodes report of themselves is yellow, but where clients or other nodes are refused, or two histories grow."""
CODES: Final = RED_CONDITIONS | {
    *(
        "ADDRESS_OUTDATED",
        "CONTROLLER_UNREACHABLE",
        "INCONSISTENT_CLUSTER_ID",
        "DIGESTS_DIFFER",
        "STATE_DIFFERS",
    ),
    *(
        "VOTER_UNREACHABLE",
        "VOTER_BEHIND",
        "VOTER_FORGOT",
        "VOTER_LOCKED_OUT",
        "OBSERVER_LOCKED_OUT",
        "NOT_A_VOTER",
    ),
    *(
        "CHANGE_PENDING",
        "ALREADY_FOUNDED",
        "NO_ACTIVE_CONTROLLER",
        "NO_LEADER",
        "NOT_ACTIVE",
        "NOTHING_COMMITTED",
        "LOG_NOT_APPLIED",
    ),
    *("NOT_COMMITTING", "DISK_STALLED", "DISK_NEARLY_FULL", "LOG_CUT", "LOG_DAMAGED", "CACHE_SET_ASIDE"),
    *("SNAPSHOT_FAILED", "SNAPSHOT_SET_ASIDE", "SNAPSHOT_NOT_FETCHED", "AUDIT_NOT_WRITTEN"),
    *("INCONSISTENT_VOTER_SET", "VOTER_DIRECTORY_CHANGED", "TOO_MANY_OBSERVERS", "KAFKA_LISTENER_MISSING"),
    *(
        "NO_BROKER",
        "NO_BROKER_ONLINE",
        "BROKERS_MISSING",
        "BROKER_OFFLINE",
        "BROKER_FENCED",
        "BROKER_STOPPING",
    ),
    *("NOT_SERVING", "REPLICAS_STARTING", "PARTITIONS_UNDER_REPLICATED", "REASSIGNMENTS_STUCK"),
    *("CERTIFICATE_ENDS_SOON", "AUTHORITY_ENDS_SOON", "CERTIFICATES_NOT_RELOADED", "PRINCIPALS_NOT_RELOADED"),
    "REVOKED_NOT_RELOADED",
}
"""The codes of all reasons, from whichever node: `--accept` takes these."""
BEHIND_MS: Final = VOTER_CAUGHT_UP_MS
"""A voter that caught up longer ago than this is behind. An idle leader commits every second, so a healthy one never is."""
NO_DETAIL: Final = (
    "its log has the details, and /readyz for a client certificate with the right read (--cert, --key)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswers:
    """One controller's answers: `quorum` from /v1/quorum, `ready` from /readyz; None: no answer of that shape."""

    url: str
    quorum: Mapping[str, Any] | None
    ready: Mapping[str, Any] | None
    failure: str = "does not answer"
    """The reason to report if one of the two is None."""
    failure_code: str | None = None
    """Its code, where a date of the node's certificate is the reason."""
    refusal: MetadataError | None = None
    """What the node refused this client with, for want of an identity or a right; or why it could not be asked at all."""
    answered_s: float = 0.0
    """When `ready` was answered, by a monotonic clock."""

    def aged(self, now_s: float) -> "NodeAnswers":
        """Return the same answers with the ages that its warnings have by now."""
        return self if self.ready is None else replace(self, ready=aged(self.ready, now_s - self.answered_s))


class Reason(NamedTuple):
    health: Health
    code: str
    detail: str


class _Digest(msgspec.Struct):
    end_offset: int
    value: str


class _Controller(msgspec.Struct):
    id: int
    directory_id: str
    address: str | None
    role: str | None
    end_offset: int | None
    log_start_offset: int | None
    lag_records: int | None
    last_caught_up_ms_ago: int | None
    reachable: bool
    http: str | None = None
    """An older release does not send it."""


class _Quorum(msgspec.Struct):
    cluster_id: str
    leader_id: int
    controller_epoch: int
    high_watermark: int
    log_start_offset: int
    digest: _Digest
    node_id: int
    change_pending: bool
    voters: list[_Controller]
    observers: list[_Controller]


class _Condition(msgspec.Struct):
    code: str
    detail: str = ""
    """A node leaves it out, and recent warnings, where it does not know that the client may read."""


class _Warning(msgspec.Struct):
    code: str
    detail: str
    count: int
    ms_ago: int


class _Ready(msgspec.Struct):
    ready: bool
    reasons: list[_Condition]
    recent_warnings: list[_Warning] = []
    partitions: dict[str, int] | None = None
    """The active controller alone sends it."""


class _Endpoint(msgspec.Struct):
    host: str
    port: int


class _Broker(msgspec.Struct):
    broker_id: int
    state: str
    endpoints: list[_Endpoint]


class _Brokers(msgspec.Struct):
    items: list[_Broker]


def _has_shape(answer: Any, shape: type[msgspec.Struct]) -> bool:
    """Answer whether plain values have this shape, possibly with further fields: any program may listen at an address."""
    try:
        convert(answer, shape)
    except ValueError:
        return False
    return True


def is_quorum(answer: Any) -> bool:
    """Answer whether this is what a controller returns for /v1/quorum."""
    return _has_shape(answer, _Quorum)


def is_ready(answer: Any) -> bool:
    """Answer whether this is what one of our processes returns for /readyz."""
    return _has_shape(answer, _Ready)


def is_broker_list(answer: Any) -> bool:
    """Answer whether this is what the active controller returns for /v1/brokers."""
    return _has_shape(answer, _Brokers)


def aged(ready: Mapping[str, Any], passed_s: float) -> dict[str, Any]:
    """Return an answer of /readyz as it is shown some time after it was given: its warnings are older by then."""
    warnings = [
        {**fault, "ms_ago": fault["ms_ago"] + round(1000 * passed_s)}
        for fault in ready.get("recent_warnings", ())
    ]
    return {**ready, "recent_warnings": warnings}


def judge(
    nodes: Sequence[NodeAnswers],
    brokers: Sequence[Mapping[str, Any]] | None,
    *,
    broker_ready: Mapping[int, Mapping[str, Any]],
    expect_brokers: int | None,
    broker_failures: Mapping[int, tuple[str, str]] = MappingProxyType({}),
    own: Sequence[Dated] = (),
    now_s: float = 0.0,
) -> dict[str, Any]:
    """Return {"health", "reasons", "recent_warnings", "partitions"}; the warnings of the last hour change no colour.

    "partitions" are the counts of the active controller, None without one.

    `brokers` are the items of /v1/brokers, None if no controller is active. `broker_ready` has the /readyz answer of each
    broker that gave one, by id; `broker_failures` the code and the reason of each whose certificate was refused for its
    date. `own` are the dates of what this client shows and trusts.
    """
    ready = [
        *(
            (f"controller {node.quorum['node_id']}", node.ready)
            for node in nodes
            if node.quorum and node.ready
        ),
        *((f"broker {broker_id}", broker_ready[broker_id]) for broker_id in sorted(broker_ready)),
    ]
    reasons = [
        *_of_controllers(nodes),
        *_of_brokers(brokers, expect_brokers),
        *_of_themselves(ready),
        *(
            Reason("red", code, f"broker {broker_id}: {why}")
            for broker_id, (code, why) in sorted(broker_failures.items())
        ),
        *_of_client(own, now_s),
    ]
    colours = {reason.health for reason in reasons}
    health: Health = "red" if "red" in colours else "yellow" if colours else "green"
    reasons.sort(key=lambda reason: reason.health != "red")
    return {
        "health": health,
        "reasons": [{"code": reason.code, "detail": reason.detail} for reason in reasons],
        "recent_warnings": [fault for who, each in ready for fault in _recent_warnings(who, each)],
        "partitions": next((each["partitions"] for _, each in ready if each.get("partitions")), None),
    }


def _of_themselves(ready: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Reason]:
    """Yield the reasons that nodes report; a ready node may report some, too, such as a snapshot that failed."""
    for who, answer in ready:
        for reason in answer["reasons"]:
            health: Health = "red" if reason["code"] in RED_CONDITIONS else "yellow"
            yield Reason(health, reason["code"], f"{who}: {reason.get('detail', NO_DETAIL)}")


def _of_client(own: Iterable[Dated], now_s: float) -> Iterator[Reason]:
    """Yield what soon ends of the files that this client shows and trusts; one that has ended it does not use at all."""
    for each in own:
        condition = each.condition(now_s)
        if condition is not None and each.is_urgent(now_s):
            yield Reason("yellow", condition[0], f"this client: {condition[1]}")


def _recent_warnings(who: str, answer: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the warnings that a node logged within the last hour, without the conditions that it still reports."""
    present = {reason["code"] for reason in answer["reasons"]}
    for fault in answer.get("recent_warnings", ()):
        if fault["code"] not in present:
            times = f"{fault['count']} times, the last " if fault["count"] > 1 else ""
            ago = duration_text(fault["ms_ago"])
            yield {
                "code": fault["code"],
                "detail": f"{who}: {times}{ago} ago: {fault['detail']}".rstrip(": "),
            }


def merged_status(nodes: Sequence[NodeAnswers]) -> dict[str, Any] | None:
    """Return the quorum's status: the leader's view if there is a leader, completed from the other controllers' own answers.

    Without a leader it is the view of the node with the longest log. None: no controller answered. A controller that did
    not answer is not `reachable`, though its link to the leader still exists.
    """
    quorums = [node.quorum for node in nodes if node.quorum is not None]
    if not quorums:
        return None
    own = {quorum["node_id"]: quorum for quorum in quorums}
    silent = {node.url for node in nodes if node.quorum is None}
    view = max(
        quorums,
        key=lambda q: (q["leader_id"] == q["node_id"], q["controller_epoch"], q["high_watermark"]),
    )
    return {key: value for key, value in view.items() if key != "node_id"} | {
        group: [
            _completed(row, own.get(row["id"]), view)
            | ({"reachable": False} if row.get("http") in silent else {})
            for row in view[group]
        ]
        for group in ("voters", "observers")
    }


def disagreements(nodes: Sequence[NodeAnswers]) -> list[str]:
    """Return the contradictions between the answers, one sentence each."""
    quorums = [node.quorum for node in nodes if node.quorum is not None]
    found: list[str] = []
    if len({quorum["leader_id"] for quorum in quorums}) > 1:
        views = ", ".join(f"controller {q['node_id']} says {_leader(q['leader_id'])}" for q in quorums)
        found.append(f"they do not agree on who leads: {views}")
    if len({quorum["cluster_id"] for quorum in quorums}) > 1:
        found.append("they belong to different clusters: " + ", ".join(q["cluster_id"] for q in quorums))
    return found + [reason.detail for reason in _digests(quorums)]


def _leader(leader_id: int) -> str:
    return "nobody" if leader_id == -1 else f"controller {leader_id}"


def _completed(
    controller: Mapping[str, Any], own: Mapping[str, Any] | None, view: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a controller's row, completed from its own answer. A row for another directory id is another controller's."""
    row, identity = dict(controller), (controller["id"], controller["directory_id"])
    members = [] if own is None else [*own["voters"], *own["observers"]]
    mine = next((item for item in members if (item["id"], item["directory_id"]) == identity), None)
    if mine is None:
        return row
    for key in ("end_offset", "log_start_offset", "role"):
        row[key] = mine[key] if row[key] is None or key == "end_offset" else row[key]
    row["locked_out"] = row.get("locked_out") or mine.get(
        "locked_out"
    )  # a release before it has no such field
    if row["lag_records"] is None and row["end_offset"] is not None:
        row["lag_records"] = max(0, view["high_watermark"] - row["end_offset"])
    return row


def _of_controllers(nodes: Sequence[NodeAnswers]) -> Iterator[Reason]:
    outdated = _outdated(nodes)
    for node in nodes:
        if node.url in outdated:
            detail = f"{node.url} is no controller's address, and all answer elsewhere: leave it out of --bootstrap"
            yield Reason("yellow", "ADDRESS_OUTDATED", detail)
        elif node.quorum is None or node.ready is None:
            yield Reason("yellow", "CONTROLLER_UNREACHABLE", f"{node.url} {node.failure}")
            if node.failure_code is not None:
                yield Reason("red", node.failure_code, f"{node.url} {node.failure}")
    quorums = [node.quorum for node in nodes if node.quorum is not None]
    yield from _not_asked(nodes)
    if len({quorum["cluster_id"] for quorum in quorums}) > 1:
        yield Reason("red", "INCONSISTENT_CLUSTER_ID", "the controllers asked belong to different clusters")
    yield from _digests(quorums)
    yield from _second_quorums(quorums)
    leader = next((quorum for quorum in quorums if quorum["leader_id"] == quorum["node_id"]), None)
    is_active = any(node.quorum is leader and node.ready and node.ready["ready"] for node in nodes)
    for voter in [] if leader is None else leader["voters"]:
        ago = voter["last_caught_up_ms_ago"]
        if not voter["reachable"]:
            yield Reason("yellow", "VOTER_UNREACHABLE", f"the leader does not reach controller {voter['id']}")
        elif ago is not None and ago > BEHIND_MS:
            yield Reason("yellow", "VOTER_BEHIND", f"controller {voter['id']} last caught up {ago} ms ago")
        elif ago is None and voter["lag_records"] != 0 and is_active:
            # Before its claim is committed, a leader may not know yet how much of the log each voter holds.
            detail = f"controller {voter['id']} was never seen to catch up by the present leader"
            yield Reason("yellow", "VOTER_BEHIND", detail)
    if leader is not None:
        ready = {node.quorum["node_id"] for node in nodes if node.quorum and node.ready}
        yield from _of_membership(leader, asked=ready)


def _outdated(nodes: Sequence[NodeAnswers]) -> set[str]:
    """Return the addresses that were asked and are no controller's, where every voter answers at another one."""
    status = merged_status(nodes)
    if status is None:
        return set()
    answered = {node.quorum["node_id"] for node in nodes if node.quorum is not None}
    members = [*status["voters"], *status["observers"]]
    if not {voter["id"] for voter in status["voters"]} <= answered:
        return set()
    return {node.url for node in nodes if node.quorum is None} - {member.get("http") for member in members}


def _not_asked(nodes: Sequence[NodeAnswers]) -> Iterator[Reason]:
    """Yield the voters that did not answer, except those whose URL is already reported as silent."""
    quorums = [node.quorum for node in nodes if node.quorum is not None]
    known = {quorum["node_id"] for quorum in quorums}
    silent = {node.url for node in nodes if node.quorum is None}
    status = merged_status(nodes)
    for voter in [] if status is None else status["voters"]:
        if voter["id"] not in known and voter.get("http") not in silent:
            detail = f"controller {voter['id']} was not asked: where it answers is not known"
            yield Reason("yellow", "CONTROLLER_UNREACHABLE", detail)


def _of_membership(leader: Mapping[str, Any], *, asked: AbstractSet[int]) -> Iterator[Reason]:
    """Yield pending changes of voters, and voters on a new disk; one that was asked reports that itself."""
    if leader["change_pending"]:
        yield Reason("yellow", "CHANGE_PENDING", "a change of voters is in flight")
    voters = {voter["id"] for voter in leader["voters"]}
    for node_id in sorted({observer["id"] for observer in leader["observers"]} & voters - asked):
        detail = (
            f"controller {node_id} runs on another disk than voter {node_id} had, without a vote: "
            f"metaquorum quorum replace-voter --id {node_id}"
        )
        yield Reason("yellow", "NOT_A_VOTER", detail)


def _digests(quorums: Sequence[Mapping[str, Any]]) -> Iterator[Reason]:
    """Yield each pair of controllers with different states of the same log prefix, which must not happen."""
    at: dict[int, Mapping[str, Any]] = {}
    for quorum in quorums:
        digest = quorum["digest"]
        first = at.setdefault(digest["end_offset"], quorum)
        if first["digest"]["value"] != digest["value"]:
            yield Reason(
                "red",
                "DIGESTS_DIFFER",
                f"controllers {first['node_id']} and {quorum['node_id']} hold different states at end offset "
                f"{digest['end_offset']}",
            )


def _second_quorums(quorums: Sequence[Mapping[str, Any]]) -> Iterator[Reason]:
    """Yield each pair of leaders of which one is no voter of the other's: two quorums run under one cluster id.

    A leader that was deposed a moment ago is a voter of its successor.
    """
    leaders = [quorum for quorum in quorums if quorum["leader_id"] == quorum["node_id"]]
    for first, second in combinations(leaders, 2):
        if first["cluster_id"] == second["cluster_id"] and not (
            _own_row(first) in _members(second) and _own_row(second) in _members(first)
        ):
            yield Reason(
                "red",
                "SECOND_QUORUM",
                f"controllers {first['node_id']} (epoch {first['controller_epoch']}, directory {_own_row(first)[1]}) and "
                f"{second['node_id']} (epoch {second['controller_epoch']}, directory {_own_row(second)[1]}) both lead, each "
                "by voters of its own: two quorums run under one cluster id (ops/runbooks/two-histories.md)",
            )


def _members(quorum: Mapping[str, Any]) -> set[tuple[int, str]]:
    return {(voter["id"], voter["directory_id"]) for voter in quorum["voters"]}


def _own_row(quorum: Mapping[str, Any]) -> tuple[int, str]:
    """Return the id and the directory of the controller that answered; "" where it does not list itself."""
    rows = [one for one in quorum["voters"] if one["id"] == quorum["node_id"]]
    return quorum["node_id"], rows[0]["directory_id"] if rows else ""


def _of_brokers(brokers: Sequence[Mapping[str, Any]] | None, expect_brokers: int | None) -> Iterator[Reason]:
    if brokers is None:
        yield Reason("red", "NO_ACTIVE_CONTROLLER", "no controller answers as the active one")
        return
    online = [broker["broker_id"] for broker in brokers if broker["state"] == "ONLINE"]
    for broker in brokers:
        if broker["state"] != "ONLINE":
            detail = (
                f"broker {broker['broker_id']} is {broker['state']}: brokers explain {broker['broker_id']}"
            )
            yield Reason("yellow", f"BROKER_{broker['state']}", detail)
    if not brokers and expect_brokers is None:
        yield Reason(
            "yellow", "NO_BROKER", "no broker is registered: topics cannot be created (--expect-brokers 0)"
        )
    if brokers and not online:
        yield Reason("red", "NO_BROKER_ONLINE", f"none of {len(brokers)} registered brokers is online")
    if expect_brokers is not None and len(online) < expect_brokers:
        detail = f"{len(online)} of {expect_brokers} expected brokers are online"
        yield Reason("yellow", "BROKERS_MISSING", detail)
