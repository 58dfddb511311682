"""The cluster at a glance: what is wrong, since when and because of what; and windows of topics and partitions."""

import random
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from metadata_log.ids import BrokerId, NodeId
from quorum.decide.topics import CreateTopic
from quorum.views.overview import RED
from quorum.views.topic_window import topic_window
from tests.support.desk import Desk, DoorServer
from tests.support.histories import history_of
from tests.support.lab import Lab, online


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
