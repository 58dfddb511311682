"""Pure: sessions as Kafka's controller keeps them: a last contact for each broker id with each epoch that a heartbeat names.

A refused or late heartbeat is a contact, too. Source: Kafka's BrokerHeartbeatTracker.
Tests: tests/unit/quorum/whatif/test_kafka_scripts.py.
"""

from typing import TypeAlias

from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.sessions import Sessions
from quorum.decide.java import ConcurrentHashMapOrder

Pair: TypeAlias = tuple[BrokerId, int]
"""A broker id and a broker epoch."""


class ScriptSessions(Sessions):
    """The controller's sessions, with Kafka's contacts in place of its own."""

    def __init__(self, *, session_timeout_ms: int) -> None:
        super().__init__(session_timeout_ms=session_timeout_ms)
        self._contacts: dict[Pair, int] = {}
        self._order = ConcurrentHashMapOrder[Pair]()
        self._kafkas_epochs: dict[Pair, int] = {}

    def registered(self, broker_id: BrokerId, broker_epoch: int, *, batch_offset: int) -> None:
        """Note a registration that is written in the batch at this offset.

        A broker epoch is the offset of the record here, and that of its batch in Kafka: the hash map's order depends on it.
        """
        self._kafkas_epochs.setdefault((broker_id, broker_epoch), batch_offset)

    def heard_of(self, broker_id: BrokerId, broker_epoch: int, *, now_ms: int) -> None:
        """Note a heartbeat that names this pair, whatever becomes of it."""
        pair = broker_id, broker_epoch
        self._order.put(pair, _hash_code(broker_id, self._kafkas_epochs.get(pair, broker_epoch)))
        self._contacts[pair] = now_ms

    def is_known(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        """Answer whether a heartbeat of this pair came and its session was not taken away since."""
        return (broker_id, broker_epoch) in self._contacts

    def end(self, broker_id: BrokerId, broker_epoch: int, *, now_ms: int) -> None:
        """Let the session of a pair be over now."""
        self.heard_of(broker_id, broker_epoch, now_ms=now_ms - self.session_timeout_ms - 1)

    def has_session(self, broker_id: BrokerId, broker_epoch: int, *, now_ms: int) -> bool:
        contact_ms = self._contacts.get((broker_id, broker_epoch))
        return contact_ms is not None and now_ms <= contact_ms + self.session_timeout_ms

    def take_expired(self, now_ms: int) -> Pair | None:
        """Take away one pair whose session is over, the first in the order of Kafka's hash map."""
        over = (pair for pair in self._order if now_ms > self._contacts[pair] + self.session_timeout_ms)
        pair = next(over, None)
        if pair is None:
            return None
        del self._contacts[pair]
        self._order.remove(pair)
        self.forget(*pair)
        return pair

    def grant(self, image: MetadataImage, now_ms: int) -> None:
        """Grant every unfenced broker of a state a session, as a controller does that becomes active."""
        self.grant_all(image, now_ms)
        for broker_id, broker in image.brokers.items():
            if not broker.fenced:
                self.heard_of(broker_id, broker.broker_epoch, now_ms=now_ms)


def _hash_code(broker_id: int, broker_epoch: int) -> int:
    """Return the hash of Java's record BrokerIdAndEpoch(int, long)."""
    return (31 * broker_id + (broker_epoch ^ broker_epoch >> 32)) & 0xFFFFFFFF
