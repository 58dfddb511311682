"""Pure: what a forger says on a Raft port, drawn from a seed and from what a stranger can see of a quorum.

A *visit* is one connection: a handshake, or something else, and then some messages. All messages but its last are such that
the node ignores them, or answers with its own term, so that the link stays; the last one costs the link. So the node reads
every message that is counted, and the number of links that it drops is known beforehand.

A forger may be anybody but a voter: a quorum believes its voters, each by its id and directory.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import google_crc32c
import msgpack

from metadata_log.ids import NodeId, Uuid
from quorum.raft.messages import NO_OP, PAYLOAD, TERM_MAX, append_entries, next_node_idx
from quorum.raft.pointer import Pointer
from quorum.raft.raft_log import Voters
from quorum.raft.term_pace import TERM_JUMP_MAX
from quorum.raft.voters import to_command

Message = dict[str, Any]

INT64_MAX: Final = 2**63 - 1
FIRST_STRANGER_ID: Final = 100
"""Above the ids of controllers and brokers of a local cluster."""
SECOND_LEADER: Final = "a leader of this term or a later one"
MESSAGES_MEAN: Final = 16
"""Of one visit."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a stranger sees of a quorum, and of the node that it visits."""

    cluster_id: str
    voters: Voters
    node_id: NodeId
    """The visited node."""
    is_leader: bool
    term: int
    last_index: int
    """No greater than the index of the leader's last entry."""
    frames: bytes
    """Of a batch that the log holds."""


@dataclass(frozen=True, slots=True)
class Visit:
    """What is sent on one connection."""

    kind: str
    """What the last message is."""
    opening: bytes
    """Sent at once: the hello of a dialler, or other bytes."""
    then: bytes
    """Sent when the node's hello and verdict have come; after these, the visitor closes its end."""
    messages: int
    """How many forged messages both are."""
    is_dropped: bool
    """Whether the node counts the link as dropped; it does not where it refuses the visitor, or a message is cut."""


def framed(message: object) -> bytes:
    """Return a message of a handshake."""
    body: bytes = msgpack.packb(message)
    return len(body).to_bytes(4, "big") + body


def checked(message: object) -> bytes:
    """Return a message behind the handshake, with its checksum."""
    return with_crc(msgpack.packb(message))


def with_crc(body: bytes) -> bytes:
    crc: int = google_crc32c.value(body)
    return len(body).to_bytes(4, "big") + crc.to_bytes(4, "big") + body


def hello(sight: Sight, node_id: int, directory_id: bytes) -> Message:
    return {
        "type": "hello",
        "version": 2,
        "cluster_id": sight.cluster_id,
        "node_id": node_id,
        "directory_id": directory_id,
        "http": "http://127.0.0.1:1",
        "raft": "127.0.0.1:1",
        "founding": b"",
        "checksums": True,
    }


WELCOME: Final = framed({"type": "welcome"})


class Forger:
    """One source of visits; the same seed and sights give the same ones."""

    def __init__(self, rng: random.Random, stranger_id: int, directory_id: Uuid | None = None) -> None:
        """`stranger_id` is used by no other forger, because a newer link of an id replaces the older one."""
        self._rng = rng
        self._stranger_id = stranger_id
        self._directory_id = directory_id or Uuid(rng.randbytes(16))
        self._endings: tuple[tuple[int, str, Callable[[Sight], bytes]], ...] = (
            (20, SECOND_LEADER, self._second_leader),
            (14, "a huge term", self._huge_term),
            (14, "flipped bits", self._flipped),
            (14, "no message of ours", self._malformed),
            (10, "an entry that is no batch", self._bad_entries),
            (10, "noise", self._noise),
        )

    def visit(self, sight: Sight) -> Visit:
        """Return what to do next at the node that `sight` tells of."""
        roll = self._rng.random()
        if roll < 0.06:
            return Visit("no handshake", self._no_handshake(), b"", 1, is_dropped=True)
        if roll < 0.12:
            return self._refused(sight)
        said = b"".join(
            checked(self._bearable(sight))
            for _ in range(min(int(self._rng.expovariate(1 / MESSAGES_MEAN)), 20 * MESSAGES_MEAN))
        )
        return self._as_observer(sight, said)

    def message(self, sight: Sight) -> Message:
        """Return one message of an observer, whether it costs the link or not."""
        roll = self._rng.random()
        if sight.is_leader and roll < 0.05:
            return self._unsent_acknowledgement(sight)
        if roll < 0.15:
            return self._anything(sight) | {
                "term": sight.term + TERM_JUMP_MAX + self._rng.randrange(1, 10**6)
            }
        return self._anything(sight)

    def _as_observer(self, sight: Sight, said: bytes) -> Visit:
        count = _count(said)
        opening = framed(hello(sight, self._stranger_id, self._directory_id))
        roll = self._rng.random()
        if roll < 0.1:
            last = checked(self._bearable(sight))
            said += last[: self._rng.randrange(1, len(last))]
            return Visit("a message cut short", opening, WELCOME + said, count + 1, is_dropped=False)
        if sight.is_leader and roll < 0.2:
            said += checked(self._unsent_acknowledgement(sight))
            return Visit("an entry never sent", opening, WELCOME + said, count + 1, is_dropped=True)
        endings = self._endings
        (ending,) = self._rng.choices(endings, [weight for weight, *_ in endings])
        _, kind, make = ending
        return Visit(kind, opening, WELCOME + said + make(sight), count + 1, is_dropped=True)

    # --- before a link

    def _no_handshake(self) -> bytes:
        rng = self._rng
        message = self._voter_hello() if rng.random() < 0.3 else append_entries(
            term=rng.choice((1, 10**6, TERM_MAX)), commit_index=9, previous=(0, 0), entries=[]
        )  # fmt: skip
        return rng.choice(
            (framed(message), b"\xff" * 4 + rng.randbytes(60), framed(rng.randbytes(40)), framed([]))
        )

    def _voter_hello(self) -> Message:
        return {"type": "hello", "version": self._rng.choice((0, 1, 3, "2", None)), "node_id": 2}

    def _refused(self, sight: Sight) -> Visit:
        """Come as a node that is not let in: of another cluster, a voter with another disk, or the visited node itself."""
        rng = self._rng
        own, disk = sight.node_id, rng.randbytes(16)
        kind, said = rng.choice(
            (
                ("another cluster", hello(sight, 2, disk) | {"cluster_id": "A" * 22}),
                ("a voter's id, another disk", hello(sight, self._other_voter(sight), disk)),
                ("the node's own id", hello(sight, own, rng.choice((disk, sight.voters[own])))),
            )
        )
        return Visit(kind, framed(said), WELCOME, 1, is_dropped=False)

    def _other_voter(self, sight: Sight) -> int:
        return self._rng.choice(sorted(sight.voters.keys() - {sight.node_id}))

    # --- messages that cost a stranger nothing

    def _bearable(self, sight: Sight) -> Message:
        """Return a message that a node ignores, or answers with its term, if it comes from who is no voter."""
        rng = self._rng
        term = self._term(sight)
        lower = rng.randrange(0, max(1, sight.term))
        match rng.randrange(9):
            case 0:
                return {"type": "nack", "term": term}
            case 1:
                return {"type": "response_vote", "term": term}
            case 2:
                return {"type": "pre_vote_response", "term": term, "granted": rng.random() < 0.8}
            case 3:
                return {"type": "read_probe_response", "term": term, "read_id": self._index(sight)}
            case 4:
                return self._vote("request_vote", sight, term) | {"force": rng.random() < 0.5}
            case 5:
                return self._vote("pre_vote", sight, term)
            case 6:
                return self._acknowledgement(sight, term)
            case 7 if sight.term > 0:
                return self._leaders(sight, lower)
            case _:
                return self._acknowledgement(sight, lower)

    def _term(self, sight: Sight) -> int:
        """Return a term that the node does not find too high."""
        rng, term = self._rng, sight.term
        return rng.choice(
            (0, max(0, term - 1), term, term, term + 1, term + 2, term + rng.randrange(1000), term + TERM_JUMP_MAX)
        )  # fmt: skip

    def _index(self, sight: Sight) -> int:
        rng, last = self._rng, sight.last_index
        return rng.choice(
            (0, 1, max(0, last - 1), last, last + 1, last + 2, rng.randrange(last + 1000), 2**40, INT64_MAX)
        )

    def _vote(self, kind: str, sight: Sight, term: int) -> Message:
        log_term = self._rng.choice((0, term, max(0, term - 1)))
        return {
            "type": kind,
            "term": term,
            "last_log_index": self._index(sight),
            "last_log_term": log_term,
        }

    def _acknowledgement(self, sight: Sight, term: int) -> Message:
        rng = self._rng
        success = rng.random() < 0.5
        # Of this term, and of entries that were never sent, it would cost the link at a leader.
        next_index = rng.randrange(1, sight.last_index + 2) if success else self._index(sight)
        hint = (self._index(sight), rng.choice((0, term, max(0, term - 1))))
        return next_node_idx(
            term=term, next_index=next_index, reset=rng.random() < 0.5, success=success, hint=hint
        )

    def _leaders(self, sight: Sight, term: int) -> Message:
        """Return what only leaders send, in `term`."""
        rng = self._rng
        previous = self._index(sight), rng.choice((0, term))
        match rng.randrange(5):
            case 0:
                return {"type": "read_probe", "term": term, "read_id": self._index(sight)}
            case 1:
                return {"type": "timeout_now", "term": term}
            case 2:
                return self._snapshot(sight, term)
            case 3:
                return append_entries(
                    term=term, commit_index=self._index(sight), previous=previous, entries=[]
                )
            case _:
                previous = min(previous[0], 2**40), previous[1]
                commands = rng.choices(self._commands(sight), k=rng.randrange(1, 4))
                entries = [(command, previous[0] + 1 + at, term) for at, command in enumerate(commands)]
                return append_entries(
                    term=term, commit_index=self._index(sight), previous=previous, entries=entries
                )

    def _commands(self, sight: Sight) -> list[bytes]:
        """Return commands that are sound in themselves: the no-op, a batch of the log, and other voters."""
        usurped = {NodeId(self._stranger_id): self._directory_id}
        batch = bytes([PAYLOAD]) + sight.frames
        return [NO_OP, batch, to_command(usurped, sight.frames), to_command({**sight.voters, **usurped}, b"")]

    def _snapshot(self, sight: Sight, term: int) -> Message:
        rng = self._rng
        index = max(2, min(self._index(sight), 2**40))
        pointer = Pointer.to(
            f"{index:020}-{1:010}",
            msgpack.packb([rng.getrandbits(32), rng.randbytes(32).hex()]),
            before=(NO_OP, index - 1, term),
            last=(NO_OP, index, term),
            voters={NodeId(self._stranger_id): self._directory_id},
        )
        return {
            "type": "install_snapshot",
            "term": term,
            "index": index,
            "index_term": term,
            "pointer": rng.choice((pointer.to_bytes(), rng.randbytes(200), b"")),
        }

    # --- messages that cost the link

    def _second_leader(self, sight: Sight) -> bytes:
        return checked(self._leaders(sight, sight.term + self._rng.choice((0, 0, 1, 2, 1000, TERM_JUMP_MAX))))

    def _huge_term(self, sight: Sight) -> bytes:
        rng = self._rng
        term = rng.choice(
            (
                sight.term + TERM_JUMP_MAX + 1 + rng.randrange(10**6),
                TERM_MAX,
                TERM_MAX + 1,
                2**62,
                INT64_MAX,
                2**63,
                2**64 - 1,
            )
        )
        return checked(self._anything(sight) | {"term": term})

    def _unsent_acknowledgement(self, sight: Sight) -> Message:
        beyond = self._rng.choice((10**7, 2**40, INT64_MAX))
        return next_node_idx(term=sight.term, next_index=beyond, success=True)

    def _bad_entries(self, sight: Sight) -> bytes:
        """Return entries with damaged frames, with gaps, of impossible terms, or of a kind that runs code in the engine."""
        rng, term = self._rng, sight.term
        damaged = bytearray(sight.frames)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        index = rng.randrange(1, sight.last_index + 2)
        entry: tuple[Any, ...] = rng.choice(
            (
                (bytes([PAYLOAD, *damaged]), index + 1, term),
                (b"\x00cos\nsystem\n(S'true'\ntR.", index + 1, term),
                (b"", index + 1, term),
                (b"\x02" + rng.randbytes(20), index + 1, term),
                (NO_OP, index + 2, term),
                (NO_OP, index + 1, term + 1),
                (NO_OP, -1, term),
            )
        )
        told = append_entries(term=term, commit_index=index, previous=(index, term), entries=[entry])
        return checked(told)

    def _anything(self, sight: Sight) -> Message:
        return self._rng.choice((self._bearable, lambda seen: self._leaders(seen, sight.term)))(sight)

    def _flipped(self, sight: Sight) -> bytes:
        """Return a message that lost some bits on its way: of its map, or of its checksum."""
        told = bytearray(checked(self._anything(sight)))
        for at in self._rng.sample(range(4, len(told)), self._rng.randrange(1, 4)):
            told[at] ^= 1 << self._rng.randrange(8)
        return bytes(told)

    def _malformed(self, sight: Sight) -> bytes:
        rng = self._rng
        told = self._anything(sight)
        field = rng.choice(sorted(told))
        wrong: object = rng.choice(
            (None, -1, 1.5, "x", [5], {}, [[b"\x10", 1]], msgpack.ExtType(5, b"x"), 2**64 - 1)
        )
        broken: object = rng.choice(
            (
                {name: value for name, value in told.items() if name != field},
                told | {field: wrong},
                told | {"unheard": 1},
                told | {"type": rng.choice(("transmission", "apply_command", "admin", "", 5, None))},
                told | {"term": True},
                [told],
                rng.randrange(2**32),
            )
        )
        return checked(broken)

    def _noise(self, sight: Sight) -> bytes:
        rng = self._rng
        return rng.choice(
            (
                b"\xff" + rng.randbytes(63),
                with_crc(b"\xc1" + rng.randbytes(30)),
                with_crc(b"\x91" * 2_000),
                with_crc(b""),
                with_crc(b"\xdd\xff\xff\xff\xff"),
                framed(self._anything(sight)) + bytes(8),  # as before the handshake: without a checksum
            )
        )


def _count(said: bytes) -> int:
    """Return how many messages some bytes are."""
    count = position = 0
    while position < len(said):
        position += 8 + int.from_bytes(said[position : position + 4], "big")
        count += 1
    return count
