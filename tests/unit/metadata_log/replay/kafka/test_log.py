"""Kafka's metadata log is read as Kafka reads it, and adds up to the state that Kafka had."""

import base64
import json
import logging
import struct
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from metadata_log import replay
from metadata_log.errors import (
    DamagedFile,
    InvalidRequest,
    InvariantBroken,
    MetadataError,
    OffsetCompacted,
    WrittenByAnotherVersion,
)
from metadata_log.ids import NO_LEADER, uuid_text
from metadata_log.kafka.batches import batches
from metadata_log.kafka.records import Decoded, decode, decode_control
from metadata_log.records.declaration import mask
from metadata_log.replay.digest import digest_of, exported_digest, folded, state_digest
from metadata_log.replay.kafka.files import checkpoint_image
from metadata_log.replay.kafka.log import export_kafka
from metadata_log.replay.kinds import PARTITION
from metadata_log.replay.report import report_of
from metadata_log.replay.state import state_at
from tests.support import kafka_log as by_hand

pytestmark = pytest.mark.slow

TOPIC = bytes(15) + b"\x77"
END = 3031
"""Of the log of controller 1."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return by_hand.unpacked(tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="module")
def log(recording: Path) -> replay.Log:
    return replay.open(recording / "controller-1", format="kafka")


# --- the recording


def test_every_record_is_decoded_as_kafka_dumps_it(recording: Path) -> None:
    """Goal: no field is misread. Method: each field that Kafka's own dump shows, in both controllers' segments."""
    compared = 0
    for dump in sorted((recording / "dumps").glob("*/*.log.txt")):
        segment = recording / dump.parent.name / PARTITION / dump.name.removesuffix(".txt")
        lines = [line for line in dump.read_text().splitlines() if line.startswith("| offset")]
        found = [record for batch in batches(segment.read_bytes()) for record in _decoded(batch)]
        assert len(found) == len(lines)
        for line, record in zip(lines, found, strict=True):
            shown: dict[str, Any] = json.loads(line[line.index("{") :])
            told = shown.get("data", {name: v for name, v in shown.items() if name != "version"})
            ours = _as_dumped(record.fields)
            assert {name: ours.get(name) for name in told} == told
            compared += 1
    assert compared == 3031 + 79


def _decoded(batch: Any) -> list[Decoded]:
    if batch.is_control:
        return [decode_control(key[3], content) for key, content in batch.records]
    return [decode(content) for _, content in batch.records]


_LATER = ("voter_directory_id", bytes(16))
"""A field that the first version of LeaderChange does not have."""


def _as_dumped(field: Any) -> Any:
    match field:
        case dict():
            return {_camel(name): _as_dumped(of) for name, of in field.items() if (name, of) != _LATER}
        case tuple():
            return [_as_dumped(item) for item in field]
        case bytes() if len(field) == 16:
            return uuid_text(field)
        case bytes():
            return base64.b64encode(field).decode()
        case _:
            return field


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return (first + "".join(map(str.title, others))).replace("kraftVersion", "kRaftVersion")


def test_the_state_is_what_kafka_said(recording: Path, log: replay.Log) -> None:
    told = json.loads((recording / "state.json").read_text())
    topics = {row["topic_name"]: row["topic_id"] for row in _rows(log.table("topics"))}
    assert topics == {topic["name"]: topic["id"] for topic in told["topics"]}
    wanted = {
        (topic["name"], of["partition"]): (
            *(of["leader"], of["replicas"], sorted(of["isr"])),
            *(sorted(of["elr"]), sorted(of["last_known_elr"])),
        )
        for topic in told["topics"]
        for of in topic["partitions"]
    }
    found = {
        (row["topic_name"], row["partition"]): (
            *(row["leader"], row["replicas"], sorted(row["isr"])),
            *(sorted(row["eligible_leader_replicas"]), sorted(row["last_known_elr"])),
        )
        for row in _rows(log.table("partitions"))
    }
    assert found == wanted and len(found) == 231
    brokers = {row["broker_id"]: (row["fenced"], row["rack"]) for row in _rows(log.table("brokers"))}
    assert brokers == {node["id"]: (node["fenced"], node["rack"]) for node in told["cluster"]["nodes"]}
    quorum = _rows(log.table("quorum"))
    features = {row["feature_name"]: row["feature_level"] for row in quorum if row["type"] == 12}
    (kraft_version,) = (row["kraft_version"] for row in quorum if row["type"] == 1004)
    assert features | {"kraft.version": kraft_version} == told["features_finalized"]
    (voters,) = (row["voters"] for row in quorum if row["type"] == 1005)
    assert [voter["id"] for voter in voters] == sorted(
        voter["id"] for voter in told["quorum_after"]["voters"]
    )
    assert log.export.cluster_id == told["cluster"]["cluster_id"]
    _compare_settings(told, log)
    _compare_identities(told, log)


def _compare_settings(told: Mapping[str, Any], log: replay.Log) -> None:
    """`state.json` also lists, for a topic, what it inherits from the brokers' dynamic default."""
    kinds = {"TOPIC", "BROKER", "CLIENT_METRICS", "GROUP"}
    own = {"TOPIC": "DYNAMIC_TOPIC_CONFIG", "BROKER": "DYNAMIC_BROKER_CONFIG"}
    wanted = {
        (resource["type"], resource["name"], name): setting["value"]
        for resource in told["configs"]
        if resource["type"] in kinds
        for name, setting in resource["dynamic"].items()
        if setting["source"] == own.get(resource["type"], setting["source"])
    }
    found = {
        (row["resource_type"], row["resource_name"], row["config_name"]): row["config_value"]
        for row in _rows(log.table("configs"))
    }
    assert {key: found.get(key) for key in wanted} == wanted
    assert {key for key in found if key[0] == "TOPIC"} == {key for key in wanted if key[0] == "TOPIC"}


def _compare_identities(told: Mapping[str, Any], log: replay.Log) -> None:
    counts = Counter(row["type_name"] for row in _rows(log.table("records")))
    assert len(_rows(log.table("acls"))) == len(told["acls"])
    assert counts["UserScramCredential"] == 4 and counts["ClientQuota"] == 6
    everything = json.dumps(_rows(log.table("records")))
    assert "carol" in everything, "who has a credential is told"
    assert "YWxpY2Utc2FsdC0wMTIzNDU2Nzg5" not in everything and "xEPJNs6" not in everything, (
        "the credential is not"
    )


def test_the_state_at_each_checkpoint_is_the_checkpoints(recording: Path, log: replay.Log) -> None:
    """Goal: the state at any offset is Kafka's. Method: eleven checkpoints; the rows and the fold agree there, too."""
    checkpoints = sorted((recording / "controller-1" / PARTITION).glob("*.checkpoint"))[1:]
    assert len(checkpoints) == 11
    for path in checkpoints:
        at = int(path.stem[:20])
        wanted = checkpoint_image(path, cluster_id=log.export.cluster_id)
        image = folded(log.export, at)
        for part in ("topics", "brokers", "configs", "features", "next_producer_id", "quorum", "controllers"):
            assert getattr(image, part) == getattr(wanted, part), (path.name, part)
        assert exported_digest(image) == exported_digest(wanted)
        assert log.position(at).end_offset == at
        assert digest_of(log.engine, state_at(log.engine, log.export, at)) == exported_digest(image)


def test_a_log_that_begins_with_a_checkpoint_ends_in_the_same_state(recording: Path, log: replay.Log) -> None:
    later = replay.open(recording / "controller-3")
    assert (later.export.first_offset, later.export.end_offset) == (2983, 3035)
    for name in ("topics", "partitions", "brokers", "configs"):
        columns = [
            name for name in later.table(name).columns if name not in {"log_offset", "ts", "topic_seq"}
        ]
        columns = [name for name in columns if name != "cause_code"]
        one, other = ({_plain(row, columns) for row in _rows(of.table(name))} for of in (log, later))
        assert one == other


def _plain(row: Mapping[str, Any], columns: list[str]) -> str:
    return json.dumps([row[name] for name in columns])


def test_a_setting_of_a_group_is_no_brokers(log: replay.Log) -> None:
    keys = {row["key"] for row in log.diff(400, 500).to_arrow_table().to_pylist()}
    assert "group:g1 consumer.session.timeout.ms" in keys


def test_the_causes_are_those_of_the_history(log: replay.Log) -> None:
    """Goal: what was done to the cluster is told. Method: the recording's own timeline."""
    fencings = [(row["broker_id"], row["cause_code"], row["verdict"]) for row in _rows(log.table("fencings"))]
    assert fencings == [
        (13, "SESSION_EXPIRED", "broker"),
        (12, "SHUTDOWN_GRANTED", "stopped"),
        (11, "SESSION_EXPIRED", "broker"),
        (14, "STOPPED_OR_SILENT", "stopped or lost"),
    ]
    takeovers = [
        (row["controller_id"], row["kind"], row["controller_epoch"])
        for row in _rows(log.table("controller_takeovers"))
    ]
    assert takeovers == [(2, "founded", 2), (1, "crash", 3), (2, "crash", 5)]
    voters = [(row["voter_ids"], row["cause_code"]) for row in _rows(log.table("voters_over_time"))]
    assert voters == [([1, 2, 3], None), ([2, 3], "VOTER_REMOVED"), ([1, 2, 3], "VOTER_ADDED")]
    ended = [(row["ended"], row["topic_name"]) for row in _rows(log.table("reassignments"))]
    assert ended.count(("cancelled", "audit")) == 1 and ended.count(("replaced", "temp-1")) == 1
    assert sum(how == "completed" for how, _ in ended) == len(ended) - 2
    preferred = log.sql("SELECT sum(elections) FROM elections WHERE kind = 'preferred'").fetchall()
    assert preferred == [(4,)]
    assert log.sql("SELECT sum(missing) FROM log_health").fetchall() == [(0,)]
    assert _rows(log.table("repeated_registrations")) == []


def test_the_report_tells_the_history(log: replay.Log) -> None:
    text = report_of(log)
    for line in (
        "Cluster bWV0YXF1b3J1bS1wZWVyMA",
        "the same as the log's own fold",
        "broker 13 lost 57 leaderships: 17 to broker 11, 19 to broker 12, 21 to broker 14 (session expired)",
        "broker 12 registered again, after a clean stop",
        "setting of group g1 changed: consumer.session.timeout.ms=50000",
        "| ClearElr | 1 | 1461 | 1461 |",
        "somebody CreateTopics",
    ):
        assert line in text
    assert "bytes" not in report_of(log.between(1000, 2000))


def test_an_export_goes_on_where_it_ended(recording: Path, tmp_path: Path, log: replay.Log) -> None:
    path = recording / "controller-1"
    for until in (500, 1460, None):
        manifest = export_kafka(path, tmp_path, until=until)
    assert manifest["digest"] == log.export.digest and manifest["log_format"] == "kafka"
    assert export_kafka(path, tmp_path) == manifest
    assert replay.open(tmp_path).export.log_format == "kafka"


# --- logs written by hand


def _open(tmp_path: Path, *segments: list[bytes]) -> replay.Log:
    return replay.open(by_hand.written(tmp_path, *segments))


FOUNDED = by_hand.batch(0, [by_hand.leader_change(1, [1, 2, 3])], control=2)
CREATED = by_hand.batch(1, [by_hand.topic("t", TOPIC), by_hand.partition(TOPIC, 0, [11, 12], elr=[13])])


def test_a_quorum_without_records_of_its_own_has_the_voters_that_a_leader_names(tmp_path: Path) -> None:
    more = by_hand.batch(1, [by_hand.leader_change(2, [1, 2])], control=2, epoch=2)
    log = _open(tmp_path, [FOUNDED, more])
    assert [row["voter_ids"] for row in _rows(log.table("voters_over_time"))] == [[1, 2, 3], [1, 2]]
    assert log.sql("SELECT sum(missing), sum(record_count) FROM log_health").fetchall() == [(0, 2)]


def test_one_state_has_one_digest_wherever_its_log_begins(tmp_path: Path) -> None:
    """Goal: two copies of one cluster's log can be compared. Method: the whole log, with voters that only a LeaderChange
    names and a controller's registration, and what is left of it behind a checkpoint; all three engines.
    """
    state = [by_hand.topic("t", TOPIC), by_hand.partition(TOPIC, 0, [11, 12]), by_hand.controller(1)]
    later = [by_hand.batch(4, [by_hand.topic("u", bytes(15) + b"\x78")])]
    whole = by_hand.written(tmp_path / "a", [FOUNDED, by_hand.batch(1, state), *later])
    cut = by_hand.written(tmp_path / "b", later)
    (cut / PARTITION / f"{4:020d}-{1:010d}.checkpoint").write_bytes(by_hand.checkpoint(4, state))
    one, other = replay.open(whole), replay.open(cut)
    assert (one.export.end_offset, other.export.first_offset, other.export.end_offset) == (5, 4, 5)
    assert one.export.digest == other.export.digest
    for engine in ("duckdb", "fold"):
        for log in (one, other):
            found = state_digest(log.export.directory, engine=engine)
            assert found["digest"] == one.export.digest, engine
    assert [row["voter_ids"] for row in _rows(one.table("voters_over_time"))] == [[1, 2, 3]]


def test_a_cluster_whose_id_was_written_as_an_option_is_read(tmp_path: Path) -> None:
    """Goal: a log of a public image is read. Method: the meta.properties that its start script writes."""
    directory = by_hand.written(tmp_path, [FOUNDED, CREATED])
    (directory / "meta.properties").write_text(
        "version=1\ncluster.id=Some(5L6g3nShT-eMCtK--X86sw)\nnode.id=1\n"
    )
    assert replay.open(directory).export.cluster_id == "5L6g3nShT-eMCtK--X86sw"


def test_clearing_eligible_replicas_changes_every_partition_that_has_some(tmp_path: Path) -> None:
    cleared = by_hand.batch(3, [by_hand.value(28, 0, by_hand.string(""))])
    log = _open(tmp_path, [FOUNDED, CREATED, cleared])
    (row,) = _rows(log.table("partitions"))
    assert (row["eligible_leader_replicas"], row["partition_epoch"], row["log_offset"]) == ([], 1, 3)
    assert (log.export.end_offset, log.sql("SELECT sum(missing) FROM log_health").fetchall()) == (4, [(0,)])


def test_a_setting_before_its_topic_is_the_topics(tmp_path: Path) -> None:
    """Goal: the logs of releases before 3.3 are read. Method: there a new topic's settings stand before it."""
    values = [
        by_hand.config(2, "t", "retention.ms", "5"),
        by_hand.topic("t", TOPIC),
        by_hand.partition(TOPIC, 0, [11]),
    ]
    log = _open(tmp_path, [FOUNDED, by_hand.batch(1, values)])
    assert [(row["config_name"], row["config_value"]) for row in _rows(log.table("configs"))] == [
        ("retention.ms", "5")
    ]
    assert folded(log.export, 4).configs[2, "t"]["retention.ms"] == "5"


def test_no_secret_of_kafkas_log_is_exported(tmp_path: Path) -> None:
    """Goal: no row has a secret, under any of its names. Method: two settings; both engines still agree on the state."""
    names = ("ssl.key.password", "listener.name.x.sasl.oauthbearer.assertion.private.key.passphrase")
    values = [by_hand.config(4, "11", name, "hunter2") for name in names]
    log = _open(tmp_path, [FOUNDED, by_hand.batch(1, values)])
    masked = mask("hunter2", None)
    assert {row["config_value"] for row in _rows(log.table("configs"))} == {masked}
    assert {row["config_value"] for row in _rows(log.table("config_changes"))} == {masked}
    assert digest_of(log.engine, state_at(log.engine, log.export, 3)) == log.export.digest


NOTHING = by_hand.value(20, 0, b"")
"""A NoOp."""
BEGIN = by_hand.value(23, 0, b"", {0: by_hand.string("a")})
LOSE = by_hand.partition_change(TOPIC, 0, {1: struct.pack(">i", NO_LEADER)})


def test_an_aborted_transaction_never_counted(tmp_path: Path) -> None:
    """B76: Goal: as in Kafka. Method: a change, a new leader, and the abort; then one that is ended, and one that is not."""
    log = _open(
        tmp_path,
        [
            FOUNDED,
            CREATED,
            by_hand.batch(3, [BEGIN, LOSE]),
            by_hand.batch(5, [by_hand.leader_change(2, [1, 2, 3])], control=2, epoch=2),
            by_hand.batch(6, [by_hand.value(25, 0, b""), LOSE], epoch=2),
            by_hand.batch(8, [BEGIN], epoch=2),
            by_hand.batch(9, [LOSE, by_hand.value(24, 0, b"")], epoch=2),
            by_hand.batch(11, [BEGIN, LOSE], epoch=2),
        ],
    )
    (row,) = _rows(log.table("partitions"))
    assert (row["leader"], row["partition_epoch"], log.export.end_offset) == (NO_LEADER, 2, 11)
    counts = {row["type_name"]: row["record_count"] for row in _rows(log.table("opaque_records"))}
    assert counts["AbortedPartitionChange"] == 1
    assert log.position(9).note == "9 lies inside the batch 8-10; shown at 8"
    assert [row["controller_id"] for row in _rows(log.table("controller_takeovers"))] == [1, 2]


TRANSACTION_ENDS, TRANSACTION_ABORTS = by_hand.value(24, 0, b""), by_hand.value(25, 0, b"")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([BEGIN, LOSE, BEGIN], "the transaction of offset 5 begins within that of offset 3"),
        ([TRANSACTION_ENDS], "the transaction that ends at offset 3 has no beginning"),
        ([LOSE, TRANSACTION_ABORTS], "the transaction that ends at offset 4 has no beginning"),
        (
            [BEGIN, TRANSACTION_ENDS, TRANSACTION_ENDS],
            "the transaction that ends at offset 5 has no beginning",
        ),
    ],
)
def test_a_transaction_out_of_its_place_is_damage(values: list[bytes], why: str, tmp_path: Path) -> None:
    """B76: none is nested, and none ends that has not begun: Kafka's controller stops there, too."""
    with pytest.raises(DamagedFile, match=why):
        _open(tmp_path, [FOUNDED, CREATED, by_hand.batch(3, values)])


def test_a_transaction_is_not_seen_before_its_end_and_whole_afterwards(tmp_path: Path) -> None:
    """B76: the last stable offset is that before the beginning; the next export has all of it."""
    begun = [FOUNDED, CREATED, by_hand.batch(3, [BEGIN, LOSE])]
    before = _open(tmp_path / "before", begun)
    assert before.export.end_offset == 3
    (row,) = _rows(before.table("partitions"))
    assert row["partition_epoch"] == 0
    after = _open(tmp_path / "after", [*begun, by_hand.batch(5, [LOSE, TRANSACTION_ENDS])])
    (row,) = _rows(after.table("partitions"))
    assert (after.export.end_offset, row["leader"], row["partition_epoch"]) == (7, NO_LEADER, 2)


def test_losses_of_a_broker_are_told_by_its_neighbours(tmp_path: Path) -> None:
    leader = {1: struct.pack(">i", 12), 0: by_hand.ints([12])}
    back = {0: by_hand.ints([12, 11])}
    log = _open(
        tmp_path,
        [
            FOUNDED,
            CREATED,
            by_hand.batch(3, [by_hand.broker(11, 3), by_hand.broker(12, 4)]),
            by_hand.batch(
                5, [by_hand.broker_change(11, 3, {0: b"\xff"}), by_hand.broker_change(12, 4, {0: b"\xff"})]
            ),
            by_hand.batch(
                7, [by_hand.partition_change(TOPIC, 0, leader), by_hand.broker_change(11, 3, {0: b"\x01"})]
            ),
            by_hand.batch(9, [by_hand.partition_change(TOPIC, 0, back)]),
        ],
    )
    causes = log.sql("SELECT log_offset, cause_code FROM records WHERE log_offset >= 7 ORDER BY log_offset")
    assert causes.fetchall() == [(7, "SESSION_EXPIRED"), (8, "SESSION_EXPIRED"), (9, "ISR_REPORTED")]


def test_a_first_batch_before_the_first_claim_does_not_make_the_founding_a_takeover(tmp_path: Path) -> None:
    """Goal: the logs of 3.3 are read. Method: there the founder's metadata.version stands before its LeaderChange."""
    first = by_hand.batch(0, [by_hand.feature("metadata.version", 7)])
    claim = by_hand.batch(1, [by_hand.leader_change(1, [1, 2, 3])], control=2)
    again = by_hand.batch(2, [by_hand.leader_change(2, [1, 2, 3])], control=2, epoch=2)
    log = _open(tmp_path, [first, claim, again])
    founding, other = _rows(log.table("controller_takeovers"))
    assert (founding["first_offset"], founding["kind"], founding["silent_ms"]) == (1, "founded", None)
    assert (other["kind"], other["silent_ms"]) == ("unknown", 1)
    assert [row["from_offset"] for row in _rows(log.table("incidents"))] == [2]
    assert "offset 1: the cluster was founded; controller 1 took charge" in report_of(log)


@pytest.mark.parametrize("metadata_version", [0, 4, 7])
def test_a_controlled_shutdown_without_a_record_of_its_begin_is_told(
    metadata_version: int, tmp_path: Path
) -> None:
    """Goal: a stop is no loss in logs of metadata.version below 3.3-IV3. Method: broker 11 leaves two partitions, is fenced
    later, and comes back; the same changes in 3.3-IV3, where a record stands beside a shutdown, have no such cause.
    """
    moved = {1: struct.pack(">i", 12), 0: by_hand.ints([12])}
    alone = {1: struct.pack(">i", NO_LEADER)}
    levels = [by_hand.feature("metadata.version", metadata_version)] if metadata_version else [NOTHING]
    log = _open(
        tmp_path,
        [
            FOUNDED,
            by_hand.batch(1, levels),
            by_hand.batch(
                2,
                [
                    by_hand.topic("t", TOPIC),
                    by_hand.partition(TOPIC, 0, [11, 12]),
                    by_hand.partition(TOPIC, 1, [11]),
                    by_hand.partition(TOPIC, 2, [12, 11]),
                ],
            ),
            by_hand.batch(6, [by_hand.broker(11, 6), by_hand.broker(12, 7)]),
            by_hand.batch(
                8, [by_hand.broker_change(11, 6, {0: b"\xff"}), by_hand.broker_change(12, 7, {0: b"\xff"})]
            ),
            by_hand.batch(
                10, [by_hand.partition_change(TOPIC, 0, moved), by_hand.partition_change(TOPIC, 1, alone)]
            ),
            by_hand.batch(12, [by_hand.fence_broker(11, 6)]),
            by_hand.batch(13, [by_hand.broker(11, 13)]),
        ],
    )
    causes = dict(log.sql("SELECT log_offset, cause_code FROM records WHERE log_offset >= 10").fetchall())
    (fencing,) = _rows(log.table("fencings"))
    (spell,) = _rows(log.table("leaderless_spells"))
    if metadata_version < 7:
        assert causes == {
            10: "CONTROLLED_SHUTDOWN",
            11: "CONTROLLED_SHUTDOWN",
            12: "SHUTDOWN_GRANTED",
            13: "BROKER_REGISTERED",
        }
        assert (fencing["verdict"], spell["cause_code"]) == ("stopped", "CONTROLLED_SHUTDOWN")
    else:
        assert (causes[11], causes[12], fencing["verdict"]) == (None, "STOPPED_OR_SILENT", "stopped or lost")


def test_a_process_that_registers_once_more_did_not_stop(tmp_path: Path) -> None:
    """Goal: no unclean stop is invented. Method: before 3.8 a process that repeats its registration gets a new epoch."""
    again = [by_hand.batch(offset, [by_hand.broker(11, offset)]) for offset in (1, 2)]
    log = _open(tmp_path, [FOUNDED, *again])
    assert [row["log_offset"] for row in _rows(log.table("repeated_registrations"))] == [2]
    told = report_of(log)
    assert "offset 2: broker 11 registered once more, by the same process" in told and "unclean" not in told


def test_an_election_or_a_reassignment_is_no_shutdown(tmp_path: Path) -> None:
    """Goal: in old logs, a leader that gives way is not told to stop. Method: a preferred election, a finished move."""
    to_12 = {1: struct.pack(">i", 12)}
    preferred = {1: struct.pack(">i", 11)}
    finished = {
        0: by_hand.ints([12]), 1: struct.pack(">i", 12), 2: by_hand.ints([12]), 3: by_hand.ints([])
    }  # fmt: skip
    log = _open(
        tmp_path,
        [
            FOUNDED,
            CREATED,
            by_hand.batch(3, [by_hand.partition_change(TOPIC, 0, to_12)]),
            by_hand.batch(4, [by_hand.partition_change(TOPIC, 0, preferred)]),
            by_hand.batch(5, [by_hand.partition_change(TOPIC, 0, {3: by_hand.ints([11])})]),
            by_hand.batch(6, [by_hand.partition_change(TOPIC, 0, finished)]),
        ],
    )
    causes = log.sql("SELECT cause_code FROM records WHERE log_offset >= 3").fetchall()
    assert "CONTROLLED_SHUTDOWN" not in {code for (code,) in causes}


def test_an_unknown_kind_of_record_keeps_its_offset_and_nothing_of_its_content(tmp_path: Path) -> None:
    unknown = by_hand.batch(1, [by_hand.value(99, 7, b"a secret")])
    log = _open(tmp_path, [FOUNDED, unknown])
    (row,) = _rows(log.table("opaque_records"))
    assert (row["type_name"], json.loads(row["example"])["bytes"]) == ("Type99", 12)
    assert "a secret" not in json.dumps(_rows(log.table("records")))


# --- damage


def _second_segment() -> list[bytes]:
    return [by_hand.batch(3, [LOSE])]


@pytest.mark.parametrize("read_bytes", [7, 100, 1 << 20])
def test_damage_names_file_and_byte(read_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: it does not matter how a segment is read. Method: in pieces that cut batches, and whole."""
    monkeypatch.setattr("metadata_log.replay.kafka.files.READ_BYTES", read_bytes)
    directory = by_hand.written(tmp_path, [FOUNDED, CREATED], _second_segment())
    path = directory / PARTITION / f"{0:020d}.log"
    whole, at = path.read_bytes(), len(FOUNDED)
    for data, message in (
        (
            whole[: at + 40] + bytes([whole[at + 40] ^ 1]) + whole[at + 41 :],
            "the batch at offset 1: its CRC-32C is",
        ),
        (whole[:-1], f"the batch at offset 1 has {len(CREATED)} bytes, of which {len(CREATED) - 1} are here"),
        (whole[: at + 20], "the file ends 20 bytes into a batch"),
        (whole[: at + 16] + b"\1" + whole[at + 17 :], "no record batch of version 2 begins here"),
    ):
        path.write_bytes(data)
        with pytest.raises(DamagedFile) as refused:
            replay.open(directory)
        assert str(refused.value).startswith(f"{path}: byte {at}: {message}")
    path.write_bytes(whole)
    assert replay.open(directory).export.end_offset == 4
    path.write_bytes(whole[:at])
    with pytest.raises(
        DamagedFile, match="byte 0: offset 3 follows, where 1 is expected: a segment is missing"
    ):
        replay.open(directory)


def test_the_last_segment_may_end_in_a_batch_that_is_being_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = by_hand.written(tmp_path, [FOUNDED, CREATED], _second_segment())
    path = directory / PARTITION / f"{3:020d}.log"
    for torn in (path.read_bytes()[:-3], path.read_bytes()[:30], bytes(100)):
        path.write_bytes(torn)
        with caplog.at_level(logging.WARNING):
            assert replay.open(directory).export.end_offset == 3
        assert f"{path}: byte 0: " in caplog.text
        caplog.clear()


def test_what_is_whole_and_not_understood_is_another_versions(tmp_path: Path) -> None:
    for place, (other, message) in enumerate(
        (
            (
                by_hand.batch(1, [by_hand.value(3, 9, b"")]),
                "the record at offset 1: version 9 of Partition is unknown",
            ),
            (by_hand.batch(1, [b"\2\0\0"]), "the record at offset 1: frame version 2"),
            (by_hand.batch(1, [LOSE], attributes=4), "the batch at offset 1 is compressed"),
        )
    ):
        with pytest.raises(WrittenByAnotherVersion, match=message):
            _open(tmp_path / str(place), [FOUNDED, other])


def test_a_record_that_contradicts_itself_is_damage(tmp_path: Path) -> None:
    for place, content in enumerate(
        (by_hand.topic("t", TOPIC)[:-3], by_hand.topic("t", TOPIC) + b"\0", b"", b"\1")
    ):
        with pytest.raises(DamagedFile, match=f"byte {len(FOUNDED)}: the record at offset 1"):
            _open(tmp_path / str(place), [FOUNDED, by_hand.batch(1, [content])])


def test_every_flip_of_a_byte_is_noticed(tmp_path: Path) -> None:
    """Goal: no damage is read as data. Method: each byte of a log but the leader epoch's, which the CRC does not cover."""
    directory = by_hand.written(tmp_path, [FOUNDED, CREATED], _second_segment())
    path = directory / PARTITION / f"{0:020d}.log"
    whole = path.read_bytes()
    for at in range(len(whole)):
        if 12 <= (at if at < len(FOUNDED) else at - len(FOUNDED)) < 16:
            continue
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        with pytest.raises(MetadataError):
            export_kafka(directory, tmp_path / "to")


def test_a_log_without_a_beginning_says_what_is_missing(recording: Path, tmp_path: Path) -> None:
    segment = "00000000000000002956.log"
    (tmp_path / segment).write_bytes((recording / "controller-3" / PARTITION / segment).read_bytes())
    with pytest.raises(OffsetCompacted, match=r"copy the \*.checkpoint files too"):
        replay.open(tmp_path, format="kafka")
    checkpoint = next((recording / "controller-3" / PARTITION).glob("*.checkpoint"))
    (tmp_path / checkpoint.name).write_bytes(checkpoint.read_bytes()[:-10])
    with pytest.raises(DamagedFile, match=f"{checkpoint.name}: byte"):
        replay.open(tmp_path)
    (tmp_path / checkpoint.name).write_bytes(checkpoint.read_bytes())
    assert replay.open(tmp_path).export.cluster_id == "unknown"


def test_another_history_is_not_added_to_an_export(recording: Path, tmp_path: Path) -> None:
    first = by_hand.written(tmp_path / "a", [FOUNDED, CREATED])
    other = by_hand.batch(1, [by_hand.topic("u", TOPIC), by_hand.partition(TOPIC, 0, [11])])
    second = by_hand.written(tmp_path / "b", [FOUNDED, other, by_hand.batch(3, [LOSE])])
    export_kafka(first, tmp_path / "to")
    with pytest.raises(InvariantBroken, match="this is another history"):
        export_kafka(second, tmp_path / "to")


def test_what_is_no_log_of_kafkas_is_refused(tmp_path: Path, log: replay.Log) -> None:
    with pytest.raises(InvalidRequest, match="holds no log"):
        replay.open(tmp_path, format="kafka")
    with pytest.raises(InvalidRequest, match="'etcd' is no format of a log"):
        replay.open(tmp_path, format="etcd")


def _rows(relation: Any) -> list[dict[str, Any]]:
    return [
        {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in row.items()}
        for row in relation.to_arrow_table().to_pylist()
    ]
