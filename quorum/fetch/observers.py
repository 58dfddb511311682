"""Pure: what each of Kafka's brokers has read of the log, as the leader knows it.

A broker that fetches under ever other directory ids, or a client that fetches under ever other broker ids, takes the room of
its own observers only.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from metadata_log import limits
from metadata_log.ids import Uuid

Key: TypeAlias = tuple[int, Uuid]


@dataclass(slots=True)
class Observer:
    """What a broker has read of the log; times are those of the process's clock."""

    replica_id: int
    directory_id: Uuid
    client: str
    """Who fetched first as this broker."""
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int | None
    """None before it first had all that the leader had."""
    end_offset_before: int
    """Of the leader's log at the fetch before the last."""


class Observers:
    """The brokers that have fetched within OBSERVER_MS."""

    def __init__(self) -> None:
        self._seen: dict[Key, Observer] = {}
        """The one that fetched last is the last."""
        self._groups: dict[Hashable, dict[Key, None]] = {}
        """By broker id, and by client, in the order in which they came."""

    def fetched(self, key: Key, client: str, *, offset: int, end_offset: int, now_ms: int) -> None:
        """Note that a broker, by its id and the id of its directory, fetched from an offset while the log ended there."""
        observer = self._seen.pop(key, None)
        if observer is None:
            self._make_room(key[0], client, now_ms)
            observer = Observer(*key, client, offset, now_ms, None, end_offset)
            for group in (key[0], client):
                self._groups.setdefault(group, {})[key] = None
        if offset >= end_offset:
            observer.last_caught_up_ms = now_ms
        elif offset >= observer.end_offset_before:
            observer.last_caught_up_ms = observer.last_fetch_ms
        observer.log_end_offset, observer.last_fetch_ms = offset, now_ms
        observer.end_offset_before = end_offset
        self._seen[key] = observer

    def _make_room(self, replica_id: int, client: str, now_ms: int) -> None:
        self.forget_silent(now_ms)
        bounds = ((replica_id, limits.KAFKA_DIRECTORIES_MAX), (client, limits.KAFKA_OBSERVERS_OF_CLIENT_MAX))
        for group, most in bounds:
            if len(keys := self._groups.get(group, {})) >= most:
                self._forget(next(iter(keys)))
        if len(self._seen) >= limits.BROKERS_MAX:
            self._forget(next(iter(self._seen)))

    def forget_silent(self, now_ms: int) -> None:
        """Forget those that have fetched nothing for OBSERVER_MS."""
        while self._seen:
            key, observer = next(iter(self._seen.items()))
            if now_ms - observer.last_fetch_ms < limits.OBSERVER_MS:
                return
            self._forget(key)

    def _forget(self, key: Key) -> None:
        observer = self._seen.pop(key)
        for group in (observer.replica_id, observer.client):
            keys = self._groups[group]
            del keys[key]
            if not keys:
                del self._groups[group]

    def clear(self) -> None:
        self._seen.clear()
        self._groups.clear()

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._seen.values())
