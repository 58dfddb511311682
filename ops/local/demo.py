"""Edge: `up --demo`: what a cluster does when parts of it are lost, shown step by step and replayed in Spark.
Tests: tests/unit/ops/verbs/test_up.py.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final, TypeVar

from metadata_log.digest import digest
from metadata_log.errors import Fault, Unavailable
from ops.admin.exchange import Unreachable
from ops.admin.export import export_cluster
from ops.admin.log_frames import file_frames
from ops.command_line import render
from ops.local.cluster import LocalCluster
from ops.verbs.topics import topic_table
from ops.waits import until_async

Seen = TypeVar("Seen")
POLL_S: Final = 0.02
CLIENT_TIMEOUT_S: Final = 20.0
VERDICT: Final = "state digest: controllers = brokers = snapshot + tail = Spark"


class DigestsDiffer(Fault):
    """Two ways to compute the same state gave different results; the message names them."""


class DidNotHappen(Unavailable):
    """A step of the demo did not reach its result in time."""

    error, code = "BROKER_NOT_AVAILABLE", 8


class Demo:
    """What is shown of a running cluster, step by step; a subclass has the steps."""

    settle_s: ClassVar = 30.0
    """Far longer than a session timeout and an election."""

    def __init__(self, cluster: LocalCluster, tell: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._tell = tell
        self._steps = 0

    def _step(self, what: str, why: str) -> None:
        self._steps += 1
        self._tell(f"\n--- {self._steps}. {what}\n    {why}\n")

    async def _state_is(self, broker_id: int, state: str) -> bool:
        active = await self._cluster.active()
        return active is not None and active.broker_states.get(broker_id) == state

    async def _until(self, what: str, look: Callable[[], Awaitable[Seen | None]]) -> Seen:
        """Return the first true result of `look`.

        Raises:
            DidNotHappen: nothing within `settle_s`.
        """
        return await until_async(what, look, deadline_s=self.settle_s, poll_s=POLL_S, failure=DidNotHappen)


async def run_demo(cluster: LocalCluster, tell: Callable[[str], None]) -> None:
    """Run the demo on a cluster that is ready.

    Raises:
        DidNotHappen: a step did not come to its end in time.
        DigestsDiffer: the state is not the same everywhere.
    """
    await _Demo(cluster, tell).run()


class _Demo(Demo):
    def __init__(self, cluster: LocalCluster, tell: Callable[[str], None]) -> None:
        super().__init__(cluster, tell)
        self._client = cluster.client(timeout_s=CLIENT_TIMEOUT_S)

    async def run(self) -> None:
        if not self._cluster.brokers:
            raise DidNotHappen("a demo needs brokers: leave --brokers 0 out")
        await self._create_topics()
        await self._lose_and_return_a_broker()
        await self._lose_and_return_the_active_controller()
        await self._snapshot_and_tail()
        await self._replay()

    async def _create_topics(self) -> None:
        self._step(
            "create topics",
            "each request is decided on the active controller, agreed by a majority, synced to disk, then answered",
        )
        replicas = min(3, len(self._cluster.brokers))
        for name, partitions in (("orders", 6), ("payments", 3)):
            if name in [topic["name"] for topic in await self._items("/v1/topics")]:
                continue
            started = time.monotonic()
            body = {"name": name, "partitions": partitions, "replication_factor": replicas, "configs": {}}
            body |= {"assignment": None, "validate_only": False}
            await self._write("POST", "/v1/topics", body)
            self._tell(f"{name}: {partitions} partitions, {ms_since(started)}")
        self._tell("\n" + topic_table(await self._read("/v1/topics/orders")))

    async def _lose_and_return_a_broker(self) -> None:
        victim = self._cluster.brokers[-1].id
        before = Counter(await self._leaders())
        self._step(
            f"kill -9 broker {victim}",
            "its session runs out, the controllers fence it, and its leaderships move in the same stroke",
        )
        applied = await self._broker_status(victim)
        self._cluster.kill(victim)
        killed = time.monotonic()
        await self._until(f"broker {victim} is fenced", lambda: self._state_is(victim, "OFFLINE"))
        after = Counter(await self._leaders())
        self._tell(f"fenced after {ms_since(killed)}; leaderships per broker (-1: nobody):")
        self._tell(f"  before {_counted(before)}\n  after  {_counted(after)}")
        await self._set_config("retention.ms", "86400000")

        self._step(
            f"start broker {victim} again",
            "it opens its cache and asks for what is new only, beginning where it was when it died",
        )
        await self._cluster.start_one(victim)
        await self._until(f"broker {victim} is online", lambda: self._state_is(victim, "ONLINE"))
        status = await self._broker_status(victim)
        self._tell(
            f"Online again: it had applied {applied['applied_offset']} records, now {status['applied_offset']}; "
            f"it fetched {status['records_fetched']} records and {status['snapshots_fetched']} snapshots"
        )
        fetched_at_most = status["applied_offset"] - applied["applied_offset"]
        if status["records_fetched"] > fetched_at_most:
            # It may have died before the last frames it applied were on disk; then it fetches those again.
            again = status["records_fetched"] - fetched_at_most
            self._tell(f"(of them {again} a second time: it died before they were on its disk)")

        await self._until("every ISR is whole", self._is_whole)
        moved = [
            {"topic": name, "partition": partition["partition"]}
            for name, partition in await self._partitions()
            if partition["leader"] != partition["replicas"][0]
        ]
        if moved:
            await self._write("POST", "/v1/partitions/elect", {"election": "preferred", "partitions": moved})
        self._tell(
            "it is in every ISR again; after an election of preferred leaders, leaderships per broker:"
        )
        self._tell(f"  {_counted(Counter(await self._leaders()))}")

    async def _lose_and_return_the_active_controller(self) -> None:
        active = await self._until("a controller is active", self._cluster.active)
        if len(self._cluster.controllers) < 3:
            self._tell("\n(with fewer than three controllers none of them can be lost)")
            return
        self._step(
            f"kill -9 controller {active.controller_id}, the active one",
            "the others see its connections break and elect at once, without waiting for a timeout",
        )
        before = await self._registrations()
        self._cluster.kill(active.controller_id)
        killed = time.monotonic()
        await self._set_config("retention.ms", "3600000")
        gap = ms_since(killed)
        successor = await self._until("another controller is active", self._cluster.active)
        self._tell(
            f"the next write was acknowledged {gap} after the kill; controller {successor.controller_id} is active, "
            f"epoch {successor.controller_epoch}, before it was epoch {active.controller_epoch}"
        )
        await self._cluster.start_one(active.controller_id)

        async def registered_anew() -> bool:
            now = await self._registrations()
            return now.get(active.controller_id) != before.get(active.controller_id)

        await self._until(f"controller {active.controller_id} registered its new process", registered_anew)
        self._tell(
            f"controller {active.controller_id} is started again, catches up, and registers its new process"
        )

    async def _snapshot_and_tail(self) -> None:
        self._step("take a snapshot, and write on", "a snapshot is the log folded; what follows is the tail")
        taken = await self._write("POST", "/v1/snapshots", None)
        self._tell(f"snapshot {taken['id']}: {render.bytes_text(taken['bytes'])}")
        await self._set_config("retention.ms", "7200000")

    async def _replay(self) -> None:
        from metadata_log.replay.digest import state_digest
        from metadata_log.replay.report import report
        from metadata_log.replay.session import session

        self._step(
            "export the log and replay it in Spark",
            "the analyst's engine knows only the records, and must come to the state that everybody else has",
        )
        target = self._cluster.directory / "export"
        started = time.monotonic()
        manifest = await asyncio.to_thread(export_cluster, self._client, to=target)
        end_offset = manifest["end_offset"]
        # Before Spark starts: a quiet log gets a mark after 30 s.
        digests = await self._digests_at(end_offset)
        self._tell(f"exported {end_offset} records to {target} in {ms_since(started)}; starting Spark")
        spark = await asyncio.to_thread(session, quick=True)
        started = time.monotonic()
        replayed = await asyncio.to_thread(state_digest, target, engine="spark", spark=spark)
        self._tell(f"Spark replayed it in {ms_since(started)}\n")
        self._tell(await asyncio.to_thread(report, spark, target))
        digests["Spark"] = replayed["digest"]
        digests["the export's manifest"] = manifest["digest"]
        self._tell(render.fields((who, value) for who, value in digests.items()))
        if len(set(digests.values())) != 1 or replayed["end_offset"] != end_offset:
            raise DigestsDiffer(f"at end offset {end_offset} the state is not the same everywhere: {digests}")
        self._tell(f"\nat end offset {end_offset}, {replayed['digest']}\n{VERDICT}")

    async def _digests_at(self, end_offset: int) -> dict[str, str]:
        """Return every node's digest at one offset; nothing is written meanwhile, so all nodes reach it."""
        digests: dict[str, str] = {}
        for member in self._cluster.members:
            path = "/v1/quorum" if member.role == "controller" else "/v1/status"

            async def answered(url: str = member.http, path: str = path) -> Mapping[str, Any] | None:
                answer = await self._ask(url, path)
                return answer if answer is not None and answer["digest"]["end_offset"] >= end_offset else None

            answer = await self._until(f"{member.role} {member.id} applied {end_offset} records", answered)
            if answer["digest"]["end_offset"] != end_offset:
                raise DidNotHappen(
                    f"records were written during the comparison at {end_offset}; run the demo again"
                )
            digests[f"{member.role} {member.id}"] = answer["digest"]["value"]
        digests["snapshot + tail"] = await asyncio.to_thread(self._folded, end_offset)
        return digests

    def _folded(self, end_offset: int) -> str:
        """Return the digest of the newest snapshot on disk with the log after it applied."""
        from snapshots.fold import fold
        from snapshots.snapshot_file import read_snapshot

        newest = max(
            self._cluster.directory.glob("controller-*/snapshots/*.snapshot"), key=lambda path: path.name
        )
        image = read_snapshot(newest)
        tail = (
            frame.batch()
            for frame in file_frames(newest.parents[1])
            if image.end_offset <= frame.header.base_offset and frame.header.end_offset <= end_offset
        )
        return digest(fold(tail, onto=image))

    # --- small steps

    async def _partitions(self) -> list[tuple[str, Mapping[str, Any]]]:
        topics = [
            await self._read(f"/v1/topics/{topic['name']}") for topic in await self._items("/v1/topics")
        ]
        return [(topic["name"], partition) for topic in topics for partition in topic["partitions"]]

    async def _leaders(self) -> list[int]:
        return [partition["leader"] for _, partition in await self._partitions()]

    async def _is_whole(self) -> bool:
        partitions = [partition for _, partition in await self._partitions()]
        return all(len(partition["isr"]) == len(partition["replicas"]) for partition in partitions)

    async def _set_config(self, name: str, value: str) -> None:
        await self._write("PATCH", "/v1/configs", {"topic": "orders", "set": {name: value}, "unset": []})

    async def _broker_status(self, broker_id: int) -> Mapping[str, Any]:
        status = await self._ask(self._cluster.http(broker_id), "/v1/status")
        if status is None:
            raise DidNotHappen(f"broker {broker_id} does not tell its status")
        return status

    async def _ask(self, url: str, path: str) -> Mapping[str, Any] | None:
        try:
            answer = await asyncio.to_thread(self._client.ask_one, url, path)
            value: Mapping[str, Any] | None = answer.json() if answer.ok else None
        except Unreachable:
            return None
        return value

    async def _read(self, path: str) -> Any:
        return await asyncio.to_thread(self._client.read, path)

    async def _items(self, path: str) -> list[Mapping[str, Any]]:
        items: list[Mapping[str, Any]] = (await self._read(path))["items"]
        return items

    async def _write(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        return await asyncio.to_thread(self._client.write, method, path, body)

    async def _registrations(self) -> dict[int, int]:
        """Return the offset of each controller's registration."""
        items = await self._items("/v1/controllers")
        return {item["controller_id"]: item["registration_epoch"] for item in items}


def ms_since(began: float) -> str:
    """Return how long ago a monotonic time was, for people."""
    return f"{(time.monotonic() - began) * 1_000:.0f} ms"


def _counted(leaders: Counter[int]) -> str:
    return "  ".join(f"{broker_id}: {count}" for broker_id, count in sorted(leaders.items()))
