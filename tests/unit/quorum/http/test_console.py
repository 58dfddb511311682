"""The console over HTTP: its files and their policy, logins, and what a session's cookie may do and may not."""

import asyncio
import base64
import hashlib
import math
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from metadata_log import limits
from metadata_log.errors import InvalidRequest, NotAuthorized
from metadata_log.node.console.document import document
from metadata_log.node.console.login import HEADER, Login
from metadata_log.node.console.pages import CONTENT_TYPES, FOLDER, HEADERS, files
from metadata_log.node.identity.access import Access, Peer
from metadata_log.node.identity.refusals import KEPT_MAX, Refusals
from metadata_log.node.identity.rights import ROLES, Principal
from ops.admin.causes import CAUSES, LINKS
from quorum.http.log import TYPE_NAMES
from tests.support.desk import Desk, DoorServer
from tests.support.lab import Lab
from tests.unit.quorum.http.test_identity import principals, token

Client = TestClient[web.Request, web.Application]
ROOT = Path(__file__).resolve().parents[4]
CHANGE = {"cluster": True, "set": {"a.setting": "1"}, "unset": []}
PATCH = {"json": CHANGE}


@asynccontextmanager
async def node(directory: Path, *, identity: bool = True) -> AsyncIterator[tuple[Desk, Client]]:
    """A leading controller, and a browser that keeps its cookies."""
    lab = Lab()
    lab.lead(1)
    known = principals(directory / "principals.toml") if identity else None
    desk = Desk(lab, directory, principals=known)
    jar = aiohttp.CookieJar(unsafe=True)  # of numeric addresses, too
    async with TestClient[web.Request, web.Application](DoorServer(desk.door), cookie_jar=jar) as client:
        yield desk, client


async def changed(desk: Desk, client: Client, **headers: str) -> int:
    """Ask for a change; return the status."""
    asking = asyncio.ensure_future(client.patch("/v1/configs", json=CHANGE, headers=headers))
    while not asking.done():
        await asyncio.sleep(0.001)
        desk.lab.quorum.commit()
    return (await asking).status


async def logged_in(client: Client, name: str = "User:admin") -> aiohttp.ClientResponse:
    return await client.post("/v1/session", json={"token": token(name)})


async def test_each_file_is_served_with_the_policy_and_is_not_sent_twice(tmp_path: Path) -> None:
    async with node(tmp_path) as (_, client):
        for name in files():
            for path in ("/", f"/console/{name}") if name == "index.html" else (f"/console/{name}",):
                answer = await client.get(path)
                assert answer.status == 200, path
                assert answer.content_type == CONTENT_TYPES[Path(name).suffix]
                assert answer.headers["Content-Security-Policy"] == files()[name].policy
                assert answer.headers.items() >= HEADERS.items()
                assert (
                    answer.headers["Content-Encoding"] == "gzip"
                    and (await answer.read()) == files()[name].body
                )
                plain = await client.get(path, headers={"Accept-Encoding": "identity"})
                assert "Content-Encoding" not in plain.headers and (await plain.read()) == files()[name].body
                assert plain.headers["ETag"] != answer.headers["ETag"], (
                    "two encodings are two representations"
                )
                again = await client.get(path, headers={"If-None-Match": answer.headers["ETag"]})
                assert (again.status, await again.read()) == (304, b"")
        for path in ("/console/none.js", "/console/..%2flogin.py", "/console/%2e%2e%2flogin.py"):
            assert (await client.get(path)).status in (401, 404), path


def test_a_page_names_no_foreign_host_and_makes_no_markup_of_text() -> None:
    for name, file in files().items():
        text = file.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://(?!\$)[a-z]", text), name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", text
        )
        assert not re.search(r"<[a-z][^<>{}]*\s(style|on[a-z]+)=", text), name


def test_the_page_asks_for_nothing_more_and_allows_its_own_script_and_style_alone() -> None:
    page = files()["index.html"]
    text = page.body.decode()
    assert not re.search(r"<script[^>]*src|<link[^>]*stylesheet", text)
    for tag in ("script", "style"):
        (inside,) = re.findall(f"<{tag}>(.*)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in page.policy
    assert "unsafe" not in page.policy and "frame-ancestors 'none'" in page.policy
    assert len(page.zipped) < 60_000, "the first paint waits for it"
    (said,) = re.findall(r"in one answer of (\d+) kB", (ROOT / "docs/console.md").read_text())
    assert abs(len(page.zipped) / 1000 - int(said)) < 1, "docs/console.md says how large it is"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"main.js": 'import x from "./dom.js";\n'}, "an import of another form"),
        ({"main.js": "export default 1;\n"}, "an export of another form"),
        (
            {"main.js": 'import { a } from "./a.js";\n', "a.js": 'import { b } from "./a.js";\n'},
            "import each other",
        ),
        ({"main.js": 'const a = "</script>";\n'}, "would end its element"),
        ({"index.html": "<html></html>"}, "does not have"),
    ],
)
def test_what_cannot_stand_in_the_page_is_refused_when_it_is_made(
    changed: dict[str, str], reason: str
) -> None:
    plain = {path.name: path.read_text() for path in FOLDER.iterdir()}
    with pytest.raises(ValueError, match=reason):
        document(plain | changed)


async def test_a_login_exchanges_the_token_for_a_cookie_that_does_not_hold_it(tmp_path: Path) -> None:
    async with node(tmp_path) as (desk, client):
        told = await (await client.get("/v1/session")).json()
        assert told == {
            "role": "controller",
            "node_id": 1,
            "identity": True,
            "principal": None,
            "rights": [],
            "has_session": False,
        }
        assert (await client.get("/v1/quorum")).status == 401
        answer = await logged_in(client)
        assert answer.status == 204
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie
        assert token("User:admin") not in cookie
        assert (await client.get("/v1/quorum")).status == 200
        told = await (await client.get("/v1/session")).json()
        assert told["principal"] == "User:admin" and "alter" in told["rights"] and told["has_session"]
        assert await changed(desk, client, **{HEADER: "1"}) == 200
        assert (await client.delete("/v1/session", headers={HEADER: "1"})).status == 204
        assert (await client.get("/v1/quorum")).status == 401


def test_a_cookie_is_secure_under_tls_and_names_its_node() -> None:
    response = web.Response()
    Login("broker", 11, tls=True).begin("token", response)
    cookie = response.cookies["__Host-metaquorum-broker-11"]
    assert cookie["secure"] and cookie["httponly"] and cookie["samesite"] == "Strict" and not cookie["domain"]
    assert Login("controller", 1, tls=False).cookie == "metaquorum-controller-1"


async def test_a_session_changes_nothing_for_a_page_of_another_origin(tmp_path: Path) -> None:
    """Goal: no page but the console's uses a session. Method: the header that a foreign page cannot send is left out, or
    its own origin stands there.
    """
    async with node(tmp_path) as (desk, client):
        await logged_in(client)
        end_offset = desk.controller.committed.end_offset
        assert await changed(desk, client) == 403
        assert await changed(desk, client, **{HEADER: "1", "Origin": "http://127.0.0.1:1"}) == 403
        assert (await client.get("/v1/quorum", headers={"Origin": "http://127.0.0.1:1"})).status == 403
        assert (await client.delete("/v1/session")).status == 403
        assert desk.controller.committed.end_offset == end_offset
        own = str(client.make_url("/")).rstrip("/")
        assert await changed(desk, client, **{HEADER: "1", "Origin": own}) == 200


async def test_a_page_of_another_address_reads_nothing_and_may_link_to_the_console(tmp_path: Path) -> None:
    """Goal: an image, a frame or a script of a foreign page costs this node nothing, on another port of its host either.
    Method: the headers that browsers send for each, with a session and without identity.
    """
    link = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    frame = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    image = {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    for identity in (True, False):
        async with node(tmp_path, identity=identity) as (_, client):
            if identity:
                await logged_in(client)
            for site in ("cross-site", "same-site"):
                for sent in (frame, image):
                    for path in ("/", "/v1/quorum"):
                        answer = await client.get(path, headers={"Sec-Fetch-Site": site, **sent})
                        assert answer.status == 403, (site, path)
                        assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert (await client.get("/", headers={"Sec-Fetch-Site": site, **link})).status == 200
                read = await client.get("/v1/quorum", headers={"Sec-Fetch-Site": site, **link})
                assert read.status == (403 if identity else 200), "a session is not lent to a link"
            own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
            assert (await client.get("/v1/quorum", headers=own)).status == 200


async def test_every_answer_says_that_it_is_what_it_is_called(tmp_path: Path) -> None:
    async with node(tmp_path) as (_, client):
        for path in ("/", "/v1/session", "/v1/quorum", "/console/none.js", "/nowhere", "/healthz", "/readyz"):
            answer = await client.get(path)
            assert answer.headers["X-Content-Type-Options"] == "nosniff", path
        assert (await logged_in(client)).headers["X-Content-Type-Options"] == "nosniff"
        for path in ("/v1/overview", "/v1/topics", "/v1/log/lines", "/v1/state", "/metrics", "/openapi.json"):
            answer = await client.get(path)
            assert (answer.status, answer.headers["X-Content-Type-Options"]) == (200, "nosniff"), path


async def test_a_session_has_the_rights_of_its_token_and_a_token_counts_before_it(tmp_path: Path) -> None:
    async with node(tmp_path) as (desk, client):
        await logged_in(client, "User:reader")
        assert (await client.get("/v1/quorum")).status == 200
        assert await changed(desk, client, **{HEADER: "1"}) == 403
        bearer = f"Bearer {token('User:admin')}"
        assert await changed(desk, client, Authorization=bearer) == 200
        assert await changed(desk, client, Authorization="Bearer of-nobody-that-is-known") == 401


async def test_a_principal_that_is_taken_out_has_no_session_any_more(tmp_path: Path) -> None:
    async with node(tmp_path) as (desk, client):
        await logged_in(client)
        access = desk.door.access
        principals(tmp_path / "principals.toml", {"User:reader": "reader"})
        access._looked_at = 0.0
        assert (await client.get("/v1/quorum")).status == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"token": "of-nobody-that-is-known"}', 401),
        (b'{"token": "short"}', 401),
        (b'{"token": 1}', 400),
        (b'{"token": "x", "more": 1}', 400),
        (b"[", 400),
        (b"", 400),
        (b'{"token": "' + b"x" * 2_000 + b'"}', 413),
    ],
)
async def test_what_is_no_login_is_refused_and_sets_no_cookie(
    tmp_path: Path, body: bytes, status: int
) -> None:
    async with node(tmp_path) as (_, client):
        answer = await client.post("/v1/session", data=body, headers={"Content-Type": "application/json"})
        assert answer.status == status and "Set-Cookie" not in answer.headers


async def test_without_identity_the_console_is_open_and_there_is_nothing_to_log_in_to(tmp_path: Path) -> None:
    async with node(tmp_path, identity=False) as (desk, client):
        told = await (await client.get("/v1/session")).json()
        assert (told["identity"], told["principal"], told["has_session"]) == (False, "User:ANONYMOUS", False)
        assert (await logged_in(client)).status == 400
        assert await changed(desk, client) == 200


async def test_principals_are_listed_for_those_who_have_the_right_alone(tmp_path: Path) -> None:
    async with node(tmp_path) as (desk, client):
        bearer = {name: {"Authorization": f"Bearer {token(name)}"} for name in ("User:admin", "User:reader")}
        assert (await client.get("/v1/principals")).status == 401
        for _ in range(2):
            assert (await client.get("/v1/principals", headers=bearer["User:reader"])).status == 403
        listed = await (await client.get("/v1/principals", headers=bearer["User:admin"])).json()
        assert (listed["node"], listed["identity"]) == ("controller 1", True)
        rows = {row["name"]: row for row in listed["items"]}
        assert rows["User:reader"]["roles"] == ["reader"] and rows["User:reader"]["rights"] == ["read"]
        assert rows["User:admin"]["has_token"] and rows["User:admin"]["seen_from"] == "127.0.0.1"
        assert "principals" in rows["User:admin"]["rights"]
        [forbidden, stranger] = listed["refused"]
        assert (forbidden["principal"], forbidden["reason"], forbidden["times"]) == (
            "User:reader",
            "unauthorized",
            2,
        )
        assert (stranger["asked"], stranger["reason"]) == ("GET /v1/principals", "unauthenticated")
        assert listed["refused_total"] == {"unauthenticated": 1, "unauthorized": 2}
        assert token("User:admin") not in str(listed)
        assert desk.access.listed() == listed["items"]


def test_a_certificate_that_was_seen_says_when_it_ends_and_what_is_remembered_is_bounded() -> None:
    access = Access(None, cluster_id="A" * 22)
    access._file = Path("/nowhere")
    access._looked_at = math.inf
    certificate = {"notAfter": "Jan  5 09:34:43 2038 GMT"}
    access._noted(Principal("Broker:11", ROLES["broker"]), Peer(certificate, None, "192.0.2.1"))
    access._noted(Principal("Broker:11", ROLES["broker"]), Peer(None, "a token", "192.0.2.2"))
    [row] = access.listed()
    assert (row["name"], row["roles"], row["certificate_ends_ms"]) == ("Broker:11", ["broker"], 2146296883000)
    assert (row["seen_from"], row["has_token"]) == ("192.0.2.1", False)
    for number in range(limits.PRINCIPALS_MAX + 5):
        access._noted(Principal(f"User:{number}", frozenset()), Peer(certificate, None, "192.0.2.3"))
    assert len(access._seen) == limits.PRINCIPALS_MAX and "Broker:11" not in access._seen


def test_the_newest_kinds_of_refusals_are_kept() -> None:
    refusals = Refusals(unix_ms=lambda: 7)
    for number in range(KEPT_MAX + 3):
        refusals.note(
            NotAuthorized("no"),
            door="http",
            principal="User:a",
            address=None,
            asked=f"GET /{number}{'x' * 999}",
        )
    refusals.note(
        InvalidRequest("not about rights"), door="http", principal="User:a", address=None, asked="GET /"
    )
    newest = refusals.newest()
    assert len(newest) == KEPT_MAX and newest[0]["asked"].startswith(f"GET /{KEPT_MAX + 2}x")
    assert (
        max(len(one["asked"]) for one in newest) <= 300 and refusals.totals()["unauthorized"] == KEPT_MAX + 3
    )


def test_the_types_of_records_that_pages_ask_for_are_there() -> None:
    """Goal: no page reads the whole log because a controller knows no such type."""
    named: set[str] = set()
    for script, constant in (("overview.js", "NEWS"), ("lanes.js", "TYPES")):
        found = re.search(rf"const {constant} = \[([^\]]*)\]", (FOLDER / script).read_text())
        assert found is not None, script
        named |= set(re.findall(r'"(\w+)"', found[1]))
    assert named <= TYPE_NAMES
    left_out = {"NoOp", "Partition", "PartitionChange", "SnapshotHeader", "SnapshotFooter", "QuorumVersion"}
    assert TYPE_NAMES - named == left_out | {"BegunChange", "ProducerIds", "RequestResult"}


def test_pages_have_words_for_every_cause_that_the_command_line_has_words_for() -> None:
    script = (FOLDER / "dom.js").read_text()
    for constant, known in (("CAUSES", CAUSES), ("LINKS", LINKS)):
        found = re.search(rf"const {constant} = words\(\{{\n(.*?)^\}}\);", script, re.DOTALL | re.MULTILINE)
        assert found is not None, constant
        assert set(re.findall(r"^  (\w+):", found[1], re.MULTILINE)) == set(known), constant
