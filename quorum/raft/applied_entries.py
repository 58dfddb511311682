"""Pure: committed entries on their way to the listener: in order, none before its sync here, and briefly at a time."""

from collections.abc import Callable
from typing import Final

from metadata_log.errors import InvariantBroken
from metadata_log.sliced import Sliced
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
        self._now_ms = now_ms
        self.position = RaftPosition((1, 0))
        self._under_way: Sliced[None] | None = None
        """The entry behind `position`, as far as it is applied; one large batch may take several pumps."""
        self.committed_at = NEVER
        """When an entry of the engine's current term was last applied; NEVER before the first."""
        self.committed_term = 0
        self.level_at = NEVER
        """When a leader was heard last whose whole log, as far as it was committed then, is applied here since. An entry
        that is applied late says nothing of now.
        """

    def stand_on(self, position: RaftPosition) -> None:
        """Go on behind a snapshot: an entry half applied is forgotten, as nobody has seen anything of it."""
        self.position, self._under_way = position, None

    @property
    def index(self) -> int:
        return self.position[0]

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
        state, log, began = self._state, self._state.log, self._now_ms()
        until = min(state.commit_index, log.synced_index)
        goes_on = False
        while (index := self.position[0] + 1) <= until:
            if self._now_ms() - began > APPLY_MS_PER_PUMP:
                goes_on = True
                break
            command, _, term = log[index - log[0][1]]
            frames = frames_of(command)
            sets_voters = is_change(command)
            if frames:
                work, self._under_way = self._under_way or self._listener.committing(frames), None
                for _ in work:
                    if self._now_ms() - began > APPLY_MS_PER_PUMP:
                        self._under_way = work
                        return True
            elif command not in (NO_OP, EMPTY_PAYLOAD) and not sets_voters:
                raise InvariantBroken(f"log entry {index} is neither ours nor the engine's")
            if sets_voters:
                self._listener.on_voters(from_command(command)[0])
            self.position = RaftPosition((index, term))
            if term == state.engine.term:
                self.committed_at, self.committed_term = now, term
            self._proposals.applied(index)
            if sets_voters:
                goes_on = True
                break  # the entries after it are for the next voters
        if self.committed_term != state.engine.term:
            self.committed_at = NEVER
        if state.heard_commit is not None and self.index >= state.heard_commit[0]:
            self.level_at, state.heard_commit = state.heard_commit[1], None
        return goes_on

    def has_tail(self) -> bool:
        """Answer whether the log holds an entry with content that is not applied yet."""
        log = self._state.log
        tail = range(self.position[0] + 1 - log[0][1], len(log))
        return any(log[position][0] not in (NO_OP, EMPTY_PAYLOAD) for position in tail)
