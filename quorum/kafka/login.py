"""Edge: login by SASL: PLAIN, with the name of a principal and its token, or SCRAM, with a user's password.

A client certificate needs no login here, and a principal's token is the same as over HTTP. A user that logs in by SCRAM has
the rights that the file of principals gives its name, or is the principal that has this `user` there: so brokers log in by
SCRAM. A delegation token logs in as a user does, by its id and its HMAC, and its client acts as the token's owner. Source:
KIP-43, KIP-48, KIP-84, KIP-152; RFC 4616, RFC 5802.
"""

import secrets
from typing import Final

from metadata_log.errors import AuthenticationFailed, ThrottlingQuotaExceeded
from metadata_log.kafka.reading import Values
from metadata_log.node.identity.access import Peer
from metadata_log.node.identity.rights import NOBODY, Principal
from metadata_log.node.identity.scram import Credential, Keys, ServerExchange
from metadata_log.records.users import MECHANISMS
from quorum.decide.tokens import is_over
from quorum.kafka.door import (
    Api,
    Asked,
    AtOnce,
    Done,
    GiveUp,
    KafkaDoor,
    Login,
    Parks,
    Proved,
    ProvedToken,
)
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


def authenticate(door: KafkaDoor, asked: Asked, done: Done) -> GiveUp | None:
    """Answer a message of a login. It waits where the credential of a delegation token has yet to be made.

    Raises:
        ThrottlingQuotaExceeded: too many logins wait already; the connection is closed after this answer.
    """
    login = asked.login
    assert login is not None, "nobody logs in within an envelope"
    if login.mechanism is None:
        done((ILLEGAL_SASL_STATE, "SaslHandshake comes before", b"", SESSION_LIFETIME_MS))
        return None
    try:
        if login.mechanism != PLAIN and login.exchange is None:
            return _scram_begun(door, asked, login, done)
        if login.mechanism != PLAIN:
            done(_accepted(_scram_proof(asked, login)))
            return None
        token = _token(door, asked.values[0])
    except AuthenticationFailed as error:
        login.has_failed, login.exchange = True, None
        door.access.refusals.note(
            error, door="kafka", principal=NOBODY.name, address=asked.caller.address, asked="SaslAuthenticate"
        )
        done((error.code, error.message, b"", SESSION_LIFETIME_MS))
        return None
    login.credential, login.proved, login.is_new = token, None, True
    done(_accepted(b""))
    return None


def _accepted(message: bytes) -> Values:
    return (NONE, None, message, SESSION_LIFETIME_MS)


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
    """Return whether a client calls a principal by its name, in which users need not say what they are, or as a user."""
    return principal.name in (name, f"User:{name}") or principal.user == name


def _scram_begun(door: KafkaDoor, asked: Asked, login: Login, done: Done) -> GiveUp | None:
    """Answer the first message of SCRAM.

    Raises:
        AuthenticationFailed: as `ServerExchange`.
        ThrottlingQuotaExceeded: as `authenticate`.
    """
    assert login.mechanism is not None
    mechanism = _SCRAM[login.mechanism]
    exchange = ServerExchange(mechanism, nonce=secrets.token_urlsafe(NONCE_BYTES), decoy_key=_DECOY_KEY)
    who = exchange.first(asked.values[0])
    # What is proved is the credential of the challenge, also where it is changed before the final message.
    found = door.controller.committed.users.get((who.name, mechanism))

    def challenge(known: Credential | None) -> None:
        login.exchange = exchange, found
        done(_accepted(exchange.challenge(known)))

    if not who.is_token:
        challenge(
            found and Credential(found.salt, found.iterations, Keys(found.stored_key, found.server_key))
        )
        return None
    if not _lasts(door, who.name):
        challenge(None)
        return None
    known = door.controller.tokens.known_credential(who.name, mechanism)
    if known is not None:
        challenge(known)
        return None
    try:
        return door.token_logins.wait_for(who.name, mechanism, address=asked.caller.address, done=challenge)
    except ThrottlingQuotaExceeded:
        login.has_failed = True
        raise


def _scram_proof(asked: Asked, login: Login) -> bytes:
    """Return the answer to the final message of SCRAM, with which the client is logged in.

    Raises:
        AuthenticationFailed: as `ServerExchange`.
    """
    assert login.mechanism is not None
    (exchange, credential), login.exchange = login.exchange, None
    proof: bytes = exchange.final(asked.values[0])
    login.credential, login.is_new = None, True
    assert exchange.asked is not None
    login.proved = (
        ProvedToken(exchange.asked.name)
        if exchange.asked.is_token
        else Proved(exchange.asked.name, _SCRAM[login.mechanism], credential)
    )
    return proof


def _lasts(door: KafkaDoor, token_id: str) -> bool:
    """Return whether there is a delegation token, as it is committed here, that has not ended."""
    token = door.controller.committed.tokens.get(token_id)
    return (
        token is not None
        and door.controller.tokens.is_on
        and not is_over(token, door.controller.time_of_day_ms())
    )


APIS: Final = (
    Api(SASL_HANDSHAKE, AtOnce(handshake), operation=None),
    Api(SASL_AUTHENTICATE, Parks(authenticate), operation=None),
)
