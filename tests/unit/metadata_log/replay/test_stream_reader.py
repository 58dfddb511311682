"""The reader of a stream plans without a JVM: where it begins, how far it goes, and what it waits for."""

import pickle
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from metadata_log.errors import OffsetInFuture
from metadata_log.replay import spark_source
from metadata_log.replay.spark_source import Settings, StreamReader
from tests.support.histories import CLUSTER_ID, Step, history_of

HISTORY = [*history_of(41, 60)]
END = HISTORY[-1].batch.end_offset
WIDE = next(step.batch for step in HISTORY[10:] if len(step.batch.records) > 3)


def append(to: Path, steps: Sequence[Step]) -> None:
    with (to / f"{0:020d}.log").open("ab") as file:
        file.write(b"".join(step.frame for step in steps))


def reader(path: Path, **options: str) -> StreamReader:
    settings = Settings({"path": str(path), **options})
    return StreamReader(settings, settings.wanted)


def at(offset: int) -> dict[str, object]:
    return {"offset": offset, "cluster_id": CLUSTER_ID}


def offsets(of: StreamReader, first: int, until: int) -> list[int]:
    parts = of.partitions(at(first), at(until))
    return [o for part in parts for b in of.read(part) for o in b.column("log_offset").to_pylist()]


def test_a_stream_begins_and_ends_where_it_is_told(tmp_path: Path) -> None:
    append(tmp_path, HISTORY)
    inside = WIDE.base_offset + 2
    later = reader(tmp_path, from_offset=str(inside))
    first = later.initialOffset()["offset"]
    assert offsets(later, first, END) == list(range(inside, END))
    bounded = reader(tmp_path, until_offset=str(inside))
    assert bounded.latestOffset(at(0), ReadAllAvailable()) == at(inside)
    assert offsets(bounded, 0, inside) == list(range(WIDE.end_offset)), "the batch is whole"
    assert offsets(reader(tmp_path), inside, END) == list(range(WIDE.end_offset, END)), "and read once"
    assert reader(tmp_path).latestOffset(at(3), ReadMaxRows(10)) == at(13)


def test_available_now_ends_where_the_log_ended(tmp_path: Path) -> None:
    append(tmp_path, HISTORY[:30])
    target, stream = HISTORY[29].batch.end_offset, reader(tmp_path)
    stream.prepareForTriggerAvailableNow()
    append(tmp_path, HISTORY[30:])
    assert stream.latestOffset(at(0), ReadAllAvailable()) == at(target)
    assert stream.latestOffset(at(target), ReadAllAvailable()) == at(target)


def test_a_restart_waits_for_a_log_that_lags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, HISTORY[:30])
    writer = threading.Timer(0.3, append, (tmp_path, HISTORY[30:]))
    writer.start()
    assert offsets(reader(tmp_path), 5, END) == list(range(HISTORY[1].batch.base_offset, END))
    writer.join()
    monkeypatch.setattr(spark_source, "PATIENCE_S", 0)
    with pytest.raises(OffsetInFuture, match=f"ends at {END}, but the checkpoint planned up to {END + 1}"):
        reader(tmp_path).partitions(at(0), at(END + 1))


def test_executors_get_no_more_than_they_need(tmp_path: Path) -> None:
    append(tmp_path, HISTORY)
    stream = reader(tmp_path)
    fresh = len(pickle.dumps(stream))
    stream.latestOffset(at(0), ReadAllAvailable())
    assert len(pickle.dumps(stream)) == fresh
