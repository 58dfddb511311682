"""Edge: proxies between the controllers of a cluster, which tamper with what their real links carry.

    a message again         one of the last that went the same way
    an outdated message     in the voter's name, of a term before its own; the node ignores it, or answers with its term
    flipped bits            the receiver drops the link
    a term out of bounds    in the voter's name; the receiver drops the link
    a message cut short     and then the end of the connection

The last three end a link. They happen only while all of the leader's links work: one whose followers all lost it is deposed,
and should be. Followers say nothing to each other while it leads.
"""

import asyncio
import random
import socket
from collections import Counter, deque
from contextlib import suppress
from typing import Any, Final, Self

import msgpack

from metadata_log.ids import NodeId
from metadata_log.node.addresses import HostPort
from metadata_log.node.http.accepting import close_server
from ops.local.layout import HOST
from quorum.raft.messages import TERM_MAX, append_entries, next_node_idx
from quorum.raft.term_pace import TERM_JUMP_MAX
from tests.hostile_raft.forgery import INT64_MAX, checked

HANDSHAKE_MESSAGES: Final = 2
"""Of each end: hello and verdict."""
REMEMBERED: Final = 64
SETTLED: Final = 20
"""A link that has carried this many messages, behind its handshake, works."""
AGAIN_SHARE: Final = 0.3
OUTDATED_SHARE: Final = 0.3
ENDING_SHARE: Final = 0.01
DROPPED: Final = ("flipped bits on a real link", "a term out of bounds in a voter's name")


class Middle:
    """All proxies of a cluster. The settings of each controller name `address` for its peers."""

    def __init__(self, rng: random.Random) -> None:
        self.tampered: Counter[str] = Counter()
        self.is_active = False
        self.leader: NodeId | None = None
        self._rng = rng
        self._listening: dict[tuple[NodeId, NodeId], tuple[socket.socket, HostPort]] = {}
        self._carried: dict[frozenset[NodeId], int] = {}
        """How many messages the newest link of each pair has carried, while it stands."""
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()

    def address(self, dialler: NodeId, acceptor: NodeId, target: HostPort) -> HostPort:
        """Return where one controller finds another."""
        listening = socket.create_server((HOST, 0))
        self._listening[dialler, acceptor] = listening, target
        return HOST, listening.getsockname()[1]

    async def __aenter__(self) -> Self:
        for (dialler, acceptor), (listening, target) in self._listening.items():

            async def connected(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                pair: frozenset[NodeId] = frozenset((dialler, acceptor)),
                target: HostPort = target,
            ) -> None:
                await self._carry(pair, target, reader, writer)

            self._servers.append(await asyncio.start_server(connected, sock=listening))
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            await close_server(server)
        for writer in self._writers:
            writer.transport.abort()

    def leader_is_linked(self) -> bool:
        of_leader = {frozenset(pair) for pair in self._listening if self.leader in pair}
        return bool(of_leader) and all(self._carried.get(pair, 0) >= SETTLED for pair in of_leader)

    async def _carry(
        self,
        pair: frozenset[NodeId],
        target: HostPort,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._writers |= ends
        self._carried[pair] = 0
        try:
            ways = [
                asyncio.create_task(self._pass_on(pair, reader, far_writer)),
                asyncio.create_task(self._pass_on(pair, far_reader, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        finally:
            self._carried[pair] = 0
            self._writers -= ends
            for end in ends:
                end.close()

    async def _pass_on(
        self, pair: frozenset[NodeId], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry messages one way, until the link ends or is to end."""
        recent: deque[bytes] = deque(maxlen=REMEMBERED)
        count = 0
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readexactly(4)
                crc = 0 if count < HANDSHAKE_MESSAGES else 4
                message = head + await reader.readexactly(int.from_bytes(head, "big") + crc)
                count += 1
                if count <= HANDSHAKE_MESSAGES:
                    writer.write(message)
                    continue
                self._carried[pair] = self._carried.get(pair, 0) + 1
                recent.append(message)
                ending = self._ending(message)
                if ending:
                    writer.write(ending)
                    await writer.drain()
                    return
                writer.write(message)
                if self.is_active:
                    self._add(message, recent, writer)
                await writer.drain()

    def _add(self, message: bytes, recent: "deque[bytes]", writer: asyncio.StreamWriter) -> None:
        rng = self._rng
        if rng.random() < AGAIN_SHARE:
            self.tampered["a message again"] += 1
            writer.write(rng.choice(recent))
        if rng.random() < OUTDATED_SHARE:
            told = self._outdated(_own_term(_map_of(message)))
            if told is not None:
                self.tampered["an outdated message in a voter's name"] += 1
                writer.write(checked(told))

    def _outdated(self, term: int) -> dict[str, Any] | None:
        rng = self._rng
        if term < 1:
            return None
        lower, index = rng.randrange(term), rng.choice((0, 1, 5, 2**40, INT64_MAX))
        return rng.choice(
            (
                append_entries(term=lower, commit_index=index, previous=(index, lower), entries=[]),
                next_node_idx(term=lower, next_index=max(1, index), success=True),
                next_node_idx(term=lower, next_index=index, reset=True, hint=(index, lower)),
                {"type": "response_vote", "term": lower},
                {"type": "read_probe", "term": lower, "read_id": index},
                {"type": "read_probe_response", "term": lower, "read_id": index},
                {"type": "timeout_now", "term": lower},
                {"type": "nack", "term": lower},
                {
                    "type": "request_vote",
                    "term": lower,
                    "last_log_index": index,
                    "last_log_term": lower,
                    "force": True,
                },
            )
        )

    def _ending(self, message: bytes) -> bytes:
        """Return what is sent in place of a message to end its link; nothing: the link goes on."""
        rng = self._rng
        if not self.is_active or rng.random() >= ENDING_SHARE or not self.leader_is_linked():
            return b""
        kind = rng.choice((*DROPPED, "a message cut short on a real link"))
        self.tampered[kind] += 1
        self._carried = dict.fromkeys(self._carried, 0)
        if kind == DROPPED[0]:
            flipped = bytearray(message)
            for at in rng.sample(range(4, len(message)), rng.randrange(1, 4)):
                flipped[at] ^= 1 << rng.randrange(8)
            return bytes(flipped)
        if kind == DROPPED[1]:
            told = _map_of(message)
            term = rng.choice(
                (told["term"] + TERM_JUMP_MAX + rng.randrange(2, 1000), TERM_MAX, 2**63, 2**64 - 1)
            )
            return checked(told | {"term": term})
        return message[: rng.randrange(1, len(message))]


def _own_term(told: dict[str, Any]) -> int:
    """Return the term of a message's sender, or one below: a pre-vote and its answer name the term after it."""
    term: int = told["term"]
    return term - 1 if told["type"] in ("pre_vote", "pre_vote_response") else term


def _map_of(message: bytes) -> dict[str, Any]:
    told: dict[str, Any] = msgpack.unpackb(message[8:])
    return told
