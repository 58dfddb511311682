"""The profile `broad`: each seed draws what its cluster is made of, how little is kept, and weather in which cuts last.

Four seeds in a row are runs of one, three and five voters, and one in which voters come and go.
"""

import random
from typing import Any, Final, NamedTuple

NAME: Final = "broad"
BROKERS: Final = (1, 1, 2, 2, 3, 3, 3, 3, 3, 4, 4, 5, 6, 8, 12, 20)
OBSERVERS: Final = (0, 0, 1, 2)
KAFKA_FOLLOWERS: Final = (0, 0, 0, 1, 2)
RESULTS_KEPT: Final = (400, 2_000, 200_000)
"""Answers kept for repeated requests; 400 are 9 s of a run's writes."""
RETENTION_BYTES: Final = (None, 60_000, 150_000)
"""A run of two minutes writes some 800 kB."""
WEIGHTY_BROKERS_MAX: Final = 4
"""Each poll may stand for thirty: more brokers would keep the controller busy with nothing but their polls."""
WEIGHT: Final = 100
"""A partition of a weighty run stands for so many. With more, controllers are busy for too long once all brokers ended."""
SHARELESS_BROKERS_MAX: Final = 4
"""More brokers share what all compute alike: each of twenty would compute once more what the first few have compared."""
CACHES_MAX: Final = 4
"""Each broker with a cache writes the whole log once more."""
USUAL_SNAPSHOT_BYTES: Final = 60_000
SNAPSHOT_BYTES: Final = (6_000, 30_000, USUAL_SNAPSHOT_BYTES, USUAL_SNAPSHOT_BYTES)
"""With the smallest one a second of writes means a snapshot: whoever misses that second needs it."""
CUT_SECONDS: Final = (0.1, 30.0)
KINDS: Final = 4


class Shape(NamedTuple):
    voters: int
    observers: int
    brokers: int


def _changes_voters(seed: int) -> bool:
    return seed % KINDS == KINDS - 1


def shape_of(seed: int) -> Shape:
    """Return what the cluster of the run with this seed is made of."""
    rng = random.Random(seed ^ 0x5AE)
    voters = rng.choice((1, 3, 5)) if _changes_voters(seed) else (1, 3, 5)[seed % KINDS]
    observers = rng.choice((1, 2)) if _changes_voters(seed) else rng.choice(OBSERVERS)
    return Shape(voters, observers, rng.choice(BROKERS))


def drawn(seed: int) -> dict[str, Any]:
    """Return what the profile of the run with this seed has beside that of a swarm."""
    rng = random.Random(seed ^ 0xB40AD)
    found: dict[str, Any] = {
        "cut_seconds": CUT_SECONDS,
        "retention_bytes": rng.choice(RETENTION_BYTES),
        "results_kept": rng.choice(RESULTS_KEPT),
        "repeat_every": rng.choice((0.5, 2.0)),
        "aimed_read_every": 0.1,
        "registration_timeout_ms": rng.choice((8_000, 60_000)),
        "hurries_changes": True,
        "snapshot_bytes": rng.choice(SNAPSHOT_BYTES),
        "is_weighty": rng.random() < 0.25 and shape_of(seed).brokers <= WEIGHTY_BROKERS_MAX,
        "reads_late": rng.random() < 0.5,
        "unregister_every": rng.choice((None, 20.0)),
        "shares_work": rng.random() < 0.78 or shape_of(seed).brokers > SHARELESS_BROKERS_MAX,
        "partition_every": rng.choice((None, 4.0, 8.0, 8.0, 16.0)),
        "pause_every": rng.choice((None, 6.0, 12.0)),
        "change_every": None,
        "wipe_every": None,
        "suspend_every": rng.choice((None, 15.0, 30.0)),
        "has_caches": rng.random() < 0.5 and shape_of(seed).brokers <= CACHES_MAX,
        "saturate_every": rng.choice((None, 5.0, 15.0)),
    }
    if found["snapshot_bytes"] < USUAL_SNAPSHOT_BYTES:
        found["results_kept"] = RESULTS_KEPT[0]  # they make up most of a snapshot
    if found["is_weighty"]:
        found["topics_per_second"] = 2.0
    if _changes_voters(seed):
        found |= {"change_every": rng.choice((1.5, 3.0, 6.0)), "wipe_every": rng.choice((None, 10.0, 20.0))}
    if shape_of(seed).voters == 1:
        # Whatever befalls the one voter ends all writes; long absences would leave nothing to count.
        found |= {
            "crash_every": rng.choice((6.0, 12.0)),
            "pause_every": rng.choice((None, 20.0)),
            "long_absence_every": None,
            "rolling_every": None,
            "broker_every": rng.choice((2.0, 4.0)),
        }
    return found


def rotten(seed: int) -> float:
    """Return the share of messages with entries in which a bit turns."""
    return random.Random(seed ^ 0xF11B).choice((0.0, 0.0, 0.001, 0.01))


def kafka_followers(seed: int) -> int:
    """Return how many brokers of Kafka follow the log, each of which ends where two leaders share an epoch."""
    return random.Random(seed ^ 0x5A5A).choice(KAFKA_FOLLOWERS)


def foreign_snapshots(seed: int) -> float:
    """Return the share of foreign files among those that are sent as snapshots."""
    return random.Random(seed ^ 0xF0E1).choice((0.0, 0.2, 0.5))
