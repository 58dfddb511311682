"""Edge: the other controllers: where they are reached, and which of them this node keeps links with."""

import logging
from dataclasses import replace

from metadata_log import limits
from metadata_log.batch import RecordBatch
from metadata_log.errors import QuorumRefused
from metadata_log.ids import NO_NODE, NodeId
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.node.addresses import HostPort
from metadata_log.records.quorum import RAFT_ENDPOINT
from quorum.controller.applied_listener import AppliedListener
from quorum.decide.quorum import identities
from quorum.node.config import ControllerSettings
from quorum.raft.handshake import TOO_MANY_OBSERVERS
from quorum.raft.raft_log import Member, RaftStatus
from quorum.raft.transport import TcpTransport

log = logging.getLogger(__name__)


class Peers:
    """Where the other controllers are reached, as they report it on the links; before that, as the settings say."""

    def __init__(self, settings: ControllerSettings, transport: TcpTransport) -> None:
        self._settings = settings
        self._transport = transport
        self._replicas_named = 0
        transport.on_refused = self._on_refused

    def url_of(self, node_id: NodeId) -> str | None:
        """Return the URL of a controller's HTTP; None if unknown."""
        member = self._transport.members.get(node_id)
        return self._settings.url_of(node_id) if member is None else member.http

    def address_of(self, node_id: NodeId) -> str | None:
        """Return the HOST:PORT that a linked controller reports for Raft; None if it never linked."""
        member = self._transport.members.get(node_id)
        return None if member is None else member.raft

    def urls(self, first: NodeId = NO_NODE) -> list[str]:
        """Return the URLs of all other controllers, that of `first` before the rest."""
        known = {voter.id for voter in self._settings.voters} | self._transport.members.keys()
        others = sorted(known - {self._settings.node_id}, key=lambda node_id: (node_id != first, node_id))
        return [url for url in map(self.url_of, others) if url is not None]

    def next_read_replica(self, raft: RaftStatus) -> str | None:
        """Return the URL of a controller that follows closely, each in its turn; None if there is none."""
        urls = [
            url
            for peer in raft.peers
            if peer.reachable
            and peer.last_caught_up_ms_ago is not None
            and peer.last_caught_up_ms_ago <= limits.VOTER_CAUGHT_UP_MS
            and (url := self.url_of(peer.node_id)) is not None
        ]
        self._replicas_named += 1
        return urls[self._replicas_named % len(urls)] if urls else None

    def _on_refused(self, node_id: NodeId, reason: str, message: str) -> None:  # noqa: ARG002 (the transport's signature)
        """Stop if a majority refuses this node: they would never elect it, nor send it their log.

        Raises:
            QuorumRefused: a majority of the other voters refuses.
        """
        others = self._transport.voters.keys() - {self._settings.node_id}
        refusing = {
            peer for peer, refusal in self._transport.refusals.items() if refusal.error != TOO_MANY_OBSERVERS
        }
        if 2 * len(refusing & others) > len(others):
            raise QuorumRefused(
                f'the other voters refuse this one: {reason}: {message} (what to do: ops/runbooks/no-leader.md, "If it is '
                'refused")'
            )


class LinksFollowVoters(AppliedListener):
    """Tells the transport who votes and where, as soon as the log says so."""

    def __init__(self, settings: ControllerSettings, member: Member, transport: TcpTransport) -> None:
        self._settings = settings
        self._member = member
        self._transport = transport
        self._known: object = None

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        self.on_restored(image)

    def on_restored(self, image: MetadataImage) -> None:
        voters = image.quorum.voters
        if voters is None or voters is self._known:
            return
        self._known = voters
        if self._member not in identities(voters).items():
            log.warning("not_a_voter", extra={"voters": sorted(identities(voters))})
        self._transport.set_voters(identities(voters))
        self._transport.set_addresses(dialled_addresses(self._settings, image))
        self._transport.hello = replace(self._transport.hello, founding=b"")


def dialled_addresses(settings: ControllerSettings, image: MetadataImage) -> dict[NodeId, HostPort]:
    """Return where to dial each controller: the settings go before the log, since an address may depend on who dials."""
    return {
        voter.node_id: address
        for voter in image.quorum.voters or ()
        if (address := voter.address(RAFT_ENDPOINT)) is not None
    } | {voter.id: voter.raft for voter in settings.voters}
