"""Edge: one run: three controllers take writes while forgers speak on their Raft ports and tamper with their links.

Held: no process ended, no term moved, the same controller led throughout under one claim, every acknowledged write stands
once in every controller's log, the logs are equal, and every link that had to be dropped was.
"""

import asyncio
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgpack

from metadata_log.errors import MetadataError
from metadata_log.ids import NodeId, uuid_from_text
from metadata_log.node.addresses import HostPort, read_address
from ops.admin.log_frames import file_frames
from ops.local.cluster import LocalCluster
from ops.local.layout import Member
from ops.local.member_processes import ended_with
from quorum.node.config import ControllerSettings
from quorum.raft.messages import append_entries
from tests.hostile_raft.forgery import (
    FIRST_STRANGER_ID,
    SECOND_LEADER,
    WELCOME,
    Forger,
    Sight,
    Visit,
    checked,
    framed,
    hello,
)
from tests.hostile_raft.middle import DROPPED, Middle
from tests.support.active import active_of

FORGERS_PER_NODE: Final = 3
"""Well below the number of observers that a controller admits, so that each of their links is."""
WATCHER_ID: Final = FIRST_STRANGER_ID - 1
ELECTION_TIMEOUTS_MS: Final = (5_000, 10_000)
"""Long ones: on a busy machine none of them runs out, and a forgery that deposes a leader needs none."""
TERMS_BEFORE: Final = 3
"""Hand-overs before the forgers begin, so that there are terms below the present one."""
PATIENCE_S: Final = 60.0
LOOK_S: Final = 1.0
ANSWER_S: Final = 20.0
NOT_SEEN: Final = (OSError, asyncio.IncompleteReadError)
"""What it is that a controller did not answer, within ANSWER_S too."""
READ_BYTES: Final = 1 << 16


@dataclass(slots=True)
class Verdict:
    """What came of a run."""

    seed: int
    kinds: Counter[str] = field(default_factory=Counter)
    """Visits by what ended them."""
    forged: int = 0
    """Messages that a controller has read."""
    to_drop: Counter[NodeId] = field(default_factory=Counter)
    """Visits for which each controller must have dropped a link."""
    may_drop: int = 0
    """Visits for which a controller may drop the link: a follower that follows nobody just then need not, and a visitor
    that a busy machine delays is dropped for its slow handshake."""
    tampered: Mapping[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    unknown: int = 0
    terms: Mapping[NodeId, int] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    """What the controllers counted, all together."""
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def summary(self) -> str:
        told = [
            f"{self.forged} forged messages read in {self.seconds:.0f} s, seed {self.seed}",
            f"{sum(self.kinds.values())} connections of strangers, by what ended them: {_listed(self.kinds)}",
            f"{sum(self.tampered.values())} messages forged on the controllers' own links: {_listed(self.tampered)}",
            f"the controllers counted {_listed(self.counted)}",
            f"terms {sorted(self.terms.values())} from the first message to the last",
            f"{self.acknowledged} writes acknowledged meanwhile, {self.unknown} of unknown outcome",
        ]
        told += [f"VIOLATION: {violation}" for violation in self.violations]
        if not self.violations:
            told.append(
                "no process ended, no term moved, the same controller led, no acknowledged write was lost"
            )
        return "\n".join(told)


def _listed(counted: Mapping[str, int]) -> str:
    return ", ".join(
        f"{what} {counted[what]}" for what in sorted(counted, key=counted.__getitem__, reverse=True)
    )


async def run(directory: Path, *, messages: int, seed: int) -> Verdict:
    """Let controllers in an empty directory read so many forged messages, and judge what became of them."""
    rng = random.Random(seed)
    verdict = Verdict(seed)
    middle = Middle(random.Random(rng.getrandbits(64)))
    cluster = LocalCluster(
        directory / "c",
        controllers=3,
        brokers=0,
        adjust=partial(_through, middle),
    )
    cluster.prepare()
    async with middle:
        try:
            for member in cluster.controllers:
                await cluster.start_one(member.id)
            await cluster.wait_until_ready()
            hostility = _Hostility(cluster, middle, verdict)
            await hostility.meet()
            began = time.monotonic()
            await hostility.go_on_until(messages, rng)
            verdict.seconds = time.monotonic() - began
            await hostility.judge()
            await _stop_in_turn(cluster)
        finally:
            await cluster.stop()
    for member in cluster.controllers:
        code = cluster.exit_code(member.id)
        if code != 0:
            verdict.violations.append(f"{member.name}, told to stop, ended with {ended_with(code or 0)}")
    hostility.judge_logs()
    return verdict


async def _stop_in_turn(cluster: LocalCluster) -> None:
    """Stop one controller after the other: a leader whose followers all stop with it would wait for one to take over."""
    for member in cluster.controllers:
        cluster.signal(member.id, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE_S
        while cluster.exit_code(member.id) is None and time.monotonic() < deadline:
            await asyncio.sleep(0.02)


def _through(middle: Middle, settings: ControllerSettings) -> ControllerSettings:
    """Let a controller reach each other voter through a proxy of its own."""
    own = settings.node_id
    shortest, longest = ELECTION_TIMEOUTS_MS
    return replace(
        settings,
        voters=tuple(
            voter if voter.id == own else replace(voter, raft=middle.address(own, voter.id, voter.raft))
            for voter in settings.voters
        ),
        timing=replace(
            settings.timing, election_timeout_min_ms=shortest, election_timeout_max_ms=longest, session_timeout_ms=60_000
        ),
    )  # fmt: skip


def raft_address(member: Member) -> HostPort:
    assert member.raft is not None
    return read_address(member.raft)


class _Hostility:
    def __init__(self, cluster: LocalCluster, middle: Middle, verdict: Verdict) -> None:
        self._cluster, self._middle, self._verdict = cluster, middle, verdict
        self._sights: dict[NodeId, Sight] = {}
        self._pids = {member.id: cluster.pid(member.id) for member in cluster.controllers}
        self._before: Counter[str] = Counter()
        self._dropped_before: dict[NodeId, int] = {}
        self._writes: dict[str, int] = {}
        """By request id: the offset at which each acknowledged write stands."""
        self._asked: set[str] = set()
        self._epoch = 0
        self._leader = NodeId(0)

    # --- before

    async def meet(self) -> None:
        """Let some terms pass, wait until the quorum is whole, and see it as a stranger does."""
        cluster = self._cluster
        client = cluster.client(timeout_s=PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        transfer = partial(client.write, "POST", "/v1/quorum/transfer", {"to": None}, repeatable=False)
        for _ in range(TERMS_BEFORE):
            while True:
                try:
                    await asyncio.to_thread(transfer)
                    break
                except MetadataError:  # nobody is linked yet who could take over, or nobody leads yet
                    if time.monotonic() > deadline:
                        raise
                    await asyncio.sleep(0.1)
        deadline = time.monotonic() + PATIENCE_S
        while not self._middle.leader_is_linked():
            if (active := await cluster.active()) is not None:
                self._leader, self._epoch = NodeId(active.controller_id), active.controller_epoch
                self._middle.leader = self._leader
            if time.monotonic() > deadline:
                raise TimeoutError("the controllers are not linked with an active one")
            await asyncio.sleep(0.05)
        log = await asyncio.to_thread(
            client.get, "/v1/log?max_bytes=100000", accept="application/octet-stream"
        )
        frames = log.body[: 40 + int.from_bytes(log.body[4:8], "big")]
        voters = {
            NodeId(member.id): uuid_from_text(member.directory_id or "") for member in cluster.controllers
        }
        for node_id in voters:
            self._sights[node_id] = Sight(
                cluster_id=cluster.cluster_id,
                voters=voters,
                node_id=node_id,
                is_leader=node_id == self._leader,
                term=0,
                last_index=1,
                frames=frames,
            )
        await self._look()
        self._verdict.terms = {node_id: sight.term for node_id, sight in self._sights.items()}
        self._dropped_before, self._before = await self._counters()

    async def _look(self) -> None:
        """See each controller's term, and how long the leader's log is."""
        seen: dict[NodeId, Sight] = {}
        for node_id, sight in self._sights.items():
            term, last_index = await look_at(sight, raft_address(self._cluster.member(node_id)))
            seen[node_id] = replace(sight, term=term, last_index=max(last_index, sight.last_index))
        # A follower's log is no longer than the leader's.
        last_index = seen[self._leader].last_index
        self._sights = {node_id: replace(sight, last_index=last_index) for node_id, sight in seen.items()}

    async def _counters(self) -> tuple[dict[NodeId, int], Counter[str]]:
        """Return how many links each controller dropped, and what all together counted."""
        names = {
            "raft_elections_total": "elections won",
            "raft_messages_ignored_total": "messages ignored",
            "raft_links_dropped_total": "links dropped",
        }
        dropped: dict[NodeId, int] = {}
        total: Counter[str] = Counter()
        async with aiohttp.ClientSession() as session:
            for member in self._cluster.controllers:
                async with session.get(f"{member.http}/metrics") as answer:
                    values = dict(
                        line.removeprefix("metaquorum_").rsplit(" ", 1)
                        for line in (await answer.text()).splitlines()
                        if line.startswith("metaquorum_raft_")
                    )
                for name, what in names.items():
                    total[what] += int(float(values[name]))
                dropped[NodeId(member.id)] = int(float(values["raft_links_dropped_total"]))
        return dropped, total

    # --- meanwhile

    async def go_on_until(self, messages: int, rng: random.Random) -> None:
        """Forge until the controllers have read so many messages, while a client writes."""
        self._middle.is_active = True
        meanwhile = [asyncio.create_task(self._write()), asyncio.create_task(self._watch())]
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(FORGERS_PER_NODE):
                    for node_id in self._sights:
                        forger = Forger(
                            random.Random(rng.getrandbits(64)), FIRST_STRANGER_ID + 10 * number + node_id
                        )
                        group.create_task(self._forge(forger, node_id, messages))
        finally:
            self._middle.is_active = False
            for task in meanwhile:
                task.cancel()
            for ended in await asyncio.gather(*meanwhile, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended

    async def _forge(self, forger: Forger, node_id: NodeId, messages: int) -> None:
        verdict, address = self._verdict, raft_address(self._cluster.member(node_id))
        while verdict.forged < messages and not verdict.violations:
            visit = forger.visit(self._sights[node_id])
            try:
                was_let_in = await carry_out(visit, address)
            except NOT_SEEN:
                if self._cluster.pid(node_id) != self._pids[node_id]:
                    return  # the process ended: the verdict says so
                verdict.may_drop += 1
                await asyncio.sleep(0.01)
                continue
            if not was_let_in:
                verdict.may_drop += 1
            else:
                verdict.forged += visit.messages
                verdict.kinds[visit.kind] += 1
                if visit.kind == SECOND_LEADER and node_id != self._leader:
                    verdict.may_drop += 1
                else:
                    verdict.to_drop[node_id] += visit.is_dropped

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            before = {node_id: sight.term for node_id, sight in self._sights.items()}
            try:
                await self._look()
            except NOT_SEEN:
                self._verdict.may_drop += len(self._sights)
            after = {node_id: sight.term for node_id, sight in self._sights.items()}
            if before != after:
                self._verdict.violations.append(f"terms moved from {before} to {after}")

    async def _write(self) -> None:
        """Write one setting after the other; a write of unknown outcome is repeated until it is answered."""
        url = self._cluster.http(self._leader)
        timeout = aiohttp.ClientTimeout(total=20)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                request_id = str(uuid.uuid4())
                self._asked.add(request_id)
                body = {"cluster": True, "set": {f"k{len(self._asked) % 100}": request_id}}
                while True:
                    with suppress(aiohttp.ClientError, TimeoutError):
                        async with session.patch(
                            f"{url}/v1/configs", json=body, headers={"X-Request-Id": request_id}
                        ) as answer:
                            if answer.status == 200:
                                self._writes[request_id] = (await answer.json())["offsets"]["base"]
                                break
                            if answer.status == 421:
                                url = answer.headers.get("X-Controller", url)
                    await asyncio.sleep(0.1)

    # --- afterwards

    async def judge(self) -> None:
        cluster, verdict = self._cluster, self._verdict
        verdict.tampered = self._middle.tampered
        verdict.acknowledged = len(self._writes)
        verdict.unknown = len(self._asked) - len(self._writes)
        for member in cluster.controllers:
            if cluster.pid(member.id) != self._pids[member.id]:
                verdict.violations.append(f"{member.name} ended: {cluster.last_words(member.id)}")
        if any("ended" in violation for violation in verdict.violations):
            return
        try:
            await self._look()
        except NOT_SEEN as error:
            verdict.violations.append(f"controller {self._leader} does not answer as a leader: {error!r}")
            return
        terms = {node_id: sight.term for node_id, sight in self._sights.items()}
        if terms != verdict.terms:
            verdict.violations.append(f"terms {verdict.terms} at first, and {terms} at last")
        active = await active_of(cluster)
        if (active.controller_id, active.controller_epoch) != (self._leader, self._epoch):
            verdict.violations.append(f"controller {self._leader} led epoch {self._epoch}, and now {active}")
        if not self._writes:
            verdict.violations.append("no write was acknowledged")
        await self._judge_counters()
        await self._converge()

    async def _judge_counters(self) -> None:
        verdict = self._verdict
        dropped, total = await self._counters()
        verdict.counted = total - self._before
        for node_id, wanted in verdict.to_drop.items():
            found = dropped[node_id] - self._dropped_before[node_id]
            if found < wanted:
                verdict.violations.append(f"controller {node_id} dropped {found} links of {wanted}")
        most = verdict.to_drop.total() + verdict.may_drop + sum(verdict.tampered[kind] for kind in DROPPED)
        if (found := verdict.counted["links dropped"]) > most:
            verdict.violations.append(f"{found} links were dropped, {found - most} of them for nothing")

    async def _converge(self) -> None:
        """Wait until all controllers stand at one state."""
        deadline = time.monotonic() + PATIENCE_S
        async with aiohttp.ClientSession() as session:
            while True:
                told = []
                for url in self._cluster.bootstrap:
                    async with session.get(f"{url}/v1/quorum") as answer:
                        told.append(str((await answer.json())["digest"]))
                if len(set(told)) == 1:
                    return
                if time.monotonic() > deadline:
                    self._verdict.violations.append(f"the controllers' states differ: {told}")
                    return
                await asyncio.sleep(0.1)

    def judge_logs(self) -> None:
        """Look for every acknowledged write in the stopped controllers' logs."""
        verdict = self._verdict
        logs = []
        for member in self._cluster.controllers:
            found: dict[str, list[int]] = {}
            frames = list(file_frames(self._cluster.data(member.id)))
            for frame in frames:
                batch = frame.batch()
                if (
                    batch.envelope.operation == "IncrementalAlterConfigs"
                    and batch.envelope.request_id is not None
                ):
                    found.setdefault(str(uuid.UUID(bytes=batch.envelope.request_id)), []).append(
                        batch.base_offset
                    )
            lost = [each for each, offset in self._writes.items() if found.get(each) != [offset]]
            if lost:
                verdict.violations.append(
                    f"{member.name} lacks {len(lost)} acknowledged writes, {lost[0]} first"
                )
            foreign = found.keys() - self._asked
            if foreign:
                verdict.violations.append(
                    f"{member.name} holds writes that nobody asked for: {sorted(foreign)[:3]}"
                )
            logs.append(b"".join(frame.content for frame in frames))
        shortest = min(map(len, logs))
        if any(log[:shortest] != logs[0][:shortest] for log in logs):
            verdict.violations.append("the controllers' logs differ")


async def carry_out(visit: Visit, address: HostPort) -> bool:
    """Make a visit, and wait until the node closes its end; return whether it was let in as far as it meant to be."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(ANSWER_S):
            with suppress(ConnectionError):
                writer.write(visit.opening)
                if visit.then:
                    for _ in range(2):
                        verdict = await _message(reader, crc_bytes=0)
                    if verdict.get("type") != "welcome" and visit.then != WELCOME:
                        return False
                    writer.write(visit.then)
                writer.write_eof()
                while await reader.read(READ_BYTES):
                    pass
            return True
    finally:
        writer.transport.abort()


async def look_at(sight: Sight, address: HostPort) -> tuple[int, int]:
    """Return a node's term and, of a leader, the index of its last entry: as it tells an observer."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(ANSWER_S):
            writer.write(framed(hello(sight, WATCHER_ID, bytes(16))))
            for _ in range(2):
                await _message(reader, crc_bytes=0)
            writer.write(
                WELCOME + checked(append_entries(term=0, commit_index=0, previous=(0, 0), entries=[]))
            )
            term = last_index = 0
            while not term or (sight.is_leader and not last_index):
                told = await _message(reader, crc_bytes=4)
                term = max(term, told["term"])
                last_index = max(last_index, told.get("prevLogIdx", 0))
            return term, last_index
    finally:
        writer.transport.abort()


async def _message(reader: asyncio.StreamReader, *, crc_bytes: int) -> dict[str, Any]:
    head = await reader.readexactly(4 + crc_bytes)
    told: dict[str, Any] = msgpack.unpackb(await reader.readexactly(int.from_bytes(head[:4], "big")))
    return told
