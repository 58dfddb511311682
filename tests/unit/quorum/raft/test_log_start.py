"""What a restart may need is pinned, however compactions and installations of snapshots overtake each other."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from metadata_log.ids import NodeId, Uuid
from quorum.raft.log_start import LogStart
from quorum.raft.messages import NO_OP
from quorum.raft.pointer import Pointer
from quorum.raft.voters_in_force import VotersInForce
from tests.simulation.world.hand_driven import A, B, HandNode, HandQuorum

VOTERS = {NodeId(1): Uuid(bytes(16))}


class SlowDisk:
    """A thread whose writes end when the test says so; and a fetcher that has every snapshot."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], asyncio.Future[None]]] = []
        self.named: list[str] = []

    def run_in_thread(self, work: Callable[[], None]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((work, done))
        return done

    async def ends(self) -> None:
        """Let the oldest write end, and what waits for it go on."""
        work, done = self.waiting.pop(0)
        work()
        done.set_result(None)
        await _turns()

    def replace(self, _name: str, data: bytes) -> None:
        self.named.append(Pointer.from_bytes(data).snapshot_id)

    def read(self, _name: str) -> bytes | None:
        return None

    async def fetch(self, snapshot_id: str, from_node: NodeId, seal: bytes) -> None: ...


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def at_a_follower(story: Callable[[HandNode, LogStart, SlowDisk], Coroutine[Any, Any, None]]) -> None:
    """Run a story at B, which holds and has committed 20 entries of A's log."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum[A].submit(*(b"%d" % number for number in range(20)))
    quorum.settle()
    quorum.beat(A)
    quorum.settle()
    node, disk = quorum[B], SlowDisk()
    start = LogStart(
        journal=node.journal,
        guard=node.guard,
        in_force=VotersInForce(node.guard.state.voters, node.journal),
        disk=disk,
        fetcher=disk,
        tail_entries=0,
        tail_bytes=0,
        run_in_thread=disk.run_in_thread,
    )
    asyncio.run(story(node, start, disk))


def compaction(start: LogStart, index: int) -> "asyncio.Task[bool]":
    pointer = start.pointer_to(index, f"at-{index}", b"")
    assert pointer is not None
    return asyncio.create_task(start.compact(pointer))


def test_a_snapshot_whose_pointer_waits_for_another_stays_pinned() -> None:
    async def story(_: HandNode, start: LogStart, disk: SlowDisk) -> None:
        compactions = [compaction(start, index) for index in (8, 12, 16)]
        await _turns()
        assert start.pinned == {"at-8", "at-12", "at-16"}
        await disk.ends()
        assert disk.named == ["at-8"]
        assert start.pinned == {"at-8", "at-12", "at-16"}, "two pointers are not written yet"
        await disk.ends()
        await disk.ends()
        assert await asyncio.gather(*compactions) == [True, True, True]
        assert start.pinned == {"at-16"}

    at_a_follower(story)


def test_an_installation_that_was_overtaken_leaves_the_next_snapshot_pinned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: the pointer never names a snapshot that retention may have removed. Method: the node lacks entry 15 until the
    offered snapshot's pointer is being written; then it has caught up, and takes a snapshot of its own at 18 and at 20.
    """

    async def story(node: HandNode, start: LogStart, disk: SlowDisk) -> None:
        follower = node.guard.follower
        lacks = True
        holds = follower.holds
        monkeypatch.setattr(follower, "holds", lambda *facts: not lacks and holds(*facts))
        offered = Pointer.to("offered", b"", before=(NO_OP, 14, 1), last=(NO_OP, 15, 1), voters=VOTERS)
        installing = asyncio.create_task(start.prepare(A, offered))
        await _turns()
        assert len(disk.waiting) == 1
        lacks = False
        own = [compaction(start, index) for index in (18, 20)]
        await _turns()
        await disk.ends()
        assert await installing is False
        assert disk.named == ["offered"]
        assert start.pinned == {"offered", "at-18", "at-20"}
        await disk.ends()
        await disk.ends()
        assert await asyncio.gather(*own) == [True, True]
        assert (disk.named[-1], start.pinned) == ("at-20", frozenset({"at-20"}))

    at_a_follower(story)


def test_a_snapshot_that_could_not_be_fetched_is_pinned_no_longer() -> None:
    async def story(_: HandNode, start: LogStart, disk: SlowDisk) -> None:
        offered = Pointer.to("offered", b"", before=(NO_OP, 14, 1), last=(NO_OP, 15, 1), voters=VOTERS)
        assert await start.prepare(A, offered) is False, "the log holds it"
        assert start.pinned == frozenset()
        assert disk.waiting == []

    at_a_follower(story)
