"""Edge: the faults of a run, drawn by seed: links, processes, disks; at most one controller is down at a time."""

import asyncio
import errno
import random
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from metadata_log.errors import MetadataError
from ops.admin.client import leader_url
from ops.local.cluster import ASK_TIMEOUT_S, LocalCluster, object_at
from ops.local.member_processes import ended_with
from tests.robustness import proxies as links
from tests.robustness.proxies import LinkFault, Proxies

FAULT_S: Final = (1.0, 6.0)
PAUSE_S: Final = (0.5, 4.0)
STOPPED_S_MAX: Final = 10.0
CHANGE_S_MAX: Final = 30.0
READY_S_MAX: Final = 60.0
"""From a controller's start until it follows. The other lane may harm its links meanwhile, or the leader's, for 6 s at a
time, and in any pause between two such faults it has time to follow."""
POLL_S: Final = 0.05
KILLED: Final = "SIGKILL: "
STOPPED: Final = "exit code 0: "
WITHOUT_ROOM: Final = "exit code 6: metaquorum: DiskFailed: "
"""How a process ends, as `how_it_ended` begins, that was killed, was asked to end, or found its disk full."""
BOTH: Final = ("upstream", "downstream")
"""Of a link, from who dialled and to him."""


@dataclass(slots=True)
class Fault:
    """One fault as it happened; times are monotonic, in ns. `end_ns` is None while it lasts."""

    kind: str
    where: str
    begin_ns: int
    end_ns: int | None = None


@dataclass(slots=True)
class Faults:
    """Lets things go wrong until it is told to stop."""

    cluster: LocalCluster
    proxies: Proxies
    rng: random.Random
    small_disks: dict[int, Path]
    """Data directories on file systems of their own, which may be filled up, by controller."""
    happened: list[Fault] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    """Who ended otherwise than by a fault, or did not come back from one."""
    _down: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a controller is down: the others are a majority."""

    @property
    def active(self) -> bool:
        return any(fault.end_ns is None for fault in self.happened[-8:])

    async def see_all_run(self) -> None:
        """Wait until all controllers follow: two make a quorum, but no signal ends a third in order that is too young."""
        for member in self.cluster.controllers:
            await self._start(member.id)

    async def run(self, end: float, *, lanes: int = 2) -> None:
        """Go on until the monotonic time `end`, with up to `lanes` faults at a time; then all is sound again."""
        async with asyncio.TaskGroup() as group:
            for _ in range(lanes):
                group.create_task(self._lane(end))

    async def _lane(self, end: float) -> None:
        kinds = self._kinds()
        while time.monotonic() < end:
            await asyncio.sleep(self.rng.uniform(*PAUSE_S))
            if time.monotonic() >= end:
                return
            name = self.rng.choice(sorted(kinds))
            await kinds[name](name)

    def _kinds(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        rng = self.rng
        kinds: dict[str, Callable[[str], Awaitable[None]]] = {
            "cut": lambda kind: self._harm_pair(kind, links.CUT),
            "black hole": lambda kind: self._harm_pair(kind, links.BLACK_HOLE),
            "isolated": self._isolate,
            "one way": self._one_way,
            "latency": lambda kind: self._harm_pair(kind, links.latency(rng)),
            "bandwidth": lambda kind: self._harm_pair(kind, links.bandwidth(rng)),
            "slicer": lambda kind: self._harm_pair(kind, links.slicer(rng)),
            "reset": lambda kind: self._harm_pair(kind, links.RESET),
            "limit data": lambda kind: self._harm_pair(kind, links.limit_data(rng)),
            "clients cut off": lambda kind: self._cut_off(kind, self._one_of("clients-")),
            "clients slowed": lambda kind: self._slow(kind, self._one_of("clients-")),
            "downloads cut off": lambda kind: self._cut_off(kind, self._one_of("peers-")),
            "brokers cut off": lambda kind: self._cut_off(kind, self._links_of_all_brokers()),
            "broker isolated": lambda kind: self._cut_off(kind, self._links_of_one_broker()),
            "broker cut off": lambda kind: self._cut_off(kind, self._one_of("broker-")),
            "broker slowed": lambda kind: self._slow(kind, self._some_links_of_one_broker()),
            "broker one way": self._one_way_of_broker,
            "kill -9 leader": lambda kind: self._kill(kind, leader=True),
            "kill -9 follower": lambda kind: self._kill(kind, leader=False),
            "kill -9 broker": self._kill_broker,
            "SIGSTOP": self._stop,
            "SIGSTOP broker": self._stop_broker,
            "restart": self._restart,
            "transfer": self._transfer,
            "change of voters": self._change_voters,
        }
        if self.small_disks:
            kinds["full disk"] = self._fill_disk
        return kinds

    # --- one fault each

    def _began(self, kind: str, where: str) -> Fault:
        fault = Fault(kind, where, time.monotonic_ns())
        self.happened.append(fault)
        return fault

    async def _last(self, fault: Fault, seconds: float | None = None) -> None:
        await asyncio.sleep(self.rng.uniform(*FAULT_S) if seconds is None else seconds)

    async def _harm(self, kind: str, streams: Mapping[str, tuple[str, ...]], fault: LinkFault) -> None:
        """Give each named link a fault, in the streams named with it."""
        harmed = [
            name
            for name, harms in streams.items()
            if await asyncio.to_thread(self.proxies.harm, name, fault, streams=harms)
        ]
        if not harmed:
            return
        happening = self._began(kind, ",".join(harmed))
        await self._last(happening)
        for name in harmed:
            await asyncio.to_thread(self.proxies.heal, name)
        happening.end_ns = time.monotonic_ns()

    async def _harm_pair(self, kind: str, fault: LinkFault) -> None:
        name = self.rng.choice(self.proxies.names("raft-"))
        await self._harm(kind, dict.fromkeys((name, _other_half(name)), BOTH), fault)

    async def _isolate(self, kind: str) -> None:
        """Black-hole one controller, most often the leader, from its peers."""
        active = await self.cluster.active()
        node_id = self.rng.choice([member.id for member in self.cluster.controllers])
        if active is not None and self.rng.random() < 0.7:
            node_id = active.controller_id
        names = [name for name in self.proxies.names("raft-") if str(node_id) in name.split("-")[1:]]
        await self._harm(kind, dict.fromkeys(names, BOTH), self.rng.choice((links.BLACK_HOLE, links.CUT)))

    async def _one_way(self, kind: str) -> None:
        """Black-hole some pairs in one direction, whoever of the two has dialled."""
        names = [name for name in self.proxies.names("raft-") if name < _other_half(name)]
        chosen = self.rng.sample(names, self.rng.randint(1, len(names)))
        there, back = self.rng.sample(BOTH, 2)
        streams = dict.fromkeys(chosen, (there,)) | {_other_half(name): (back,) for name in chosen}
        await self._harm(kind, streams, links.BLACK_HOLE)

    def _one_of(self, prefix: str) -> list[str]:
        return [self.rng.choice(self.proxies.names(prefix))]

    def _links_of_all_brokers(self) -> list[str]:
        """Return the links from every broker to one controller."""
        node_id = self.rng.choice(self.cluster.controllers).id
        return [name for name in self.proxies.names("broker-") if name.endswith(f"-{node_id}")]

    def _links_of_one_broker(self) -> list[str]:
        """Return the links from one broker to every controller."""
        return self.proxies.names(f"broker-{self.rng.choice(self.cluster.brokers).id}-")

    def _some_links_of_one_broker(self) -> list[str]:
        """Return the links from one broker to every controller, or to one."""
        return self.rng.choice((self._links_of_one_broker, lambda: self._one_of("broker-")))()

    async def _cut_off(self, kind: str, names: list[str]) -> None:
        fault = self.rng.choice((links.CUT, links.BLACK_HOLE, links.RESET))
        await self._harm(kind, dict.fromkeys(names, BOTH), fault)

    async def _slow(self, kind: str, names: list[str]) -> None:
        rng = self.rng
        fault = rng.choice((links.latency(rng), links.bandwidth(rng), links.slicer(rng)))
        await self._harm(kind, dict.fromkeys(names, BOTH), fault)

    async def _one_way_of_broker(self, kind: str) -> None:
        """Black-hole what a broker asks, or what it is answered."""
        stream = self.rng.choice(BOTH)
        await self._harm(kind, dict.fromkeys(self._some_links_of_one_broker(), (stream,)), links.BLACK_HOLE)

    async def _kill(self, kind: str, *, leader: bool) -> None:
        async with self._down:
            active = await self.cluster.active()
            if active is None:
                return
            ids = [member.id for member in self.cluster.controllers]
            others = [node_id for node_id in ids if node_id != active.controller_id]
            node_id = active.controller_id if leader else self.rng.choice(others)
            await self._see_it_run(node_id)
            happening = self._began(kind, f"controller {node_id}")
            await asyncio.to_thread(self.cluster.kill, node_id)
            await self._last(happening)
            await self._start(node_id, right=KILLED)
            happening.end_ns = time.monotonic_ns()

    async def _broker(self, kind: str) -> tuple[int, Fault] | None:
        """Begin a fault of a broker's process, which runs; None: the other lane has one under way with it."""
        node_id = self.rng.choice([member.id for member in self.cluster.brokers])
        where = f"broker {node_id}"
        if any(fault.where == where and fault.end_ns is None for fault in self.happened):
            return None
        happening = self._began(kind, where)
        await self._revive(node_id)
        return node_id, happening

    async def _kill_broker(self, kind: str) -> None:
        begun = await self._broker(kind)
        if begun is None:
            return
        node_id, happening = begun
        await asyncio.to_thread(self.cluster.kill, node_id)
        await self._last(happening)
        await self._revive(node_id, right=KILLED)
        happening.end_ns = time.monotonic_ns()

    async def _stop_broker(self, kind: str) -> None:
        """Let a broker sleep, perhaps beyond its session: awake again, it may not serve as if nothing had been."""
        begun = await self._broker(kind)
        if begun is None:
            return
        node_id, happening = begun
        self.cluster.signal(node_id, signal.SIGSTOP)
        await self._last(happening, self.rng.uniform(0.2, STOPPED_S_MAX))
        self.cluster.signal(node_id, signal.SIGCONT)
        happening.end_ns = time.monotonic_ns()

    async def _stop(self, kind: str) -> None:
        async with self._down:
            node_id = self.rng.choice([member.id for member in self.cluster.controllers])
            await self._see_it_run(node_id)
            happening = self._began(kind, f"controller {node_id}")
            self.cluster.signal(node_id, signal.SIGSTOP)
            await self._last(happening, self.rng.uniform(0.2, STOPPED_S_MAX))
            self.cluster.signal(node_id, signal.SIGCONT)
            happening.end_ns = time.monotonic_ns()

    async def _restart(self, kind: str) -> None:
        async with self._down:
            node_id = self.rng.choice([member.id for member in self.cluster.controllers])
            await self._see_it_run(node_id)
            happening = self._began(kind, f"controller {node_id}")
            self.cluster.signal(node_id, signal.SIGTERM)
            while self.cluster.pid(node_id) is not None:
                await asyncio.sleep(POLL_S)
            await self._start(node_id, right=STOPPED)
            happening.end_ns = time.monotonic_ns()

    async def _transfer(self, kind: str) -> None:
        happening = self._began(kind, "the leader")
        client = self.cluster.client(timeout_s=2.0)
        with suppress(Exception):  # nobody leads, or nobody takes over: the next one may
            await asyncio.to_thread(client.write, "POST", "/v1/quorum/transfer", {"to": None})
        happening.end_ns = time.monotonic_ns()

    async def _change_voters(self, kind: str) -> None:
        """Take a controller's vote, perhaps the leader's, and give it back after a while."""
        async with self._down:
            node_id = self.rng.choice([member.id for member in self.cluster.controllers])
            await self._see_it_run(node_id)
            happening = self._began(kind, f"controller {node_id}")
            if await self._has_changed(node_id, "voters", "observers"):
                await self._last(happening)
            # Whatever came of the first change: it may have been carried out although no answer said so.
            await self._has_changed(node_id, "observers", "voters")
            happening.end_ns = time.monotonic_ns()

    async def without_a_vote(self) -> list[int]:
        """Return which controllers could not be given their votes back now that all is well."""
        ids = [member.id for member in self.cluster.controllers]
        return [
            node_id
            for node_id in ids
            if not await self._has_changed(node_id, "observers", "voters", within_s=READY_S_MAX)
        ]

    async def _has_changed(
        self, node_id: int, before: str, after: str, *, within_s: float | None = None
    ) -> bool:
        """Ask until a controller is no longer among `before` but among `after`; answer whether it is, in time."""
        deadline = time.monotonic() + (CHANGE_S_MAX if within_s is None else within_s)
        while time.monotonic() < deadline:
            with suppress(MetadataError):
                if await asyncio.to_thread(self._ask_for_change, node_id, before, after):
                    return True
            await asyncio.sleep(POLL_S)
        return False

    def _ask_for_change(self, node_id: int, before: str, after: str) -> bool:
        client = self.cluster.client(timeout_s=2.0)
        view = client.ask_one(leader_url(client), "/v1/quorum").json()
        for row in view[before]:
            if row["id"] == node_id and before == "voters":
                client.write("DELETE", f"/v1/quorum/voters/{node_id}?directory_id={row['directory_id']}")
            elif row["id"] == node_id:
                body = {"id": node_id, "directory_id": row["directory_id"], "raft": row["address"]}
                client.write("POST", "/v1/quorum/voters", body)
        return any(row["id"] == node_id for row in view[after])

    async def _fill_disk(self, kind: str) -> None:
        """Fill a controller's disk until it stops, then make room and start it again."""
        async with self._down:
            node_id, path = self.rng.choice(sorted(self.small_disks.items()))
            await self._see_it_run(node_id)
            happening = self._began(kind, f"controller {node_id}")
            await asyncio.to_thread(_fill, path / "junk")
            for _ in range(100):
                if self.cluster.pid(node_id) is None:
                    break
                await asyncio.sleep(0.1)
            (path / "junk").unlink()
            await self._start(node_id, right=WITHOUT_ROOM)
            happening.end_ns = time.monotonic_ns()

    # --- what a fault finds, and leaves

    async def _see_it_run(self, node_id: int) -> None:
        """Start a controller that does not run; the caller holds `_down`, so that no fault has ended it."""
        if self.cluster.pid(node_id) is None:
            await self._start(node_id)

    async def _start(self, node_id: int, *, right: str | None = None) -> None:
        """Start a controller, if it does not run, and wait until it follows: the next fault may then hit another.

        `right` is as for `_revive`, and for one end only.
        """
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline:
            if await self._revive(node_id, right=right):
                right = None
            status = await object_at(
                self.cluster.client(timeout_s=ASK_TIMEOUT_S), self.cluster.http(node_id), "/readyz"
            )
            if status is not None and status["ready"]:
                return
            await asyncio.sleep(POLL_S)
        self.violations.append(f"controller-{node_id} did not follow within {READY_S_MAX:g} s")

    async def _revive(self, node_id: int, *, right: str | None = None) -> bool:
        """Start a node that does not run, and answer whether it was started; a violation unless it ended as is `right`."""
        if self.cluster.pid(node_id) is not None:
            return False
        how = how_it_ended(self.cluster, node_id)
        if right is None or not how.startswith(right):
            expected = "by itself" if right is None else f"not with {right.rstrip(': ')}"
            self.violations.append(f"{self.cluster.member(node_id).name} ended {expected}: {how}")
        await self.cluster.start_one(node_id)
        return True


def how_it_ended(cluster: LocalCluster, node_id: int) -> str:
    """Return the exit code with which a node ended, and the last lines that it logged."""
    code = cluster.exit_code(node_id)
    assert code is not None, "it runs, or was never started"
    return f"{ended_with(code)}: {cluster.last_words(node_id)}"


def _other_half(name: str) -> str:
    """Return the link that the same two voters have when the other one dialled."""
    prefix, dialler, acceptor = name.split("-")
    return f"{prefix}-{acceptor}-{dialler}"


def _fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        for piece in (bytes(65_536), bytes(1)):
            try:
                while True:
                    file.write(piece)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
