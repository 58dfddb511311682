"""Records are shown as Kafka's own converter to JSON shows them."""

import pytest

from metadata_log.ids import uuid_text
from metadata_log.kafka.counterparts import COUNTERPARTS, READ, ours
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.topics import KeptSetting, TopicTombstoneRecord
from quorum.whatif.kafka_records import as_kafka_json
from tests.support.kafka_records import camel, vectors

LEVEL = 30
NAMES = sorted(row.kafka for row in COUNTERPARTS if row.is_read and row.is_written and not row.kafka_alone)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_shown_as_kafka_shows_it(name: str) -> None:
    compared = 0
    for vector in vectors():
        if vector.schema.name != name or not vector.has_meaning:
            continue
        record = ours(vector.decoded(vector.raw))
        assert record is not None
        if READ[name].version_of(record, LEVEL) != vector.version:
            continue
        compared += 1
        shown = as_kafka_json(record, uuid_text)
        assert shown.pop("version") == vector.version
        kind = shown.pop("type")
        assert kind.removesuffix("_RECORD").replace("_", "") == name.upper()
        if not isinstance(record, ConfigRecord):
            assert _camel(shown) == vector.shown
    assert compared


def _camel(value: object) -> object:
    if isinstance(value, dict):
        return {camel(name): _camel(item) for name, item in value.items()}
    return [_camel(item) for item in value] if isinstance(value, list) else value


def test_a_record_that_kafka_does_not_know_has_our_name() -> None:
    deleted = TopicTombstoneRecord(bytes(16), "t", 1, 2, (KeptSetting("retention.ms", "5"),), 0)  # type: ignore[arg-type]
    shown = as_kafka_json(deleted, lambda _: "T")
    assert (shown["type"], shown["topic_id"], shown["configs"]) == (
        *("TopicTombstone", "T"),
        [["retention.ms", "5"]],
    )
