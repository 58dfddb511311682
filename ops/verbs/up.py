"""Edge: `up`: a local cluster in the foreground."""

from pathlib import Path
from typing import Final

from metadata_log import limits
from ops.command_line.options import Output, Verb, flag, option, output
from ops.command_line.talk import fail_usage, say
from ops.command_line.values import from_to

FAILED = 6
LOCAL_BROKERS_MAX: Final = 50
"""Each broker is a process of some 60 MB on this machine."""


@option("--controllers", read=from_to(1, limits.CONTROLLERS_MAX), metavar="N", help="default: 3")
@option("--brokers", read=from_to(0, LOCAL_BROKERS_MAX), metavar="N", help="default: 3")
@option(
    "--dir",
    "folder",
    read=Path,
    default=Path("metaquorum-data"),
    metavar="DIR",
    help="default: ./metaquorum-data",
)
@flag("--secure", help="with TLS and identity, if the cluster is a new one")
@flag("--single", help="a new cluster: each controller, one by default, has a broker in its process")
@flag("--demo", help="show by itself what a cluster does, then stop")
@flag("--kafka", help="the same, with brokers of Apache Kafka: nodes are killed while a client produces")
@flag("--stay", help="run on after a demo")
@output
def run_up(
    asked: Output,
    *,
    controllers: int | None,
    brokers: int | None,
    folder: Path,
    secure: bool,
    single: bool,
    demo: bool,
    kafka: bool,
    stay: bool,
) -> int:
    """Run until SIGINT or SIGTERM, then stop all nodes; a second signal kills them.

    Returns 0, or what a node that failed to start ended with.
    """
    import asyncio

    from ops.local.cluster import ClusterMismatch, LocalCluster, NodeFailed
    from ops.local.foreground import Events, run_in_foreground
    from ops.processes import keep_files_private

    keep_files_private()
    if single and (demo or kafka):
        fail_usage(f"--single is without --{'kafka' if kafka else 'demo'}, which kills single nodes")
    if kafka:
        _prepare_kafka()
    cluster = LocalCluster(
        folder, controllers=controllers, brokers=brokers, secure=secure, kafka=kafka, single=single
    )
    try:
        asyncio.run(run_in_foreground(cluster, Events(asked.output), demo=demo or kafka, stay=stay))
    except ClusterMismatch as error:
        fail_usage(error.message)
    except NodeFailed as error:
        say(error.message)
        code = error.context["exit_code"]
        return code if isinstance(code, int) and code > 0 else FAILED
    return 0


def _prepare_kafka() -> None:
    """Take what Kafka's brokers need, before any node is started."""
    try:
        from ops.toolchain.jars import kafka_jars
    except ModuleNotFoundError:
        fail_usage(
            "what runs Kafka's brokers is not in the installed package; it is in the source repository of metaquorum: "
            "there, `./ops/up --kafka` installs what it needs"
        )
    kafka_jars()


NOUN: Final = Verb(
    run_up,
    examples=(
        "up",
        "up --controllers 5 --brokers 2 --dir /tmp/cluster",
        "up --single",
        "up --demo",
        "up --kafka",
    ),
)
