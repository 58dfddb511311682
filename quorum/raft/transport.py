"""Edge: the links between controllers: which one link per pair of nodes stays; `dialling.py` makes those to known addresses.

Every controller of the cluster is admitted; one that is not a voter in force is an observer.

A newer link of a peer replaces the older one, with two exceptions:

- A process with another directory never replaces the link of a voter in force.
- If both ends dial at the same moment, each finishes its own attempt first. Both ends then keep the link that the
  higher id dialled. The lower id dials only a peer that has had no link for DIAL_GRACE_MS, or to replace an older link
  (`renewal.py`); so a link of the higher id that is younger than that is not a stale one.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from metadata_log.errors import CannotListen, InvariantBroken, MetadataError
from metadata_log.ids import NodeId
from metadata_log.limits import (
    CONTROLLERS_MAX,
    DIAL_GRACE_MS,
    RAFT_HANDSHAKES_MAX,
    RAFT_OBSERVERS_OUTBOX_BYTES_MAX,
    RECONNECT_MAX_MS,
    TLS_CHECK_S,
)
from metadata_log.node.addresses import HostPort, address_text
from metadata_log.node.http.accepting import close_server
from metadata_log.node.identity.access import peer_certificate
from metadata_log.node.identity.certificate_dates import has_ended
from metadata_log.node.identity.certified_names import name_in
from metadata_log.node.identity.tls import Encrypting, Tls
from metadata_log.node.pace import until_done
from metadata_log.node.recent_warnings import BY_STRANGER
from quorum.raft import messages
from quorum.raft.dialling import Dialler, reason_of
from quorum.raft.handshake import Hello, Refusal, objection_to
from quorum.raft.link import Link
from quorum.raft.raft_log import Member, Voters
from quorum.raft.renewal import Renewal

log = logging.getLogger(__name__)
T = TypeVar("T")

REFUSED_LATELY_MS: Final = 10 * RECONNECT_MAX_MS
"""A refused peer is reported for this time after its last attempt. While it runs, it dials again within a tenth of it."""
_STRANGERS_SPAN_MS: Final = 1_000
_STRANGERS_LOGGED_MAX: Final = 10
"""Links of others than voters, refusals and dropped links logged within _STRANGERS_SPAN_MS. A host that dials without end
would push all else out of the log. What is dropped is counted."""
_REMEMBERED_MAX: Final = 2 * CONTROLLERS_MAX
"""The transport remembers the last hello, and the last refusal, of this many peers."""


class _Strangers:
    """Bounds how much is logged of links to others than voters."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.since_ms = now_ms()
        self._logged = 0

    def may_be_logged(self) -> bool:
        """Answer whether one more event that anybody may cause is logged."""
        now = self.now_ms()
        if now - self.since_ms >= _STRANGERS_SPAN_MS:
            self.since_ms, self._logged = now, 0
        self._logged += 1
        return self._logged <= _STRANGERS_LOGGED_MAX


class TcpTransport:
    """All links of one node; see `messages.RaftTransport` for what the adapter uses."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        listen: HostPort,
        addresses: Mapping[NodeId, HostPort],
        hello: Hello,
        voters: Voters,
        now_ms: Callable[[], int],
        tls: Tls | None = None,
    ) -> None:
        self.on_message: Callable[[Member, messages.Message], None] = lambda _member, _message: None
        self.on_read: Callable[[], None] = lambda: None
        self.on_connected: Callable[[Member], None] = lambda _member: None
        self.on_lost: Callable[[Member, bool], None] = lambda _member, _by_peer: None
        self.on_arriving: Callable[[Member], None] = lambda _member: None
        self.on_refused: Callable[[NodeId, str, str], None] = lambda _node_id, _error, _message: None
        """Called each time a dialled peer refuses this node."""
        self.serve_first: Callable[[int], None] = lambda _descriptor: None
        """Called with the socket of each link to a voter in force, which must not wait behind those of clients."""
        self.refusals: dict[NodeId, Refusal] = {}
        """The newest refusal of each peer that is dialled, until a link to it succeeds."""
        self.members: dict[NodeId, Hello] = {}
        """The last hello of each linked peer, and of peers whose links were lost last; the newest last."""
        self.foreign_bytes_total = 0
        """Links dropped: foreign bytes, messages not allowed to their sender, a slow handshake, or too many unsent bytes."""
        self.strangers = _Strangers(now_ms)
        self.node_id = node_id
        self.hello = hello
        """Sent in the next handshake; the owner of the transport replaces it when it changes."""
        self.voters = dict(voters)
        """The voters in force on this node."""
        self.now_ms = now_ms
        self._listen = listen
        self._tls = tls
        self._encrypting: dict[Link, asyncio.Transport] = {}
        """Links that others dialled and that have not finished their TLS handshake, oldest first."""
        self._socket: socket.socket | None = None
        self._links: dict[Link, None] = {}
        """Oldest first."""
        self._established: dict[NodeId, Link] = {}
        self._refused: dict[NodeId, tuple[Refusal, int]] = {}
        """The last refusal of each peer by this node, and when."""
        self._failure: asyncio.Future[None] | None = None
        """None unless `run` runs."""
        self.dialler = Dialler(
            node_id=node_id,
            make_link=lambda peer: Link(self, peer),
            established=self._established,
            voters=lambda: self.voters,
            encryption=lambda: None if self._tls is None else self._tls.peer_client,
            now_ms=now_ms,
        )
        self.dialler.set_addresses(addresses)
        self.renewal = Renewal(
            self._established,
            self.dialler,
            tls=lambda: self._tls,
            make_link=lambda peer, outdated: Link(self, peer, replaces=outdated),
        )

    # --- what the server calls

    async def listen(self) -> tuple[str, int]:
        """Bind the port and return host and port; connections wait in the backlog until `run` accepts them.

        Raises:
            CannotListen: the address is in use, not this host's, or unknown.
        """
        try:
            family, *_, address = (await self.dialler.look_up(self._listen))[0]
            listening = socket.create_server(address[:2], family=family, backlog=RAFT_HANDSHAKES_MAX)
        except (OSError, UnicodeError) as error:
            cure = "Stop the process that uses it, or change [listen] raft in this controller's settings."
            raise CannotListen(
                f"cannot listen on {address_text(self._listen)} for other controllers: {reason_of(error)}. {cure}"
            ) from error
        listening.setblocking(False)
        self._socket = listening
        return self._listen[0], listening.getsockname()[1]

    async def run(self) -> None:
        """Accept and dial until cancelled; an exception from a callback ends it."""
        if self._socket is None:
            raise InvariantBroken("listen() comes before run()")
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        server = await loop.create_server(self._accepted, sock=self._socket, start_serving=False)
        try:
            await server.start_serving()
            async with asyncio.TaskGroup() as tasks:
                if self._tls is not None:
                    tasks.create_task(_keep_ending(self, self._tls))
                    tasks.create_task(_keep_renewing(self.renewal))
                try:
                    self.dialler.begin(tasks)
                    await self._failure
                finally:
                    self.dialler.stop()
        finally:
            self._failure = None
            self.dialler.shut_down()
            await close_server(server)
            for transport in self._encrypting.values():
                transport.abort()
            for link in self._links:
                link.close()
            await until_done(lambda: self._links)  # an aborted connection is lost in the loop's next round

    def set_addresses(self, addresses: Mapping[NodeId, HostPort]) -> None:
        """Dial exactly these peers from now on; established links stay. Our own id is ignored."""
        self.dialler.set_addresses(addresses)
        for peer in self.refusals.keys() - self.dialler.addresses.keys():
            del self.refusals[peer]

    def set_voters(self, voters: Voters) -> None:
        """Set the voters in force; links stay, also those of removed voters."""
        self.voters = dict(voters)
        for link in filter(self._is_voters, self._established.values()):
            self.serve_first(link.descriptor)

    def others_founded(self) -> bool:
        """Answer whether the log of any linked controller sets the voters.

        Without TLS any host may say so. Then only voters are believed, and hosts that answer at an address that this node
        dials: a stranger must not keep new disks from founding the quorum.
        """
        return any(
            not self.members[peer].founding and (self._tls is not None or self._is_known(link))
            for peer, link in self._established.items()
        )

    def refused(self) -> dict[NodeId, Refusal]:
        """Return the refusals that prevent a link: by dialled peers, and by this node within REFUSED_LATELY_MS."""
        since = self.now_ms() - REFUSED_LATELY_MS
        lately = {peer: refusal for peer, (refusal, at) in self._refused.items() if at >= since}
        return lately | self.refusals

    # --- what the adapter calls

    def send(self, node_id: NodeId, message: messages.Message) -> None:
        """Queue a message for the next `flush`, or drop it if there is no link."""
        link = self._established.get(node_id)
        if link is not None:
            link.send(message)

    def drop(self, member: Member, reason: str) -> None:
        link = self._established.get(member.node_id)
        if link is not None and link.member == member:
            link.drop(reason)

    def flush(self) -> None:
        for link in self._established.values():
            link.flush()

    # --- what links call

    def objection(self, hello: Hello, *, dialled: NodeId | None) -> Refusal | None:
        linked = {peer: link.member.directory_id for peer, link in self._established.items()}
        return objection_to(hello, own=self.hello, dialled=dialled, voters=self.voters, linked=linked)

    def handshakes(self) -> int:
        return len(self._links) - len(self._established)

    def opened(self, link: Link) -> None:
        """Register a connection. Beyond RAFT_HANDSHAKES_MAX the oldest handshake is closed: silent strangers must not
        keep a voter out.
        """
        self._links[link] = None
        self._encrypting.pop(link, None)
        is_late = any(
            link.is_attempt_at(peer) and each is not link.replaces for peer, each in self._established.items()
        )
        if self._failure is None or is_late:
            link.close()  # while it was being made `run` ended, or a link to this peer was established
            return
        if self.handshakes() > RAFT_HANDSHAKES_MAX:
            oldest = next((each for each in self._links if each.may_give_way()), None)
            if oldest is not None:
                oldest.close()

    def check_certificate(self, transport: asyncio.Transport, node_id: NodeId) -> None:
        if self._tls is None:
            return
        name = name_in(peer_certificate(transport) or {}, self.hello.cluster_id)
        if name != f"Controller:{node_id}":
            raise ValueError(f"it says that it is node {node_id}, and its certificate is that of {name}")

    def encryption_failed(self, peer: NodeId, error: ssl.SSLError) -> None:
        address = self.dialler.addresses.get(peer)
        if address is not None:
            self.dialler.not_reached(peer, address, error)

    def established(self, link: Link, hello: Hello) -> None:
        peer = hello.node_id
        older = self._established.get(peer)
        if self.objection(hello, dialled=None) is not None:
            link.close()  # the reason to refuse it arose during its handshake
            return
        if older is not None and self._crossed(older, link):
            link.retire()  # the other end has it alone until it has the older one, too
            return
        if older is not None:
            if older is link.replaces:
                log.info("raft_link_renewed", extra={"peer_id": peer, "age_ms": older.age_ms()})
                older.retire()
            else:
                older.close()
            self._forget(older, by_peer=False)
        self._established[peer] = link
        link.replaces = None
        self.refusals.pop(peer, None)
        self._refused.pop(peer, None)
        self.dialler.reached(peer)
        self._remember(self.members, peer, hello)
        for attempt in self._links:
            if attempt.is_attempt_at(peer):
                attempt.close()  # the other end has not finished it either: the acceptor finishes after the dialler
        is_voters = self._is_voters(link)
        if is_voters or self.strangers.may_be_logged():
            log.info("raft_link_established", extra={"peer_id": peer, BY_STRANGER: not is_voters})
        if is_voters:
            self.serve_first(link.descriptor)
        self.call(self.on_connected, hello.member)

    def closed(self, link: Link, peer: NodeId | None, *, by_peer: bool) -> None:
        self._links.pop(link, None)
        if peer is not None and self._established.get(peer) is link:
            self._forget(link, by_peer=by_peer)

    def refused_by(self, peer: NodeId, refusal: Refusal) -> None:
        """Record that the node at a peer's own address refuses this one."""
        if peer not in self.dialler.addresses:
            return  # the peer is no longer dialled
        known = self.refusals.get(peer)
        self.refusals[peer] = refusal
        if known is None or known.error != refusal.error:  # logged once, not at every attempt
            log.error(
                "raft_link_refused_by_peer",
                extra={"peer_id": peer, "error": refusal.error, "detail": refusal.message},
            )
        self.call(self.on_refused, peer, refusal.error, refusal.message)

    def refusing(self, peer: NodeId, refusal: Refusal) -> None:
        known = self._refused.get(peer)
        self._remember(self._refused, peer, (refusal, self.now_ms()))
        if known is not None and known[0].error == refusal.error:  # logged once, not at every attempt
            return
        if self.strangers.may_be_logged():
            log.error(
                "raft_peer_refused",
                extra={
                    "peer_id": peer,
                    "error": refusal.error,
                    "detail": refusal.message,
                    BY_STRANGER: True,
                },
            )

    def dropped(self, peer: NodeId | None, address: object, reason: str) -> None:
        self.foreign_bytes_total += 1
        if self.strangers.may_be_logged():
            log.warning(
                "raft_link_dropped",
                extra={"peer_id": peer, "address": str(address), "detail": reason, BY_STRANGER: True},
            )

    def has_much_unsent(self, link: Link) -> None:
        """Bound the unsent bytes of all observers: the one with the most unsent bytes loses its link."""
        if self._is_voters(link):
            return
        unsent = {
            each: each.unsent_bytes() for each in self._established.values() if not self._is_voters(each)
        }
        if sum(unsent.values()) > RAFT_OBSERVERS_OUTBOX_BYTES_MAX:
            max(unsent, key=lambda each: unsent[each]).drop_unsent(RAFT_OBSERVERS_OUTBOX_BYTES_MAX)

    def call(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call the adapter. An exception ends `run`, and no callback is called after it.

        A MetadataError is not passed on to asyncio, which would only log a traceback and go on.
        """
        failure = self._failure
        if failure is not None and failure.done() and not failure.cancelled():
            return
        try:
            callback(*arguments)
        except MetadataError as error:
            if failure is None or failure.done():
                raise
            failure.set_exception(error)
        except BaseException as error:
            if failure is not None and not failure.done():
                failure.set_exception(error)
            raise

    # --- within

    def drop_ended(self, now_s: float, is_revoked: Callable[[ssl.SSLObject], bool] = lambda _: False) -> None:
        for link in list(self._established.values()):
            if has_ended(link.certificate or {}, now_s):
                link.drop("its certificate has expired")
            elif (encrypted := link.encrypted) is not None and is_revoked(encrypted):
                link.drop("its certificate is revoked")

    def _is_voters(self, link: Link) -> bool:
        """Answer whether the other end of an established link is a voter in force."""
        return self.voters.get(link.member.node_id) == link.member.directory_id

    def _is_known(self, link: Link) -> bool:
        return link.is_dialled() or self._is_voters(link)

    def _accepted(self) -> asyncio.BaseProtocol:
        link = Link(self, None)
        if self._tls is None:
            return link
        return Encrypting(lambda: link, self._tls.peer_server, lambda transport: self._begun(link, transport))

    def _begun(self, link: Link, transport: asyncio.Transport) -> Callable[[], None]:
        """Note that a TLS handshake begins; beyond RAFT_HANDSHAKES_MAX the oldest is closed."""
        if len(self._encrypting) >= RAFT_HANDSHAKES_MAX:
            oldest = next(iter(self._encrypting))
            self._encrypting.pop(oldest).abort()
        self._encrypting[link] = transport

        def ended() -> None:
            self._encrypting.pop(link, None)

        return ended

    def _crossed(self, older: Link, newer: Link) -> bool:
        """Answer whether both ends dialled at the same moment, and both keep the older link."""
        return (
            older.member == newer.member
            and older is not newer.replaces
            and older.is_dialled_by_higher()
            and not newer.is_dialled_by_higher()
            and older.age_ms() < DIAL_GRACE_MS
        )

    def _remember(self, known: dict[NodeId, T], peer: NodeId, what: T) -> None:
        """Record the newest fact about a peer; beyond _REMEMBERED_MAX, forget the oldest peer without a link."""
        known.pop(peer, None)
        known[peer] = what
        if len(known) > _REMEMBERED_MAX:
            oldest = next((each for each in known if each not in self._established), None)
            if oldest is not None:
                del known[oldest]

    def _forget(self, link: Link, *, by_peer: bool) -> None:
        member = link.member
        del self._established[member.node_id]
        is_voters = self._is_voters(link)
        if is_voters or self.strangers.may_be_logged():
            log.log(
                logging.INFO if link.closed_here or link.is_retired else logging.WARNING,
                "raft_link_lost",
                extra={
                    "peer_id": member.node_id,
                    "by_peer": by_peer,
                    "age_ms": link.age_ms(),
                    BY_STRANGER: not is_voters,
                },
            )
        self.call(self.on_lost, member, by_peer)


async def _keep_ending(transport: TcpTransport, tls: Tls) -> None:
    """Drop links whose other end showed a certificate that counts no longer: TLS looks once, when a link begins."""
    while True:
        await asyncio.sleep(TLS_CHECK_S)
        transport.drop_ended(tls.now_s, tls.is_revoked)


async def _keep_renewing(renewal: Renewal) -> None:
    """Replace links that began with another certificate of this node, one in each TLS_CHECK_S.

    A task of its own: a dial may take HANDSHAKE_TIMEOUT_MS, and a revoked certificate must not wait for it.
    """
    while True:
        await asyncio.sleep(TLS_CHECK_S)
        await renewal.renew_one()
