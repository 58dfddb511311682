"""Pure: the server's side of a login by SCRAM, and the arithmetic of its credentials; sans-IO.

The client proves that it knows a password, and learns that the server knows it, too; neither sends it. A stranger does not
learn whether a user exists: an unknown one gets a challenge that is always the same, and fails at the proof.
Source: RFC 5802, RFC 7677; KIP-84. Tests: tests/unit/metadata_log/node/identity/test_scram.py.
"""

import base64
import binascii
import hashlib
import hmac
import re
import string
from collections.abc import Mapping
from typing import Final, NamedTuple

from metadata_log.errors import AuthenticationFailed

HASHES: Final[Mapping[int, str]] = {1: "sha256", 2: "sha512"}
"""By Kafka's numbers of mechanisms."""
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
"""Source: Kafka's ScramMechanism and ScramControlManager."""
MESSAGE_BYTES_MAX: Final = 4_096
_SALT_BITS: Final = 130
_DIGITS: Final = string.digits + string.ascii_lowercase
_NAME: Final = r"(?:[^,=]|=2C|=3D)+"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<acts_as>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<more>(?:,[A-Za-z]+=[^,]+)*))",
    re.DOTALL,
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<without_proof>c=(?P<header>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,]+)*)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.DOTALL,
)
_BY_TOKEN: Final = "tokenauth=true"  # noqa: S105 (what a client says of itself)


class Keys(NamedTuple):
    stored_key: bytes
    server_key: bytes


class Credential(NamedTuple):
    """What a server keeps of a password."""

    salt: bytes
    iterations: int
    keys: Keys


def salted(mechanism: int, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return the salted password, from which the keys follow: some milliseconds of work."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)


def keys_of(mechanism: int, salted_password: bytes) -> Keys:
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return Keys(hashlib.new(name, client_key).digest(), hmac.digest(salted_password, b"Server Key", name))


def salt_of(number: int) -> bytes:
    """Return a salt of the form that Kafka's clients draw: a number of 130 bits, in digits and small letters."""
    number %= 1 << _SALT_BITS
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return (digits or "0").encode()


class Asked(NamedTuple):
    """The user that asks to log in; with `is_token`, `name` is the id of a delegation token."""

    name: str
    is_token: bool


class ServerExchange:
    """One login: `first` reads the client's first message, `challenge` answers it, and `final` the second and last one."""

    def __init__(self, mechanism: int, *, nonce: str, decoy_key: bytes) -> None:
        """`nonce` is random, `decoy_key` secret and the same for all logins."""
        self._mechanism = mechanism
        self._nonce, self._decoy_key = nonce, decoy_key
        self.asked: Asked | None = None
        """Set by the first message; proved once `final` has returned."""
        self._credential: Credential | None = None
        self._is_known = False
        self._header = ""
        self._bare = ""
        self._server_first = ""

    def first(self, message: bytes) -> Asked:
        """Return the user that asks, whose credential `challenge` needs.

        Raises:
            AuthenticationFailed: the message is none of SCRAM, or wants what is not offered here.
        """
        found = _CLIENT_FIRST.fullmatch(_text(message))
        if found is None:
            raise AuthenticationFailed("this is no first message of SCRAM")
        name = found["name"].replace("=2C", ",").replace("=3D", "=")
        if found["acts_as"] not in (None, found["name"]):
            raise AuthenticationFailed("a client of SCRAM acts as the user that logs in, and as nobody else")
        self.asked = Asked(name, _BY_TOKEN in found["more"].split(","))
        self._header, self._bare = found["header"], found["bare"]
        self._nonce = found["nonce"] + self._nonce
        return self.asked

    def challenge(self, known: Credential | None) -> bytes:
        """Return the challenge to the user that asks, whose credential is given; None: there is no such user."""
        assert self.asked is not None, "the first message comes before the challenge"
        self._is_known = known is not None
        self._credential = credential = known or self._decoy(self.asked)
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def final(self, message: bytes) -> bytes:
        """Return the server's proof.

        Raises:
            AuthenticationFailed: the client has not proved that it knows the password, or there is no such user.
        """
        credential = self._credential
        assert credential is not None, "the challenge comes before the final message"
        found = _CLIENT_FINAL.fullmatch(_text(message))
        if (
            found is None
            or found["nonce"] != self._nonce
            or _decoded(found["header"]) != self._header.encode()
        ):
            raise AuthenticationFailed("this is no answer to the challenge of SCRAM")
        name = HASHES[self._mechanism]
        signed = f"{self._bare},{self._server_first},{found['without_proof']}".encode()
        signature = hmac.digest(credential.keys.stored_key, signed, name)
        proof = _decoded(found["proof"])
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        is_proved = hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.keys.stored_key)
        if len(proof) != len(signature) or not (is_proved and self._is_known):
            raise AuthenticationFailed("the user has no such credential, or the password is not its own")
        return b"v=" + base64.b64encode(hmac.digest(credential.keys.server_key, signed, name))

    def _decoy(self, asked: Asked) -> Credential:
        """Return what an unknown user is challenged with: the same each time, as if it had a credential."""
        what = f"{self._mechanism},{asked.is_token},{asked.name}".encode()
        drawn = hmac.digest(self._decoy_key, what, "sha512")
        keys = Keys(drawn, drawn)
        return Credential(salt_of(int.from_bytes(drawn)), ITERATIONS_MIN, keys)


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise AuthenticationFailed(f"a message of SCRAM has at most {MESSAGE_BYTES_MAX} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("a message of SCRAM is UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationFailed("a message of SCRAM has no sound base64") from None
