"""How rough a simulated quorum is treated: each profile has the rates of its faults."""

import random
from dataclasses import dataclass, field, replace

from tests.simulation.faults import broad, slowness
from tests.simulation.faults.random_faults import swarm
from tests.simulation.faults.slowness import (
    BYTES_PER_SECOND,
    DOWNLOAD_SECONDS,
    LATENCY_SECONDS,
    SYNC_SECONDS,
    Slow,
)
from tests.simulation.world.network import LinkFaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How rough the weather is; times in seconds, mean between events."""

    links: LinkFaults = field(default_factory=LinkFaults)
    crash_every: float | None = None
    partition_every: float | None = None
    flap_every: float | None = None
    slow: Slow = slowness.NOTHING
    """What may be steadily slow: disks, links, downloads."""
    leads_on: bool = False
    """Nothing befalls controllers, links and disks, however slow they are: the first leader must lead on."""
    kill_leader_every: float | None = None
    """The leader's process is killed, or its machine loses power."""
    stalls: float = 0.0
    """Probability that a sync takes seconds, so that a leader gives up."""
    pause_every: float | None = None
    """A process sleeps for up to ten seconds, and finds on waking all that came meanwhile."""
    suspend_every: float | None = None
    """A machine is suspended for up to a minute, as a laptop is: its clock goes on, and nothing else."""
    saturate_every: float | None = None
    """A controller's threads for files, or for reads, are busy for seconds."""
    long_absence_every: float | None = None
    """A node is gone so long that only a snapshot brings it back."""
    transfer_every: float | None = None
    rolling_every: float | None = None
    """Every node in turn hands over, stops and starts."""
    full_disk_every: float | None = None
    failed_sync_every: float | None = None
    rot_every: float | None = None
    """A bit turns in a stopped node's journal, or in a snapshot of any node."""
    wall_clock_every: float | None = None
    """A node's wall clock jumps by up to minutes, either way."""
    broker_every: float | None = None
    """A broker sleeps, dies, restarts in order, is cut off, or reads slowly."""
    has_data: bool | None = None
    """The brokers have a data plane; None: the seed says so."""
    is_heavy: bool = False
    """The cluster is large: see `costs`."""
    change_every: float | None = None
    """A controller becomes a voter, or one no more."""
    hurries_changes: bool = False
    """Another change of voters is sometimes asked for while the one before is under way."""
    wipe_every: float | None = None
    """A controller's disk dies, and it starts on an empty one."""
    lose_journal_every: float | None = None
    """A controller's journal is gone, or as it was at its first start; what lies beside it stays."""
    lose_rack_every: float | None = None
    """All founders that vote no more lose their disks at once, and are cut off from the others when they come back."""
    replaces_in_settings: bool = False
    """Of a disk that was replaced all settings may name the new one. It is mostly formatted to join alone."""
    new_disks_are_slow: bool = False
    """The first sync on a new disk may take long, and its process may not run it."""
    snapshots_kept: int = 4
    """Where no controller runs beside the log."""
    cut_leader_every: float | None = None
    """A leader is cut off from all others, while clients go on to ask it."""
    cut_new_leaders_every: float | None = None
    """For a while every leader is cut off as soon as it is elected."""
    cut_seconds: tuple[float, float] | None = None
    """Bounds of how long a cut lasts, drawn evenly on a logarithmic scale; each cut heals by itself.
    None: a cut lasts for up to two seconds, and then all links heal.
    """
    retention_bytes: int | None = None
    """Of the committed log; None: all of it is kept."""
    results_kept: int | None = None
    """Answers that are kept for repeated requests; None: the seed says so."""
    repeat_every: float | None = None
    """A client repeats a request that was answered long ago."""
    aimed_read_every: float | None = None
    """A read is sent to each leader that sleeps, or is deposed and does not know it."""
    registration_timeout_ms: int = 60_000
    """For so long a broker waits for the session of its former process to end."""
    unregister_every: float | None = None
    """An operator unregisters a broker."""
    snapshot_bytes: int | None = None
    """A snapshot is due after so many bytes of the log; None: after as many as usual."""
    foreign_snapshots: float = 0.0
    """The share of foreign files among those that are sent as snapshots; some stand in a directory under its name."""
    has_streams: bool = False
    """Controllers are linked by the shipped transport over streams in memory; else messages travel by themselves."""
    has_caches: bool = False
    """Brokers keep the log and snapshots on disks, as shipped; else each start finds the whole image, or none."""
    is_weighty: bool = False
    """Work costs as much as in a heavy run, while all else befalls the cluster."""
    reads_late: bool = False
    """Time passes before a thread reads segments, and not only before it answers."""
    shares_work: bool = True
    """Nodes share what all of them compute alike; else each decodes and applies by itself."""
    topics_per_second: float = 0.5
    writes_per_second: float = 55.0
    reads_per_second: float = 85.0


PROFILES = {
    "calm": Profile(),
    "fifo": Profile(
        crash_every=3.0,
        partition_every=2.5,
        flap_every=4.0,
        pause_every=25.0,
        transfer_every=10.0,
        rolling_every=60.0,
        full_disk_every=60.0,
        failed_sync_every=40.0,
        rot_every=30.0,
        wall_clock_every=30.0,
        long_absence_every=40.0,
        broker_every=4.0,
    ),
    "wild": Profile(
        links=LinkFaults(lost=0.05, duplicated=0.05, late=0.05),
        crash_every=3.0,
        partition_every=2.5,
        flap_every=4.0,
        pause_every=30.0,
        transfer_every=20.0,
        rot_every=40.0,
        long_absence_every=60.0,
        broker_every=4.0,
    ),
    "nasty": Profile(
        links=LinkFaults(lost=0.08, duplicated=0.25, late=0.20),
        crash_every=1.5,
        partition_every=1.5,
        flap_every=3.0,
        stalls=0.002,
        pause_every=10.0,
        transfer_every=10.0,
        full_disk_every=20.0,
        failed_sync_every=15.0,
        rot_every=10.0,
        wall_clock_every=10.0,
        broker_every=3.0,
    ),
    "storm": Profile(
        crash_every=6.0, partition_every=0.35, flap_every=1.0, transfer_every=5.0, broker_every=2.0
    ),
    "brokers": Profile(
        links=LinkFaults(lost=0.02, duplicated=0.05, late=0.05),
        crash_every=8.0,
        partition_every=6.0,
        transfer_every=8.0,
        broker_every=0.6,
        has_data=True,
    ),
    "asleep": Profile(
        crash_every=6.0,
        partition_every=5.0,
        flap_every=4.0,
        pause_every=4.0,
        suspend_every=1.0,
        transfer_every=10.0,
        broker_every=4.0,
    ),
    "returns": Profile(transfer_every=10.0, broker_every=2.0, has_data=True),
    "heavy": Profile(wall_clock_every=20.0, broker_every=2.0, topics_per_second=2.5, is_heavy=True),
    "streams": Profile(
        links=LinkFaults(flipped=0.001),
        crash_every=8.0,
        partition_every=6.0,
        flap_every=4.0,
        pause_every=20.0,
        transfer_every=12.0,
        rolling_every=60.0,
        full_disk_every=40.0,
        failed_sync_every=30.0,
        broker_every=4.0,
        change_every=6.0,
        wipe_every=30.0,
        has_streams=True,
    ),
    "members": Profile(
        links=LinkFaults(lost=0.02, duplicated=0.05, late=0.05),
        crash_every=3.0,
        partition_every=3.0,
        flap_every=4.0,
        pause_every=20.0,
        transfer_every=10.0,
        rot_every=40.0,
        change_every=0.7,
        wipe_every=6.0,
        broker_every=8.0,
    ),
    "deposed": Profile(
        links=LinkFaults(lost=0.1, late=0.2),
        cut_leader_every=0.8,
        cut_seconds=(0.1, 2.0),
        broker_every=8.0,
    ),
    "uncommitted": Profile(
        cut_new_leaders_every=2.0, cut_seconds=(0.1, 2.0), change_every=0.1, broker_every=8.0
    ),
    "losses": Profile(
        links=LinkFaults(lost=0.08, duplicated=0.05, late=0.05),
        crash_every=6.0,
        partition_every=4.0,
        flap_every=6.0,
        stalls=0.001,
        pause_every=20.0,
        transfer_every=10.0,
        change_every=0.5,
        wipe_every=6.0,
        lose_journal_every=6.0,
        lose_rack_every=1.5,
        writes_per_second=100.0,
        replaces_in_settings=True,
        new_disks_are_slow=True,
        snapshots_kept=1,
        cut_leader_every=3.0,
        cut_seconds=(0.1, 3.0),
        broker_every=8.0,
    ),
    "slow": Profile(
        slow=Slow(
            sync_seconds=(SYNC_SECONDS[0], 1.5),
            latency_seconds=LATENCY_SECONDS,
            bytes_per_second=BYTES_PER_SECOND,
            download_seconds=DOWNLOAD_SECONDS,
        ),
        leads_on=True,
    ),
    "slow-disks": Profile(
        slow=Slow(sync_seconds=SYNC_SECONDS),
        kill_leader_every=8.0,
        transfer_every=10.0,
        change_every=12.0,
        partition_every=20.0,
        broker_every=8.0,
    ),
    "slow-links": Profile(
        slow=Slow(
            latency_seconds=LATENCY_SECONDS,
            bytes_per_second=BYTES_PER_SECOND,
            download_seconds=DOWNLOAD_SECONDS,
        ),
        kill_leader_every=8.0,
        long_absence_every=20.0,
        transfer_every=10.0,
        change_every=12.0,
        broker_every=8.0,
    ),
}


def profile_of(name: str, seed: int) -> Profile:
    """Return a profile by name; `swarm` and `broad` are another one for each seed."""
    if name not in ("swarm", broad.NAME):
        return PROFILES[name]
    rng = random.Random(seed ^ 0x11AA)
    stalls = rng.choice((0.0, 0.0005, 0.002))
    links = LinkFaults(
        lost=rng.choice((0.0, 0.0, 0.02, 0.08)),
        duplicated=rng.choice((0.0, 0.0, 0.05, 0.25)),
        late=rng.choice((0.0, 0.0, 0.0, 0.05, 0.2)),
    )
    profile = Profile(links=links, stalls=stalls, slow=slowness.of_swarm(seed))
    profile = replace(profile, **swarm(seed))  # type: ignore[arg-type]  # times, all of them
    if name != broad.NAME:
        return profile
    return replace(
        profile,
        links=replace(links, rotten=broad.rotten(seed)),
        foreign_snapshots=broad.foreign_snapshots(seed),
        **broad.drawn(seed),
    )
