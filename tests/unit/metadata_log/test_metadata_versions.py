"""Pure: the levels of metadata.version are those of Kafka 4.3.1."""

import pytest

from metadata_log.kafka.counterparts import KNOWN_FROM, WRITTEN
from metadata_log.metadata_versions import (
    CONTROLLERS_FROM,
    METADATA_VERSIONS,
    OUR_BROKERS_FROM,
    added_between,
    formatted_with,
    level_of,
    name_of,
    newest,
)
from metadata_log.records.brokers import RegisterBrokerRecord
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord

# MetadataVersion of 4.3.1, by reflection: level, name, whether metadata changed, registerBrokerRecordVersion,
# partitionRecordVersion, partitionChangeRecordVersion.
KAFKAS = """
7 3.3-IV3 true 1 0 0
8 3.4-IV0 true 2 0 0
9 3.5-IV0 false 2 0 0
10 3.5-IV1 false 2 0 0
11 3.5-IV2 true 2 0 0
12 3.6-IV0 false 2 0 0
13 3.6-IV1 true 2 0 0
14 3.6-IV2 true 2 0 0
15 3.7-IV0 true 2 0 0
16 3.7-IV1 false 2 0 0
17 3.7-IV2 true 3 1 1
18 3.7-IV3 false 3 1 1
19 3.7-IV4 false 3 1 1
20 3.8-IV0 false 3 1 1
21 3.9-IV0 false 3 1 1
22 4.0-IV0 false 3 1 1
23 4.0-IV1 true 3 2 2
24 4.0-IV2 false 3 2 2
25 4.0-IV3 false 3 2 2
26 4.1-IV0 false 3 2 2
27 4.1-IV1 false 3 2 2
28 4.2-IV0 false 3 2 2
29 4.2-IV1 false 3 2 2
30 4.3-IV0 true 4 2 2
31 4.4-IV0 false 4 2 2
"""
ROWS = [line.split() for line in KAFKAS.split("\n") if line]


def test_every_level_has_kafkas_name_and_says_whether_records_changed() -> None:
    """B80"""
    told = [[str(each.level), each.name, str(each.adds is not None).lower()] for each in METADATA_VERSIONS]
    assert told == [row[:3] for row in ROWS]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_records_are_written_in_kafkas_versions(row: list[str]) -> None:
    level, _, _, *versions = row
    kinds = (RegisterBrokerRecord, PartitionRecord, PartitionChangeRecord)
    rows = [WRITTEN[kind] for kind in kinds]
    assert [str(each.fixed_version(int(level))) for each in rows] == versions
    assert (int(level) < KNOWN_FROM[RegisterControllerRecord]) == (int(level) < CONTROLLERS_FROM)


def test_a_level_is_named_by_its_number_its_name_or_a_release() -> None:
    assert [level_of(text) for text in ("27", "4.1-IV1", "4.1", "3.3", "4.4")] == [27, 27, 27, 7, 31]
    assert [level_of(text) for text in ("6", "32", "4.1-IV9", "", "-7", "٢٧", "4")] == [None] * 7
    assert (name_of(30), name_of(6)) == ("4.3-IV0", None)


def test_a_downgrade_loses_what_was_added_above_it() -> None:
    """B82"""
    assert added_between(23, 29) == ()
    assert [each.level for each in added_between(15, 30)] == [17, 23, 30]
    assert [each.adds for each in added_between(29, 30)] == ["cordoned log directories"]
    assert added_between(30, 30) == added_between(30, 27) == ()


@pytest.mark.parametrize(
    ("level", "others"),
    [
        (7, {}),
        (21, {}),
        (22, {"group.version": 1}),
        (25, {"group.version": 1, "transaction.version": 2}),
        (27, {"group.version": 1, "transaction.version": 2, "eligible.leader.replicas.version": 1}),
        (
            30,
            {
                "group.version": 1,
                "transaction.version": 2,
                "eligible.leader.replicas.version": 1,
                "share.version": 1,
                "streams.version": 1,
            },
        ),
    ],
)
def test_other_features_begin_as_kafka_formats_a_cluster(level: int, others: dict[str, int]) -> None:
    """As `kafka-storage version-mapping --release-version` of 4.3.1 lists them."""
    assert formatted_with(level) == others


def test_unstable_levels_are_above_the_newest_stable_one() -> None:
    assert (newest(unstable=False), newest(unstable=True), OUR_BROKERS_FROM) == (30, 31, 17)
