"""What work costs in a simulated run: the process that does it is busy for so long (`virtual_loop`).

The rates are those measured on the machine of docs/measurements.md. Each run draws how fast its machine is, and how much a
partition and a poll weigh in it: a few of them then hold their controller up as a large cluster's do. Bounds by number are
made smaller by as much. The shipped code knows nothing of it: what works is wrapped from outside, for a while.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import ceil
from typing import Any, Final
from unittest.mock import patch

import broker_agent.dataless_host
import broker_agent.follower
import broker_agent.replicas
import broker_agent.reports
import metadata_log.image.metadata_image
import quorum.controller.controller
import quorum.controller.standby
import quorum.controller.upkeep
import quorum.decide.parts
import quorum.decide.sweeps
import quorum.raft.proposals
from broker_agent.dataless_host import VISITS_PER_TURN
from broker_agent.replicas import VISITS_PER_SLICE
from broker_agent.reports import REPORTS_MAX
from metadata_log.batch import Envelope, RecordBatch
from metadata_log.image.metadata_image import Delta, MetadataImage, StateDigest, _Uncounted
from metadata_log.image.partition_index import PartitionIndexBuilder
from metadata_log.image.topics import TopicImage, TopicsImage
from metadata_log.limits import (
    ELECTIONS_PER_SWEEP_MAX,
    FETCH_SLICE_POLLS,
    LINES_COUNTED_AT_ONCE,
    LOOP_SLICE_MS,
    PART_AGAIN_MS,
    PART_MS,
    RAFT_ENTRY_SHARED_BYTES,
    RECORDS_PER_PART_MAX,
    ROUND_MS,
    UNCOUNTED_BYTES_MAX,
    UNCOUNTED_LINES_MAX,
    UNCOUNTED_SMALL_BATCHES_MAX,
)
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.pace import Pieces
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.registry import Record
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, Sliced, chunks
from metadata_log.wire.fetch import encode_fetch_body
from quorum.controller.controller import Controller
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision
from quorum.decide.elections import Electorate
from quorum.decide.new_partitions import NewPartitions
from quorum.decide.sweeps import Sweep
from quorum.fetch.poll import Poll, Reply
from quorum.fetch.replies import ColdRead, Replies
from quorum.fetch.service import FetchService
from tests.simulation.rules.rule import Violation, rule
from tests.simulation.world.virtual_loop import Processor, VirtualLoop

_US: Final = 1e-6
VISIT: Final = 1.5 * _US
"""A partition that a walk looks at."""
LOOK: Final = 0.15 * _US
"""A partition of a topic that a sweep goes through."""
TRIED: Final = 0.6 * _US
"""One that needs an election, and for which nobody can be elected; mostly another one alike was tried before."""
PARTITIONS_PER_TOPIC: Final = 4
"""Of the topics that a run's clients make."""
VISITED: Final = "partitions visited"
DECIDED: Final = "records decided"
DECIDE: Final = 5 * _US
"""A record that a decision makes, on top."""
ENCODE: Final = 3 * _US
APPLY: Final = 7 * _US
COUNT: Final = 0.7 * _US
"""A partition that the index counts in or out."""
REQUEST: Final = 300 * _US
"""A write or a read over HTTP, without what it decides."""
POLL_ARRIVES: Final = 20 * _US
POLL_ANSWERED: Final = 30 * _US
ANSWER_ENCODED: Final = 25 * _US
DIGEST_LINE: Final = 3 * _US
"""A line of the state digest that is counted out, and the one that is counted in instead."""
READ: Final = 75 * _US
"""A read of segments, and then each byte of it."""
READ_BYTE: Final = 0.0018 * _US

TURN_SECONDS_MAX: Final = 0.020
"""Of any turn on a machine as fast as the one measured, or faster; on a slower one it takes longer by as much."""


_SLICED: Final = tuple(
    import_module(name)
    for name in (
        "metadata_log.sliced",
        "quorum.decide.new_partitions",
        "quorum.decide.partitions",
        "quorum.decide.reassignments",
        "quorum.decide.topics",
    )
)
"""What rests by number."""
_USUAL: Final = {
    "_VISITS_BETWEEN_LOOKS": 64,
    "ELECTIONS_PER_SWEEP_MAX": ELECTIONS_PER_SWEEP_MAX,
    "records_per_part_max": RECORDS_PER_PART_MAX,
    "REPORTS_MAX": REPORTS_MAX,
    "VISITS_PER_SLICE": VISITS_PER_SLICE,
    "VISITS_PER_TURN": VISITS_PER_TURN,
    "RAFT_ENTRY_SHARED_BYTES": RAFT_ENTRY_SHARED_BYTES,
    "pieces_max": FETCH_SLICE_POLLS,
    "ITEMS_BETWEEN_RESTS": ITEMS_BETWEEN_RESTS,
    "LINES_COUNTED_AT_ONCE": LINES_COUNTED_AT_ONCE,
    "UNCOUNTED_LINES_MAX": UNCOUNTED_LINES_MAX,
}
"""Bounds by number, before a run draws smaller ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How a run's machine and cluster differ from the measured machine, and from the few partitions and polls there are."""

    slowness: float = 1.0
    partition: int = 1
    """A partition stands for so many."""
    poll: int = 1
    byte: int = 1
    """A byte of the log stands for so many."""

    @property
    def turn_seconds_max(self) -> float:
        return TURN_SECONDS_MAX * max(1.0, self.slowness)

    @property
    def round_seconds_max(self) -> float:
        """Of decisions in one round of the loop: the last one may begin just before ROUND_MS, and rests between two
        partitions.

        Where a controller's round ends is a callback among others: a round of the loop may have the end of one and the next.
        """
        return (2 * ROUND_MS + LOOP_SLICE_MS) / 1000 + DECIDE * self.partition * self.slowness

    @property
    def part_seconds_max(self) -> float:
        """Of visits in one part of a walk or a sweep, which looks at its clock after each partition or topic."""
        return (
            PART_MS / 1000 + (VISIT + PARTITIONS_PER_TOPIC * (LOOK + TRIED)) * self.partition * self.slowness
        )

    def change_seconds(self, partitions: int, *, per_part: int) -> float:
        """Return how long a long change of so many partitions has parts to make after its first one.

        In a part each partition is visited, decided, encoded, applied, and counted out of the index and in again. After it
        decisions rest for as long as it took, and PART_AGAIN_MS pass.
        """
        parts = ceil(partitions / per_part) - 1
        partition = (VISIT + DECIDE + ENCODE + APPLY + 2 * COUNT) * self.partition * self.slowness
        return max(parts, 0) * (2 * per_part * partition + PART_AGAIN_MS / 1000)


def drawn(seed: int, *, is_heavy: bool, has_data: bool) -> Rates:
    """Draw the rates of the run with this seed; a heavy one is that of a large cluster.

    With data a part must hold three records: a heartbeat about directories keeps room for two.
    """
    rng = random.Random(seed ^ 0xC057)
    slowness = rng.choice((0.5, 1.0, 2.0))
    if not is_heavy:
        return Rates(slowness=slowness, partition=rng.choice((1, 1, 10, 100)), byte=rng.choice((1, 10)))
    return Rates(
        slowness=slowness,
        partition=min(rng.choice((100, 300, 500)), 300 if has_data else 500),
        poll=rng.choice((1, 30)),
        byte=rng.choice((100, 1_000)),
    )


@dataclass(slots=True)
class Turns:
    """The turns of one run that took longest."""

    longest: float = 0.0
    """In seconds."""
    longest_kinds: tuple[tuple[str, float], ...] = ()
    """What it did, by kind: what took longest first."""

    def text(self) -> str:
        kinds = ", ".join(f"{seconds * 1000:.1f} ms {kind}" for kind, seconds in self.longest_kinds)
        return f"{self.longest * 1000:.1f} ms ({kinds})" if kinds else "0.0 ms"


class Costs:
    """Charges work to whoever does it, and keeps an eye on the turns."""

    turns_are_short = rule("no turn of a controller's loop takes longer than its bound")
    rounds_are_short = rule("decisions that arrive together leave the loop to others in time")
    parts_are_short = rule("a part of a walk or a sweep visits partitions for PART_MS")
    answers_are_shared = rule("polls at one position that want as many bytes share one encoding")
    digests_are_sliced = rule("some lines of the state digest, or one batch, are counted in a turn")
    digests_wait = rule("a batch counts of the state digest only what has waited long")

    def __init__(self, loop: VirtualLoop, rates: Rates, violated: Callable[[Violation], None]) -> None:
        self.rates = rates
        self.turns = Turns()
        self._loop = loop
        self._violated = violated
        self._decided = 0
        """Records decided so far."""
        self._turn: tuple[Processor | None, float] = None, 0.0
        """The newest turn that encoded an answer, or counted some of the state digest for somebody who asked."""
        self._batches_counted = self._lines_counted = 0
        """What it counted."""
        self._encoded: set[tuple[bytes, int]] = set()
        """The answers with frames that were encoded in the turn under way, each with the bytes that its poll wants."""
        self._bytes_wanted: int | None = None
        """By the poll that is being answered."""
        self._is_making_image = False
        """Whether a batch is being applied, and its image gets its digest."""

    def processor(self, who: object) -> Processor:
        """Return the processor of a controller's process, whose turns must be short."""
        return Processor(lambda work: self._watch(who, work), lambda work: self._watch_round(who, work))

    def _watch(self, who: object, work: dict[str, float]) -> None:
        turns, rates = self.turns, self.rates
        visited = work.get(VISITED, 0.0)
        if visited > rates.part_seconds_max:
            self._violated(
                self.parts_are_short(f"{who} visited partitions for {visited * 1000:.1f} ms in one turn")
            )
        taken = sum(work.values())
        if taken > turns.longest:
            turns.longest = taken
            turns.longest_kinds = tuple(sorted(work.items(), key=lambda item: -item[1]))
            if taken > rates.turn_seconds_max:
                self._violated(self.turns_are_short(f"{who} took {turns.text()} in one turn"))

    def _watch_round(self, who: object, work: dict[str, float]) -> None:
        decided = work.get(DECIDED, 0.0)
        if decided > self.rates.round_seconds_max:
            self._violated(
                self.rounds_are_short(f"{who} decided for {decided * 1000:.1f} ms in one round of the loop")
            )

    def _follow_turn(self) -> None:
        """Forget what another turn than this one did."""
        if self._turn != self._loop.turn:
            self._turn = self._loop.turn
            self._encoded.clear()
            self._batches_counted = self._lines_counted = 0

    def _work(self, kind: str, seconds: float) -> None:
        self._loop.work(kind, seconds * self.rates.slowness)

    # --- what costs

    def request(self) -> None:
        self._work("requests", REQUEST)

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Charge for the work of shipped code for a while, and bound by number what is heavier than it looks."""
        weight, polls = self.rates.partition, self.rates.poll
        works: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
            (TopicsImage, "partitions_on", self._visiting),
            (TopicsImage, "leaderless", self._visiting),
            (Electorate, "change", self._deciding),
            (Electorate, "elect", self._electing),
            (Sweep, "_hold", self._sweeping),
            (NewPartitions, "_partition", self._deciding),
            (quorum.controller.controller, "decide", self._requested),
            (quorum.controller.upkeep, "decide", self._requested),
            (quorum.controller.controller, "deciding", self._requested_in_slices),
            (quorum.controller.standby, "encoding", self._encoding),
            (quorum.controller.standby, "applying", self._applying_in_slices),
            (PartitionIndexBuilder, "_count", self._counting),
            (broker_agent.follower, "applying", self._applying_in_slices),
            (FetchService, "_arrived", self._each("polls that arrived", POLL_ARRIVES * polls)),
            (FetchService, "_deliver", self._each("polls answered", POLL_ANSWERED * polls)),
            (Replies, "reply", self._answering),
            (Replies, "made", self._making_replies),
            (StateDigest, "behind", self._putting_off),
            (StateDigest, "count_some", self._counting_some),
            (metadata_log.image.metadata_image, "_counted", self._counting_lines),
            (SegmentedLog, "read", self._reading),
        )
        bounds: tuple[tuple[Any, str, int], ...] = (
            (quorum.decide.parts, "_VISITS_BETWEEN_LOOKS", weight),
            (quorum.decide.sweeps, "ELECTIONS_PER_SWEEP_MAX", weight),
            (Controller, "records_per_part_max", weight),
            (broker_agent.reports, "REPORTS_MAX", weight),
            (broker_agent.replicas, "VISITS_PER_SLICE", weight),
            (broker_agent.dataless_host, "VISITS_PER_TURN", weight),
            (quorum.raft.proposals, "RAFT_ENTRY_SHARED_BYTES", weight),
            (metadata_log.image.metadata_image, "LINES_COUNTED_AT_ONCE", weight),
            (metadata_log.image.metadata_image, "UNCOUNTED_LINES_MAX", weight),
            (Pieces, "pieces_max", polls),
            *((module, "ITEMS_BETWEEN_RESTS", weight) for module in _SLICED),
        )
        with ExitStack() as patched:
            for holder, name, wrap in works:
                patched.enter_context(patch.object(holder, name, wrap(getattr(holder, name))))
            for holder, name, by in bounds:
                usual, drawn_bound = _USUAL[name], getattr(holder, name)
                smaller = max(max(usual, drawn_bound) // by, 1)
                patched.enter_context(patch.object(holder, name, min(drawn_bound, smaller)))
            yield

    def _each(self, kind: str, seconds: float) -> Callable[[Any], Any]:
        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def works(*args: Any, **rest: Any) -> Any:
                self._work(kind, seconds)
                return original(*args, **rest)

            return works

        return wrap

    def _making_replies(self, original: Callable[..., Reply]) -> Callable[..., Reply]:
        """Charge for making and encoding a reply to polls, and see to it that polls at one position share it."""

        def makes(replies: Replies, sending: Any, state: Any, frames: bytes, **rest: Any) -> Reply:
            self._work("answers encoded", ANSWER_ENCODED * self.rates.poll)
            made = original(replies, sending, state, frames, **rest)
            body = encode_fetch_body(made.answer, made.frames)
            self._follow_turn()
            if frames and self._bytes_wanted is not None:
                if (body, self._bytes_wanted) in self._encoded:
                    self._violated(
                        self.answers_are_shared(f"{len(body)} bytes were encoded twice in one turn")
                    )
                self._encoded.add((body, self._bytes_wanted))
            return made

        return makes

    def _answering(self, original: Callable[..., Reply | ColdRead]) -> Callable[..., Reply | ColdRead]:
        def answers(replies: Replies, poll: Poll) -> Reply | ColdRead:
            self._bytes_wanted = poll.request.bytes_wanted
            try:
                return original(replies, poll)
            finally:
                self._bytes_wanted = None

        return answers

    def _putting_off(self, original: Callable[..., StateDigest]) -> Any:
        def behind(before: MetadataImage, touched: Delta) -> StateDigest:
            self._is_making_image = True
            try:
                return original(before, touched)
            finally:
                self._is_making_image = False

        return staticmethod(behind)

    def _counting_some(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """See to it that applying a batch counts nothing of the digest before much waits to be counted."""

        def counts(digest: StateDigest, image: MetadataImage) -> Any:
            state = digest.state
            if self._is_making_image and isinstance(state, _Uncounted) and not _is_much(state):
                self._violated(
                    self.digests_wait(
                        f"a batch counts {state.behind.lines} lines of {state.behind.batches} batches, though "
                        "nobody asked"
                    )
                )
            return original(digest, image)

        return counts

    def _counting_lines(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def counts(steps: Sequence[_Uncounted], after: MetadataImage) -> Any:
            weight = self.rates.partition
            self._follow_turn()
            process = self._turn[0]
            # What an ended process does takes no time.
            if not self._is_making_image and process is not None and not process.is_ended:
                self._batches_counted += len(steps)
                self._lines_counted += sum(step.size.lines for step in steps)
                if self._batches_counted > 1 and self._lines_counted > max(
                    LINES_COUNTED_AT_ONCE // weight, 1
                ):
                    self._violated(
                        self.digests_are_sliced(
                            f"{self._lines_counted} lines of {self._batches_counted} batches were counted "
                            f"in one turn, where a partition stands for {weight}"
                        )
                    )
            for _, touched, size, _ in steps:
                keys = 1 + len(touched.topics) + len(touched.configs) + len(touched.brokers)
                self._work("digest lines counted", DIGEST_LINE * (keys + weight * (size.lines - keys)))
            return original(steps, after)

        return counts

    def _visiting(self, original: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def visits(*args: Any, **rest: Any) -> Iterator[Any]:
            for visited in original(*args, **rest):
                self._work(VISITED, VISIT * self.rates.partition)
                yield visited

        return visits

    def _deciding(self, original: Callable[..., PartitionChangeRecord | None]) -> Callable[..., Any]:
        def decides(*args: Any) -> PartitionChangeRecord | None:
            record = original(*args)
            if record is not None:  # a change, or a new partition
                self._decided += 1
                self._work(DECIDED, DECIDE * self.rates.partition)
            return record

        return decides

    def _electing(self, original: Callable[..., PartitionChangeRecord | None]) -> Callable[..., Any]:
        decides = self._deciding(original)

        def elects(*args: Any) -> PartitionChangeRecord | None:
            record: PartitionChangeRecord | None = decides(*args)
            if record is None:
                self._work(VISITED, TRIED * self.rates.partition)
            return record

        return elects

    def _sweeping(self, original: Callable[..., bool]) -> Callable[..., bool]:
        def holds(*args: Any) -> bool:
            topic: TopicImage = args[3]
            self._work(VISITED, LOOK * self.rates.partition * len(topic.partitions))
            return original(*args)

        return holds

    def _requested(self, original: Callable[..., Decision]) -> Callable[..., Decision]:
        """Charge for the records that a decision makes by itself, not partition after partition."""

        def decides(context: DecideContext, command: object) -> Decision:
            before = self._decided
            decision = original(context, command)
            if self._decided == before:
                self._all(DECIDED, DECIDE, decision.records)
            return decision

        return decides

    def _requested_in_slices(self, original: Callable[..., Sliced[Decision]]) -> Callable[..., Any]:
        def decides(context: DecideContext, command: object) -> Sliced[Decision]:
            before = self._decided
            decision = yield from original(context, command)
            if self._decided == before:
                for some in chunks(decision.records):
                    self._all(DECIDED, DECIDE, some)
                    yield
            return decision

        return decides

    def _encoding(self, original: Callable[..., Sliced[bytes]]) -> Callable[..., Any]:
        def encodes(envelope: Envelope, records: Sequence[Record]) -> Sliced[bytes]:
            for some in chunks(records):
                self._all("records encoded", ENCODE, some)
                yield
            return (yield from original(envelope, records))

        return encodes

    def _applying_in_slices(self, original: Callable[..., Sliced[Any]]) -> Callable[..., Any]:
        def applies(image: MetadataImage, batch: RecordBatch, **how: Any) -> Sliced[Any]:
            for some in chunks(batch.records):
                self._all("records applied", APPLY, some)
                yield
            return (yield from original(image, batch, **how))

        return applies

    def _counting(self, original: Callable[..., None]) -> Callable[..., None]:
        def counts(*args: Any) -> None:
            self._work("partitions counted", COUNT * self.rates.partition * len(args[2]))
            original(*args)

        return counts

    def _all(self, kind: str, each: float, records: Sequence[Record]) -> None:
        weight = self.rates.partition
        seconds = sum(
            each * (weight if isinstance(record, PartitionRecord | PartitionChangeRecord) else 1)
            for record in records
        )
        if seconds:
            self._work(kind, seconds)

    def _reading(self, original: Callable[..., bytes]) -> Callable[..., bytes]:
        def reads(*args: Any, **rest: Any) -> bytes:
            frames = original(*args, **rest)
            self._work("bytes read", READ + READ_BYTE * self.rates.byte * len(frames))
            return frames

        return reads


def _is_much(uncounted: _Uncounted) -> bool:
    """Answer whether so much waits to be counted in the state digest that a further batch counts some of it."""
    waiting = uncounted.behind
    return (
        waiting.batches >= UNCOUNTED_SMALL_BATCHES_MAX
        or 2 * waiting.lines > vars(metadata_log.image.metadata_image)["UNCOUNTED_LINES_MAX"]
        or 2 * waiting.bytes > UNCOUNTED_BYTES_MAX
    )
