"""Edge: `bench broker-loss`: how soon the brokers that are left know where a dead broker's leaderships went.

Etcd gets a key for each leadership, of the bytes of a partition, under one lease. The lease is revoked, and a watch at each
of its three members, through the JSON gateway, waits for all deletions. Etcd elects no leader here: it deletes.
Tests: tests/cluster/test_bench.py.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TypedDict

from ops.bench.etcd_lease import lease_loss_ms
from ops.bench.measure import BenchmarkFailed, NotAcknowledged, figures, report
from ops.bench.our_peer import OurPeer
from ops.bench.probes import probes
from ops.bench.systems import ETCD, beside_etcd
from ops.local.layout import Member

_BROKERS: Final = 4
"""One broker dies; the three others must learn of it."""
_PARTITION_CHANGE: Final = "PartitionChange"
_REGISTRATION_CHANGE: Final = "BrokerRegistrationChange"
_TIMEOUT_S: Final = 180.0
_TOPIC_PARTITIONS: Final = 1_000
"""Of one request."""
_POLL_S: Final = 0.02


class _Asked(TypedDict):
    leaderships: int
    followed: int
    kill_leader: bool


async def broker_loss(
    peers: Sequence[str],
    *,
    rounds: int,
    leaderships: int,
    followed: int = 0,
    kill_leader: bool = False,
) -> dict[str, Any]:
    """Return p50, p99 and max, in ms, of the first fencing batch appended to the slowest broker having applied the last.

    The end is when the slowest broker applied the batch, by its own clock, which is the controllers' here. `returns` are the
    times from the start of the broker's process, which begins the restart, until it is in every ISR again.

    Kill one broker `rounds` times, each time the leader of that many partitions, and a follower of others; etcd in turn.

    With `kill_leader` the active controller is killed while it fences the broker; a new one then fences it to the end.
    """
    async with beside_etcd(peers, brokers=_BROKERS) as (directory, ours, etcd):
        victim, *others = ours.cluster.brokers
        before = await ours.elections()
        asked: _Asked = {"leaderships": leaderships, "followed": followed, "kill_leader": kill_leader}
        times: list[tuple[float, float]] = []
        theirs: list[float] = []
        for turn in range(rounds):
            times.append(
                await _lose(
                    ours,
                    victim=victim,
                    others=others,
                    name=f"lost-{turn}",
                    **asked,
                )
            )
            if etcd is not None:
                theirs.append(await lease_loss_ms(etcd, leaderships))
        own = {
            **_figures(ours.version, [lost_ms for lost_ms, _ in times]),
            "returns": [returned_ms for _, returned_ms in times],
            "elections": await ours.elections() - before,
            **await ours.stalls(),
        }
        answers = {} if etcd is None else {ETCD: _figures(etcd.version, theirs)}
        floors = probes(directory)
    return report(
        "broker-loss",
        params={**asked, "brokers_left": len(others)},
        ours=own,
        peers=answers,
        rounds=rounds,
        probes=floors,
    )


def _figures(version: str, losses: list[float]) -> dict[str, Any]:
    return {"version": version, "unit": "ms", **figures(losses), "losses": losses}


async def _lose(
    ours: OurPeer,
    *,
    victim: Member,
    others: list[Member],
    name: str,
    leaderships: int,
    followed: int,
    kill_leader: bool,
) -> tuple[float, float]:
    """Give `victim` partitions of new topics, kill it, time the news, and bring it back; return both times in ms."""
    controller = await ours.leader()
    left = [broker.id for broker in others]
    pairs = [[left[index], left[(index + 1) % len(left)]] for index in range(len(left))]
    assignment = [[victim.id, *pairs[index % len(pairs)]] for index in range(leaderships)]
    assignment += [
        [first, victim.id, second] for first, second in (pairs * (followed // len(pairs) + 1))[:followed]
    ]
    topics = [
        {"name": f"{name}-{first}", "assignment": assignment[first : first + _TOPIC_PARTITIONS]}
        for first in range(0, len(assignment), _TOPIC_PARTITIONS)
    ]
    end = 0
    for topic in topics:
        made = await ours.request("POST", f"{controller}/v1/topics", topic)
        end = made["offsets"]["end"]
    await ours.kill(victim.http)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            killed = controller if kill_leader else None
            if killed is not None:
                controller = await kill_amid_fencing(ours, killed, from_offset=end)
            await is_fenced(ours, controller, victim.id)
            began_ms, last_offset = await _fencing(ours, controller, from_offset=end)
            applied_ms = [await _applied_ms(ours, broker.http, last_offset) for broker in others]
    except (NotAcknowledged, TimeoutError) as failure:
        raise BenchmarkFailed(f"the loss of {victim.id} was not seen: {failure!r}") from None
    if killed is not None:
        await ours.restart(killed)
    restarted = time.monotonic()
    await ours.restart(victim.http)
    await online(ours, victim.http)
    await whole_again(ours, controller)
    returned_ms = (time.monotonic() - restarted) * 1000
    for topic in topics:
        await ours.request("DELETE", f"{await ours.leader()}/v1/topics/{topic['name']}")
    return round(max(applied_ms) - began_ms, 1), round(returned_ms, 1)


async def kill_amid_fencing(ours: OurPeer, leader: str, *, from_offset: int) -> str:
    """Kill the active controller once it has begun to fence, and return another controller's URL."""
    while (await ours.numbers(leader))["metaquorum_last_applied_record_offset"] < from_offset:
        await asyncio.sleep(_POLL_S)
    await ours.kill(leader)
    return next(endpoint for endpoint in ours.endpoints if endpoint != leader)


async def is_fenced(ours: OurPeer, controller: str, broker_id: int) -> None:
    """Wait until a controller has applied the fencing; it may be a follower meanwhile."""
    url = f"{controller}/v1/brokers/{broker_id}?consistency=stale"
    while (await ours.request("GET", url))["state"] != "OFFLINE":
        await asyncio.sleep(_POLL_S)


async def _applied_ms(ours: OurPeer, endpoint: str, offset: int) -> float:
    """Return the Unix time at which a broker applied the record at `offset`, by the broker's own account.

    Nothing is written after the fencing until the broker comes back, so its newest record is that one.
    """
    while True:
        numbers = await ours.numbers(endpoint)
        if numbers["metaquorum_last_applied_record_offset"] >= offset:
            return numbers["metaquorum_last_applied_record_applied_at"]
        await asyncio.sleep(_POLL_S)


async def _fencing(ours: OurPeer, controller: str, *, from_offset: int) -> tuple[float, int]:
    """Return when the first batch of the fencing was appended, in ms of Unix time, and the offset of its last record."""
    last = int((await ours.numbers(controller))["metaquorum_last_applied_record_offset"])
    first = await ours.record(controller, from_offset)
    assert first["type"] in (_PARTITION_CHANGE, _REGISTRATION_CHANGE), first
    return float(first["time_ms"]), last


async def whole_again(ours: OurPeer, controller: str) -> None:
    """Wait until the active controller sees every replica in its ISR."""
    while (await ours.numbers(controller))["metaquorum_under_replicated_partition_count"]:
        await asyncio.sleep(_POLL_S)


async def online(ours: OurPeer, endpoint: str) -> None:
    """Wait until a broker says that it is Online.

    Raises:
        BenchmarkFailed: it does not within _TIMEOUT_S.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        with suppress(NotAcknowledged):
            if (await ours.request("GET", f"{endpoint}/v1/status"))["state"] == "ONLINE":
                return
        await asyncio.sleep(_POLL_S)
    raise BenchmarkFailed(f"the broker at {endpoint} was restarted and not Online within {_TIMEOUT_S} s")
