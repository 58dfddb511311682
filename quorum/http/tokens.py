"""Edge: delegation tokens over HTTP: issued, renewed, expired and listed.

A token's HMAC is shown once, to the principal that asked for it. Tests: tests/unit/quorum/http/test_tokens.py.
"""

import base64
import binascii
from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import Meta

from metadata_log import limits
from metadata_log.errors import DelegationTokenRequestNotAllowed, InvalidRequest
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.tokens import token_item
from metadata_log.items import Items
from metadata_log.node.http.query import flag
from metadata_log.node.http.routes import NAME
from metadata_log.wire.commands import Command
from metadata_log.wire.shapes import INT64_MAX, Shape, check_text, read_shape
from quorum.controller.callers import Caller
from quorum.controller.tokens_seen import may_describe
from quorum.decide.tokens import (
    AT_ONCE,
    CreateDelegationToken,
    CreateDelegationTokenFor,
    ExpireDelegationToken,
    RenewDelegationToken,
    TokenCreated,
    TokenExpiry,
    visible,
)
from quorum.http.bodies import caller_of, read_body
from quorum.http.door import Door, items_of
from quorum.http.routes import AS_FRESH, TRIAL, reading, writing

Period = Annotated[int, Meta(ge=1, le=INT64_MAX)]
ExpiryPeriod = Annotated[int, Meta(ge=AT_ONCE, le=INT64_MAX)]


class NewToken(Shape, frozen=True):
    """A token to issue; principals are written `User:NAME`, and the owner left out is the principal that asks."""

    owner: str | None = None
    renewers: Annotated[tuple[str, ...], Meta(max_length=limits.LIST_ITEMS_MAX)] = ()
    max_lifetime_ms: Period | None = None


class NamedToken(Shape, frozen=True):
    """A token, by its id or by its HMAC in base64."""

    token_id: str | None = None
    hmac: str | None = None


class RenewedToken(NamedToken, frozen=True):
    renew_period_ms: Period | None = None


class ExpiringToken(NamedToken, frozen=True):
    """`expiry_period_ms` -1 ends it at once."""

    expiry_period_ms: ExpiryPeriod = AT_ONCE


async def create_token(door: Door, request: web.Request) -> web.Response:
    caller = _allowed(door, request)
    wanted = read_shape(await read_body(request, door.bodies), NewToken, "token")
    for principal in (*wanted.renewers, *([] if wanted.owner is None else [wanted.owner])):
        check_text("token.renewers and token.owner", principal)
        if ":" not in principal.removesuffix(":"):
            raise InvalidRequest(f"{principal!r}: a principal is written TYPE:NAME, as User:ann")
    fields = {"renewers": wanted.renewers, "max_lifetime_ms": wanted.max_lifetime_ms or -1}
    command: Command = (
        CreateDelegationToken(**fields)  # type: ignore[arg-type]  # its own two fields
        if wanted.owner in (None, caller.name)
        else CreateDelegationTokenFor(owner=wanted.owner, **fields)  # type: ignore[arg-type]
    )

    def shown(issued: TokenCreated) -> dict[str, Any]:
        # A request id is no secret: a principal that repeats another's request gets everything but what logs in.
        is_own = caller.name in (issued.owner, issued.requester) and not flag(request, "validate_only")
        hmac = door.controller.tokens.hmac_of(issued.token_id) if is_own else b""
        return {**issued._asdict(), "hmac": base64.b64encode(hmac).decode() if hmac else None}

    return await _carry_out(door, request, command, shown)


async def renew_token(door: Door, request: web.Request) -> web.Response:
    _allowed(door, request)
    wanted = read_shape(await read_body(request, door.bodies), RenewedToken, "token")
    token_id, hmac = _named(wanted)
    command = RenewDelegationToken(token_id=token_id, hmac=hmac, renew_period_ms=wanted.renew_period_ms or -1)
    return await _carry_out(door, request, command, TokenExpiry._asdict)


async def expire_token(door: Door, request: web.Request) -> web.Response:
    _allowed(door, request)
    wanted = read_shape(await read_body(request, door.bodies), ExpiringToken, "token")
    token_id, hmac = _named(wanted)
    command = ExpireDelegationToken(
        token_id=token_id, hmac=hmac, expiry_time_period_ms=wanted.expiry_period_ms
    )
    return await _carry_out(door, request, command, TokenExpiry._asdict)


async def _carry_out(door: Door, request: web.Request, command: Command, shown: Any) -> web.Response:
    if flag(request, "validate_only"):
        return await door.try_out(request, command, shown)
    return await door.write(request, command, shown)


def _named(wanted: NamedToken) -> tuple[str | None, bytes]:
    if (wanted.token_id is None) == (wanted.hmac is None):
        raise InvalidRequest("token: name either token_id or hmac")
    if wanted.hmac is None:
        return wanted.token_id, b""
    check_text("token.hmac", wanted.hmac)
    try:
        return None, base64.b64decode(wanted.hmac, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("token.hmac is not base64") from None


def _allowed(door: Door, request: web.Request) -> Caller:
    """Return the sender of a request for tokens.

    Raises:
        DelegationTokenRequestNotAllowed: it asks in the clear, or identity is off.
    """
    if door.settings.tls is None or not door.access.is_on:
        raise DelegationTokenRequestNotAllowed(
            "delegation tokens are not asked for in the clear, nor without an identity: they need [tls] and [identity]"
        )
    return caller_of(request)


async def list_tokens(door: Door, request: web.Request) -> web.StreamResponse:
    """Answer with the tokens that the caller may see, without their HMACs: of all owners, or of one."""
    caller, owner = caller_of(request), request.query.get("owner")

    def view(image: MetadataImage) -> dict[str, Any]:
        owners = None if owner is None else {owner}
        found = visible(image.tokens.values(), caller.name, owners, may_describe(caller, image))
        found.sort()
        return items_of(image, Items(len(found), map(token_item, found)))

    return await door.read_large(
        request, view, is_large=lambda image: len(image.tokens) > limits.LARGE_VIEW_ITEMS
    )


ROUTES: Final = (
    reading("/v1/tokens", list_tokens, "DescribeDelegationToken", {**AS_FRESH, "owner": NAME}),
    writing("POST", "/v1/tokens", create_token, "CreateDelegationToken", TRIAL),
    writing("POST", "/v1/tokens/renew", renew_token, "RenewDelegationToken", TRIAL),
    writing("POST", "/v1/tokens/expire", expire_token, "ExpireDelegationToken", TRIAL),
)
