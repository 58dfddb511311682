"""The cluster at a glance: what is wrong, since when and because of what; and windows of topics and partitions."""

import random
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from metadata_log.ids import BrokerId, NodeId, Uuid
from quorum.decide.topics import CreateTopic
from quorum.raft.raft_log import SILENT_MS, PeerStatus
from quorum.views.overview import RED
from quorum.views.topic_window import topic_window
from tests.support.desk import Desk, DoorServer
from tests.support.histories import history_of
from tests.support.lab import Lab, online

HINTS = ("Retry-After", "X-Controller")
NOT_HERE = "NOT_CONTROLLER"
ELSEWHERE = "http://127.0.0.1:8002"


def _topic(name: str, partitions: int = 2) -> CreateTopic:
    replicas = (BrokerId(11), BrokerId(12))
    return CreateTopic(
        name=name,
        partitions=-1,
        replication_factor=-1,
        assignment=(replicas,) * partitions,
        configs={},
        validate_only=False,
    )


@asynccontextmanager
async def cluster(directory: Path) -> Any:
    """Yield a lab with two brokers that are up, its desk, and what asks it for a path."""
    lab = Lab()
    desk = Desk(lab, directory)
    lab.controllers[1].attach(lab.quorum.nodes[NodeId(1)], [desk.door.committed_log, desk.door.since])
    controller = lab.lead(1)
    for broker_id in (11, 12):
        await online(lab, controller, broker_id)
    async with TestClient[web.Request, web.Application](DoorServer(desk.door)) as client:

        async def get(path: str) -> tuple[int, Any]:
            answer = await client.get(path)
            if answer.content_type != "application/json":
                return answer.status, await answer.text()
            return answer.status, await answer.json()

        yield lab, desk, get


async def test_a_sound_cluster_has_no_trouble_and_a_lost_broker_is_one_with_its_cause(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (lab, desk, get):
        await lab.write(desk.controller, _topic("orders"))
        status, shown = await get("/v1/overview")
        assert status == 200
        codes = [trouble["code"] for trouble in shown["troubles"]]
        assert not [code for code in codes if code.startswith(("BROKER", "PARTITION"))], codes
        assert (shown["topics"], shown["brokers"], shown["partitions"]["partitions"]) == (1, {"ONLINE": 2}, 2)
        assert shown["leader_id"] == 1 and shown["is_active"] and shown["leads_since"]["offset"] == 0
        end_offset = desk.controller.committed.end_offset
        for _ in range(40):
            lab.now_ms += 500
            desk.controller.check_sessions()
            lab.finish(desk.controller)
            lab.quorum.commit()
        _, shown = await get("/v1/overview?consistency=stale")
        troubles = {trouble["code"]: trouble for trouble in shown["troubles"]}
        lost = troubles["BROKER_FENCED"]
        assert lost["level"] == "yellow" and lost["subject"] in ("brokers/11", "brokers/12")
        assert lost["since"]["offset"] >= end_offset
        assert lost["since"]["cause"]["code"] == "SESSION_EXPIRED"
        assert {code for code, one in troubles.items() if one["level"] == "red"} == RED & troubles.keys()
        assert "NO_BROKER_ONLINE" in troubles
        assert troubles["PARTITIONS_OFFLINE"]["since"]["cause"]["code"] == "SESSION_EXPIRED"
        reds = [trouble["code"] in RED for trouble in shown["troubles"]]
        assert reds == sorted(reds, reverse=True) and reds[0], "the worst comes first"
        assert (await get("/v1/overview?consistency=linearizable"))[0] == 400


async def test_a_voter_that_is_linked_and_answers_nothing_is_a_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a frozen controller is seen. Method: its kernel keeps the link, and it answers the leader for 3 s no more."""
    async with cluster(tmp_path) as (_, desk, get):
        status = desk.door.status
        for since_ms, named in ((SILENT_MS - 1, False), (SILENT_MS, True)):
            raft = status.raft()
            peer = PeerStatus(
                node_id=NodeId(2),
                directory_id=Uuid(bytes(16)),
                is_voter=True,
                reachable=True,
                entries_behind=0,
                last_caught_up_ms_ago=since_ms,
                unheard_ms=since_ms,
            )
            monkeypatch.setattr(status, "raft", lambda raft=raft, peer=peer: replace(raft, peers=(peer,)))
            _, shown = await get("/v1/overview")
            found = {each["detail"] for each in shown["troubles"] if each["code"] == "VOTER_UNREACHABLE"}
            assert any("controller 2 is linked, and does not answer" in detail for detail in found) == named


async def test_windows_of_topics_and_partitions_have_each_row_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (lab, desk, get):
        names = sorted(f"{kind}-{number}" for kind in ("orders", "bills") for number in range(7))
        for name in names:
            await lab.write(desk.controller, _topic(name))
        for contains, wanted in (("", names), ("&contains=ord", names[7:]), ("&contains=none", [])):
            found, after = [], ""
            while True:
                _, window = await get(f"/v1/topics?consistency=stale&limit=3{contains}{after}")
                assert window["total"] == len(wanted) and len(window["items"]) <= 3
                found += [row["name"] for row in window["items"]]
                if window["next_after"] is None:
                    break
                after = f"&after={window['next_after']}"
            assert found == wanted
        _, page = await get("/v1/partitions?limit=5")
        assert len(page["items"]) == 5 and page["next_after"] == f"{names[2]}:0"
        for refused in ("topics?limit=0", "topics?limit=1001", "topics?contains=a", "partitions?limit=0"):
            assert (await get(f"/v1/{refused}"))[0] == 400, refused


@pytest.mark.parametrize("only", [None, "unavailable", "under-replicated", "not-preferred", "reassigning"])
def test_a_window_narrowed_has_the_topics_whose_partitions_are_so(only: str | None) -> None:
    rng = random.Random(1)
    for seed in range(8):
        image = history_of(seed, 150)[-1].image
        limit = rng.randint(1, 5)

        def counted(topic: Any) -> Iterator[bool]:
            for one in topic.partitions:
                yield {
                    None: True,
                    "unavailable": one.leader == -1,
                    "under-replicated": len(one.isr) < len(one.replicas),
                    "not-preferred": one.leader != one.replicas[0],
                    "reassigning": bool(one.adding_replicas or one.removing_replicas),
                }[only]

        wanted = sorted(topic.name for topic in image.topics.by_id.values() if any(counted(topic)))
        rows, total, after = topic_window(image, contains="", after="", only=only, limit=limit)
        assert [row["name"] for row in rows] == wanted[:limit] and total == len(wanted)
        assert after == (wanted[limit - 1] if len(wanted) > limit else None)


async def test_a_controller_that_has_started_tells_its_state_once_its_log_is_applied(tmp_path: Path) -> None:
    """Goal: no topic that exists is reported as unknown. Method: another controller on the directory of the first, for
    which the quorum commits the same log entry by entry.
    """
    async with cluster(tmp_path) as (before, desk, _):
        await before.write(desk.controller, _topic("orders"))
        desk.door.committed_log.segments.close()
    end_offset = desk.controller.committed.end_offset
    lab = Lab()
    desk = Desk(lab, tmp_path)
    log = desk.door.committed_log
    desk.controller.attach(lab.quorum.nodes[NodeId(1)], [log])
    lab.quorum.log = [*before.quorum.log]
    async with TestClient[web.Request, web.Application](DoorServer(desk.door)) as client:

        async def told() -> tuple[int, dict[str, str], Any]:
            answer = await client.get("/v1/topics/orders?consistency=stale")
            return answer.status, {name: answer.headers.get(name, "") for name in HINTS}, await answer.json()

        status, hints, refused = await told()
        assert (status, hints, refused["error"]) == (503, {"Retry-After": "1", "X-Controller": ""}, NOT_HERE)
        assert f"has applied its log to offset 0 of {end_offset}: " in refused["message"]
        for _ in before.quorum.log:
            desk.controller.on_leader_hint(NodeId(2))
            status, hints, refused = await told()
            assert (status, refused["error"], hints["X-Controller"]) == (421, NOT_HERE, ELSEWHERE)
            codes = {reason["code"] for reason in desk.status.reasons_not_ready()}
            assert "LOG_NOT_APPLIED" in codes
            # Other controllers repair their logs from it.
            frames = await client.get("/v1/log?consistency=stale")
            assert (frames.status, len(await frames.read())) == (200, len(log.read(0, max_bytes=1 << 20)))
            lab.quorum.commit(1)
        assert log.end_offset == end_offset
        status, _, shown = await told()
        assert (status, shown["name"]) == (200, "orders")
        assert "LOG_NOT_APPLIED" not in {reason["code"] for reason in desk.status.reasons_not_ready()}
    assert desk.faults == []
