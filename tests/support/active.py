"""Edge: the active controller of a running cluster, waited for: one on a busy machine may not answer the first question."""

from collections.abc import Sequence

from ops.local_cluster import Active, LocalCluster
from ops.waits import until_async

DEADLINE_S = 60.0
POLL_S = 0.02


async def active_of(cluster: LocalCluster, *, but: Sequence[int] = ()) -> Active:
    """Return the active controller, which is none of `but`, and its view of the brokers."""

    async def found() -> Active | None:
        active = await cluster.active()
        return None if active is None or active.controller_id in but else active

    return await until_async(
        "a controller is active", found, deadline_s=DEADLINE_S, poll_s=POLL_S, failure=AssertionError
    )
