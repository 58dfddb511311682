"""What work costs in a simulated life: the process that does it is busy for so long (`virtual_loop`).

The rates are those measured on the machine of docs/measurements.md. Each life draws how fast its machine is, and how much a
partition and a poll weigh in it: a few of them then hold their controller up as a large cluster's do. Bounds by number are
made smaller by as much. The shipped code knows nothing of it: what works is wrapped from outside, for a while.

All work of a turn must fit into TURN_SECONDS_MAX, whatever a request asks: large batches are made and applied in slices.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final
from unittest.mock import patch

import broker_agent.dataless_host
import broker_agent.follower
import broker_agent.replicas
import broker_agent.reports
import quorum.controller
import quorum.decide.parts
import quorum.decide.sweeps
import quorum.raft.proposals
from broker_agent.dataless_host import VISITS_PER_TURN
from broker_agent.replicas import VISITS_PER_SLICE
from broker_agent.reports import REPORTS_MAX
from metadata_log.batch import Envelope, RecordBatch
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partition_index import PartitionIndexBuilder
from metadata_log.image.topics import TopicImage, TopicsImage
from metadata_log.limits import (
    ELECTIONS_PER_SWEEP_MAX,
    FETCH_SLICE_POLLS,
    RAFT_ENTRY_SHARED_BYTES,
    RECORDS_PER_PART_MAX,
)
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.registry import Record
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, Sliced, chunks
from quorum.controller import Controller
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision
from quorum.decide.elections import Electorate
from quorum.decide.new_partitions import NewPartitions
from quorum.decide.sweeps import Sweep
from quorum.fetch.service import FetchService
from quorum.fetch.slices import Slices
from tests.simulation.virtual_loop import Processor, VirtualLoop

_US: Final = 1e-6
VISIT: Final = 1.5 * _US
"""A partition that a walk looks at."""
LOOK: Final = 0.15 * _US
"""A partition of a topic that a sweep goes through."""
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
}
"""Bounds by number, before a life draws smaller ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How a life's machine and cluster differ from the measured machine, and from the few partitions and polls there are."""

    slowness: float = 1.0
    partition: int = 1
    """A partition stands for so many."""
    poll: int = 1
    byte: int = 1
    """A byte of the log stands for so many."""

    @property
    def turn_seconds_max(self) -> float:
        return TURN_SECONDS_MAX * max(1.0, self.slowness)


def drawn(seed: int, *, is_heavy: bool, has_data: bool) -> Rates:
    """Draw the rates of the life with this seed; a heavy one is that of a large cluster.

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
    """The turns of one life that took longest."""

    longest: float = 0.0
    """In seconds."""
    longest_kinds: tuple[tuple[str, float], ...] = ()
    """What it did, by kind: what took longest first."""

    def text(self) -> str:
        kinds = ", ".join(f"{seconds * 1000:.1f} ms {kind}" for kind, seconds in self.longest_kinds)
        return f"{self.longest * 1000:.1f} ms ({kinds})" if kinds else "0.0 ms"


class Costs:
    """Charges work to whoever does it, and keeps an eye on the turns."""

    def __init__(self, loop: VirtualLoop, rates: Rates, violated: Callable[[str], None]) -> None:
        self.rates = rates
        self.turns = Turns()
        self._loop = loop
        self._violated = violated
        self._decided = 0
        """Records decided so far."""

    def processor(self, who: object) -> Processor:
        """Return the processor of a controller's process, whose turns must be short."""
        return Processor(lambda work: self._watch(who, work))

    def _watch(self, who: object, work: dict[str, float]) -> None:
        turns, rates = self.turns, self.rates
        taken = sum(work.values())
        if taken > turns.longest:
            turns.longest = taken
            turns.longest_kinds = tuple(sorted(work.items(), key=lambda item: -item[1]))
            if taken > rates.turn_seconds_max:
                self._violated(f"turns_are_short: {who} took {turns.text()} in one turn")

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
            (Electorate, "elect", self._deciding),
            (Sweep, "_hold", self._sweeping),
            (NewPartitions, "_partition", self._deciding),
            (quorum.controller, "decide", self._requested),
            (quorum.controller, "deciding", self._requested_in_slices),
            (quorum.controller, "encoding", self._encoding),
            (quorum.controller, "apply", self._applying),
            (quorum.controller, "applying", self._applying_in_slices),
            (PartitionIndexBuilder, "_count", self._counting),
            (broker_agent.follower, "applying", self._applying_in_slices),
            (FetchService, "_arrived", self._each("polls that arrived", POLL_ARRIVES * polls)),
            (FetchService, "_deliver", self._each("polls answered", POLL_ANSWERED * polls)),
            (FetchService, "_encoded", self._each("answers encoded", ANSWER_ENCODED * polls)),
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
            (Slices, "pieces_max", polls),
            *((module, "ITEMS_BETWEEN_RESTS", weight) for module in _SLICED),
        )
        with ExitStack() as patched:
            for holder, name, wrap in works:
                patched.enter_context(patch.object(holder, name, wrap(getattr(holder, name))))
            for holder, name, by in bounds:
                usual, drawn_bound = _USUAL[name], getattr(holder, name)
                patched.enter_context(patch.object(holder, name, min(drawn_bound, max(usual // by, 1))))
            yield

    def _each(self, kind: str, seconds: float) -> Callable[[Any], Any]:
        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def works(*args: Any, **rest: Any) -> Any:
                self._work(kind, seconds)
                return original(*args, **rest)

            return works

        return wrap

    def _visiting(self, original: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def visits(*args: Any, **rest: Any) -> Iterator[Any]:
            for visited in original(*args, **rest):
                self._work("partitions visited", VISIT * self.rates.partition)
                yield visited

        return visits

    def _deciding(self, original: Callable[..., PartitionChangeRecord | None]) -> Callable[..., Any]:
        def decides(*args: Any) -> PartitionChangeRecord | None:
            record = original(*args)
            if record is not None:  # a change, or a new partition
                self._decided += 1
                self._work("records decided", DECIDE * self.rates.partition)
            return record

        return decides

    def _sweeping(self, original: Callable[..., bool]) -> Callable[..., bool]:
        def holds(*args: Any) -> bool:
            topic: TopicImage = args[3]
            self._work("partitions visited", LOOK * self.rates.partition * len(topic.partitions))
            return original(*args)

        return holds

    def _requested(self, original: Callable[..., Decision]) -> Callable[..., Decision]:
        """Charge for the records that a decision makes by itself, not partition after partition."""

        def decides(context: DecideContext, command: object) -> Decision:
            before = self._decided
            decision = original(context, command)
            if self._decided == before:
                self._all("records decided", DECIDE, decision.records)
            return decision

        return decides

    def _requested_in_slices(self, original: Callable[..., Sliced[Decision]]) -> Callable[..., Any]:
        def decides(context: DecideContext, command: object) -> Sliced[Decision]:
            before = self._decided
            decision = yield from original(context, command)
            if self._decided == before:
                self._all("records decided", DECIDE, decision.records)
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
        def applies(image: MetadataImage, batch: RecordBatch) -> Sliced[Any]:
            for some in chunks(batch.records):
                self._all("records applied", APPLY, some)
                yield
            return (yield from original(image, batch))

        return applies

    def _counting(self, original: Callable[..., None]) -> Callable[..., None]:
        def counts(*args: Any) -> None:
            self._work("partitions counted", COUNT * self.rates.partition * len(args[2]))
            original(*args)

        return counts

    def _applying(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def applies(image: MetadataImage, batch: RecordBatch) -> Any:
            self._all("records applied", APPLY, batch.records)
            return original(image, batch)

        return applies

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
