"""The newest batches as pages are told of them: each once, in order, bounded, and a reset behind what is kept."""

import json
from typing import Any

import pytest

from metadata_log.apply import applying
from metadata_log.batch import NO_ENVELOPE, Cause, Envelope, RecordBatch
from metadata_log.ids import BrokerId, TopicId, uuid_text
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.brokers import BrokerRegistrationChangeRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord
from metadata_log.sliced import at_once
from quorum.log import recent_batches
from quorum.log.recent_batches import RecentBatches, described
from tests.support.histories import history_of

T1 = TopicId(bytes(15) + b"\1")


def told_of(events: bytes) -> list[tuple[str, int | None, Any]]:
    """Return name, id and data of each event."""
    found = []
    for block in events.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append(
            (fields["event"], int(fields["id"]) if "id" in fields else None, json.loads(fields["data"]))
        )
    return found


def _fed(recent: RecentBatches, history: list[RecordBatch]) -> MetadataImage:
    image = EMPTY
    for batch in history:
        image, delta = at_once(applying(image, batch))
        recent.on_applied(batch, b"", image, delta)
    return image


HISTORY = [step.batch for step in history_of(3, 60)]


def test_from_each_offset_on_every_later_batch_is_told_once_and_in_order() -> None:
    recent = RecentBatches()
    _fed(recent, HISTORY)
    for position in range(recent.end_offset + 1):
        told = recent.told_from(position)
        assert told.position == recent.end_offset
        later = [batch for batch in HISTORY if batch.end_offset > position]
        assert [(name, end) for name, end, _ in told_of(told.events)] == [
            ("batch", batch.end_offset) for batch in later
        ]
        offsets = [(data["offset"], data["end_offset"]) for _, _, data in told_of(told.events)]
        assert offsets == [(batch.base_offset, batch.end_offset) for batch in later]
    assert recent.told_from(recent.end_offset + 5) == (b"", recent.end_offset + 5)


def test_all_pages_at_an_offset_are_sent_the_same_bytes() -> None:
    recent = RecentBatches()
    _fed(recent, HISTORY)
    assert recent.told_from(3).events is recent.told_from(3).events


@pytest.mark.parametrize("bound", ["KEPT_MAX", "KEPT_RECORDS_MAX"])
def test_behind_what_is_kept_a_page_is_told_to_load_again(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(recent_batches, bound, 5)
    recent = RecentBatches()
    _fed(recent, HISTORY)
    name, end, data = told_of(recent.told_from(0).events)[0]
    assert (name, end, data) == ("reset", recent.end_offset, {"end_offset": recent.end_offset})
    kept = [*recent._kept]
    assert len(kept) <= 5 and recent._records == sum(len(one.batch.records) for one in kept)
    assert [one[0] for one in told_of(recent.told_from(recent._start).events)] == ["batch"] * len(kept)
    assert told_of(recent.told_from(recent._start - 1).events)[0][0] == "reset"


def test_what_is_kept_is_bounded_by_its_bytes_and_the_newest_batch_is_kept_in_any_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: settings of 1 MiB that are written again and again do not fill the memory of all controllers."""
    monkeypatch.setattr(recent_batches, "KEPT_BYTES_MAX", 1_000)
    recent, image = RecentBatches(), EMPTY
    for batch in HISTORY:
        image, delta = at_once(applying(image, batch))
        recent.on_applied(batch, bytes(300), image, delta)
    assert [one.batch for one in recent._kept] == HISTORY[-3:]
    assert told_of(recent.told_from(0).events)[0][0] == "reset"
    assert len(told_of(recent.told_from(HISTORY[-3].base_offset).events)) == 3
    recent.on_restored(EMPTY)
    for batch in HISTORY[:2]:
        recent.on_applied(batch, bytes(2_000), image, delta)
    assert [one.batch for one in recent._kept] == [HISTORY[1]]


def test_a_snapshot_in_place_of_the_log_resets_all_pages() -> None:
    recent = RecentBatches()
    image = _fed(recent, HISTORY)
    recent = RecentBatches()
    recent.on_restored(image)
    assert told_of(recent.told_from(0).events)[0][0] == "reset"
    assert recent.told_from(image.end_offset).events == b""


def test_many_batches_at_once_are_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_batches, "TOLD_ONE_BY_ONE_MAX", 10)
    recent = RecentBatches()
    _fed(recent, HISTORY)
    [(name, end, data)] = told_of(recent.told_from(0).events)
    assert (name, end) == ("batches", HISTORY[-1].end_offset)
    assert data["batches"] == len(HISTORY) and data["offset"] == 0
    assert sum(data["types"].values()) == HISTORY[-1].end_offset


def test_large_batches_are_told_as_one_and_few_of_their_names_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: a page that comes back costs no turn of the loop more than some milliseconds."""
    looked_up = []
    name = recent_batches._name

    def looking(record: Record, topic_id: TopicId, image: MetadataImage) -> str:
        looked_up.append(topic_id)
        return name(record, topic_id, image)

    monkeypatch.setattr(recent_batches, "_name", looking)
    monkeypatch.setattr(recent_batches, "TOLD_RECORDS_MAX", HISTORY[-1].end_offset - 1)
    recent = RecentBatches()
    _fed(recent, HISTORY)
    assert not recent.is_made(0)
    [(told, _, data)] = told_of(recent.told_from(0).events)
    assert (told, data["batches"]) == ("batches", len(HISTORY)) and recent.is_made(0) and not looked_up
    [*_, (told, _, data)] = told_of(recent.told_from(HISTORY[0].end_offset).events)
    assert told == "batch" and looked_up
    looked_up.clear()
    topics = tuple(TopicRecord(TopicId(bytes(14) + n.to_bytes(2)), f"t{n}") for n in range(900))
    batch = RecordBatch(
        base_offset=0,
        controller_epoch=1,
        appended_at_ms=0,
        previous_crc=0,
        crc=0,
        envelope=NO_ENVELOPE,
        records=topics,
    )
    assert len(described(batch, EMPTY)["topics"]) == len(looked_up) == 8


def test_the_line_of_a_batch_names_cause_actor_topics_and_brokers() -> None:
    records: tuple[Record, ...] = (
        TopicRecord(T1, "orders"),
        BrokerRegistrationChangeRecord(broker_id=BrokerId(11), broker_epoch=1, fenced=True),
        RemoveTopicRecord(TopicId(bytes(15) + b"\2")),
    )
    batch = RecordBatch(
        base_offset=7,
        controller_epoch=2,
        appended_at_ms=1_000,
        previous_crc=0,
        crc=0,
        records=records,
        envelope=Envelope(actor="User:a", cause=Cause("SESSION_EXPIRED", 3, {"broker_id": 11})),
    )
    line = described(batch, EMPTY)
    assert line["topics"] == ["orders", uuid_text(TopicId(bytes(15) + b"\2"))] and line["brokers"] == [11]
    assert line["cause"] == {"code": "SESSION_EXPIRED", "ref_offset": 3, "detail": {"broker_id": 11}}
    assert (line["offset"], line["end_offset"], line["actor"]) == (7, 10, "User:a")
    assert line["types"] == {"Topic": 1, "BrokerRegistrationChange": 1, "RemoveTopic": 1}
