"""Campaigns: many seeds on several processes, the result of each, and what the ledger keeps of all of them."""

import gc
import logging
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace

from tests.simulation.campaign.ledger import Campaign
from tests.simulation.faults import broad
from tests.simulation.faults.profiles import PROFILES, profile_of
from tests.simulation.world.cluster import ClusterWorld
from tests.simulation.world.costs import Turns
from tests.simulation.world.kafka_followers import KafkaWorld
from tests.simulation.world.markers import DEMANDS, missing
from tests.simulation.world.world import World
from tests.support.processes import end_with

WRITES_PER_SECOND_MIN = 30.0
"""Acknowledged writes per simulated second below which a run proves too little to be counted."""
FAULTS_PER_SECOND_MIN = 0.3
HOURS_MIN = 1.0
"""A campaign of the profile `broad` that lasts for so many simulated hours must reach the markers."""
USUAL_CLIENTS = 5
USUAL_SHAPE = broad.Shape(voters=3, observers=0, brokers=3)
PROFILE_NAMES = (*PROFILES, "swarm", broad.NAME)

LISTED_MAX = 10
"""Markers that the ledger lists as never reached; of more it gives the number alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every seed of a campaign has in common."""

    profiles: Sequence[str] = ("swarm",)
    controllers: Sequence[int] | None = None
    """None, here and below: three, none and three, and in a run of the profile `broad` what its seed draws."""
    observers: int | None = None
    brokers: int | None = None
    seconds: float = 120.0
    raft_only: bool = False
    hostile: bool = False
    """Strangers speak on the controllers' ports, and bits flip on links."""

    def runs(self, seeds: Iterable[int]) -> Iterator["Run"]:
        for seed in seeds:
            for profile in self.profiles:
                shape = broad.shape_of(seed) if profile == broad.NAME else USUAL_SHAPE
                for controllers in self.controllers or (shape.voters,):
                    yield Run(
                        seed=seed,
                        profile=profile,
                        controllers=controllers,
                        observers=shape.observers if self.observers is None else self.observers,
                        brokers=shape.brokers if self.brokers is None else self.brokers,
                        seconds=self.seconds,
                        raft_only=self.raft_only,
                        hostile=self.hostile,
                    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One world to run."""

    seed: int
    profile: str
    controllers: int
    brokers: int
    seconds: float
    raft_only: bool
    observers: int = 0
    """Controllers beside the founding voters; they may become voters."""
    variations: tuple[tuple[float, int], ...] = ()
    """From so many simulated seconds on all is drawn anew, by this number."""
    hostile: bool = False

    def world(self) -> World:
        world = self._world()
        world.variations = self.variations
        return world

    def _world(self) -> World:
        profile = profile_of(self.profile, self.seed)
        if self.hostile:
            profile = replace(profile, links=profile.links.among_strangers())
        if self.raft_only:
            # A model has no frames in whose checksums a rotten bit shows.
            profile = replace(profile, links=replace(profile.links, rotten=0.0))
            return World(seed=self.seed, profile=profile, voters=self.controllers, observers=self.observers)
        followers = broad.kafka_followers(self.seed) if self.profile == broad.NAME else 0
        if followers:
            return KafkaWorld(
                seed=self.seed,
                profile=profile,
                followers=followers,
                voters=self.controllers,
                observers=self.observers,
                brokers=self.brokers,
                clients=USUAL_CLIENTS,
            )
        return ClusterWorld(
            seed=self.seed,
            profile=profile,
            voters=self.controllers,
            observers=self.observers,
            brokers=self.brokers,
            clients=USUAL_CLIENTS,
        )

    def command(self) -> str:
        level = "--raft-only" if self.raft_only else f"--brokers {self.brokers}"
        if self.observers or self.profile == broad.NAME:
            level = f"--observers {self.observers} {level}"
        level = f"--hostile {level}" if self.hostile else level
        varied = "".join(f" --vary {at:g}:{number}" for at, number in self.variations)
        return (
            f"python -m tests.simulation --seeds {self.seed} --profile {self.profile} "
            f"--controllers {self.controllers} {level} --seconds {self.seconds:g}{varied}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run; cheap to send between processes."""

    run: Run
    simulated: float
    cpu: float
    writes: int
    reads: int
    leaderships: int
    snapshots_fetched: int
    fencings: int
    recovered_after: float | None
    turns: Turns
    """The longest turns of any controller's loop."""
    faults: Counter[str]
    consequences: Counter[str]
    reached: Counter[str]
    """Markers, and how often each was reached."""
    first_at: dict[str, float]
    trace: int
    violations: tuple[str, ...]
    story: str

    @property
    def writes_per_second(self) -> float:
        return self.writes / self.simulated

    @property
    def faults_per_second(self) -> float:
        return self.faults.total() / self.simulated

    @property
    def counts(self) -> bool:
        return (
            self.writes_per_second >= WRITES_PER_SECOND_MIN
            and self.faults_per_second >= FAULTS_PER_SECOND_MIN
        )

    def line(self) -> str:
        run = self.run
        speed = self.simulated / max(self.cpu, 1e-9)
        varied = ", ".join(f"varied from {at:g} s by {number}" for at, number in run.variations)
        name = f"seed {run.seed}{f' ({varied})' if varied else ''} {run.profile} {run.controllers}c"
        if self.violations:
            return f"{name}: VIOLATED {self.violations[0]}"
        recovered = "" if self.recovered_after is None else f", well after {self.recovered_after:.1f} s"
        return (
            f"{name}: {'ok' if self.counts else 'void'}, {self.simulated:.0f} s, "
            f"{self.writes_per_second:.1f} writes/s, {self.faults_per_second:.2f} faults/s, {self.reads} reads, "
            f"{self.leaderships} leaderships, {self.fencings} fencings, {self.snapshots_fetched} snapshots fetched"
            f"{recovered}, longest turn {self.turns.longest * 1000:.0f} ms, {speed:.0f} sim-s per s, trace {self.trace:08x}"
        )

    def report(self) -> str:
        """Return what a person needs to find out what happened."""
        return "\n".join(
            (
                *(f"  {violation}" for violation in self.violations),
                f"  replay: {self.run.command()}",
                "  its last events:",
                self.story,
            )
        )


def carry_out(run: Run) -> Outcome:
    """Run one world."""
    heard = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    began = time.process_time()
    gc.collect()  # the world before
    world = run.world()
    violations = world.run(run.seconds)
    logging.disable(heard)
    return Outcome(
        run=run,
        simulated=world.loop.time(),
        cpu=time.process_time() - began,
        writes=world.writes_acknowledged,
        reads=world.reads_answered,
        leaderships=len(world.checks.leaders),
        snapshots_fetched=world.snapshots_fetched,
        fencings=world.properties.fencings if isinstance(world, ClusterWorld) else 0,
        recovered_after=world.calm.recovered_after if isinstance(world, ClusterWorld) else None,
        turns=world.costs.turns if isinstance(world, ClusterWorld) else Turns(),
        faults=world.faults,
        consequences=world.consequences,
        reached=world.markers.reached,
        first_at=world.markers.first_at,
        trace=world.network.trace,
        violations=tuple(violations),
        story=world.story.text() if violations else "",
    )


def _begin(campaign: int) -> None:
    """Begin a process that carries out runs. It ends with the campaign.

    A Ctrl-C reaches every process of the terminal: it asks the campaign to end, not the runs under way.
    """
    end_with(campaign)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def outcomes(runs: Iterable[Run], *, jobs: int, may_begin: Callable[[], bool]) -> Iterator[Outcome]:
    """Yield the result of each run as it ends, until no other may begin and all under way have ended."""
    if jobs == 1:
        for run in runs:
            if not may_begin():
                return
            yield carry_out(run)
        return
    queue = iter(runs)
    under_way: set[Future[Outcome]] = set()
    with ProcessPoolExecutor(jobs, initializer=_begin, initargs=(os.getpid(),)) as pool:
        while True:
            while len(under_way) < jobs and may_begin():
                following = next(queue, None)
                if following is None:
                    break
                under_way.add(pool.submit(carry_out, following))
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


@dataclass(slots=True)
class Totals:
    """What a campaign adds up to."""

    plan: Plan
    seeds: list[int] = field(default_factory=list)
    runs: int = 0
    counted: int = 0
    void: int = 0
    failed: int = 0
    simulated: float = 0.0
    hours_counted: float = 0.0
    cpu: float = 0.0
    writes: int = 0
    reads: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    consequences: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    recovered_after: float = 0.0
    """The longest, in seconds."""
    turns: Turns = field(default_factory=Turns)

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        if not outcome.run.variations:
            self.seeds.append(outcome.run.seed)
        self.failed += bool(outcome.violations)
        if not outcome.violations:
            if outcome.counts:
                self.counted += 1
                self.hours_counted += outcome.simulated / 3600
            else:
                self.void += 1
        self.simulated += outcome.simulated
        self.cpu += outcome.cpu
        self.writes += outcome.writes
        self.reads += outcome.reads
        self.faults.update(outcome.faults)
        self.consequences.update(outcome.consequences)
        self.reached.update(outcome.reached)
        self.recovered_after = max(self.recovered_after, outcome.recovered_after or 0.0)
        self.turns = max(self.turns, outcome.turns, key=lambda turns: turns.longest)

    @property
    def missing(self) -> list[str]:
        """The markers that this campaign should have reached more often.

        Nothing is demanded of a campaign that is short, or of other profiles.
        """
        is_named = self.plan.profiles == (broad.NAME,) and not self.plan.raft_only
        hours = self.simulated / 3600
        return missing(self.reached, hours=hours) if is_named and hours >= HOURS_MIN else []

    def text(self) -> str:
        simulated = max(self.simulated, 1e-9)
        return (
            f"{self.runs} runs, {self.counted} counted, {self.void} void (below {WRITES_PER_SECOND_MIN:.0f} acknowledged "
            f"writes or {FAULTS_PER_SECOND_MIN} faults per simulated second), {self.failed} with violations\n"
            f"{self.simulated / 3600:.2f} simulated hours, {self.hours_counted:.2f} of them counted; "
            f"{self.simulated / max(self.cpu, 1e-9):.1f} simulated seconds per second of a processor; "
            f"{self.writes / simulated:.1f} writes, {self.reads / simulated:.1f} reads and "
            f"{self.faults.total() / simulated:.2f} faults per simulated second;\n"
            f"all was well within {self.recovered_after:.1f} s of the last fault\n"
            f"longest turn: {self.turns.text()}\n"
            f"faults: {_kinds(self.faults)}\nof which came: {_kinds(self.consequences)}\n"
            f"{len(self.reached)} of {len(DEMANDS)} markers reached: {_kinds(self.reached)}\n"
            f"never reached: {', '.join(name for name in DEMANDS if name not in self.reached) or 'none'}\n"
            f"reached less often than demanded: {', '.join(self.missing) or 'none'}"
        )

    def _markers_reached(self) -> str:
        """Return how many there are, and the others' names where these are few."""
        never = [name for name in DEMANDS if name not in self.reached]
        names = f", not {'; '.join(never)}" if 0 < len(never) <= LISTED_MAX else ""
        return f"{len(self.reached)} of {len(DEMANDS)}{names}"

    def campaign(self, command: str) -> Campaign:
        """Return what the ledger keeps of this campaign, which `command` ran."""
        plan, simulated = self.plan, max(self.simulated, 1e-9)
        drawn = "drawn" if broad.NAME in plan.profiles else "3"
        brokers = "raft only" if plan.raft_only else str(drawn if plan.brokers is None else plan.brokers)
        return Campaign(
            date=time.strftime("%Y-%m-%d", time.gmtime()),
            commit=commit(),
            command=command,
            profile=", ".join(plan.profiles),
            controllers=drawn if plan.controllers is None else ", ".join(map(str, plan.controllers)),
            brokers=brokers,
            seeds=f"{min(self.seeds)}..{max(self.seeds)}" if self.seeds else "none",
            runs=self.runs,
            counted=self.counted,
            hours=round(self.hours_counted, 2),
            writes_per_s=round(self.writes / simulated, 1),
            faults_per_s=round(self.faults.total() / simulated, 2),
            simulated_s_per_s=round(self.simulated / max(self.cpu, 1e-9), 1),
            violations=self.failed,
            markers=self._markers_reached(),
        )


def _kinds(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counted.most_common()) or "none"


def commit() -> str:
    """Return the commit that is checked out, with a plus where the tree differs from it."""

    def git(*arguments: str) -> str:
        ran = subprocess.run(("git", *arguments), capture_output=True, text=True, check=False)
        return ran.stdout.strip()

    changed = git(
        "status",
        "--porcelain",
        "--",
        "quorum",
        "metadata_log",
        "snapshots",
        "broker_agent",
        "tests/simulation",
        ":!tests/simulation/campaign/kept_runs.jsonl",  # a campaign adds to it
    )
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")
