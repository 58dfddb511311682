"""Pure: how fast messages may raise this node's term, and which voters' terms are too high to be accepted now.

A node whose term is too far above the others' is refused by them, and refuses whatever they send, because it is of a lower
term. So no message may bring a node there. An election adds one to the term, and needs milliseconds. The allowance is
therefore TERM_JUMP_MAX at rest; what raises the term uses it up, and it grows by one a millisecond.

A node that was away for very long, or whose term a stranger has raised, is not refused for good: while a message is refused
again and again for its term, the allowance grows on, beyond TERM_JUMP_MAX, until it reaches that term.
Tests: tests/unit/quorum/raft/test_belief.py.
"""

from typing import Final, NamedTuple

from quorum.raft.progress import NEVER
from quorum.raft.raft_log import Member

TERM_JUMP_MAX: Final = 1_000_000
"""No message raises a node's term by more at once; so many elections, without a pause, take some hours."""
STRANGERS_SHARE: Final = TERM_JUMP_MAX // 2
"""Part of the allowance that a stranger cannot use: what one node takes from a stranger, the others take from that node."""
TERMS_PER_MS: Final = 1
REFUSED_AGAIN_MS: Final = 60_000
"""The allowance grows on if the next refused message comes within this time; a link is dialled again within a second."""


class RefusedTerm(NamedTuple):
    """A term that a voter sent, and that this node does not accept yet."""

    term: int
    at: float
    wait_ms: int
    """Time until the allowance reaches it, if the voter keeps sending."""


class TermPace:
    """The allowance of one node, by its own clock."""

    def __init__(self) -> None:
        self._left = float(TERM_JUMP_MAX)
        self._at = NEVER
        self._term = 0
        self._refused_at = NEVER
        self.refused: dict[Member, RefusedTerm] = {}
        """By voter: the newest message that was refused for its term."""

    def allowance(self, own: int, now: float) -> int:
        """Return by how much a message may raise this node's term, which is `own`."""
        if self._at != NEVER:
            # A message raises the term at once, so what was raised since the last call was raised right after it.
            self._left = max(0, self._left - (own - self._term)) + (now - self._at) * TERMS_PER_MS
            if now - self._refused_at > REFUSED_AGAIN_MS:
                self._left = min(self._left, TERM_JUMP_MAX)
        self._at, self._term = now, own
        return int(self._left)

    def refuse(self, now: float) -> None:
        """Note that a message was refused for its term: the allowance grows on."""
        self._refused_at = now

    def refuse_voter(self, voter: Member, term: int, own: int, now: float) -> None:
        """Note that it was a voter's."""
        wait_ms = (term - own - self.allowance(own, now)) // TERMS_PER_MS
        self.refused[voter] = RefusedTerm(term, now, max(0, wait_ms))

    def refused_now(self, sender: Member, own: int, now: float) -> RefusedTerm | None:
        """Return a voter's term that is being refused; None if it was accepted, or the voter sends nothing any more."""
        found = self.refused.get(sender)
        if found is None or found.term <= own or now - found.at > REFUSED_AGAIN_MS:
            return None
        return found
