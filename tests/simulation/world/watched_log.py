"""The shipped journal and log of a simulated node, watched: what its disk holds, and when anything may have changed."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from quorum.raft.adapter import PySyncObjLog
from quorum.raft.journal.format import NodeVote
from quorum.raft.journal.journal import Journal, JournalBatch
from quorum.raft.messages import Entry
from tests.simulation.rules.quorum import Reading


class WatchedJournal(Journal):
    """Remembers what the log was when each batch was taken, to know what a disk durably holds."""

    frozen: "Standing"
    parts: int
    """How many files that batch goes to."""

    def take_batch(self) -> JournalBatch | None:
        batch = super().take_batch()
        if batch is not None:
            self.frozen, self.parts = self.standing(), len(batch.placements)
        return batch

    def standing(self) -> "Standing":
        return Standing(list(self), self.getCurrentTerm(), self.getVotedForNodeId())


class Standing(NamedTuple):
    """What a node's promises rest on."""

    entries: list[Entry]
    term: int
    vote: NodeVote
    """Whom it has voted for in this term."""


NOTHING: Final = Standing([], 0, None)
"""What an empty disk holds."""


class WatchedLog(PySyncObjLog):
    """Calls `after_pump` whenever anything may have changed."""

    after_pump: Callable[[], None]

    may_run: Callable[[], bool]
    read_began: Callable[[], Reading | None]
    read_answered: Callable[[Reading], None]

    async def read_index(self) -> None:
        reading = self.read_began()
        await super().read_index()
        if reading is not None:
            self.read_answered(reading)

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        with suppress(Exception):  # `run` raises it, too
            super()._guarded(work, *arguments)

    def _pump(self) -> None:
        if self.may_run():  # a process that sleeps finds on waking what came meanwhile
            super()._pump()
            self.after_pump()
