"""Edge: tools of Kafka that are asked until they print what a broker learns a moment after a controller decided it."""

import re
from functools import partial
from typing import Final

from ops.kafka.tools import run_tool
from tests.support.processes import poll_until

DEADLINE_S: Final = 90.0


def told_by(wanted: str, name: str, *arguments: str) -> str:
    """Run a tool until the pattern `wanted` is in what it prints, and return that; a tool that fails is run again."""
    return poll_until(
        partial(_told, wanted, name, *arguments), deadline_s=DEADLINE_S, what=f"{name} prints {wanted}"
    )


def _told(wanted: str, name: str, *arguments: str) -> str:
    printed = run_tool(name, *arguments)
    return printed if re.search(wanted, printed) else ""
