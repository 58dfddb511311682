"""Pure: a leader's own frames, from `append` until they are applied: how many wait, and which share an entry of the log."""

from collections import deque
from typing import Final, NamedTuple

from metadata_log.errors import InvariantBroken, ThrottlingQuotaExceeded
from metadata_log.limits import (
    RAFT_ENTRY_BYTES_MAX,
    RAFT_ENTRY_SHARED_BYTES,
    RAFT_UNCOMMITTED_BYTES_MAX,
)
from quorum.raft.messages import PAYLOAD
from quorum.raft.raft_log import Voters

EMPTY_PAYLOAD: Final = bytes([PAYLOAD])


class Proposal(NamedTuple):
    frames: bytes
    voters: Voters | None
    """The voters that it sets."""


class Proposals:
    """First those that wait for an entry, then the entries in flight; all are dropped when leadership ends."""

    def __init__(self) -> None:
        self.waiting: deque[Proposal] = deque()
        self._in_flight: deque[tuple[int, int]] = deque()
        """Index and bytes of frames of each entry."""
        self._bytes = 0

    def add(self, proposal: Proposal) -> None:
        """Let a proposal wait for the next entry.

        Raises:
            ThrottlingQuotaExceeded: too much is in flight.
        """
        size = len(proposal.frames)
        if len(EMPTY_PAYLOAD) + size > RAFT_ENTRY_BYTES_MAX:
            raise InvariantBroken(f"{size} bytes of frames exceed a Raft entry")
        if self._bytes + size > RAFT_UNCOMMITTED_BYTES_MAX:
            raise ThrottlingQuotaExceeded("too much is in flight", bytes_in_flight=self._bytes)
        self.waiting.append(proposal)
        self._bytes += size

    @property
    def has_change(self) -> bool:
        """Whether a change of voters waits."""
        return any(proposal.voters is not None for proposal in self.waiting)

    def take(self) -> Proposal | None:
        """Take what the next entry holds: a change of voters alone, else what shares an entry; None if nothing waits."""
        waiting = self.waiting
        if not waiting or waiting[0].voters is not None:
            return waiting.popleft() if waiting else None
        parts = [waiting.popleft().frames]
        size = len(parts[0])
        while (
            waiting and waiting[0].voters is None and size + len(waiting[0].frames) <= RAFT_ENTRY_SHARED_BYTES
        ):
            parts.append(waiting.popleft().frames)
            size += len(parts[-1])
        return Proposal(b"".join(parts), None)

    def submitted(self, index: int, size: int) -> None:
        """Note that the entry at `index` holds `size` bytes of frames."""
        self._in_flight.append((index, size))

    def applied(self, index: int) -> None:
        """Note that entries up to `index` are applied."""
        while self._in_flight and self._in_flight[0][0] <= index:
            self._bytes -= self._in_flight.popleft()[1]

    def clear(self) -> None:
        self.waiting.clear()
        self._in_flight.clear()
        self._bytes = 0
