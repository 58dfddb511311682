"""Pure: since when something is wrong, and because of what: the batch with which it began.

Known of what began while this process applied the log; not of what a snapshot held already.
Tests: tests/unit/quorum/views/test_since.py.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from metadata_log.batch import Cause, RecordBatch
from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from quorum.controller.applied_listener import AppliedListener
from quorum.views.partition_health import PartitionHealth, partition_health

WATCHED: Final = ("offline", "under_min_isr", "under_replicated", "reassigning")
"""Counts of PartitionHealth that are 0 while all is well."""


class Beginning(NamedTuple):
    """The batch with which something began."""

    offset: int
    time_ms: int
    actor: str | None
    operation: str | None
    cause: Cause | None

    @classmethod
    def of(cls, batch: RecordBatch) -> "Beginning":
        envelope = batch.envelope
        return cls(
            batch.base_offset, batch.appended_at_ms, envelope.actor, envelope.operation, envelope.cause
        )

    def to_json(self) -> dict[str, Any]:
        cause = self.cause
        return {
            **self._asdict(),
            "cause": None
            if cause is None
            else {"code": cause.code, "ref_offset": cause.ref_offset, "detail": cause.detail},
        }


class Since(AppliedListener):
    def __init__(self, default_min_isr: Callable[[], int]) -> None:
        """`default_min_isr` returns the min.insync.replicas of topics that set none."""
        self._default_min_isr = default_min_isr
        self._image = EMPTY
        self._brokers: dict[BrokerId, Beginning] = {}
        self._counts: dict[str, Beginning] = {}
        self.claim: Beginning | None = None
        """Of the newest claim."""

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        before, self._image = self._image, image
        if delta.claim:
            self.claim = Beginning.of(batch)
        for broker_id in delta.brokers:
            is_away = _is_away(image, broker_id)
            if not is_away:
                self._brokers.pop(broker_id, None)
            elif not _is_away(before, broker_id):
                self._brokers[broker_id] = Beginning.of(batch)
        if delta.partitions or delta.topics or delta.configs:
            self._look_at(partition_health(image, self._default_min_isr()), batch)

    def on_restored(self, image: MetadataImage) -> None:
        self._image = image
        self._brokers.clear()
        self._counts.clear()
        self.claim = None

    def _look_at(self, health: PartitionHealth, batch: RecordBatch) -> None:
        for name in WATCHED:
            if not getattr(health, name):
                self._counts.pop(name, None)
            elif name not in self._counts:
                self._counts[name] = Beginning.of(batch)

    def of_broker(self, broker_id: BrokerId) -> Beginning | None:
        """Return what took a broker out of service; None: it is in service, or was not when this process began."""
        return self._brokers.get(broker_id)

    def of_count(self, name: str) -> Beginning | None:
        """Return with what one of WATCHED left 0 last."""
        return self._counts.get(name)


def _is_away(image: MetadataImage, broker_id: BrokerId) -> bool:
    """Answer whether a broker is registered and not in service."""
    broker = image.brokers.get(broker_id)
    return broker is not None and (broker.fenced or broker.in_controlled_shutdown)
