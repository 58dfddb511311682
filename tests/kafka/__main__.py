"""Kafka's brokers for longer than in a test: `python -m tests.kafka [WHAT] [--seed 1] [--out DIR]`.

--minutes 10 (where nothing else is asked for): faults under load, drawn by the seed
--kills 50: kill -9 of the active controller under load, so often, and nothing else
--partitions 100000: how long brokers take to read so many, in turns with Kafka's own controllers
--leaderships 20000: how long a broker that leads so many waits for its controlled shutdown, beside Kafka's own controllers
--idle-brokers 1000: what so many cost the active controller; no Java
--idle-requests 60: processor time of a fetch and of a heartbeat within the process, the fastest of so many rounds; no Java
--upgrade: brokers of 4.0 to 4.3 in one cluster, and their rolling upgrade, and that of the level, under load
--takeover [--topics 1000]: a cluster of Kafka's own, taken over under load and given back
--takeover --secure: one whose controllers ask for certificates, SCRAM and PLAIN, then for certificates alone
--from-zookeeper RELEASE: brokers of 3.9.2 under a real ZooKeeper, which come here and go on as brokers of RELEASE
--large-topics 100: topics of 9,999 partitions that are created and deleted, so many; no Java

Exit code 1: an acknowledged record was lost or doubled, one failed, or a broker found a fault; or there was an election; or
a takeover changed what brokers say of the cluster.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from ops.toolchain.jars import KAFKA_VERSION, OLDER_VERSIONS, ZOOKEEPER_VERSION
from tests.kafka.catching_up import catch_up
from tests.kafka.faults import run
from tests.kafka.from_zookeeper import move
from tests.kafka.idle_brokers import idle_brokers
from tests.kafka.idle_requests import idle_requests
from tests.kafka.large_topics import large_topics
from tests.kafka.secure_takeover import take_over_secure_and_back
from tests.kafka.shutting_down import shut_down
from tests.kafka.taking_over import take_over_and_back
from tests.kafka.upgrading import upgrade


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kafka",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kills", type=int, metavar="N")
    parser.add_argument("--partitions", type=int, metavar="N")
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="brokers, with --partitions or --leaderships"
    )
    parser.add_argument("--leaderships", type=int, metavar="N")
    parser.add_argument("--idle-brokers", type=int, metavar="N")
    parser.add_argument("--idle-requests", type=int, metavar="N")
    parser.add_argument("--large-topics", type=int, metavar="N")
    parser.add_argument("--upgrade", action="store_true")
    parser.add_argument("--takeover", action="store_true")
    parser.add_argument("--secure", action="store_true", help="with --takeover")
    parser.add_argument(
        "--from-zookeeper", choices=(KAFKA_VERSION, *OLDER_VERSIONS, ZOOKEEPER_VERSION), metavar="RELEASE"
    )
    parser.add_argument("--topics", type=int, default=1000, metavar="N", help="with --takeover")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="DIR", help="empty or new; holds the data of all nodes")
    asked = parser.parse_args()
    out = asked.out or Path(tempfile.mkdtemp(prefix="kafka-"))
    print(f"logs: {out}")
    if asked.partitions is not None:
        print(asyncio.run(catch_up(out, partitions=asked.partitions, rounds=asked.rounds)))
        return 0
    if asked.leaderships is not None:
        print(asyncio.run(shut_down(out, leaderships=asked.leaderships, rounds=asked.rounds)))
        return 0
    if asked.idle_brokers is not None:
        idle = asyncio.run(idle_brokers(out, brokers=asked.idle_brokers))
        print(idle.text())
        return 1 if idle.elections else 0
    if asked.idle_requests is not None:
        print(asyncio.run(idle_requests(out, rounds=asked.idle_requests)).text())
        return 0
    if asked.large_topics is not None:
        large = asyncio.run(large_topics(out, times=asked.large_topics))
        print(large.text())
        return 1 if large.elections else 0
    if asked.upgrade:
        upgraded = asyncio.run(upgrade(out))
        print(upgraded.text())
        return 0 if upgraded.holds else 1
    if asked.from_zookeeper is not None:
        moved = asyncio.run(move(out, release=asked.from_zookeeper))
        print(moved.text())
        return 0 if moved.holds else 1
    if asked.takeover and asked.secure:
        take_over_secure_and_back(out, controllers=3, with_certificates=True)
        print("taken over, given back and taken over again: no acknowledged record is lost or doubled")
        return 0
    if asked.takeover:
        taken = take_over_and_back(out, topics=asked.topics)
        print(taken.text())
        return 0 if taken.holds else 1
    verdict = asyncio.run(run(out, minutes=asked.minutes, kills=asked.kills, seed=asked.seed))
    print(verdict.text())
    return 0 if verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
