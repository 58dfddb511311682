"""Pure: settings as columns; no secret among them, as records come here as they are shown.
Tests: tests/unit/metadata_log/replay/test_changes.py.
"""

from typing import Final

import pyarrow as pa

from metadata_log.records.configs import ConfigRecord
from metadata_log.replay.subjects.subject import ReplaySubject

SUBJECT: Final = ReplaySubject(
    fields=(
        (
            "resource_type",
            pa.int32(),
            "2 TOPIC, 4 BROKER; with Kafka's brokers also 16 CLIENT_METRICS, 32 GROUP",
        ),
        ("resource_name", pa.string(), "the topic's name or the broker's id; empty: all brokers"),
        ("config_name", pa.string(), "the setting's name"),
        ("config_value", pa.string(), "its value, a secret as its mask; null: it was removed"),
    ),
    identity=("resource_type", "resource_name", "config_name"),
    key=(
        "CASE WHEN resource_type = 2 THEN 'topic:' || resource_name WHEN resource_name = '' THEN 'cluster'"
        " WHEN resource_type = 4 THEN 'broker:' || resource_name WHEN resource_type = 16 THEN 'client-metrics:'"
        " || resource_name WHEN resource_type = 32 THEN 'group:' || resource_name"
        " ELSE 'resource ' || resource_type || ':' || resource_name END || ' ' || config_name"
    ),
    columns={ConfigRecord: ("resource_type", "resource_name", "config_name", "config_value", None)},
    changes=("config_changes",),
    after=("topics",),
)
