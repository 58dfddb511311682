"""Pure: brokers as columns. Tests: tests/unit/metadata_log/replay/test_changes.py."""

from typing import Final

import pyarrow as pa

from metadata_log.ids import uuid_from_text
from metadata_log.records.brokers import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FeatureRange,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.replay.subjects.subject import (
    TEXTS,
    ReplaySubject,
    objects_column,
    uuid_column,
    uuids_column,
    uuids_of,
)

_ENDPOINT: Final = pa.struct(
    [
        ("name", pa.string()),
        ("host", pa.string()),
        ("port", pa.int32()),
        ("security_protocol", pa.int32()),
    ]
)
_FEATURE: Final = pa.struct([("name", pa.string()), ("min", pa.int32()), ("max", pa.int32())])

SUBJECT: Final = ReplaySubject(
    fields=(
        ("broker_id", pa.int32(), "the broker"),
        ("broker_epoch", pa.int64(), "the offset of the registration of its process"),
        ("incarnation_id", pa.string(), "the id of one start of its process"),
        ("fenced", pa.bool_(), "it must not serve"),
        ("in_controlled_shutdown", pa.bool_(), "it asked to stop"),
        ("rack", pa.string(), "its rack"),
        (
            "endpoints",
            pa.list_(pa.field("element", _ENDPOINT)),
            "where it listens; security_protocol is 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL",
        ),
        ("features", pa.list_(pa.field("element", _FEATURE)), "the levels of features that it supports"),
        ("log_dirs", TEXTS, "its log directories that are online"),
        ("cordoned_log_dirs", TEXTS, "those that take no new replicas"),
    ),
    identity=("broker_id",),
    key="'broker:' || broker_id",
    columns={
        RegisterBrokerRecord: (
            *("broker_id", "incarnation_id", "broker_epoch", "endpoints", "features", "rack", "fenced"),
            *("in_controlled_shutdown", "log_dirs", "cordoned_log_dirs"),
        ),
        UnregisterBrokerRecord: ("broker_id", "broker_epoch"),
        BrokerRegistrationChangeRecord: (
            *("broker_id", "broker_epoch", "fenced", "in_controlled_shutdown", "log_dirs"),
            "cordoned_log_dirs",
        ),
    },
    changes=("broker_changes",),
    to_column={
        "incarnation_id": uuid_column,
        "endpoints": objects_column(("name", "host", "port", "security_protocol")),
        "features": objects_column(("name", "min", "max")),
        "log_dirs": uuids_column,
        "cordoned_log_dirs": uuids_column,
    },
    from_column={
        "incarnation_id": uuid_from_text,
        "endpoints": lambda rows: tuple(BrokerEndpoint(**row) for row in rows),
        "features": lambda rows: tuple(FeatureRange(*row.values()) for row in rows),
        "log_dirs": uuids_of,
        "cordoned_log_dirs": uuids_of,
    },
)
