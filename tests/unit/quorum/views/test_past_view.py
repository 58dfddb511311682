"""Two states compared: every difference is named, and none that is not there."""

from typing import Any

from metadata_log.image.metadata_image import MetadataImage
from quorum.views import past_view
from quorum.views.past_view import differences, summary
from tests.support.histories import history_of


def _plain(image: MetadataImage) -> dict[tuple[str, str, str], Any]:
    """Return what the rows are about, by kind, key and field."""
    found: dict[tuple[str, str, str], Any] = {}
    for broker_id, broker in image.brokers.items():
        found["broker", str(broker_id), "state"] = past_view.broker_state(broker)
        found["broker", str(broker_id), "epoch"] = broker.broker_epoch
    for topic_id, topic in image.topics.by_id.items():
        found["topic", topic.name, topic_id.hex()] = True
        for number, one in enumerate(topic.partitions):
            for field in ("leader", "isr", "replicas", "leader_epoch"):
                value = getattr(one, field)
                key = f"{topic.name}:{number}"
                found["partition", key, field] = list(value) if isinstance(value, tuple) else value
    return found


def test_the_rows_are_what_differs() -> None:
    compared = 0
    for seed in range(10):
        history = history_of(seed, 150)
        for first, second in ((30, 90), (90, 149), (0, 149), (60, 60)):
            before, after = history[first].image, history[second].image
            shown = differences(before, after)
            was, now = _plain(before), _plain(after)
            assert not shown["more"]
            rows = {(row["kind"], row["key"], row["field"]): row for row in shown["items"]}
            assert len(rows) == len(shown["items"]) or first != second
            for key in was.keys() & now.keys():
                if key[0] == "topic" or (
                    key[0] == "partition" and ("topic", key[1].rpartition(":")[0], "") in rows
                ):
                    continue
                assert (key in rows) == (was[key] != now[key]), (seed, key)
                if key in rows:
                    assert (rows[key]["before"], rows[key]["after"]) == (was[key], now[key])
                    compared += 1
    assert compared > 100


def test_rows_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(past_view, "ROWS_MAX", 3)
    history = history_of(1, 150)
    shown = differences(history[0].image, history[-1].image)
    assert len(shown["items"]) == 3 and shown["more"]


def test_a_summary_counts_the_state() -> None:
    image = history_of(2, 100)[-1].image
    shown = summary(image, 2)
    assert shown["topics"] == len(image.topics.by_id) and shown["end_offset"] == image.end_offset
    assert shown["partitions"]["partitions"] == sum(
        len(topic.partitions) for topic in image.topics.by_id.values()
    )
    assert set(shown["brokers"]) == {str(broker_id) for broker_id in image.brokers}
