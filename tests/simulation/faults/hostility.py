"""A stranger on the simulated Raft ports: what it sees of the messages that pass, and what it says.

It is linked as an observer is, and says what only voters may say, among all else that `tests.hostile_raft` forges. It speaks
only to nodes that follow a leader or lead: one that has heard no leader for ten election timeouts, or whose log is empty,
believes a stranger, because it cannot know who votes by now (`quorum/raft/belief.py`).
"""

import random
from collections import Counter
from typing import Final

from metadata_log.ids import NodeId, Uuid
from quorum.raft import messages
from quorum.raft.messages import PAYLOAD, Message, frames_of
from quorum.raft.raft_log import Member
from tests.hostile_raft.forgery import Forger, Sight

STRANGER: Final = Member(NodeId(190), Uuid(b"a stranger's own"))
FOLLOWED_S_MAX: Final = 1.0
FRAME_MAGIC: Final = b"\x4d\x51"


class Stranger:
    """One forger for all nodes of a world."""

    def __init__(self, rng: random.Random) -> None:
        self._forger = Forger(rng, STRANGER.node_id, STRANGER.directory_id)
        self._terms: dict[NodeId, int] = {}
        self._followed_at: dict[NodeId, float] = {}
        """When each node last acknowledged a leader's log, or led."""
        self._leader: NodeId | None = None
        self._last_index = 1
        self._frames = b""
        self.said: Counter[str] = Counter()

    def attached(self, node_id: NodeId) -> None:
        """Forget what a process did that has ended: the next one may have another disk."""
        self._followed_at.pop(node_id, None)

    def saw(self, source: NodeId, message: Message, now: float) -> None:
        """Learn from a message that a node sends."""
        kind = message["type"]
        if kind not in ("pre_vote", "pre_vote_response"):  # these name another term than their sender's
            self._terms[source] = message["term"]
        if kind == "append_entries":
            self._leader, self._followed_at[source] = source, now
            entries = message["entries"]
            self._last_index = message["prevLogIdx"] + len(entries)
            for command, _, _ in entries:
                if command[0] == PAYLOAD:
                    self._frames = frames_of(command)
        elif kind == "next_node_idx" and message["success"] and message["next_node_idx"] > 2:
            self._followed_at[source] = now

    def message_to(self, node_id: NodeId, voters: dict[NodeId, Uuid], now: float) -> Message | None:
        """Return what to say to a node now; None: nothing."""
        if now - self._followed_at.get(node_id, -FOLLOWED_S_MAX) >= FOLLOWED_S_MAX or not self._frames:
            return None
        sight = Sight(
            cluster_id="",
            voters=voters,
            node_id=node_id,
            is_leader=node_id == self._leader,
            term=self._terms.get(node_id, 0),
            last_index=self._last_index,
            frames=self._frames,
        )
        message = self._forger.message(sight)
        try:
            messages.check(message)
        except ValueError:
            return None  # the link would not have let it pass
        self.said[message["type"]] += 1
        return message


def rotten(message: Message, rng: random.Random) -> Message | None:
    """Return append_entries with a bit of one batch flipped, as by a leader's memory; None where it has no batch."""
    entries = [*message.get("entries", ())]
    places = [
        place
        for place, (command, _, _) in enumerate(entries)
        if command[0] == PAYLOAD and command[1:3] == FRAME_MAGIC
    ]
    if not places:
        return None
    place = rng.choice(places)
    command, index, term = entries[place]
    turned = bytearray(command)
    turned[rng.randrange(1, len(turned))] ^= 1 << rng.randrange(8)
    entries[place] = (bytes(turned), index, term)
    return message | {"entries": entries}
