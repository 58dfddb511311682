"""Rare states of simulated runs, each with a name; a campaign counts how often they are reached, and demands that they are.

Hours prove little if nothing rare happens in them. `Markers.sometimes` counts one state. The simulator calls it for its own
outcomes; `watching` calls it for rare branches of the shipped code, which knows nothing of it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple


class Demand(NamedTuple):
    """How often a state must be reached."""

    per_hour: float
    """In a campaign of the profile `broad`, for each simulated hour: about a fifth of what was seen."""
    in_check: int = 0
    """At least so often in the broad runs of `ops/check`: about a sixth of what was seen, as every change of the code makes
    them other runs.
    """


DEMANDS: Final[Mapping[str, Demand]] = {
    # Raft
    "follower truncates its log": Demand(2),
    "leader steps down without a majority": Demand(20, 1),
    "leader steps down on a stalled disk": Demand(0.5),
    "leader deposed by a higher term": Demand(5),
    "leader without a vote hands over": Demand(2),
    "transfer given up": Demand(0.5),
    "vote refused because a leader is alive": Demand(50, 7),
    "delayed node waits a heartbeat longer": Demand(5),
    "bytes of a large message keep a leader": Demand(0.5),
    "candidacy waits for a slow disk": Demand(5),
    "stranger ignored": Demand(200, 3),
    "stranger believed after a silence": Demand(0.2),
    "link dropped by its reader": Demand(20),
    "offered snapshot is held already": Demand(5),
    "foreign snapshot not taken": Demand(0.5),
    "foreign snapshot set aside": Demand(0.5),
    "foreign snapshot not announced": Demand(5),
    "snapshot fetch failed": Demand(0.5),
    "log caught up during a snapshot fetch": Demand(0.5),
    "log outruns the download of a snapshot": Demand(0.5),
    "start without its snapshot refused": Demand(0.5),
    "log replaced by a snapshot": Demand(20),
    "log applied before leading": Demand(20),
    "second change of voters refused": Demand(0.05),
    "change of voters refused by the quorum's state": Demand(5),
    "torn journal batch cut": Demand(20),
    "rotten journal refused": Demand(5),
    "rot in an unmarked journal batch": Demand(0.05),
    # the controller
    "result evicted": Demand(200, 20),
    "request repeated and answered again": Demand(200, 20),
    "evicted request carried out again": Demand(50, 1),
    "waiter ended by a snapshot": Demand(0.05),
    "waiter answered from a snapshot": Demand(0.05),
    "waiter ended by another claim": Demand(5),
    "write overdue": Demand(200, 8),
    "late batch refused": Demand(200, 5),
    "leader deposed amid a decision": Demand(0.2),
    "large decision overtaken": Demand(0.2),
    "read refused at a deposed leader": Demand(20),
    "read refused without a majority": Demand(50, 3),
    "read asked of a deposed leader": Demand(50),
    "read waits at a sleeping leader": Demand(50, 6),
    "session checks late": Demand(5),
    "fencing goes on under the next controller": Demand(0.05),
    "broker fenced in parts": Demand(50, 4),
    "poll held until its broker is out of service": Demand(0.2),
    "poll refused by a resigning controller": Demand(50, 4),
    "poll answered from segments": Demand(200, 15),
    "poll overtaken by a retention": Demand(0.5),
    "log shortened by a retention": Demand(200, 6),
    "segments restart at a snapshot": Demand(20),
    "torn end of the log cut": Demand(20),
    "snapshot not written": Demand(2),
    "damaged snapshot set aside": Demand(0.5),
    # brokers
    "broker takes a snapshot": Demand(20, 1),
    "broker's cache opened with a log": Demand(20, 4),
    "broker's cache lost its unsynced end": Demand(5),
    "broker's rotten cache set aside": Demand(2),
    "broker's cache shortened by a snapshot": Demand(20),
    "broker's session ended before its answer": Demand(50, 1),
    "broker's epoch no longer known": Demand(5),
    "broker waits for its former process": Demand(200, 15),
    "broker gives up registering": Demand(0.05),
    "broker stops in order": Demand(20, 2),
    "broker's orderly stop takes too long": Demand(5),
    "broker unregistered": Demand(5),
    "directory failure moves leaderships": Demand(20, 5),
    "report of an ISR refused": Demand(50, 2),
    "last known leader elected": Demand(50, 2),
    "partition elected uncleanly": Demand(5, 1),
    # the weather
    "cuts overlap": Demand(20, 1),
    "cut longer than 10 s": Demand(5),
    "machine suspended": Demand(5),
    "work waits for a thread": Demand(20, 2),
    "all machines suspended": Demand(5),
}


class Markers:
    """What one run reached."""

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
    """Return the markers that a campaign of so many simulated hours did not reach as often as demanded.

    What is seen once in some hours is demanded only of campaigns that last so long.
    """
    return [name for name, demand in DEMANDS.items() if reached.get(name, 0) < int(demand.per_hour * hours)]


def missing_in_check(reached: Mapping[str, int]) -> list[str]:
    """Return the markers that the runs of `ops/check` did not reach as often as demanded."""
    return [name for name, demand in DEMANDS.items() if reached.get(name, 0) < demand.in_check]
