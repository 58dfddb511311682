"""Edge: which release each node runs."""

import json

import pytest

from metadata_log.node.release import VERSION
from ops import cli
from tests.support.told_node import Reply, Seen, node
from tests.unit.ops.admin.test_health import quorum, voter

READY = json.dumps({"ready": True, "reasons": []}).encode()


def test_the_client_knows_its_own_release(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version", "--client", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"node": "client", "version": VERSION, "address": None}]


def test_every_node_says_which_release_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with node() as broker, node() as controller:
        host, port = broker.url.removeprefix("http://").split(":")
        endpoint = {"host": host, "port": int(port), "security_protocol": 0}

        def answer(seen: Seen) -> Reply:
            match seen.path.partition("?")[0]:
                case "/v1/quorum":
                    return Reply(
                        body=json.dumps(quorum(1, voters=[voter(1)]) | {"version": "1.2.3"}).encode()
                    )
                case "/readyz":
                    return Reply(body=READY)
            items = [{"broker_id": 11, "endpoints": [endpoint]}, {"broker_id": 12, "endpoints": []}]
            return Reply(body=json.dumps({"items": items}).encode())

        controller.answer = answer
        broker.answer = lambda _: Reply(body=b'{"version": "1.2.2"}')
        assert cli.main(["version", "-o", "json", "--bootstrap", controller.url]) == 0
        shown = capsys.readouterr()
        assert [seen.authorization for seen in broker.seen] == [None]
    assert {one["node"]: one["version"] for one in json.loads(shown.out)} == {
        "client": VERSION,
        "controller 1": "1.2.3",
        "broker 11": "1.2.2",
        "broker 12": None,
    }
    assert "3 versions run" in shown.err


def test_a_silent_controller_has_the_id_by_which_the_others_name_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with node() as silent, node() as unknown, node() as controller:
        voters = [voter(1), voter(2) | {"http": silent.url}]
        told = {"/v1/quorum": quorum(1, voters=voters), "/readyz": {"ready": True, "reasons": []}}
        controller.answer = lambda seen: Reply(
            body=json.dumps(told.get(seen.path.partition("?")[0], {"items": []})).encode()
        )
        silent.answer = unknown.answer = lambda _: Reply(status=503, body=b"{}")
        urls = f"{controller.url},{silent.url},{unknown.url}"
        assert cli.main(["version", "-o", "json", "--bootstrap", urls]) == 0
    found = {one["address"]: one["node"] for one in json.loads(capsys.readouterr().out)}
    assert found[silent.url] == "controller 2"
    assert found[unknown.url] == "controller"
