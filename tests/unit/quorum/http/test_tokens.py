"""Edge: delegation tokens over HTTP: issued, moved, listed; the HMAC is shown once, and to nobody else."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metadata_log.node.identity.credentials import TlsFiles
from quorum.controller import token_hmacs
from quorum.http.description import described
from tests.support.desk import Desk
from tests.support.json_schema import faults
from tests.unit.quorum.http.test_identity import Ask, behind_tokens
from tests.unit.quorum.http.test_openapi import schema_of

WHO = {"User:admin": "admin", "User:ann": "", "User:bob": "", "User:eve": ""}
TLS = TlsFiles(Path("c"), Path("k"), Path("a"))


@asynccontextmanager
async def office(directory: Path, secret: bytes | None = b"secret") -> AsyncIterator[tuple[Desk, Ask]]:
    """Yield a desk that takes requests for tokens, as if it were asked by TLS, and what asks it."""
    async with behind_tokens(directory, WHO) as (desk, ask):
        object.__setattr__(desk.door, "settings", replace(desk.door.settings, tls=TLS))
        desk.controller.tokens.use(secret)
        yield desk, ask


async def issued(ask: Ask, who: str = "User:ann", **fields: Any) -> dict[str, Any]:
    status, body = await ask("POST", "/v1/tokens", who, fields)
    assert status == 200, body
    assert list(faults(body, schema_of(("POST", "/v1/tokens"), 200), described())) == []
    return dict(body)


async def test_tokens_are_issued_listed_renewed_and_expired(tmp_path: Path) -> None:
    async with office(tmp_path) as (desk, ask):
        token = await issued(ask, renewers=["User:bob"], max_lifetime_ms=60_000)
        assert (token["owner"], token["requester"]) == ("User:ann", "User:ann")
        assert base64.b64decode(token["hmac"]) == desk.controller.tokens.hmac_of(token["token_id"])
        assert token["expiry_timestamp_ms"] - token["issue_timestamp_ms"] == 60_000
        for who, count in (("User:ann", 1), ("User:bob", 1), ("User:eve", 0), ("User:admin", 1)):
            status, body = await ask("GET", "/v1/tokens", who)
            assert (status, len(body["items"])) == (200, count)
            assert list(faults(body, schema_of(("GET", "/v1/tokens"), 200), described())) == []
            assert token["hmac"] not in str(body)
        assert (await ask("GET", "/v1/tokens?owner=User:eve", "User:admin"))[1]["items"] == []
        by_id, by_hmac = {"token_id": token["token_id"]}, {"hmac": token["hmac"]}
        status, body = await ask("POST", "/v1/tokens/renew", "User:bob", by_hmac | {"renew_period_ms": 1_000})
        assert (status, body["expiry_timestamp_ms"]) == (200, token["issue_timestamp_ms"] + 1_000)
        assert list(faults(body, schema_of(("POST", "/v1/tokens/renew"), 200), described())) == []
        for path in ("/v1/tokens/renew", "/v1/tokens/expire"):
            status, body = await ask("POST", path, "User:eve", by_id)
            assert (status, body["error"]) == (403, "DELEGATION_TOKEN_OWNER_MISMATCH")
        trial = await ask("POST", "/v1/tokens/expire?validate_only=true", "User:ann", by_id)
        assert trial[1]["foreseen"]["count"] == 1 and desk.controller.committed.tokens
        assert (await ask("POST", "/v1/tokens/expire", "User:ann", by_id))[0] == 200
        status, body = await ask("POST", "/v1/tokens/expire", "User:ann", by_id)
        assert (status, body["error"]) == (404, "DELEGATION_TOKEN_NOT_FOUND")


@pytest.mark.parametrize("query", ["", "?validate_only=true"])
async def test_the_hmacs_of_a_snapshot_are_made_before_a_token_s_turn(
    tmp_path: Path, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision by itself would make all of them at once, and hold the loop."""
    async with office(tmp_path) as (desk, ask):
        token = await issued(ask)
        desk.controller.tokens.on_restored(desk.controller.committed)
        monkeypatch.setattr(token_hmacs, "at_once", lambda _: None)
        status, _ = await ask("POST", f"/v1/tokens/renew{query}", "User:ann", {"hmac": token["hmac"]})
        assert status == 200


async def test_an_administrator_ends_a_token_of_another(tmp_path: Path) -> None:
    async with office(tmp_path) as (desk, ask):
        token = await issued(ask)
        status, _ = await ask("POST", "/v1/tokens/expire", "User:admin", {"token_id": token["token_id"]})
        assert status == 200 and not desk.controller.committed.tokens


async def test_another_owner_needs_the_right(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, ask):
        status, body = await ask("POST", "/v1/tokens", "User:ann", {"owner": "User:bob"})
        assert (status, body["error"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")
        token = await issued(ask, "User:admin", owner="User:bob")
        assert (token["owner"], token["requester"]) == ("User:bob", "User:admin")
        assert (await ask("GET", "/v1/tokens", "User:bob"))[1]["items"][0]["token_id"] == token["token_id"]


async def test_a_request_id_that_somebody_read_in_the_log_does_not_show_the_hmac(tmp_path: Path) -> None:
    async with office(tmp_path) as (desk, ask):
        request_id = {"X-Request-Id": "AAAAAAAAAAAAAAAAAAAAAQ"}
        _, first = await ask("POST", "/v1/tokens", "User:ann", {}, **request_id)
        _, again = await ask("POST", "/v1/tokens", "User:ann", {}, **request_id)
        _, stolen = await ask("POST", "/v1/tokens", "User:eve", {}, **request_id)
        assert first["hmac"] == again["hmac"] is not None
        assert (stolen["token_id"], stolen["hmac"]) == (first["token_id"], None)
        assert len(desk.controller.committed.tokens) == 1


async def test_what_is_no_request_for_a_token_is_refused(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, ask):
        for path, body in (
            ("", {"renewers": ["bob"]}),
            ("", {"owner": "User:"}),
            ("", {"max_lifetime_ms": 0}),
            ("/renew", {}),
            ("/renew", {"token_id": "a", "hmac": "aa=="}),
            ("/renew", {"hmac": "no base64!"}),
            ("/expire", {"token_id": "a", "expiry_period_ms": -2}),
        ):
            status, answer = await ask("POST", f"/v1/tokens{path}", "User:ann", body)
            assert (status, answer["error"]) == (400, "INVALID_REQUEST"), body
        status, answer = await ask("POST", "/v1/tokens", "User:ann", {"renewers": ["Group:x"]})
        assert (status, answer["error"]) == (400, "INVALID_PRINCIPAL_TYPE")


async def test_tokens_are_not_asked_for_in_the_clear_and_not_without_a_secret_key(tmp_path: Path) -> None:
    async with behind_tokens(tmp_path, WHO) as (desk, ask):
        desk.controller.tokens.use(b"secret")
        status, body = await ask("POST", "/v1/tokens", "User:ann", {})
        assert (status, body["error"]) == (403, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED")
    async with office(tmp_path, secret=None) as (_, ask):
        status, body = await ask("POST", "/v1/tokens", "User:ann", {})
        assert (status, body["error"]) == (400, "DELEGATION_TOKEN_AUTH_DISABLED")
