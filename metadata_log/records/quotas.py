"""Pure: what can happen to the quotas of clients. Tests: tests/unit/quorum/decide/test_quotas.py."""

from typing import NamedTuple, TypeAlias

from metadata_log.records.declaration import NO_SECRETS, record

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
"""The types of what a quota may be of."""


class QuotaEntity(NamedTuple):
    """One part of what a quota is of; the name None means all without a quota of their own."""

    entity_type: str
    entity_name: str | None


@record(type_id=14, secret_fields=NO_SECRETS, levels=(4,))
class ClientQuotaRecord(NamedTuple):
    """A quota of an entity, which is in order of its types, got a value, or was removed (with the value 0)."""

    entity: tuple[QuotaEntity, ...]
    key: str
    value: float
    remove: bool


Record: TypeAlias = ClientQuotaRecord
