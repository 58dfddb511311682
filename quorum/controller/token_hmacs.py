"""Pure: the HMACs of delegation tokens, by which clients name them and log in.

An HMAC follows from the token's id and the secret key, which all controllers and brokers of a cluster share, so the log has
no secret. Source: KIP-48; Kafka's DelegationTokenManager.createHmac.
Tests: tests/unit/quorum/controller/test_token_hmacs.py.
"""

import base64
import hmac
from typing import Final

from metadata_log.batch import RecordBatch
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.image.tokens import TokensImage
from metadata_log.node.identity.scram import HASHES, ITERATIONS_MIN, Credential, keys_of, salted
from quorum.controller.applied_listener import AppliedListener

HASH: Final = "sha512"
_SALT_LABEL: Final = b"salt of a delegation token\0"


class TokenHmacs(AppliedListener):
    """Knows the HMAC of each token that is committed; nothing, while there is no secret key."""

    def __init__(self) -> None:
        self._secret: bytes | None = None
        self._ids: dict[bytes, str] = {}
        """By HMAC."""
        self._to_count: TokensImage | None = None
        """The tokens of a snapshot, whose HMACs are made when the first is looked for."""

    def use(self, secret_key: bytes | None) -> None:
        """Take the secret key, before anything is applied; None: tokens are disabled."""
        self._secret = secret_key

    @property
    def is_on(self) -> bool:
        return self._secret is not None

    def hmac_of(self, token_id: str) -> bytes:
        assert self._secret is not None, "tokens are disabled"
        return hmac.digest(self._secret, token_id.encode(), HASH)

    def id_of(self, token_hmac: bytes) -> str | None:
        """Return the id of the committed token with this HMAC; None where there is none."""
        if self._to_count is not None:
            self._ids = {self.hmac_of(token_id): token_id for token_id in self._to_count}
            self._to_count = None
        return self._ids.get(token_hmac)

    def credential_of(self, token_id: str, mechanism: int) -> Credential:
        """Return the SCRAM credential of a token: its password is the HMAC in base64, as Kafka's clients send it."""
        assert self._secret is not None, "tokens are disabled"
        salt = hmac.digest(self._secret, _SALT_LABEL + token_id.encode(), HASHES[mechanism])
        password = base64.b64encode(self.hmac_of(token_id))
        keys = keys_of(mechanism, salted(mechanism, password, salt, ITERATIONS_MIN))
        return Credential(salt, ITERATIONS_MIN, keys)

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        if not delta.tokens or self._secret is None:
            return
        if self._to_count is not None:
            self._to_count = image.tokens
            return
        for token_id in delta.tokens:
            token_hmac = self.hmac_of(token_id)
            if token_id in image.tokens:
                self._ids[token_hmac] = token_id
            else:
                self._ids.pop(token_hmac, None)

    def on_restored(self, image: MetadataImage) -> None:
        if self._secret is not None:
            self._ids, self._to_count = {}, image.tokens
