"""Edge: login by SASL: PLAIN, with the name of a principal and its token. Source: KIP-43, KIP-152; RFC 4616.

A client certificate needs no login here, and a principal's token is the same as over HTTP.
"""

from typing import Final

from metadata_log.errors import AuthenticationFailed
from metadata_log.kafka.reading import Values
from metadata_log.node.identity.access import Peer
from metadata_log.node.identity.rights import NOBODY, Principal
from quorum.kafka.door import Api, Asked, AtOnce, KafkaDoor
from quorum.kafka.errors import NONE

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
PLAIN: Final = "PLAIN"
UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE = 33, 34
SESSION_LIFETIME_MS: Final = 0
"""No end: each request looks whether the token still counts."""


def handshake(door: KafkaDoor, asked: Asked) -> Values:
    (mechanism,) = asked.values
    if not _is_asked_for(door):
        return (ILLEGAL_SASL_STATE, ())
    if mechanism != PLAIN:
        return (UNSUPPORTED_SASL_MECHANISM, (PLAIN,))
    assert asked.login is not None, "nobody logs in within an envelope"
    asked.login.mechanism = PLAIN
    return (NONE, (PLAIN,))


def authenticate(door: KafkaDoor, asked: Asked) -> Values:
    login = asked.login
    assert login is not None, "nobody logs in within an envelope"
    if login.mechanism is None:
        return (ILLEGAL_SASL_STATE, "SaslHandshake comes before", b"", SESSION_LIFETIME_MS)
    try:
        token = _token(door, asked.values[0])
    except AuthenticationFailed as error:
        login.has_failed = True
        door.access.refusals.note(
            error, door="kafka", principal=NOBODY.name, address=asked.caller.address, asked="SaslAuthenticate"
        )
        return (error.code, error.message, b"", SESSION_LIFETIME_MS)
    login.credential, login.is_new = token, True
    return (NONE, None, b"", SESSION_LIFETIME_MS)


def _is_asked_for(door: KafkaDoor) -> bool:
    return door.settings.kafka_security.startswith("sasl")


def _token(door: KafkaDoor, message: bytes) -> str:
    """Return the token in a message of PLAIN: whom to act as, which may be left out; the name; the token.

    Raises:
        AuthenticationFailed: it is no such message, or not the token of that name.
    """
    refused = AuthenticationFailed(
        "the name is none of this cluster's principals, or the token is not its own"
    )
    try:
        acts_as, name, token = message.decode().split("\0")
    except ValueError:
        raise refused from None
    try:
        principal = door.access.principal(Peer(None, token))
    except AuthenticationFailed:
        raise refused from None
    if not _is_named(principal, name) or acts_as not in ("", name):
        raise refused
    return token


def _is_named(principal: Principal, name: str) -> bool:
    """Return whether a client calls a principal by its name, in which users need not say what they are."""
    return principal.name in (name, f"User:{name}")


APIS: Final = (
    Api(SASL_HANDSHAKE, AtOnce(handshake), operation=None),
    Api(SASL_AUTHENTICATE, AtOnce(authenticate), operation=None),
)
