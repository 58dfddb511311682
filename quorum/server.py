"""Edge: one controller process: builds the parts, runs them in one TaskGroup, and stops as a whole."""

import asyncio
import gc
import logging
import os
import random
import signal
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import aiohttp
from aiohttp import web

from metadata_log import limits
from metadata_log.batch import RecordBatch
from metadata_log.codec import DamagedFrame, decode_all, read_header
from metadata_log.errors import (
    DamagedFile,
    Fault,
    OutcomeUnknown,
    QuorumRefused,
    Rejected,
    SnapshotNotFound,
    Unavailable,
)
from metadata_log.ids import NO_NODE, NodeId, Uuid, random_uuid
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.clock import monotonic_ms, unix_ms
from metadata_log.node.collector import short_collections
from metadata_log.node.data_directory import (
    DirectoryLock,
    Meta,
    Reserve,
    check_space,
    free_bytes,
    is_fresh,
    leaving_no_process_json,
    not_fresh_any_more,
    read_meta,
    settle_names,
    write_process_json,
)
from metadata_log.node.http_server import listen
from metadata_log.node.recent_warnings import RecentFaults, recent_faults
from quorum.applied_listener import AppliedListener
from quorum.config import ControllerSettings, HostPort, address_text
from quorum.controller import Controller
from quorum.decide.quorum import identities
from quorum.fetch.service import FetchService
from quorum.http.app import application
from quorum.http.door import Door
from quorum.log.committed_log import CommittedLog
from quorum.log.repair import LogRepair, fetch_pages, tell_unreadable
from quorum.log.snapshot_keeper import SnapshotKeeper
from quorum.raft.adapter import PointerDisk, PySyncObjLog, stored_pointer
from quorum.raft.guard import RaftSettings
from quorum.raft.journal.journal import Journal, OsDisk, room_to_open
from quorum.raft.journal.lost import check_reaches_log, lost_journal
from quorum.raft.journal.thread import JournalThread
from quorum.raft.raft_log import Member
from quorum.raft.transport import TOO_MANY_OBSERVERS, Hello, TcpTransport, founding_sha256
from quorum.status import QuorumStatus
from snapshots.download import download_snapshot
from snapshots.snapshot_file import position_of
from snapshots.store import SnapshotStore

log = logging.getLogger(__name__)
T = TypeVar("T")
LAST_WRITES_MS = 500
"""How long a controller that stops goes on for those who wait for their records."""
COMPLETE_LOG_MS = 20_000
"""How long a node whose log lost its end to damage waits for another controller that has it."""
COMPLETE_LOG_AGAIN_S = 0.5
SEGMENT_SYNC_S = 1.0
"""Segments can be made again from the journal and the peers: they are synced lazily."""


class _Stopped(Exception):
    """The process was asked to stop."""


async def run_controller(settings: ControllerSettings, *, text_log: Path | None = None) -> None:
    """Be a controller until SIGINT or SIGTERM.

    Raises:
        Fault: its message says what broke, where, and what to do.
    """
    limits.check_relations()
    settings.validate()
    meta = read_meta(settings.data_dir, "controller", settings.node_id, settings.cluster_id)
    with ExitStack() as stack:
        recent = stack.enter_context(recent_faults())
        stack.enter_context(DirectoryLock(settings.data_dir))
        stack.enter_context(leaving_no_process_json(settings.data_dir))
        reserve = Reserve(settings.data_dir).at_start()
        if reserve in ("released", "no room"):
            log.warning("disk_nearly_full", extra={"path": str(settings.data_dir), "reserve": reserve})
        settle_names(settings.data_dir, ("journal", "log"))
        journal_directory = settings.data_dir / "journal"
        if not journal_directory.exists():
            raise lost_journal(settings.data_dir)
        wanted = room_to_open(OsDisk(journal_directory))
        check_space(settings.data_dir, limits.FREE_BYTES_TO_START + wanted)
        stack.enter_context(short_collections())
        try:
            node = _Node(settings, meta, stack, recent)
            await node.run(text_log)
        except Fault as fault:
            if str(settings.data_dir) not in fault.message:
                fault.message = f"{settings.data_dir}: {fault.message}"
            raise


class _Node:
    """The parts of one controller, wired; they live as long as `run`."""

    def __init__(
        self, settings: ControllerSettings, meta: Meta, stack: ExitStack, recent: RecentFaults
    ) -> None:
        self.settings = settings
        self._loop = asyncio.get_running_loop()
        data = settings.data_dir
        rng = random.SystemRandom()
        self.incarnation_id: Uuid = random_uuid(rng)
        disk = OsDisk(data / "journal")
        # Behind the snapshot that the journal stands on Raft brings all frames again; what is missing before it, the
        # other controllers have (`_complete_log`).
        self.covered_offset = covered_offset(disk)
        self.segments = SegmentedLog.open(
            data / "log",
            segment_bytes=settings.log.segment_bytes,
            made_again_from=0,
            scanned_from=self.covered_offset,
        )
        stack.callback(self.segments.close)
        self.store = SnapshotStore(data / "snapshots", data / "quarantine")
        self.store.on_damage = self._on_snapshot_damage
        self.committed_log = CommittedLog(self.segments)
        self.repair = LogRepair(
            committed=self.segments,
            peers=self._other_urls,
            session=self._http,
            run_in_thread=asyncio.to_thread,
        )
        self.committed_log.on_damage = self.repair.report
        self.controller = Controller(
            settings=settings,
            now_ms=_now_ms,
            unix_ms=unix_ms,
            rng=rng,
            load_snapshot=self._load_snapshot,
            http_url=self._url_of,
        )
        self.keeper = SnapshotKeeper(
            settings=settings,
            controller=self.controller,
            committed_log=self.committed_log,
            store=self.store,
            run_in_thread=asyncio.to_thread,
            unix_ms=unix_ms,
        )
        self.fetches = FetchService(
            settings=settings,
            controller=self.controller,
            committed_log=self.committed_log,
            newest_snapshot=self.keeper.newest,
            now_ms=_now_ms,
        )
        member = Member(settings.node_id, meta.directory_id)
        founders = {voter.id: voter.directory_id for voter in settings.voters}
        self.transport = TcpTransport(
            node_id=settings.node_id,
            listen=settings.listen_raft,
            addresses=_addresses(settings, EMPTY),
            hello=Hello(
                cluster_id=settings.cluster_id,
                node_id=settings.node_id,
                directory_id=meta.directory_id,
                http=settings.http_url,
                raft=address_text(settings.raft_address),
                founding=founding_sha256(founders),
            ),
            voters=founders,
            now_ms=_now_ms,
        )
        self.transport.on_refused = self._on_refused
        journal = Journal.open(disk, random_bytes=os.urandom, may_be_new=is_fresh(data))
        stack.callback(journal.close)
        not_fresh_any_more(data)
        # It ends before the journal's files are closed.
        journal_thread = stack.enter_context(JournalThread())
        if journal.voter_changes or stored_pointer(disk) is not None:
            # The log says who votes, though nothing of it is applied yet: settings that differ keep nobody apart.
            self.transport.hello = replace(self.transport.hello, founding=b"")
        check_reaches_log(
            data,
            log_end=self.segments.end_offset,
            entries=journal,
            snapshot_end=self.covered_offset,
            has_snapshots=self.store.latest() is not None,
            is_begun=journal.is_begun,
        )
        self.raft = PySyncObjLog(
            member=member,
            voters=founders,
            journal=journal,
            transport=self.transport,
            pointer_disk=disk,
            listener=self.controller,
            fetcher=self,
            settings=RaftSettings(
                heartbeat_ms=settings.timing.heartbeat_ms,
                election_timeout_min_ms=settings.timing.election_timeout_min_ms,
                election_timeout_max_ms=settings.timing.election_timeout_max_ms,
                disk_stall_ms=limits.DISK_STALL_MS,
            ),
            now_ms=monotonic_ms,
            rng=rng,
            run_in_thread=journal_thread.run,
            others_founded=self.transport.others_founded,
        )
        links = _LinksFollowVoters(settings, member, self.transport)
        self.controller.attach(self.raft, [self.committed_log, self.keeper, self.fetches, links])
        self.status = QuorumStatus(
            settings=settings,
            controller=self.controller,
            committed_log=self.committed_log,
            fetches=self.fetches,
            keeper=self.keeper,
            repair=self.repair,
            directory_id=meta.directory_id,
            address=self._address_of,
            url=self._url_of,
            refused=self.transport.refused,
            foreign_bytes_total=lambda: self.transport.foreign_bytes_total,
            free_bytes=lambda: free_bytes(data),
            recent=recent,
        )
        self.stop_asked = asyncio.Event()
        self.fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loaded: dict[str, MetadataImage] = {}
        self._session: aiohttp.ClientSession | None = None

    # --- life

    async def run(self, text_log: Path | None) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop_asked.set)
        door = Door(
            settings=self.settings,
            controller=self.controller,
            committed_log=self.committed_log,
            fetches=self.fetches,
            keeper=self.keeper,
            store=self.store,
            status=self.status,
            now_ms=_now_ms,
            on_fault=self._on_fault,
        )
        runner = web.AppRunner(application(door), shutdown_timeout=1.0)
        await runner.setup()
        listener: asyncio.Server | None = None
        try:
            for snapshot_id in self.store.ids():
                await asyncio.to_thread(self._hash, snapshot_id)
            await self.transport.listen()
            listener = await listen(runner, door.error, self.settings.listen_http)
            write_process_json(
                self.settings.data_dir,
                role="controller",
                node_id=self.settings.node_id,
                pid=os.getpid(),
                incarnation_id=self.incarnation_id,
                http=self.settings.http_url,
                raft=address_text(self.settings.raft_address),
                started_at_ms=unix_ms(),
                log=str(text_log or ""),
            )
            log.info(
                "controller_started", extra={"node_id": self.settings.node_id, "http": self.settings.http_url}
            )
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.transport.run())
                    group.create_task(self._take_part())
                    group.create_task(self.keeper.run())
                    group.create_task(self.keeper.count())
                    group.create_task(self.keeper.scrub())
                    group.create_task(self.repair.run())
                    group.create_task(self.repair.scrub())
                    group.create_task(self._check_sessions())
                    group.create_task(self._sync_segments())
                    group.create_task(self._raise_fault())
                    group.create_task(self._wait_for_stop())
            except BaseExceptionGroup as failures:
                raise _first(failures) from None
        except _Stopped:
            await asyncio.to_thread(self.segments.sync)
            log.info("controller_stopped", extra={"node_id": self.settings.node_id})
        finally:
            # Nobody can begin to wait any more; who does, after a fault, too, is told to ask elsewhere.
            self.controller.resign()
            self.controller.stop_waiting()
            if self._session is not None:
                await self._session.close()
            if listener is not None:
                listener.close()
            await runner.cleanup()
            # A snapshot that a thread still writes is done before the lock goes: it would meet the next process's.
            await loop.shutdown_default_executor()

    async def _take_part(self) -> None:
        await self._complete_log()
        await self.raft.run()

    async def _complete_log(self) -> None:
        """Fetch what the log's end lacks and Raft has trimmed already, before this node goes on there.

        If no other controller has more of it for a while, the log begins at the snapshot, and `/readyz` says so.
        """
        segments, covered = self.segments, self.covered_offset
        patience_ends = monotonic_ms() + COMPLETE_LOG_MS
        while segments.end_offset < covered and monotonic_ms() < patience_ends:
            for url in self._other_urls():
                begin = segments.end_offset
                async for frames, _ in fetch_pages(self._http(), url, begin, covered):
                    if not self._append_next(frames, url):
                        break  # another history than this node's
                    await asyncio.to_thread(segments.sync)
                if segments.end_offset > begin:
                    patience_ends = monotonic_ms() + COMPLETE_LOG_MS
                    log.warning(
                        "log_completed", extra={"from": begin, "until": segments.end_offset, "peer": url}
                    )
            if segments.end_offset < covered:
                await asyncio.sleep(COMPLETE_LOG_AGAIN_S)
        if segments.end_offset < covered:
            self.status.log_not_completed = (
                f"the log ended at offset {segments.end_offset}, below the snapshot at {covered} on which the journal "
                "stands, and no other controller that runs had the rest: it begins at the snapshot"
            )

    def _append_next(self, frames: bytes, url: str) -> bool:
        """Append frames of a peer to the log's end; answer whether all of them are batches that continue it."""
        try:
            for batch, frame in decode_all(frames):
                end = (self.segments.end_offset, self.segments.last_crc)
                if (batch.base_offset, batch.previous_crc) != end:
                    log.warning("peer_log_differs", extra={"peer": url, "offset": batch.base_offset})
                    return False
                self.segments.append(frame, read_header(frame))
        except DamagedFrame as error:
            tell_unreadable(url, error)
            return False
        return True

    def _http(self) -> aiohttp.ClientSession:
        """Return the session for what is asked of other controllers; made on the loop, at the first use."""
        if self._session is None:
            self._session = aiohttp.ClientSession(auto_decompress=False)
        return self._session

    async def _wait_for_stop(self) -> None:
        await self.stop_asked.wait()
        if self.controller.is_active and len(self.raft.status().voters) > 1:
            with suppress(Rejected, OutcomeUnknown, Unavailable):  # nobody is there to take over
                await self.controller.transfer(None)
        self.controller.resign()
        # What is under way commits meanwhile, or the successor's claim tells those who wait that they must ask there.
        deadline = monotonic_ms() + LAST_WRITES_MS
        while self.controller.is_waited_for and monotonic_ms() < deadline:
            await asyncio.sleep(0.005)
        await self.raft.close()
        raise _Stopped

    async def _raise_fault(self) -> None:
        await self.fault

    def _on_fault(self, fault: Fault) -> None:
        if not self.fault.done():
            self.fault.set_exception(fault)

    async def _check_sessions(self) -> None:
        period_ms = self.settings.timing.session_timeout_ms / limits.SESSION_CHECKS_PER_TIMEOUT
        while True:
            again = self.controller.check_sessions()
            await asyncio.sleep((limits.SESSION_CHECK_AGAIN_MS if again else period_ms) / 1000)

    async def _sync_segments(self) -> None:
        while True:
            await asyncio.sleep(SEGMENT_SYNC_S)
            if self.committed_log.unsynced_bytes:
                self.committed_log.unsynced_bytes = 0
                await asyncio.to_thread(self.segments.sync)

    # --- what the parts ask

    def _on_refused(self, node_id: NodeId, reason: str, message: str) -> None:  # noqa: ARG002 (the transport's signature)
        """A majority that refuses us will never elect us nor send us their log: say so and stop."""
        others = self.transport.voters.keys() - {self.settings.node_id}
        refusing = {
            peer for peer, refusal in self.transport.refusals.items() if refusal.error != TOO_MANY_OBSERVERS
        }
        if 2 * len(refusing & others) > len(others):
            raise QuorumRefused(
                f'the other voters refuse this one: {reason}: {message} (what to do: ops/runbooks/no-leader.md, "If it is '
                'refused")'
            )

    def _url_of(self, node_id: NodeId) -> str | None:
        """Return a controller's URL: as it says itself, or, before it was heard, as the settings do."""
        told = self.transport.members.get(node_id)
        return self.settings.url_of(node_id) if told is None else told.http

    def _address_of(self, node_id: NodeId) -> str | None:
        told = self.transport.members.get(node_id)
        return None if told is None else told.raft

    def _other_urls(self, first: NodeId = NO_NODE) -> list[str]:
        """Return where the other controllers answer, `first` before the rest."""
        known = {voter.id for voter in self.settings.voters} | self.transport.members.keys()
        others = sorted(known - {self.settings.node_id}, key=lambda node_id: (node_id != first, node_id))
        return [url for url in map(self._url_of, others) if url is not None]

    def _load_snapshot(self, snapshot_id: str) -> MetadataImage:
        image = self._loaded.pop(snapshot_id, None) or self.store.load(snapshot_id)
        gc.freeze()  # it holds no cycles; walking a million partitions in each full collection would take a second
        return image

    def _hash(self, snapshot_id: str) -> None:
        """Learn a snapshot's hash, in a thread, before a broker or a scrape asks for it on the loop."""
        with suppress(SnapshotNotFound):
            self.store.sha256(snapshot_id)

    def _on_snapshot_damage(self, snapshot_id: str, error: DamagedFile) -> None:
        self.status.snapshot_set_aside = error.message
        log.error("snapshot_quarantined", extra={"snapshot_id": snapshot_id, "reason": error.message})
        self._loop.call_soon_threadsafe(self.keeper.lost)

    async def fetch(self, snapshot_id: str, from_node: NodeId) -> None:
        """Bring a snapshot here, from the leader or from whoever has it, and load it off the loop."""
        try:
            image = await asyncio.to_thread(self.store.load, snapshot_id)
        except (SnapshotNotFound, DamagedFile):
            urls = self._other_urls(from_node)
            if not urls:
                raise
            try:
                await download_snapshot(self._http(), urls, snapshot_id, self.store.directory)
            except ValueError as error:
                raise SnapshotNotFound(str(error)) from error  # a peer named what is no id
            image = await asyncio.to_thread(self.store.load, snapshot_id)
            await asyncio.to_thread(self._hash, snapshot_id)
        self._loaded = {snapshot_id: image}


class _LinksFollowVoters(AppliedListener):
    """Lets the links know who votes, and where, as soon as the log says so."""

    def __init__(self, settings: ControllerSettings, member: Member, transport: TcpTransport) -> None:
        self._settings = settings
        self._me = member
        self._transport = transport
        self._known: object = None

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002
        self.on_restored(image)

    def on_restored(self, image: MetadataImage) -> None:
        if image.quorum.voters is None or image.quorum.voters is self._known:
            return
        self._known = image.quorum.voters
        if self._me not in identities(image.quorum.voters).items():
            log.warning("not_a_voter", extra={"voters": sorted(identities(image.quorum.voters))})
        self._transport.set_voters(identities(image.quorum.voters))
        self._transport.set_addresses(_addresses(self._settings, image))
        self._transport.hello = replace(self._transport.hello, founding=b"")


def _addresses(settings: ControllerSettings, image: MetadataImage) -> dict[NodeId, HostPort]:
    """Return where controllers are dialled: as the settings say, which may differ by who looks; else as the log does."""
    return {
        voter.node_id: (voter.endpoints[0].host, voter.endpoints[0].port)
        for voter in image.quorum.voters or ()
        if voter.endpoints
    } | {voter.id: voter.raft for voter in settings.voters}


def covered_offset(disk: PointerDisk) -> int:
    """Return the end of the snapshot that the journal stands on: Raft will commit all behind it once more.

    Raises:
        WrittenByAnotherVersion: before a file of the log is touched.
    """
    try:
        pointer = stored_pointer(disk)
        return 0 if pointer is None else position_of(pointer.snapshot_id)[0]
    except (DamagedFile, ValueError):
        return 0  # the Raft log itself will be refused


def _now_ms() -> int:
    return int(monotonic_ms())


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the failure that says most: a Fault before the rest, a stop only if nothing failed."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [failures]
    while pending:
        failure = pending.pop()
        if isinstance(failure, BaseExceptionGroup):
            pending.extend(failure.exceptions)
        else:
            leaves.append(failure)
    return min(leaves, key=lambda leaf: (not isinstance(leaf, Fault), isinstance(leaf, _Stopped)))
