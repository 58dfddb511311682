"""Edge: `bench broker-loss`: how soon the brokers that are left know where a dead broker's leaderships went."""

import argparse
import asyncio
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ops.bench.measure import BenchmarkFailed, NotAcknowledged, figures, report
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY
from ops.cluster_layout import Member

_BROKERS: Final = 4
"""One broker dies; the three others must learn of it."""
_REGISTRATION_CHANGE: Final = "BrokerRegistrationChange"
_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.02


def run(args: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001 no peer has brokers to lose
    """Return p50, p99 and max, in ms, of fencing batch appended to the slowest broker having applied it.

    The end is when the slowest broker applied the batch, by its own clock, which is the controllers' here.
    """
    return asyncio.run(broker_loss())


async def broker_loss(*, rounds: int = 5, partitions: int = 1_000) -> dict[str, Any]:
    """Kill one broker `rounds` times, each time the leader of that many partitions."""
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        async with our_peer(Path(scratch, "ours"), brokers=_BROKERS) as ours:
            victim, *others = ours.cluster.brokers
            taken_ms = [
                await _lose(ours, victim=victim, others=others, topic=f"lost-{turn}", partitions=partitions)
                for turn in range(rounds)
            ]
        floors = probes(Path(scratch))
    return report(
        "broker-loss",
        params={"partitions": partitions, "brokers_left": len(others)},
        ours={"version": ours.version, "unit": "ms", **figures(taken_ms), "losses": taken_ms},
        peers={},
        rounds=rounds,
        probes=floors,
    )


async def _lose(ours: OurPeer, *, victim: Member, others: list[Member], topic: str, partitions: int) -> float:
    """Give `victim` the leaderships of a new topic, kill it, time the news, and bring it back."""
    controller = await ours.leader()
    left = [broker.id for broker in others]
    assignment = [
        [victim.id, left[index % len(left)], left[(index + 1) % len(left)]] for index in range(partitions)
    ]
    made = await ours.request("POST", f"{controller}/v1/topics", {"name": topic, "assignment": assignment})
    await ours.kill(victim.http)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            from_offset = made["offsets"]["end"]
            fencing = await _fencing(ours, controller, victim.id, from_offset=from_offset)
            applied_ms = [await _applied_ms(ours, broker.http, fencing["offset"]) for broker in others]
    except (NotAcknowledged, TimeoutError) as failure:
        raise BenchmarkFailed(f"the loss of {victim.id} was not seen: {failure!r}") from None
    await ours.restart(victim.http)
    await _online(ours, victim.http)
    await ours.request("DELETE", f"{await ours.leader()}/v1/topics/{topic}")
    return round(max(applied_ms) - float(fencing["time_ms"]), 1)


async def _applied_ms(ours: OurPeer, endpoint: str, offset: int) -> float:
    """Return the Unix time at which a broker applied the record at `offset`, by the broker's own account.

    Nothing is written after the fencing until the broker comes back, so its newest record is that one.
    """
    while True:
        numbers = await ours.numbers(endpoint)
        if numbers["metaquorum_last_applied_record_offset"] >= offset:
            return numbers["metaquorum_last_applied_record_applied_at"]
        await asyncio.sleep(_POLL_S)


async def _fencing(ours: OurPeer, controller: str, broker_id: int, *, from_offset: int) -> dict[str, Any]:
    """Return the record that fences the broker: the last of its batch, with the batch's time."""
    while True:
        for line in await ours.records(controller, from_offset=from_offset):
            record = line["record"]
            if line["type"] == _REGISTRATION_CHANGE and record["broker_id"] == broker_id and record["fenced"]:
                return line
        await asyncio.sleep(_POLL_S)


async def _online(ours: OurPeer, endpoint: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        with suppress(NotAcknowledged):
            if (await ours.request("GET", f"{endpoint}/v1/status"))["state"] == "ONLINE":
                return
        await asyncio.sleep(_POLL_S)
    raise BenchmarkFailed(f"the broker at {endpoint} was restarted and not Online within {_TIMEOUT_S} s")
