"""Clients that ask controllers for `/v1/quorum`, the state digest among it, while batches are applied."""

import asyncio
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from metadata_log.errors import MetadataError
from metadata_log.node.identity.access import Access
from metadata_log.node.recent_warnings import RecentWarnings
from quorum.http.door import Door
from quorum.http.quorum import show_quorum
from quorum.log.repair import LogRepair
from quorum.views.status import QuorumStatus
from tests.simulation.rules.rule import rule

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld
    from tests.simulation.world.cluster_controller import SimulatedController


class ViewRule:
    """The answers to `/v1/quorum`."""

    digests_are_the_logs = rule("the digest that is reported of an offset is that of the state there")


VIEWS_PER_SECOND: Final = 0.7
"""So seldom that much of the digest is left to count."""
NOWHERE: Final = 1 << 40
"""Bytes free on a simulated disk."""


def status_of(controller: "SimulatedController") -> QuorumStatus:
    """Return the shipped status of a simulated controller."""
    node = controller.node
    return QuorumStatus(
        settings=controller.settings,
        controller=controller,
        committed_log=controller.committed_log,
        fetches=controller.fetches,
        keeper=controller.keeper,
        repair=cast("LogRepair", None),
        directory_id=node.directory_id,
        address=lambda _node_id: None,
        url=lambda _node_id: None,
        refused=dict,
        foreign_bytes_total=lambda: 0,
        links_outdated=lambda: 0,
        free_bytes=lambda: NOWHERE,
        recent=RecentWarnings(),
        access=Access(None, cluster_id=controller.settings.cluster_id),
    )


async def watch_quorum(world: "ClusterWorld") -> None:
    """Ask one controller after the other, as long as there are clients."""
    rng = random.Random(world.seed ^ 0xD16)

    async def serve(controller: "SimulatedController") -> dict[str, Any]:
        door = SimpleNamespace(
            status=controller.status, controller=controller, ok=lambda _request, view: view
        )
        view: Any = await show_quorum(cast("Door", door), cast("Any", None))
        return cast("dict[str, Any]", view)

    while True:
        await asyncio.sleep(rng.expovariate(VIEWS_PER_SECOND))
        if world.is_quiet or world.violations:
            return
        node = rng.choice([*world.nodes.values()])
        try:
            async with asyncio.timeout(2.0):
                view = await world.remote(node, serve)
        except (TimeoutError, ConnectionError, MetadataError):
            continue
        counted = view["digest"]
        if counted["end_offset"] > view["high_watermark"]:
            raise ViewRule.digests_are_the_logs(f"{counted} of a log that ends at {view['high_watermark']}")
        world.properties.check_digest(counted["end_offset"], counted["value"])
        world.consequences["quorum described"] += 1
