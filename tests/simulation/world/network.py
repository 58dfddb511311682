"""Links between simulated nodes: delay, order, loss, duplicates, stragglers, partitions, and connections that end."""

import random
import zlib
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from math import log
from typing import Final, NamedTuple, TypeAlias

import google_crc32c
import msgpack

from metadata_log.ids import NodeId, Uuid
from metadata_log.limits import HEARTBEAT_MS
from quorum.raft import messages
from quorum.raft.messages import Message
from quorum.raft.raft_log import Member, Voters
from quorum.raft.transport import TcpTransport
from tests.simulation.faults.hostility import STRANGER, Stranger, rotten
from tests.simulation.faults.slowness import Slowness
from tests.simulation.world.virtual_loop import Processor, VirtualLoop

Pair: TypeAlias = tuple[NodeId, NodeId]
DELAY_SECONDS: Final = 0.002
"""A message takes longer than this on one in a hundred ways where nothing is slow."""
DIALLED_BY_LOWER: Final = 5
"""Every fifth link between two nodes that dial each other is made by the one of the lower id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFaults:
    """Probabilities per message. Where all are 0, each link is ordered, as TCP is."""

    lost: float = 0.0
    duplicated: float = 0.0
    late: float = 0.0
    """Delayed by up to two seconds, beyond connections and restarts."""
    flipped: float = 0.0
    """Some bits of it flip on the way: its receiver drops the link, as `quorum/raft/link.py` does."""
    rotten: float = 0.0
    """A bit of one of its batches flipped in its sender's memory, before its checksum was made."""
    foreign: float = 0.0
    """A stranger says something to its receiver, too."""

    def among_strangers(self) -> "LinkFaults":
        """Return these faults with hostile ones beside them."""
        return replace(self, flipped=0.002, rotten=0.02, foreign=0.3)


class SimulatedLink(NamedTuple):
    """What a node knows of the other end of an established link."""

    member: Member
    founding: bytes
    """Of the other end's hello: empty, if the log there said who votes when it was linked."""
    was_dialled: bool
    """Whether this node dialled it."""

    def is_dialled(self) -> bool:
        return self.was_dialled


class SimulatedTransport:
    """One incarnation of one node's transport."""

    def __init__(self, network: "Network", member: Member) -> None:
        self._network = network
        self.member = member
        self.node_id = member.node_id
        self.alive = True
        self.on_message: Callable[[Member, Message], None] = lambda _member, _message: None
        self.on_read: Callable[[], None] = lambda: None
        self.processor: Processor | None = None
        """Of its process."""
        self.on_connected: Callable[[Member], None] = lambda _member: None
        self.on_lost: Callable[[Member, bool], None] = lambda _member, _by_peer: None
        self.on_arriving: Callable[[Member], None] = lambda _member: None
        self.on_send: Callable[[NodeId, Message], None] = lambda _target, _message: None
        self.on_arrival: Callable[[Member, Message], object] = lambda _member, _message: None
        """Sees each message before the node does."""
        self.on_end: Callable[[NodeId, bool], None] = lambda _peer, _by_peer: None
        """Sees the end of each link, and whether its peer ended it, before the node does."""
        self.on_refusal: Callable[[Member], None] = lambda _member: None
        """Sees who sent what the node refuses; its link may have ended by then."""
        self.links: dict[NodeId, SimulatedLink] = {}
        self.voters_in_force: Callable[[], Voters] = dict

    # --- the shipped rule, on these links

    _tls = None

    @property
    def voters(self) -> Voters:
        return self.voters_in_force()

    @property
    def _established(self) -> dict[NodeId, SimulatedLink]:
        return self.links

    @property
    def members(self) -> dict[NodeId, SimulatedLink]:
        return self.links

    def others_founded(self) -> bool:
        return TcpTransport.others_founded(self)  # type: ignore[arg-type]  # it has what is asked for there

    def _is_known(self, link: SimulatedLink) -> bool:
        return TcpTransport._is_known(self, link)  # type: ignore[arg-type]  # as above

    def _is_voters(self, link: SimulatedLink) -> bool:
        return TcpTransport._is_voters(self, link)  # type: ignore[arg-type]  # as above

    # --- what the adapter calls

    def send(self, node_id: NodeId, message: Message) -> None:
        if self.alive and node_id in self.links:
            self.on_send(node_id, message)
            self._network.carry(self, node_id, message)

    def drop(self, member: Member, reason: str) -> None:
        """End the connection: its peer reads EOF."""
        self.on_refusal(member)
        if self.alive and member.node_id in self.links:
            self._network.note("dropped", self.node_id, member.node_id, reason)
            self._network.drop(self, member.node_id)

    def flush(self) -> None:
        """Each message travels by itself here."""


class Network:
    def __init__(self, loop: VirtualLoop, rng: random.Random, faults: LinkFaults) -> None:
        self._loop = loop
        self._rng = rng
        self.faults = faults
        self._transports: dict[NodeId, SimulatedTransport] = {}
        self._directories: dict[NodeId, Uuid] = {}
        """The newest of each node: one that was wiped has another."""
        self._blocked: dict[tuple[NodeId, NodeId], set[int]] = {}
        """Ways on which nothing passes, and the numbers of the cuts that say so."""
        self._cuts_made = 0
        self._arrives: dict[tuple[NodeId, NodeId], float] = {}
        self.slowness = Slowness()
        self.downloads: Counter[frozenset[NodeId]] = Counter()
        """Slow downloads under way: each shares the link with what else passes there."""
        self._sent_until: dict[tuple[NodeId, NodeId], float] = {}
        """When the last bytes so far leave their sender, on each way of a narrow link."""
        self._epochs: dict[Pair, int] = {}
        self.founders: Collection[NodeId] = ()
        """Whom the settings of all nodes name as voters."""
        self.has_founded: Callable[[NodeId], bool] = lambda _node_id: False
        self.trace = 0
        self.messages_total = 0
        self._stranger: Stranger | None = None
        self.meddled: Counter[str] = Counter()
        """Messages that were flipped or rotten."""

    # --- nodes that start and end

    def attach(self, member: Member) -> SimulatedTransport:
        node_id = member.node_id
        transport = SimulatedTransport(self, member)
        self._directories[node_id] = member.directory_id
        self._transports[node_id] = transport
        if self._stranger is not None:
            self._stranger.attached(node_id)
        for peer in sorted(self._transports):
            if peer != node_id:
                self._connect_later(_pair(node_id, peer))
        return transport

    def detach(self, node_id: NodeId) -> None:
        """End a node's process: its peers read EOF, unless a partition hides it."""
        gone = self._transports.pop(node_id)
        gone.alive = False
        for peer in sorted(gone.links):
            survivor = self._transports.get(peer)
            if survivor is None:
                continue
            hidden = (node_id, peer) in self._blocked
            delay = self._rng.uniform(0.2, 1.5) if hidden else self._delay()
            epoch = self._epoch(node_id, peer)
            self._loop.call_outside(delay, self._notice, survivor, node_id, epoch, not hidden)
        gone.links.clear()

    # --- partitions

    def new_cut(self) -> int:
        """Return the number of a cut: `block` names it, and `unblock` ends it."""
        self._cuts_made += 1
        return self._cuts_made

    @property
    def is_cut(self) -> bool:
        return bool(self._blocked)

    def block(self, source: NodeId, target: NodeId, cut: int = 0) -> None:
        """Let nothing pass from `source` to `target`; after a while both ends give the connection up."""
        cuts = self._blocked.setdefault((source, target), set())
        cuts.add(cut)
        if len(cuts) > 1:
            return
        pair = _pair(source, target)
        self._loop.call_outside(self._rng.uniform(0.1, 2.0), self._give_up, pair, self._epochs.get(pair, 0))

    def unblock(self, cut: int) -> None:
        """End one cut; what another one blocks as well stays blocked."""
        for way in [way for way, cuts in self._blocked.items() if cut in cuts]:
            self._blocked[way].discard(cut)
            if not self._blocked[way]:
                del self._blocked[way]
                self._connect_later(_pair(*way))

    def heal(self) -> None:
        self._blocked.clear()
        for node_id in sorted(self._transports):
            for peer in sorted(self._transports):
                if peer > node_id:
                    self._connect_later(_pair(node_id, peer))

    def flap(self, one: NodeId, other: NodeId) -> None:
        """Reset one connection: both ends see it closed by their peer."""
        self._end(_pair(one, other), by_peer=True)

    def drop(self, dropper: SimulatedTransport, peer: NodeId) -> None:
        """Let one end close its connection: only the other end reads that as its peer's doing."""
        epoch = self._epoch(dropper.node_id, peer)
        other = self._transports.get(peer)
        if other is not None:
            self._loop.call_outside(self._delay(), self._notice, other, dropper.node_id, epoch + 1, True)
        self._lose(dropper, peer, by_peer=False)

    def is_open(self, source: NodeId, target: NodeId) -> bool:
        return (
            target in self._transports
            and source in self._transports
            and (source, target) not in self._blocked
        )

    # --- messages

    def carry(self, sender: SimulatedTransport, target: NodeId, message: Message) -> None:
        faults, rng, source = self.faults, self._rng, sender.node_id
        if target == STRANGER.node_id:
            return
        if faults.rotten and message.get("entries") and rng.random() < faults.rotten:
            message = self._rotten(message)
        if faults.foreign:
            self._be_seen(source, target, message)
        packed = msgpack.packb(message)
        crc = google_crc32c.value(packed) if faults.flipped else None
        if faults.flipped and rng.random() < faults.flipped:
            self.meddled["flipped"] += 1
            packed = flipped(packed, rng)
        if (source, target) in self._blocked:
            return
        if faults.lost and rng.random() < faults.lost:
            return
        # What one disk's process said is not taken for its successor's, nor handed to that.
        of = sender.member.directory_id, self._directories[target]
        copies = 2 if faults.duplicated and rng.random() < faults.duplicated else 1
        for _ in range(copies):
            delay = self._delay() + self._slow_seconds((source, target), len(packed))
            if faults.late and rng.random() < faults.late:
                delay += rng.uniform(0.0, 2.0)
            epoch: int | None = None
            if not faults.late:
                delay = max(delay, self._arrives.get((source, target), 0.0) - self._loop.time())
                self._arrives[source, target] = self._loop.time() + delay
                epoch = self._epoch(source, target)
            self._arrive_slowly((source, target), of, len(packed), delay)
            self._loop.call_outside(delay, self._deliver, source, target, of, packed, epoch, crc)

    def _slow_seconds(self, way: Pair, size: int) -> float:
        """Return how much longer a message of so many bytes takes on a slow or narrow link, behind what was sent before."""
        slowness = self.slowness
        if not slowness.latencies and not slowness.bandwidths:
            return 0.0
        link = frozenset(way)
        seconds = slowness.latencies.get(link, 0.0)
        rate = slowness.bandwidths.get(link)
        if rate is not None:
            now = self._loop.time()
            rate /= 1 + self.downloads[link]
            self._sent_until[way] = max(now, self._sent_until.get(way, 0.0)) + size / rate
            seconds += self._sent_until[way] - now
        return seconds

    def _arrive_slowly(self, way: Pair, of: tuple[Uuid, Uuid], size: int, delay: float) -> None:
        """Let the receiver see that bytes of a message arrive, which is whole after `delay`: see `quorum/raft/link.py`."""
        rate = self.slowness.bandwidths.get(frozenset(way))
        seconds = min(0.0 if rate is None else size / rate, delay)
        for part in range(1, int(seconds * 1000 // HEARTBEAT_MS) + 1):
            at = delay - seconds + part * HEARTBEAT_MS / 1000
            self._loop.call_outside(at, self._bytes_arrive, way, of, self._epoch(*way))

    def _bytes_arrive(self, way: Pair, of: tuple[Uuid, Uuid], epoch: int) -> None:
        source, target = way
        receiver = self._transports.get(target)
        if receiver is None or way in self._blocked or epoch != self._epoch(*way):
            return
        if of == (self._directories[source], self._directories[target]):
            receiver.on_arriving(Member(source, of[0]))

    def way_seconds(self, source: NodeId, target: NodeId) -> float:
        """Return how long a small message takes from one node to another now, behind all that was sent before."""
        link = frozenset((source, target))
        queued = max(0.0, self._sent_until.get((source, target), 0.0) - self._loop.time())
        return DELAY_SECONDS + self.slowness.latencies.get(link, 0.0) + queued

    def end_slowness(self) -> None:
        """Let all links be fast from now on; narrow ones are made anew, without what waited there."""
        narrow = [sorted(link) for link in self.slowness.bandwidths]
        self.slowness.latencies.clear()
        self.slowness.bandwidths.clear()
        for one, other in narrow:
            self.flap(one, other)

    def _rotten(self, message: Message) -> Message:
        other = rotten(message, self._rng)
        if other is None:
            return message
        self.meddled["rotten"] += 1
        return other

    def _deliver(
        self,
        source: NodeId,
        target: NodeId,
        of: tuple[Uuid, Uuid],
        packed: bytes,
        epoch: int | None,
        crc: int | None,
    ) -> None:
        receiver = self._transports.get(target)
        if receiver is None or (source, target) in self._blocked:
            return
        if of != (self._directories[source], self._directories[target]):
            return
        if epoch is not None and epoch != self._epoch(source, target):
            return
        if crc is not None and google_crc32c.value(packed) != crc:
            receiver.drop(Member(source, of[0]), "a message differs from its checksum")
            return
        message = msgpack.unpackb(packed)
        messages.check(message)
        self.messages_total += 1
        self.note("message", source, target, message["type"], message["term"])
        receiver.on_arrival(Member(source, of[0]), message)
        receiver.on_message(Member(source, of[0]), message)
        self._loop.call_soon_of(receiver.processor, receiver.on_read)

    # --- hostility

    @property
    def said_by_stranger(self) -> Counter[str]:
        """What the stranger has said so far, by kind of message."""
        return Counter() if self._stranger is None else self._stranger.said

    def _be_seen(self, source: NodeId, target: NodeId, message: Message) -> None:
        """Let a stranger see a message, and say something to its receiver in its own way."""
        rng = self._rng
        if self._stranger is None:
            self._stranger = Stranger(random.Random(rng.getrandbits(64)))
            self._directories[STRANGER.node_id] = STRANGER.directory_id
        self._stranger.saw(source, message, self._loop.time())
        if rng.random() < self.faults.foreign:
            self._loop.call_outside(self._delay(), self._intrude, target)

    def _intrude(self, target: NodeId) -> None:
        """Let the stranger link itself to a node, or say something on the link that it has."""
        receiver, stranger = self._transports.get(target), self._stranger
        if receiver is None or stranger is None:
            return
        if STRANGER.node_id not in receiver.links:
            receiver.links[STRANGER.node_id] = SimulatedLink(STRANGER, founding=b"", was_dialled=False)
            receiver.on_connected(STRANGER)
            return
        others = {peer: self._directories[peer] for peer in self._transports}
        message = stranger.message_to(target, others, self._loop.time())
        if message is not None:
            self.note("stranger", target, message["type"], message["term"])
            receiver.on_arrival(STRANGER, message)
            receiver.on_message(STRANGER, msgpack.unpackb(msgpack.packb(message)))
            self._loop.call_soon_of(receiver.processor, receiver.on_read)

    def note(self, *event: object) -> None:
        """Add an event to the trace: the same seed must give the same sum."""
        self.trace = zlib.crc32(repr((self._loop.time(), event)).encode(), self.trace)

    def _delay(self) -> float:
        drawn = self._rng.random  # `uniform` and `expovariate` cost a call more for each message
        return 0.0001 + 0.0007 * drawn() - log(1.0 - drawn()) * 0.0003

    def link_number(self, one: NodeId, other: NodeId) -> int:
        """Return a number that every link between two nodes has for itself."""
        return self._epoch(one, other)

    def _epoch(self, one: NodeId, other: NodeId) -> int:
        return self._epochs.get(_pair(one, other), 0)

    # --- connections

    def _connect_later(self, pair: Pair) -> None:
        self._loop.call_outside(self._rng.uniform(0.001, 0.1), self._connect, pair)

    def _connect(self, pair: Pair) -> None:
        one, other = pair
        if one not in self._transports or other not in self._transports:
            return
        if other in self._transports[one].links:
            return
        if (one, other) in self._blocked or (other, one) in self._blocked:
            return
        self._epochs[pair] = self._epochs.get(pair, 0) + 1
        for way in (pair, pair[::-1]):
            if self._sent_until.pop(way, None) is not None:
                self._arrives.pop(way, None)  # what an older connection had not sent is lost with it
        dialler = self._dialler(pair)
        for node_id, peer in ((one, other), (other, one)):
            transport, member = self._transports[node_id], self._transports[peer].member
            founding = b"" if self.has_founded(peer) else b"the settings' voters"
            transport.links[peer] = SimulatedLink(member, founding, was_dialled=node_id == dialler)
            transport.on_connected(member)

    def _dialler(self, pair: Pair) -> NodeId:
        """Return which end dials: mostly the one of the higher id, since the other waits for a while.

        A node dials those whom its settings, or the log, name as voters.
        """
        one, other = pair
        may_dial = [
            node_id
            for node_id, peer in ((one, other), (other, one))
            if peer in self.founders or peer in self._transports[node_id].voters
        ]
        if len(may_dial) == 2:
            return one if self._epochs[pair] % DIALLED_BY_LOWER == 0 else other
        return may_dial[0] if may_dial else other

    def _give_up(self, pair: Pair, epoch: int) -> None:
        if self._epochs.get(pair, 0) == epoch and any(_pair(*way) == pair for way in self._blocked):
            self._end(pair, by_peer=False)

    def _end(self, pair: Pair, *, by_peer: bool) -> None:
        one, other = pair
        self._epochs[pair] = self._epochs.get(pair, 0) + 1
        for node_id, peer in ((one, other), (other, one)):
            transport = self._transports.get(node_id)
            if transport is not None and peer in transport.links:
                self._lose(transport, peer, by_peer)
        self._connect_later(pair)

    def _notice(self, survivor: SimulatedTransport, gone: NodeId, epoch: int, by_peer: bool) -> None:
        """Let a survivor see that a connection has ended, unless it knows already."""
        if self._epoch(survivor.node_id, gone) == epoch:
            self._lose(survivor, gone, by_peer)

    def _lose(self, transport: SimulatedTransport, peer: NodeId, by_peer: bool) -> None:
        if transport.alive and peer in transport.links:
            del transport.links[peer]
            # What was sent before the end may have arrived before it; nothing of this connection comes after.
            self._epochs[_pair(transport.node_id, peer)] = self._epoch(transport.node_id, peer) + 1
            transport.on_end(peer, by_peer)
            transport.on_lost(Member(peer, self._directories[peer]), by_peer)
            if peer in self._transports:
                self._connect_later(_pair(transport.node_id, peer))


def _pair(one: NodeId, other: NodeId) -> Pair:
    """Return the two ends of a link, whichever way it is looked at."""
    return (one, other) if one < other else (other, one)


def flipped(packed: bytes, rng: random.Random) -> bytes:
    """Return bytes with one to three bits flipped, which a CRC-32C always finds."""
    turned = bytearray(packed)
    for at in rng.sample(range(len(turned)), rng.randrange(1, 4)):
        turned[at] ^= 1 << rng.randrange(8)
    return bytes(turned)
