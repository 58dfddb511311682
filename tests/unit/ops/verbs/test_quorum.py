"""Edge: `quorum status` over what several nodes say: observers, a change in flight, and a leader that the list lacks."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from metadata_log.errors import AuthenticationFailed, NotAuthorized
from metadata_log.node.addresses import http_url
from metadata_log.node.identity.tls import Tls
from metadata_log.replay.controller_client import Shown, controllers
from ops import cli
from tests.support.told_node import CutOff, Node, Reply, Seen, error, node, not_controller
from tests.unit.metadata_log.node.identity.test_tls import CLUSTER, authority, serving
from tests.unit.ops.admin.test_health import observer, quorum, voter

ALONE = quorum(1, voters=[voter(1)])
STALLED = b'{"ready":false,"reasons":[{"code":"DISK_STALLED","detail":"a sync runs"}],"recent_warnings":[]}'
READY = b'{"ready":true,"reasons":[],"recent_warnings":[]}'


IDLE: dict[str, Any] = {"broker_id": 9, "state": "ONLINE", "endpoints": []}


def speak(
    told: Node, said: dict[str, Any], *, leader: str | None, brokers: Sequence[dict[str, Any]] = (IDLE,)
) -> None:
    """Let a node say `said` of the quorum, and send whoever reads to `leader`."""

    def answer(seen: Seen) -> Reply:
        if seen.path == "/v1/quorum":
            return Reply(body=json.dumps(said).encode())
        if seen.path == "/readyz":
            return Reply(body=READY)
        items = json.dumps({"items": list(brokers)}).encode()
        return Reply(body=items) if leader == told.url else not_controller(leader)

    told.answer = answer


def cut_off(_: Seen) -> Reply:
    raise CutOff


def test_the_table_shows_observers_and_a_change_in_flight(capsys: pytest.CaptureFixture[str]) -> None:
    """B90"""
    with node() as told:
        said = quorum(1, observers=[observer(4, end_offset=7, lag_records=3)], change_pending=True)
        speak(told, said, leader=told.url)
        assert cli.main(["quorum", "status", "-o", "wide", "--bootstrap", told.url]) == 0
    head, table = capsys.readouterr().out.split("\n\n")
    assert "voters            a change is in flight" in head.splitlines()
    rows = [line.split() for line in table.splitlines()]
    assert rows[0][-1] == "DIRECTORY"
    assert [row[:2] for row in rows[1:]] == [
        ["1", "leader"],
        ["2", "follower"],
        ["3", "follower"],
        ["4", "observer"],
    ]
    assert rows[-1][-1] == "new4"


def test_b69_below_the_table_stands_which_observer_is_gone_and_since_when(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = {"id": 4, "directory_id": "old4", "last_fetch_ms_ago": 250_000, "last_caught_up_ms_ago": 251_000}
    with node() as told:
        linked = observer(5) | {"last_fetch_ms_ago": 2_000}
        speak(told, quorum(1, observers=[linked], observers_gone=[gone]), leader=told.url)
        assert cli.main(["quorum", "status", "-o", "wide", "--bootstrap", told.url]) == 0
    *_, row, last = capsys.readouterr().out.splitlines()
    assert "  2s ago  " in row
    assert last == "observer 4 is gone: its last fetch was 4m10s ago"


def test_below_the_table_stands_who_is_locked_out_and_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    """The leader says so of a voter whose messages it refuses; of itself, a controller that follows nobody says it."""
    with node() as leader, node() as alone:
        rows = [voter(1), voter(2, locked_out="its messages are refused"), voter(3, http=alone.url)]
        speak(leader, quorum(1, voters=rows), leader=leader.url)
        own = [voter(1), voter(2), voter(3, locked_out="controller 1 leads in a lower term")]
        speak(alone, quorum(3, leader_id=-1, voters=own), leader=leader.url)
        assert cli.main(["quorum", "status", "--bootstrap", f"{leader.url},{alone.url}"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "controller 2: its messages are refused",
        "controller 3: controller 1 leads in a lower term",
    ]


def test_controllers_that_the_list_lacks_are_asked_too(capsys: pytest.CaptureFixture[str]) -> None:
    """They became voters after the list was written, 4 leads, and it alone knows where observer 5 answers."""
    with node() as listed, node() as leader, node() as third, node() as watcher:
        rows = [voter(1), voter(3, http=third.url), voter(4, http=leader.url, role="leader")]
        ahead = [voter(1), voter(3, http=third.url, end_offset=12), rows[2]]
        speak(listed, quorum(1, leader_id=4, voters=rows), leader=leader.url)
        observers = [observer(5, http=watcher.url)]
        said = quorum(4, leader_id=4, high_watermark=12, voters=ahead, observers=observers)
        speak(leader, said, leader=leader.url)
        speak(third, quorum(3, leader_id=4, voters=ahead), leader=leader.url)
        speak(watcher, quorum(5, leader_id=4, voters=rows), leader=leader.url)
        assert cli.main(["quorum", "status", "--json", "--bootstrap", listed.url]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["leader_id"], told["high_watermark"], told["voters"][1]["end_offset"]) == (4, 12, 12)
        assert cli.main(["quorum", "health", "--bootstrap", listed.url]) == 0
        sound = third.answer
        third.answer = lambda seen: Reply(503, STALLED) if seen.path == "/readyz" else sound(seen)
        assert cli.main(["quorum", "health", "--bootstrap", listed.url]) == 10
        assert "DISK_STALLED: controller 3" in capsys.readouterr().out
        for each in (listed, leader, third, watcher):
            assert [seen.path for seen in each.seen].count("/readyz") == 3


def test_an_answer_that_waits_for_that_of_another_node_grows_old(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: while the brokers are listed, 40 s pass by the verb's clock."""
    fenced = {"code": "BROKER_FENCED", "detail": "broker_id 13", "count": 1, "ms_ago": 228}
    now_s = 100.0
    monkeypatch.setattr("ops.admin.survey.time", SimpleNamespace(monotonic=lambda: now_s, time=time.time))
    with node() as leader:
        speak(leader, quorum(1, voters=[voter(1)]), leader=leader.url)
        sound = leader.answer

        def answer(seen: Seen) -> Reply:
            nonlocal now_s
            if seen.path == "/v1/brokers":
                now_s += 40
            if seen.path == "/readyz":
                ready = {"ready": True, "reasons": [], "recent_warnings": [fenced]}
                return Reply(body=json.dumps(ready).encode())
            return sound(seen)

        leader.answer = answer
        assert cli.main(["quorum", "health", "--bootstrap", leader.url]) == 0
    assert "  recent warning: BROKER_FENCED: controller 1: 40s ago: broker_id 13" in capsys.readouterr().out


def test_a_voter_that_the_list_lacks_and_that_is_silent_is_a_finding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with node() as leader, node() as silent:
        silent.answer = cut_off
        speak(leader, quorum(1, voters=[voter(1), voter(2, http=silent.url)]), leader=leader.url)
        assert cli.main(["quorum", "health", "--bootstrap", leader.url]) == 10
        assert f"CONTROLLER_UNREACHABLE: {silent.url} does not answer" in capsys.readouterr().out


def test_a_status_that_nobody_answers_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    with node() as silent:
        silent.answer = lambda _: Reply(body=b"[]")
        assert cli.main(["quorum", "status", "--bootstrap", silent.url]) == 4
    assert cli.main(["quorum", "status", "--bootstrap", silent.url]) == 4
    assert [
        line.partition("no controller answers: ")[2] for line in capsys.readouterr().err.splitlines()
    ] == [
        f"{silent.url} {NOBODY}",
        f"{silent.url} does not answer (Connection refused)",
    ]


def test_without_a_leader_nobody_is_searched_for(capsys: pytest.CaptureFixture[str]) -> None:
    with node() as told:
        speak(told, quorum(1, leader_id=-1), leader=None)
        assert cli.main(["quorum", "status", "--bootstrap", told.url]) == 4
        assert [seen.path for seen in told.seen] == ["/v1/quorum", "/readyz"]
    said = capsys.readouterr()
    assert "none known" in said.out
    assert "NOT_CONTROLLER: no controller leads now" in said.err


BROKEN = error("UNKNOWN_SERVER_ERROR", 500, family="Fault")
NOBODY = "answers /v1/quorum with 200, and not as a controller does"


@pytest.mark.parametrize(
    ("path", "reply", "said"),
    [
        ("/readyz", BROKEN, "answers /readyz with 500, and not as a controller does"),
        ("/readyz", Reply(body=b"ok"), "answers /readyz with 200, and not as a controller does"),
        ("/v1/quorum", BROKEN, "answers /v1/quorum with 500, and not as a controller does"),
        ("/v1/quorum", Reply(), NOBODY),
        ("/v1/quorum", Reply(body=b"[]"), NOBODY),
        ("/v1/quorum", Reply(body=json.dumps(quorum(2, voters=[{"id": 2}])).encode()), NOBODY),
    ],
)
def test_one_that_answers_otherwise_hides_nothing_of_the_rest(
    path: str, reply: Reply, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a half-dead controller, or another program at its address, is a finding and ends no command."""
    with node() as broken, node() as leader:
        speak(leader, quorum(1, voters=[voter(1), voter(2)]), leader=leader.url)
        speak(broken, quorum(2, voters=[voter(1), voter(2)]), leader=leader.url)
        sound = broken.answer
        broken.answer = lambda seen: reply if seen.path == path else sound(seen)
        urls = f"{broken.url},{leader.url}"
        assert cli.main(["quorum", "health", "--bootstrap", urls]) == 10
        assert f"  CONTROLLER_UNREACHABLE: {broken.url} {said}" in capsys.readouterr().out.splitlines()
        assert cli.main(["quorum", "status", "--bootstrap", urls]) == 0


@pytest.mark.parametrize(
    "reply",
    [BROKEN, Reply(), error("INVALID_REQUEST", 404)],
    ids=["fault", "of another shape", "refused"],
)
def test_one_that_cannot_list_brokers_leaves_it_to_another(reply: Reply) -> None:
    """The one that leads does not say so yet, so that the broken one is asked first."""
    with node() as broken, node() as leader:
        for place, told in enumerate((broken, leader), 1):
            speak(told, quorum(place, leader_id=-1, voters=[voter(1), voter(2)]), leader=leader.url)
        sound = broken.answer
        broken.answer = lambda seen: reply if seen.path == "/v1/brokers" else sound(seen)
        assert cli.main(["quorum", "health", "--bootstrap", f"{broken.url},{leader.url}"]) == 0


@pytest.mark.parametrize("reply", [BROKEN, Reply()], ids=["fault", "of another shape"])
def test_a_leader_that_cannot_list_brokers_is_a_finding(
    reply: Reply, capsys: pytest.CaptureFixture[str]
) -> None:
    with node() as leader:
        speak(leader, quorum(1, voters=[voter(1)]), leader=leader.url)
        sound = leader.answer
        leader.answer = lambda seen: reply if seen.path == "/v1/brokers" else sound(seen)
        assert cli.main(["quorum", "health", "--bootstrap", leader.url]) == 20
    assert "NO_ACTIVE_CONTROLLER" in capsys.readouterr().out


def broker_at(broker_id: int, url: str, state: str = "ONLINE") -> dict[str, Any]:
    parts = urlsplit(url)
    endpoint = {"name": "PLAINTEXT", "host": parts.hostname, "port": parts.port, "security_protocol": 0}
    return {"broker_id": broker_id, "state": state, "endpoints": [endpoint]}


def test_brokers_are_asked_what_they_met(capsys: pytest.CaptureFixture[str]) -> None:
    aside = b'{"ready":true,"reasons":[{"code":"CACHE_SET_ASIDE","detail":"damage"}],"recent_warnings":[]}'
    with node() as controller, node() as damaged, node() as gone:
        damaged.answer = lambda _: Reply(body=aside)
        brokers = [broker_at(101, damaged.url), broker_at(102, gone.url, "OFFLINE")]
        speak(controller, ALONE, leader=controller.url, brokers=brokers)
        assert cli.main(["quorum", "health", "--bootstrap", controller.url]) == 10
        assert [seen.path for seen in damaged.seen] == ["/readyz"]
        assert gone.seen == []
    assert "  CACHE_SET_ASIDE: broker 101: damage" in capsys.readouterr().out.splitlines()


def test_a_broker_is_not_shown_the_token(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a broker registers any endpoint, and does not learn an admin's token by it. Its answer without
    details still counts.
    """
    monkeypatch.setenv("METAQUORUM_TOKEN", "t" * 43)
    aside = b'{"ready":true,"reasons":[{"code":"CACHE_SET_ASIDE"}]}'
    with node() as controller, node() as broker:
        broker.answer = lambda _: Reply(body=aside)
        speak(controller, ALONE, leader=controller.url, brokers=[broker_at(101, broker.url)])
        assert cli.main(["quorum", "health", "--insecure", "--bootstrap", controller.url]) == 10
        assert [seen.authorization for seen in broker.seen] == [None]
        assert {seen.authorization for seen in controller.seen} == {f"Bearer {'t' * 43}"}
    assert "  CACHE_SET_ASIDE: broker 101: its log has the details" in capsys.readouterr().out


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\x01",
        b"[]",
        b'{"ready":true}',
        b'{"ready":true,"reasons":[1],"recent_warnings":[]}',
        b'{"ready":true,"reasons":[],"recent_warnings":[{"code":"X"}]}',
    ],
)
def test_a_broker_of_another_kind_is_judged_by_its_state_alone(body: bytes) -> None:
    with node() as controller, node() as foreign:
        foreign.answer = lambda _: Reply(body=body)
        brokers = [broker_at(101, foreign.url), broker_at(102, "http://127.0.0.1:1")]
        brokers.append({"broker_id": 103, "state": "ONLINE", "endpoints": []})
        speak(controller, ALONE, leader=controller.url, brokers=brokers)
        assert cli.main(["quorum", "health", "--bootstrap", controller.url]) == 0


@pytest.mark.parametrize(("flags", "code"), [(["--to", "2"], 0), ([], 5)])
def test_a_transfer_is_repeated_where_it_names_who_shall_lead(flags: list[str], code: int) -> None:
    with node() as dying, node() as successor:
        dying.answer = lambda seen: cut_off(seen) if seen.method == "POST" else Reply()
        successor.answer = lambda _: Reply(body=b'{"leader_id":2}')
        assert cli.main(["quorum", "transfer", *flags, "--bootstrap", f"{dying.url},{successor.url}"]) == code
        assert [json.loads(seen.body) for seen in successor.seen] == [{"to": 2}] * (code == 0)


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [("SASL_AUTHENTICATION_FAILED", 401, 58), ("CLUSTER_AUTHORIZATION_FAILED", 403, 31)],
)
def test_the_health_of_a_cluster_that_refuses_the_client_is_not_red_but_not_known(
    capsys: pytest.CaptureFixture[str], name: str, status: int, code: int
) -> None:
    """It was red, exit code 20: no reason to wake anybody is a missing --cert."""
    with node() as first, node() as second:
        for told in (first, second):
            told.answer = lambda _: error(name, status, code=code)
        assert cli.main(["quorum", "health", "--bootstrap", f"{first.url},{second.url}"]) == 3
        assert f"because {name}" in capsys.readouterr().err
        second.answer = cut_off
        assert cli.main(["quorum", "health", "--bootstrap", f"{first.url},{second.url}"]) == 20
        assert f"refuses this client: because {name}" in capsys.readouterr().out


async def test_a_node_that_the_client_does_not_trust_is_not_known_and_not_red(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --ca, and with that of another cluster: the cure is named, and nobody is woken up."""
    ours, foreign = authority(tmp_path / "ours"), authority(tmp_path / "foreign")
    tls = Tls(ours.certify("controller", "1"), cluster_id=CLUSTER)
    async with serving(tls) as address:
        at = ["--bootstrap", http_url(address, tls=True)]
        for words, cure in (
            (["quorum", "health"], "name the authority of the nodes: --ca FILE"),
            (["quorum", "status"], "name the authority of the nodes: --ca FILE"),
            (["certificates", "list"], "name the authority of the nodes: --ca FILE"),
            (["quorum", "health", "--ca", str(foreign.ca)], "--ca names another authority"),
        ):
            assert await asyncio.to_thread(cli.main, [*words, *at]) == 3, words
            said = capsys.readouterr()
            assert "this client does not trust the node" in said.err and cure in said.err
            assert said.out == ""
        with pytest.raises(AuthenticationFailed, match=r"is not trusted: .*: ca names another authority"):
            await asyncio.to_thread(controllers(at[1], Shown(ca=foreign.ca)).status)
        for words, cure in (
            (["topics", "list"], "; name the authority of the nodes: --ca FILE"),
            (["topics", "list", "--ca", str(foreign.ca)], "; --ca names another authority"),
        ):
            assert await asyncio.to_thread(cli.main, [*words, *at]) == 4, words
            assert cure in capsys.readouterr().err


async def test_a_certificate_that_no_node_takes_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: no verb waits for what asking again does not change; a write is not said to be perhaps carried out."""
    ours, foreign = authority(tmp_path / "ours"), authority(tmp_path / "foreign")
    shown = foreign.certify("user", "anna")
    tls = Tls(ours.certify("controller", "1"), cluster_id=CLUSTER)
    async with serving(tls) as address:
        at = ["--bootstrap", http_url(address, tls=True), "--ca", str(ours.ca), "--timeout", "1h"]
        at += ["--cert", str(shown.certificate), "--key", str(shown.key)]
        for words in (
            ["topics", "list"],
            ["topics", "create", "t"],
            ["quorum", "status"],
            ["quorum", "health"],
        ):
            assert await asyncio.to_thread(cli.main, [*words, *at]) == 3, words
            said = capsys.readouterr().err
            assert "unknown ca" in said and "--cert FILE --key FILE" in said, said
        files = Shown(ca=ours.ca, cert=shown.certificate, key=shown.key)
        with pytest.raises(NotAuthorized, match="unknown ca"):
            await asyncio.to_thread(controllers(http_url(address, tls=True), files).status)


def test_an_election_is_not_waited_for_where_no_controller_has_led_for_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ops.admin.survey.ELECTED_S", 3_600.0)
    with node() as alone:
        speak(alone, ALONE | {"leader_id": -1}, leader=None)
        asked = alone.answer

        def answer(seen: Seen) -> Reply:
            reply = asked(seen)
            return replace(reply, headers={**reply.headers, "X-Leaderless-Ms": "1000"})

        alone.answer = answer
        assert cli.main(["quorum", "health", "--bootstrap", alone.url, "--timeout", "2h"]) == 20
    assert "NO_ACTIVE_CONTROLLER" in capsys.readouterr().out


@pytest.mark.parametrize("verb", [["quorum", "status"], ["certificates", "list"]])
def test_what_refuses_this_client_is_a_refusal(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with node() as told:
        told.answer = lambda _: error("SASL_AUTHENTICATION_FAILED", 401, code=58)
        assert cli.main([*verb, "--bootstrap", told.url]) == 3
    assert "SASL_AUTHENTICATION_FAILED" in capsys.readouterr().err
