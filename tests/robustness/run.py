"""Edge: one run: real controllers and brokers, toxiproxy between them, clients, faults; then the verdict."""

import asyncio
import math
import random
import ssl
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import Final

import aiohttp

from metadata_log.codec import decode_all
from ops.admin.log_frames import file_frames
from ops.local.cluster import LocalCluster
from tests.robustness.clients import Load, Watcher, new_session, write_history
from tests.robustness.faults import Fault, Faults, how_it_ended
from tests.robustness.history import Operation, check
from tests.robustness.links import broker_environment, client_urls, send_brokers_through, through, went_past
from tests.robustness.proxies import Proxies
from tests.robustness.serving import Asker, fencings, served_while_fenced

CLIENTS: Final = 12
WATCHERS: Final = 2
SMALL_DISK_MIB: Final = 320
SMALL_DISK_MIB_PER_MINUTE: Final = 96
"""Twice the log of a fast run, so that the disk is full only when a fault fills it."""
FULL_MINUTES: Final = 10
"""The floors are for a run of so many minutes; a shorter one has its share of them."""
FAULTS_MIN: Final = 40
KINDS_MIN: Final = 10
WRITES_MIN: Final = 0.30
CONDITIONAL_MIN: Final = 0.05
IN_FAULT_MIN: Final = 0.25
SERVED_MIN: Final = 0.25
CLIENTS_MIN: Final = 8
CONVERGED_S: Final = 120.0
READ_S: Final = 300.0
"""For 8 MiB of a log, from a machine that is busy."""
STANDS: Final = {True: (1,), False: (0,), None: (0, 1)}
"""How often a write may stand in the log: one that was done, was refused, or has an unknown outcome."""


@dataclass(slots=True)
class Verdict:
    """What came of a run. It is void where it was too easy, whatever it found."""

    minutes: float
    seed: int
    history: list[Operation] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    claims: int = 0
    asked: int = 0
    served: int = 0
    fencings: int = 0
    end_offset: int = 0

    @property
    def checked(self) -> int:
        return len(self.history)

    def below_the_floors(self) -> list[str]:
        """Return in what the run was too easy."""
        share = min(1.0, self.minutes / FULL_MINUTES)
        writes = sum(done.changes for done in self.history)
        conditional = sum(done.op == "cas" for done in self.history)
        in_fault = sum(done.in_fault for done in self.history)
        clients = len({done.client for done in self.history})
        kinds = len({fault.kind for fault in self.faults})
        floors = [
            ("clients", clients, CLIENTS_MIN),
            ("share of writes", writes / max(1, self.checked), WRITES_MIN),
            ("share of conditional writes", conditional / max(1, self.checked), CONDITIONAL_MIN),
            ("faults", len(self.faults), FAULTS_MIN * share),
            ("kinds of faults", kinds, KINDS_MIN * min(1.0, 2 * share)),
            ("share begun in a fault", in_fault / max(1, self.checked), IN_FAULT_MIN),
            ("share served by brokers", self.served / max(1, self.asked), SERVED_MIN),
        ]
        return [f"{name}: {found:.3g} of {wanted:.3g}" for name, found, wanted in floors if found < wanted]

    def summary(self) -> str:
        counts = Counter((done.op, done.ok) for done in self.history)
        answered = sorted(
            done.returned for done in self.history if done.changes and done.returned is not None
        )
        gap_ms = max((later - earlier for earlier, later in pairwise(answered)), default=0) / 1e6
        taken_ms = [(done.returned - done.call) / 1e6 for done in self.history if done.returned is not None]
        cuts = quantiles(taken_ms, n=100) if len(taken_ms) > 1 else [0.0] * 99
        kinds = Counter(fault.kind for fault in self.faults)
        told_kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
        in_fault = 100 * sum(done.in_fault for done in self.history) / max(1, self.checked)
        unknown = sum(done.ok is None for done in self.history)
        conditional = f"{counts['cas', True]} conditional writes done and {counts['cas', False]} refused"
        lines = [
            f"{self.checked} operations checked in {self.minutes:g} minutes, seed {self.seed}",
            f"{counts['read', True]} reads, {counts['write', True]} writes, {conditional}, {unknown} of unknown outcome",
            f"{in_fault:.0f} % begun inside a fault",
            f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.0f} ms; longest gap between acknowledged writes {gap_ms:.0f} ms",
            f"{self.claims} claims of leadership; a log of {self.end_offset} records",
            f"brokers served {self.served} of {self.asked} requests answered; {self.fencings} fencings of silent brokers",
            f"{len(self.faults)} faults of {len(kinds)} kinds: {told_kinds}",
        ]
        lines += [f"VIOLATION: {violation}" for violation in self.violations]
        lines += [f"VOID, too easy: {floor}" for floor in self.below_the_floors()]
        if not self.violations and not self.below_the_floors():
            lines.append("linearizable, nothing acknowledged was lost, all logs and streams are the same")
        return "\n".join(lines)


async def run(directory: Path, *, minutes: float, seed: int, secure: bool = False) -> Verdict:
    """Live through `minutes` of faults in an empty directory, then let all heal and compare.

    `secure`: with TLS on each link, and clients under the admin's certificate.
    """
    rng = random.Random(seed)
    verdict = Verdict(minutes, seed)
    with (
        Proxies(directory / "toxiproxy.log") as proxies,
        _small_disks(directory / "c", minutes) as small_disks,
    ):
        cluster = LocalCluster(
            directory / "c",
            controllers=3,
            brokers=3,
            adjust=lambda settings: through(proxies, settings),
            environment=lambda member: broker_environment(cluster.directory, member),
            secure=secure,
        )
        try:
            cluster.prepare()
            urls = client_urls(cluster, proxies)
            send_brokers_through(cluster, proxies)
            for member in cluster.members:
                await cluster.start_one(member.id)
            await cluster.wait_until_ready()
            faults = Faults(cluster, proxies, random.Random(rng.getrandbits(64)), small_disks)
            tls = cluster.tls
            load = Load(urls, random.Random(rng.getrandbits(64)), lambda: faults.active, tls)
            watchers = [Watcher(urls, random.Random(rng.getrandbits(64)), tls) for _ in range(WATCHERS)]
            stop = asyncio.Event()
            asker = Asker({broker.id: broker.http for broker in cluster.brokers}, tls)
            watching = [asyncio.create_task(watcher.run(stop)) for watcher in watchers]
            watching.append(asyncio.create_task(asker.run(stop)))
            await faults.see_all_run()
            end = time.monotonic() + 60 * minutes
            async with asyncio.TaskGroup() as group:
                group.create_task(faults.run(end))
                for number in range(CLIENTS):
                    group.create_task(load.client(number, end))
            stop.set()
            await asyncio.gather(*watching)
            verdict.history, verdict.faults = load.finish(), faults.happened
            verdict.violations += faults.violations
            write_history(verdict.history, directory / "history.jsonl")
            verdict.violations += [
                f"controller {node_id} could not be given its vote back"
                for node_id in await faults.without_a_vote()
            ]
            await _judge(verdict, cluster, watchers, asker)
        finally:
            await cluster.stop()
    verdict.violations += [
        f"{member.name}, told to stop, ended with {how_it_ended(cluster, member.id)}"
        for member in cluster.members
        if cluster.exit_code(member.id) != 0
    ]
    return verdict


async def _judge(verdict: Verdict, cluster: LocalCluster, watchers: list[Watcher], asker: Asker) -> None:
    contradiction = check(verdict.history)
    if contradiction is not None:
        verdict.violations.append(f"not linearizable: {contradiction}")
    for member in cluster.members:
        if cluster.pid(member.id) is None:
            verdict.violations.append(f"{member.name} ended by itself: {how_it_ended(cluster, member.id)}")
            await cluster.start_one(member.id)
    deadline = time.monotonic() + CONVERGED_S
    while True:
        missing = await cluster.missing()
        common = await _common_end(cluster)
        if missing is None and isinstance(common, int):
            break
        if time.monotonic() > deadline:
            verdict.violations.append(f"not converged within {CONVERGED_S:g} s: {missing or common}")
            return
        await asyncio.sleep(0.2)
    # Up to where all agreed: reading so much may cost a leader its leadership, and the next one's claim is in the log.
    logs = {member.id: await _log_below(common, member.http, cluster.tls) for member in cluster.controllers}
    first = next(iter(logs.values()))
    if any(log != first for log in logs.values()):
        verdict.violations.append("the controllers' logs differ")
    batches = [batch for batch, _ in decode_all(first)]
    verdict.claims = sum(batch.claim is not None for batch in batches)
    verdict.end_offset = batches[-1].end_offset
    verdict.asked, verdict.served = len(asker.answers), sum(answer.served for answer in asker.answers)
    verdict.fencings = fencings(batches)
    seen = [at for watcher in watchers for at in watcher.seen]
    verdict.violations += served_while_fenced(asker.answers, batches, seen)
    verdict.violations += misplaced(verdict.history, first)
    for broker in cluster.brokers:
        for wrong in (went_past(cluster.directory, broker), _broken_stream(cluster.data(broker.id), first)):
            if wrong is not None:
                verdict.violations.append(f"{broker.name} {wrong}")
    for watcher in watchers:
        if watcher.broken is not None:
            verdict.violations.append(watcher.broken)
        elif not first.startswith(b"".join(watcher.frames)):
            verdict.violations.append("a watcher was told another history than the log's")


def misplaced(history: list[Operation], log: bytes) -> list[str]:
    """Return which writes stand in the log more or less often than their answers say."""
    places: dict[str, list[int]] = defaultdict(list)
    for batch, _ in decode_all(log):
        if batch.envelope.request_id is not None:
            places[batch.envelope.request_id.hex()].append(batch.base_offset)
    found = [
        (done, places[done.request_id.replace("-", "")]) for done in history if done.request_id is not None
    ]
    return [
        f"{done.line()} stands at {offsets}" for done, offsets in found if len(offsets) not in STANDS[done.ok]
    ]


def _broken_stream(data: Path, log: bytes) -> str | None:
    """Return what is wrong with the frames a broker took; None: each follows the one before, and stands in the log."""
    known = {batch.base_offset: frame for batch, frame in decode_all(log)}
    end_offset: int | None = None
    for header, frame, *_ in file_frames(data):
        if end_offset not in (None, header.base_offset):
            return f"continued offset {end_offset} with a batch at {header.base_offset}"
        end_offset = header.end_offset
        if header.base_offset in known and known[header.base_offset] != frame:
            return f"was told another batch at offset {header.base_offset} than the log's"
    return None if end_offset is not None else "took no frame"


async def _common_end(cluster: LocalCluster) -> int | str:
    """Return the end offset at which all controllers and brokers have one state, or who stands elsewhere than the others."""
    told = {}
    async with new_session(cluster.tls, total_s=2) as session:
        for member in cluster.members:
            path = "/v1/quorum" if member.role == "controller" else "/v1/status"
            try:
                async with session.get(member.http + path) as response:
                    told[member.name] = (await response.json())["digest"]
            except (aiohttp.ClientError, TimeoutError) as error:
                return f"{member.name} does not answer: {error}"
    distinct = {(digest["end_offset"], digest["value"]) for digest in told.values()}
    return distinct.pop()[0] if len(distinct) == 1 else f"states differ: {told}"


async def _log_below(end_offset: int, url: str, tls: ssl.SSLContext | None) -> bytes:
    log, at = bytearray(), 0
    async with new_session(tls, total_s=READ_S) as session:
        while at < end_offset:
            page = f"{url}/v1/log?consistency=stale&from={at}&until={end_offset}&max_bytes=8388608"
            async with session.get(page) as response:
                frames = await response.read()
                assert response.status == 200, (response.status, frames[:200])
            log += frames
            *_, (last, _) = decode_all(frames)
            at = last.end_offset
    return bytes(log)


@contextmanager
def _small_disks(directory: Path, minutes: float) -> Iterator[dict[int, Path]]:
    """Put one controller on a file system of its own, where that may be mounted."""
    path = directory / "controller-2"
    size = f"{SMALL_DISK_MIB + math.ceil(minutes * SMALL_DISK_MIB_PER_MINUTE)}m"
    path.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)],
        capture_output=True,
        check=False,
    )
    try:
        yield {2: path} if mounted.returncode == 0 else {}
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
