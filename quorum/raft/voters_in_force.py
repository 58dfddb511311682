"""Pure: which voters are in force on this node: what the settings, a snapshot's pointer and the log's voter changes come to.

`voters.py` says when a change is in force, and why that is safe.
"""

from bisect import bisect_right
from typing import Protocol

from quorum.raft.messages import Entry
from quorum.raft.raft_log import Voters
from quorum.raft.voters import from_command


class LogOfVoters(Protocol):
    """What is read of the journal."""

    voter_changes: list[int]
    proved_changes: int

    def __getitem__(self, position: int, /) -> Entry: ...


class VotersInForce:
    """The voters under which this node acts; `follow` keeps up with a log that grows, is cut, and is applied."""

    def __init__(self, founders: Voters, log: LogOfVoters) -> None:
        self.voters = founders
        self._log = log
        self.set_at = 0
        """Index of the entry that set `voters`; 0 if no entry held did."""
        self._before_log = founders
        """The voters before all entries held."""
        self._from_snapshot = False
        """Whether a snapshot's pointer named these; if not, the settings did."""

    @property
    def is_founded(self) -> bool:
        """Whether the log, or the snapshot before it, says who votes. Until then the settings do."""
        return self._from_snapshot or bool(self._log.voter_changes)

    def stand_on(self, voters: Voters) -> None:
        """Take `voters` as those before all entries held: the log now begins at a snapshot whose pointer names them."""
        self._before_log, self._from_snapshot = voters, True

    def set_up_to(self, index: int) -> Voters:
        """Return the voters that the log sets up to `index`, whether in force or not."""
        change = self._newest_change(index)
        return from_command(self._log[change - self._log[0][1]][0])[0] if change else self._before_log

    def begin(self, applied_index: int) -> None:
        """Read the voters in force off a log that was opened, or that now begins at another snapshot."""
        self.set_at = self._change_in_force(applied_index)
        self.voters = self.set_up_to(self.set_at)

    def follow(self, applied_index: int) -> bool:
        """Keep up with the log, and with what of it is applied; answer whether other voters are in force now."""
        changes = self._log.voter_changes
        if changes and changes[-1] == self.set_at:
            return False  # the newest change is in force
        index = self._change_in_force(applied_index)
        if index == self.set_at:
            return False
        before, self.set_at = self.voters, index
        self.voters = self.set_up_to(index)
        return self.voters != before

    def _newest_change(self, index: int) -> int:
        """Return the newest entry held, up to `index`, that sets the voters; 0 if there is none."""
        changes = self._log.voter_changes
        at = bisect_right(changes, index)
        return changes[at - 1] if at else 0

    def _change_in_force(self, applied_index: int) -> int:
        """Return the entry that set the voters in force; 0 if none that is held did."""
        log = self._log
        changes, proved = log.voter_changes, max(log.proved_changes, applied_index)
        if len(changes) > 1:
            proved = max(proved, changes[-2])
        if changes and not self._from_snapshot:
            proved = max(proved, changes[0])  # the entry that founds the quorum repeats what the settings say
        log.proved_changes = proved
        return self._newest_change(proved)
