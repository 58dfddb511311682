"""Edge: users' SCRAM credentials over HTTP: altered and listed, without a secret in any answer."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from metadata_log import limits
from tests.unit.quorum.http.test_administration import over_http

SALTED = base64.b64encode(b"the salted password").decode()
SALT = base64.b64encode(b"the salt").decode()


def upsertion(user: str = "ann", **changed: Any) -> dict[str, Any]:
    what = {"mechanism": "SCRAM-SHA-256", "iterations": 4096, "salt": SALT, "salted_password": SALTED}
    return {"user": user, **what, **changed}


@pytest.mark.parametrize("is_large", [False, True])
async def test_credentials_are_set_listed_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    if is_large:
        monkeypatch.setattr(limits, "LARGE_VIEW_ITEMS", 0)
    async with over_http(tmp_path) as (controller, ask):
        body = {"upsertions": [upsertion(), upsertion("bob", mechanism="SCRAM-SHA-512", iterations=4095)]}
        status, answer = await ask("PATCH", "/v1/users", body)
        assert (status, [(each["user"], each["error"]) for each in answer["users"]]) == (
            200,
            [("ann", None), ("bob", "UNACCEPTABLE_CREDENTIAL")],
        )
        item = {"user": "ann", "credentials": [{"mechanism": "SCRAM-SHA-256", "iterations": 4096}]}
        for path in ("/v1/users", "/v1/users?user=ann"):
            assert (await ask("GET", path))[1]["items"] == [item]
        status, refusal = await ask("GET", "/v1/users?user=bob")
        assert (status, refusal["error"]) == (404, "RESOURCE_NOT_FOUND")
        state = json.dumps((await ask("GET", "/v1/state"))[1])
        assert json.dumps([item]) in state
        for secret in controller.committed.users["ann", 1][2:5]:
            assert isinstance(secret, bytes)
            assert secret.hex() not in state and base64.b64encode(secret).decode() not in state
        gone = {"deletions": [{"user": "ann", "mechanism": "SCRAM-SHA-256"}]}
        assert (await ask("PATCH", "/v1/users", gone))[0] == 200
        assert (await ask("GET", "/v1/users"))[1]["items"] == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"deletions": [], "upsertions": []},
        {"upsertions": [upsertion(mechanism="PLAIN")]},
        {"upsertions": [upsertion(salt="no base64!")]},
        {"upsertions": [upsertion(salt="")]},
        {"upsertions": [upsertion(iterations="4096")]},
        {"upsertions": [upsertion(password="x")]},
        {"deletions": [{"user": "ann"}]},
    ],
)
async def test_what_is_no_change_is_refused_whole_and_repeats_no_secret(tmp_path: Path, body: Any) -> None:
    async with over_http(tmp_path) as (_, ask):
        status, refusal = await ask("PATCH", "/v1/users", body)
        assert (status, refusal["error"]) == (400, "INVALID_REQUEST")
        assert SALTED not in refusal["message"]
