"""Edge: delegation tokens on the command line: what is asked, and that the HMAC is shown at the creation alone."""

import json
from typing import Any

import pytest

from ops import cli
from tests.support.told_node import Reply, node

TOKEN = {
    "token_id": "vVrnsX0nQgaLwJgEFSNEzA",
    "owner": "User:ann",
    "requester": "User:ann",
    "issue_timestamp_ms": 0,
    "max_timestamp_ms": 604_800_000,
    "expiry_timestamp_ms": 86_400_000,
}
OFFSETS = {"offsets": {"base": 5, "end": 6}}
HMAC = "A" * 86 + "=="


def run(*words: str, answer: Any) -> list[tuple[str, str, Any]]:
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps(answer).encode())
        assert cli.main(["tokens", *words, "--bootstrap", told.url]) == 0
        return [(seen.method, seen.path, json.loads(seen.body or b"null")) for seen in told.seen]


def test_tokens_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    item = TOKEN | {"renewers": ["User:bob", "User:carol"]}
    (asked,) = run(
        "list", "--owner", "User:ann", answer={"end_offset": 9, "controller_epoch": 1, "items": [item]}
    )
    assert asked == ("GET", "/v1/tokens?owner=User%3Aann", None)
    shown = capsys.readouterr().out
    assert "User:bob, User:carol" in shown and "1970-01-02T00:00:00.000Z" in shown


def test_a_token_is_created_and_its_hmac_shown(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--owner", "User:ann", "--renewer", "User:b", "--renewer", "User:c", "--max-lifetime-ms", "5")
    (asked,) = run("create", *words, answer=TOKEN | OFFSETS | {"hmac": HMAC})
    body = {"owner": "User:ann", "renewers": ["User:b", "User:c"], "max_lifetime_ms": 5}
    assert asked == ("POST", "/v1/tokens", body)
    assert HMAC in capsys.readouterr().out


def test_a_token_may_end_beyond_every_calendar(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: its HMAC is shown all the same. A lifetime without end is 2^63 - 1 ms to Kafka."""
    ends = {"max_timestamp_ms": 2**63 - 1, "expiry_timestamp_ms": 2**63 - 1}
    run("create", answer=TOKEN | ends | OFFSETS | {"hmac": HMAC})
    shown = capsys.readouterr().out
    assert HMAC in shown and shown.count("after the year 9999") == 2


def test_a_token_is_renewed_and_expired_by_its_id_or_its_hmac() -> None:
    answer = OFFSETS | {"expiry_timestamp_ms": 5}
    for name, key in ((TOKEN["token_id"], "token_id"), (HMAC, "hmac")):
        assert isinstance(name, str)
        for words, path, body in (
            (("renew", name), "renew", {key: name}),
            (("renew", name, "--period-ms", "7"), "renew", {key: name, "renew_period_ms": 7}),
            (("expire", name), "expire", {key: name}),
            (("expire", name, "--period-ms", "0"), "expire", {key: name, "expiry_period_ms": 0}),
        ):
            (asked,) = run(*words, answer=answer)
            assert asked == ("POST", f"/v1/tokens/{path}", body)


def test_a_dry_run_shows_the_records(capsys: pytest.CaptureFixture[str]) -> None:
    record = {"token_id": TOKEN["token_id"], "type": "RemoveDelegationToken"}
    foreseen = {
        "count": 1,
        "more": False,
        "topics": {},
        "records": [{"type": record["type"], "record": record}],
    }
    (asked,) = run(
        "expire",
        str(TOKEN["token_id"]),
        "--dry-run",
        answer=OFFSETS | {"expiry_timestamp_ms": 5, "foreseen": foreseen},
    )
    assert asked[1] == "/v1/tokens/expire?validate_only=true"
    assert "RemoveDelegationToken" in capsys.readouterr().out
