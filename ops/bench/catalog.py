"""Edge: the benchmarks: what each measures, beside which peer, and the options of its `run`.
Tests: tests/unit/ops/verbs/test_bench.py.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ops.command_line.options import Run, flag, option
from ops.command_line.values import from_to


@dataclass(frozen=True, slots=True)
class Bench:
    """One measurement: its module in `ops.bench` and the function there have its name, with underscores."""

    name: str
    does: str
    peers: tuple[str, ...] = ()
    no_peer: str = ""
    """Why no peer is measured, in one line; empty if there are `peers`."""
    flags: tuple[Callable[[Run], Run], ...] = ()
    """What declares each of its sizes."""

    @property
    def measure(self) -> Callable[..., Any]:
        """What measures it, given the sizes, and the `peers` if there can be some: a function or a coroutine's."""
        module = self.name.replace("-", "_")
        measure: Callable[..., Any] = getattr(importlib.import_module(f"ops.bench.{module}"), module)
        return measure


def _count(word: str, default: int, most: int, what: str = "", *, least: int = 1) -> Callable[[Run], Run]:
    """Return an option that takes a number from `least` to `most`."""
    told = f"{what}; default: {default}" if what else f"default: {default}"
    return option(word, read=from_to(least, most), default=default, metavar="N", help=told)


def timers(text: str) -> tuple[tuple[int, int], ...]:
    """Read a heartbeat and an election timeout."""
    known = {"20/150": (20, 150), "50/300": (50, 300)}
    if text not in known:
        raise ValueError(f"{text!r}: name one of {', '.join(known)}")
    return (known[text],)


def engines_of_replay(text: str) -> list[str]:
    """Read names of engines: the others are compared with the first."""
    known = ("duckdb", "spark")
    names = [name for name in known if name in text.split(",")]
    if len(names) != len(text.split(",")):
        raise ValueError(f"{text!r}: name some of {', '.join(known)}, each once")
    return names


_POLLS: Final = (
    _count("--polls", 1_000, 10_000, "polls that wait for news"),
    _count("--processes", 1, 64, "processes that hold them"),
)
_NO_HISTORY: Final = (
    "etcd keeps no log to analyse: its history ends at a compaction, and no engine reads its files"
)
BENCHES: Final = (
    Bench("commit", "Durable writes over HTTP: one client, and many.", peers=("etcd", "tls")),
    Bench("failover", "How long writes stand still after the leader is killed.", peers=("etcd", "tls")),
    Bench(
        "blackhole",
        "How long writes stand still after the leader falls silent: nothing is closed, nothing comes.",
        peers=("etcd",),
        flags=(
            _count("--rounds", 10, 1_000),
            option(
                "--timers",
                read=timers,
                default=((20, 150), (50, 300)),
                metavar="20/150|50/300",
                help="heartbeat and election timeout in ms; default: both",
            ),
            option(
                "--fault",
                choices=("freeze", "cut", "to-leader", "from-leader"),
                default="freeze",
                help="SIGSTOP, nothing passes between it and the others, or one way only; default: freeze",
            ),
        ),
    ),
    Bench(
        "handover",
        "How long writes stand still when leadership is handed over on purpose.",
        peers=("etcd",),
    ),
    Bench(
        "slow-disks",
        "How long there is no leader where each sync of some controllers takes long.",
        no_peer="Go calls the kernel without libc, so nothing that is preloaded can delay etcd's syncs",
        flags=(_count("--rounds", 3, 100),),
    ),
    Bench(
        "steady",
        "Full load with nothing wrong: leadership must not move.",
        peers=("etcd",),
        flags=(option("--minutes", read=float, default=10.0, metavar="M", help="default: 10"),),
    ),
    Bench(
        "broker-loss",
        "From fencing a broker of many leaderships to the slowest broker's applied time.",
        peers=("etcd",),
        flags=(
            _count("--leaderships", 1_000, 1_000_000, "of the broker that dies"),
            _count("--followed", 0, 1_000_000, "partitions that it follows beside these", least=0),
            _count("--rounds", 5, 1_000),
            flag("--kill-leader", help="kill -9 the active controller while it fences"),
        ),
    ),
    Bench(
        "broker-start",
        "From opening a broker's cache of 100,000 partitions to a current image.",
        no_peer="clients of etcd keep no copy of its keys on disk",
    ),
    Bench(
        "restore",
        "How long a controller takes to begin with a backup of 100,000 partitions; no process is started.",
        no_peer="etcdutl restores keys and values, and no replicas",
    ),
    Bench(
        "import-kafka",
        "How long controllers take to begin with a Kafka quorum's log of 2,000,000 records, and in how much memory.",
        no_peer="a new controller of Kafka's loads the same log as it runs, and takes over no other cluster",
        flags=(
            _count("--records", 2_000_000, 100_000_000),
            _count("--partitions", 20_000, 1_000_000),
            _count("--rounds", 1, 100),
        ),
    ),
    Bench(
        "import-zookeeper",
        "How long controllers take to begin with a ZooKeeper ensemble of 1,000 topics of 10 partitions.",
        no_peer="Kafka's own migration copies the ensemble while its brokers run, and is done when they have been restarted",
        flags=(
            _count("--topics", 1_000, 100_000),
            _count("--partitions", 10, 10_000, "of each topic"),
            _count("--rounds", 3, 100),
        ),
    ),
    Bench(
        "fanout",
        "How soon every one of many parked polls is answered with a write.",
        peers=("etcd",),
        flags=(
            *_POLLS,
            _count("--writes", 20, 10_000, "writes, each once all polls have the one before"),
            flag("--anywhere", help="the polls go to followers where the leader sends them"),
        ),
    ),
    Bench(
        "storm",
        "How soon all parked polls are answered again when their controller is killed.",
        peers=("etcd",),
        flags=(*_POLLS, _count("--rounds", 5, 1_000, "kills of the controller that leads")),
    ),
    Bench(
        "registrations",
        "How soon many new brokers, which register all at once, are Online and current.",
        no_peer="etcd has no members that register, are told of all others and are let in by the leader",
        flags=(
            _count("--brokers", 1_000, 10_000, "that register"),
            _count("--partitions", 100_000, 1_000_000, "of the cluster that they join", least=0),
        ),
    ),
    Bench(
        "read-storm",
        "What readers of the cold log and of past states cost those who write.",
        peers=("etcd",),
        flags=(
            _count("--readers", 40, 10_000, "that read, one request after the other"),
            _count("--writers", 64, 10_000, "that write meanwhile"),
            _count("--seconds", 20, 36_000, "of writing without readers, and again with them"),
            _count("--partitions", 50_000, 1_000_000, "of the cluster whose log is read"),
        ),
    ),
    Bench(
        "unread",
        "What clients that ask for 8 MiB each and read nothing cost the leader: memory, `/healthz`, elections.",
        no_peer="the figures are held against bounds of ours; etcd states none for answers that nobody reads",
        flags=(
            _count("--clients", 2_000, 10_000, "that read nothing"),
            _count("--seconds", 15, 3_600, "with each of four kinds of requests"),
        ),
    ),
    Bench(
        "scale",
        "What a cluster of many partitions costs, beside one of 10,000.",
        peers=("etcd",),
        flags=(
            _count("--partitions", 100_000, 10_000_000, "of the large cluster", least=20_000),
            _count("--topic-partitions", 1_000, 10_000, "of one topic, and of one request"),
            _count("--failovers", 3, 1_000, "kills of the leader of each cluster", least=0),
        ),
    ),
    Bench(
        "restart",
        "How long the controllers of a large cluster take from their start until the group is whole.",
        peers=("etcd",),
        flags=(
            _count("--partitions", 100_000, 10_000_000, "of the cluster"),
            _count("--rounds", 3, 1_000, "restarts of a follower, and of all controllers"),
        ),
    ),
    Bench(
        "answers",
        "How long verbs take while controllers are frozen, none leads, or all refuse.",
        no_peer="the figures are held against bounds of ours; each tool of etcd waits for its own time-out",
        flags=(_count("--rounds", 3, 100, "each with every verb in every condition"),),
    ),
    Bench(
        "soak",
        "Half of the load that saturates, for an hour: memory and open files must not grow.",
        peers=("etcd",),
        flags=(option("--minutes", read=float, default=60.0, metavar="M", help="default: 60"),),
    ),
    Bench(
        "idle",
        "What connections before any login cost a controller, in the clear and with TLS.",
        no_peer="the figures are held against bounds of ours; etcd states none for connections before a login",
        flags=(
            _count("--connections", 23_900, 24_000, "that are open at once", least=200),
            flag("--spread", help="over all three controllers"),
        ),
    ),
    Bench(
        "console",
        "How soon the web console paints and shows a change, and what open consoles cost the leader at rest.",
        no_peer="etcd has no console",
        flags=(
            _count("--rounds", 5, 1_000, "pages that are opened, and changes that are seen"),
            _count("--partitions", 100_000, 1_000_000, "of the cluster"),
            _count("--consoles", 200, 500, "that are open meanwhile"),
            _count("--seconds", 20, 3_600, "of rest, without consoles and with them"),
        ),
    ),
    Bench(
        "decisions",
        "What decisions about many partitions cost, and their longest turn of the loop; no process is started.",
        no_peer="etcd stores what its clients decide, and decides nothing about partitions",
        flags=(
            _count("--partitions", 1_000_000, 10_000_000, "of the cluster", least=1_000),
            _count("--leaderships", 10_000, 100_000, "of the broker that is lost and returns"),
            _count("--rounds", 3, 1_000),
        ),
    ),
    Bench(
        "kafka",
        "Kafka's brokers under our controllers: topics created, and the gap after kill -9 of the active controller.",
        peers=("kafka", "kafka-tuned"),
        flags=(
            _count("--creates", 200, 100_000, "topics created one after the other", least=4),
            _count("--kills", 10, 1_000, "of each system's active controller"),
            _count("--brokers", 3, 10, "of each system"),
        ),
    ),
    Bench(
        "door",
        "What a write costs outside its decision and its commit, through Kafka's listener and over HTTP.",
        no_peer="the figure is one door of ours beside the other; etcd has no second one that asks for the same",
        flags=(
            _count("--requests", 3_000, 1_000_000, "of each door in a round"),
            _count("--rounds", 5, 1_000),
        ),
    ),
    Bench(
        "kafka-records",
        "What it costs to write our log and snapshots as Kafka's, and to read Kafka's records; no process is started.",
        no_peer="etcd's log has another format, and Kafka publishes no such figure",
        flags=(
            _count("--partitions", 100_000, 10_000_000, "of the snapshot", least=1_000),
            _count("--rounds", 5, 1_000),
        ),
    ),
    Bench(
        "replay",
        "States, intervals, every analysis and reports of a large log, by DuckDB and by Spark.",
        no_peer=_NO_HISTORY,
        flags=(
            _count("--records", 1_000_000, 100_000_000, "of the log", least=1_000),
            option(
                "--engines",
                read=engines_of_replay,
                default=("duckdb", "spark"),
                metavar="NAME,...",
                help="duckdb, spark; default: both",
            ),
            flag(
                "--by-controllers",
                help="let three controllers write the log, who must agree with the engines, too",
            ),
        ),
    ),
    Bench(
        "replay-digest",
        "The state digest of a log of 1M records in Spark, in a warm session.",
        no_peer=_NO_HISTORY,
    ),
    Bench(
        "spark-source",
        "Records per second of Spark's data source over segment files, and how late the rows of its stream are.",
        no_peer=_NO_HISTORY,
        flags=(
            _count("--records", 1_000_000, 100_000_000, "of the log that is read", least=100_000),
            _count("--seconds", 30, 3_600, "that the stream is measured for"),
            _count("--per-second", 5_000, 100_000, "records appended while the stream follows", least=100),
        ),
    ),
)
