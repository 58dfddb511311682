"""Edge: a broker: starts and ends its parts, and decides from the session and the clock whether clients may be served.

fetch_loop: session, image --changes--> may it serve? --event--> lifecycle --action--> serve, refuse, exit
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from broker_agent import http_api
from broker_agent.cache import Cache
from broker_agent.cache_thread import CacheThread
from broker_agent.config import BrokerSettings
from broker_agent.controller_client import ControllerClient
from broker_agent.fetch_loop import FetchLoop, OnDelta
from broker_agent.host import Host
from broker_agent.host_replicas import HostReplicas
from broker_agent.kafka_state import KafkaState, kafka_state
from broker_agent.lifecycle import SERVING, Event, State, due, step
from broker_agent.metrics import BrokerNumbers
from broker_agent.replicas import LocalReplicas
from broker_agent.session import Fetched, Outcome, Refused, Session, Unreachable
from metadata_log.errors import BrokerNotAvailable, MetadataError, leaves, most_telling
from metadata_log.ids import BrokerId, Uuid, random_uuid
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.node.addresses import read_url
from metadata_log.node.audit_log import AuditLog
from metadata_log.node.clock import monotonic_ms, unix_ms
from metadata_log.node.disk.data_directory import DirectoryLock, Meta, read_meta
from metadata_log.node.identity.access import Access
from metadata_log.node.identity.tls import Tls, dates_of_node, revoked_by_node
from metadata_log.node.recent_warnings import RecentWarnings
from metadata_log.records.brokers import FeatureRange
from metadata_log.wire.commands import (
    AlteredPartition,
    AlterPartition,
    AssignReplicasToDirs,
    Registered,
    ReplicaDirectory,
    ReplicaPlaced,
    ReportedIsr,
)
from metadata_log.wire.fetch import FetchKind
from snapshots.state_check import StateCheck, asking

log = logging.getLogger(__name__)

FAREWELL_MAX_MS: Final = 500
"""A broker that ends waits this long for the answer to its last fetch."""
REPORT_SILENCE_MAX_MS: Final = 5_000
"""Of a controller to which ISRs were reported: what waits longer is reported again."""


def now_ms() -> int:
    """Return a clock that never steps and goes on while the machine sleeps, so that a session ends in time there, too."""
    return int(monotonic_ms())


def _access(settings: BrokerSettings) -> Access:
    audit = AuditLog(settings.audit, f"Broker:{settings.broker_id}")
    return Access(settings.principals, cluster_id=settings.cluster_id, audit=audit)


def _state_check(agent: "BrokerAgent") -> StateCheck:
    """Return what compares a broker's state with the log of a controller, the active one first."""

    def urls() -> list[str]:
        return list(dict.fromkeys((agent.controller_url, *agent.settings.controllers)))

    return StateCheck(lambda: agent.image, asking(lambda: agent._client.http, urls))  # noqa: SLF001 (its own)


class BrokerAgent:
    """A broker: `async with BrokerAgent(settings, on_delta=...) as agent`.

    The block registers the broker, follows the log and serves the HTTP endpoint. Its end is a controlled shutdown.
    An exception out of the block ends the broker at once, and so does an error of the agent or of `on_delta`. Such an
    error cancels the block and is raised in its place, unchanged; an exception that the block raised meanwhile is its
    `__context__`. If the agent has several errors, a Fault is raised first, then any other MetadataError, with the
    others as its notes. If none is a MetadataError, all are raised in one group.

    `host` is the broker's data plane. It gets instructions which replicas to start, lead, follow, stop and delete. Until it
    got those for all replicas that the log assigns to it, the broker asks to stay fenced. `on_delta` sees every change of
    the image. `log_dirs` are the host's log directories (by default one, of the agent's own data directory), `features`
    the ranges of levels that it supports otherwise than this library, `listener` the name of the endpoint at which hosts
    reach each other.

    An agent is one incarnation of a broker, so it can be entered only once.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        host: Host | None = None,
        on_delta: OnDelta | None = None,
        log_dirs: Sequence[Uuid] = (),
        features: Sequence[FeatureRange] = (),
        listener: str | None = None,
        now_ms: Callable[[], int] = now_ms,
        rng: random.Random | None = None,
        recent: RecentWarnings | None = None,
    ) -> None:
        settings.validate()
        self.settings = settings
        self._now_ms = now_ms
        self._rng = random.SystemRandom() if rng is None else rng
        self.recent = RecentWarnings() if recent is None else recent
        self.incarnation_id = random_uuid(self._rng)
        self.state = State.OFFLINE
        self.http_url = ""
        self.cache = Cache(settings.data_dir, cluster_id=settings.cluster_id)
        self._cache_thread = CacheThread(self.cache)
        self.tls = None if settings.tls is None else Tls(settings.tls, cluster_id=settings.cluster_id)
        self.access = _access(settings)
        self._client = ControllerClient(settings.token_file, self.tls)
        self.fetch_loop = FetchLoop(
            controllers=settings.controllers,
            client=self._client,
            cache=self.cache,
            cache_thread=self._cache_thread,
            now_ms=now_ms,
            on_outcome=self._on_outcome,
            on_progress=self._on_progress,
            on_delta=self._on_delta,
        )
        self.state_check = _state_check(self)
        self._react = on_delta
        self._log_dirs, self._features = tuple(log_dirs), tuple(features)
        self.replicas = HostReplicas(
            host,
            LocalReplicas(settings.broker_id, listener=listener),
            image=lambda: self.image,
            on_ready=self._tell_controllers,
        )
        self._offline_log_dirs: tuple[Uuid, ...] = ()
        self._cordoned_log_dirs: tuple[Uuid, ...] | None = None
        self._meta: Meta | None = None
        self._session: Session | None = None
        self._stack = contextlib.AsyncExitStack()
        self._was_online = False
        self._want_fence = self._stop_granted = False
        self._stop_deadline_ms: int | None = None
        self._clean_epoch = -1
        """Broker epoch of the previous run if that stopped cleanly, -1 once this run is registered.

        A run that ends before it is registered leaves the previous clean stop as it was."""
        self._entered = False
        self._ended = asyncio.Event()
        self._deadlines_moved = asyncio.Event()

    # --- for hosts, the endpoint and tests

    @property
    def image(self) -> MetadataImage:
        return self.fetch_loop.follower.image

    @property
    def controller_url(self) -> str:
        """The controller that this broker asks now: the active one, as far as it knows."""
        return self.settings.controllers[0] if self._session is None else self._session.controller_url

    @property
    def broker_epoch(self) -> int | None:
        """None while not registered."""
        return None if self._session is None else self._session.broker_epoch

    @property
    def session_left_ms(self) -> int:
        return 0 if self._session is None else self._session.left_ms(self._now_ms())

    @property
    def kafka_state(self) -> KafkaState:
        registered = self.image.brokers.get(BrokerId(self.settings.broker_id))
        return kafka_state(
            self.state,
            is_ending=self.fetch_loop.ending,
            is_caught_up=registered is not None and registered.broker_epoch == self.broker_epoch,
            was_online=self._was_online,
        )

    def may_serve(self) -> bool:
        """Answer whether a client may be served now; ask this before each answer to a client."""
        self._reconcile()
        return self.state in SERVING

    def numbers(self) -> BrokerNumbers:
        image, fetch_loop = self.image, self.fetch_loop
        behind = image.end_offset < fetch_loop.high_watermark
        return BrokerNumbers(
            state=self.state,
            kafka_state=self.kafka_state,
            serves=self.state in SERVING,
            image=image,
            high_watermark=fetch_loop.high_watermark,
            broker_epoch=self.broker_epoch,
            session_left_ms=self.session_left_ms,
            lag_ms=max(unix_ms() - image.last_time_ms, 0) if behind else 0,
            applied_at_ms=fetch_loop.applied_at_ms,
            records_fetched=fetch_loop.follower.records_fetched,
            snapshots_fetched=fetch_loop.follower.snapshots_fetched,
            load_errors=self.cache.damaged_count + fetch_loop.frames_damaged,
            snapshots_failed=self.cache.snapshots_failed,
            warnings=(
                *self.cache.warnings.items(),
                *self.replicas.warnings(),
                *(() if self.tls is None else self.tls.reasons()),
                *self.access.reasons(),
                *self.state_check.reasons(),
            ),
            calls_failed=fetch_loop.failed_calls.count,
            certificates=dates_of_node(self.tls),
            revoked=revoked_by_node(self.tls),
            access=self.access,
            controller_id=fetch_loop.controller_id,
            level_ms_ago=fetch_loop.level_ms_ago(),
            batches=fetch_loop.batches,
            logged_faults=self.recent.counts(),
        )

    def stop(self) -> None:
        """Begin the controlled shutdown, as SIGTERM does; `run` returns at its end."""
        self._step(Event.STOP_REQUESTED)
        if self.state is State.OFFLINE:
            self.fetch_loop.end()
        elif self._stop_deadline_ms is None:
            assert self._session is not None
            self._session.want_shut_down = True
            self._stop_deadline_ms = self._now_ms() + self.settings.shutdown_timeout_ms
            self.fetch_loop.interrupt()

    def want_fence(self, *, wanted: bool) -> None:
        """Ask the controllers to fence or unfence this broker; a host that is not ready for clients asks to be fenced."""
        self._want_fence = wanted
        self._tell_controllers()

    def fail_directories(self, failed: Iterable[Uuid]) -> None:
        """Report log directories that failed: the replicas in them leave their ISRs, and lead no longer.

        A directory that failed stays so until the process ends. A broker that lost its last one should end.
        """
        self._offline_log_dirs = tuple(dict.fromkeys((*self._offline_log_dirs, *failed)))
        self._tell_controllers()

    @property
    def log_dirs(self) -> tuple[Uuid, ...]:
        """The host's log directories; known once the block is entered."""
        assert self._meta is not None, "the block is not entered"
        return self._log_dirs or (self._meta.directory_id,)

    def cordon_directories(self, cordoned: Iterable[Uuid]) -> None:
        """Report the log directories that no new replica may be placed in, all of them. Source: KIP-1066."""
        self._cordoned_log_dirs = tuple(sorted(set(cordoned)))
        self._tell_controllers()

    def _tell_controllers(self) -> None:
        """Send what the host wishes and reports with the next poll, and send that poll now."""
        if self._session is not None:
            self._set_wishes(self._session)
            self.fetch_loop.interrupt()

    def _set_wishes(self, session: Session) -> None:
        session.want_fence = self._want_fence or not self.replicas.is_ready
        session.offline_log_dirs = self._offline_log_dirs
        session.cordoned_log_dirs = self._cordoned_log_dirs

    async def alter_partitions(self, isrs: Sequence[ReportedIsr]) -> tuple[AlteredPartition, ...]:
        """Report ISRs of partitions that this broker leads, ISR_CHANGES_MAX at most, and return what became of each.

        Raises:
            BrokerNotAvailable: no controller answered, or this broker is not registered now; ask again shortly.
            NotController, StaleBrokerEpoch and what else a controller refuses the whole report with.
        """
        url, broker_epoch = self._registered_at()
        report = AlterPartition(
            broker_id=self.settings.broker_id, broker_epoch=broker_epoch, partitions=tuple(isrs)
        )
        return _answer(
            url, await self._client.alter_partitions(url, report, silence_max_ms=REPORT_SILENCE_MAX_MS)
        ).partitions

    async def place_replicas(self, replicas: Sequence[ReplicaDirectory]) -> tuple[ReplicaPlaced, ...]:
        """Report the directories of replicas on this broker, ISR_CHANGES_MAX at most, and return what became of each.

        Raises:
            BrokerNotAvailable, NotController and others: as `alter_partitions`.
        """
        url, broker_epoch = self._registered_at()
        report = AssignReplicasToDirs(
            broker_id=self.settings.broker_id, broker_epoch=broker_epoch, replicas=tuple(replicas)
        )
        return _answer(
            url, await self._client.place_replicas(url, report, silence_max_ms=REPORT_SILENCE_MAX_MS)
        ).replicas

    def _registered_at(self) -> tuple[str, int]:
        """Return the controller to report to, and the epoch to report under."""
        session = self._session
        if session is None or session.broker_epoch is None:
            raise BrokerNotAvailable("this broker is not registered now")
        return session.controller_url, session.broker_epoch

    async def run(self) -> None:
        """Wait until the broker is Offline for good."""
        await self._ended.wait()

    # --- from start to exit

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError(
                "this BrokerAgent was entered before, with or without success: make another for each `async with`"
            )
        self._entered = True
        settings = self.settings
        async with contextlib.AsyncExitStack() as stack:
            self._meta = read_meta(settings.data_dir, "broker", settings.broker_id, settings.cluster_id)
            self._lock = stack.enter_context(DirectoryLock(settings.data_dir))
            stack.callback(self._cache_thread.shut_down)
            await stack.enter_async_context(self._client)
            self.http_url = await stack.enter_async_context(http_api.listening(self))
            stack.enter_context(self.access.audit)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            living = tasks.create_task(self._live())
            if self.tls is not None:
                reloading = tasks.create_task(self.tls.keep_reloading())
                living.add_done_callback(lambda _: reloading.cancel())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and not self._ended.is_set():
            self.stop()
        try:
            await self._stack.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            failures = [leaf for leaf in leaves(group, whole=error) if leaf is not error]
            if not failures:
                return  # the block's own exception propagates unchanged
            failure = _foremost(failures)
        else:
            return
        was_cancelled = kind is None or issubclass(kind, asyncio.CancelledError)
        context = failure.__context__ if was_cancelled else error
        try:
            raise failure
        finally:
            failure.__context__ = context  # `raise` would leave the block's cancellation there

    async def _live(self) -> None:
        try:
            image = await self._cache_thread.run(self.cache.open)
            if not self.fetch_loop.ending:
                await self._run_from(image)
        finally:
            await self._cache_thread.run(self.cache.close)
        if self._stop_granted and self.broker_epoch is not None:
            self._clean_epoch = self.broker_epoch
        if self._clean_epoch >= 0:
            await self._cache_thread.run(partial(self.cache.write_clean_stop, self._clean_epoch))
        self._ended.set()

    async def _run_from(self, image: MetadataImage) -> None:
        """Run from local start-up work to exit."""
        self._clean_epoch = await self._cache_thread.run(self.cache.take_clean_stop)
        self._session = session = Session(
            self.settings,
            incarnation_id=self.incarnation_id,
            log_dirs=self.log_dirs,
            endpoints=self.settings.endpoints(read_url(self.http_url)[1]),
            features=self._features,
            previous_broker_epoch=self._clean_epoch,
            rng=self._rng,
        )
        self._set_wishes(session)
        self.fetch_loop.replace_image(image)
        log.info(
            "cache_opened",
            extra={"end_offset": image.end_offset, "controller_epoch": image.controller_epoch},
        )
        self._step(Event.STARTED)
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(self._cache_thread.keep_durable()),
                tasks.create_task(self._lock.keep_checking(self._cache_thread.run)),
                tasks.create_task(self._watch_deadlines()),
                tasks.create_task(self.replicas.keep_starting()),
                tasks.create_task(self.state_check.run()),
            ]
            await self.fetch_loop.run(session)
            await self._say_farewell(session)
            for task in background:
                task.cancel()

    # --- the host's replicas

    def _on_delta(self, before: MetadataImage, after: MetadataImage, delta: Delta | None) -> None:
        self.replicas.on_delta(before, after, delta)
        if self._react is not None:
            self._react(before, after, delta)

    def _on_progress(self) -> None:
        self._reconcile()
        self.replicas.on_progress(self.broker_epoch)

    # --- the lifecycle

    def _step(self, event: Event) -> None:
        before, self.state = self.state, step(self.state, event)
        self._deadlines_moved.set()
        if self.state is before:
            return
        log.info(
            "broker_state_changed",
            extra={"before": before.value, "after": self.state.value, "cause": event.name},
        )
        self._was_online = self._was_online or self.state is State.ONLINE
        if self.state is State.OFFLINE:
            self.fetch_loop.end()

    def _on_outcome(self, outcome: Outcome) -> None:
        match outcome:
            case Registered():
                self._clean_epoch = -1
            case Fetched():
                if outcome.answer.kind is FetchKind.DELTA:
                    self.replicas.answered(outcome.answer.high_watermark)
                if outcome.answer.should_shut_down and self.state is State.STOPPING:
                    self._stop_granted = True
                    self._step(Event.STOP_GRANTED)
            case _:
                pass

    def _reconcile(self) -> None:
        """Set the state to what the session and the clock allow now."""
        session, now_ms = self._session, self._now_ms()
        if session is None or self.state is State.OFFLINE:
            return
        event = due(
            self.state,
            may_serve=session.may_serve(now_ms, self.image),
            is_overdue=self._stop_deadline_ms is not None and now_ms >= self._stop_deadline_ms,
        )
        if event is not None:
            self._step(event)
        if event is Event.MUST_NOT_SERVE and not session.is_alive(now_ms):
            self.fetch_loop.interrupt()  # the parked fetch can renew nothing any more: send another

    async def _watch_deadlines(self) -> None:
        """Notice deadlines that pass without a question; each answer to a client compares clocks for itself."""
        assert self._session is not None
        while not self.fetch_loop.ending:
            deadlines = [self._stop_deadline_ms]
            if self.state in SERVING:
                deadlines.append(self._session.deadline_ms)
            left_s = [(at_ms - self._now_ms()) / 1000 for at_ms in deadlines if at_ms is not None]
            self._deadlines_moved.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min(left_s), 0) if left_s else None):
                    await self._deadlines_moved.wait()
            self._reconcile()

    async def _say_farewell(self, session: Session) -> None:
        """End the session of a broker that leads nothing, so that its next start need not wait for the session timeout."""
        if self._stop_granted or self._stop_deadline_ms is not None:
            return
        call = session.farewell(self._now_ms(), self.fetch_loop.follower.position)
        if call is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_MAX_MS / 1000):
                outcome = await self._client.perform(call)
            self._stop_granted = isinstance(outcome, Fetched) and outcome.answer.should_shut_down


Answer = TypeVar("Answer")


def _answer(url: str, answered: Answer | Refused | Unreachable) -> Answer:
    """Return the answer to a report, or raise what came instead."""
    match answered:
        case Refused():
            raise answered.error
        case Unreachable():
            raise BrokerNotAvailable(f"{url} does not answer: {answered.reason}")
        case _:
            return answered


def _foremost(failures: list[BaseException]) -> BaseException:
    """Return the error to raise, with the others as its notes; a group of all if none of several is a MetadataError."""
    failure = most_telling(failures)
    if len(failures) > 1 and not isinstance(failure, MetadataError):
        return BaseExceptionGroup("several tasks of a broker failed", failures)
    for other in failures:
        if other is not failure:
            failure.add_note(f"at the same time: {other!r}")
    return failure
