"""Edge: links are replaced once this node has another certificate than they began with: TLS looks once, when a link begins.

One link at a time: the node dials its peer beside the present link, and both ends go over to the new one. The nodes are
linked meanwhile, and neither takes the other one for dead. Tests: tests/unit/quorum/raft/test_encrypted_links.py.
"""

from collections.abc import Callable, Mapping
from typing import Final

from metadata_log.ids import NodeId
from metadata_log.limits import DIAL_GRACE_MS
from metadata_log.node.identity.tls import Tls
from quorum.raft.dialling import Dialler
from quorum.raft.link import Link

OLD_ENOUGH_MS: Final = 2 * DIAL_GRACE_MS
"""Of a younger link the other end may believe that both dialled at the same moment, and keep it instead of the new one."""


class Renewal:
    """The links of one node that began with files which were replaced since."""

    def __init__(
        self,
        established: Mapping[NodeId, Link],
        dialler: Dialler,
        *,
        tls: Callable[[], Tls | None],
        make_link: Callable[[NodeId, Link], Link],
    ) -> None:
        """`make_link` makes a link to a peer that shall replace the present one."""
        self._established = established
        self._dialler = dialler
        self._tls = tls
        self._make_link = make_link
        self._tried: dict[NodeId, int] = {}
        """When each peer was dialled last for this, in ms."""

    def outdated(self) -> list[Link]:
        """Return the links that began with other files than this node has now."""
        tls = self._tls()
        if tls is None:
            return []
        links = list(self._established.values())
        return [
            each for each in links if each.encrypted is not None and tls.was_renewed_since(each.encrypted)
        ]

    async def renew_one(self) -> None:
        """Replace one of them, that whose peer was dialled least lately.

        A peer that this node does not dial is an observer that dials us: its link is closed, and it comes again.
        """
        now_ms = self._dialler.now_ms()
        outdated = [each for each in self.outdated() if each.age_ms() >= OLD_ENOUGH_MS]
        link = min(outdated, key=lambda each: self._tried.get(each.member.node_id, 0), default=None)
        if link is None:
            self._tried.clear()
            return
        peer = link.member.node_id
        self._tried[peer] = now_ms
        if peer in self._dialler.addresses:
            await self._dialler.dial(peer, self._make_link(peer, link))
        else:
            link.close()
