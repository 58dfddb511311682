"""Pure: what a log of ours tells of time, batch by batch: the oracle of `metadata_log/replay/timeline.py`.

A fold over the batches with a clock of its own, which goes on as far as they prove.
"""

from collections.abc import Sequence
from typing import NamedTuple

from metadata_log.records.quorum import WRITE_NO_OP
from tests.support.histories import Step

SILENCE_MS = 9_000
QUIET_MS = 60_000


class Reading(NamedTuple):
    """What has passed since the first batch."""

    known_ms: int = 0
    unknown_ms: int = 0
    steps: int = 0

    def __sub__(self, other: "Reading") -> "Reading":
        return Reading(*(a - b for a, b in zip(self, other, strict=True)))


class Gap(NamedTuple):
    known_ms: int
    unknown_ms: int
    is_step: bool


def gaps(history: Sequence[Step]) -> list[Gap]:
    """Return what lies before each batch; nothing before the first."""
    times = [step.batch.appended_at_ms for step in history]
    marked = {step.batch.controller_epoch for step in history if step.batch.envelope.operation == WRITE_NO_OP}
    found = [Gap(0, 0, is_step=False)]
    for place in range(1, len(history)):
        before, after = times[place - 1], times[place]
        is_claim = history[place].batch.claim is not None
        passed = max(0, after - before)
        if is_claim and passed > SILENCE_MS:
            beyond_all_before = max(0, after - max(times[:place]))
            below_all_after = max(0, min(times[place:]) - before)
            passed = min(passed, beyond_all_before, below_all_after)
        is_known = after - before <= (
            SILENCE_MS
            if is_claim
            else QUIET_MS
            if history[place].batch.controller_epoch in marked
            else after - before
        )
        found.append(
            Gap(passed if is_known else 0, 0 if is_known else passed, is_step=passed != after - before)
        )
    return found


class Clock:
    def __init__(self, history: Sequence[Step]) -> None:
        self.history = history
        self.gaps = gaps(history)
        self.readings: list[Reading] = []
        now = Reading()
        for gap in self.gaps:
            now = Reading(
                now.known_ms + gap.known_ms, now.unknown_ms + gap.unknown_ms, now.steps + gap.is_step
            )
            self.readings.append(now)
        self._of_offset = {
            offset: place
            for place, step in enumerate(history)
            for offset in range(step.batch.base_offset, step.batch.end_offset)
        }

    def at_record(self, offset: int) -> Reading:
        return self.readings[self._of_offset[offset]]

    def at_time(self, unix_ms: int) -> tuple[int, Reading]:
        """Return up to which offset the log had been written, and the reading: just before the first later batch."""
        later = next(place for place, step in enumerate(self.history) if step.batch.appended_at_ms > unix_ms)
        last = self.history[later - 1].batch
        passed = unix_ms - last.appended_at_ms
        now, gap = self.readings[later - 1], self.gaps[later]
        return last.end_offset, now._replace(
            known_ms=now.known_ms + min(passed, gap.known_ms),
            unknown_ms=now.unknown_ms + min(passed, gap.unknown_ms),
        )
