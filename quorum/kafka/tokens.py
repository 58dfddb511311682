"""Edge: delegation tokens in Kafka's protocol: issued, renewed, expired and described.

As in Kafka, a request is refused in the clear, without an identity, and from a client that logged in by a token.
Source: Kafka's ControllerApis.allowTokenRequests. Tests: tests/unit/quorum/kafka/test_tokens.py.
"""

from typing import Final

from metadata_log.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenNotAuthorized,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    NotAuthorized,
)
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.kafka.reading import Values
from metadata_log.node.identity.rights import ANYBODY
from metadata_log.records.tokens import DelegationTokenRecord
from quorum.controller.tokens_seen import may_describe
from quorum.decide.tokens import (
    CreateDelegationToken,
    CreateDelegationTokenFor,
    ExpireDelegationToken,
    RenewDelegationToken,
    TokenCreated,
    visible,
)
from quorum.kafka.door import NO_THROTTLE, Api, Asked, KafkaDoor, Waits
from quorum.kafka.errors import NONE, KafkaError

CREATE_TOKEN, RENEW_TOKEN, EXPIRE_TOKEN, DESCRIBE_TOKEN = 38, 39, 40, 41
_NO_TIME: Final = -1
_REQUESTER_FROM: Final = 3
"""The first version of answers that names who asked for a token."""


async def create_token(door: KafkaDoor, asked: Asked) -> Values:
    _check_allowed(door, asked)
    kind, name, renewers, max_lifetime_ms = asked.values
    requester = asked.caller.name
    if name and kind is None:
        raise InvalidPrincipalType(f"the owner {name[:100]!r} has no type: User, for example")
    owner = f"{kind}:{name}" if name else requester
    fields = {
        "renewers": tuple(f"{kind}:{name}" for kind, name in renewers),
        "max_lifetime_ms": max_lifetime_ms,
    }
    command = (
        CreateDelegationToken(**fields)
        if owner == requester
        else CreateDelegationTokenFor(owner=owner, **fields)
    )
    try:
        written = await door.controller.submit(command, asked.caller)
    except NotAuthorized as error:
        raise DelegationTokenNotAuthorized(error.message) from error
    issued: TokenCreated = written.outcome  # type: ignore[assignment]  # the outcome of this command
    return (
        NONE,
        *_two(issued.owner),
        *_requester(asked, issued.requester),
        issued.issue_timestamp_ms,
        issued.expiry_timestamp_ms,
        issued.max_timestamp_ms,
        issued.token_id,
        door.controller.tokens.hmac_of(issued.token_id),
        NO_THROTTLE,
    )


async def renew_token(door: KafkaDoor, asked: Asked) -> Values:
    _check_allowed(door, asked)
    hmac, renew_period_ms = asked.values
    written = await door.controller.submit(
        RenewDelegationToken(hmac=hmac, renew_period_ms=renew_period_ms), asked.caller
    )
    return (NONE, written.outcome[0], NO_THROTTLE)


async def expire_token(door: KafkaDoor, asked: Asked) -> Values:
    _check_allowed(door, asked)
    hmac, period_ms = asked.values
    written = await door.controller.submit(
        ExpireDelegationToken(hmac=hmac, expiry_time_period_ms=period_ms), asked.caller
    )
    return (NONE, written.outcome[0], NO_THROTTLE)


async def describe_tokens(door: KafkaDoor, asked: Asked) -> Values:
    _check_allowed(door, asked)
    if not door.controller.tokens.is_on:
        raise DelegationTokenAuthDisabled(
            "no delegation tokens here: [delegation_tokens] secret_key_file is not set"
        )
    (named,) = asked.values
    image: MetadataImage = await door.controller.read(lambda image: image)
    owners = None if named is None else {f"{kind}:{name}" for kind, name in named}

    def described() -> list[Values]:
        found = visible(image.tokens.values(), asked.caller.name, owners, may_describe(asked.caller, image))
        return [_described(asked, token, door.controller.tokens.hmac_of(token.token_id)) for token in found]

    return (NONE, await door.reads.run(described), NO_THROTTLE)


def _described(asked: Asked, token: DelegationTokenRecord, hmac: bytes) -> Values:
    return (
        *_two(token.owner),
        *_requester(asked, token.requester),
        token.issue_timestamp_ms,
        token.expiry_timestamp_ms,
        token.max_timestamp_ms,
        token.token_id,
        hmac,
        [_two(renewer) for renewer in token.renewers],
    )


def _two(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _requester(asked: Asked, principal: str) -> tuple[str, str]:
    """Return the requester as an answer names it; older versions have no field for it."""
    return _two(principal) if asked.version >= _REQUESTER_FROM else ("", "")


def _check_allowed(door: KafkaDoor, asked: Asked) -> None:
    """Check that a client may ask for tokens.

    Raises:
        DelegationTokenRequestNotAllowed: it logged in by a token, asks in the clear, or shows no identity.
    """
    principal = asked.caller.principal
    security = door.settings.kafka_security
    if principal.by_token:
        raise DelegationTokenRequestNotAllowed("a client that logged in by a delegation token asks for none")
    if security == "plaintext" or (security == "tls" and asked.caller.name == ANYBODY.name):
        raise DelegationTokenRequestNotAllowed(
            "delegation tokens are asked for by SASL, or with a client certificate: not in the clear, and not without an "
            f"identity ([kafka] security is {security})"
        )


def _refused_creation(_api: Api, asked: Asked, error: KafkaError) -> Values:
    kind, name = asked.values[:2]
    owner = (kind or "", name) if name else _two(asked.caller.name)
    requester = _requester(asked, asked.caller.name)
    return (error.code, *owner, *requester, _NO_TIME, _NO_TIME, _NO_TIME, "", b"", NO_THROTTLE)


def _refused_move(_api: Api, _asked: Asked, error: KafkaError) -> Values:
    return (error.code, _NO_TIME, NO_THROTTLE)


APIS: Final = (
    Api(CREATE_TOKEN, Waits(create_token), "CreateDelegationToken", _refused_creation, in_envelopes=True),
    Api(RENEW_TOKEN, Waits(renew_token), "RenewDelegationToken", _refused_move, in_envelopes=True),
    Api(EXPIRE_TOKEN, Waits(expire_token), "ExpireDelegationToken", _refused_move, in_envelopes=True),
    Api(DESCRIBE_TOKEN, Waits(describe_tokens), "DescribeDelegationToken"),
)
