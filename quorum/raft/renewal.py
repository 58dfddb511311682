"""Edge: links are replaced once this node has another certificate than they began with: TLS looks once, when a link begins.

One link at a time: the node dials its peer beside the present link, and both ends go over to the new one. The nodes are
linked meanwhile, and neither takes the other one for dead. A peer that cannot be dialled, though it has dialled this node,
is asked to dial again in the same way. Until one of the two succeeds, the present link stays: to close it would end a link
that works for one that may not come. Both dial ever more seldom, and the link counts as outdated.
Tests: tests/unit/quorum/raft/test_encrypted_links.py.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from metadata_log.ids import NodeId
from metadata_log.limits import DIAL_GRACE_MS, TLS_CHECK_S
from metadata_log.node.identity.tls import Tls
from quorum.raft.dialling import Dialler
from quorum.raft.link import Link

OLD_ENOUGH_MS: Final = 2 * DIAL_GRACE_MS
"""Of a younger link the other end may believe that both dialled at the same moment, and keep it instead of the new one."""
AGAIN_MS: Final = round(1000 * TLS_CHECK_S)
AGAIN_MAX_MS: Final = 300_000
"""After a failure a peer is dialled again after AGAIN_MS, then after twice as long each time, up to this: a certificate that
is to be revoked is replaced days before.
"""


class _Tried(NamedTuple):
    """When a peer was dialled last for this, and how long it is left alone if that failed, in ms."""

    at_ms: int
    rest_ms: int


class Renewal:
    """The links of one node that began with files which were replaced since, here or at the other end."""

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
        self._tried: dict[NodeId, _Tried] = {}
        """The peers that were dialled, while their links are outdated."""

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
        """Replace one of them, that whose peer was dialled least lately, of those that are due.

        Links of which the other end asked for it are replaced in the same way. A peer that this node does not dial is an
        observer that dials us: its link is closed, and it comes again.
        """
        now_ms, outdated = self._dialler.now_ms(), self.outdated()
        peers = {
            peer: each
            for peer, each in self._established.items()
            if (each in outdated or each.is_redial_asked) and each.age_ms() >= OLD_ENOUGH_MS
        }
        self._tried = {peer: tried for peer, tried in self._tried.items() if peer in peers}
        due = [peer for peer in peers if self._due_at(peer) <= now_ms]
        if not due:
            return
        peer = min(due, key=self._due_at)
        link, tried = peers[peer], self._tried.get(peer)
        rest_ms = AGAIN_MS if tried is None else min(2 * tried.rest_ms, AGAIN_MAX_MS)
        self._tried[peer] = _Tried(now_ms, rest_ms)
        if tried is not None and link in outdated:
            link.ask_to_redial()
        if peer in self._dialler.addresses:
            await self._dialler.dial(peer, self._make_link(peer, link))
        elif not link.is_redial_asked:
            link.close()

    def _due_at(self, peer: NodeId) -> int:
        tried = self._tried.get(peer)
        return 0 if tried is None else tried.at_ms + tried.rest_ms
