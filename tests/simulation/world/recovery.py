"""What a simulated node may find in its journal when it starts: what it had made durable, or was writing, and no rot."""

import random
from typing import TYPE_CHECKING

from metadata_log.errors import DamagedFile
from quorum.raft.journal.format import frames_of_file, identity_of
from tests.simulation.rules.rule import rule
from tests.simulation.world.disk import Rot
from tests.simulation.world.watched_log import NOTHING, Standing, WatchedJournal

if TYPE_CHECKING:
    from tests.simulation.world.node import SimulatedNode


class Recovery:
    """The journal of one node at each start, beside what it had made durable, and what was rotten."""

    a_start_finds_what_was_written = rule("a journal recovers what was durable, or was being written")
    a_start_finds_what_is_durable = rule("what a start found outlives the next loss of power")
    rot_is_no_torn_end = rule("rot in a marked batch is not taken for a torn end")

    def __init__(self, node: "SimulatedNode") -> None:
        self._node = node

    def starts_on_rot(self) -> bool:
        """Answer whether this node starts on what rotted: damage is refused, or changes nothing."""
        node, world, trial = self._node, self._node.world, self._node.disk.copy()
        rng = random.Random(0)
        try:
            found = WatchedJournal.open(trial, random_bytes=rng.randbytes, file_bytes=node.journal_file_bytes)
        except DamagedFile as fault:
            node.stopped_by(fault)
            return False
        assert isinstance(found, WatchedJournal)
        if self._may_recover(found.standing()):
            world.consequences["rot that changed nothing"] += 1
        else:
            # A rotten last batch cannot be told from a torn one until the mark behind it is written.
            for rot in node.rots:
                if not self._is_unmarked(rot):
                    world.violated(self.rot_is_no_torn_end(f"node {node.node_id} took {rot} for one"))
                node.disk.turn(rot)
            node.rots.clear()
            world.consequences["rot of an unmarked batch"] += 1
            world.sometimes("rot in an unmarked journal batch")
        return True

    def _is_unmarked(self, rot: Rot) -> bool:
        """Answer whether a bit lies in a journal's very last batch, with no idle mark behind it."""
        node = self._node
        whole = node.disk.copy()
        whole.turn(rot)
        files = [name for name in whole.names() if name.endswith(".journal")]
        for name in reversed(files):
            content = whole.open(name).read(0, whole.file_size(name))
            identity = identity_of(content, int(name[:20]))
            frames = [] if identity is None else list(frames_of_file(content, identity, after=0))
            if frames:
                return rot.name == name and bool(frames[-1].records) and rot.position >= frames[-1].position
        return False

    def check(self) -> None:
        node = self._node
        if node.incarnation == 1 or node.durable is NOTHING:
            return
        found = node.journal.standing()
        if not self._may_recover(found):
            node.world.violated(
                self.a_start_finds_what_was_written(
                    f"node {node.node_id} recovered a log up to "
                    f"{found.entries[-1][1] if found.entries else 0}, term {found.term}, a vote for {found.vote}"
                )
            )
        # From now on it promises by what it found, though it may have found it in the kernel's cache alone.
        rng, after = random.Random(node.incarnation), node.disk.after_crash(random.Random(node.incarnation))
        again = WatchedJournal.open(after, random_bytes=rng.randbytes, file_bytes=node.journal_file_bytes)
        assert isinstance(again, WatchedJournal)
        if again.standing() != found:
            node.world.violated(
                self.a_start_finds_what_is_durable(f"node {node.node_id} goes on from other entries")
            )

    def _may_recover(self, recovered: Standing) -> bool:
        """Answer whether this is what a crash may leave: as before the batch under way, as after, or after a part of it.

        A batch too large for one file is written in parts, each synced before the next.
        """
        node = self._node
        if recovered in (node.durable, node.writing):
            return True
        if node.writing is None or node.parts < 2:
            return False
        before = {index: (command, term) for command, index, term in node.durable.entries}
        after = {index: (command, term) for command, index, term in node.writing.entries}
        kept = max((index for index in before if before[index] == after.get(index)), default=0)
        entries, first = recovered.entries, node.writing.entries[0][1]
        return (
            bool(entries)
            and entries[-1][1] >= kept
            and all(
                (command, term) in (before.get(index) if index < first else None, after.get(index))
                for command, index, term in entries
            )
            and node.durable.term <= recovered.term <= node.writing.term
            and (
                recovered.term != node.durable.term
                or recovered.vote == node.durable.vote
                or node.durable.vote is None
            )
        )
