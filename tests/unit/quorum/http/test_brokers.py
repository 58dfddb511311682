"""Edge: the shapes that HTTP and the CLI show."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient

from metadata_log.digest import digest
from metadata_log.ids import BrokerId, uuid_text
from metadata_log.image.configs import configs_items
from metadata_log.image.metadata_image import EMPTY
from metadata_log.image.topics import list_topics
from metadata_log.image.views import state_json
from metadata_log.items import listed
from metadata_log.node.http.answers import MSGPACK
from metadata_log.node.http.encodings import packed
from metadata_log.records.configs import BROKER
from metadata_log.wire.bodies import unpack
from quorum.http.brokers import describe_broker
from quorum.node.config import KafkaSettings
from quorum.views.broker_view import BrokerView
from tests.support.decisions import CONTROLLER, World, word_uuid
from tests.support.desk import Desk, DoorServer
from tests.support.lab import Lab, registration


def world() -> World:
    made = World()
    for line in (
        "register 1 rack=r1",
        "heartbeat 1",
        "register 2",
        "create t on=1/1 retention.ms=5",
        "create s on=1,2",
        "set broker:1 log.roll.ms=6",
    ):
        made.run(line)
    return made


def test_the_whole_state() -> None:
    made = world()
    state = listed(state_json(made.image))
    assert list(state) == [
        *("end_offset", "controller_epoch", "time_ms", "digest", "brokers", "topics", "configs", "features"),
        *("next_producer_id", "kraft_version", "voters", "controllers", "quotas", "acls", "users"),
        "tokens",
        "deleted_topics",
    ]
    assert state["digest"] == digest(made.image)
    assert [topic["name"] for topic in state.pop("topics")] == ["s", "t"]
    assert [broker["broker_id"] for broker in state["brokers"]] == [1, 2]
    assert state["brokers"][0]["features"][0] == {"name": "metadata.version", "min": 25, "max": 30}
    assert state["brokers"][0]["log_dirs"] == [uuid_text(word_uuid("d1a"))]
    assert state["brokers"][0]["cordoned_log_dirs"] is None
    assert state["features"] == {"metadata.version": 30, "metaquorum.version": 5}
    assert state["voters"] == [
        {
            "id": CONTROLLER,
            "directory_id": uuid_text(word_uuid("controller")),
            "endpoints": [{"name": "CONTROLLER", "host": "c", "port": 9093}],
            "min": 0,
            "max": 1,
        }
    ]
    assert state["configs"] == [
        {"resource_type": "topic", "resource_name": "t", "name": "retention.ms", "value": "5"},
        {"resource_type": "broker", "resource_name": "1", "name": "log.roll.ms", "value": "6"},
    ]
    json.dumps(state)


def test_the_empty_state() -> None:
    state = listed(state_json(EMPTY))
    assert (state["end_offset"], state["controller_epoch"], state["time_ms"]) == (0, 0, 0)
    assert state["brokers"] == list(state["topics"]) == state["configs"] == state["voters"] == []
    assert state["next_producer_id"] is state["kraft_version"] is None


def test_a_topic_in_the_list_and_in_full() -> None:
    made = world()
    rows = list_topics(made.image.topics)
    assert [(row["name"], row["partition_count"], row["replication_factor"]) for row in rows] == [
        ("s", 1, 2),
        ("t", 2, 1),
    ]
    described = next(state_json(made.image)["topics"])
    assert described["partitions"] == [
        {
            "partition": 0,
            "leader": 1,
            "leader_epoch": 0,
            "partition_epoch": 0,
            "replicas": [1, 2],
            "isr": [1],
            "adding_replicas": [],
            "removing_replicas": [],
            "leader_recovery_state": "RECOVERED",
            "eligible_leader_replicas": [],
            "last_known_elr": [],
            "directories": [uuid_text(word_uuid("d1a")), uuid_text(word_uuid("d2a"))],
        }
    ]


def test_a_broker_as_the_active_controller_and_as_another_one_sees_it() -> None:
    made = world()
    made.now_ms += 40
    one = describe_broker(BrokerView(made.image, made.sessions, now_ms=made.now_ms), BrokerId(1))
    assert (one["state"], one["rack"], one["last_contact_ms_ago"]) == ("ONLINE", "r1", 40)
    assert one["lag_records"] == made.image.end_offset - one["applied_offset"] > 0
    two = describe_broker(BrokerView(made.image, made.sessions, now_ms=made.now_ms), BrokerId(2))
    assert (two["state"], two["applied_offset"], two["lag_records"]) == ("OFFLINE", None, None)
    assert two["endpoints"] == [{"name": "PLAINTEXT", "host": "b2", "port": 9092, "security_protocol": 0}]
    elsewhere = describe_broker(BrokerView(made.image, None, now_ms=made.now_ms), BrokerId(1))
    assert (elsewhere["state"], elsewhere["applied_offset"], elsewhere["last_contact_ms_ago"]) == (
        "ONLINE",
        None,
        None,
    )


@pytest.mark.parametrize(
    ("cordoned", "is_cordoned"),
    [(None, False), ([], False), (["d1x"], False), (["d1a"], True), (["d1a", "d1x"], True)],
)
def test_a_broker_whose_directories_are_all_cordoned_is_shown_as_such(
    cordoned: list[str] | None, is_cordoned: bool
) -> None:
    image = world().image
    told = None if cordoned is None else tuple(map(word_uuid, cordoned))
    broker = image.brokers[BrokerId(1)]._replace(cordoned_log_dirs=told)
    shown = BrokerView(replace(image, brokers=image.brokers.set(BrokerId(1), broker)), None, now_ms=0)
    assert describe_broker(shown, BrokerId(1))["is_cordoned"] is is_cordoned


def test_settings_of_a_resource_without_any() -> None:
    assert configs_items(world().image.configs, BROKER, "2") == []


@pytest.mark.parametrize(("other_brokers", "status"), [(False, 400), (True, 200)])
async def test_brokers_of_another_kind_get_no_replicas_beside_kafkas(
    tmp_path: Path, other_brokers: bool, status: int
) -> None:
    """Goal: placement cannot tell them apart, so they register only where an operator says so."""
    lab = Lab()
    desk = Desk(lab, tmp_path)
    kafka = KafkaSettings(other_brokers=other_brokers)
    own = replace(desk.door.settings, listen_kafka=("127.0.0.1", 9292), kafka=kafka)
    object.__setattr__(desk.door, "settings", own)
    lab.lead(1)
    async with TestClient(DoorServer(desk.door)) as client:
        body = packed(registration(11).to_map())
        headers = {"Content-Type": MSGPACK, "Accept": MSGPACK}
        asked = asyncio.create_task(client.post("/v1/brokers/register", data=body, headers=headers))
        while not asked.done():
            await asyncio.sleep(0.001)
            lab.quorum.commit()
        answered = await asked
        answer = unpack(await answered.read())
        assert answered.status == status, answer
        assert (BrokerId(11) in desk.controller.committed.brokers) == other_brokers
        assert other_brokers or "`other_brokers = true` in [kafka]" in answer["message"]
