"""Pure: quotas of clients as columns. Tests: tests/unit/metadata_log/replay/test_changes.py."""

from typing import Final

import pyarrow as pa

from metadata_log.records.quotas import ClientQuotaRecord, QuotaEntity
from metadata_log.replay.subjects.subject import ReplaySubject, objects_column

_PART: Final = pa.struct([("entity_type", pa.string()), ("entity_name", pa.string())])

SUBJECT: Final = ReplaySubject(
    fields=(
        (
            "quota_entity",
            pa.list_(pa.field("element", _PART)),
            "what a quota is of: user, client-id, both, or ip; a name of null is the default",
        ),
        ("quota_key", pa.string(), "the quota's key, such as producer_byte_rate"),
        (
            "quota_value",
            pa.string(),
            "its value, as text: the shortest decimal that is this 64-bit number; cast it to DOUBLE to count with it",
        ),
        ("quota_removed", pa.bool_(), "the quota was removed"),
    ),
    identity=("quota_entity", "quota_key"),
    key=(
        "'quota:' || array_join(transform(quota_entity, e -> e.entity_type || '=' || coalesce(e.entity_name, '<default>')),"
        " ',') || ' ' || quota_key"
    ),
    columns={ClientQuotaRecord: ("quota_entity", "quota_key", "quota_value", "quota_removed")},
    changes=("quota_changes",),
    to_column={
        "quota_entity": objects_column(QuotaEntity._fields),
        # No two engines write all numbers alike, and digests need one text.
        "quota_value": lambda values, _texts: [repr(value) for value in values],
    },
    from_column={
        "quota_entity": lambda rows: tuple(QuotaEntity(**row) for row in rows),
        "quota_value": float,
    },
)
