"""Edge: `tokens list|create|renew|expire`: delegation tokens, with which clients log in as their owner."""

import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final

from metadata_log.wire.shapes import INT64_MAX
from ops.command_line.changes import Change, change, record_lines
from ops.command_line.options import Network, Noun, argument, option, reading
from ops.command_line.render import Column
from ops.command_line.values import from_to
from ops.when import time_text

HMAC_CHARACTERS: Final = 88
"""Of an HMAC-SHA-512 in base64; the id of a token has 22."""


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)


TOKENS: Final = (
    Column("token_id"),
    Column("owner"),
    Column("requester"),
    Column("renewers", show=_names),
    Column("issue_timestamp_ms", "ISSUED", time_text),
    Column("expiry_timestamp_ms", "ENDS", time_text),
    Column("max_timestamp_ms", "ENDS AT LAST", time_text),
)
ISSUED: Final = (*(each for each in TOKENS if each.key != "renewers"), Column("hmac", "HMAC"))
MOVED: Final = (Column("expiry_timestamp_ms", "ENDS", time_text),)
NOUN: Final = Noun()
_MILLISECONDS: Final = from_to(1, INT64_MAX)


@NOUN.verb(
    "list",
    "List delegation tokens that you own, may renew, or may see; no HMAC is shown.",
    "tokens list",
    "tokens list --owner User:ann",
)
@option("--owner", metavar="PRINCIPAL", help="those of this owner, or that it may renew")
@reading
def run_list(asked: Network, *, owner: str | None) -> int:
    query = {} if owner is None else {"owner": owner}
    items = asked.client().items(f"/v1/tokens?{urllib.parse.urlencode(query)}")
    asked.show_items(items, TOKENS, empty="no delegation tokens that you may see")
    return 0


@NOUN.verb(
    "create",
    "Have a delegation token issued. Its HMAC, with which clients log in, is shown this once.",
    "tokens create --renewer User:bob",
    "tokens create --owner User:ann --max-lifetime-ms 3600000",
)
@option("--owner", metavar="PRINCIPAL", help="as which its clients act; default: you")
@option("--renewer", metavar="PRINCIPAL", multiple=True, help="a user that may renew and expire it, too")
@option("--max-lifetime-ms", read=_MILLISECONDS, metavar="MS", help="how long it can be renewed")
@change
def run_create(
    asked: Change, *, owner: str | None, renewer: Sequence[str], max_lifetime_ms: int | None
) -> int:
    body = {"owner": owner, "renewers": list(renewer), "max_lifetime_ms": max_lifetime_ms}
    return _send(
        asked, "/v1/tokens", {key: value for key, value in body.items() if value is not None}, ISSUED
    )


@NOUN.verb(
    "renew",
    "Have a delegation token, named by its id or its HMAC, end later.",
    "tokens renew vVrnsX0nQgaLwJgEFSNEzA",
)
@argument("token", "TOKEN")
@option(
    "--period-ms",
    read=_MILLISECONDS,
    metavar="MS",
    help="from now; default: as the controllers' settings say",
)
@change
def run_renew(asked: Change, *, token: str, period_ms: int | None) -> int:
    period = {} if period_ms is None else {"renew_period_ms": period_ms}
    return _send(asked, "/v1/tokens/renew", _named(token) | period, MOVED)


@NOUN.verb(
    "expire",
    "End a delegation token, named by its id or its HMAC, at once or in a while.",
    "tokens expire vVrnsX0nQgaLwJgEFSNEzA",
)
@argument("token", "TOKEN")
@option("--period-ms", read=from_to(0, INT64_MAX), metavar="MS", help="from now; default: at once")
@change
def run_expire(asked: Change, *, token: str, period_ms: int | None) -> int:
    period = {} if period_ms is None else {"expiry_period_ms": period_ms}
    return _send(asked, "/v1/tokens/expire", _named(token) | period, MOVED)


def _named(token: str) -> dict[str, Any]:
    return {"hmac" if len(token) == HMAC_CHARACTERS else "token_id": token}


def _send(asked: Change, path: str, body: Mapping[str, Any], columns: Sequence[Column]) -> int:
    if asked.dry_run:
        foreseen = asked.client().write("POST", f"{path}?validate_only=true", body)["foreseen"]
        records = [{"type": each["type"], **each["record"]} for each in foreseen["records"]]
        asked.show(foreseen, table=lambda: record_lines(records, look=asked.look))
        return 0
    written = asked.client().write("POST", path, body)
    asked.show(written, table=lambda: asked.table(columns, [written], empty=""))
    return 0
