"""Edge: a controller's process without a quorum."""

import asyncio
import gc
import os
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from metadata_log.codec import read_header
from metadata_log.errors import (
    CannotListen,
    DirectoryInUse,
    Fault,
    NotController,
    OutcomeUnknown,
    ThrottlingQuotaExceeded,
)
from metadata_log.ids import NodeId, Uuid
from metadata_log.node import collector
from metadata_log.node.disk.data_directory import (
    DirectoryLock,
    format_directory,
    load_meta,
    read_process_json,
)
from metadata_log.node.recent_warnings import RecentWarnings
from metadata_log.records.configs import BROKER
from quorum.decide.configs import AlterConfigs
from quorum.log.completion import complete_log
from quorum.node.config import ControllerSettings, VoterSettings
from quorum.node.server import _Node, run_controller
from snapshots.snapshot_file import SUFFIX, snapshot_id
from tests.support.callers import anybody
from tests.support.histories import A_TYPE_UNKNOWN_HERE, frame_behind, history_of
from tests.support.processes import free_port


def settings_for(data_dir: Path, raft: tuple[str, int]) -> ControllerSettings:
    node_id, cluster_id = NodeId(1), "A" * 22
    format_directory(
        data_dir, role="controller", node_id=node_id, cluster_id=cluster_id, rng=random.Random(1)
    )
    http = ("127.0.0.1", free_port())
    url = f"http://{http[0]}:{http[1]}"
    voter = VoterSettings(id=node_id, raft=raft, http=url, directory_id=load_meta(data_dir).directory_id)
    return ControllerSettings(
        cluster_id=cluster_id,
        node_id=node_id,
        data_dir=data_dir,
        listen_http=http,
        listen_raft=raft,
        voters=(voter,),
    )


async def test_a_refused_controller_leaves_no_process_json_but_that_of_another(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    async with taken:
        settings = settings_for(tmp_path, taken.sockets[0].getsockname())
        file = tmp_path / "process.json"
        file.write_text('{"pid": 1}')
        with DirectoryLock(tmp_path), pytest.raises(DirectoryInUse):
            await run_controller(settings)
        assert read_process_json(tmp_path) == {"pid": 1}
        with pytest.raises(CannotListen):
            await run_controller(settings)
        assert not file.exists()


FRAMES = [step.frame for step in history_of(1, 6)]
READ = 3
"""So many frames of the page can be read."""
FLIPPED = FRAMES[READ][:-1] + bytes([FRAMES[READ][-1] ^ 1])
UNKNOWN = frame_behind(FRAMES[READ - 1], A_TYPE_UNKNOWN_HERE)
OFFSET = read_header(UNKNOWN).base_offset


class Peer:
    """Where another controller answers, with these frames for a log."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self.frames = frames
        self.asked_from: list[int] = []
        app = web.Application()
        app.add_routes([web.get("/v1/log", self._log)])
        self.server = TestServer(app)

    def voter(self, node_id: int) -> VoterSettings:
        return VoterSettings(
            id=NodeId(node_id),
            raft=("127.0.0.1", 1),
            http=str(self.server.make_url("")).rstrip("/"),
            directory_id=Uuid(bytes([node_id]) * 16),
        )

    async def _log(self, request: web.Request) -> web.Response:
        start = int(request.query["from"])
        self.asked_from.append(start)
        return web.Response(body=b"".join(f for f in self.frames if read_header(f).base_offset >= start))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("frame", "reason", "kept"),
    [(UNKNOWN, "record type 7777 version 0 is unknown", OFFSET), (FLIPPED, "a frame's crc is", 0)],
    ids=["another version's", "damaged"],
)
def test_a_peers_page_that_cannot_be_read_is_named_and_the_next_peer_is_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, frame: bytes, reason: str, kept: int
) -> None:
    """What is kept of it is whole batches: the next peer is asked from their end on."""

    async def scenario() -> None:
        unreadable, sound = Peer([*FRAMES[:READ], frame, *FRAMES[READ + 1 :]]), Peer(FRAMES)
        own = settings_for(tmp_path, ("127.0.0.1", free_port()))
        async with unreadable.server, sound.server:
            settings = replace(own, voters=(*own.voters, unreadable.voter(2), sound.voter(3)))
            with ExitStack() as stack:
                node = wired(settings, stack)
                covered = read_header(FRAMES[-1]).end_offset
                await complete_log(
                    node.segments,
                    covered,
                    peers=node.peers.urls,
                    session=node._http,
                    run_in_thread=asyncio.to_thread,
                )
                await node._http().close()
                assert [frame for _, frame in node.segments.frames(0)] == FRAMES
        told = [vars(record)["reason"] for record in caplog.records if record.msg == "peer_log_unreadable"]
        assert len(told) == 1
        assert told[0].startswith(f"{settings.voters[1].http}: offset {OFFSET}: {reason}")
        assert sound.asked_from == [kept]

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, Fault("a disk that failed")], ids=["told to stop", "a fault"])
async def test_who_waits_for_a_controller_that_stops_is_answered_before_it_ends(
    tmp_path: Path, fault: Fault | None
) -> None:
    """B75: a record that is not committed by then has an unknown outcome; that is the answer, before any timeout."""
    settings = settings_for(tmp_path, ("127.0.0.1", free_port()))
    told: Counter[str] = Counter()
    with ExitStack() as stack:
        node = wired(settings, stack)

        async def write(writer: int) -> None:
            for number in count():
                command = AlterConfigs(
                    resource_type=BROKER, resource_name="", set={f"w{writer}": str(number)}, unset=()
                )
                try:
                    await node.controller.submit(command, anybody())
                except (NotController, OutcomeUnknown) as error:
                    told[error.error] += 1
                    return
                told["acknowledged"] += 1

        running = await active(node)
        writers = [asyncio.create_task(write(number)) for number in range(8)]
        while told["acknowledged"] < 40:
            await asyncio.sleep(0)
        if fault is None:
            node.stop_asked.set()
            await running
        else:
            node._on_fault(fault)
            with pytest.raises(Fault):
                await running
        for _ in range(3):
            await asyncio.sleep(0)  # those who were just told have a turn
        assert all(writer.done() for writer in writers)
        await asyncio.gather(*writers)
        assert told.keys() <= {"acknowledged", "NOT_CONTROLLER", "REQUEST_TIMED_OUT"}
        assert told["NOT_CONTROLLER"] + told["REQUEST_TIMED_OUT"] == len(writers)
        last = node.controller.committed.configs[(BROKER, "")]
        assert {f"w{number}" for number in range(8)} <= set(last)


@pytest.mark.slow
async def test_what_a_thread_writes_is_done_before_the_directory_is_anothers(tmp_path: Path) -> None:
    """Method: the snapshot's partial file is a pipe, whose writer waits until somebody reads."""
    settings = settings_for(tmp_path, ("127.0.0.1", free_port()))
    with ExitStack() as stack:
        node = wired(settings, stack)
        running = await active(node)
        while not node.controller.committed.controllers:  # until it is registered, a later state may be taken
            await asyncio.sleep(0.005)
        image = node.controller.committed
        name = snapshot_id(image.end_offset, image.controller_epoch)
        pipe = node.store.directory / f"{name}{SUFFIX}.part"
        os.mkfifo(pipe)
        taking = asyncio.create_task(node.keeper.take())
        await asyncio.sleep(0)  # its work is handed to the thread
        node.stop_asked.set()
        while await answers(settings.listen_http):
            await asyncio.sleep(0.005)
        for _ in range(20):
            await asyncio.sleep(0)
        was_done = running.done()
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        await running
        with pytest.raises(ThrottlingQuotaExceeded):  # no pipe can be synced
            await taking
        os.close(reader)
        assert not was_done


@pytest.mark.slow
async def test_who_becomes_active_checks_its_sessions_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The regular check is hours away."""
    own = settings_for(tmp_path, ("127.0.0.1", free_port()))
    settings = replace(own, timing=replace(own.timing, session_timeout_ms=10 * 3_600_000))
    checked: list[bool] = []
    with ExitStack() as stack:
        node = wired(settings, stack)
        check = node.controller.check_sessions

        def noted() -> int:
            checked.append(node.controller.is_active)
            return check()

        monkeypatch.setattr(node.controller, "check_sessions", noted)
        running = await active(node)
        for _ in range(5):
            await asyncio.sleep(0)
        node.stop_asked.set()
        await running
    assert checked == [False, True]


@pytest.mark.slow
async def test_a_controllers_process_keeps_its_collections_short(tmp_path: Path) -> None:
    """To walk the containers of a million partitions would hold the loop for longer than an election timeout."""
    with ExitStack() as stack:
        node = wired(settings_for(tmp_path, ("127.0.0.1", free_port())), stack)
        running = await active(node)
        kept_short = gc.get_threshold(), gc.get_freeze_count() > 0
        walking = any("keep_walking" in repr(task.get_coro()) for task in asyncio.all_tasks())
        node.stop_asked.set()
        await running
    assert kept_short == ((collector.YOUNG_MAX, collector.YOUNG_WALKS, collector.MIDDLE_WALKS), True)
    assert walking


def wired(settings: ControllerSettings, stack: ExitStack) -> _Node:
    data = settings.data_dir
    return _Node(settings, load_meta(data), stack, RecentWarnings(), stack.enter_context(DirectoryLock(data)))


async def active(node: _Node) -> "asyncio.Task[None]":
    running = asyncio.create_task(node.run(None))
    while not node.controller.is_active:
        assert not running.done()
        await asyncio.sleep(0.005)
    return running


async def answers(address: tuple[str, int]) -> bool:
    try:
        _, writer = await asyncio.open_connection(*address)
    except OSError:
        return False
    writer.close()
    return True
