"""Edge: login by SASL: PLAIN, with the name of a principal and its token, or SCRAM, with a user's password.

A client certificate needs no login here, and a principal's token is the same as over HTTP. A user that logs in by SCRAM has
the rights that the file of principals gives its name. A delegation token logs in as a user does, by its id and its HMAC, and
its client acts as the token's owner. Source: KIP-43, KIP-48, KIP-84, KIP-152; RFC 4616, RFC 5802.
"""

import secrets
from typing import Final

from metadata_log.errors import AuthenticationFailed
from metadata_log.kafka.reading import Values
from metadata_log.node.identity.access import Peer
from metadata_log.node.identity.rights import NOBODY, Principal
from metadata_log.node.identity.scram import Asked as WhoAsks
from metadata_log.node.identity.scram import Credential, Keys, ServerExchange
from metadata_log.records.users import MECHANISMS
from quorum.decide.tokens import is_over
from quorum.kafka.door import Api, Asked, AtOnce, KafkaDoor, Proved, ProvedToken
from quorum.kafka.errors import NONE

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
PLAIN: Final = "PLAIN"
_SCRAM: Final = {name: number for number, name in MECHANISMS.items()}
OFFERED: Final = (PLAIN, *_SCRAM)
UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE = 33, 34
SESSION_LIFETIME_MS: Final = 0
"""No end: each request looks whether the token or the credential still counts."""
NONCE_BYTES: Final = 24
_DECOY_KEY: Final = secrets.token_bytes(32)
"""Of this process: a challenge to an unknown user is the same until the node restarts."""


def handshake(door: KafkaDoor, asked: Asked) -> Values:
    (mechanism,) = asked.values
    if not _is_asked_for(door):
        return (ILLEGAL_SASL_STATE, ())
    if mechanism not in OFFERED:
        return (UNSUPPORTED_SASL_MECHANISM, OFFERED)
    assert asked.login is not None, "nobody logs in within an envelope"
    asked.login.mechanism, asked.login.exchange = mechanism, None
    return (NONE, OFFERED)


def authenticate(door: KafkaDoor, asked: Asked) -> Values:
    login = asked.login
    assert login is not None, "nobody logs in within an envelope"
    if login.mechanism is None:
        return (ILLEGAL_SASL_STATE, "SaslHandshake comes before", b"", SESSION_LIFETIME_MS)
    try:
        if login.mechanism != PLAIN:
            return (NONE, None, _scram_step(door, asked), SESSION_LIFETIME_MS)
        token = _token(door, asked.values[0])
    except AuthenticationFailed as error:
        login.has_failed, login.exchange = True, None
        door.access.refusals.note(
            error, door="kafka", principal=NOBODY.name, address=asked.caller.address, asked="SaslAuthenticate"
        )
        return (error.code, error.message, b"", SESSION_LIFETIME_MS)
    login.credential, login.proved, login.is_new = token, None, True
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


def _scram_step(door: KafkaDoor, asked: Asked) -> bytes:
    """Return the answer to the first message of SCRAM, or to the final one, with which the client is logged in.

    Raises:
        AuthenticationFailed: as `ServerExchange`.
    """
    login, message = asked.login, asked.values[0]
    assert login is not None and login.mechanism is not None
    mechanism = _SCRAM[login.mechanism]
    if login.exchange is None:
        exchange = ServerExchange(
            mechanism,
            lambda who: _credential(door, who, mechanism),
            nonce=secrets.token_urlsafe(NONCE_BYTES),
            decoy_key=_DECOY_KEY,
        )
        challenge: bytes = exchange.first(message)
        assert exchange.asked is not None, "the first message said who asks"
        # What is proved is the credential of the challenge, also where it is changed before the final message.
        login.exchange = exchange, door.controller.committed.users.get((exchange.asked.name, mechanism))
        return challenge
    (exchange, credential), login.exchange = login.exchange, None
    proof: bytes = exchange.final(message)
    login.credential, login.is_new = None, True
    assert exchange.asked is not None
    login.proved = (
        ProvedToken(exchange.asked.name)
        if exchange.asked.is_token
        else Proved(exchange.asked.name, mechanism, credential)
    )
    return proof


def _credential(door: KafkaDoor, who: WhoAsks, mechanism: int) -> Credential | None:
    """Return the credential of a user, or of a token, as it is committed here; None where there is none."""
    if who.is_token:
        token = door.controller.committed.tokens.get(who.name)
        if (
            token is None
            or not door.controller.tokens.is_on
            or is_over(token, door.controller.time_of_day_ms())
        ):
            return None
        return door.controller.tokens.credential_of(token.token_id, mechanism)
    found = door.controller.committed.users.get((who.name, mechanism))
    if found is None:
        return None
    return Credential(found.salt, found.iterations, Keys(found.stored_key, found.server_key))


APIS: Final = (
    Api(SASL_HANDSHAKE, AtOnce(handshake), operation=None),
    Api(SASL_AUTHENTICATE, AtOnce(authenticate), operation=None),
)
