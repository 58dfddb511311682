"""Pure: how many brokers there are of each kind, counted as batches are applied."""

from bisect import bisect_left, insort

from metadata_log.batch import RecordBatch
from metadata_log.ids import BrokerId
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from quorum.controller.applied_listener import AppliedListener


class BrokerCounts(AppliedListener):
    """Counts the brokers of the committed state: a scrape of `/metrics` would walk over 10,000 of them three times."""

    def __init__(self) -> None:
        self.fenced = 0
        self.in_controlled_shutdown = 0
        """Fenced ones that shut down are counted in both."""
        self._ids: list[BrokerId] = []
        """Sorted."""
        self._brokers = EMPTY.brokers
        """Those that are counted."""

    @property
    def active(self) -> int:
        """The number of brokers that are not fenced."""
        return len(self._ids) - self.fenced

    def first(self, count: int) -> list[BrokerId]:
        """Return the lowest ids, in order."""
        return self._ids[:count]

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        if not delta.brokers:
            return
        before, self._brokers = self._brokers, image.brokers
        for broker_id in delta.brokers:
            was, now = before.get(broker_id), self._brokers.get(broker_id)
            self._add(was, -1)
            self._add(now, 1)
            if was is None and now is not None:
                insort(self._ids, broker_id)
            elif was is not None and now is None:
                del self._ids[bisect_left(self._ids, broker_id)]

    def on_restored(self, image: MetadataImage) -> None:
        self._brokers = image.brokers
        self._ids = sorted(image.brokers)
        self.fenced = self.in_controlled_shutdown = 0
        for broker in image.brokers.values():
            self._add(broker, 1)

    def _add(self, broker: BrokerImage | None, count: int) -> None:
        if broker is not None:
            self.fenced += count * broker.fenced
            self.in_controlled_shutdown += count * broker.in_controlled_shutdown
