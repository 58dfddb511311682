"""Edge: forged terms at the two moments at which they count: while a quorum is founded, and after a silence.

A stranger passes for a voter while the first of three controllers waits for the others. Later, with two of them killed, it
speaks to the third after ten election timeouts without a leader, as long as it is believed. Held: the quorum is founded, the
third follows again once the others are back, no voter is locked out, and the terms rose no further than messages may.
"""

import asyncio
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from metadata_log.errors import MetadataError
from metadata_log.ids import NodeId, Uuid, uuid_from_text
from metadata_log.limits import ELECTION_TIMEOUT_MAX_MS, RAFT_STRANGER_TIMEOUTS
from ops.local.cluster import LocalCluster
from quorum.raft.messages import TERM_MAX
from quorum.raft.term_pace import TERM_JUMP_MAX
from tests.hostile_raft.forgery import FIRST_STRANGER_ID, WELCOME, Sight, Visit, checked, framed, hello
from tests.hostile_raft.run import NOT_SEEN, PATIENCE_S, carry_out, look_at, raft_address

SILENCE_S: Final = RAFT_STRANGER_TIMEOUTS * ELECTION_TIMEOUT_MAX_MS / 1000
VISITS: Final = 40
"""Of strangers that speak into the silence; each asks for four votes."""
STRANGERS: Final = 7
"""Fewer than the observers that a controller admits."""
Message = dict[str, Any]


async def run_terms(directory: Path, *, seed: int) -> list[str]:
    """Forge terms in an empty directory, and return what did not hold."""
    rng = random.Random(seed)
    cluster = LocalCluster(directory / "c", controllers=3, brokers=0)
    cluster.prepare()
    first, second, third = cluster.controllers
    violations = []
    try:
        await cluster.start_one(first.id)
        await _pass_for_voter(cluster, first.id, second.id)
        for member in (second, third):
            await cluster.start_one(member.id)
        await cluster.wait_until_ready()
        violations += await _locked_out(cluster, "after the founding")
        for member in (second, third):
            cluster.signal(member.id, signal.SIGKILL)
        await asyncio.sleep(1.5 * SILENCE_S)
        await _speak_into_the_silence(cluster, first.id, rng)
        for member in (second, third):
            await cluster.start_one(member.id)
        violations += await _locked_out(cluster, "after the silence")
        terms = [
            (await look_at(_sight(cluster, member.id), raft_address(member)))[0]
            for member in cluster.controllers
        ]
        if max(terms) > 4 * TERM_JUMP_MAX:
            violations.append(f"the terms rose to {terms}")
    finally:
        await cluster.stop()
    return violations


def _sight(cluster: LocalCluster, node_id: int) -> Sight:
    voters = {NodeId(each.id): uuid_from_text(each.directory_id or "") for each in cluster.controllers}
    return Sight(
        cluster.cluster_id, voters, NodeId(node_id), is_leader=False, term=0, last_index=1, frames=b""
    )


async def _say(cluster: LocalCluster, node_id: int, source: int, disk: Uuid, message: Message) -> bool:
    """Send one message to a controller as this node; return whether the controller was there to read it."""
    opening = framed(hello(_sight(cluster, node_id), source, disk))
    visit = Visit("a term", opening, WELCOME + checked(message), 1, is_dropped=False)
    with suppress(*NOT_SEEN):
        return await carry_out(visit, raft_address(cluster.member(node_id)))
    return False


async def _pass_for_voter(cluster: LocalCluster, node_id: int, voter: int) -> None:
    """Send a founder that waits for the others one huge term, and then lower ones, as the voter `voter`."""
    disk = _sight(cluster, node_id).voters[NodeId(voter)]
    deadline = time.monotonic() + PATIENCE_S
    for term in (TERM_MAX, TERM_MAX // 2, *(number * TERM_JUMP_MAX for number in (3, 2, 1, 2, 3))):
        while not await _say(cluster, node_id, voter, disk, {"type": "nack", "term": term}):
            if time.monotonic() > deadline:
                raise TimeoutError(f"controller {node_id} does not listen")
            await asyncio.sleep(0.05)


async def _speak_into_the_silence(cluster: LocalCluster, node_id: int, rng: random.Random) -> None:
    """Ask a voter without a leader for votes, in terms that are as far above its own as it may believe."""
    for number in range(VISITS):
        term, _ = await look_at(_sight(cluster, node_id), raft_address(cluster.member(node_id)))
        for jump in (TERM_MAX // 2, TERM_JUMP_MAX, TERM_JUMP_MAX // 2, rng.randrange(1, 100)):
            vote = {"type": "request_vote", "term": term + jump, "last_log_index": 2**40}
            vote |= {"last_log_term": term + jump, "force": True}
            source = number % STRANGERS
            await _say(cluster, node_id, FIRST_STRANGER_ID + source, Uuid(bytes([source]) * 16), vote)


async def _locked_out(cluster: LocalCluster, when: str) -> list[str]:
    """Wait until a write is acknowledged and every voter has caught up; return what is wrong if that does not come."""
    client = cluster.client(timeout_s=PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    found = f"{when}: nothing was answered"
    while time.monotonic() < deadline:
        try:
            body = {"cluster": True, "set": {"when": when}}
            await asyncio.to_thread(client.write, "PATCH", "/v1/configs", body)
            voters = (await asyncio.to_thread(client.get, "/v1/quorum")).json()["voters"]
            if all(voter["reachable"] and voter["lag_records"] == 0 for voter in voters):
                return []
            found = f"{when}: {voters}"
        except MetadataError as error:
            found = f"{when}: {error.message}"
        await asyncio.sleep(0.2)
    return [found]
