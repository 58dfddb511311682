"""Edge: reads of the past: lines of the log, and states as they were at an offset.

They compute for long, so they are made one after the other beside the event loop: in the process that reads the past, or
in a thread where there is none. What that process cannot do is done in a thread, too, which then tells why.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from metadata_log import limits
from metadata_log.codec import DamagedFrame, damaged_answer, decode_all
from metadata_log.digest import digest
from metadata_log.errors import (
    LogDamaged,
    MetadataError,
    OffsetCompacted,
    SnapshotNotFound,
    ThrottlingQuotaExceeded,
)
from metadata_log.ids import TopicId
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.log.lines import lines_of
from metadata_log.log.topic_filter import TopicFilter
from metadata_log.node.http.encodings import joined
from metadata_log.node.http.state_answer import state_items
from metadata_log.node.threads import Slots, Threads
from metadata_log.recount import lines_of_bucket
from quorum.log.committed_log import CommittedLog
from quorum.log.history_process import HistoryProcess, WorkFailed, be_history_process
from quorum.log.topic_feeds import filter_of
from snapshots.fold import fold
from snapshots.history import image_at
from snapshots.kafka_checkpoint import write_checkpoint
from snapshots.snapshot_file import position_of, read_snapshot
from snapshots.store import SnapshotStore

Call = Callable[..., Awaitable[Any]]


def wait_ends_s() -> float:
    """Return the time of the loop by which an answer that is asked for now must have begun."""
    return asyncio.get_running_loop().time() + limits.PAST_READ_WAIT_MAX_MS / 1000


@dataclass(slots=True)
class Progress:
    """How far the answer to one question about the past is, for those who wait for it."""

    doing: str = "waiting for its turn"
    share: float | None = None
    """Of what is being done, from 0 to 1; None: not known."""

    def is_at(self, doing: str, share: float | None = None) -> None:
        self.doing, self.share = doing, share


class PastState:
    """The state at an offset, under the key by which the process or thread that computed it holds it."""

    def __init__(self, key: int, call: Call, order: int, order_now: Callable[[], int]) -> None:
        """All of the answer has one `order`: a state that is made already is not held while later answers are made.

        `order_now` returns that of what begins now.
        """
        self._key = key
        self._call = call
        self._order = order
        self._order_now = order_now

    async def topic_filter(self, names: list[str], ids: list[TopicId]) -> TopicFilter:
        """Return a filter that begins with the record after the state."""
        return TopicFilter.of_plain(*await self._call("topic_filter", self._key, names, ids))

    async def view(self, work: str, *args: object) -> Any:
        """Return what a work of VIEWS makes of the state: plain values, bounded."""
        assert work in VIEWS, work
        return await self._call(work, self._key, *args, order=self._order)

    async def losses(
        self, settings: dict[str, Any], broker_ids: list[int], progress: Progress | None = None
    ) -> dict[str, Any]:
        """Return what the loss of brokers, one after the other, does: a broker at a time, each behind the reads of others.

        All in one call would keep the lines of the log and past states waiting for minutes, and go on without its reader.
        """
        end_offset = await self._call("foresee", self._key, settings, broker_ids, order=self._order)
        steps: list[dict[str, Any]] = []
        progress = progress or Progress()
        progress.is_at("deciding the losses", 0.0)
        while (step := await self._call("next_loss", self._key, order=self._order_now())) is not None:
            steps.append(step)
            progress.is_at("deciding the losses", min(len(steps) / len(broker_ids), 1.0))
        return {"end_offset": end_offset, "steps": steps}

    async def ahead(self, frames: bytes) -> None:
        """Make a second state of this one and the frames that follow it, or that follow what it got so before."""
        await self._call("ahead", self._key, frames, order=self._order)

    async def pieces(self, *, as_msgpack: bool, only: Sequence[str] = ()) -> AsyncIterator[bytes]:
        """Yield the encoding of the state, or of parts of it, in pieces of ANSWER_PIECE_BYTES or a little more."""
        await self._call("begin", self._key, as_msgpack, tuple(only), order=self._order)
        while piece := await self._call("next_piece", self._key, order=self._order):
            yield piece


class Past:
    """The past of one controller, as its HTTP shows it."""

    def __init__(
        self,
        committed_log: CommittedLog,
        store: SnapshotStore,
        *,
        threads: Threads,
        process: HistoryProcess | None = None,
        states_max: int = limits.PAST_STATES_MAX,
    ) -> None:
        """`threads` make one answer after the other; without `process` they compute it, too."""
        self._log = committed_log
        self._store = store
        self._threads = threads
        self._process = process
        self._states = Slots("past states", held_max=states_max, waiting_max=limits.PAST_STATES_WAITING_MAX)
        self._digests: OrderedDict[int, dict[str, Any]] = OrderedDict()
        """By offset, the oldest question first."""
        self._left: list[int] = []
        """Keys of states that the process still holds, without readers."""

    def order_of_lines(self) -> int:
        """Return the `order` of all lines of an answer that begins now."""
        return self._threads.order_of_pieces()

    async def lines(
        self,
        frames: bytes,
        start: int,
        topics: TopicFilter | None = None,
        *,
        order: int = 0,
        begin_by_s: float | None = None,
    ) -> tuple[bytes, int, TopicFilter | None]:
        """Return what `lines_of` returns: ANSWER_PIECE_BYTES of lines, or a line more.

        Raises:
            LogDamaged: the bytes are no frames.
            ThrottlingQuotaExceeded: too many reads wait, this did not begin by `begin_by_s` (a time of the loop), or the
                process that reads the past failed.
        """
        bytes_max = limits.ANSWER_PIECE_BYTES
        try:
            if self._process is not None and len(frames) > limits.LINES_HERE_BYTES_MAX:
                plain = None if topics is None else topics.to_plain()
                with suppress(WorkFailed):
                    lines, end, learned = await self._there(
                        "lines", frames, start, plain, bytes_max, order=order, begin_by_s=begin_by_s
                    )
                    return lines, end, None if learned is None else TopicFilter.of_plain(*learned)
            return await self._threads.run(
                lines_of, frames, start, topics, bytes_max, order=order, begin_by_s=begin_by_s
            )
        except DamagedFrame as error:
            raise LogDamaged(damaged_answer("the log of this controller", error).message) from error

    @asynccontextmanager
    async def state_at(self, end_offset: int, progress: Progress | None = None) -> AsyncIterator[PastState]:
        """Hold the state of the log below `end_offset`; inside a batch, that at the batch's beginning.

        The process keeps what it made last for PAST_WARM_S: a question about a state near one of these reads no snapshot.

        Raises:
            OffsetInFuture, OffsetCompacted, LogDamaged: as `image_at`.
            ThrottlingQuotaExceeded: too many reads wait, this one did for PAST_READ_WAIT_MAX_MS, or the process that reads
                the past failed.
        """
        begin_by_s = wait_ends_s()
        async with self._states.held(begin_by_s=begin_by_s):
            key, order = next(_KEYS), self._threads.order_of_pieces()
            try:
                call: Call = self._of_state
                progress = progress or Progress()
                if self._process is None or not await self._is_built(
                    key, end_offset, order, begin_by_s, progress
                ):
                    call = self._here
                    progress.is_at("reading the log from the nearest snapshot on")
                    image = await self._log.in_thread(image_at, self._log.segments, self._store, end_offset)
                    _IMAGES[key] = image
                yield PastState(key, call, order, self._threads.order_of_pieces)
            finally:
                _forget([key])
                if self._process is not None:
                    self._left.append(key)
                    await self._forget_there()

    async def difference(
        self, start: int, until: int, default_min_isr: int, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Return both states at a glance, and what differs between them; `start` is not after `until`.

        Raises:
            OffsetInFuture, OffsetCompacted, LogDamaged, ThrottlingQuotaExceeded: as `state_at`.
        """
        progress = progress or Progress()
        async with self.state_at(start, progress) as past:
            state = await past.view("summary", default_min_isr)
            await self._read_on(past, state["end_offset"], until, progress)
            progress.is_at("comparing the two states")
            return {"from": state, **await past.view("differences", default_min_isr)}

    async def diff(
        self, start: int, until: int, *, topic: str | None = None, broker_id: int | None = None
    ) -> AsyncIterator[bytes]:
        """Yield pieces of the lines of `quorum/views/state_diff.py`: of all that differs, or of a topic or a broker alone.

        Raises:
            OffsetInFuture, OffsetCompacted, LogDamaged, ThrottlingQuotaExceeded: as `state_at`.
        """
        async with self.state_at(start) as past:
            state = await past.view("summary", 1)
            await self._read_on(past, state["end_offset"], until, Progress())
            await past.view("begin_diff", topic, broker_id)
            while piece := await past.view("next_lines"):
                yield piece

    async def digest_at(self, end_offset: int) -> dict[str, Any]:
        """Return digest and buckets of the state at an offset; those of the last DIGESTS_KEPT that were asked for are kept.

        Raises:
            OffsetInFuture, OffsetCompacted, LogDamaged, ThrottlingQuotaExceeded: as `state_at`.
        """
        known = self._digests.get(end_offset)
        if known is None:
            async with self.state_at(end_offset) as past:
                known = await past.view("buckets")
            self._digests[end_offset] = known
            while len(self._digests) > limits.DIGESTS_KEPT:
                self._digests.popitem(last=False)
        return known

    async def digest_lines(self, end_offset: int, bucket: int) -> dict[str, Any]:
        """Return the digest's lines in one bucket of the state at an offset; raises as `digest_at`."""
        async with self.state_at(end_offset) as past:
            found: dict[str, Any] = await past.view("bucket_lines", bucket)
        return found

    async def _read_on(self, past: PastState, at: int, until: int, progress: Progress) -> None:
        """Have the later of two states made."""
        begin = at
        while at < until:
            progress.is_at("reading on to the later state", (at - begin) / (until - begin))
            frames, after = await self._log.read_in_thread(
                at, max_bytes=limits.ANSWER_PIECE_BYTES, until=until
            )
            if not frames:
                return  # `until` lies within the next batch
            await past.ahead(frames)
            at = after

    async def _here(self, work: str, *args: object, order: int = 0) -> Any:
        try:
            return await self._threads.run(_WORKS[work], *args, order=order)
        except DamagedFrame as error:
            raise LogDamaged(damaged_answer("the log of this controller", error).message) from error

    async def _of_state(self, work: str, *args: object, order: int = 0) -> Any:
        """Have the process do a work about a state that it holds.

        Raises:
            LogDamaged: the frames are none.
            ThrottlingQuotaExceeded: the process failed meanwhile, and another one holds no states of this one.
        """
        try:
            return await self._there(work, *args, order=order)
        except WorkFailed as error:
            if error.kind == DamagedFrame.__name__:
                raise LogDamaged(f"the log of this controller: {error}") from error
            raise ThrottlingQuotaExceeded(
                f"the process that reads the past has lost the state of this question ({error}): ask again, or another "
                "controller"
            ) from error

    async def _there(self, work: str, *args: object, order: int = 0, begin_by_s: float | None = None) -> Any:
        assert self._process is not None
        return await self._threads.run(self._process.call, work, *args, order=order, begin_by_s=begin_by_s)

    async def _is_built(
        self, key: int, end_offset: int, order: int, begin_by_s: float, progress: Progress
    ) -> bool:
        """Answer whether the process holds the state now; where it does not, this one finds out why."""
        snapshot, at = await self._threads.run(self._newest_snapshot, end_offset)
        if at < self._log.log_start_offset or end_offset > self._log.end_offset:
            return False
        try:
            progress.is_at("reading the nearest snapshot")
            begin = at = await self._there(
                "load", key, snapshot, at, end_offset, order=order, begin_by_s=begin_by_s
            )
            while at < end_offset:
                progress.is_at("reading the log from there on", (at - begin) / (end_offset - begin))
                frames, after = await self._log.read_in_thread(
                    at, max_bytes=limits.ANSWER_PIECE_BYTES, until=end_offset
                )
                if not frames:
                    break  # `end_offset` lies within the next batch
                await self._there("fold", key, frames, order=order)
                at = after
            await self._there("keep_warm", key, order=order)
        except (WorkFailed, OffsetCompacted):
            return False
        return True

    def _newest_snapshot(self, end_offset: int) -> tuple[str | None, int]:
        for snapshot_id in reversed(self._store.ids()):
            at, _ = position_of(snapshot_id)
            if at <= end_offset:
                with suppress(SnapshotNotFound):  # retired meanwhile
                    return str(self._store.path(snapshot_id)), at
        return None, 0

    async def _forget_there(self) -> None:
        """Have the process drop states without readers; what it could not be asked now, it is asked next time."""
        left, self._left = self._left, []
        is_told = False
        try:
            with suppress(MetadataError, WorkFailed):
                await self._there("forget", left)
                is_told = True
        finally:
            if not is_told:
                self._left += left


_KEYS: Final = count(1)
_IMAGES: Final[dict[int, MetadataImage]] = {}
"""The states that this process holds, for itself or for its parent, by key."""
_WARM: Final[OrderedDict[int, MetadataImage]] = OrderedDict()
"""States that were asked for last, by end offset, the newest use last; in the process alone. Two that follow from each other
share what did not change between them."""
_AHEAD: Final[dict[int, MetadataImage]] = {}
"""Later states that are compared with those, by the same key."""
_LOSSES: Final[dict[int, Iterator[dict[str, Any]]]] = {}
"""The losses that are foreseen of each of them."""
VIEWS: Final = frozenset({"summary", "differences", "begin_diff", "next_lines", "buckets", "bucket_lines"})
"""What else is made of a state, where it is held."""
_ITEMS: Final[dict[int, Iterator[bytes]]] = {}
"""The answer under way about each of them."""


def _lines(frames: bytes, start: int, topics: Any, bytes_max: int) -> tuple[bytes, int, Any]:
    known = None if topics is None else TopicFilter.of_plain(*topics)
    lines, end, learned = lines_of(frames, start, known, bytes_max)
    return lines, end, None if learned is None else learned.to_plain()


def _load(key: int, snapshot: str | None, snapshot_end: int, end_offset: int) -> int:
    """Begin a state with the nearest one at or below `end_offset` that is warm, else with the snapshot; return its end."""
    warm = max((at for at in _WARM if at <= end_offset), default=-1)
    if warm >= snapshot_end:
        _IMAGES[key] = _WARM[warm]
        return warm
    _cool()  # first: the snapshot's state shares nothing with these
    _IMAGES[key] = EMPTY if snapshot is None else read_snapshot(Path(snapshot))
    return snapshot_end


def _keep_warm(key: int) -> None:
    """Keep a state for later questions."""
    image = _AHEAD.get(key, _IMAGES[key])
    _WARM[image.end_offset] = image
    _WARM.move_to_end(image.end_offset)
    while len(_WARM) > limits.PAST_WARM_MAX:
        _WARM.popitem(last=False)


def _cool() -> None:
    _WARM.clear()


def _fold(key: int, frames: bytes) -> None:
    _IMAGES[key] = fold((batch for batch, _ in decode_all(frames)), onto=_IMAGES[key])


def _topic_filter(key: int, names: list[str], ids: list[TopicId]) -> Any:
    return filter_of(_IMAGES[key], names, ids).to_plain()


def _begin(key: int, as_msgpack: bool, only: Sequence[str]) -> None:
    _ITEMS[key] = state_items(_IMAGES[key], as_msgpack=as_msgpack, only=only)
    if key not in _IMAGES:  # its reader went meanwhile, where a thread does this
        _ITEMS.pop(key, None)


def _next_piece(key: int) -> bytes:
    return joined(_ITEMS[key])


def _ahead(key: int, frames: bytes) -> None:
    _AHEAD[key] = fold((batch for batch, _ in decode_all(frames)), onto=_AHEAD.get(key, _IMAGES[key]))
    if key not in _IMAGES:  # as in `_begin`
        _AHEAD.pop(key, None)


def _summary(key: int, default_min_isr: int) -> dict[str, Any]:
    from quorum.views.past_view import summary

    return summary(_IMAGES[key], default_min_isr)


def _differences(key: int, default_min_isr: int) -> dict[str, Any]:
    from quorum.views.past_view import differences, summary

    after = _AHEAD.get(key, _IMAGES[key])
    return {"to": summary(after, default_min_isr), **differences(_IMAGES[key], after)}


def _buckets(key: int) -> dict[str, Any]:
    image = _IMAGES[key]
    return {
        "end_offset": image.end_offset,
        "digest": digest(image),
        "buckets": [list(bucket) for bucket in image.digest_buckets],
    }


def _bucket_lines(key: int, bucket: int) -> dict[str, Any]:
    image = _IMAGES[key]
    return {"end_offset": image.end_offset, "lines": lines_of_bucket(image, bucket)}


def _begin_diff(key: int, topic: str | None, broker_id: int | None) -> None:
    from quorum.views.state_diff import Wanted, lines

    before = _IMAGES[key]
    _ITEMS[key] = lines(before, _AHEAD.get(key, before), Wanted(topic, broker_id))
    if key not in _IMAGES:  # as in `_begin`
        _ITEMS.pop(key, None)


def _foresee(key: int, settings: dict[str, Any], broker_ids: list[int]) -> int:
    from quorum.whatif.foreseen import losses_foreseen

    image = _IMAGES[key]
    _LOSSES[key] = losses_foreseen(image, settings, broker_ids)
    if key not in _IMAGES:  # as in `_begin`
        _LOSSES.pop(key, None)
    return image.end_offset


def _next_loss(key: int) -> dict[str, Any] | None:
    return next(_LOSSES[key], None)


def _forget(keys: list[int]) -> None:
    for key in keys:
        _IMAGES.pop(key, None)  # first: `_begin` and others look for it after they have set another
        _AHEAD.pop(key, None)
        _LOSSES.pop(key, None)
        _ITEMS.pop(key, None)


def _checkpoint(snapshot: str, listener: str | None) -> int:
    return write_checkpoint(Path(snapshot), listener=listener)


CHECKPOINT: Final = "checkpoint"
"""Makes a checkpoint of Kafka's of the snapshot at a path, for brokers that give the controllers' listener a name; returns
its bytes.
"""
_WORKS: Final[dict[str, Callable[..., Any]]] = {
    "lines": _lines,
    "load": _load,
    "keep_warm": _keep_warm,
    "fold": _fold,
    "topic_filter": _topic_filter,
    "begin": _begin,
    "next_piece": _next_piece,
    "ahead": _ahead,
    "summary": _summary,
    "differences": _differences,
    "buckets": _buckets,
    "bucket_lines": _bucket_lines,
    "begin_diff": _begin_diff,
    "next_lines": _next_piece,
    "foresee": _foresee,
    "next_loss": _next_loss,
    "forget": _forget,
    CHECKPOINT: _checkpoint,
}
"""What the process that reads the past can do; a thread of this one does it where there is no such process."""

if __name__ == "__main__":
    be_history_process(_WORKS, idle_s=limits.PAST_WARM_S, on_idle=_cool)
