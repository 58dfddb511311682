"""Edge: each route with no, the wrong and the right identity."""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from metadata_log.codec import decode_all
from metadata_log.errors import InvalidSettings, NotAuthorized
from metadata_log.limits import IDENTITY_CHECK_S
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.routes import rights_of
from metadata_log.node.http.server import listen
from metadata_log.node.identity import access as access_module
from metadata_log.node.identity.access import Access, Peer, unnamed
from metadata_log.node.identity.certified_names import name_in
from metadata_log.node.identity.rights import NOBODY, ROLES, Right
from metadata_log.wire.fetch import OBSERVER
from quorum.decide.registry import BY_OPERATION, OPERATIONS
from quorum.http.app import ROUTES, RULES, DoorRunner
from quorum.http.metrics import exposition
from quorum.http.poll_connection import poll_connections
from quorum.kafka.apis import APIS
from quorum.node.config import AclSettings
from quorum.node.registration import registration_of
from tests.support.desk import NO_ACLS, Desk, DoorServer
from tests.support.lab import Lab, online, registration, settings, uuid
from tests.support.no_http import refuses_what_is_no_http

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
WHO = {
    "User:admin": "admin",
    "User:reader": "reader",
    "Broker:11": "broker",
    "Controller:2": "controller",
}
NODES = WHO | {"User:broker": "broker", "User:controller": "controller", "Broker:3": "controller"}
"""Also principals that have a node's role, and are not the node."""
NOT_DECIDED_HERE = 401, 403


def token(name: str) -> str:
    return f"token-of-{name.replace(':', '-')}-0123456789"


def principals(path: Path, who: dict[str, str] = WHO) -> Path:
    rows = [
        f'[[principals]]\nname = "{name}"\nroles = {json.dumps([role] if role else [])}\n'
        f'token_sha256 = "{hashlib.sha256(token(name).encode()).hexdigest()}"\n'
        for name, role in who.items()
    ]
    path.write_text("".join(rows))
    return path


Ask = Callable[..., Awaitable[tuple[int, Any]]]


@asynccontextmanager
async def behind_tokens(
    directory: Path, who: dict[str, str] = WHO, acls: AclSettings = NO_ACLS
) -> AsyncIterator[tuple[Desk, Ask]]:
    lab = Lab()
    lab.lead(1)
    lab.quorum.commit()
    desk = Desk(lab, directory, principals=principals(directory / "principals.toml", who), acls=acls)
    async with TestClient[web.Request, web.Application](DoorServer(desk.door)) as client:

        async def ask(
            method: str,
            path: str,
            who: str | None,
            body: Any = None,
            *,
            packed: bool = False,
            **headers: str,
        ) -> tuple[int, Any]:
            if who is not None:
                headers["Authorization"] = f"Bearer {who if who.startswith('no') else token(who)}"
            headers["Content-Type"] = "application/msgpack" if packed else "application/json"
            data = None if body is None else msgpack.packb(body) if packed else json.dumps(body).encode()
            asking = asyncio.ensure_future(client.request(method, path, data=data, headers=headers))
            while not asking.done():
                await asyncio.sleep(0.001)
                lab.quorum.commit()
            async with await asking as answer:
                raw = await answer.read()
                if packed:
                    return answer.status, msgpack.unpackb(raw)
                return (
                    answer.status,
                    await answer.json() if answer.content_type == "application/json" else raw,
                )

        yield desk, ask


def test_each_route_is_in_the_table_once_and_a_write_needs_the_right_of_its_operation() -> None:
    assert len(RULES) == len(ROUTES)
    assert Right.TOKEN not in {right for rights in ROLES.values() for right in rights}
    offered = {
        *(route.operation for route in ROUTES),
        *(api.operation for api in APIS.values() if api.operation is not None),
    }
    of_items = {"DescribeTokenOf", "DescribeTokensOf"}  # asked for each token of a list
    assert OPERATIONS.keys() - BY_OPERATION.keys() - of_items <= offered <= OPERATIONS.keys()
    assert {route.operation for route in ROUTES if route.method == "GET"}.isdisjoint(BY_OPERATION)
    others = {route.operation for route in ROUTES if route.method != "GET"} - BY_OPERATION.keys()
    assert others == {"Batch", "Fetch", "LogIn", "TakeSnapshot", "TransferLeadership"}


async def test_every_route_with_no_the_wrong_and_the_right_identity(tmp_path: Path) -> None:
    async with behind_tokens(tmp_path) as (desk, ask):
        await online(desk.lab, desk.controller, 11)  # for bytes of the log
        end_offset = desk.controller.committed.end_offset
        for (method, pattern), right in sorted(rights_of(RULES).items()):
            if pattern == "/v1/events" or (pattern == "/v1/session" and method != "GET"):
                continue  # test_events.py: its answer has no end; test_console.py
            path = (
                pattern.replace("/console/{name}", "/console/main.js")
                .replace("{id}", "7")
                .replace("{name}", "t")
            )
            body: Any = None if method == "GET" else {}
            packed = right in (Right.BROKER, Right.CONTROLLER) or pattern == "/v1/metadata/fetch"
            for who in (None, "nobody's-token-0123456789", *WHO):
                status, answer = await ask(method, path, who, body, packed=packed)
                what = (method, path, who, answer)
                if right is Right.OPEN:
                    assert status in (200, 503), what
                elif who not in WHO:
                    assert (status, answer["error"]) == (401, "SASL_AUTHENTICATION_FAILED"), what
                elif right is not Right.IDENTITY and right not in ROLES[WHO[who]]:
                    assert (status, answer["error"]) == (403, "CLUSTER_AUTHORIZATION_FAILED"), what
                    assert right.value in answer["message"]
                elif right is Right.IDENTITY:
                    assert status == 200 or answer["error"] == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", what
                elif (method, path, who) != ("GET", "/v1/log", "User:reader"):  # for lines alone
                    assert status not in NOT_DECIDED_HERE, what
        # A snapshot was taken and nothing written: no body was a command.
        assert desk.controller.committed.end_offset == end_offset


async def test_no_answer_tells_a_stranger_of_the_log_and_of_who_leads(tmp_path: Path) -> None:
    lab = Lab()
    lab.lead(1)
    lab.quorum.commit()
    who = {"User:reader": "reader", "User:idle": ""}
    desk = Desk(lab, tmp_path, principals=principals(tmp_path / "principals.toml", who))
    async with TestClient[web.Request, web.Application](DoorServer(desk.door)) as client:
        for path in ("/healthz", "/readyz", "/v1/quorum", "/v1/nothing"):
            for name in (None, "nobody", "User:reader", "User:idle"):
                headers = {} if name is None else {"Authorization": f"Bearer {token(name)}"}
                async with client.get(path, headers=headers) as answer:
                    is_told = name == "User:reader" or (name == "User:idle" and path.startswith("/v1/"))
                    for header in ("X-High-Watermark", "X-Controller-Epoch"):
                        assert (header in answer.headers) == is_told, (path, name, header)
                    body = await answer.json()
                    if "error" in body:
                        leads = (body["controller_id"], body["controller_epoch"])
                        assert leads == ((1, 1) if is_told else (-1, -1)), (path, name)


async def test_who_shows_no_identity_gets_the_codes_of_readiness_without_details(tmp_path: Path) -> None:
    """Goal: /readyz tells a stranger nothing of nodes, files and partitions. Method: a reason with a path, asked by each."""
    async with behind_tokens(tmp_path, WHO | {"User:idle": ""}) as (desk, ask):
        desk.door.status.snapshot_set_aside = "/srv/secret-path/snapshot: damaged"
        for who in (None, "nobody's-token-0123456789", "User:idle"):
            status, answer = await ask("GET", "/readyz", who)
            told = await ask("GET", "/readyz", "User:reader")
            assert status == told[0]
            assert answer == {
                "ready": told[1]["ready"],
                "reasons": [
                    {"code": code} for code in dict.fromkeys(one["code"] for one in told[1]["reasons"])
                ],
            }
            assert {"code": "SNAPSHOT_SET_ASIDE"} in answer["reasons"]
            assert "secret-path" in json.dumps(told[1]["reasons"])
            assert told[1].keys() == {"ready", "reasons", "recent_warnings", "partitions"}
            assert (await ask("GET", "/healthz", who)) == (200, {"ok": True})


async def test_what_needs_more_than_its_route(tmp_path: Path) -> None:
    async with behind_tokens(tmp_path) as (_, ask):
        frames = await ask("GET", "/v1/log", "User:reader")
        assert (frames[0], frames[1]["error"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")
        assert (await ask("GET", "/v1/log", "User:reader", Accept="application/x-ndjson"))[0] == 200
        assert (await ask("GET", "/v1/log", "User:admin"))[0] == 200


async def test_bytes_of_the_log_are_for_admins_controllers_and_registered_brokers(tmp_path: Path) -> None:
    """Goal: a broker's certificate or role alone gives no secret away. Method: each way, before and after 11 registers."""
    poll = {
        "cluster_id": "another", "broker_id": OBSERVER, "broker_epoch": -1, "incarnation_id": bytes(16),
        "fetch_offset": 0, "last_epoch": -1, "last_crc": 0, "applied_offset": 0, "want_fence": False,
        "want_shut_down": False, "offline_log_dirs": [], "cordoned_log_dirs": None, "max_bytes": 1, "max_wait_ms": 0,
    }  # fmt: skip
    roles = {"Broker:12": "admin", "Broker:011": "broker", "Broker:x": "broker", "Controller:11": "broker"}
    always = {"User:admin", "User:controller", "Controller:2", "Broker:3", "Broker:12"}
    async with behind_tokens(tmp_path, NODES | roles) as (desk, ask):

        async def those_who_may() -> set[str]:
            may = set()
            for who in (*NODES, *roles):
                refused = {
                    (await ask("GET", "/v1/log", who))[0] == 403,
                    (await ask("GET", "/v1/metadata/snapshots/7", who))[0] == 403,
                    (await ask("POST", "/v1/metadata/fetch", who, poll, packed=True))[0] == 403,
                }
                assert len(refused) == 1, who
                may |= {who} if refused == {False} else set()
            return may

        assert await those_who_may() == always
        # The broker's own poll is judged by its epoch: a controller that does not know of it yet must not end it.
        own = poll | {"cluster_id": desk.door.settings.cluster_id, "broker_id": 11, "broker_epoch": 1}
        status, answer = await ask("POST", "/v1/metadata/fetch", "Broker:11", own, packed=True)
        assert (status, answer["error"]) == (409, "STALE_BROKER_EPOCH")
        await online(desk.lab, desk.controller, 11)
        assert await those_who_may() == always | {"Broker:11"}


async def test_nobody_speaks_as_another_node(tmp_path: Path) -> None:
    async with behind_tokens(tmp_path) as (desk, ask):
        registration = {
            "cluster_id": desk.door.settings.cluster_id,
            "broker_id": 12,
            "incarnation_id": bytes(range(16)),
            "endpoints": [],
            "features": [],
            "rack": None,
            "log_dirs": [],
            "previous_broker_epoch": -1,
        }
        for who in ("Broker:11", "User:admin", "Controller:2"):
            status, answer = await ask("POST", "/v1/brokers/register", who, registration, packed=True)
            assert (status, answer["error"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")
        poll = {
            "cluster_id": desk.door.settings.cluster_id, "broker_id": 12, "broker_epoch": 1,
            "incarnation_id": bytes(16), "fetch_offset": 0, "last_epoch": -1, "last_crc": 0, "applied_offset": 0,
            "want_fence": False, "want_shut_down": False, "offline_log_dirs": [], "cordoned_log_dirs": None,
            "max_bytes": 1000, "max_wait_ms": 0,
        }  # fmt: skip
        for who in ("Broker:11", "User:admin", "Controller:2"):
            status, answer = await ask("POST", "/v1/metadata/fetch", who, poll, packed=True)
            assert (status, answer["error"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")
        status, answer = await ask(
            "POST", "/v1/metadata/fetch", "Broker:11", poll | {"broker_id": 11}, packed=True
        )
        assert (status, answer["error"]) == (409, "STALE_BROKER_EPOCH")
        status, answer = await ask(
            "POST", "/v1/producer-ids", "Broker:11", {"broker_id": 12, "broker_epoch": 1}, packed=True
        )
        assert (status, answer["error"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/partitions/alter", {"broker_epoch": 1, "partitions": []}),
        ("/v1/partitions/directories", {"broker_epoch": 1, "replicas": []}),
        ("/v1/producer-ids", {"broker_epoch": 1}),
    ],
)
async def test_a_broker_reports_for_itself_alone(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    """Goal: no principal reports in a broker's name. Method: the same report for itself passes, and is judged."""
    async with behind_tokens(tmp_path, NODES) as (desk, ask):
        end_offset = desk.controller.committed.end_offset
        for who in ("Broker:11", "User:broker", "User:admin", "Controller:2"):
            status, answer = await ask("POST", path, who, {"broker_id": 12, **body}, packed=True)
            assert (status, answer["error"]) == (403, "CLUSTER_AUTHORIZATION_FAILED"), who
        _, answer = await ask("POST", path, "Broker:11", {"broker_id": 11, **body}, packed=True)
        assert answer["error"] == "STALE_BROKER_EPOCH"
        assert desk.controller.committed.end_offset == end_offset


async def test_a_controller_registers_itself_alone(tmp_path: Path) -> None:
    """Goal: no principal registers another controller. Method: the same registration of itself is written."""
    async with behind_tokens(tmp_path, NODES) as (desk, ask):
        registration = {
            "cluster_id": desk.door.settings.cluster_id, "controller_id": 3, "incarnation_id": bytes(range(16)),
            "endpoints": [], "features": [],
        }  # fmt: skip
        end_offset = desk.controller.committed.end_offset
        for who in ("Controller:2", "User:controller", "User:admin", "Broker:3"):
            status, answer = await ask("POST", "/v1/controllers/register", who, registration, packed=True)
            assert (status, answer["error"]) == (403, "CLUSTER_AUTHORIZATION_FAILED"), who
        assert desk.controller.committed.end_offset == end_offset
        status, answer = await ask(
            "POST",
            "/v1/controllers/register",
            "Controller:2",
            registration | {"controller_id": 2},
            packed=True,
        )
        assert status == 200, answer
        assert desk.controller.committed.end_offset == end_offset + 1


async def test_the_actor_is_the_principal_with_its_address_and_each_batch_names_its_operation(
    tmp_path: Path,
) -> None:
    async with behind_tokens(tmp_path) as (desk, ask):
        assert (await ask("PATCH", "/v1/configs", "User:admin", {"cluster": True, "set": {"a": "b"}}))[
            0
        ] == 200
        command = {"operation": "UpdateFeatures", "body": {"updates": []}}
        assert (await ask("POST", "/v1/batch", "User:admin", {"commands": [command]}))[0] == 200
        (batch, _), *_ = decode_all(desk.lab.quorum.log[-1])
        assert batch.envelope.actor == "User:admin@127.0.0.1"
        assert batch.envelope.operation == "IncrementalAlterConfigs"


async def test_a_node_that_acts_is_named_with_its_address(tmp_path: Path) -> None:
    """Goal: the log shows from where a stolen certificate was used. Method: each request of a node that is written."""
    async with behind_tokens(tmp_path, WHO | {"Broker:13": "broker"}) as (desk, ask):

        async def written(path: str, who: str, body: dict[str, Any]) -> Any:
            before = len(desk.lab.quorum.log)
            status, answer = await ask("POST", path, who, body, packed=True)
            assert status == 200, answer
            (frame,) = desk.lab.quorum.log[before:]
            (batch, _), *_ = decode_all(frame)
            assert batch.envelope.actor == f"{who}@127.0.0.1", path
            return answer

        own = {"broker_id": 11, "broker_epoch": await online(desk.lab, desk.controller, 11)}
        await online(desk.lab, desk.controller, 12)
        controller = registration_of(settings(2), uuid(102)).to_map()
        await written("/v1/controllers/register", "Controller:2", controller)
        directories = [uuid(2013), uuid(3013)]
        broker = registration(13).to_map() | {"log_dirs": directories}
        epoch = (await written("/v1/brokers/register", "Broker:13", broker))["broker_epoch"]
        assert (await ask("POST", "/v1/topics", "User:admin", {"name": "t", "assignment": [[11, 12, 13]]}))[
            0
        ] == 201
        (topic_id,) = desk.controller.committed.topics.by_id
        await written("/v1/producer-ids", "Broker:11", own)
        placed = {"topic_id": topic_id, "partition_id": 0, "directory": directories[1]}
        of_another = {"broker_id": 13, "broker_epoch": epoch, "replicas": [placed]}
        await written("/v1/partitions/directories", "Broker:13", of_another)
        isr = {
            "topic_id": topic_id, "partition_id": 0, "leader_epoch": 0, "partition_epoch": 1,
            "isr": [own], "leader_recovery_state": 0,
        }  # fmt: skip
        await written("/v1/partitions/alter", "Broker:11", own | {"partitions": [isr]})


async def test_a_changed_file_counts_without_a_restart_and_a_broken_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("metadata_log.limits.IDENTITY_CHECK_S", -1.0)

    async with behind_tokens(tmp_path) as (desk, ask):
        assert (await ask("GET", "/v1/topics", "User:reader"))[0] == 200
        assert "PRINCIPALS_NOT_RELOADED" not in [row["code"] for row in desk.status.warnings()]
        principals(tmp_path / "principals.toml", {"User:admin": "admin"})
        assert (await ask("GET", "/v1/topics", "User:reader"))[0] == 401
        (tmp_path / "principals.toml").write_text("[[principals]]\nname = 'x'\nroles = []\n")
        assert (await ask("GET", "/v1/topics", "User:admin"))[0] == 200
        assert "principals_not_reloaded" in caplog.messages
        assert "PRINCIPALS_NOT_RELOADED" in [row["code"] for row in desk.status.warnings()]
        (tmp_path / "principals.toml").unlink()
        for _again in range(3):
            assert (await ask("GET", "/v1/topics", "User:admin"))[0] == 200
        assert caplog.messages.count("principals_not_reloaded") == 2, "each reason once"
        # What was refused for its mode counts once that is mended, although its content stays.
        principals(tmp_path / "principals.toml", {"User:reader": "reader"})
        (tmp_path / "principals.toml").chmod(0o666)
        assert (await ask("GET", "/v1/topics", "User:reader"))[0] == 401
        (tmp_path / "principals.toml").chmod(0o600)
        assert (await ask("GET", "/v1/topics", "User:reader"))[0] == 200

        assert "PRINCIPALS_NOT_RELOADED" not in [row["code"] for row in desk.status.warnings()]

    assert not [line for line in caplog.records if "token-of" in str(line.__dict__)]


async def test_a_refused_request_is_counted_and_logged_with_its_sender(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with behind_tokens(tmp_path) as (desk, ask):
        assert (await ask("GET", "/v1/topics", None))[0] == 401
        assert (await ask("POST", "/v1/topics", "User:reader", {"name": "t"}))[0] == 403
        assert (await ask("GET", "/v1/topics/none", "User:reader"))[0] == 404
        text = exposition(desk.status, now_ms=0).decode()

    told = [line.__dict__ for line in caplog.records if line.message == "request_refused"]
    assert [(line["principal"], line["asked"], line["code"]) for line in told] == [
        ("User:NOBODY", "GET /v1/topics", "SASL_AUTHENTICATION_FAILED"),
        ("User:reader", "POST /v1/topics", "CLUSTER_AUTHORIZATION_FAILED"),
    ]
    assert all(line["address"] == "127.0.0.1" for line in told)
    counts = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("metaquorum_requests_refused_total")
    }
    assert counts == {
        'metaquorum_requests_refused_total{door="http",reason="unauthenticated"}': 1.0,
        'metaquorum_requests_refused_total{door="http",reason="unauthorized"}': 1.0,
        'metaquorum_requests_refused_total{door="kafka",reason="unauthenticated"}': 0.0,
        'metaquorum_requests_refused_total{door="kafka",reason="unauthorized"}': 0.0,
    }


def test_the_file_is_looked_at_once_in_a_second_however_many_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access(principals(tmp_path / "p", {"User:bob": "admin"}), cluster_id=CLUSTER)
    looks: list[Path] = []
    state = access_module._state_of

    def look(file: Path) -> tuple[int, ...]:
        looks.append(file)
        return state(file)

    monkeypatch.setattr(access_module, "_state_of", look)
    now = time.monotonic() + 10
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for _ in range(3):
        access.principal(Peer())
    assert len(looks) == 1
    now += IDENTITY_CHECK_S
    access.principal(Peer())
    assert len(looks) == 2


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[[principals]]",
        '[[principals]]\nname = "alice"\nroles = []',
        '[[principals]]\nname = "User:ANONYMOUS"\nroles = []',
        '[[principals]]\nname = "User:alice"\nroles = ["root"]',
        '[[principals]]\nname = "User:alice"\nroles = []\ntoken_sha256 = "abc"',
        '[[principals]]\nname = "User:alice"\nroles = []\ntoken = "plain"',
        2 * '[[principals]]\nname = "User:alice"\nroles = []\n',
        '[[principals]]\nname = "Broker:11"\nroles = []\nuser = ""',
        "".join(f'[[principals]]\nname = "Broker:{n}"\nroles = []\nuser = "shared"\n' for n in (11, 12)),
        '[[principals]]\nname = "Broker:11"\nroles = []\nuser = "a"\n[[principals]]\nname = "User:a"\nroles = []',
        '[[principals]]\nname = "Broker:11"\nroles = []\nuser = "Broker:12"\n[[principals]]\nname = "Broker:12"\nroles = []',
        '[[principals]]\nname = "User:alice"\nroles = ["admin"]\nuser = "al"',
        '[[principals]]\nname = "Controller:1"\nroles = ["controller"]\nuser = "one"',
        "\x00",
    ],
)
def test_what_is_no_file_of_principals_is_refused_at_the_start(tmp_path: Path, content: str) -> None:
    file = tmp_path / "principals.toml"
    file.write_text(content)
    with pytest.raises(InvalidSettings, match=str(file)):
        Access(file, cluster_id=CLUSTER)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        (f"metaquorum://{CLUSTER}/broker/11", "Broker:11"),
        (f"metaquorum://{CLUSTER}/controller/1", "Controller:1"),
        (f"metaquorum://{CLUSTER}/user/alice", "User:alice"),
        (f"metaquorum://{CLUSTER}/broker/011", None),
        (f"metaquorum://{CLUSTER}/broker/", None),
        (f"metaquorum://{CLUSTER}/root/alice", None),
        (f"metaquorum://{CLUSTER[:-1]}x/broker/11", None),
        ("https://broker/11", None),
    ],
)
def test_a_certificate_names_one_principal_of_one_cluster(tmp_path: Path, uri: str, name: str | None) -> None:
    certificate = {"subjectAltName": (("DNS", "localhost"), ("URI", uri))}
    assert name_in(certificate, CLUSTER) == name
    access = Access(principals(tmp_path / "p", {"User:bob": "admin"}), cluster_id=CLUSTER)
    sender = access.principal(Peer(certificate))
    if name == "User:alice":
        assert (sender.name, sender.rights) == (name, frozenset()), (
            "a user has the rights that the file gives"
        )
        with pytest.raises(NotAuthorized, match=r"User:alice .* the file of principals .* gives it no role"):
            sender.authorize(Right.READ, "ListTopics")
    elif name in ("Broker:11", "Controller:1"):
        assert sender.name == name
        assert sender.raw_if_registered is (name == "Broker:11")
    else:
        assert sender is NOBODY
        assert (
            "client certificate of this connection names no principal" in unnamed(Peer(certificate)).message
        )
        assert "needs an identity: a client certificate" in unnamed(Peer()).message


@pytest.mark.parametrize("with_identity", [True, False])
async def test_what_is_no_http_is_refused_and_leaves_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, with_identity: bool
) -> None:
    """Goal: every error path of a listener runs without what only a request has. A broker's are tested beside it."""
    lab = Lab()
    lab.lead(1)
    lab.quorum.commit()
    file = principals(tmp_path / "principals.toml") if with_identity else None
    desk = Desk(lab, tmp_path, principals=file)
    runner = DoorRunner(desk.door)
    await runner.setup()
    listener = await listen(
        runner, desk.door.error, ("127.0.0.1", 0), buffers=AnswerBuffers(),
        connection_of=poll_connections(desk.door),
    )  # fmt: skip
    await refuses_what_is_no_http(listener.sockets[0].getsockname()[:2], caplog)
    listener.close()
    await runner.cleanup()
