"""Pure: committed entries on their way to the listener: in order, none before its sync here, and briefly at a time.
Tests: tests/unit/quorum/raft/test_adapter.py.
"""

from collections.abc import Callable
from typing import Final

from metadata_log.errors import InvariantBroken
from metadata_log.sliced import Slice, Sliced
from quorum.raft.messages import NO_OP, frames_of
from quorum.raft.progress import NEVER
from quorum.raft.proposals import EMPTY_PAYLOAD, Proposals
from quorum.raft.quorum_state import QuorumState
from quorum.raft.raft_log import RaftListener, RaftPosition
from quorum.raft.voters import from_command, is_change

APPLY_MS_PER_PUMP: Final = 1.0
"""A long replay yields to messages and requests after this many milliseconds."""


class AppliedEntries:
    """Up to where the log is applied, and when this leadership last committed anything."""

    def __init__(
        self, state: QuorumState, listener: RaftListener, proposals: Proposals, now_ms: Callable[[], float]
    ) -> None:
        self._state = state
        self._listener = listener
        self._proposals = proposals
        self._slice = Slice(now_ms, APPLY_MS_PER_PUMP)
        self.position = RaftPosition((1, 0))
        self._under_way: Sliced[None] | None = None
        """The entry after `position`, as far as it is applied; one large batch may take several pumps."""
        self._committed_at = NEVER
        self.committed_term = 0
        """The newest term of which an entry was applied while the engine was in it; 0: none was."""
        self.level_at = NEVER
        """When a leader was heard last whose whole log, as far as it was committed then, is applied here since. An entry
        that is applied late says nothing of now.
        """

    def stand_on(self, position: RaftPosition) -> None:
        """Continue after a snapshot: an entry half applied is forgotten, because none of it was visible."""
        self.position, self._under_way = position, None

    @property
    def index(self) -> int:
        return self.position[0]

    def until(self) -> int:
        """Return up to where entries may be applied: committed, and synced here."""
        return min(self._state.commit_index, self._state.log.synced_index)

    def is_behind(self) -> bool:
        """Answer whether there are entries to apply now."""
        return self.position[0] < self.until()

    def committed_at(self) -> float:
        """Return when an entry of the engine's current term was last applied; NEVER before the first."""
        return self._committed_at if self.committed_term == self._state.engine.term else NEVER

    def note_level(self) -> None:
        """Note whether all is applied that the leader said is committed."""
        heard = self._state.heard_commit
        if heard is not None and self.index >= heard[0]:
            self.level_at, self._state.heard_commit = heard[1], None

    def run(self, now: float) -> bool:
        """Apply entries that are committed and synced here; answer whether to go on in another pump.

        Because nothing is applied before its sync, a log that reaches further than its journal proves a loss.
        """
        stood_at = self.position
        goes_on = self._run(now)
        if self.position != stood_at or self._under_way is not None:
            self._listener.on_rest()
        return goes_on

    def _run(self, now: float) -> bool:
        state, log, pump = self._state, self._state.log, self._slice
        pump.begin()
        until = self.until()
        goes_on = False
        while (index := self.position[0] + 1) <= until:
            if pump.is_over:
                goes_on = True
                break
            command, _, term = log[index - log[0][1]]
            frames = frames_of(command)
            sets_voters = is_change(command)
            if frames:
                work, self._under_way = self._under_way or self._listener.committing(frames), None
                if pump.made_by(work) is None:
                    self._under_way = work
                    return True
            elif command not in (NO_OP, EMPTY_PAYLOAD) and not sets_voters:
                raise InvariantBroken(f"log entry {index} is neither ours nor the engine's")
            if sets_voters:
                self._listener.on_voters(from_command(command)[0])
            self.position = RaftPosition((index, term))
            if term == state.engine.term:
                self._committed_at, self.committed_term = now, term
            self._proposals.applied(index)
            if sets_voters:
                goes_on = True
                break  # the entries after it are for the next voters
        return goes_on

    def has_tail(self) -> bool:
        """Answer whether the log holds an entry with content that is not applied yet."""
        log = self._state.log
        tail = range(self.position[0] + 1 - log[0][1], len(log))
        return any(log[position][0] not in (NO_OP, EMPTY_PAYLOAD) for position in tail)
