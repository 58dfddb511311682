"""Edge: the snapshot on which this node's log stands: its pointer on disk, compaction, and the installation of a newer one.

The pointer is replaced before the log is changed. A crash between the two leaves a log that reaches further back than the
pointer needs; in the other order it would leave a log without the snapshot before it, which no start accepts.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from metadata_log.errors import (
    DamagedFile,
    DiskFailed,
    Fault,
    InvariantBroken,
    MetadataError,
    SnapshotNotFound,
    UnknownFormat,
    WrittenByAnotherVersion,
    another_version,
)
from metadata_log.ids import NO_NODE, NodeId
from quorum.raft.guard import Guard
from quorum.raft.journal.journal import Journal
from quorum.raft.journal.recovery import REPLACE_THE_VOTER
from quorum.raft.pointer import FILE_NAME as POINTER_FILE
from quorum.raft.pointer import Pointer, SnapshotOffer
from quorum.raft.raft_log import Role, SnapshotFetcher
from quorum.raft.voters_in_force import VotersInForce

log = logging.getLogger(__name__)


class PointerDisk(Protocol):
    """Where the pointer file lies: the journal's disk."""

    def read(self, name: str) -> bytes | None: ...
    def replace(self, name: str, data: bytes) -> None: ...


def stored_pointer(disk: PointerDisk) -> Pointer | None:
    """Return the pointer in a journal's directory, None if there is none.

    Raises:
        DamagedFile: it is not what was written.
        WrittenByAnotherVersion: its format is unknown to this release.
    """
    data = disk.read(POINTER_FILE)
    if data is None:
        return None
    where = f"{POINTER_FILE} in the journal directory"
    try:
        return Pointer.from_bytes(data)
    except UnknownFormat as error:
        raise another_version(where, error) from error
    except ValueError as error:
        raise DamagedFile(f"{where} is damaged: {error}. {REPLACE_THE_VOTER}") from error


class LogStart:
    """Keeps journal, guard and voters in step with the snapshot before the log, and says which snapshots are needed."""

    def __init__(
        self,
        *,
        journal: Journal,
        guard: Guard,
        in_force: VotersInForce,
        disk: PointerDisk,
        fetcher: SnapshotFetcher,
        tail_entries: int,
        tail_bytes: int,
        run_in_thread: Callable[[Callable[[], None]], asyncio.Future[None]],
    ) -> None:
        self._journal = journal
        self._guard = guard
        self._in_force = in_force
        self._disk = disk
        self._fetcher = fetcher
        self._tail_entries = tail_entries
        self._tail_bytes = tail_bytes
        self._run_in_thread = run_in_thread
        self._lock = asyncio.Lock()
        """Held while the pointer is replaced, and the log after it."""
        self._is_installing = False
        self._not_fetched: tuple[int, str] | None = None
        """The last entry that the snapshot covers whose last download failed, and why it did."""
        self._on_disk: str | None = None
        """The snapshot that the pointer on disk names."""
        self._soon: list[str] = []
        """Those that it may name soon: each until its own compaction or installation has ended."""

    @property
    def pinned(self) -> frozenset[str]:
        """Snapshots that a restart may need: the one that the pointer on disk names, and those it may name soon."""
        return frozenset(self._soon if self._on_disk is None else (self._on_disk, *self._soon))

    # --- at the start

    def stored(self) -> Pointer | None:
        """Return the pointer on disk, None if no snapshot lies before the log.

        Raises:
            DamagedFile: it is damaged, or it is missing though the journal was trimmed.
        """
        pointer = stored_pointer(self._disk)
        if pointer is not None:
            self._on_disk = pointer.snapshot_id
        elif len(self._journal) > 0 and self._journal[0][1] > 1:
            raise DamagedFile(
                f"the journal begins at entry {self._journal[0][1]}, but {POINTER_FILE}, which names the snapshot "
                f"before it, is missing. {REPLACE_THE_VOTER}"
            )
        return pointer

    async def ensure(self, pointer: Pointer) -> None:
        """Ensure that this node has the snapshot that its pointer names; a damaged one is fetched from another voter."""
        snapshot_id = pointer.snapshot_id
        try:
            await self._fetcher.fetch(snapshot_id, NO_NODE, pointer.seal)
        except MetadataError as error:
            if isinstance(error, DiskFailed | WrittenByAnotherVersion):
                raise
            raise DamagedFile(
                f"snapshot {snapshot_id}, on which this node's journal stands, is missing or damaged, and cannot be had "
                f"from another controller ({error.message}): start this node again once they run, or replace this voter"
            ) from error

    def stand_on(self, pointer: Pointer) -> None:
        """Make the journal fit a pointer that is on disk: keep the entries that continue it, else begin with its own two."""
        journal, index = self._journal, pointer.index
        if len(journal) > 0 and journal[0][1] >= index:
            raise DamagedFile(
                f"the journal begins at entry {journal[0][1]}, behind the snapshot up to {index}. {REPLACE_THE_VOTER}"
            )
        held = len(journal) > 0 and index <= journal[-1][1]
        if not held or journal[index - journal[0][1]][2] != pointer.term:
            # The log ends before the snapshot, or differs from it there, and then nothing after is committed.
            journal.clear()
            for entry in pointer.entries:
                journal.add(*entry)
        self._announce(pointer)

    def _announce(self, pointer: Pointer) -> None:
        self._journal.snapshot_index = pointer.index
        self._guard.replication.snapshot = SnapshotOffer(pointer.index, pointer.term, pointer.to_bytes())
        self._in_force.stand_on(pointer.voters)

    # --- compaction

    def pointer_to(self, index: int, snapshot_id: str, seal: bytes) -> Pointer | None:
        """Return the pointer to a new snapshot that covers the log up to `index`, and pin the snapshot until `compact` ends.

        None: a newer snapshot was installed meanwhile, or the log has no entry before it that could be trimmed.
        """
        journal, base = self._journal, self._journal[0][1]
        if index <= journal.snapshot_index or index <= base:
            return None
        self._soon.append(snapshot_id)
        before, last = journal[index - 1 - base], journal[index - base]
        voters = self._in_force.set_up_to(index)
        return Pointer.to(snapshot_id, seal, before=before, last=last, voters=voters)

    async def compact(self, pointer: Pointer) -> bool:
        """Replace the pointer, then trim the journal after it; answer whether entries were trimmed."""
        try:
            async with self._lock:
                if pointer.index <= self._journal.snapshot_index:
                    return False
                await self._replace_pointer(pointer)
                return self._trim(pointer)
        finally:
            self._soon.remove(pointer.snapshot_id)

    async def _replace_pointer(self, pointer: Pointer) -> None:
        """Write the pointer; until it is durable a restart may need the old snapshot as well as the new.

        Another compaction or installation may wait for this one to end: what it pins stays pinned.
        """
        await self._run_in_thread(partial(self._disk.replace, POINTER_FILE, pointer.to_bytes()))
        self._on_disk = pointer.snapshot_id

    def _trim(self, pointer: Pointer) -> bool:
        """Trim the entries that the pointer on disk covers, except a tail that spares slow followers a snapshot."""
        self._announce(pointer)
        journal = self._journal
        # The entries at index - 1 and index stay in any case.
        last = pointer.index - 1 - journal[0][1]
        keep_from, size = last, 0
        while keep_from > max(0, last - self._tail_entries):
            size += len(journal[keep_from - 1][0])
            if size > self._tail_bytes:
                break
            keep_from -= 1
        if keep_from <= 0:
            return False
        journal.deleteEntriesTo(keep_from)
        return True

    # --- installation

    def accept(self, leader: NodeId, offer: SnapshotOffer) -> Pointer | None:
        """Return the pointer that a leader offers if it may be installed now; if not, the leader offers it again."""
        if self._is_installing or not self._journal.is_begun:
            return None  # a snapshot beside a journal that was never begun proves a loss
        try:
            pointer = Pointer.from_bytes(offer.pointer)
            if (pointer.index, pointer.term) != (offer.index, offer.term):
                raise ValueError("it differs from its own announcement")
        except ValueError as error:
            log.warning("snapshot_pointer_refused", extra={"peer_id": leader, "reason": str(error)})
            return None
        self._is_installing = True
        return pointer

    async def prepare(self, leader: NodeId, pointer: Pointer) -> bool:
        """Fetch a snapshot that was accepted, and replace the pointer; answer whether the log is to begin at it now.

        The log may have caught up meanwhile. Then it stays, and the pointer says no more than that of any compaction.
        """
        self._soon.append(pointer.snapshot_id)
        try:
            try:
                await self._fetcher.fetch(pointer.snapshot_id, leader, pointer.seal)
            except DamagedFile as error:  # what others sent is damaged: this node has lost nothing
                raise SnapshotNotFound(error.message, snapshot_id=pointer.snapshot_id) from error
            async with self._lock:
                if not self._lacks(pointer):
                    return False
                await self._replace_pointer(pointer)
                return self._lacks(pointer)
        except MetadataError as error:
            if isinstance(error, Fault):
                raise
            self._not_fetched = pointer.index, error.message
            log.warning(
                "snapshot_not_fetched",
                extra={"peer_id": leader, "error": error.error, "reason": error.message},
            )
            return False  # the leader offers it again
        finally:
            self._soon.remove(pointer.snapshot_id)
            self._is_installing = False

    def _lacks(self, pointer: Pointer) -> bool:
        """Answer whether the log still ends before a snapshot that was offered, or differs from it."""
        if self._guard.follower.holds(pointer.index, pointer.term):
            return False
        if self._guard.state.engine.role is Role.LEADER:
            raise InvariantBroken(f"this node leads, but lacks committed entry {pointer.index}")
        return True

    def why_not_fetched(self, applied_index: int) -> str | None:
        """Return why the snapshot that this node still needs could not be fetched the last time."""
        if self._not_fetched is None or applied_index >= self._not_fetched[0]:
            return None
        return self._not_fetched[1]
