"""Pure: what can happen to what a cluster knows of users: their SCRAM credentials.
Tests: tests/unit/quorum/decide/test_users.py.
"""

from typing import NamedTuple, TypeAlias

from metadata_log.records.declaration import NO_SECRETS, record

SCRAM_SHA_256 = 1
SCRAM_SHA_512 = 2
"""Kafka's numbers of mechanisms. Source: its ScramMechanism."""
MECHANISMS = {SCRAM_SHA_256: "SCRAM-SHA-256", SCRAM_SHA_512: "SCRAM-SHA-512"}
MASK_KEY_BYTES = 16


def _has_key(credential: "UserScramCredentialRecord") -> bool:
    """Answer whether a record has its secrets: those of an export, and of Kafka's log as it is read here, have none."""
    return credential.mask_key is not None


@record(
    type_id=11,
    secret_fields={"salt": _has_key, "stored_key": _has_key, "server_key": _has_key},
    levels=(4,),
    mask_key="mask_key",
)
class UserScramCredentialRecord(NamedTuple):
    """A user got a credential of a mechanism, in place of any before. Without its random mask key it holds no secret."""

    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    mask_key: bytes | None


@record(type_id=22, secret_fields=NO_SECRETS, levels=(4,))
class RemoveUserScramCredentialRecord(NamedTuple):
    """A user's credential of a mechanism is gone."""

    name: str
    mechanism: int


Record: TypeAlias = UserScramCredentialRecord | RemoveUserScramCredentialRecord
