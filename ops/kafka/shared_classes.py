"""Edge: the classes of Kafka, parsed and verified once, in a file that each of its processes maps into its memory.

Java calls it class data sharing. One broker runs for a moment, and its JVM writes what it has loaded as it ends; Kafka's
tools load much of the same. A java that cannot write such a file starts each process as before, and so does one that finds
it damaged, or jars of another time or place.
Tests: tests/unit/ops/kafka/test_java.py.
"""

import os
import random
import signal
import tempfile
from pathlib import Path

from ops.command_line.talk import say
from ops.kafka.real_quorum import RealQuorum
from ops.local.layout import HOST, free_ports
from ops.toolchain.jars import QUICK_JVM, Jars, alone, kafka_jars, shared_classes


def share_classes() -> None:
    """Make the file for Kafka's newest release and this java in some seconds, unless it is there, or may not be written."""
    jars = kafka_jars()
    tools = jars.folder.parent
    if jars.classes is None and os.access(jars.folder, os.W_OK) and os.access(tools, os.W_OK):
        with alone(tools):
            if kafka_jars().classes is None:
                _make(jars)


def _make(jars: Jars) -> None:
    say("starting a broker of Kafka once, whose classes each later one shares")
    with tempfile.TemporaryDirectory(dir=jars.folder.parent) as scratch:
        made = Path(scratch, "classes.jsa")
        voter = (HOST, next(free_ports(set(), random.SystemRandom())))
        quorum = RealQuorum(Path(scratch), brokers=1, voters={1: voter})
        (broker,) = quorum.brokers
        try:
            quorum.start(1)
            quorum.use({"KAFKA_JVM_PERFORMANCE_OPTS": f"{QUICK_JVM} -XX:ArchiveClassesAtExit={made}"})
            quorum.start(broker)
            quorum.wait_until_started(broker)
            quorum.end(broker, signal.SIGTERM)
        finally:
            quorum.stop()
        if made.exists():
            made.replace(jars.folder / shared_classes(jars.java, made.stat().st_size))
