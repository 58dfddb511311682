"""Rare states of simulated lives, each with a name; a campaign counts how often they are reached, and demands that they are.

Hours prove little if nothing rare happens in them. `Markers.sometimes` counts one state. The simulator calls it for its own
outcomes; `watching` calls it for rare branches of the shipped code, which knows nothing of it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple


class Demand(NamedTuple):
    """How often a state must be reached."""

    per_hour: float
    """At least so often in each simulated hour of a campaign of the profile `broad`, and at least once."""
    in_check: int = 0
    """At least so often in the lives of `ops/check`."""


DEMANDS: Final[Mapping[str, Demand]] = {
    # Raft
    "follower truncates its log": Demand(0),
    "leader steps down without a majority": Demand(0),
    "leader steps down on a stalled disk": Demand(0),
    "leader deposed by a higher term": Demand(0),
    "leader without a vote hands over": Demand(0),
    "transfer given up": Demand(0),
    "vote refused because a leader is alive": Demand(0),
    "delayed node waits a heartbeat longer": Demand(0),
    "stranger ignored": Demand(0),
    "stranger believed after a silence": Demand(0),
    "link dropped by its reader": Demand(0),
    "offered snapshot is held already": Demand(0),
    "snapshot fetch failed": Demand(0),
    "log caught up during a snapshot fetch": Demand(0),
    "start without its snapshot refused": Demand(0),
    "log replaced by a snapshot": Demand(0),
    "long log applied before leading": Demand(0),
    "second change of voters refused": Demand(0),
    "change of voters refused by the quorum's state": Demand(0),
    "torn journal batch cut": Demand(0),
    "rotten journal refused": Demand(0),
    "rot in an unmarked journal batch": Demand(0),
    # the controller
    "result evicted": Demand(0),
    "request repeated and answered again": Demand(0),
    "evicted request carried out again": Demand(0),
    "waiter ended by a snapshot": Demand(0),
    "waiter answered from a snapshot": Demand(0),
    "waiter ended by another claim": Demand(0),
    "write overdue": Demand(0),
    "late batch refused": Demand(0),
    "leader deposed amid a decision": Demand(0),
    "read refused at a deposed leader": Demand(0),
    "read refused without a majority": Demand(0),
    "read asked of a deposed leader": Demand(0),
    "read waits at a sleeping leader": Demand(0),
    "session checks late": Demand(0),
    "fencing goes on under the next controller": Demand(0),
    "broker fenced in parts": Demand(0),
    "broker heard of amid its fencing": Demand(0),
    "poll refused by a resigning controller": Demand(0),
    "poll answered from segments": Demand(0),
    "poll overtaken by a retention": Demand(0),
    "log shortened by a retention": Demand(0),
    "segments restart at a snapshot": Demand(0),
    "snapshot not written": Demand(0),
    "damaged snapshot set aside": Demand(0),
    # brokers
    "broker takes a snapshot": Demand(0),
    "broker's session ended before its answer": Demand(0),
    "broker's epoch no longer known": Demand(0),
    "broker waits for its former process": Demand(0),
    "broker gives up registering": Demand(0),
    "broker stops in order": Demand(0),
    "broker's orderly stop takes too long": Demand(0),
    "broker unregistered": Demand(0),
    "directory failure moves leaderships": Demand(0),
    "report of an ISR refused": Demand(0),
    "last known leader elected": Demand(0),
    "partition elected uncleanly": Demand(0),
    # the weather
    "cuts overlap": Demand(0),
    "cut longer than 10 s": Demand(0),
}


class Markers:
    """What one life reached."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.reached: Counter[str] = Counter()
        self.first_at: dict[str, float] = {}
        """Simulated seconds until each was reached first."""

    def sometimes(self, name: str) -> None:
        """Count that the state with this name is reached."""
        assert name in DEMANDS, f"no marker has the name {name!r}"
        self.reached[name] += 1
        self.first_at.setdefault(name, self._now())


def missing(reached: Mapping[str, int], *, hours: float) -> list[str]:
    """Return the markers that a campaign of so many simulated hours did not reach as often as demanded."""
    return [
        name
        for name, demand in DEMANDS.items()
        if demand.per_hour and reached.get(name, 0) < max(1.0, demand.per_hour * hours)
    ]


def missing_in_check(reached: Mapping[str, int]) -> list[str]:
    """Return the markers that the lives of `ops/check` did not reach as often as demanded."""
    return [name for name, demand in DEMANDS.items() if reached.get(name, 0) < demand.in_check]
