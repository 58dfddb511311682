"""What is steadily slow in one run: disks, links and downloads, each for itself, beside single stalls and late messages.

All of it is drawn from a chance of its own, so a run in which nothing is slow is the same one with and without this module.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, TypeVar

from metadata_log.ids import NodeId
from tests.simulation.faults.random_faults import log_uniform

K = TypeVar("K")
Bounds = tuple[float, float]

SYNC_SECONDS: Final[Bounds] = (0.0001, 2.0)
"""Of a sync on a steadily slow disk, drawn evenly on a logarithmic scale. Longer ones are stalls: a leader steps down."""
LATENCY_SECONDS: Final[Bounds] = (0.0001, 0.1)
"""Of one way on a slow link: the longest round trip is 200 ms, as between two continents."""
BYTES_PER_SECOND: Final[Bounds] = (20_000.0, 5_000_000.0)
"""Of one way on a narrow link. A run's entries are some hundred bytes, and up to 60 kB after an absence. That takes 3 s on
the narrowest link, as 4 MiB do at 10 Mbit/s."""
DOWNLOAD_SECONDS: Final[Bounds] = (0.3, 20.0)
"""Of a slow download of a snapshot. A run of two minutes writes a snapshot every second, or every ten."""
SWARM_SHARE: Final = 0.25
"""The share of swarm runs in which anything is steadily slow."""
CHANCE: Final = 0x1CB72
"""Mixed into the seed. The runs of the profiles `swarm` and `broad` with the seeds of our tests have nothing slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """How slow the slow parts of a run may be; None: none of these is."""

    sync_seconds: Bounds | None = None
    latency_seconds: Bounds | None = None
    bytes_per_second: Bounds | None = None
    download_seconds: Bounds | None = None


NOTHING: Final = Slow()


@dataclass(slots=True)
class Slowness:
    """How slow each part of one run is."""

    syncs: dict[NodeId, float] = field(default_factory=dict)
    """Seconds that each sync of a disk takes at least; of the others it takes no more than usual."""
    latencies: dict[frozenset[NodeId], float] = field(default_factory=dict)
    """Seconds that each message takes at least on a link, one way."""
    bandwidths: dict[frozenset[NodeId], float] = field(default_factory=dict)
    """Bytes per second that pass on a link, each way for itself; links that are not named have no bound."""
    download_seconds: Bounds | None = None
    _rng: random.Random = field(default_factory=lambda: random.Random(0))

    def download(self) -> float:
        """Return how much longer the next download takes."""
        return 0.0 if self.download_seconds is None else log_uniform(self._rng, self.download_seconds)

    def text(self) -> str:
        """Return what is slow, for the story of a run."""
        parts = [f"each sync of {node} takes {seconds * 1000:.1f} ms" for node, seconds in self.syncs.items()]
        parts += [
            f"{_ends(link)} takes {seconds * 1000:.1f} ms one way" for link, seconds in self.latencies.items()
        ]
        parts += [f"{_ends(link)} passes {rate / 1000:.0f} kB/s" for link, rate in self.bandwidths.items()]
        if self.download_seconds is not None:
            parts.append(f"downloads take {self.download_seconds[0]} to {self.download_seconds[1]} s")
        return "; ".join(parts)


def drawn(seed: int, ids: Sequence[NodeId], slow: Slow) -> Slowness:
    """Draw which parts of the run with this seed are slow, and how slow each is."""
    rng = random.Random(seed ^ 0x510E)
    found = Slowness(download_seconds=slow.download_seconds, _rng=random.Random(rng.getrandbits(64)))
    links = [frozenset(pair) for pair in combinations(ids, 2)]
    if slow.sync_seconds is not None:
        chosen = rng.choice((len(ids), 2, 1))
        found.syncs = _each(rng, rng.sample(ids, min(chosen, len(ids))), slow.sync_seconds)
    if slow.latency_seconds is not None:
        found.latencies = _each(rng, _some(rng, links), slow.latency_seconds)
    if slow.bytes_per_second is not None:
        found.bandwidths = _each(rng, _some(rng, links), slow.bytes_per_second)
    return found


def _some(rng: random.Random, links: list[frozenset[NodeId]]) -> list[frozenset[NodeId]]:
    """Return all links, or about half of them."""
    return links if rng.random() < 0.5 else [link for link in links if rng.random() < 0.5]


def _each(rng: random.Random, keys: Sequence[K], bounds: Bounds) -> dict[K, float]:
    return {key: log_uniform(rng, bounds) for key in keys}


def of_swarm(seed: int) -> Slow:
    """Return what may be slow in the run of the profiles `swarm` and `broad` with this seed: mostly nothing."""
    rng = random.Random(seed ^ CHANCE)
    if rng.random() >= SWARM_SHARE:
        return NOTHING
    return Slow(
        sync_seconds=rng.choice((None, (SYNC_SECONDS[0], 0.2), SYNC_SECONDS)),
        latency_seconds=rng.choice((None, LATENCY_SECONDS)),
        bytes_per_second=rng.choice((None, None, BYTES_PER_SECOND)),
        download_seconds=rng.choice((None, DOWNLOAD_SECONDS)),
    )


def _ends(link: frozenset[NodeId]) -> str:
    return " - ".join(map(str, sorted(link)))
