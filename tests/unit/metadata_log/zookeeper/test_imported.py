"""A whole tree: what belongs to the cluster as such, what is left out, and that records make an image in their order."""

import pytest

from metadata_log.apply import image_of
from metadata_log.ids import BrokerId
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.registry import from_row, to_row
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.zookeeper.imported import COUNTED, imported
from metadata_log.zookeeper.layout import Node
from metadata_log.zookeeper.values import ControllerNode
from tests.unit.metadata_log.zookeeper.test_access import SCRAM, TOKEN, config, entry, raw
from tests.unit.metadata_log.zookeeper.test_topics import Value, state, topic, tree

WHOLE: dict[str, Value] = {
    "/": "",
    "/brokers": "",
    "/brokers/topics/t": topic({"0": [2, 1], "1": [1, 2]}),
    "/brokers/topics/t/partitions/0/state": state(2, [2, 1]),
    "/config/topics/t": config(retention_ms="5"),
    "/config/brokers/1": config(log_cleaner_threads="2"),
    "/config/users/alice": raw({"SCRAM-SHA-512": SCRAM, "producer_byte_rate": "9"}),
    "/kafka-acl/Topic/t": {"version": 1, "acls": [entry()]},
    "/delegation_token/tokens/abc": TOKEN,
    "/latest_producer_id_block": {"version": 1, "broker": 2, "block_start": "3000", "block_end": "3999"},
    "/controller_epoch": "17",
    "/cluster/id": {"version": "1", "id": "xLsWgpSwTl--KVWOvwWCeQ"},
    "/feature": {"features": {}, "version": 2, "status": 1},
    "/isr_change_notification/isr_change_0000000001": '{"version":1,"partitions":[]}',
    "/zookeeper": "",
}


def test_what_the_cluster_is() -> None:
    found = tree(WHOLE)
    assert (found.cluster_id, found.controller_epoch) == ("xLsWgpSwTl--KVWOvwWCeQ", 17)
    assert ProducerIdsRecord(BrokerId(2), -1, 4000) in found.records
    assert (found.brokers, found.controller, found.migrated_to, found.topics_without_id) == (
        (),
        None,
        None,
        0,
    )
    notes = found.findings
    assert (notes.left_out, notes.unknown, notes.damaged) == ([], [], [])
    assert found.counts() == {
        "topics": 1,
        "partitions": 2,
        "settings": 2,
        "credentials": 1,
        "tokens": 1,
        "quotas": 1,
        "acls": 1,
        "producer_ids": 1,
    }
    assert sum(found.counts().values()) == len(found.records)


def test_the_records_are_in_the_order_of_a_snapshot() -> None:
    """Goal: they can be written and read again. Method: through their rows into an image, and out of it."""
    records = tree(WHOLE).records
    header = SnapshotHeaderRecord("xLsWgpSwTl--KVWOvwWCeQ", len(records), 17, 1, 0)
    image = image_of([from_row(to_row(record)) for record in records], header=header)
    kept = [record for record in records if not isinstance(record, ProducerIdsRecord)]
    assert {*map(repr, kept)} <= {*map(repr, image.to_records())}
    assert image.next_producer_id == 4000


def test_the_order_of_the_nodes_does_not_matter() -> None:
    there, back = tree(WHOLE), tree(dict(reversed(WHOLE.items())))
    assert there.counts() == back.counts()
    assert [type(record) for record in there.records] == [type(record) for record in back.records]


@pytest.mark.parametrize("is_ephemeral", [True, False])
def test_who_is_the_controller(is_ephemeral: bool) -> None:
    data = b'{"version":2,"brokerid":3,"timestamp":"1","kraftControllerEpoch":-1}'
    found = imported([Node("/controller", data, 0, is_ephemeral)], None)  # type: ignore[arg-type]  # nothing is drawn
    assert (found.controller, found.controller_is_ephemeral) == (
        ControllerNode(brokerid=3, version=2),
        is_ephemeral,
    )


@pytest.mark.parametrize(("controller_id", "expected"), [(-1, None), (3000, 3000)])
def test_b89_a_migration_to_kraft_that_was_begun(controller_id: int, expected: int | None) -> None:
    found = tree(
        {"/migration": {"version": 0, "kraft_controller_id": controller_id, "kraft_controller_epoch": 1}}
    )
    assert found.migrated_to == expected


def test_what_is_known_and_no_record_can_say_is_told_with_the_cure() -> None:
    found = tree(
        {
            "/admin/preferred_replica_election": '{"version":1,"partitions":[]}',
            "/feature": {"features": {"ours": {"max_version_level": 1}}, "version": 2, "status": 1},
        }
    )
    assert [path for path, _ in found.findings.left_out] == [
        "/admin/preferred_replica_election",
        "/feature",
    ]
    assert "metaquorum partitions elect" in found.findings.left_out[0].why


@pytest.mark.parametrize("has_children", [True, False])
def test_a87_offsets_in_zookeeper_are_told_where_there_are_any(has_children: bool) -> None:
    """Consumers of before 0.9 kept them there; groups keep theirs in a topic, which comes with its brokers."""
    found = imported([Node("/consumers", b"", 0, is_parent=has_children)], None)  # type: ignore[arg-type]
    assert [path for path, _ in found.findings.left_out] == ["/consumers"] * has_children


def test_unknown_nodes_are_listed_and_not_dropped() -> None:
    found = tree({"/hbase": "x", "/brokers/topics/t/7": "1", "/kafka-acl-extended/regex": ""})
    assert found.findings.unknown == ["/hbase", "/brokers/topics/t/7", "/kafka-acl-extended/regex"]


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        ("/controller_epoch", "x", "no number"),
        ("/controller_epoch", "2147483647", "outside 0 to 2147483646"),
        ("/controller_epoch", "-1", "outside 0 to"),
        ("/controller", "{}", "brokerid"),
        ("/cluster/id", "", "is empty"),
        ("/brokers/ids/x", "h:1", "'x' is no id"),
        (
            "/latest_producer_id_block",
            '{"version":1,"broker":2,"block_start":"0","block_end":"x"}',
            "'x' is no number",
        ),
        (
            "/latest_producer_id_block",
            '{"version":1,"broker":2,"block_start":"0","block_end":"9223372036854775807"}',
            "outside 0 to",
        ),
        ("/migration", "[]", "Expected `object`"),
    ],
)
def test_a_node_of_the_cluster_that_cannot_be_is_named(path: str, text: str, why: str) -> None:
    (damaged,) = tree({path: text}).findings.damaged
    assert damaged.path == path and why in damaged.why


def test_every_kind_of_record_is_counted() -> None:
    assert {*map(type, tree(WHOLE).records)} == {*COUNTED}
