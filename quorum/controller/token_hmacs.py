"""Pure: the HMACs of delegation tokens, by which clients name them and log in.

An HMAC follows from the token's id and the secret key, which all controllers and brokers of a cluster share, so the log has
no secret. Source: KIP-48; Kafka's DelegationTokenManager.createHmac.
Tests: tests/unit/quorum/controller/test_token_hmacs.py.
"""

import base64
import hmac
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from metadata_log.batch import RecordBatch
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from metadata_log.limits import TOKEN_CREDENTIALS_MAX
from metadata_log.node.identity.scram import HASHES, ITERATIONS_MIN, Credential, keys_of, salted
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, Sliced, at_once
from quorum.controller.applied_listener import AppliedListener

HASH: Final = "sha512"
_SALT_LABEL: Final = b"salt of a delegation token\0"


class TokenHmacs(AppliedListener):
    """Knows the HMAC of each token that is committed; nothing, while there is no secret key."""

    def __init__(self) -> None:
        self._secret: bytes | None = None
        self._ids: dict[bytes, str] = {}
        """By HMAC."""
        self._tokens = EMPTY.tokens
        """Those that are committed."""
        self._left: Iterator[str] = iter(())
        """Ids of a snapshot whose HMACs are not made yet: they are made once one is looked for."""
        self._credentials: OrderedDict[tuple[str, int], Credential] = OrderedDict()
        """By id and mechanism, those used last at the end: a client has no identity yet when it asks for one."""

    def use(self, secret_key: bytes | None) -> None:
        """Take the secret key, before anything is applied; None: tokens are disabled."""
        self._secret = secret_key
        self._credentials.clear()

    @property
    def is_on(self) -> bool:
        return self._secret is not None

    def hmac_of(self, token_id: str) -> bytes:
        assert self._secret is not None, "tokens are disabled"
        return hmac.digest(self._secret, token_id.encode(), HASH)

    def id_of(self, token_hmac: bytes) -> str | None:
        """Return the id of the committed token with this HMAC; None where there is none."""
        at_once(self.catching_up())
        return self._ids.get(token_hmac)

    def catching_up(self) -> Sliced[None]:
        """Make the HMACs that a snapshot left to be made: after it `id_of` takes no time."""
        made = 0
        while (token_id := next(self._left, None)) is not None:
            if token_id in self._tokens:
                self._ids[self.hmac_of(token_id)] = token_id
            made += 1
            if made % ITEMS_BETWEEN_RESTS == 0:
                yield

    def known_credential(self, token_id: str, mechanism: int) -> Credential | None:
        """Return the SCRAM credential of a token, if it is kept."""
        key = token_id, mechanism
        if (known := self._credentials.get(key)) is not None:
            self._credentials.move_to_end(key)
        return known

    def keep(self, token_id: str, mechanism: int, made: Credential) -> None:
        """Keep a credential, and drop the one that was used longest ago if there are too many."""
        self._credentials[token_id, mechanism] = made
        if len(self._credentials) > TOKEN_CREDENTIALS_MAX:
            self._credentials.popitem(last=False)

    def made_credential(self, token_id: str, mechanism: int) -> Credential:
        """Make the SCRAM credential of a token: its password is the HMAC in base64, as Kafka's clients send it.

        It takes some milliseconds, and may run in a thread.
        """
        assert self._secret is not None, "tokens are disabled"
        salt = hmac.digest(self._secret, _SALT_LABEL + token_id.encode(), HASHES[mechanism])
        password = base64.b64encode(self.hmac_of(token_id))
        keys = keys_of(mechanism, salted(mechanism, password, salt, ITERATIONS_MIN))
        return Credential(salt, ITERATIONS_MIN, keys)

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        if not delta.tokens or self._secret is None:
            return
        self._tokens = image.tokens
        for token_id in delta.tokens:
            token_hmac = self.hmac_of(token_id)
            if token_id in image.tokens:
                self._ids[token_hmac] = token_id
            else:
                self._ids.pop(token_hmac, None)

    def on_restored(self, image: MetadataImage) -> None:
        if self._secret is not None:
            self._ids, self._tokens, self._left = {}, image.tokens, iter(image.tokens)
