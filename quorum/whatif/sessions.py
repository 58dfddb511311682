"""Pure: sessions as Kafka's controller keeps them: a last contact for each broker id with each epoch that a heartbeat names.

A refused or late heartbeat is a contact, too. Source: Kafka's BrokerHeartbeatTracker.
"""

from typing import Final, TypeAlias

from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage
from quorum.sessions import Sessions

_SLOTS: Final = 16
"""Of the hash map, as long as it has fewer than twelve pairs."""
Pair: TypeAlias = tuple[BrokerId, int]
"""A broker id and a broker epoch."""


class ScriptSessions(Sessions):
    """The controller's sessions, with Kafka's contacts in place of its own."""

    def __init__(self, *, session_timeout_ms: int) -> None:
        super().__init__(session_timeout_ms=session_timeout_ms)
        self._contacts: dict[Pair, int] = {}

    def heard_of(self, broker_id: BrokerId, broker_epoch: int, *, now_ms: int) -> None:
        """Note a heartbeat that names this pair, whatever becomes of it."""
        self._contacts.pop((broker_id, broker_epoch), None)
        self._contacts[broker_id, broker_epoch] = now_ms

    def is_known(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        """Answer whether a heartbeat of this pair came and its session was not taken away since."""
        return (broker_id, broker_epoch) in self._contacts

    def end(self, broker_id: BrokerId, broker_epoch: int, *, now_ms: int) -> None:
        """Let the session of a pair be over now."""
        self._contacts[broker_id, broker_epoch] = now_ms - self.session_timeout_ms - 1

    def has_session(self, broker_id: BrokerId, broker_epoch: int, *, now_ms: int) -> bool:
        contact_ms = self._contacts.get((broker_id, broker_epoch))
        return contact_ms is not None and now_ms <= contact_ms + self.session_timeout_ms

    def take_expired(self, now_ms: int) -> Pair | None:
        """Take away one pair whose session is over, the first in the order of Kafka's hash map."""
        over = [
            pair
            for pair, contact_ms in self._contacts.items()
            if now_ms > contact_ms + self.session_timeout_ms
        ]
        if not over:
            return None
        pair = min(over, key=lambda pair: (31 * pair[0] + pair[1]) % _SLOTS)
        del self._contacts[pair]
        self.forget(*pair)
        return pair

    def grant(self, image: MetadataImage, now_ms: int) -> None:
        """Grant every unfenced broker of a state a session, as a controller does that becomes active."""
        self.grant_all(image, now_ms)
        for broker_id, broker in image.brokers.items():
            if not broker.fenced:
                self.heard_of(broker_id, broker.broker_epoch, now_ms=now_ms)
