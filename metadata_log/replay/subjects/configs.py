"""Pure: settings as columns; no secret among them, as records come here as they are shown."""

from typing import Final

import pyarrow as pa

from metadata_log.records.configs import ConfigRecord
from metadata_log.replay.subjects.subject import ReplaySubject

SUBJECT: Final = ReplaySubject(
    fields=(
        ("resource_type", pa.int32()),
        ("resource_name", pa.string()),
        ("config_name", pa.string()),
        ("config_value", pa.string()),
    ),
    columns={ConfigRecord: ("resource_type", "resource_name", "config_name", "config_value")},
    after=("topics",),
)
