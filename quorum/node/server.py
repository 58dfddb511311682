"""Edge: one controller process: builds the parts, runs them in one TaskGroup, and stops as a whole."""

import asyncio
import logging
import os
import random
import signal
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import aiohttp

from metadata_log import limits
from metadata_log.errors import (
    DamagedFile,
    Fault,
    OutcomeUnknown,
    Rejected,
    Unavailable,
    leaves,
    most_telling,
)
from metadata_log.ids import NO_NODE, NodeId, Uuid, random_uuid
from metadata_log.image.metadata_image import EMPTY
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.addresses import address_text
from metadata_log.node.audit_log import AuditLog
from metadata_log.node.clock import monotonic_ms, unix_ms
from metadata_log.node.collector import short_collections
from metadata_log.node.disk.data_directory import (
    DirectoryLock,
    Meta,
    is_fresh,
    leaving_no_process_json,
    not_fresh_any_more,
    only_joins,
    read_meta,
    write_process_json,
)
from metadata_log.node.disk.disk_space import Reserve, check_space, free_bytes
from metadata_log.node.disk.durable_files import settle_names
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.body_buffers import BodyBuffers
from metadata_log.node.http.kept_connections import KeptConnections
from metadata_log.node.http.server import ConnectionBound
from metadata_log.node.identity.access import Access
from metadata_log.node.identity.credentials import bearer_from, secret_from
from metadata_log.node.identity.tls import Tls
from metadata_log.node.recent_warnings import RecentWarnings, recent_warnings
from metadata_log.node.threads import Threads, share_the_interpreter
from quorum.controller.controller import Controller
from quorum.decide.deleted_topics import Expiry
from quorum.decide.quiet import QuietMark
from quorum.decide.sweeps import Sweep, SweepKind
from quorum.decide.tokens import TokenSweep
from quorum.fetch.service import FetchService
from quorum.http.metrics import TurnMetrics
from quorum.kafka.kafka_log import KafkaLog
from quorum.log.committed_log import CommittedLog
from quorum.log.completion import complete_log, covered_offset
from quorum.log.history_process import HistoryProcess
from quorum.log.past import Past
from quorum.log.repair import LogRepair
from quorum.log.snapshot_fetch import SnapshotFetch
from quorum.log.snapshot_keeper import SnapshotKeeper
from quorum.log.topic_feeds import TopicFeeds
from quorum.log.watchers import Watchers
from quorum.node.bootstrap import read_bootstrap
from quorum.node.config import ControllerSettings
from quorum.node.doors import open_doors
from quorum.node.parts import Parts
from quorum.node.peers import LinksFollowVoters, Peers, dialled_addresses
from quorum.node.periodic import SessionChecks, keep_changing, keep_sweeping
from quorum.node.registration import Registration, over_http, registration_of
from quorum.pace.loop_turns import TimedSelector
from quorum.raft.adapter import PySyncObjLog
from quorum.raft.handshake import Hello, founding_sha256
from quorum.raft.journal.journal import Journal
from quorum.raft.journal.lost import check_reaches_log, lost_journal
from quorum.raft.journal.os_disk import OsDisk
from quorum.raft.journal.recovery import room_to_open
from quorum.raft.journal.thread import JournalThread
from quorum.raft.log_start import stored_pointer
from quorum.raft.raft_log import Member
from quorum.raft.raft_settings import RaftSettings
from quorum.raft.transport import TcpTransport
from quorum.views.since import Since
from quorum.views.status import QuorumStatus
from snapshots.kept_digest import KeptDigest
from snapshots.state_check import StateCheck, asking
from snapshots.store import SnapshotStore

log = logging.getLogger(__name__)
LAST_WRITES_MS: Final = 500
"""A controller that stops goes on for this long, for clients that wait for their records to commit."""
_RNG: Final = random.SystemRandom()


class _Stopped(Exception):
    """The process was asked to stop."""


async def run_controller(
    settings: ControllerSettings,
    *,
    text_log: Path | None = None,
    turns: TimedSelector | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Be a controller until `stop` is set, or without it until SIGINT or SIGTERM.

    `turns` is the loop's selector, if it counts turns.

    Raises:
        Fault: its message says what broke, where, and what to do.
    """
    limits.check_relations()
    settings.validate()
    meta = read_meta(settings.data_dir, "controller", settings.node_id, settings.cluster_id)
    with ExitStack() as stack:
        recent = stack.enter_context(recent_warnings())
        lock = stack.enter_context(DirectoryLock(settings.data_dir))
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
        try:
            node = _Node(settings, meta, stack, recent, lock)
            if stop is None:
                for number in (signal.SIGINT, signal.SIGTERM):
                    asyncio.get_running_loop().add_signal_handler(number, node.stop_asked.set)
            else:
                node.stop_asked = stop
            await node.run(text_log, turns)
        except Fault as fault:
            if str(settings.data_dir) not in fault.message:
                fault.message = f"{settings.data_dir}: {fault.message}"
            raise


class _Node:
    """The parts of one controller, wired; they live as long as `run`."""

    def __init__(
        self,
        settings: ControllerSettings,
        meta: Meta,
        stack: ExitStack,
        recent: RecentWarnings,
        lock: DirectoryLock,
    ) -> None:
        self.settings = settings
        self._lock = lock
        self._collections = stack.enter_context(short_collections())
        self.incarnation_id: Uuid = random_uuid(_RNG)
        self.stop_asked = asyncio.Event()
        self.fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._session: aiohttp.ClientSession | None = None
        self.tls = None if settings.tls is None else Tls(settings.tls, cluster_id=settings.cluster_id)
        audit = stack.enter_context(AuditLog(settings.audit, f"Controller:{settings.node_id}"))
        self.access = Access(
            settings.principals,
            cluster_id=settings.cluster_id,
            audit=audit,
            by_acls=settings.acls.by_acls,
        )
        self.answer_buffers = AnswerBuffers()
        share_the_interpreter()
        self.bodies = Threads("bodies", threads=1, unfinished_max=limits.BODIES_UNFINISHED_MAX)
        self.reads = Threads("reads", threads=limits.READ_THREADS, unfinished_max=limits.READS_UNFINISHED_MAX)
        # The process computes, and the thread waits for it: a cold read of a broker never waits behind a past state.
        self.past_reads = Threads("reads of the past", threads=1, unfinished_max=limits.READS_UNFINISHED_MAX)
        self.history_process = HistoryProcess("quorum.log.past")
        self.files = Threads("files", threads=limits.FILE_THREADS)
        self.downloads = Threads("downloads", threads=limits.DOWNLOAD_THREADS)
        self.logins = Threads("logins", threads=1, unfinished_max=limits.LOGINS_UNFINISHED_MAX)
        disk = OsDisk(settings.data_dir / "journal")
        self._open_log(disk, stack)
        self._make_links(meta)
        self._make_controller()
        self._join_raft(Member(settings.node_id, meta.directory_id), disk, stack)
        self.state_check = StateCheck(
            lambda: self.controller.committed, asking(self._http, self._compared_with)
        )
        self.status = QuorumStatus(
            settings=settings,
            controller=self.controller,
            committed_log=self.committed_log,
            fetches=self.fetches,
            keeper=self.keeper,
            repair=self.repair,
            directory_id=meta.directory_id,
            address=self.peers.address_of,
            url=self.peers.url_of,
            refused=self.transport.refused,
            foreign_bytes_total=lambda: self.transport.foreign_bytes_total,
            links_outdated=lambda: len(self.transport.renewal.outdated()),
            free_bytes=lambda: free_bytes(settings.data_dir),
            recent=recent,
            access=self.access,
            tls=self.tls,
            state_reasons=self.state_check.reasons,
        )

    def _open_log(self, disk: OsDisk, stack: ExitStack) -> None:
        """Open the committed log and the snapshots."""
        data = self.settings.data_dir
        # Raft commits all frames after this offset again. Frames missing before it come from the other controllers.
        self.covered_offset = covered_offset(disk)
        self.segments = SegmentedLog.open(
            data / "log",
            segment_bytes=self.settings.log.segment_bytes,
            made_again_from=0,
            scanned_from=self.covered_offset,
        )
        stack.callback(self.segments.close)
        self.store = SnapshotStore(data / "snapshots", data / "quarantine", kept_digest=KeptDigest(data))
        self.committed_log = CommittedLog(self.segments, read_in_thread=self.reads.run)

    def _make_links(self, meta: Meta) -> None:
        """Make the transport, which listens later, and what asks the other controllers over HTTP."""
        settings = self.settings
        founders = _founders(settings)
        self.transport = TcpTransport(
            node_id=settings.node_id,
            listen=settings.listen_raft,
            addresses=dialled_addresses(settings, EMPTY),
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
            tls=self.tls,
        )
        self.peers = Peers(settings, self.transport)
        self.repair = LogRepair(
            committed=self.segments,
            peers=self.peers.urls,
            session=self._http,
            run_in_thread=self.files.run,
        )
        self.committed_log.on_damage = self.repair.report
        self.snapshot_fetch = SnapshotFetch(
            self.store,
            cluster_id=self.settings.cluster_id,
            peers=self.peers.urls,
            session=self._http,
            run_in_thread=self.files.run,
        )

    def _make_controller(self) -> None:
        """Make the controller and what serves its state."""
        self.controller = Controller(
            settings=self.settings,
            now_ms=_now_ms,
            unix_ms=unix_ms,
            rng=_RNG,
            load_snapshot=self.snapshot_fetch.load,
            http_url=self.peers.url_of,
            reading_batch_at=self.committed_log.reading_batch_at,
        )
        self.controller.audit = self.access.audit
        self.controller.founding = read_bootstrap(self.settings.data_dir)
        self.controller.tokens.use(secret_from(self.settings.delegation_tokens.secret_key_file))
        self.keeper = SnapshotKeeper(
            settings=self.settings,
            controller=self.controller,
            committed_log=self.committed_log,
            store=self.store,
            run_in_thread=self.files.run,
            unix_ms=unix_ms,
        )
        loop = asyncio.get_running_loop()

        def on_snapshot_damage(snapshot_id: str, error: DamagedFile) -> None:
            self.status.snapshot_set_aside = error.message
            log.error("snapshot_quarantined", extra={"snapshot_id": snapshot_id, "reason": error.message})
            loop.call_soon_threadsafe(self.keeper.lost)

        self.store.on_damage = on_snapshot_damage
        self.feeds = TopicFeeds()
        self.watchers = Watchers()
        self.since = Since(lambda: self.status.default_min_isr())  # noqa: PLW0108 (the status is made later)
        self.fetches = FetchService(
            settings=self.settings,
            controller=self.controller,
            committed_log=self.committed_log,
            newest_snapshot=self.keeper.newest,
            now_ms=_now_ms,
            refusal=self.answer_buffers.refusal,
            read_replica=lambda: self.peers.next_read_replica(self.raft.status()),
        )
        self.kafka_log = KafkaLog(
            settings=self.settings,
            controller=self.controller,
            committed_log=self.committed_log,
            keeper=self.keeper,
            store=self.store,
            now_ms=_now_ms,
            run_in_thread=self.past_reads.run,
            process=self.history_process,
        )
        self.registration = Registration(
            registration_of(self.settings, self.incarnation_id),
            controller=self.controller,
            url_of=self.peers.url_of,
            send=over_http(self._http, silence_max_ms=self.settings.timing.commit_timeout_ms + 1_000),
            rng=_RNG,
        )

    def _join_raft(self, member: Member, disk: OsDisk, stack: ExitStack) -> None:
        """Open the journal, check that it continues the committed log, and attach the controller to Raft.

        Raises:
            DamagedFile: the journal, or what it stands on, is lost or damaged.
        """
        settings, data = self.settings, self.settings.data_dir
        journal = Journal.open(disk, random_bytes=os.urandom, may_be_new=is_fresh(data))
        stack.callback(journal.close)
        not_fresh_any_more(data)
        # It ends before the journal's files are closed.
        journal_thread = stack.enter_context(JournalThread())
        if journal.voter_changes or stored_pointer(disk) is not None:
            # The log names the voters, though nothing of it is applied yet: different settings keep no nodes apart.
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
            voters=_founders(settings),
            journal=journal,
            transport=self.transport,
            pointer_disk=disk,
            listener=self.controller,
            fetcher=self.snapshot_fetch,
            settings=RaftSettings(
                heartbeat_ms=settings.timing.heartbeat_ms,
                election_timeout_min_ms=settings.timing.election_timeout_min_ms,
                election_timeout_max_ms=settings.timing.election_timeout_max_ms,
                disk_stall_ms=limits.DISK_STALL_MS,
            ),
            now_ms=monotonic_ms,
            rng=_RNG,
            run_in_thread=journal_thread.run,
            others_founded=self.transport.others_founded,
            only_joins=only_joins(data),
        )
        links = LinksFollowVoters(settings, member, self.transport)
        self.session_checks = SessionChecks(session_timeout_ms=settings.timing.session_timeout_ms)
        self.controller.attach(
            self.raft,
            [
                self.committed_log,
                self.keeper,
                self.fetches,
                *(self.kafka_log.listeners if settings.listen_kafka is not None else ()),
                self.feeds,
                self.since,
                self.watchers,
                links,
                self.registration,
                self.session_checks,
            ],
        )

    # --- life

    async def run(self, text_log: Path | None, turns: TimedSelector | None = None) -> None:
        """Serve until asked to stop.

        Raises:
            Fault: a part cannot go on.
        """
        try:
            await self.snapshot_fetch.hash_all()
            await self.transport.listen()
            async with open_doors(self._parts()):
                await self._serve(text_log, turns)
        finally:
            if self._session is not None:
                await self._session.close()
            # A thread finishes the snapshot that it writes before the lock goes: the next process may write the same one.
            self.history_process.shut_down()
            for threads in (
                self.files,
                self.bodies,
                self.reads,
                self.past_reads,
                self.downloads,
                self.logins,
            ):
                await threads.shut_down()
            await asyncio.get_running_loop().shutdown_default_executor()

    async def _serve(self, text_log: Path | None, turns: TimedSelector | None) -> None:
        """Run all parts until asked to stop, while the doors are open; raises as `run`."""
        if turns is not None:
            turns.begin()
            self.transport.serve_first = turns.serve_first
            self.controller.metrics.registry.register(TurnMetrics(turns))
        self._report_started(text_log)
        try:
            await self._run_tasks()
        except BaseExceptionGroup as failures:
            failure = most_telling(leaves(failures), least=_Stopped)
            if not isinstance(failure, _Stopped):
                raise failure from None
            await self.files.run(self.segments.sync)
            log.info("controller_stopped", extra={"node_id": self.settings.node_id})
        finally:
            # From here on no request begins to wait; all that wait, after a fault too, are sent to another controller.
            self.controller.resign()
            self.controller.stop_waiting()
            self.watchers.end()

    def _parts(self) -> Parts:
        return Parts(
            settings=self.settings,
            controller=self.controller,
            committed_log=self.committed_log,
            fetches=self.fetches,
            kafka_log=self.kafka_log,
            feeds=self.feeds,
            watchers=self.watchers,
            keeper=self.keeper,
            store=self.store,
            status=self.status,
            since=self.since,
            bodies=self.bodies,
            reads=self.reads,
            downloads=self.downloads,
            logins=self.logins,
            past=Past(self.committed_log, self.store, threads=self.past_reads, process=self.history_process),
            connections=ConnectionBound(),
            body_buffers=BodyBuffers(),
            buffers=self.answer_buffers,
            access=self.access,
            tls=self.tls,
            now_ms=_now_ms,
            on_fault=self._on_fault,
        )

    def _report_started(self, text_log: Path | None) -> None:
        """Write process.json and log that this controller runs."""
        settings = self.settings
        write_process_json(
            settings.data_dir,
            role="controller",
            node_id=settings.node_id,
            pid=os.getpid(),
            incarnation_id=self.incarnation_id,
            http=settings.http_url,
            raft=address_text(settings.raft_address),
            kafka=None if settings.kafka_address is None else address_text(settings.kafka_address),
            started_at_ms=unix_ms(),
            log=str(text_log or ""),
        )
        log.info("controller_started", extra={"node_id": settings.node_id, "http": settings.http_url})

    async def _run_tasks(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.transport.run())
            if self.tls is not None:
                group.create_task(self.tls.keep_reloading())
            group.create_task(self._take_part())
            group.create_task(self.fetches.polls.run())
            for _ in range(limits.COLD_FETCHES):
                group.create_task(self.fetches.cold.run())
            group.create_task(self.kafka_log.fetches.run())
            group.create_task(self.kafka_log.snapshots.run())
            group.create_task(self.keeper.run())
            group.create_task(self.keeper.count())
            group.create_task(self.keeper.scrub())
            group.create_task(self.repair.run())
            group.create_task(self.repair.scrub())
            group.create_task(self.session_checks.run(self.controller))
            group.create_task(keep_changing(self.controller))
            elections = self.settings.elections
            balance = Sweep(
                SweepKind.BALANCE, imbalance_percentage=elections.leader_imbalance_per_broker_percentage
            )
            for sweep, interval_ms in (
                (balance, 1_000 * elections.leader_imbalance_check_interval_seconds),
                (Sweep(SweepKind.UNCLEAN), elections.unclean_leader_election_interval_ms),
                (Expiry(), limits.UNDELETE_SWEEP_MS),
                (QuietMark(), limits.QUIET_CHECK_MS),
                (TokenSweep(), self.settings.delegation_tokens.expiry_check_interval_ms),
            ):
                if interval_ms:
                    group.create_task(keep_sweeping(self.controller, sweep, interval_ms=interval_ms))
            group.create_task(self.registration.run())
            group.create_task(self.state_check.run())
            group.create_task(self._collections.keep_walking())
            group.create_task(self.committed_log.keep_syncing(self.files.run))
            group.create_task(self._lock.keep_checking(self.files.run))
            group.create_task(self._raise_fault())
            group.create_task(self._wait_for_stop())

    async def _take_part(self) -> None:
        self.status.log_not_completed = await complete_log(
            self.segments,
            self.covered_offset,
            peers=self.peers.urls,
            session=self._http,
            run_in_thread=self.files.run,
        )
        await self.raft.run()

    def _compared_with(self) -> list[str]:
        """Return where this node asks for the state of the log: at other controllers, or without any at itself."""
        leader = self.controller.leader_hint
        return self.peers.urls(NO_NODE if leader is None else leader) or [self.settings.http_url]

    def _http(self) -> aiohttp.ClientSession:
        """Return the session for requests to other controllers; it is made on the loop at its first use."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False,
                headers=bearer_from(self.settings.token_file),
                connector=KeptConnections(self.tls),
            )
        return self._session

    async def _wait_for_stop(self) -> None:
        await self.stop_asked.wait()
        if self.controller.is_active and len(self.raft.status().voters) > 1:
            with suppress(Rejected, OutcomeUnknown, Unavailable):  # no successor is there
                await self.controller.transfer(None)
        self.controller.resign()
        # Meanwhile pending writes commit, or the successor's claim sends their clients there.
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


def _founders(settings: ControllerSettings) -> dict[NodeId, Uuid]:
    return {voter.id: voter.directory_id for voter in settings.voters}


def _now_ms() -> int:
    return int(monotonic_ms())
