"""Edge: a plan of many reassignments, carried out a part at a time.

Nothing is kept of how far a plan is: the partitions themselves say it. So the same plan can be run again at any time, after
an interruption or beside another run of it: what is done or under way is found so in the state, and nothing is done twice.
"""

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from metadata_log.errors import OutcomeUnknown, Unavailable
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.limits import REASSIGNMENTS_MAX
from ops.admin.client import ClusterClient
from ops.admin.items import chunks
from ops.admin.live_state import live_image, newer_image
from ops.admin.placement_plan import Wanted
from quorum.views.partition_health import why_stuck

LOOK_AGAIN_S: Final = 0.5
"""Between two looks at the log. A part of a plan takes at least this long, so 500 at a time are at most 1,000 a second."""
SAY_S: Final = 2.0
"""Between two lines of progress."""
NO_ANSWER_S: Final = 60.0
"""A change of the active controller takes a second or so. The plan stops after this time without an answer."""


class NotAPlan(ValueError):
    """What was read is no plan; the text says why."""


def read_plan(value: Any) -> list[Wanted]:
    """Return the partitions of a plan as kafka-reassign-partitions has it, whatever else it holds.

    Raises:
        NotAPlan.
    """
    match value:
        case {"partitions": [*rows]}:
            plan = [_wanted(row, f"partitions[{at}]") for at, row in enumerate(rows)]
        case _:
            raise NotAPlan('it has no list "partitions"')
    twice = [where for where, times in Counter(one[:2] for one in plan).items() if times > 1]
    if twice:
        raise NotAPlan(f"partition {twice[0][0]}:{twice[0][1]} is named twice")
    return plan


def _wanted(row: Any, what: str) -> Wanted:
    match row:
        case {"topic": str(topic), "partition": int(partition), "replicas": None}:
            return Wanted(topic, partition, None)
        case {"topic": str(topic), "partition": int(partition), "replicas": [*replicas]} if all(
            type(each) is int for each in replicas
        ):
            return Wanted(topic, partition, tuple(replicas))
    raise NotAPlan(f'{what} must have "topic", "partition" and "replicas" (broker ids, or null)')


@dataclass(slots=True)
class Progress:
    """How far a plan is. Those that are `moved` became something else than was asked, by another request."""

    to_do: deque[Wanted]
    under_way: dict[Wanted, str | None] = field(default_factory=dict)
    """Each with why it is stuck; None: it is not."""
    done: int = 0
    refused: list[tuple[Wanted, str, str]] = field(default_factory=list)
    """Each with the error's name and text."""
    moved: list[Wanted] = field(default_factory=list)

    @property
    def stuck(self) -> int:
        return sum(why is not None for why in self.under_way.values())

    def look(self, image: MetadataImage) -> None:
        """Compare what is under way with a state."""
        for wanted in list(self.under_way):
            self._judge(wanted, image, otherwise=self.moved)

    def take(self, image: MetadataImage, at_most: int) -> list[Wanted]:
        """Take the next partitions to be reassigned, so that at most `at_most` are under way (0: no bound)."""
        chosen: list[Wanted] = []
        while self.to_do and (at_most == 0 or len(self.under_way) + len(chosen) < at_most):
            self._judge(self.to_do.popleft(), image, otherwise=chosen)
        return chosen

    def _judge(self, wanted: Wanted, image: MetadataImage, *, otherwise: list[Wanted]) -> None:
        """Count a partition as done or under way if it is; else it goes to `otherwise`."""
        self.under_way.pop(wanted, None)
        partition = _partition(image, wanted)
        if partition is not None and _is_done(partition, wanted):
            self.done += 1
        elif partition is not None and _is_on_its_way(partition, wanted):
            self.under_way[wanted] = why_stuck(image, partition)
        else:
            otherwise.append(wanted)

    def answered(self, chosen: Sequence[Wanted], results: Sequence[Mapping[str, Any]]) -> None:
        """Take in what a request was answered; whether what was accepted is done already, the next look says."""
        for wanted, result in zip(chosen, results, strict=True):
            if result["error"] is None:
                self.under_way[wanted] = None
            else:
                self.refused.append((wanted, result["error"], result["message"]))

    def line(self) -> str:
        stuck = f" ({self.stuck} stuck)" if self.stuck else ""
        refused = f", {len(self.refused)} refused" if self.refused else ""
        return f"{self.done} done, {len(self.under_way)} under way{stuck}, {len(self.to_do)} to do{refused}"

    def problems(self) -> list[dict[str, Any]]:
        """Return what stays undone: refused, made something else by another request, or stuck."""
        rows = [(wanted, error, message) for wanted, error, message in self.refused]
        rows += [
            (one, "REPLACED", "it is gone, or another request gave it other replicas") for one in self.moved
        ]
        rows += [(one, "STUCK", why) for one, why in self.under_way.items() if why is not None]
        return [
            {"topic": one.topic, "partition": one.partition, "error": error, "message": message}
            for one, error, message in rows
        ]


def _partition(image: MetadataImage, wanted: Wanted) -> PartitionImage | None:
    topic = image.topics.named(wanted.topic)
    if topic is None or not 0 <= wanted.partition < len(topic.partitions):
        return None
    return topic.partitions[wanted.partition]


def _is_done(partition: PartitionImage, wanted: Wanted) -> bool:
    if partition.adding_replicas or partition.removing_replicas:
        return False
    return wanted.replicas in (None, partition.replicas)


def _is_on_its_way(partition: PartitionImage, wanted: Wanted) -> bool:
    """Answer whether a reassignment to what is wanted is under way."""
    if not (partition.adding_replicas or partition.removing_replicas):
        return False
    removing = partition.removing_replicas
    return wanted.replicas == tuple(each for each in partition.replicas if each not in removing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrying:
    """How a plan is carried out: `more` are further fields of each request."""

    client: ClusterClient
    at_most: int
    """Of the plan's reassignments so many are under way at a time; 0: no bound."""
    patience_s: float
    """The plan ends if for this long everything under way is stuck, and nothing changes."""
    more: Mapping[str, Any]

    def run(self, plan: Sequence[Wanted]) -> Progress:
        """Carry out a plan until nothing of it can go on.

        Raises:
            Unavailable: no controller answered for NO_ANSWER_S.
        """
        progress = Progress(deque(plan))
        image: MetadataImage | None = None
        said_at = changed_at = answered_at = time.monotonic()
        before: object = None
        while True:
            try:
                image = live_image(self.client) if image is None else newer_image(self.client, image)
                progress.look(image)
                self._ask(progress, image)
                answered_at = time.monotonic()
            except (Unavailable, OutcomeUnknown) as error:
                # Whatever became of a request, the next look shows it.
                if time.monotonic() - answered_at > NO_ANSWER_S:
                    raise
                self.client.say(f"{error.message}; looking again")
            now = (progress.done, len(progress.to_do), dict(progress.under_way))
            if now != before:
                before, changed_at = now, time.monotonic()
            if self._is_at_its_end(progress, still_s=time.monotonic() - changed_at):
                return progress
            if time.monotonic() - said_at >= SAY_S:
                said_at = time.monotonic()
                self.client.say(progress.line())
            time.sleep(LOOK_AGAIN_S)

    def _ask(self, progress: Progress, image: MetadataImage) -> None:
        """Ask for the next reassignments. Those of a request without an answer go back to where they were."""
        chosen = progress.take(image, self.at_most)
        asked = 0
        try:
            for some in chunks(chosen, REASSIGNMENTS_MAX):
                body = {"partitions": [one.body() for one in some], **self.more}
                answer = self.client.write("POST", "/v1/partitions/reassign", body)
                progress.answered(some, answer["partitions"])
                asked += len(some)
        finally:
            progress.to_do.extendleft(reversed(chosen[asked:]))

    def _is_at_its_end(self, progress: Progress, *, still_s: float) -> bool:
        if not progress.under_way:
            return not progress.to_do
        # Those that are stuck keep their places, so that a plan onto a dead broker does not begin as a whole.
        is_full = self.at_most and len(progress.under_way) >= self.at_most
        can_go_on = progress.to_do and not is_full
        return progress.stuck == len(progress.under_way) and not can_go_on and still_s >= self.patience_s
