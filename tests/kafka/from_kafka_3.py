"""Edge: a quorum of Kafka 3.9 is taken over; its brokers go on as 3.9, and are then rolled to 4.3 with their level."""

import asyncio
import dataclasses
import signal
import time
from pathlib import Path

from ops.kafka.__main__ import RELEASE_VARIABLE
from ops.kafka.clients import read_to_end
from ops.toolchain.jars import KAFKA_VERSION
from tests.kafka.taking_over import DEADLINE_S, Takeover
from tests.support.processes import poll_until

RELEASE = "3.9.2"
LEVEL, NEW_LEVEL = 21, 30
"""Of metadata.version: 3.9-IV0, the newest of RELEASE, and 4.3-IV0."""


@dataclasses.dataclass(slots=True)
class Upgraded:
    """What became of the cluster; `levels` are those of metadata.version after the takeover, and at the end."""

    is_alike: bool = False
    """After the takeover the brokers said the same of the cluster as before it."""
    logins: int = 0
    levels: tuple[int, ...] = ()
    acknowledged: int = 0
    failed: int = 0
    lost: int = 0
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return (
            self.is_alike
            and self.logins == 3
            and self.levels == (LEVEL, NEW_LEVEL)
            and self.acknowledged > 0
            and not (self.failed or self.lost)
        )

    def text(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in dataclasses.asdict(self).items())


def take_over_and_upgrade(
    directory: Path, *, controllers: int, kafka_controllers: int, brokers: int
) -> Upgraded:
    """Take a cluster of RELEASE over under load, roll its brokers to KAFKA_VERSION, and raise the level."""
    began, found = time.monotonic(), Upgraded()
    run = Takeover(
        directory,
        controllers=controllers,
        brokers=brokers,
        kafka_controllers=kafka_controllers,
        users=2,
        follows=True,
        release=RELEASE,
    )
    try:
        run.start_kafka()
        names = run.fill(topics=4, quotas=2)
        with run.load(names[:2]):
            run.progress()
            found.logins += run.log_in(names[-1])
            before = run.described(names)
            run.take_over()
            run.wait_for_topic("taken-over")
            run.progress()
            found.is_alike = run.described(names) == before
            found.logins += run.log_in(names[-1])
            found.levels = (_level(run),)
            run.kafka.use({RELEASE_VARIABLE: KAFKA_VERSION})
            for broker_id in run.kafka.brokers:
                _wait_until_whole(run, names)
                run.kafka.end(broker_id, signal.SIGTERM)
                run.kafka.restart(broker_id)
            _wait_until_whole(run, names)
            update = {"feature": "metadata.version", "level": NEW_LEVEL, "upgrade_type": "upgrade"}
            run.ours.client().write("POST", "/v1/features", {"updates": [update]})
            found.levels += (_level(run),)
            run.wait_for_topic("upgraded")
            found.logins += run.log_in(names[-1])
            run.progress()
        for topic, sent in run.sent:
            read = read_to_end(run.bootstrap, topic, timeout_s=DEADLINE_S)
            found.acknowledged += len(sent.acknowledged)
            found.failed += len(sent.failed)
            found.lost += sum(1 for number in sent.acknowledged if not read[number])
    finally:
        run.kafka.stop()
        asyncio.run(run.ours.stop())
    found.seconds = round(time.monotonic() - began, 1)
    return found


def _level(run: Takeover) -> int:
    features = run.ours.client().read("/v1/features")["items"]
    return next(int(each["level"]) for each in features if each["feature"] == "metadata.version")


def _wait_until_whole(run: Takeover, names: list[str]) -> None:
    def is_whole() -> bool:
        client = run.ours.client()
        return all(
            sorted(each["isr"]) == sorted(each["replicas"])
            for name in names
            for each in client.read(f"/v1/topics/{name}")["partitions"]
        )

    poll_until(is_whole, deadline_s=DEADLINE_S, what="every replica is in sync")
