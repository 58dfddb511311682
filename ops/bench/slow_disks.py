"""Edge: `bench slow-disks`: how long a quorum has no leader where each sync of some controllers takes long.

Real processes; a module that Python imports first in each of them sleeps before every fsync and fdatasync.
Tests: tests/cluster/test_slow_disks.py.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ops.bench.measure import BenchmarkFailed, NotAcknowledged, figures, report
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.probes import probes
from ops.local.layout import Member

SYNCS_MS: Final = (5, 100, 400, 1_500)
SLOW: Final = ("all", "two", "one")
"""The slow syncs: those of all three controllers, of both followers, or of one follower."""
SLOW_FOR_SYNCS: Final = 4
"""How many syncs the disks are slow before the leader goes, so that some sync is under way then."""
LOOK_AGAIN_S: Final = 0.005
GIVE_UP_SYNCS: Final = 40
GIVE_UP_S: Final = 60.0
SLEEPS_IN_SYNCS: Final = """
import os, time
_path = os.environ["SLOW_SYNCS"]
_fsync, _fdatasync = os.fsync, os.fdatasync
def _wait():
    with open(_path) as file:
        time.sleep(float(file.read() or 0))
def fsync(fd):
    _wait()
    _fsync(fd)
def fdatasync(fd):
    _wait()
    _fdatasync(fd)
os.fsync, os.fdatasync = fsync, fdatasync
"""


@dataclass(frozen=True, slots=True)
class SlowDisks:
    """A cluster whose controllers' syncs can be slowed down."""

    peer: OurPeer
    directory: Path

    def slow_down(self, members: Sequence[Member], seconds: float) -> None:
        """Let each sync of these controllers take that much longer, and the others' no longer than they take."""
        for member in self.peer.cluster.controllers:
            _write(_delay_of(self.directory, member), seconds if member in members else 0.0)

    def choose(self, slow: str, leader: str) -> list[Member]:
        """Return the controllers that a word of SLOW means."""
        controllers = self.peer.cluster.controllers
        followers = [member for member in controllers if member.http != leader]
        return {"all": list(controllers), "two": followers, "one": followers[:1]}[slow]


def _delay_of(directory: Path, member: Member) -> Path:
    return directory / f"delay-{member.id}"


def _write(path: Path, seconds: float) -> None:
    part = path.with_suffix(".part")
    part.write_text(str(seconds))
    part.replace(path)


@asynccontextmanager
async def on_slow_disks(directory: Path) -> AsyncIterator[SlowDisks]:
    """Run three controllers with the timers of a release; their syncs are fast at first."""
    (directory / "sitecustomize.py").write_text(SLEEPS_IN_SYNCS)

    def environment(member: Member) -> Mapping[str, str]:
        delay = _delay_of(directory, member)
        if not delay.exists():
            _write(delay, 0.0)
        path = os.pathsep.join(filter(None, (str(directory), os.environ.get("PYTHONPATH"))))
        return {"PYTHONPATH": path, "SLOW_SYNCS": str(delay)}

    async with our_peer(directory / "cluster", environment=environment) as peer:
        yield SlowDisks(peer, directory)


Strike = Callable[[OurPeer, str], Awaitable[None]]
"""Given the cluster and its leader's URL."""


async def kill(peer: OurPeer, leader: str) -> None:
    await peer.kill(leader)


async def transfer(peer: OurPeer, leader: str) -> None:
    """Ask the leader to hand over, again and again as an operator would while it refuses."""
    await peer.request("POST", f"{leader}/v1/quorum/transfer", {"to": None})


async def remove_voter(peer: OurPeer, leader: str) -> None:
    """Remove a follower's vote: a leadership under the new voters begins."""
    status = await peer.request("GET", f"{leader}/v1/quorum")
    follower = [voter for voter in status["voters"] if voter["id"] != status["leader_id"]][-1]
    what = f"{follower['id']}?directory_id={follower['directory_id']}"
    await peer.request("DELETE", f"{leader}/v1/quorum/voters/{what}")


STRIKES: Final[Mapping[str, Strike]] = {"kill": kill, "transfer": transfer, "voters": remove_voter}


async def without_leader_ms(disks: SlowDisks, *, strike: str, slow: str, sync_ms: int) -> float:
    """Return the time from the end of a leadership until a controller leads again: another one, or under other voters.

    The disks are fast again, and the quorum whole, on return.

    Raises:
        BenchmarkFailed: no controller leads within forty syncs and a minute.
    """
    peer = disks.peer
    leader = await peer.leader()
    before = await peer.request("GET", f"{leader}/v1/quorum")
    disks.slow_down(disks.choose(slow, leader), sync_ms / 1000)
    await asyncio.sleep(SLOW_FOR_SYNCS * sync_ms / 1000 + 0.5)
    began = time.perf_counter()
    try:
        async with (
            asyncio.timeout(GIVE_UP_S + GIVE_UP_SYNCS * sync_ms / 1000),
            asyncio.TaskGroup() as group,
        ):
            asked = group.create_task(_strike(STRIKES[strike], peer, leader, until=began + GIVE_UP_S))
            while not await _is_led_again(peer, before):
                await asyncio.sleep(LOOK_AGAIN_S)
            took_ms = (time.perf_counter() - began) * 1000
            asked.cancel()
    except TimeoutError:
        raise BenchmarkFailed(
            f"no controller leads after {strike} with syncs of {sync_ms} ms on {slow}"
        ) from None
    disks.slow_down((), 0.0)
    await _mend(peer, strike, leader)
    return took_ms


async def _strike(strike: Strike, peer: OurPeer, leader: str, *, until: float) -> None:
    """End a leadership; what is refused for the time being is asked for again."""
    while time.perf_counter() < until:
        try:
            await strike(peer, leader)
        except NotAcknowledged:
            await asyncio.sleep(LOOK_AGAIN_S)
        else:
            return


async def _is_led_again(peer: OurPeer, before: Mapping[str, Any]) -> bool:
    """Answer whether a controller says that it leads under a newer claim than before."""
    for member in peer.cluster.controllers:
        if peer.cluster.pid(member.id) is None:
            continue
        try:
            status = await peer.request("GET", f"{member.http}/v1/quorum")
        except NotAcknowledged:
            continue
        if status["leader_id"] == member.id and status["controller_epoch"] > before["controller_epoch"]:
            return True
    return False


async def _mend(peer: OurPeer, strike: str, leader: str) -> None:
    if strike == "kill":
        await peer.restart(leader)
    elif strike == "voters":
        await _give_votes_back(peer)
    await peer.wait_until_whole()


async def _give_votes_back(peer: OurPeer) -> None:
    """Let all three controllers vote again."""
    async with asyncio.timeout(GIVE_UP_S):
        while True:
            leader = await peer.leader()
            try:
                status = await peer.request("GET", f"{leader}/v1/quorum")
                if len(status["voters"]) == len(peer.endpoints):
                    return
                await peer.give_votes(leader, status["observers"])
            except NotAcknowledged:
                await asyncio.sleep(LOOK_AGAIN_S)


async def slow_disks(
    *, rounds: int = 3, syncs_ms: Sequence[int] = SYNCS_MS, choices: Sequence[str] = SLOW
) -> dict[str, Any]:
    """Return for each case p50, p99 and max of the time without a leader, in ms, and the worst ratio to its goal.

    Measure each strike with each sync time on each choice of disks; the goal is ten syncs and a second.
    """
    taken: dict[str, list[float]] = {}
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="metaquorum-slow-disks-") as path:
        directory = Path(path)
        async with on_slow_disks(directory) as disks:
            for sync_ms in syncs_ms:
                for slow in choices:
                    for strike in STRIKES:
                        case = f"{strike}_{sync_ms}_ms_on_{slow}_"
                        for _ in range(rounds):
                            ms = await without_leader_ms(disks, strike=strike, slow=slow, sync_ms=sync_ms)
                            taken.setdefault(case, []).append(ms)
                            worst = max(worst, ms / (10 * sync_ms + 1_000))
            floors = probes(directory)
            version = disks.peer.version
    ours: dict[str, Any] = {"version": version, "unit": "ms", "worst_of_goal": round(worst, 3)}
    for case, times in taken.items():
        ours |= figures(times, prefix=case)
    return report(
        "slow-disks",
        params={"rounds": rounds, "syncs_ms": list(syncs_ms)},
        ours=ours,
        peers={},
        rounds=rounds,
        probes=floors,
    )
