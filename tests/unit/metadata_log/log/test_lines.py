"""Edge: the log as lines of JSON."""

import json

from metadata_log.batch import Cause, Envelope
from metadata_log.ids import BrokerId, TopicId, Uuid
from metadata_log.image.metadata_image import EMPTY
from metadata_log.log.lines import log_lines
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange, RegisterBrokerRecord
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.registry import TYPE_IDS
from metadata_log.records.topics import TopicRecord
from tests.support.histories import claim, history_of, step_of

U = Uuid(bytes(range(16)))
TEXT = "AAECAwQFBgcICQoLDA0ODw"


def test_each_record_is_an_object_with_its_position_and_its_batchs_envelope() -> None:
    envelope = Envelope("operator", U, bytes(32), Cause("asked", 3, {"why": "x"}), "create_topic", b"")
    step = step_of(
        EMPTY, [claim(EMPTY), TopicRecord(TopicId(U), "orders")], appended_at_ms=5, envelope=envelope
    )
    first, second = log_lines(step.batch)
    assert second == {
        "offset": 1,
        "controller_epoch": 1,
        "time_ms": 5,
        "type": "Topic",
        "version": 0,
        "actor": "operator",
        "request_id": TEXT,
        "operation": "create_topic",
        "cause": {"code": "asked", "ref_offset": 3, "detail": {"why": "x"}},
        "record": {"topic_id": TEXT, "name": "orders"},
    }
    assert first["record"] == {"controller_id": 1, "controller_epoch": 1, "cluster_id": "A" * 22}
    assert list(log_lines(step.batch, from_offset=1)) == [second]


def test_inner_lists_are_objects_and_secrets_are_hidden() -> None:
    step = step_of(
        EMPTY,
        [
            claim(EMPTY),
            RegisterBrokerRecord(
                BrokerId(11),
                U,
                1,
                (BrokerEndpoint("PLAINTEXT", "h", 9092, 0),),
                (FeatureRange("metadata.version", 25, 30),),
                None,
                True,
                False,
                (U,),
                None,
            ),
            TopicRecord(TopicId(U), "t"),
            PartitionRecord(
                TopicId(U), 0, (BrokerId(11),), (BrokerId(11),), BrokerId(11), 0, 0, 0, (), (), (), (), (U,)
            ),
            PartitionChangeRecord(TopicId(U), 0, leader=BrokerId(11)),
            ConfigRecord(4, "11", "ssl.key.password", "secret"),
        ],
    )
    _, broker, _, partition, change, config = (line["record"] for line in log_lines(step.batch))
    assert broker == {
        "broker_id": 11,
        "incarnation_id": TEXT,
        "broker_epoch": 1,
        "endpoints": [{"name": "PLAINTEXT", "host": "h", "port": 9092, "security_protocol": 0}],
        "features": [{"name": "metadata.version", "min": 25, "max": 30}],
        "rack": None,
        "fenced": True,
        "in_controlled_shutdown": False,
        "log_dirs": [TEXT],
        "cordoned_log_dirs": None,
    }
    assert {"adding_replicas", "removing_replicas", "directories"} <= partition.keys()
    assert partition["directories"] == [TEXT]
    assert (change["leader"], change["isr"], change["adding_replicas"]) == (11, None, None)
    assert config["value"].startswith("sha256:2bb80d53")


def test_every_line_is_json() -> None:
    kinds = set()
    for seed in range(5):
        for step in history_of(seed, 30):
            for line in log_lines(step.batch):
                assert json.loads(json.dumps(line)) == line
                kinds.add(line["type"])
    assert len(kinds) == len(TYPE_IDS) - 4, "all but those only a snapshot holds"
