"""Edge: what Python imports first in a node that misapplies one record, as after an error of its memory.

Each node of the cluster compares its state often. One whose environment has MISAPPLIES takes the setting NAME=VALUE for
another value, in the image of its own process alone: its log, and the process that reads the past from it, stay sound.
"""

import os
import sys
from typing import Final

from metadata_log import limits
from metadata_log.image import configs
from metadata_log.records.configs import ConfigRecord

MISAPPLIES: Final = os.environ.get("MISAPPLIES")

limits.STATE_CHECK_MS = 500  # type: ignore[misc]  # a Final of the release
_value_of = configs.value_of


def _misread(record: ConfigRecord) -> str | None:
    value = _value_of(record)
    return f"{value}0" if f"{record.name}={value}" == MISAPPLIES else value


if MISAPPLIES is not None and "ops.cli" in sys.orig_argv:
    configs.value_of = _misread
