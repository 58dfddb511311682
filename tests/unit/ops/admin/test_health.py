"""Pure: what makes a cluster yellow or red, and how the views of its controllers become one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from metadata_log.node.identity.certificate_dates import Dated
from ops.admin.health import NodeAnswers, aged, disagreements, judge, merged_status

READY = {"ready": True, "reasons": [], "recent_warnings": []}


def voter(node_id: int, **different: Any) -> dict[str, Any]:
    return {
        "id": node_id,
        "directory_id": f"d{node_id}",
        "address": f"h:{node_id}",
        "http": None,
        "role": "leader" if node_id == 1 else "follower",
        "end_offset": 10,
        "log_start_offset": None,
        "lag_records": 0,
        "last_caught_up_ms_ago": 5,
        "reachable": True,
    } | different


def quorum(node_id: int, **different: Any) -> dict[str, Any]:
    return {
        "cluster_id": "c",
        "leader_id": 1,
        "controller_epoch": 4,
        "high_watermark": 10,
        "log_start_offset": 0,
        "digest": {"end_offset": 10, "value": "aa"},
        "node_id": node_id,
        "change_pending": False,
        "voters": [voter(i) for i in (1, 2, 3)],
        "observers": [],
    } | different


def observer(node_id: int, **different: Any) -> dict[str, Any]:
    return voter(node_id, directory_id=f"new{node_id}", role="observer") | different


def nodes(*quorums: Mapping[str, Any] | None, ready: Mapping[str, Any] = READY) -> list[NodeAnswers]:
    return [
        NodeAnswers(url=f"http://h:{place}", quorum=told, ready=None if told is None else ready)
        for place, told in enumerate(quorums, 1)
    ]


ALL = nodes(quorum(1), quorum(2), quorum(3))
LEFT = [NodeAnswers(url="http://left:1", quorum=None, ready=None)]
"""An address where no controller answers any more."""
ONLINE = [{"broker_id": broker_id, "state": "ONLINE"} for broker_id in (11, 12)]
STALLED = {"code": "DISK_STALLED", "detail": "a sync runs for 900 ms"}
CLAIMS = {"ready": False, "reasons": [{"code": "NOT_ACTIVE", "detail": "it claims"}], "recent_warnings": []}
NOT_READY = {"ready": False, "reasons": [STALLED], "recent_warnings": []}
AWAY = voter(2, reachable=False, last_caught_up_ms_ago=None, lag_records=None)
KNOWN = quorum(1, voters=[voter(1), voter(2, http="http://h:2"), voter(3)])
BEHIND = voter(3, last_caught_up_ms_ago=9_000)
NEVER = voter(3, last_caught_up_ms_ago=None, lag_records=None)
LEVEL = voter(3, last_caught_up_ms_ago=None)


def all_of(*rows: dict[str, Any], ready: Mapping[str, Any] = READY, **different: Any) -> list[NodeAnswers]:
    """Return answers of all three, the leader saying `rows` of those that differ."""
    voters = [next((row for row in rows if row["id"] == i), voter(i)) for i in (1, 2, 3)]
    said = [quorum(1, voters=voters, **different), quorum(2), quorum(3)]
    return [*nodes(said[0], ready=ready), *nodes(*said[1:])]


@pytest.mark.parametrize(
    ("answers", "brokers", "expected", "health", "codes"),
    [
        (ALL, ONLINE, None, "green", []),
        (ALL, ONLINE, 2, "green", []),
        (ALL, [], None, "yellow", ["NO_BROKER"]),
        (ALL, [], 0, "green", []),
        (ALL, ONLINE, 3, "yellow", ["BROKERS_MISSING"]),
        (nodes(KNOWN, None, quorum(3)), ONLINE, None, "yellow", ["CONTROLLER_UNREACHABLE"]),
        (nodes(quorum(1), quorum(3)), ONLINE, None, "yellow", ["CONTROLLER_UNREACHABLE"]),
        (all_of(ready=NOT_READY), ONLINE, None, "yellow", ["DISK_STALLED"]),
        (all_of(AWAY, BEHIND), ONLINE, None, "yellow", ["VOTER_UNREACHABLE", "VOTER_BEHIND"]),
        (all_of(NEVER), ONLINE, None, "yellow", ["VOTER_BEHIND"]),
        (all_of(NEVER, ready=CLAIMS), ONLINE, None, "yellow", ["NOT_ACTIVE"]),
        (all_of(LEVEL), ONLINE, None, "green", []),
        (ALL, [*ONLINE, {"broker_id": 13, "state": "FENCED"}], None, "yellow", ["BROKER_FENCED"]),
        (ALL, [{"broker_id": 13, "state": "OFFLINE"}], None, "red", ["NO_BROKER_ONLINE", "BROKER_OFFLINE"]),
        (ALL, None, None, "red", ["NO_ACTIVE_CONTROLLER"]),
        (nodes(None), None, None, "red", ["NO_ACTIVE_CONTROLLER", "CONTROLLER_UNREACHABLE"]),
        ([*ALL, *LEFT], ONLINE, None, "yellow", ["ADDRESS_OUTDATED"]),
        (
            nodes(quorum(1), quorum(2, cluster_id="d"), quorum(3)),
            ONLINE,
            None,
            "red",
            ["INCONSISTENT_CLUSTER_ID"],
        ),
        (
            nodes(quorum(1), quorum(2, digest={"end_offset": 10, "value": "bb"}), quorum(3)),
            ONLINE,
            None,
            "red",
            ["DIGESTS_DIFFER"],
        ),
        (all_of(digest={"end_offset": 9, "value": "bb"}), ONLINE, None, "green", []),
        (all_of(change_pending=True), ONLINE, None, "yellow", ["CHANGE_PENDING"]),
        (all_of(observers=[observer(4)]), ONLINE, None, "green", []),
        (
            nodes(quorum(1, observers=[observer(3)]), quorum(2)),
            ONLINE,
            None,
            "yellow",
            ["CONTROLLER_UNREACHABLE", "NOT_A_VOTER"],
        ),
        (all_of(observers=[observer(3)]), ONLINE, None, "green", []),
    ],
)
def test_health(
    answers: list[NodeAnswers],
    brokers: list[dict[str, Any]] | None,
    expected: int | None,
    health: str,
    codes: list[str],
) -> None:
    judged = judge(answers, brokers, broker_ready={11: READY}, expect_brokers=expected)
    assert (judged["health"], judged["recent_warnings"]) == (health, [])
    assert [reason["code"] for reason in judged["reasons"]] == codes


def test_a_voter_that_was_not_asked_is_named() -> None:
    known = quorum(1, voters=[voter(1), voter(2), voter(3, http="http://h:3")])
    answers = [*nodes(known), NodeAnswers(url="http://h:3", quorum=None, ready=None)]
    judged = judge(answers, ONLINE, broker_ready={}, expect_brokers=None)
    assert [reason["detail"] for reason in judged["reasons"]] == [
        "http://h:3 does not answer",
        "controller 2 was not asked: where it answers is not known",
    ]


def test_a_broker_that_is_not_online_is_named_with_the_command_that_says_why() -> None:
    away: list[dict[str, Any]] = [*ONLINE, {"broker_id": 13, "state": "FENCED"}]
    (reason,) = judge(ALL, away, broker_ready={11: READY}, expect_brokers=None)["reasons"]
    assert reason["detail"] == "broker 13 is FENCED: brokers explain 13"


def test_a_broker_says_itself_what_it_met() -> None:
    set_aside = {"code": "CACHE_SET_ASIDE", "detail": "damage in segment 0"}
    said = READY | {"reasons": [set_aside]}
    judged = judge(ALL, ONLINE, broker_ready={11: READY, 12: said}, expect_brokers=None)
    assert judged["health"] == "yellow"
    assert judged["reasons"] == [
        {"code": "CACHE_SET_ASIDE", "detail": "broker 12: damage in segment 0"},
    ]


def test_recent_warnings_are_listed_and_change_no_colour() -> None:
    dropped = {"code": "RAFT_LINK_DROPPED", "detail": "peer_id 2", "count": 3, "ms_ago": 12_000}
    late = {"code": "SESSION_CHECKS_LATE", "detail": "", "count": 1, "ms_ago": 5}
    answers = all_of(ready=READY | {"recent_warnings": [dropped, late]})
    judged = judge(
        answers, ONLINE, broker_ready={11: READY | {"recent_warnings": [late]}}, expect_brokers=None
    )
    assert (judged["health"], judged["reasons"]) == ("green", [])
    assert judged["recent_warnings"] == [
        {"code": "RAFT_LINK_DROPPED", "detail": "controller 1: 3 times, the last 12s ago: peer_id 2"},
        {"code": "SESSION_CHECKS_LATE", "detail": "controller 1: 5ms ago"},
        {"code": "SESSION_CHECKS_LATE", "detail": "broker 11: 5ms ago"},
    ]


def test_a_warning_is_as_old_as_it_is_when_it_is_shown() -> None:
    """Another node answered 40 s later, and only then is anything shown."""
    fenced = {"code": "BROKER_FENCED", "detail": "broker_id 13", "count": 1, "ms_ago": 228}
    ready = READY | {"recent_warnings": [fenced]}
    (node,) = [replace(each, answered_s=100.0).aged(140.0) for each in nodes(quorum(1), ready=ready)]
    judged = judge([node], ONLINE, broker_ready={11: aged(ready, 40.0)}, expect_brokers=None)
    assert judged["recent_warnings"] == [
        {"code": "BROKER_FENCED", "detail": f"{who}: 40s ago: broker_id 13"}
        for who in ("controller 1", "broker 11")
    ]
    assert ready["recent_warnings"] == [fenced], "the answer itself is not changed"
    assert nodes(None)[0].aged(140.0).ready is None


def test_a_condition_that_lasts_is_no_recent_warning_too() -> None:
    warning = {"code": "DISK_STALLED", "detail": "stalled_ms 700", "count": 1, "ms_ago": 90}
    judged = judge(
        all_of(ready=NOT_READY | {"recent_warnings": [warning]}),
        ONLINE,
        broker_ready={},
        expect_brokers=None,
    )
    assert ([reason["code"] for reason in judged["reasons"]], judged["recent_warnings"]) == (
        ["DISK_STALLED"],
        [],
    )


def test_the_status_is_the_leaders_view_completed_by_what_others_say_of_themselves() -> None:
    leader = quorum(1, voters=[voter(1), voter(2, end_offset=None, lag_records=None), voter(3)])
    follower = quorum(
        2, high_watermark=7, voters=[voter(1), voter(2, end_offset=7, log_start_offset=3), voter(3)]
    )
    status = merged_status(nodes(follower, leader, None))
    assert status is not None
    assert set(status) == {
        *(
            "cluster_id",
            "leader_id",
            "controller_epoch",
            "high_watermark",
            "log_start_offset",
            "digest",
            "change_pending",
            "voters",
            "observers",
        ),
    }
    assert status["high_watermark"] == 10
    second = status["voters"][1]
    assert (second["end_offset"], second["log_start_offset"], second["lag_records"]) == (7, 3, 3)


def test_a_wiped_controller_speaks_for_its_new_disk_only() -> None:
    voters = [voter(1), voter(2), voter(3, end_offset=None, role=None, reachable=False)]
    leader = quorum(1, voters=voters, observers=[observer(3, end_offset=None, lag_records=None)])
    status = merged_status(nodes(leader, quorum(3, voters=voters, observers=[observer(3, end_offset=7)])))
    assert status is not None
    assert [row["end_offset"] for row in status["voters"]] == [10, 10, None]
    assert [(row["end_offset"], row["lag_records"]) for row in status["observers"]] == [(7, 3)]


def test_without_a_leader_the_furthest_speaks() -> None:
    behind, ahead = quorum(2, leader_id=-1, high_watermark=7), quorum(3, leader_id=-1)
    status = merged_status(nodes(None, behind, ahead))
    assert status is not None
    assert (status["leader_id"], status["high_watermark"]) == (-1, 10)
    assert merged_status(nodes(None, None)) is None


def test_disagreements_are_told() -> None:
    """C8"""
    assert disagreements(ALL) == []
    split = nodes(quorum(1), quorum(2, leader_id=-1), quorum(3, digest={"end_offset": 10, "value": "bb"}))
    who, digests = disagreements(split)
    assert "controller 1 says controller 1, controller 2 says nobody" in who
    assert "controllers 1 and 3 hold different states at end offset 10" in digests


def test_two_leaders_by_voters_of_their_own_are_two_quorums() -> None:
    recovered = quorum(1, voters=[voter(1, directory_id="new1")], controller_epoch=100_004)
    old = quorum(2, leader_id=2, controller_epoch=5)
    told = judge(nodes(recovered, old), ONLINE, broker_ready={}, expect_brokers=None)
    assert told["health"] == "red"
    (why,) = [one["detail"] for one in told["reasons"] if one["code"] == "SECOND_QUORUM"]
    assert "controllers 1 (epoch 100004, directory new1) and 2 (epoch 5, directory d2) both lead" in why
    deposed = judge(nodes(quorum(1), quorum(2, leader_id=2)), ONLINE, broker_ready={}, expect_brokers=None)
    assert "SECOND_QUORUM" not in {one["code"] for one in deposed["reasons"]}


def test_what_has_expired_is_red_by_name_wherever_it_is_found() -> None:
    """Goal: case 03. Method: a controller that this client refuses, one that says it itself, a broker, and the client."""
    expired = [{"code": "CERTIFICATE_EXPIRED", "detail": "/tls/c.crt: expired at 2026-11-27T00:00:00Z"}]
    refused = NodeAnswers(
        url="https://h:2",
        quorum=None,
        ready=None,
        failure="TLS failed: x",
        failure_code="CERTIFICATE_EXPIRED",
    )
    for asked, failures in (
        ([*nodes(quorum(1), quorum(3)), refused], {}),
        (all_of(ready=READY | {"reasons": expired}), {}),
        (ALL, {11: ("CERTIFICATE_EXPIRED", "certificate has expired")}),
    ):
        judged = judge(asked, ONLINE, broker_ready={}, broker_failures=failures, expect_brokers=None)
        assert judged["health"] == "red"
        assert judged["reasons"][0]["code"] == "CERTIFICATE_EXPIRED"
    own = (Dated("CERTIFICATE", "/tls/admin.crt", 0, 10_000_000),)
    for left_s, health in ((86_400, "yellow"), (20 * 86_400, "green")):
        judged = judge(ALL, ONLINE, broker_ready={}, expect_brokers=None, own=own, now_s=10_000_000 - left_s)
        assert judged["health"] == health
        assert [reason["code"] for reason in judged["reasons"]] == (
            ["CERTIFICATE_ENDS_SOON"] if health == "yellow" else []
        )
