"""Edge: `up --kafka`: Kafka's brokers serve a client while a controller and a broker of theirs are killed; then the report.

Tests: tests/kafka/test_real_brokers.py.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from metadata_log.errors import Fault
from ops.admin.export import export_cluster
from ops.kafka.clients import Admin, NotAnswered, Sent, certificate, producing, read_to_end
from ops.local.cluster import Active, LocalCluster
from ops.local.demo import Demo, DidNotHappen, ms_since

TOPIC: Final = "orders"
_PARTITIONS: Final = 6
_PER_SECOND: Final = 100.0
_READ_TIMEOUT_S: Final = 60.0


class RecordsLost(Fault):
    """A record that was acknowledged is not in the topic, or is there more than once; the message counts them."""


async def run_kafka_demo(cluster: LocalCluster, tell: Callable[[str], None]) -> None:
    """Create a topic, produce and consume while nodes are killed, and tell what the log says of it.

    Raises:
        DidNotHappen: a step did not come to its end in time.
        RecordsLost: an acknowledged record was lost or doubled.
    """
    await _Demo(cluster, tell).run()


class _Demo(Demo):
    settle_s = 90.0
    """Longer than a session, and than the start of a JVM on a busy machine."""

    def __init__(self, cluster: LocalCluster, tell: Callable[[str], None]) -> None:
        super().__init__(cluster, tell)
        self._bootstrap = tuple(broker.listens for broker in cluster.brokers)
        files = cluster.admin_files
        self._shows = {} if files is None else certificate(files)

    async def run(self) -> None:
        if not self._cluster.brokers:
            raise DidNotHappen("a demo needs brokers: leave --brokers 0 out")
        await self._create_topic()
        with producing(self._bootstrap, TOPIC, per_second=_PER_SECOND, **self._shows) as sent:
            await self._until("records are acknowledged", lambda: _has_more(sent, 100))
            await self._lose_the_active_controller(sent)
            await self._lose_a_broker(sent)
        await self._consume(sent)
        await self._report()

    async def _create_topic(self) -> None:
        self._step(
            f"create {TOPIC}, and produce {_PER_SECOND:g} records a second with acks=all and idempotence",
            "an ordinary client asks a broker of Kafka's, which forwards it to the active controller in an envelope",
        )
        admin = Admin(self._bootstrap, **self._shows)
        began = time.monotonic()
        replicas = min(3, len(self._cluster.brokers))
        await self._create(admin, TOPIC, partitions=_PARTITIONS, replicas=replicas)
        self._tell(f"{TOPIC}: {_PARTITIONS} partitions of {replicas} replicas, {ms_since(began)}")

    async def _lose_the_active_controller(self, sent: Sent) -> None:
        active = await self._until("a controller is active", self._cluster.active)
        if len(self._cluster.controllers) < 3:
            self._tell("(with fewer than three controllers none of them can be lost)")
            return
        self._step(
            f"kill -9 controller {active.controller_id}, the active one",
            "another takes over, and the brokers follow it: the first topic after the kill shows when",
        )
        admin = Admin(self._bootstrap, **self._shows)
        before = len(sent.acknowledged)
        self._cluster.kill(active.controller_id)
        began = time.monotonic()
        await self._create(admin, f"after-epoch-{active.controller_epoch}")
        gap = ms_since(began)

        async def successor() -> Active | None:
            found = await self._cluster.active()
            return found if found and found.controller_epoch > active.controller_epoch else None

        found = await self._until("another controller is active", successor)
        self._tell(
            f"a topic was created {gap} after the kill, by controller {found.controller_id} of epoch "
            f"{found.controller_epoch}; meanwhile {len(sent.acknowledged) - before} records were acknowledged"
        )
        await self._cluster.start_one(active.controller_id)

    async def _lose_a_broker(self, sent: Sent) -> None:
        if len(self._cluster.brokers) < 2:
            self._tell("(a single broker cannot be lost)")
            return
        victim = self._cluster.brokers[-1].id
        self._step(
            f"kill -9 broker {victim}, and start it again once it is fenced",
            "its session ends, its leaderships move in the same batch, and the producer goes on at other brokers",
        )
        self._cluster.kill(victim)
        began = time.monotonic()
        await self._until(f"broker {victim} is fenced", lambda: self._state_is(victim, "OFFLINE"))
        self._tell(f"fenced after {ms_since(began)}; leaders of {TOPIC}: {await self._leaders()}")
        before = len(sent.acknowledged)
        await self._until("records are acknowledged", lambda: _has_more(sent, before + 100))
        began = time.monotonic()
        await self._cluster.start_one(victim)
        await self._until(f"broker {victim} is online", lambda: self._state_is(victim, "ONLINE"))
        self._tell(f"Online again {ms_since(began)} after its start")
        await self._until(f"broker {victim} is in every ISR", self._is_whole)
        self._tell(f"and in every ISR {ms_since(began)} after it")

    async def _consume(self, sent: Sent) -> None:
        self._step("consume", "each record that was acknowledged must be there, and once")
        found = await asyncio.to_thread(
            partial(read_to_end, self._bootstrap, TOPIC, timeout_s=_READ_TIMEOUT_S, **self._shows)
        )
        lost = [number for number in sent.acknowledged if not found[number]]
        doubled = [number for number, count in found.items() if count > 1]
        text = (
            f"{len(sent.acknowledged)} records acknowledged, {len(sent.failed)} failed, {len(lost)} lost, "
            f"{len(doubled)} doubled; the longest pause between two acknowledgements was {sent.longest_gap_s * 1000:.0f} ms"
        )
        if lost or doubled or sent.failed:
            raise RecordsLost(f"{text}: {[*lost, *doubled, *sent.failed][:10]}")
        self._tell(text)

    async def _report(self) -> None:
        from metadata_log import replay

        self._step(
            "what happened, as the log has it",
            "the same as `metaquorum replay report --export DIR/export`",
        )
        target = self._cluster.directory / "export"
        client = self._cluster.client()
        await asyncio.to_thread(export_cluster, client, to=target)
        self._tell(str(await asyncio.to_thread(lambda: replay.open(target).report())))

    # --- small steps

    async def _create(self, admin: Admin, name: str, *, partitions: int = 1, replicas: int = 1) -> None:
        async def created() -> bool:
            try:
                await asyncio.to_thread(admin.create_topic, name, partitions=partitions, replicas=replicas)
            except NotAnswered as error:
                if "exists" not in error.message:
                    raise
            return True

        await self._until(f"topic {name} is created", created)

    async def _partitions(self) -> list[dict[str, Any]]:
        read = self._cluster.client().read
        topic = await asyncio.to_thread(read, f"/v1/topics/{TOPIC}")
        partitions: list[dict[str, Any]] = topic["partitions"]
        return partitions

    async def _leaders(self) -> list[int]:
        return [partition["leader"] for partition in await self._partitions()]

    async def _is_whole(self) -> bool:
        return all(
            sorted(partition["isr"]) == sorted(partition["replicas"])
            for partition in await self._partitions()
        )


async def _has_more(sent: Sent, count: int) -> bool:
    return len(sent.acknowledged) >= count
