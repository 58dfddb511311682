"""Pure: what can happen to delegation tokens, by which clients act as their owner without its password.

The log has no secret of a token: its HMAC follows from its id and from the secret key in the settings of the nodes.
Source: KIP-48, KIP-900. Tests: tests/unit/quorum/decide/test_tokens.py.
"""

from typing import NamedTuple, TypeAlias

from metadata_log.records.declaration import NO_SECRETS, record


@record(type_id=10, secret_fields=NO_SECRETS, levels=(5,))
class DelegationTokenRecord(NamedTuple):
    """A token was issued or renewed, or its expiry was moved; principals are written `User:NAME`, times are Unix ms.

    It ends at `expiry_timestamp_ms`, and cannot be renewed beyond `max_timestamp_ms`.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int


@record(type_id=26, secret_fields=NO_SECRETS, levels=(5,))
class RemoveDelegationTokenRecord(NamedTuple):
    """A token is gone: its owner or a renewer ended it, or it expired."""

    token_id: str


Record: TypeAlias = DelegationTokenRecord | RemoveDelegationTokenRecord
