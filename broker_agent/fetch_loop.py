"""Edge: follows the controllers: performs the calls that the session asks for, and applies what the answers bring.

    session: which call --> controller --outcome--> frames -> cache -> image

One call is under way at a time; most of the time it is a parked fetch. `interrupt` ends a parked fetch or a pause at once,
so that the next call carries what has changed: a wish to be fenced, or to shut down.
Tests: tests/unit/broker_agent/test_agent.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, assert_never

from broker_agent.cache import Cache
from broker_agent.cache_thread import CacheThread
from broker_agent.controller_client import ControllerClient
from broker_agent.failed_calls import FailedCalls
from broker_agent.follower import Follower, reading_frames
from broker_agent.metrics import AppliedBatches
from broker_agent.session import Call, Fetched, Outcome, Refused, Session, Unreachable, WaitUntil
from metadata_log.codec import DamagedFrame
from metadata_log.errors import DamagedFile, InvariantBroken, SnapshotNotFound
from metadata_log.ids import NO_NODE
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from metadata_log.node.clock import unix_ms
from metadata_log.node.pace import Pace
from metadata_log.wire.commands import Registered
from metadata_log.wire.fetch import Diverging, FetchKind, SnapshotOffer
from snapshots.download import download_snapshot

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

OnDelta = Callable[[MetadataImage, MetadataImage, Delta | None], None]
"""Called with the image before, the image after, and what changed; None if the whole image was replaced. It runs between
two batches, so it must be quick. An exception out of it ends the broker."""


class FetchLoop:
    """Owns the image of a broker and what is known of the controllers.

    `on_outcome` is called with each answer before its frames are applied, `on_progress` after each step and whenever the
    image becomes older: whether the broker may serve can have changed.
    """

    def __init__(
        self,
        *,
        controllers: Sequence[str],
        client: ControllerClient,
        cache: Cache,
        cache_thread: CacheThread,
        now_ms: Callable[[], int],
        on_outcome: Callable[[Outcome], None],
        on_progress: Callable[[], None],
        on_delta: OnDelta | None,
    ) -> None:
        self._controllers = controllers
        self._client = client
        self._cache = cache
        self._cache_thread = cache_thread
        self._now_ms = now_ms
        self._on_outcome = on_outcome
        self._on_progress = on_progress
        self._on_delta = on_delta
        self.follower = Follower()
        self.failed_calls = FailedCalls()
        self.high_watermark = 0
        self.controller_id = NO_NODE
        self.applied_at_ms = 0
        """When the newest record was applied here; 0 if none was since the start."""
        self.frames_damaged = 0
        self.batches = AppliedBatches()
        self._level_at_ms: int | None = None
        """When an answer came after which nothing was left to apply; None before the first."""
        self.ending = False
        self._interruptible: asyncio.Timeout | None = None

    async def run(self, session: Session) -> None:
        """Perform what the session asks for until `end`."""
        while not self.ending:
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
            self._on_progress()

    def level_ms_ago(self) -> int:
        """Return the time since this broker had all that its controller had, in ms; -1 before the first such time."""
        return -1 if self._level_at_ms is None else self._now_ms() - self._level_at_ms

    def end(self) -> None:
        """Let `run` return, without waiting for the answer to a call under way."""
        self.ending = True
        self.interrupt()

    def interrupt(self) -> None:
        """Give up the call or the pause under way, and ask the session again."""
        if self._interruptible is not None and not self._interruptible.expired():
            self._interruptible.reschedule(asyncio.get_running_loop().time())

    async def _unless_interrupted(self, work: Awaitable[Answer]) -> Answer | None:
        """Return what `work` returns, or None if `interrupt` came first."""
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

    def replace_image(self, image: MetadataImage) -> None:
        """Go on from another image, and report it to `on_delta`."""
        before = self.follower.image
        self.follower.replace(image)
        if self._on_delta is not None and image is not before:
            self._on_delta(before, image, None)

    # --- outcomes

    async def _take(self, session: Session, call: Call, outcome: Outcome) -> None:
        match outcome:
            case Registered():
                self.failed_calls.answered(call)
                session.on_registered(outcome)
                self._on_outcome(outcome)
                self.controller_id = outcome.controller_id
                log.info("broker_registered", extra={"broker_epoch": outcome.broker_epoch, "url": call.url})
            case Fetched():
                self.failed_calls.answered(call)
                arrived_ms = self._now_ms()
                session.on_fetched(self._now_ms(), call, outcome)
                self.high_watermark = outcome.answer.high_watermark
                self.controller_id = outcome.answer.controller_id
                # Before the frames: the last of them may be the one that fences this broker once its stop is granted.
                self._on_outcome(outcome)
                await self._take_answer(session, call, outcome)
                if self.follower.image.end_offset >= self.high_watermark:
                    self._level_at_ms = arrived_ms
            case Refused():
                self.failed_calls.failed(call, outcome.error.error, outcome.error.message)
                session.on_refused(self._now_ms(), outcome)
            case Unreachable():
                self._gave_up(session, call, outcome.reason)
            case _:
                assert_never(outcome)

    async def _take_answer(self, session: Session, call: Call, fetched: Fetched) -> None:
        answer = fetched.answer
        match answer.kind:
            case FetchKind.IMAGE | FetchKind.DIVERGING if self.ending:
                pass  # the next start repairs the history
            case FetchKind.DELTA:
                await self._take_frames(session, call, fetched.frames)
            case FetchKind.IMAGE if answer.snapshot is not None:
                await self._install(session, call, answer.snapshot)
            case FetchKind.DIVERGING if answer.diverging is not None:
                await self._rebuild(answer.diverging)
            case FetchKind.IMAGE | FetchKind.DIVERGING:
                self._gave_up(session, call, f"{answer.kind.value} without saying of what")
            case _:
                assert_never(answer.kind)

    async def _take_frames(self, session: Session, call: Call, frames: bytes) -> None:
        """Apply the frames of an answer, in slices: a batch counts once all of it is applied."""
        pace = Pace(self._now_ms, pause_ms=0)
        try:
            received = reading_frames(frames)
        except DamagedFrame as error:
            self.frames_damaged += 1
            log.warning("frames_damaged", extra={"url": call.url, "reason": error.reason})
            self._gave_up(session, call, f"frames came damaged: {error.reason}")
            return
        for reading in received:
            began_ms = self._now_ms()
            frame, header, batch = await pace.made_by(reading)
            applied = await pace.made_by(self.follower.making(batch))
            before, (after, delta) = self.follower.image, applied
            self._cache.append(frame, header)
            self.follower.take(batch, applied)
            self.applied_at_ms = unix_ms()
            self._cache.applied(header, after)
            if self._on_delta is not None:
                self._on_delta(before, after, delta)
            self._cache_thread.frames_appended()
            self.batches.note(records=len(batch.records), seconds=(self._now_ms() - began_ms) / 1000)
            await pace.rest_if_due()

    def _gave_up(self, session: Session, call: Call, reason: str) -> None:
        self.failed_calls.failed(call, "UNREACHABLE", reason)
        session.on_unreachable(self._now_ms())

    # --- where the local history does not continue

    async def _install(self, session: Session, call: Call, offer: SnapshotOffer) -> None:
        """Download the snapshot that a controller named, and go on after it."""
        cache = self._cache
        log.info("snapshot_offered", extra={"snapshot_id": offer.id, "bytes": offer.bytes})
        if offer.end_offset <= self.follower.image.end_offset:
            self._gave_up(session, call, f"its snapshot at offset {offer.end_offset} leads nowhere new")
            return
        try:
            others = [url for url in self._controllers if url != call.url]
            downloaded = await self._unless_interrupted(
                download_snapshot(
                    self._client.http,
                    [call.url, *others],
                    offer.id,
                    cache.store.directory,
                    run_in_thread=self._cache_thread.run,
                )
            )
            if downloaded is None:
                return
            image = await self._cache_thread.run(lambda: cache.install(offer.id))
        except (DamagedFile, SnapshotNotFound, ValueError) as error:
            reason = str(error)
            if cache.warnings.get("SNAPSHOT_NOT_FETCHED") != reason:  # log it once: the download is retried
                log.warning("snapshot_not_fetched", extra={"snapshot_id": offer.id, "reason": reason})
            cache.warnings["SNAPSHOT_NOT_FETCHED"] = reason
            self._gave_up(session, call, reason)
            return
        cache.warnings.pop("SNAPSHOT_NOT_FETCHED", None)
        self.follower.snapshots_fetched += 1
        self.replace_image(image)
        log.info("snapshot_installed", extra={"snapshot_id": offer.id, "end_offset": image.end_offset})

    async def _rebuild(self, diverging: Diverging) -> None:
        """Drop the history that the controllers do not know: stop serving at once, then go on from one they may know."""
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
        self.replace_image(EMPTY)
        self._on_progress()
        image = await self._cache_thread.run(
            lambda: self._cache.rebuild(at_or_below=diverging.offset, strictly_below=position.fetch_offset)
        )
        self.replace_image(image)
