"""Edge: the web console over HTTP: its files, and the sessions of browsers.
Tests: tests/unit/quorum/http/test_console.py.
"""

from typing import Final

from aiohttp import web

from metadata_log.node.console.login import described, logged_in, logged_out, principals_listed
from metadata_log.node.console.pages import page
from quorum.http.bodies import read_no_body
from quorum.http.door import Door
from quorum.http.routes import reading, writing


async def show_page(_door: Door, request: web.Request) -> web.Response:
    return page(request)


async def show_file(_door: Door, request: web.Request) -> web.Response:
    return page(request, request.match_info["name"])


async def show_session(door: Door, request: web.Request) -> web.Response:
    return door.ok(request, described(door.login, door.identities, request))


async def log_in(door: Door, request: web.Request) -> web.Response:
    return await logged_in(door.login, door.identities, request)


async def log_out(door: Door, request: web.Request) -> web.Response:
    await read_no_body(request)
    return logged_out(door.login, request)


async def list_principals(door: Door, request: web.Request) -> web.Response:
    return door.ok(request, principals_listed(door.access, door.login.role, door.login.node_id))


ROUTES: Final = (
    reading("/", show_page, "ShowConsole", {}, forwarded=False),
    reading("/console/{name}", show_file, "ShowConsole", {}, forwarded=False),
    reading("/v1/principals", list_principals, "ListPrincipals", {}, forwarded=False),
    reading("/v1/session", show_session, "ShowConsole", {}, forwarded=False),
    writing("POST", "/v1/session", log_in, "LogIn", forwarded=False),
    writing("DELETE", "/v1/session", log_out, "LogIn", forwarded=False),
)
