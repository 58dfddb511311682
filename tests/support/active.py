"""Edge: the active controller of a running cluster, waited for: one on a busy machine may not answer the first question."""

import re
from collections.abc import Sequence
from typing import Final

from ops.local.cluster import Active, LocalCluster
from ops.waits import until_async

DEADLINE_S = 60.0
POLL_S = 0.02
_OLD: Final = re.compile(r"^as of .* old", re.MULTILINE)


def is_old(said: str) -> bool:
    """Answer whether a verb says on stderr that a follower answered, as it does where the active controller is late."""
    return _OLD.search(said) is not None


async def active_of(cluster: LocalCluster, *, but: Sequence[int] = ()) -> Active:
    """Return the active controller, which is none of `but`, and its view of the brokers."""

    async def found() -> Active | None:
        active = await cluster.active()
        return None if active is None or active.controller_id in but else active

    return await until_async(
        "a controller is active", found, deadline_s=DEADLINE_S, poll_s=POLL_S, failure=AssertionError
    )
