"""Change feeds over HTTP: exactly the records of the named topics, resumed by offset, with a long poll (C19)."""

import asyncio
import hashlib
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from metadata_log import limits
from metadata_log.apply import apply
from metadata_log.batch import NO_ENVELOPE, RecordBatch
from metadata_log.ids import BrokerId, NodeId, TopicId, uuid_text
from metadata_log.image.metadata_image import EMPTY, Delta
from metadata_log.log.lines import log_lines
from metadata_log.records.configs import ConfigRecord
from quorum.controller.controller import Controller
from quorum.decide.configs import AlterConfigs
from quorum.decide.deleted_topics import UndeleteTopics
from quorum.decide.topics import CreateTopic, DeleteTopic, DeleteTopics
from quorum.http.bodies import NDJSON
from quorum.http.feed import EVENT_STREAM
from snapshots.history import batches
from tests.support.desk import Desk, DoorServer
from tests.support.lab import Lab, online, setting


def _topic(name: str) -> CreateTopic:
    replicas = (BrokerId(11),)
    return CreateTopic(
        name=name,
        partitions=-1,
        replication_factor=-1,
        assignment=(replicas, replicas),
        configs={"cleanup.policy": "compact"},
        validate_only=False,
    )


class Fed:
    """A controller that leads, and a client of its feeds."""

    def __init__(self, lab: Lab, desk: Desk, client: TestClient[web.Request, web.Application]) -> None:
        self.lab = lab
        self.desk = desk
        self.client = client

    @property
    def controller(self) -> Controller:
        return self.desk.controller

    async def get(self, query: str, accept: str = NDJSON) -> aiohttp.ClientResponse:
        return await self.client.get(f"/v1/log?{query}", headers={"Accept": accept})

    async def feed(self, query: str) -> tuple[list[dict[str, Any]], int]:
        """Return the lines of one answer, and the offset to go on from."""
        response = await self.get(query)
        text = await response.text()
        assert response.status == 200, text
        *lines, last = [json.loads(line) for line in text.splitlines()]
        assert set(last) == {"next_offset"}
        return lines, last["next_offset"]

    async def create(self, name: str) -> None:
        await self.lab.write(self.controller, _topic(name))

    async def delete(self, name: str) -> None:
        await self.lab.write(self.controller, DeleteTopic(name=name))

    async def end(self, topic_id: TopicId) -> None:
        await self.lab.write(self.controller, DeleteTopics(topics=(topic_id,), now=True))

    async def restore(self, topic_id: TopicId) -> None:
        await self.lab.write(self.controller, UndeleteTopics(topics=(topic_id,)))

    async def configure(self, name: str, value: str) -> None:
        change = AlterConfigs(resource_type=2, resource_name=name, set={"retention.ms": value}, unset=())
        await self.lab.write(self.controller, change)

    def expected(self, *, names: set[str], ids: set[str] = frozenset()) -> list[dict[str, Any]]:  # type: ignore[assignment]
        """Return what a feed from offset 0 has, by the whole state before and after each batch."""
        found, image = [], EMPTY
        for batch in batches(self.desk.door.committed_log.segments, 0):
            before, image = image, apply(image, batch).image
            for line in log_lines(batch):
                record = line["record"]
                known = [topics.topics.ids.items() for topics in (before, image)]
                pairs = {(name, uuid_text(topic_id)) for items in known for name, topic_id in items}
                deleted = [topics.topics.deleted.items() for topics in (before, image)]
                gone = {(of.topic.name, uuid_text(topic_id)) for items in deleted for topic_id, of in items}
                if line["type"] == "Config":
                    if record["resource_type"] != 2:
                        continue
                    concerned = {pair for pair in pairs if pair[0] == record["resource_name"]}
                else:
                    concerned = {pair for pair in pairs | gone if pair[1] == record.get("topic_id")}
                if any(name in names or topic_id in ids for name, topic_id in concerned):
                    found.append(line)
        return found


@asynccontextmanager
async def over_feeds(
    directory: Path, *, principals: Path | None = None, **options: Any
) -> AsyncIterator[Fed]:
    lab = Lab(**options)
    desk = Desk(lab, directory, principals=principals)
    door = desk.door
    lab.controllers[1].attach(lab.quorum.nodes[NodeId(1)], [door.committed_log, door.feeds])
    controller = lab.lead(1)
    await online(lab, controller, 11)
    async with TestClient[web.Request, web.Application](DoorServer(door)) as client:
        yield Fed(lab, desk, client)
    assert desk.faults == []


@pytest.mark.parametrize("piece_bytes", [1, 300])
async def test_lines_that_end_inside_a_batch_go_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """The filter is asked once more of the records before: what it learned from them stays as it was."""
    async with over_feeds(tmp_path, undelete_window_ms=60000) as fed:
        for name in ("a", "b", "a2"):
            await fed.create(name)
        topic_id = fed.controller.committed.topics.ids["a"]
        await fed.configure("a", "1")
        await fed.delete("a")
        await fed.restore(topic_id)
        await fed.delete("a")
        await fed.create("a")
        await fed.end(topic_id)
        pieces: list[int] = []
        made = fed.desk.door.past.lines

        async def noted(*args: Any, **how: Any) -> Any:
            lines = await made(*args, **how)
            pieces.append(len(lines[0].splitlines()))
            return lines

        monkeypatch.setattr(limits, "ANSWER_PIECE_BYTES", piece_bytes)
        monkeypatch.setattr(fed.desk.door.past, "lines", noted)
        assert (await fed.feed("from=0&topics=a,a2"))[0] == fed.expected(names={"a", "a2"})
        assert max(pieces) <= piece_bytes // 200 + 1


async def test_the_first_lines_of_a_feed_are_not_made_where_they_would_not_be_sent(tmp_path: Path) -> None:
    async with over_feeds(tmp_path) as fed:
        await fed.create("a")
        door = fed.desk.door
        with (
            door.buffers.holding(limits.ANSWERS_UNSENT_BYTES_MAX - limits.ANSWER_PIECE_BYTES),
            patch.object(type(door.past), "lines", side_effect=AssertionError("made")),
        ):
            assert (await fed.get("from=0&topics=a")).status == 429
        assert (await fed.get("from=0&topics=a")).status == 200


@pytest.mark.parametrize("time_is_up", [False, True])
async def test_what_comes_as_the_time_is_up_is_not_skipped(tmp_path: Path, *, time_is_up: bool) -> None:
    """Goal: a feed never skips. Method: its timer and the batch come in one turn of the loop, in either order."""
    async with over_feeds(tmp_path) as fed:
        await fed.create("a")
        feeds, loop = fed.desk.door.feeds, asyncio.get_running_loop()
        at = fed.controller.committed.end_offset
        topics = feeds.filter_at(at, names=["a"], ids=[])
        until_s = loop.time() + (0.0 if time_is_up else 3_600.0)
        waiting = asyncio.ensure_future(feeds.wait(topics, at, until_s=until_s))
        await asyncio.sleep(0)
        assert feeds.waiting == 1
        if time_is_up:
            await asyncio.sleep(0)  # the timer has run, and the feed has not gone on yet
            assert feeds.waiting == 1
        batch = RecordBatch(
            base_offset=at,
            controller_epoch=1,
            appended_at_ms=1,
            previous_crc=0,
            crc=0,
            envelope=NO_ENVELOPE,
            records=(ConfigRecord(2, "a", "retention.ms", "1"),),
        )
        image = replace(fed.controller.committed, end_offset=batch.end_offset)
        feeds.on_applied(batch, b"", image, Delta())
        assert await waiting == at, "from there on it reads the batch"


async def test_feeds_of_one_batch_go_on_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them know at once where to read on, and no turn of the loop resumes more of them than a slice has."""
    monkeypatch.setattr("metadata_log.limits.FEEDS_WOKEN_AT_ONCE", 3)
    async with over_feeds(tmp_path) as fed:
        feeds, loop = fed.desk.door.feeds, asyncio.get_running_loop()
        at = fed.controller.committed.end_offset
        until_s = loop.time() + 3_600.0
        waiting = [asyncio.ensure_future(feeds.wait(None, at, until_s=until_s)) for _ in range(10)]
        while feeds.waiting < len(waiting):
            await asyncio.sleep(0)
        await fed.create("a")
        resumed = [feeds.waiting]
        while feeds.waiting:
            await asyncio.sleep(0)
            resumed.append(feeds.waiting)
        assert max(before - after for before, after in pairwise(resumed)) == 3
        assert {await feed for feed in waiting} == {at}


@pytest.mark.slow
@pytest.mark.parametrize("undelete_window_ms", [0, 60_000])
@pytest.mark.parametrize("namings_kept", [10_000, 3, 0])
async def test_a_feed_has_exactly_the_records_of_its_topics_from_any_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, namings_kept: int, undelete_window_ms: int
) -> None:
    """Goal: names are those of the time, from any offset, by name or id, in answers of any size; with few namings kept a
    past state tells them. So it is of topics that are deleted for a time, and come back or end.
    """
    monkeypatch.setattr(limits, "TOPIC_NAMINGS_KEPT", namings_kept)
    monkeypatch.setattr(limits, "ANSWER_PIECE_BYTES", 400)
    rng = random.Random(namings_kept)
    async with over_feeds(tmp_path, undelete_window_ms=undelete_window_ms) as fed:
        living: set[str] = set()
        ids: set[str] = set()
        for _ in range(60 if not undelete_window_ms else 120):
            name = rng.choice("abcd")
            deleted = fed.controller.committed.topics.deleted
            here = sorted(topic_id for topic_id, of in deleted.items() if of.topic.name == name)
            if here and name not in living and rng.random() < 0.6:
                if rng.random() < 0.5:
                    await fed.end(rng.choice(here))
                else:
                    await fed.restore(rng.choice(here))
                    living.add(name)
            elif name not in living:
                await fed.create(name)
                living.add(name)
                ids.add(uuid_text(fed.controller.committed.topics.ids[name]))
            elif rng.random() < 0.3:
                await fed.delete(name)
                living.discard(name)
            else:
                await fed.configure(name, str(rng.randrange(1_000)))
        end_offset = fed.controller.committed.end_offset
        for _ in range(8):
            names = set(rng.sample(["a", "b", "c", "d", "never"], rng.randrange(3)))
            chosen = set(rng.sample(sorted(ids), rng.randrange(3)))
            if not names and not chosen:
                continue
            query = "&".join(
                f"{key}={','.join(some)}" for key, some in (("topics", names), ("topic_ids", chosen)) if some
            )
            start = at = rng.randrange(end_offset)
            found: list[dict[str, Any]] = []
            with patch.object(limits, "FEED_BYTES_MAX", rng.choice([1, 2_000, 1 << 20])):
                while at < end_offset:
                    lines, at = await fed.feed(f"{query}&from={at}")
                    found += lines
            expected = fed.expected(names=names, ids=chosen)
            assert found == [line for line in expected if line["offset"] >= start]


async def test_an_answer_that_broke_off_is_resumed_behind_its_last_line(tmp_path: Path) -> None:
    async with over_feeds(tmp_path) as fed:
        await fed.create("a")
        everything, _ = await fed.feed("topics=a&from=0")
        assert len(everything) == 4  # topic, setting, two partitions: one batch
        for line in everything[:-1]:
            rest, _ = await fed.feed(f"topics=a&from={line['offset'] + 1}")
            assert rest == [other for other in everything if other["offset"] > line["offset"]]


async def test_c19_a_stream_of_events_has_each_line_once_however_often_it_is_cut(tmp_path: Path) -> None:
    """C19 as server-sent events. Method: cut at every event, and resumed as a browser does, by the last id."""
    async with over_feeds(tmp_path) as fed:
        await fed.create("a")
        await fed.create("b")
        for number in range(20):
            await fed.configure("ab"[number % 2], str(number))
        expected, _ = await fed.feed("topics=a&from=0")
        found: list[dict[str, Any]] = []
        last: dict[str, str] = {}
        while len(found) < len(expected):
            headers = {"Accept": "text/event-stream", **last}
            async with fed.client.get("/v1/log?topics=a&from=0", headers=headers) as answer:
                assert (answer.status, answer.content_type) == (200, "text/event-stream")
                event = (await answer.content.readuntil(b"\n\n")).decode().splitlines()
                last = {"Last-Event-ID": event[0].removeprefix("id: ")}
                if event[1]:
                    found.append(json.loads(event[1].removeprefix("data: ")))
                    assert int(last["Last-Event-ID"]) == found[-1]["offset"] + 1
        assert found == expected
        headers = {"Accept": "text/event-stream", **last}
        async with fed.client.get("/v1/log?topics=a", headers=headers) as answer:
            # What was examined without a line of this topic is said, too; then it waits for what comes.
            examined = await answer.content.readuntil(b"\n\n")
            assert examined == f"id: {fed.controller.committed.end_offset}\n\n".encode()
            await fed.configure("a", "77")
            event = ["", ""]
            while not event[1]:
                event = (await answer.content.readuntil(b"\n\n")).decode().splitlines()
            assert json.loads(event[1].removeprefix("data: "))["record"]["value"] == "77"
        for query in ("wait_ms=1", "until=3"):
            assert (await fed.get(query, "text/event-stream")).status == 400


async def test_a_stream_ahead_of_the_log_leaves_the_loop_free_and_then_has_its_topics_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a node that lags answers others meanwhile. Method: a stream that never waits writes without end."""
    writes = 0
    write = web.StreamResponse.write

    async def counted(response: web.StreamResponse, data: bytes) -> None:
        nonlocal writes
        writes += 1
        assert writes < 50, "the stream does not wait"
        await write(response, data)

    monkeypatch.setattr(web.StreamResponse, "write", counted)
    async with over_feeds(tmp_path) as fed, asyncio.timeout(20):
        at = fed.controller.committed.end_offset + 6
        answer = await fed.get(f"topics=a&from={at}&consistency=stale", EVENT_STREAM)
        assert await answer.content.readuntil(b"\n\n") == b"id: %d\n\n" % at
        while not fed.desk.door.feeds.waiting:
            await asyncio.sleep(0.001)
        await fed.create("b")
        await fed.create("a")  # the stream begins with its partitions
        await fed.configure("b", "1")
        await fed.configure("a", "2")
        found: list[dict[str, Any]] = []
        while len(found) < 3:
            event = (await answer.content.readuntil(b"\n\n")).decode().splitlines()
            if event[1]:
                found.append(json.loads(event[1].removeprefix("data: ")))
        answer.close()
        assert [line["offset"] for line in found] == [at, at + 1, at + 3]
        assert found[-1]["record"]["value"] == "2"


async def test_a_feed_waits_for_its_topics_alone(tmp_path: Path) -> None:
    async with over_feeds(tmp_path) as fed:
        await fed.create("a")
        await fed.create("b")
        end_offset = fed.controller.committed.end_offset
        waiting = asyncio.create_task(fed.feed(f"topics=a,later&from={end_offset}&wait_ms=30000"))
        any_record = asyncio.create_task(fed.feed(f"from={end_offset}&wait_ms=30000"))
        feeds = fed.desk.door.feeds
        while feeds.waiting < 2:
            await asyncio.sleep(0.001)
        await fed.configure("b", "1")
        await fed.lab.write(fed.controller, setting("1"))
        lines, _ = await any_record
        assert lines[0]["record"]["resource_name"] == "b"
        assert feeds.waiting == 1
        await fed.create("later")
        lines, at = await waiting
        assert [line["type"] for line in lines] == ["Topic", "Config", "Partition", "Partition"]
        assert at == fed.controller.committed.end_offset
        # The time is up: everything up to here was examined.
        waiting = asyncio.create_task(fed.feed(f"topics=a&from={at}&wait_ms=1000"))
        while not feeds.waiting:
            await asyncio.sleep(0.001)
        await fed.configure("b", "2")
        assert await waiting == ([], fed.controller.committed.end_offset)
        assert feeds.waiting == 0


async def test_a_follower_that_lags_waits_until_it_knows_the_names(tmp_path: Path) -> None:
    """The client read on elsewhere: the topic was created between what this node has applied and where it goes on."""
    async with over_feeds(tmp_path) as fed:
        at = fed.controller.committed.end_offset + 2
        waiting = asyncio.create_task(fed.feed(f"topics=a&from={at}&wait_ms=30000&consistency=stale"))
        while not fed.desk.door.feeds.waiting:
            await asyncio.sleep(0.001)
        await fed.create("a")
        lines, _ = await waiting
        assert [line["offset"] for line in lines] == [at, at + 1]
        at = fed.controller.committed.end_offset + 2
        assert await fed.feed(f"topics=a&from={at}&wait_ms=10&consistency=stale") == ([], at)
        response = await fed.get(f"topics=a&from={at}&wait_ms=10")
        assert (response.status, (await response.json())["error"]) == (409, "OFFSET_IN_FUTURE")


@pytest.mark.parametrize(
    ("query", "accept", "status", "error"),
    [
        ("topics=a", "application/octet-stream", 400, "INVALID_REQUEST"),
        ("topics=", NDJSON, 400, "INVALID_REQUEST"),
        ("topics=" + "a" * 250, NDJSON, 400, "INVALID_REQUEST"),
        ("topics=" + ",".join(map(str, range(101))), NDJSON, 400, "INVALID_REQUEST"),
        ("topic_ids=a", NDJSON, 400, "INVALID_REQUEST"),
        ("wait_ms=-1", NDJSON, 400, "INVALID_REQUEST"),
        ("topics=a&from=3&until=2", NDJSON, 400, "INVALID_REQUEST"),
    ],
)
async def test_what_no_feed_can_be_is_refused(
    tmp_path: Path, query: str, accept: str, status: int, error: str
) -> None:
    async with over_feeds(tmp_path) as fed:
        response = await fed.get(query, accept)
        assert (response.status, (await response.json())["error"]) == (status, error)


async def test_feeds_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEEDS_WAITING_MAX", 1)
    async with over_feeds(tmp_path) as fed:
        at = fed.controller.committed.end_offset
        waiting = asyncio.create_task(fed.feed(f"topics=a&from={at}&wait_ms=30000"))
        while not fed.desk.door.feeds.waiting:
            await asyncio.sleep(0.001)
        response = await fed.get(f"topics=a&from={at}&wait_ms=1")
        assert (response.status, (await response.json())["error"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        await fed.create("a")
        assert len((await waiting)[0]) == 4


async def test_streams_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream has its place while it sends, too, and gives it back; where too many feeds wait, none begins."""
    monkeypatch.setattr(limits, "FEEDS_WAITING_MAX", 1)
    async with over_feeds(tmp_path) as fed, asyncio.timeout(20):
        feeds = fed.desk.door.feeds
        feeds.waiting = 1
        answer = await fed.get("from=0", EVENT_STREAM)
        assert (answer.status, (await answer.json())["error"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        feeds.waiting = 0
        for _ in range(2):
            first = await fed.get("from=0", EVENT_STREAM)
            assert first.status == 200
            assert (await fed.get("from=0", EVENT_STREAM)).status == 429
            first.close()
            await fed.create(f"a{fed.controller.committed.end_offset}")  # it finds its client gone
            while feeds.waiting or feeds.streams:
                await asyncio.sleep(0.001)


async def test_a_feed_that_waits_does_not_outlive_its_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metadata_log.limits.IDENTITY_CHECK_S", -1.0)
    token, file = "t" * 43, tmp_path / "principals.toml"
    row = f'[[principals]]\nname = "User:r"\ntoken_sha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
    file.write_text(row + 'roles = ["reader"]\n')
    async with over_feeds(tmp_path, principals=file) as fed:
        for is_over in (False, True):
            at = fed.controller.committed.end_offset
            headers = {"Accept": NDJSON, "Authorization": f"Bearer {token}"}
            asking = asyncio.ensure_future(
                fed.client.get(f"/v1/log?from={at}&wait_ms=60000&consistency=stale", headers=headers)
            )
            while fed.desk.door.feeds.waiting < 1:
                await asyncio.sleep(0.001)
            if is_over:
                file.write_text(row + "roles = []\n")
            await fed.create("b" if is_over else "a")
            async with await asking as answer:
                assert answer.status == (403 if is_over else 200)
                assert (b"Topic" in await answer.read()) is not is_over


async def test_a_stream_with_many_lines_does_not_outlive_its_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the role ends before the stream's third piece is read, and further ones are there."""
    monkeypatch.setattr("metadata_log.limits.IDENTITY_CHECK_S", -1.0)
    monkeypatch.setattr(limits, "ANSWER_PIECE_BYTES", 1)
    token, file = "t" * 43, tmp_path / "principals.toml"
    row = f'[[principals]]\nname = "User:r"\ntoken_sha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
    file.write_text(row + 'roles = ["reader"]\n')
    async with over_feeds(tmp_path, principals=file) as fed, asyncio.timeout(20):
        at = fed.controller.committed.end_offset
        await fed.create("a")
        past, read = fed.desk.door.past, 0
        made = past.lines

        async def noted(*args: Any, **how: Any) -> Any:
            nonlocal read
            read += 1
            if read == 3:
                file.write_text(row + "roles = []\n")
            return await made(*args, **how)

        monkeypatch.setattr(past, "lines", noted)
        headers = {"Accept": EVENT_STREAM, "Authorization": f"Bearer {token}"}
        async with fed.client.get(f"/v1/log?from={at}&consistency=stale", headers=headers) as answer:
            events = (await answer.read()).split(b"\n\n")
        assert [event.splitlines()[0] for event in events[:-1]] == [
            b"id: %d" % (at + 1),
            b"id: %d" % (at + 2),
        ]
