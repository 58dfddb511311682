"""What each of Kafka's brokers has read, and whose room it takes."""

import pytest

from metadata_log import limits
from metadata_log.ids import Uuid
from quorum.fetch.observers import Observers
from tests.support.lab import uuid


def seen(observers: Observers) -> list[tuple[int, Uuid]]:
    return [(each.replica_id, each.directory_id) for each in observers]


def fetched(observers: Observers, broker_id: int, directory: int, client: str, now_ms: int = 0) -> None:
    observers.fetched((broker_id, uuid(directory)), client, offset=0, end_offset=9, now_ms=now_ms)


def test_a_broker_with_ever_other_directories_takes_no_room_of_others() -> None:
    observers = Observers()
    fetched(observers, 11, 1, "Broker:11")
    for directory in range(20_000):
        fetched(observers, 12, directory, "Broker:12")
    newest = range(20_000 - limits.KAFKA_DIRECTORIES_MAX, 20_000)
    assert seen(observers) == [(11, uuid(1)), *((12, uuid(directory)) for directory in newest)]


def test_a_client_that_is_ever_another_broker_takes_no_room_of_others() -> None:
    observers = Observers()
    fetched(observers, 11, 1, "10.0.0.1")
    for broker_id in range(100, 20_100):
        fetched(observers, broker_id, broker_id, "10.0.0.2")
    assert len(seen(observers)) == limits.KAFKA_OBSERVERS_OF_CLIENT_MAX + 1
    assert seen(observers)[0] == (11, uuid(1))
    assert seen(observers)[-1] == (20_099, uuid(20_099))


def test_the_one_that_has_been_silent_longest_goes_where_the_table_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "BROKERS_MAX", 3)
    observers = Observers()
    for broker_id in (11, 12, 13, 11):
        fetched(observers, broker_id, broker_id, f"Broker:{broker_id}")
    fetched(observers, 14, 14, "Broker:14")
    assert [each.replica_id for each in observers] == [13, 11, 14]


def test_the_silent_are_forgotten_when_others_come() -> None:
    observers = Observers()
    fetched(observers, 11, 1, "Broker:11", now_ms=0)
    fetched(observers, 12, 2, "Broker:12", now_ms=1)
    fetched(observers, 13, 3, "Broker:13", now_ms=limits.OBSERVER_MS)
    assert [each.replica_id for each in observers] == [12, 13]
    for directory in range(10, 10 + limits.KAFKA_DIRECTORIES_MAX):
        fetched(observers, 11, directory, "Broker:11", now_ms=limits.OBSERVER_MS)
    assert len(seen(observers)) == limits.KAFKA_DIRECTORIES_MAX + 2
    observers.clear()
    assert not seen(observers)
