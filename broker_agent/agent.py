"""Edge: a broker's process: performs what the session asks for, feeds back what came of it, and drives the lifecycle.

    session: whom to ask what --call--> controller --outcome--> frames -> cache -> image -> may it serve? -> lifecycle

One task follows the controllers: one request at a time, a parked fetch most of it. What somebody here wishes meanwhile
(to stop, to be fenced) interrupts the parked fetch, and the next one carries the wish.
"""

import asyncio
import contextlib
import logging
import os
import random
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar, assert_never

from broker_agent import http_api
from broker_agent.cache import Cache
from broker_agent.config import BrokerSettings
from broker_agent.controller_client import ControllerClient
from broker_agent.follower import Follower, read_frames
from broker_agent.lifecycle import Action, Event, State, step
from broker_agent.metrics import BrokerNumbers
from broker_agent.session import Call, Fetched, Outcome, Refused, Session, Unreachable, WaitUntil
from metadata_log import limits
from metadata_log.codec import DamagedFrame
from metadata_log.errors import (
    DamagedFile,
    DiskFailed,
    DuplicateBrokerRegistration,
    InvariantBroken,
    MetadataError,
    SnapshotNotFound,
    leaves,
    most_telling,
)
from metadata_log.ids import NO_NODE, random_uuid
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from metadata_log.node.addresses import read_url
from metadata_log.node.clock import monotonic_ms, unix_ms
from metadata_log.node.data_directory import (
    DirectoryLock,
    Meta,
    leaving_no_process_json,
    read_meta,
    write_process_json,
)
from metadata_log.node.recent_warnings import RecentWarnings, recent_warnings
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.wire.commands import Registered
from metadata_log.wire.fetch import Diverging, FetchKind, SnapshotOffer
from snapshots.download import download_snapshot

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

OnDelta = Callable[[MetadataImage, MetadataImage, Delta | None], None]
"""Called with the image before and after and what changed; None where the image was replaced whole. It runs between
two batches, so it is quick; what it raises ends the broker."""

SYNC_EVERY_S: Final = 1.0
"""The cache may lose its last second in a power cut; it is fetched again."""
FAREWELL_MAX_MS: Final = 500
LISTENER_NAME: Final = "PLAINTEXT"
"""Kafka's name of its default listener; security_protocol 0."""


def now_ms() -> int:
    """Return a clock that never steps and counts on while the machine sleeps: a session does not outlive it."""
    return int(monotonic_ms())


class BrokerAgent:
    """A broker: `async with BrokerAgent(settings, on_delta=...) as agent` registers it, follows the log and serves
    its HTTP endpoint until the block ends, which is a controlled shutdown. An exception out of the block, as an error
    of the agent itself or of `on_delta`, ends it at once; the latter cancels the block and is raised in its place, as it
    was raised. If the block raised something else meanwhile, that is the error's `__context__`. Of several errors of the
    agent a Fault is raised, else another of ours, the others as its notes; else all in one group.

    An agent is one incarnation of a broker, so it is entered once.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        on_delta: OnDelta | None = None,
        now_ms: Callable[[], int] = now_ms,
        rng: random.Random | None = None,
        recent: RecentWarnings | None = None,
    ) -> None:
        settings.validate()
        self.settings = settings
        self._on_delta = on_delta
        self._now_ms = now_ms
        self._rng = random.SystemRandom() if rng is None else rng
        self.recent = RecentWarnings() if recent is None else recent
        self.incarnation_id = random_uuid(self._rng)
        self.state = State.OFFLINE
        self.http_url = ""
        self.high_watermark = 0
        self.controller_id = NO_NODE
        self.calls_failed = 0
        self._troubles: set[tuple[str, str]] = set()
        self.last_trouble: str | None = None
        """Why the newest kind of call failed; None since a controller answered one."""
        self.frames_damaged = 0
        self.follower = Follower()
        self.cache = Cache(settings.data_dir, cluster_id=settings.cluster_id)
        self._meta: Meta | None = None
        self._session: Session | None = None
        self._client = ControllerClient()
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cache")
        self._stack = contextlib.AsyncExitStack()
        self._applied_at_ms = 0
        self._serving = False
        self._want_fence = False
        self._stop_deadline_ms: int | None = None
        self._stop_granted = False
        self._clean_epoch = -1
        """Of the run before, if that ended cleanly, until this one is registered: what it left is as it was till then."""
        self._exiting = False
        self._entered = False
        self._ended = asyncio.Event()
        self._deadlines_moved = asyncio.Event()
        self._cache_has_news = asyncio.Event()
        self._interruptible: asyncio.Timeout | None = None

    # --- what may be asked of it

    @property
    def image(self) -> MetadataImage:
        return self.follower.image

    @property
    def broker_epoch(self) -> int | None:
        """None while not registered."""
        return None if self._session is None else self._session.broker_epoch

    @property
    def session_left_ms(self) -> int:
        return 0 if self._session is None else self._session.left_ms(self._now_ms())

    def may_serve(self) -> bool:
        """Answer whether a client may be served at this very moment; ask before each answer to one."""
        self._reconcile()
        return self._serving

    def numbers(self) -> BrokerNumbers:
        image, follower = self.image, self.follower
        behind = image.end_offset < self.high_watermark
        return BrokerNumbers(
            state=self.state,
            serves=self._serving,
            image=image,
            high_watermark=self.high_watermark,
            broker_epoch=self.broker_epoch,
            session_left_ms=self.session_left_ms,
            lag_ms=max(unix_ms() - image.last_time_ms, 0) if behind else 0,
            applied_at_ms=self._applied_at_ms,
            records_fetched=follower.records_fetched,
            snapshots_fetched=follower.snapshots_fetched,
            load_errors=self.cache.damaged_count + self.frames_damaged,
            snapshots_failed=self.cache.snapshots_failed,
            warnings=tuple(self.cache.warnings.items()),
            calls_failed=self.calls_failed,
            logged_faults=self.recent.counts(),
        )

    def stop(self) -> None:
        """Begin the controlled shutdown, as SIGTERM does; `run` returns at its end."""
        self._step(Event.STOP_REQUESTED)
        if self.state is State.OFFLINE:
            self._exit()
        elif self._stop_deadline_ms is None:
            assert self._session is not None
            self._session.want_shut_down = True
            self._stop_deadline_ms = self._now_ms() + self.settings.shutdown_timeout_ms
            self._interrupt()

    def want_fence(self, *, wanted: bool) -> None:
        """Ask to be fenced, or not any more: a host that is not ready for clients says so."""
        self._want_fence = wanted
        if self._session is not None:
            self._session.want_fence = wanted
            self._interrupt()

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
            stack.enter_context(DirectoryLock(settings.data_dir))
            stack.callback(self._disk.shutdown)
            await stack.enter_async_context(self._client)
            self.http_url = await stack.enter_async_context(http_api.listening(self))
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            tasks.create_task(self._live())
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
                return  # the block's own exception goes on as it came
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
            image = await self._on_disk(self.cache.open)
            if not self._exiting:
                await self._run_from(image)
        finally:
            await self._on_disk(self.cache.close)
        if self._stop_granted and self.broker_epoch is not None:
            self._clean_epoch = self.broker_epoch
        if self._clean_epoch >= 0:
            await self._on_disk(partial(self.cache.write_clean_stop, self._clean_epoch))
        self._ended.set()

    async def _run_from(self, image: MetadataImage) -> None:
        """Be a broker from local start-up work to exit."""
        self._session = await self._new_session()
        self._replace_image(image)
        log.info(
            "cache_opened",
            extra={"end_offset": image.end_offset, "controller_epoch": image.controller_epoch},
        )
        self._step(Event.STARTED)
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self._keep_cache()), tasks.create_task(self._watch_deadlines())]
            await self._follow(self._session)
            await self._say_farewell(self._session)
            for task in beside:
                task.cancel()

    async def _new_session(self) -> Session:
        assert self._meta is not None
        self._clean_epoch = await self._on_disk(self.cache.take_clean_stop)
        host, port = self.settings.listen_http
        session = Session(
            self.settings,
            incarnation_id=self.incarnation_id,
            log_dirs=(self._meta.directory_id,),
            endpoints=(BrokerEndpoint(LISTENER_NAME, host, port or read_url(self.http_url)[1], 0),),
            previous_broker_epoch=self._clean_epoch,
            rng=self._rng,
        )
        session.want_fence = self._want_fence
        return session

    async def _on_disk(self, work: Callable[[], Answer]) -> Answer:
        """Do blocking work in the cache's one thread, so in order."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)

    # --- following

    async def _follow(self, session: Session) -> None:
        while not self._exiting:
            todo = session.next_step(self._now_ms(), self.follower.position)
            match todo:
                case WaitUntil():
                    wait_ms = max(todo.at_ms - self._now_ms(), 0)
                    await self._unless_interrupted(asyncio.sleep(wait_ms / 1000))
                case Call():
                    outcome = await self._unless_interrupted(self._client.perform(todo))
                    if outcome is not None:
                        await self._take(session, todo, outcome)
                case _:
                    assert_never(todo)
            self._reconcile()

    async def _take(self, session: Session, call: Call, outcome: Outcome) -> None:
        match outcome:
            case Registered():
                self._found_again(call)
                session.on_registered(outcome)
                self._clean_epoch = -1
                self.controller_id = outcome.controller_id
                log.info("broker_registered", extra={"broker_epoch": outcome.broker_epoch, "url": call.url})
            case Fetched():
                self._found_again(call)
                session.on_fetched(self._now_ms(), call, outcome)
                await self._take_answer(session, call, outcome)
            case Refused():
                self._tell_trouble(call, outcome.error.error, outcome.error.message)
                session.on_refused(self._now_ms(), outcome)
            case Unreachable():
                self._gave_up(session, call, outcome.reason)
            case _:
                assert_never(outcome)

    async def _take_answer(self, session: Session, call: Call, fetched: Fetched) -> None:
        answer = fetched.answer
        self.high_watermark = answer.high_watermark
        self.controller_id = answer.controller_id
        if answer.should_shut_down and self.state is State.STOPPING:
            # Before the frames: the last of them may be the one that fences us, as it should be now.
            self._stop_granted = True
            self._step(Event.STOP_GRANTED)
        match answer.kind:
            case FetchKind.IMAGE | FetchKind.DIVERGING if self._exiting:
                pass  # the next start sees to it
            case FetchKind.DELTA:
                self._take_frames(session, call, fetched.frames)
            case FetchKind.IMAGE if answer.snapshot is not None:
                await self._install(session, call, answer.snapshot)
            case FetchKind.DIVERGING if answer.diverging is not None:
                await self._rebuild(answer.diverging)
            case FetchKind.IMAGE | FetchKind.DIVERGING:
                self._gave_up(session, call, f"{answer.kind.value} without saying of what")
            case _:
                assert_never(answer.kind)

    def _take_frames(self, session: Session, call: Call, frames: bytes) -> None:
        try:
            received = read_frames(frames)
        except DamagedFrame as error:
            self.frames_damaged += 1
            log.warning("frames_damaged", extra={"url": call.url, "reason": error.reason})
            self._gave_up(session, call, f"frames came damaged: {error.reason}")
            return
        for frame, header, batch in received:
            self.follower.check_next(batch)
            self.cache.append(frame, header)
            before = self.image
            after, delta = self.follower.take(batch)
            self._applied_at_ms = unix_ms()
            self.cache.applied(header, after)
            if self._on_delta is not None:
                self._on_delta(before, after, delta)
        if received:
            self._cache_has_news.set()

    def _gave_up(self, session: Session, call: Call, reason: str) -> None:
        self._tell_trouble(call, "UNREACHABLE", reason)
        session.on_unreachable(self._now_ms())

    def _tell_trouble(self, call: Call, error: str, reason: str) -> None:
        """Count a call in vain, and log the first of its kind since a controller last answered."""
        self.calls_failed += 1
        if (call.url, error) not in self._troubles:
            self._troubles.add((call.url, error))
            self.last_trouble = f"{call.url}: {reason}"
            # A controller that is away is looked for; a broker of the same id is for a human to find.
            level = logging.WARNING if error == DuplicateBrokerRegistration.error else logging.INFO
            facts = {"url": call.url, "error": error, "reason": reason}
            log.log(level, "controller_call_failed", extra=facts)

    def _found_again(self, call: Call) -> None:
        if self._troubles:
            self._troubles.clear()
            self.last_trouble = None
            log.info("controller_found", extra={"url": call.url})

    # --- where the history breaks off

    async def _install(self, session: Session, call: Call, offer: SnapshotOffer) -> None:
        """Fetch the snapshot that a controller named and go on behind it."""
        log.info("snapshot_offered", extra={"snapshot_id": offer.id, "bytes": offer.bytes})
        if offer.end_offset <= self.image.end_offset:
            self._gave_up(session, call, f"its snapshot at offset {offer.end_offset} leads nowhere new")
            return
        try:
            others = [url for url in self.settings.controllers if url != call.url]
            downloaded = await self._unless_interrupted(
                download_snapshot(
                    self._client.http, [call.url, *others], offer.id, self.cache.store.directory
                )
            )
            if downloaded is None:
                return
            image = await self._on_disk(lambda: self.cache.install(offer.id))
        except (DamagedFile, SnapshotNotFound, ValueError) as error:
            if self.cache.warnings.get("SNAPSHOT_NOT_FETCHED") != str(
                error
            ):  # it is tried again until it comes
                log.warning("snapshot_not_fetched", extra={"snapshot_id": offer.id, "reason": str(error)})
            self.cache.warnings["SNAPSHOT_NOT_FETCHED"] = str(error)
            self._gave_up(session, call, str(error))
            return
        self.cache.warnings.pop("SNAPSHOT_NOT_FETCHED", None)
        self.follower.snapshots_fetched += 1
        self._replace_image(image)
        log.info("snapshot_installed", extra={"snapshot_id": offer.id, "end_offset": image.end_offset})

    async def _rebuild(self, diverging: Diverging) -> None:
        """Give up what the controllers do not know: stop serving at once, then begin at what they may know."""
        position = self.follower.position
        log.error(
            "history_diverged",
            extra={
                "fetch_offset": position.fetch_offset,
                "last_epoch": position.last_epoch,
                "common_offset": diverging.offset,
                "common_epoch": diverging.controller_epoch,
            },
        )
        if position.fetch_offset == 0:
            raise InvariantBroken("a controller says that an empty history diverges from its own")
        self._replace_image(EMPTY)
        self._reconcile()
        image = await self._on_disk(
            lambda: self.cache.rebuild(at_or_below=diverging.offset, strictly_below=position.fetch_offset)
        )
        self._replace_image(image)

    def _replace_image(self, image: MetadataImage) -> None:
        before = self.image
        self.follower.replace(image)
        if self._on_delta is not None and image is not before:
            self._on_delta(before, image, None)

    # --- the cache, beside

    async def _keep_cache(self) -> None:
        while True:
            await self._cache_has_news.wait()
            self._cache_has_news.clear()
            await self._on_disk(self.cache.sync)
            try:
                if await self._on_disk(self.cache.write_due_snapshot):
                    self.cache.warnings.pop("SNAPSHOT_FAILED", None)
            except DiskFailed as error:
                self.cache.snapshots_failed += 1
                self.cache.warnings["SNAPSHOT_FAILED"] = error.message
                log.warning("snapshot_failed", extra={"reason": error.message})
            await asyncio.sleep(SYNC_EVERY_S)

    # --- interrupting

    async def _unless_interrupted(self, work: Awaitable[Answer]) -> Answer | None:
        """Return what `work` returns, or None if `_interrupt` came first."""
        try:
            async with asyncio.timeout(None) as scope:
                self._interruptible = scope
                return await work
        except TimeoutError:
            if not scope.expired():
                raise
            return None
        finally:
            self._interruptible = None

    def _interrupt(self) -> None:
        if self._interruptible is not None and not self._interruptible.expired():
            self._interruptible.reschedule(asyncio.get_running_loop().time())

    # --- the lifecycle

    def _step(self, event: Event) -> None:
        before = self.state
        self.state, actions = step(before, event)
        if self.state is not before:
            log.info(
                "broker_state_changed",
                extra={"before": before.value, "after": self.state.value, "cause": event.name},
            )
        self._deadlines_moved.set()
        for action in actions:
            match action:
                case Action.SERVE_CLIENTS:
                    self._serving = True
                case Action.REFUSE_CLIENTS:
                    self._serving = False
                case Action.EXIT:
                    self._exit()
                case _:
                    assert_never(action)

    def _exit(self) -> None:
        self._exiting = True
        self._interrupt()

    def _reconcile(self) -> None:
        """Bring the state in line with what the session and the clock allow now."""
        session, now_ms = self._session, self._now_ms()
        if session is None or self.state is State.OFFLINE:
            return
        may_serve = session.may_serve(now_ms, self.image)
        if self.state is State.FENCED:
            if may_serve:
                self._step(Event.MAY_SERVE)
        elif not may_serve:
            self._step(Event.MUST_NOT_SERVE)
            if not session.is_alive(now_ms):
                self._interrupt()  # whatever is parked is of no use any more: ask anew
        elif self._stop_deadline_ms is not None and now_ms >= self._stop_deadline_ms:
            self._step(Event.STOP_OVERDUE)

    async def _watch_deadlines(self) -> None:
        """Notice a deadline that nobody asks about; whoever serves compares clocks for himself."""
        assert self._session is not None
        while not self._exiting:
            deadlines = [self._stop_deadline_ms]
            if self._serving:
                deadlines.append(self._session.deadline_ms)
            left_s = [(at_ms - self._now_ms()) / 1000 for at_ms in deadlines if at_ms is not None]
            self._deadlines_moved.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min(left_s), 0) if left_s else None):
                    await self._deadlines_moved.wait()
            self._reconcile()

    async def _say_farewell(self, session: Session) -> None:
        """Let a session that no leadership hangs on end with us, so that the next start need not wait for its end."""
        if self._stop_granted or self._stop_deadline_ms is not None:
            return
        call = session.farewell(self._now_ms(), self.follower.position)
        if call is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_MAX_MS / 1000):
                outcome = await self._client.perform(call)
            self._stop_granted = isinstance(outcome, Fetched) and outcome.answer.should_shut_down


async def run_broker(settings: BrokerSettings, *, text_log: Path | None = None) -> None:
    """Be a broker until SIGINT or SIGTERM; `text_log` is where its log is written, for process.json to tell.

    Raises:
        Rejected: the controllers will not have this broker; the message says why.
        Fault: its message says what broke, where, and what to do.
    """
    limits.check_relations()
    with recent_warnings() as recent:
        agent = BrokerAgent(settings, recent=recent)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, agent.stop)
        async with agent:
            with leaving_no_process_json(settings.data_dir):
                write_process_json(
                    settings.data_dir,
                    role="broker",
                    node_id=settings.broker_id,
                    pid=os.getpid(),
                    incarnation_id=agent.incarnation_id,
                    http=agent.http_url,
                    raft=None,
                    started_at_ms=unix_ms(),
                    log=str(text_log or ""),
                )
                log.info("broker_started", extra={"broker_id": settings.broker_id, "http": agent.http_url})
                await agent.run()
        log.info("broker_stopped", extra={"broker_id": settings.broker_id})


def _foremost(failures: list[BaseException]) -> BaseException:
    """Return the most telling error with the others as notes; all of them in a group if none was raised on purpose."""
    failure = most_telling(failures)
    if len(failures) > 1 and not isinstance(failure, MetadataError):
        return BaseExceptionGroup("several tasks of a broker failed", failures)
    for other in failures:
        if other is not failure:
            failure.add_note(f"at the same time: {other!r}")
    return failure
