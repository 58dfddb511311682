"""Edge: the agent against fake controllers: real sockets, real files, no quorum."""

import asyncio
import gc
import json
import os
import random
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request

from broker_agent.agent import BrokerAgent
from broker_agent.config import BrokerSettings
from broker_agent.follower import ReceivedFrame, reading_frames
from broker_agent.forwarding import forwarding
from broker_agent.http_api import HttpApi, metadata_of
from broker_agent.lifecycle import State
from broker_agent.metrics import exposition
from broker_agent.process import run_broker
from metadata_log import limits
from metadata_log.digest import digest
from metadata_log.errors import (
    CannotListen,
    DirectoryInUse,
    DiskFailed,
    DuplicateBrokerRegistration,
    ForeignDirectory,
    InconsistentClusterId,
    MetadataError,
    SnapshotNotFound,
    ThrottlingQuotaExceeded,
)
from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.views import topics_by_name
from metadata_log.items import Items
from metadata_log.node import collector
from metadata_log.node.disk.data_directory import read_process_json
from metadata_log.node.disk.durable_files import checked_json
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.threads import Threads
from metadata_log.records.brokers import UnregisterBrokerRecord
from metadata_log.records.quorum import NoOpRecord
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, Sliced
from metadata_log.wire.fetch import FetchKind, FetchRequest
from snapshots.snapshot_file import write_snapshot
from tests.support.fake_controller import CLUSTER_ID, FakeCluster, FakeController, FakeLog, format_broker
from tests.support.processes import free_port

DEADLINE_S = 60.0


async def until(predicate: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not predicate():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"not within {DEADLINE_S} s: {what}") from None


@asynccontextmanager
async def controllers(
    cluster: FakeCluster, count: int = 1, *, active: int = 0
) -> AsyncIterator[list[FakeController]]:
    async with AsyncExitStack() as stack:
        members = [FakeController(cluster, node_id) for node_id in range(1, count + 1)]
        for member in members:
            await stack.enter_async_context(member.running())
        cluster.active = members[active]
        yield members


def settings_for(data_dir: Path, members: list[FakeController], **changes: object) -> BrokerSettings:
    if not (data_dir / "meta.json").exists():
        format_broker(data_dir)
    settings = BrokerSettings(
        cluster_id=CLUSTER_ID,
        broker_id=BrokerId(11),
        data_dir=data_dir,
        controllers=tuple(member.url for member in members),
        listen_http=("127.0.0.1", 0),
        rack="r1",
    )
    return replace(settings, **changes)  # type: ignore[arg-type]


@dataclass
class Clock:
    """Real time plus what a test adds, as a suspended machine's CLOCK_BOOTTIME does."""

    ahead_ms: int = 0

    def __call__(self) -> int:
        from broker_agent.agent import now_ms

        return now_ms() + self.ahead_ms


async def get(agent: BrokerAgent, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as http, http.get(agent.http_url + path, headers=headers) as response:
        assert "X-Controller-Epoch" in response.headers
        return response.status, json.loads(await response.read())


async def online(agent: BrokerAgent) -> None:
    await until(lambda: agent.state is State.ONLINE, "the broker is Online")


async def crash(settings: BrokerSettings, when: Callable[[BrokerAgent], object]) -> None:
    """Run a broker until `when`, then end it without a word, as kill -9 does."""

    class Killed(Exception):
        pass

    with pytest.raises(Killed):  # noqa: PT012 (raised inside)
        async with BrokerAgent(settings) as agent:
            await until(lambda: when(agent), "the moment to crash")
            raise Killed


# --- the way there


async def test_a_broker_registers_follows_serves_and_stops_clean(tmp_path: Path) -> None:
    """A105: Stopping, told that it may go, Offline."""
    cluster = FakeCluster()
    cluster.log.topic("orders", partitions=3)
    deltas = []
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        async with BrokerAgent(settings, on_delta=lambda *seen: deltas.append(seen)) as agent:
            await online(agent)
            assert digest(agent.image) == digest(cluster.log.image)
            status, body = await get(agent, "/v1/metadata?topics=orders")
            assert status == 200
            assert [broker["broker_id"] for broker in body["brokers"]] == [11]
            assert [partition["leader"] for partition in body["topics"][0]["partitions"]] == [11] * 3
            status, body = await get(agent, "/v1/status")
            assert body["state"] == "ONLINE"
            assert body["applied_offset"] == body["high_watermark"] == cluster.log.image.end_offset
            assert body["digest"]["value"] == digest(cluster.log.image)
            assert body["broker_epoch"] == agent.broker_epoch
            assert 0 < body["session_left_ms"] <= cluster.session_timeout_ms
            assert (await get(agent, "/readyz")) == (
                200,
                {"ready": True, "reasons": [], "recent_warnings": []},
            )
            cluster.append(NoOpRecord())
            await until(lambda: agent.image.end_offset == cluster.log.image.end_offset, "the delta has come")
            epoch = agent.broker_epoch
            agent.stop()
            assert agent.state is State.STOPPING
            await agent.run()
            await until(lambda: agent.state is State.OFFLINE, "Offline")
        assert cluster.fetches[-1].want_shut_down
        assert deltas[-1][1] == agent.image
        assert all(before.end_offset < after.end_offset for before, after, _ in deltas)
        assert (tmp_path / "clean-stop.json").read_bytes() == checked_json({"broker_epoch": epoch})
        registration = cluster.registrations[0]
        assert registration.previous_broker_epoch == -1
        assert registration.rack == "r1"
        async with BrokerAgent(settings) as agent:
            assert not (tmp_path / "clean-stop.json").exists() or agent.state is State.OFFLINE
            await online(agent)
            assert not (tmp_path / "clean-stop.json").exists()
        assert cluster.registrations[-1].previous_broker_epoch == epoch


async def test_clients_that_ask_for_the_status_at_once_are_answered_in_a_turn_each(tmp_path: Path) -> None:
    """Goal: 64 of them hold the loop no longer than one. Method: count the turns in which a digest is counted."""
    turn, counted_in = 0, list[int]()

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def counted(image: MetadataImage) -> str:
        counted_in.append(turn)
        return digest(image)

    async with (
        controllers(FakeCluster()) as members,
        BrokerAgent(settings_for(tmp_path, members)) as agent,
    ):
        await online(agent)
        async with forwarding(agent.settings, lambda: "", AnswerBuffers(), None) as forwarder:
            threads = Threads("answers", threads=1, unfinished_max=1)
            api = HttpApi(agent, threads, AnswerBuffers(), forwarder)
            counting = asyncio.create_task(count_turns())
            requests = [make_mocked_request("GET", "/v1/status") for _ in range(8)]
            with patch("broker_agent.http_api.digest", counted):
                answers = await asyncio.gather(*(api.status(request) for request in requests))
            counting.cancel()
            await threads.shut_down()
    assert [answer.status for answer in answers] == [200] * 8
    assert len(set(counted_in)) == len(counted_in) == 8


async def test_a_restart_at_a_saved_offset_fetches_only_what_is_new(tmp_path: Path) -> None:
    """A90: the state at the saved offset comes from its own disk."""
    cluster = FakeCluster()
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        cluster.log.fill(895)
        await crash(settings, lambda agent: agent.state is State.ONLINE and agent.image.end_offset >= 897)
        saved = cluster.log.image.end_offset
        assert saved == 897  # 895, the registration, the unfencing
        cluster.log.fill(saved + 100)
        cluster.fetches.clear()
        async with BrokerAgent(settings) as agent:
            await online(agent)
            assert cluster.fetches[0].fetch_offset == saved
            assert min(fetch.fetch_offset for fetch in cluster.fetches) == saved
            assert agent.fetch_loop.follower.records_fetched == cluster.log.image.end_offset - saved
            assert agent.fetch_loop.follower.snapshots_fetched == 0
            assert digest(agent.image) == digest(cluster.log.image)
        assert cluster.registrations[-1].previous_broker_epoch == -1  # the crash was no clean stop


async def test_only_the_named_topics_and_unknown_ones_refused(tmp_path: Path) -> None:
    cluster = FakeCluster()
    for name in ("a", "b"):
        cluster.log.topic(name)
    async with controllers(cluster) as members, BrokerAgent(settings_for(tmp_path, members)) as agent:
        await online(agent)
        _, body = await get(agent, "/v1/metadata")
        assert [topic["name"] for topic in body["topics"]] == ["a", "b"]
        _, body = await get(agent, "/v1/metadata?topics=b,a,b,b,a")
        assert [topic["name"] for topic in body["topics"]] == ["a", "b"]
        _, body = await get(agent, "/v1/metadata?topics=b")
        assert [topic["name"] for topic in body["topics"]] == ["b"]
        status, body = await get(agent, "/v1/metadata?topics=b,c")
        assert (status, body["error"], body["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
        status, body = await get(agent, "/v1/nothing")
        assert (status, body["error"]) == (404, "INVALID_REQUEST")
        assert body["message"] == (
            f"no such path: /v1/nothing: broker 11 answers here; ask one of its controllers: {members[0].url}"
        )
        status, body = await get(agent, "/nothing")
        assert (status, body["message"]) == (404, "no such path: /nothing")
        status, body = await get(agent, "/v1/status", Expect="foo")
        assert (status, body["error"], body["family"]) == (417, "INVALID_REQUEST", "Rejected")
        assert (await get(agent, "/healthz"))[0] == 200
        async with aiohttp.ClientSession() as http, http.get(agent.http_url + "/metrics") as response:
            text = await response.text()
        assert f"metaquorum_last_applied_record_offset {agent.image.end_offset - 1}.0" in text
        assert 'metaquorum_broker_registration_state{state="ONLINE"} 1.0' in text


async def test_connections_beyond_the_bound_are_closed_and_the_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients never use up the files that the broker's cache and its way to the controllers need."""
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 3)
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_PER_ADDRESS", 1)
    async with (
        controllers(FakeCluster()) as members,
        BrokerAgent(settings_for(tmp_path, members)) as agent,
    ):
        url = urlsplit(agent.http_url)
        kept = [await asyncio.open_connection(url.hostname, url.port) for _ in range(3)]
        async with asyncio.timeout(DEADLINE_S):
            refused, too_many = await asyncio.open_connection(url.hostname, url.port)
            assert await refused.read() == b""
            too_many.close()
            for reader, writer in kept:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
                writer.close()


# --- whom it asks


async def test_a_redirect_is_followed_and_a_silent_hint_survived(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with (
        controllers(cluster, 3, active=2) as members,
        BrokerAgent(settings_for(tmp_path, members)) as agent,
    ):
        await online(agent)
        assert members[1].requests == 0  # the first one named the third
        members[2].knows_active = members[0].knows_active = False
        cluster.active = members[1]
        cluster.append(NoOpRecord())
        await until(lambda: agent.image.end_offset == cluster.log.image.end_offset, "the new one is found")
        assert agent.state is State.ONLINE
        assert agent.fetch_loop.controller_id == 2
        assert len(cluster.registrations) == 1


async def test_frames_damaged_on_the_way_are_asked_for_again(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with controllers(cluster) as members:
        members[0].damages_frames = 2
        async with BrokerAgent(settings_for(tmp_path, members)) as agent:
            await online(agent)
            assert digest(agent.image) == digest(cluster.log.image)
            assert agent.numbers().load_errors == 2


async def test_an_unregistered_broker_registers_again_under_a_new_epoch(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with controllers(cluster) as members, BrokerAgent(settings_for(tmp_path, members)) as agent:
        await online(agent)
        epoch = agent.broker_epoch
        assert epoch is not None
        cluster.append(UnregisterBrokerRecord(BrokerId(11), epoch))
        await until(lambda: agent.broker_epoch not in (None, epoch), "it has a new epoch")
        await online(agent)
        assert len({registration.incarnation_id for registration in cluster.registrations}) == 1


@pytest.mark.slow
async def test_a_duplicate_is_waited_for_and_then_named(tmp_path: Path) -> None:
    cluster = FakeCluster(duplicate=True)
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members, registration_timeout_ms=2_000)
        with pytest.raises(DuplicateBrokerRegistration, match=r"10\.0\.0\.7:9092"):
            async with BrokerAgent(settings) as agent:
                await agent.run()
        assert len(cluster.registrations) > 2
        cluster.duplicate = False
        async with BrokerAgent(settings) as agent:
            await online(agent)


async def test_a_duplicate_that_ends_in_time_is_succeeded(tmp_path: Path) -> None:
    cluster = FakeCluster(duplicate=True)
    async with controllers(cluster) as members, BrokerAgent(settings_for(tmp_path, members)) as agent:
        await until(lambda: len(cluster.registrations) >= 2, "it keeps asking")
        assert (await get(agent, "/v1/metadata"))[0] == 503
        cluster.duplicate = False
        await online(agent)


async def test_a_foreign_cluster_ends_the_broker(tmp_path: Path) -> None:
    cluster = FakeCluster(log=FakeLog(cluster_id="another-cluster-000000"))
    async with controllers(cluster) as members:
        with pytest.raises(InconsistentClusterId, match="another-cluster"):
            async with BrokerAgent(settings_for(tmp_path, members)) as agent:
                await agent.run()


# --- the cache


def damage(path: Path, *, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


async def test_a_damaged_log_is_cut_and_the_rest_fetched_again(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.log.fill(300)
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        await crash(settings, lambda agent: agent.state is State.ONLINE)
        (file,) = (tmp_path / "log").glob("*.log")
        damage(file, at=200)
        cluster.fetches.clear()
        async with BrokerAgent(settings) as agent:
            await online(agent)
            assert 0 < cluster.fetches[0].fetch_offset < 100
            assert digest(agent.image) == digest(cluster.log.image)
            assert agent.numbers().load_errors == 1
        assert (tmp_path / "quarantine" / file.name).exists()


async def test_a_damaged_log_behind_a_sound_snapshot_costs_only_what_follows_it(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.log.fill(300)
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        await crash(settings, lambda agent: agent.state is State.ONLINE)
        write_snapshot(cluster.log.image_at(201), tmp_path / "snapshots")
        (file,) = (tmp_path / "log").glob("*.log")
        damage(file, at=200)
        cluster.fetches.clear()
        async with BrokerAgent(settings) as agent:
            await online(agent)
            assert cluster.fetches[0].fetch_offset == 201
            assert digest(agent.image) == digest(cluster.log.image)
        # And the files it goes on with are sound: another start asks from their end.
        cluster.fetches.clear()
        async with BrokerAgent(settings) as agent:
            await online(agent)
            assert cluster.fetches[0].fetch_offset > 201
            assert digest(agent.image) == digest(cluster.log.image)


async def test_a_damaged_snapshot_is_set_aside_and_an_older_one_taken(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.log.fill(300)
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        await crash(settings, lambda agent: agent.state is State.ONLINE)
        end_offset = cluster.log.image.end_offset
        write_snapshot(cluster.log.image_at(101), tmp_path / "snapshots")
        newer = write_snapshot(cluster.log.image_at(201), tmp_path / "snapshots")
        damage(newer, at=90)
        cluster.fetches.clear()
        async with BrokerAgent(settings) as agent:
            await online(agent)
            assert cluster.fetches[0].fetch_offset == end_offset
            assert digest(agent.image) == digest(cluster.log.image)
        assert (tmp_path / "quarantine" / newer.name).exists()


async def test_the_cache_of_another_cluster_is_set_aside(tmp_path: Path) -> None:
    cluster = FakeCluster()
    foreign = FakeLog(cluster_id="another-cluster-000000")
    foreign.fill(50)
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        write_snapshot(foreign.image, tmp_path / "snapshots")
        (tmp_path / "log" / f"{0:020d}.log").write_bytes(b"".join(frame for _, frame in foreign.frames))
        async with BrokerAgent(settings) as agent:
            await online(agent)
            assert cluster.fetches[0].fetch_offset == 0
        assert len(list((tmp_path / "quarantine").iterdir())) == 2


# --- where the history breaks off


async def test_a_diverging_history_is_set_aside_and_rebuilt_from_an_older_snapshot(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.log.fill(100)
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        await crash(settings, lambda agent: agent.state is State.ONLINE)
        # An unsafe recovery: what came after offset 61 is lost, and another history goes on there.
        rewritten = FakeLog()
        rewritten.fill(61)
        assert rewritten.image == cluster.log.image_at(61)
        rewritten.claim()
        rewritten.fill(200)
        for end_offset in (41, 71):
            write_snapshot(cluster.log.image_at(end_offset), tmp_path / "snapshots")
        cluster.log = rewritten
        cluster.fetches.clear()
        seen = []
        async with BrokerAgent(settings, on_delta=lambda *change: seen.append(change)) as agent:
            await online(agent)
            offsets = [fetch.fetch_offset for fetch in cluster.fetches]
            assert offsets[0] > 100
            assert offsets[1] == 41
            assert digest(agent.image) == digest(cluster.log.image)
        assert [delta for _, _, delta in seen].count(None) == 3  # loaded, given up, rebuilt
        moved = {path.name for path in (tmp_path / "quarantine").iterdir()}
        assert {name.partition("-")[0] for name in moved if name.endswith(".snapshot")} == {f"{71:020d}"}
        assert any(name.endswith(".log") for name in moved)


async def test_a_diverging_broker_serves_nobody_meanwhile(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.log.fill(100)
    async with controllers(cluster) as members, BrokerAgent(settings_for(tmp_path, members)) as agent:
        await online(agent)
        rewritten = FakeLog(unix_ms=1)
        rewritten.fill(150)
        cluster.log = rewritten
        cluster.keeps_fenced = True
        cluster.tell()
        await until(lambda: agent.state is State.FENCED, "it gave up serving")
        assert not agent.may_serve()
        cluster.keeps_fenced = False
        await online(agent)
        assert digest(agent.image) == digest(rewritten.image)


async def test_an_image_is_downloaded_by_range_and_resumed_elsewhere(tmp_path: Path) -> None:
    cluster = FakeCluster()
    for number in range(40):
        cluster.log.topic(f"topic-{number}", partitions=20)
    cluster.log.fill(1000)
    cluster.snapshot_at = cluster.log.log_start_offset = 1000
    cluster.log.fill(1100)
    async with controllers(cluster, 2) as members:
        members[0].cut_at = 5_000
        async with BrokerAgent(settings_for(tmp_path, members)) as agent:
            await online(agent)
            assert agent.fetch_loop.follower.snapshots_fetched == 1
            assert agent.fetch_loop.follower.records_fetched == cluster.log.image.end_offset - 1000
            assert digest(agent.image) == digest(cluster.log.image)
            begins = [int(wanted.removeprefix("bytes=").partition("-")[0]) for wanted in cluster.ranges]
            assert begins[0] == 0
            assert 0 < begins[1] <= 5_000
            end_offset = agent.image.end_offset
        cluster.fetches.clear()
        async with BrokerAgent(settings_for(tmp_path, members)) as agent:
            await online(agent)
            assert cluster.fetches[0].fetch_offset >= end_offset


async def test_a_snapshot_that_cannot_be_had_is_told_until_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster()
    cluster.log.fill(500)
    cluster.snapshot_at = cluster.log.log_start_offset = 500
    cluster.log.fill(520)
    async with controllers(cluster) as members:
        members[0].withholds_snapshots = True
        async with BrokerAgent(settings_for(tmp_path, members)) as agent:
            await until(lambda: agent.cache.warnings, "it says that it has no snapshot")
            assert not agent.may_serve()
            assert "HTTP 404" in dict(agent.numbers().warnings)["SNAPSHOT_NOT_FETCHED"]
            members[0].withholds_snapshots = False
            await online(agent)
            assert agent.numbers().warnings == ()
        assert [record.message for record in caplog.records].count("snapshot_not_fetched") == 1


async def test_a_broker_far_behind_goes_on_from_the_offered_image(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.log.fill(50)
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        await crash(settings, lambda agent: agent.state is State.ONLINE)
        cluster.log.fill(500)
        cluster.snapshot_at = cluster.log.log_start_offset = 500
        cluster.log.fill(520)
        async with BrokerAgent(settings) as agent:
            await online(agent)
            assert agent.fetch_loop.follower.snapshots_fetched == 1
            assert digest(agent.image) == digest(cluster.log.image)


async def test_a_long_answer_leaves_the_loop_to_others_between_its_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metadata_log.limits.LOOP_SLICE_MS", 0)
    cluster, turns, applied_in_turn = FakeCluster(), 0, []
    cluster.log.fill(300)
    async with controllers(cluster) as members:
        agent = BrokerAgent(
            settings_for(tmp_path, members), on_delta=lambda *_: applied_in_turn.append(turns)
        )
        async with agent:
            while agent.state is not State.ONLINE:
                turns += 1
                await asyncio.sleep(0)
    assert len(applied_in_turn) > 30
    assert max(Counter(applied_in_turn).values()) <= 2


@pytest.mark.slow
async def test_a_large_batch_leaves_the_loop_to_others_and_shows_no_part_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no turn grows with a batch. Method: a slice per turn, which are counted from the answer's arrival on."""
    partitions = 10 * ITEMS_BETWEEN_RESTS
    monkeypatch.setattr("metadata_log.limits.LOOP_SLICE_MS", 0)
    cluster, turns, arrived_in, applied_in = FakeCluster(), 0, [], []
    seen: set[int] = set()

    def arrives(frames: bytes) -> Iterator[Sliced[ReceivedFrame]]:
        arrived_in.append(turns)
        return reading_frames(frames)

    monkeypatch.setattr("broker_agent.fetch_loop.reading_frames", arrives)
    async with controllers(cluster) as members:
        agent = BrokerAgent(settings_for(tmp_path, members), on_delta=lambda *_: applied_in.append(turns))
        async with agent:
            await online(agent)
            arrived_in.clear()
            applied_in.clear()
            cluster.log.topic("large", partitions=partitions)
            end_offset = cluster.log.image.end_offset
            while agent.image.end_offset < end_offset:
                turns += 1
                seen |= {len(topic.partitions) for topic in agent.image.topics.by_id.values()}
                await asyncio.sleep(0)
    assert applied_in[0] - arrived_in[0] >= 2 * 10, "decoded in ten slices, applied in ten"
    assert not seen


async def test_its_own_snapshot_is_taken_and_the_log_behind_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_agent.cache.SNAPSHOT_BYTES_MIN", 2_000)
    monkeypatch.setattr("broker_agent.cache.SEGMENT_BYTES", 1_000)
    monkeypatch.setattr("broker_agent.cache_thread.SYNC_EVERY_S", 0.0)
    cluster = FakeCluster()
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        async with BrokerAgent(settings) as agent:
            await online(agent)
            while agent.cache.segments.log_start_offset == 0:
                cluster.log.fill(cluster.log.image.end_offset + 300)
                cluster.append(NoOpRecord())
                await until(
                    lambda: agent.image.end_offset == cluster.log.image.end_offset, "it has caught up"
                )
                await until(lambda: not agent.cache.is_snapshot_due, "a thread has written what was due")
                assert agent.image.end_offset < 100_000
            await until(lambda: len(agent.cache.store.ids()) == 2, "the oldest of them has gone")
        cluster.fetches.clear()
        end_offset = agent.image.end_offset
        async with BrokerAgent(settings) as agent:
            await online(agent)
            assert cluster.fetches[0].fetch_offset >= end_offset
            assert digest(agent.image) == digest(cluster.log.image)


async def test_a_snapshot_of_what_the_broker_has_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no controller sets a broker back. Method: one offers a snapshot that ends where its image does."""
    cluster = FakeCluster()
    async with controllers(cluster) as members, BrokerAgent(settings_for(tmp_path, members)) as agent:
        await online(agent)
        cluster.log.fill(50)
        cluster.append(NoOpRecord())
        await until(lambda: agent.image.end_offset == cluster.log.image.end_offset, "it has caught up")
        ends = [agent.image.end_offset]
        take = agent.fetch_loop.replace_image

        def replaced(image: MetadataImage) -> None:
            ends.append(image.end_offset)
            take(image)

        monkeypatch.setattr(agent.fetch_loop, "replace_image", replaced)
        cluster.snapshot_at = ends[0]
        downloads: list[object] = []

        async def download(*what: object, **_how: object) -> str:
            downloads.append(what)
            raise SnapshotNotFound("nobody has it")

        monkeypatch.setattr("broker_agent.fetch_loop.download_snapshot", download)
        kind = FakeController._kind
        offers, failed = 0, agent.fetch_loop.failed_calls.count

        def offered(controller: FakeController, fetch: FetchRequest) -> FetchKind:
            nonlocal offers
            offers += 1
            return FetchKind.IMAGE if offers <= 3 else kind(controller, fetch)

        monkeypatch.setattr(FakeController, "_kind", offered)
        cluster.append(NoOpRecord())
        await until(lambda: agent.fetch_loop.failed_calls.count > failed, "the offer leads nowhere")
        await until(lambda: offers > 3, "it asks on")
        await until(lambda: agent.image.end_offset == cluster.log.image.end_offset, "it follows on")
        assert (ends, downloads) == (ends[:1], [])


async def test_a_snapshot_that_cannot_be_written_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_agent.cache.SNAPSHOT_BYTES_MIN", 500)
    monkeypatch.setattr("broker_agent.cache_thread.SYNC_EVERY_S", 0.0)
    cluster = FakeCluster()
    async with controllers(cluster) as members, BrokerAgent(settings_for(tmp_path, members)) as agent:
        await online(agent)
        shutil.rmtree(tmp_path / "snapshots")
        cluster.log.fill(300)
        cluster.append(NoOpRecord())
        await until(lambda: agent.numbers().snapshots_failed, "the snapshot failed")
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{agent.http_url}/readyz") as response,
        ):
            told = await response.json()
        assert (response.status, told["ready"]) == (200, True)
        assert [reason["code"] for reason in told["reasons"]] == ["SNAPSHOT_FAILED"]
        assert b'metaquorum_health_reason{code="SNAPSHOT_FAILED"} 1.0' in exposition(agent.numbers())
        await until(lambda: agent.image.end_offset == cluster.log.image.end_offset, "it follows on")
        assert agent.may_serve()
        (tmp_path / "snapshots").mkdir()
        cluster.log.fill(600)
        cluster.append(NoOpRecord())
        await until(lambda: not agent.numbers().warnings, "the next one was written")
        assert agent.numbers().snapshots_failed >= 1
        assert list((tmp_path / "snapshots").iterdir())


async def test_a_disk_that_takes_no_frames_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_agent.cache.SEGMENT_BYTES", 500)
    cluster = FakeCluster()
    async with controllers(cluster) as members:
        with pytest.raises(DiskFailed, match="then start again"):  # noqa: PT012 (raised inside)
            async with BrokerAgent(settings_for(tmp_path, members)) as agent:
                await online(agent)
                shutil.rmtree(tmp_path / "log")
                cluster.log.fill(300)
                cluster.append(NoOpRecord())
                await agent.run()


# --- serving and not serving


@pytest.mark.parametrize("path", ["/v1/metadata", "/v1/metadata?topics=orders"])
async def test_a_broker_cut_off_fences_itself_by_the_clock_and_comes_back(tmp_path: Path, path: str) -> None:
    """Goal: a broker that is cut off stops serving (A103), and no timer is trusted. Method: the clock jumps as after a
    suspend, while no timer has fired.
    """
    cluster, clock = FakeCluster(), Clock()
    cluster.log.topic("orders")
    async with (
        controllers(cluster) as members,
        BrokerAgent(settings_for(tmp_path, members), now_ms=clock) as agent,
    ):
        await online(agent)
        await until(lambda: agent.session_left_ms > 0, "a session")
        answered = metadata_of

        def slowly(image: MetadataImage, names: Sequence[str] | None) -> dict[str, Any]:
            assert threading.current_thread() is not threading.main_thread()
            clock.ahead_ms = cluster.session_timeout_ms
            return answered(image, names)

        with patch("broker_agent.http_api.metadata_of", slowly):
            told = await get(agent, path)
            assert told[1]["error"] == "BROKER_NOT_AVAILABLE", "its session ended while it wrote the answer"
        assert not agent.may_serve()
        assert agent.state is State.FENCED
        assert (await get(agent, path))[1]["error"] == "BROKER_NOT_AVAILABLE"
        cluster.tell()
        await online(agent)


async def test_metadata_is_refused_while_clients_have_not_read_their_answers(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.log.topic("orders")
    async with (
        controllers(cluster) as members,
        BrokerAgent(settings_for(tmp_path, members)) as agent,
    ):
        await online(agent)
        sizes: list[int] = []

        def refusal(_buffers: AnswerBuffers, size: int) -> ThrottlingQuotaExceeded:
            sizes.append(size)
            return ThrottlingQuotaExceeded("clients have not read their answers")

        with patch.object(AnswerBuffers, "refusal", refusal):
            status, body = await get(agent, "/v1/metadata")
        assert (status, body["error"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        assert len(sizes) == 1
        assert (await get(agent, "/v1/metadata"))[0] == 200


async def test_metadata_of_many_topics_is_sent_in_pieces_and_cut_short_once_the_session_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large the cluster is, the broker holds two pieces of the answer."""
    monkeypatch.setattr(limits, "ANSWER_PIECE_BYTES", 500)
    monkeypatch.setattr(limits, "SMALL_ANSWER_BYTES", 1)
    held: list[int] = []

    def refusal(buffers: AnswerBuffers, size: int) -> ThrottlingQuotaExceeded | None:
        held.append(buffers.bytes_total + size)
        return None if size <= 1_000 else ThrottlingQuotaExceeded("more than two pieces")

    cluster, clock = FakeCluster(), Clock()
    names = [f"topic-{number}" for number in range(20)]
    for name in names:
        cluster.log.topic(name)
    async with (
        controllers(cluster) as members,
        BrokerAgent(settings_for(tmp_path, members), now_ms=clock) as agent,
    ):
        await online(agent)
        await until(lambda: agent.session_left_ms > 0, "a session")
        monkeypatch.setattr(AnswerBuffers, "refusal", refusal)
        status, body = await get(agent, "/v1/metadata")
        assert (status, [topic["name"] for topic in body["topics"]]) == (200, sorted(names))
        assert held == [1_000]
        described = topics_by_name

        def slowly(image: MetadataImage, wanted: Collection[str]) -> Items[dict[str, Any]]:
            def each() -> Iterator[dict[str, Any]]:
                for place, topic in enumerate(described(image, wanted)):
                    if place == 10:
                        clock.ahead_ms = cluster.session_timeout_ms
                    yield topic

            return Items(len(wanted), each())

        with patch("broker_agent.http_api.topics_by_name", slowly), pytest.raises(aiohttp.ClientError):
            await get(agent, "/v1/metadata")


async def test_a_session_timeout_that_an_operator_changes_reaches_a_broker_that_stays_registered(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(session_timeout_ms=60_000)
    async with controllers(cluster) as members, BrokerAgent(settings_for(tmp_path, members)) as agent:
        await online(agent)
        await until(lambda: agent.session_left_ms > 30_000, "a session")
        cluster.session_timeout_ms = 5_000

        def is_shorter() -> bool:
            cluster.tell()  # again and again: a poll that arrives after it waits for a third of the longer session
            return 0 < agent.session_left_ms < 5_000

        await until(is_shorter, "the shorter session")


async def test_a_broker_without_controllers_turns_fenced_by_itself(tmp_path: Path) -> None:
    cluster = FakeCluster(session_timeout_ms=300)
    async with controllers(cluster) as members, BrokerAgent(settings_for(tmp_path, members)) as agent:
        await online(agent)
        cluster.active = None
        cluster.tell()
        await until(lambda: agent.state is State.FENCED, "it fenced itself")
        cluster.active = members[0]
        await online(agent)


async def test_fenced_by_the_controllers(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with controllers(cluster) as members, BrokerAgent(settings_for(tmp_path, members)) as agent:
        await online(agent)
        cluster.keeps_fenced = True
        cluster.fence(11)
        await until(lambda: agent.state is State.FENCED, "it saw the fencing")
        status, body = await get(agent, "/readyz")
        assert (status, body["reasons"][0]["code"]) == (503, "NOT_SERVING")
        assert b'metaquorum_health_reason{code="NOT_SERVING"} 1.0' in exposition(agent.numbers())
        cluster.keeps_fenced = False
        cluster.append(NoOpRecord())
        await online(agent)
        assert b"NOT_SERVING" not in exposition(agent.numbers())


async def test_a_wish_to_be_fenced_travels_at_once(tmp_path: Path) -> None:
    cluster = FakeCluster(session_timeout_ms=60_000)
    async with controllers(cluster) as members, BrokerAgent(settings_for(tmp_path, members)) as agent:
        await online(agent)
        agent.want_fence(wanted=True)
        await until(lambda: cluster.fetches[-1].want_fence, "the wish arrived")
        agent.want_fence(wanted=False)
        await until(lambda: not cluster.fetches[-1].want_fence, "and the other")


# --- stopping


@pytest.mark.slow
async def test_stopping_while_leaderships_do_not_move_ends_at_the_deadline(tmp_path: Path) -> None:
    """A105: Stopping, and Offline at the deadline."""
    cluster = FakeCluster(grants_shut_down=False)
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members, shutdown_timeout_ms=2_000)
        async with BrokerAgent(settings) as agent:
            await online(agent)
            agent.stop()
            await until(lambda: cluster.fetches[-1].want_shut_down, "the wish arrived")
            assert agent.state is State.STOPPING
            assert (await get(agent, "/v1/metadata"))[0] == 200
            agent.stop()
            await agent.run()
        assert not (tmp_path / "clean-stop.json").exists()


async def test_stopping_while_fenced_ends_at_once_and_the_session_with_it(tmp_path: Path) -> None:
    cluster = FakeCluster(keeps_fenced=True, session_timeout_ms=60_000)
    async with controllers(cluster) as members:
        async with BrokerAgent(settings_for(tmp_path, members)) as agent:
            await until(lambda: cluster.fetches, "it fetches")
            assert agent.state is State.FENCED
            agent.stop()
            await agent.run()
        assert cluster.fetches[-1].want_shut_down
        assert (tmp_path / "clean-stop.json").exists()


async def test_stopping_while_unregistered_ends_at_once(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with controllers(cluster) as members:
        cluster.active = None
        async with BrokerAgent(settings_for(tmp_path, members)) as agent:
            await until(lambda: members[0].requests > 3, "it keeps asking")
            agent.stop()
            await agent.run()
        assert not (tmp_path / "clean-stop.json").exists()


async def test_a_run_that_was_never_registered_leaves_the_one_before_it_clean(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        async with BrokerAgent(settings) as agent:
            await online(agent)
            epoch = agent.broker_epoch
        cluster.active, asked = None, members[0].requests
        async with BrokerAgent(settings):
            await until(lambda: members[0].requests > asked, "it asks")
        cluster.active = members[0]
        async with BrokerAgent(settings) as agent:
            await online(agent)
        assert cluster.registrations[-1].previous_broker_epoch == epoch


async def test_stopping_while_offline_just_ends(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with controllers(cluster) as members:
        async with BrokerAgent(settings_for(tmp_path, members)) as agent:
            assert agent.state is State.OFFLINE
            agent.stop()
            await agent.run()
        assert not cluster.registrations


# --- bad beginnings


async def test_a_second_broker_on_one_directory_is_refused(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        async with BrokerAgent(settings) as agent:
            await online(agent)
            with pytest.raises(DirectoryInUse):
                async with BrokerAgent(settings):
                    pass
            other = settings_for(tmp_path / "other", members)
            taken = ("127.0.0.1", int(agent.http_url.rpartition(":")[2]))
            with pytest.raises(CannotListen):
                async with BrokerAgent(replace(other, listen_http=taken)):
                    pass


async def test_an_unformatted_or_foreign_directory_is_refused(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path / "formatted", members)
        for wrong in (
            replace(settings, data_dir=tmp_path),
            replace(settings, broker_id=BrokerId(12)),
            replace(settings, cluster_id="another-cluster-000000"),
        ):
            with pytest.raises(ForeignDirectory):
                async with BrokerAgent(wrong):
                    pass


# --- errors on the way


class NotReady(ValueError):
    """What a host's `on_delta` raises."""


def not_ready(*_seen: object) -> None:
    try:
        raise KeyError("of the host")
    except KeyError:
        raise NotReady("of the host")  # noqa: B904 (its context is looked at)


async def test_an_error_of_on_delta_is_raised_in_place_of_the_block(tmp_path: Path) -> None:
    async with controllers(FakeCluster()) as members:
        with pytest.raises(NotReady) as caught:
            async with BrokerAgent(settings_for(tmp_path, members), on_delta=not_ready) as agent:
                await agent.run()
        assert isinstance(caught.value.__context__, KeyError)


async def test_what_the_block_raised_too_is_the_context_of_the_agents_error(tmp_path: Path) -> None:
    async with controllers(FakeCluster()) as members:
        with pytest.raises(NotReady) as caught:  # noqa: PT012 (raised inside)
            async with BrokerAgent(settings_for(tmp_path, members), on_delta=not_ready) as agent:
                try:
                    await agent.run()
                finally:
                    raise LookupError("of the block")
        assert repr(caught.value.__context__) == "LookupError('of the block')"


async def test_a_group_out_of_the_block_goes_on_as_it_came(tmp_path: Path) -> None:
    raised = ExceptionGroup("of the block", [ValueError("one")])
    async with controllers(FakeCluster()) as members:
        with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 (raised inside)
            async with BrokerAgent(settings_for(tmp_path, members)) as agent:
                await online(agent)
                raise raised
        assert caught.value is raised


async def test_an_agent_is_entered_once(tmp_path: Path) -> None:
    async with controllers(FakeCluster()) as members:
        agent = BrokerAgent(settings_for(tmp_path, members))
        async with agent:
            await online(agent)
        with pytest.raises(RuntimeError, match=r"entered before.*make another"):
            async with agent:
                pass


# --- as a process

RUN = """
import asyncio, logging, sys
from pathlib import Path
from broker_agent.process import run_broker
from broker_agent.config import BrokerSettings
from broker_agent.follower import ReceivedFrame, reading_frames
logging.basicConfig(level=logging.INFO)
asyncio.run(run_broker(BrokerSettings(
    cluster_id=sys.argv[1], broker_id=11, data_dir=Path(sys.argv[2]), controllers=(sys.argv[3],),
    listen_http=("127.0.0.1", int(sys.argv[4])),
), text_log=Path("broker.log")))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_process_tells_where_it_is_and_ends_clean_on_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    cluster = FakeCluster()
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path / "data", members, listen_http=("127.0.0.1", free_port()))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", RUN, CLUSTER_ID, settings.data_dir, members[0].url),
            str(settings.listen_http[1]),
            cwd=Path(__file__).resolve().parents[3],
            stderr=asyncio.subprocess.DEVNULL,
        )
        await until(
            lambda: any(not broker.fenced for broker in cluster.log.image.brokers.values()), "unfenced"
        )
        told = read_process_json(settings.data_dir)
        assert told is not None
        assert (told["pid"], told["role"], told["id"]) == (process.pid, "broker", 11)
        assert told["http"] == f"http://127.0.0.1:{settings.listen_http[1]}"
        assert (told["raft"], told["log"]) == (None, "broker.log")
        async with aiohttp.ClientSession() as http, http.get(told["http"] + "/v1/status") as response:
            assert (await response.json())["incarnation_id"] == told["incarnation_id"]
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0
        assert read_process_json(settings.data_dir) is None
        assert (settings.data_dir / "clean-stop.json").exists()


@pytest.mark.slow
def test_a_brokers_process_keeps_its_collections_short(tmp_path: Path) -> None:
    """A broker holds the same image as a controller, and to walk a million partitions takes longer than a poll may."""

    async def scenario() -> None:
        cluster = FakeCluster()
        async with controllers(cluster) as members:
            settings = settings_for(tmp_path / "data", members)
            running = asyncio.ensure_future(run_broker(settings))
            await until(lambda: running.done() or read_process_json(settings.data_dir), "the broker runs")
            kept_short = gc.get_threshold(), gc.get_freeze_count() > 0
            walking = any("keep_walking" in repr(task.get_coro()) for task in asyncio.all_tasks())
            os.kill(os.getpid(), signal.SIGTERM)
            await running
            assert kept_short == ((collector.YOUNG_MAX, collector.YOUNG_WALKS, collector.MIDDLE_WALKS), True)
            assert walking

    switch_s = sys.getswitchinterval()
    try:
        asyncio.run(scenario())
    finally:
        sys.setswitchinterval(switch_s)


@pytest.mark.slow
async def test_a_refused_broker_leaves_no_process_json_but_that_of_another(tmp_path: Path) -> None:
    cluster = FakeCluster(log=FakeLog(cluster_id="another-cluster-000000"))
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        told: list[object] = []
        async with asyncio.TaskGroup() as tasks:
            refused = tasks.create_task(_refusal(run_broker(settings)))
            while not refused.done():
                told.append(read_process_json(tmp_path))
                await asyncio.sleep(0)
        assert isinstance(refused.result(), InconsistentClusterId)
        assert any(told)
        assert read_process_json(tmp_path) is None
    async with controllers(FakeCluster()) as members:
        settings = settings_for(tmp_path, members)
        async with BrokerAgent(settings):
            (tmp_path / "process.json").write_text('{"pid": 1}')
            assert isinstance(await _refusal(run_broker(settings)), DirectoryInUse)
            assert read_process_json(tmp_path) == {"pid": 1}


async def _refusal(running: Awaitable[None]) -> MetadataError | None:
    try:
        await running
    except MetadataError as error:
        return error
    return None


def test_an_incarnation_is_drawn_from_the_given_chance(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, [FakeController(FakeCluster(), 1)], controllers=("http://127.0.0.1:1",))
    first, second = (BrokerAgent(settings, rng=random.Random(7)) for _ in range(2))
    assert first.incarnation_id == second.incarnation_id
