"""Edge: `bench NAME`: run one of the measurements in ops/bench."""

import argparse
import importlib
from typing import Any

from ops import render
from ops.arguments import Noun, from_to
from ops.bench.probes import watching
from ops.talk import say, show


def add_parsers(noun: Noun) -> None:
    for name, does, has_peer in (
        ("commit", "Durable writes over HTTP: one client, and many.", True),
        ("failover", "How long writes stand still after the leader is killed.", True),
        (
            "blackhole",
            "How long writes stand still after the leader falls silent: nothing is closed, nothing comes.",
            True,
        ),
        ("handover", "How long writes stand still when leadership is handed over on purpose.", False),
        ("steady", "Full load with nothing wrong: leadership must not move.", False),
        (
            "broker-loss",
            "From fencing a broker of many leaderships to the slowest broker's applied time.",
            False,
        ),
        ("broker-start", "From opening a broker's cache of 100,000 partitions to a current image.", False),
        ("fanout", "How soon every one of many parked polls is answered with a write.", False),
        ("storm", "How soon all parked polls are answered again when their controller is killed.", False),
        ("read-storm", "What readers of the cold log and of past states cost those who write.", False),
        ("scale", "What a cluster of many partitions costs, beside one of 10,000.", False),
        ("replay-digest", "The state digest of a log of 1M records in Spark, in a warm session.", False),
    ):
        measured = noun.verb(
            name,
            does,
            run=run_bench,
            parent=noun.flags.output,
            examples=(f"bench {name} --json", *((f"bench {name} --peer etcd --json",) if has_peer else ())),
        )
        measured.set_defaults(bench=name.replace("-", "_"), has_peer=has_peer)
        measured.add_argument(
            "--peer",
            action="append",
            default=[],
            choices=("etcd",),
            help="measure it in the same run" if has_peer else "none has anything to compare here",
        )
        if name == "blackhole":
            measured.add_argument(
                "--rounds", type=from_to(1, 1_000), default=10, metavar="N", help="default: 10"
            )
            measured.add_argument(
                "--timers",
                choices=("20/150", "50/300"),
                help="heartbeat and election timeout in ms; default: both",
            )
            measured.add_argument(
                "--fault",
                choices=("freeze", "cut", "to-leader", "from-leader"),
                default="freeze",
                help="SIGSTOP, nothing passes between it and the others, or one way only; default: freeze",
            )
        if name in ("fanout", "storm"):
            for flag, most, default, what in (
                ("--polls", 10_000, 1_000, "polls that wait for news"),
                ("--processes", 64, 1, "processes that hold them"),
                ("--writes", 10_000, 20, "writes, each once all polls have the one before")
                if name == "fanout"
                else ("--rounds", 1_000, 5, "kills of the controller that leads"),
            ):
                measured.add_argument(
                    flag,
                    type=from_to(1, most),
                    default=default,
                    metavar="N",
                    help=f"{what}; default: {default}",
                )
        if name == "read-storm":
            for flag, most, default, what in (
                ("--readers", 10_000, 40, "that read, one request after the other"),
                ("--writers", 10_000, 64, "that write meanwhile"),
                ("--seconds", 36_000, 20, "of writing without readers, and again with them"),
                ("--partitions", 1_000_000, 50_000, "of the cluster whose log is read"),
            ):
                measured.add_argument(
                    flag,
                    type=from_to(1, most),
                    default=default,
                    metavar="N",
                    help=f"{what}; default: {default}",
                )
        if name == "scale":
            for flag, least, most, default, what in (
                ("--partitions", 20_000, 10_000_000, 100_000, "of the large cluster"),
                ("--topic-partitions", 1, 10_000, 1_000, "of one topic, and of one request"),
                ("--failovers", 0, 1_000, 3, "kills of the leader of each cluster"),
            ):
                measured.add_argument(
                    flag,
                    type=from_to(least, most),
                    default=default,
                    metavar="N",
                    help=f"{what}; default: {default}",
                )
        if name == "broker-loss":
            measured.add_argument(
                "--leaderships",
                type=from_to(1, 1_000_000),
                default=1_000,
                metavar="N",
                help="of the broker that dies; default: 1000",
            )
            measured.add_argument(
                "--rounds", type=from_to(1, 1_000), default=5, metavar="N", help="default: 5"
            )
        if name == "steady":
            measured.add_argument("--minutes", type=float, default=10.0, metavar="M", help="default: 10")


def run_bench(args: argparse.Namespace) -> int:
    for peer in args.peer:
        if not args.has_peer:
            say(f"{peer} has nothing to compare here; we are measured alone")
    with watching() as withheld:
        result: dict[str, Any] = importlib.import_module(f"ops.bench.{args.bench}").run(args)
    result["probes"] |= withheld
    show(args, result, table=lambda: render.fields(_flat("", result)))
    return 0


def _flat(prefix: str, value: Any) -> list[tuple[str, str]]:
    """Return `ours.p50  1.2` lines of nested figures."""
    if not isinstance(value, dict):
        return [(prefix, render.plain(value))]
    return [line for key, item in value.items() for line in _flat(f"{prefix}.{key}" if prefix else key, item)]
