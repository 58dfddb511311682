"""Edge: the log that `bench import-kafka` imports is one of Kafka's, whole, and of as many records as were asked for."""

import random
from pathlib import Path

import pytest

from metadata_log.codec import decode
from metadata_log.image.metadata_image import EMPTY
from ops.bench.big_log import frames
from ops.bench.import_kafka import import_kafka
from ops.bench.kafka_log import write_kafka_log
from ops.takeover.kafka_state import kafka_state
from snapshots.fold import fold

pytestmark = pytest.mark.slow


def test_it_is_read_from_many_segments_and_nothing_is_lost(tmp_path: Path) -> None:
    directories, end_offset = write_kafka_log(
        tmp_path, 6_000, partitions=500, cluster_id="bWV0YXF1b3J1bS1wZWVyMA", segment_bytes=64 << 10
    )
    state = kafka_state(directories, rng=random.Random(1))
    assert len(state.of.log.segments) > 3
    assert (state.image.end_offset, state.only_here, state.lost) == (end_offset, 0, {})
    assert end_offset >= 6_000
    same = fold((decode(frame)[0] for _, frame in frames(6_000, partitions=500)), onto=EMPTY)
    assert state.image.topics == same.topics and len(same.topics.by_id) > 5
    assert state.voters == (1, 2, 3)


@pytest.mark.slow
def test_its_import_is_measured() -> None:
    answer = import_kafka(records=4_000, partitions=300)
    assert answer["params"]["records"] == 4_000
    ours = answer["ours"]
    assert (
        ours["p50"] > 0
        and ours["processor"] > 0
        and ours["peak_mib"] > ours["log_mib"] > ours["half_log_mib"]
    )
