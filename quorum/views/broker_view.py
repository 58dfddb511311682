"""Pure: how the controllers see a broker, in Kafka's words, and what it waits for.

Kafka's controller has two sets of words. BrokerControlState is what it makes of heartbeats. BrokerRegistrationState is what
the log says, as a metric with a number.
"""

import enum
from functools import cached_property
from typing import Final

from metadata_log.ids import BrokerId
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.sessions import Sessions


class ControlState(enum.Enum):
    """Source: Kafka's BrokerControlState."""

    FENCED = "FENCED"
    UNFENCED = "UNFENCED"
    CONTROLLED_SHUTDOWN = "CONTROLLED_SHUTDOWN"
    SHUTDOWN_NOW = "SHUTDOWN_NOW"
    """Nothing is left to wait for: the next heartbeat fences the broker and lets it go."""


class RegistrationState(enum.IntEnum):
    """Source: KIP-1131."""

    UNREGISTERED = -1
    FENCED = 10
    CONTROLLED_SHUTDOWN = 20
    ACTIVE = 30


NO_HEARTBEAT: Final = "sends no heartbeat"
WANTS_FENCE: Final = "asks to be fenced, or rebuilds its cache"
MORE_PARTS: Final = "its leaderships move in parts"
ASKS_AGAIN: Final = "has to ask this controller once more"


def registration_state(broker: BrokerImage | None) -> RegistrationState:
    if broker is None:
        return RegistrationState.UNREGISTERED
    if broker.fenced:
        return RegistrationState.FENCED
    return (
        RegistrationState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else RegistrationState.ACTIVE
    )


class BrokerView:
    """The brokers of one state as a controller sees them now; without `sessions`, as far as the log tells it."""

    def __init__(self, image: MetadataImage, sessions: Sessions | None, *, now_ms: int) -> None:
        self.image = image
        self.sessions = sessions
        self.now_ms = now_ms

    @cached_property
    def _slowest(self) -> tuple[BrokerId, int] | None:
        """The broker for which those wait that shut down; one for all of them."""
        return None if self.sessions is None else self.sessions.slowest_active(self.image)

    def at_rest(self) -> "BrokerView":
        """Return what this shows now, for a thread."""
        sessions = None if self.sessions is None else self.sessions.seen()
        return BrokerView(self.image.without_results(), sessions, now_ms=self.now_ms)

    def control_state(self, broker: BrokerImage) -> ControlState:
        if broker.fenced:
            return ControlState.FENCED
        if not self._is_stopping(broker):
            return ControlState.UNFENCED
        if self.sessions is not None and self._waits_in_shutdown(broker, self.sessions) is None:
            return ControlState.SHUTDOWN_NOW
        return ControlState.CONTROLLED_SHUTDOWN

    def waits_for(self, broker: BrokerImage) -> str | None:
        """Return why a fenced broker is not unfenced, or why one that shuts down may not go.

        None: it waits for nothing, or this node does not know.
        """
        sessions = self.sessions
        if sessions is None:
            return None
        if broker.fenced:
            if not sessions.has_session(broker.broker_id, broker.broker_epoch, now_ms=self.now_ms):
                return NO_HEARTBEAT
            wanted = sessions.registration_offset(broker.broker_id, broker.broker_epoch) + 1
            applied = sessions.applied_offset(broker.broker_id) or 0
            return WANTS_FENCE if applied >= wanted else f"has to reach offset {wanted}, its registration"
        return self._waits_in_shutdown(broker, sessions) if self._is_stopping(broker) else None

    def _is_stopping(self, broker: BrokerImage) -> bool:
        sessions = self.sessions
        return broker.in_controlled_shutdown or (
            sessions is not None
            and sessions.shutdown_offset(broker.broker_id, broker.broker_epoch) is not None
        )

    def _waits_in_shutdown(self, broker: BrokerImage, sessions: Sessions) -> str | None:
        broker_id, broker_epoch = broker.broker_id, broker.broker_epoch
        leads = self.image.topics.index.leaderships.get(broker_id, 0)
        if leads:
            return f"leads {leads} partition{'s' if leads > 1 else ''}"
        target = sessions.shutdown_offset(broker_id, broker_epoch)
        if target is None:
            return MORE_PARTS if sessions.is_leaving(broker_id, broker_epoch) else ASKS_AGAIN
        slowest = self._slowest
        if slowest is not None and slowest[1] < target:
            return f"waits for broker {slowest[0]} to reach offset {target}"
        return None
