"""Pure: what a leader knows of one follower: its match index, the messages in flight to it, and its last answer.
Tests: tests/unit/quorum/raft/test_adapter.py.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from metadata_log.ids import Uuid

NEVER: Final = float("-inf")


@dataclass(slots=True)
class Progress:
    """What a leader knows of one follower."""

    directory_id: Uuid
    probe: int
    """While `probing`: index of the entry at which the next message asks for a match."""
    next: int
    """Index of the next entry to send, after what is in flight."""
    match: int = 0
    """The follower holds our log up to here, synced."""
    counted: int = 0
    """The part of that which was reported to the engine."""
    forgot: bool = False
    """The follower lacks entries that it acknowledged: its disk was set back. This leader sends it nothing more."""
    probing: bool = True
    asked_at: float = NEVER
    """When the probe in flight left; NEVER if none is."""
    sent_at: float = NEVER
    asked_alive_at: float = NEVER
    """When a message without entries left, which a follower answers before its sync."""
    sent_commit: int = 0
    pointer_at: float = NEVER
    caught_up_at: float = NEVER
    """The last time at which our log held nothing that the follower does not hold by now."""
    took_ms: float = 0.0
    """How long it took to hold the newest entries that it lacked, as far as it has shown: mostly the sync of its disk."""
    goal: tuple[int, float] = (0, NEVER)
    """An earlier end of our log, and its time: under load a follower never holds the current end."""
    lacks_goal: bool = False
    """Whether it lacked that end at that time."""
    heard_at: float = NEVER
    """When it last answered what a leader sends; at first, when we became leader."""
    answered_at: float = NEVER
    """The same, and NEVER before its first answer. Kafka's lastFetchTimestamp."""
    in_flight: deque[tuple[int, int]] = field(default_factory=deque)
    """Last index and bytes of each message not acknowledged yet."""
    in_flight_bytes: int = 0

    def reached(self, index: int, last: int, now_ms: float) -> None:
        """Note that the follower holds our log up to `index`; `last` is its end now.

        Source: Kafka's lastCaughtUpTimestamp, which compares with the end at the fetch before.
        """
        if self.lacks_goal and index >= self.goal[0]:
            self.took_ms = now_ms - self.goal[1]
        if index >= last:
            self.caught_up_at = now_ms
        elif index >= self.goal[0]:
            self.caught_up_at = max(self.caught_up_at, self.goal[1])
        else:
            return
        self.goal, self.lacks_goal = (last, now_ms), index < last

    def ask_at(self, index: int) -> None:
        """Probe for the follower's position at `index`."""
        self.probing, self.probe, self.next = True, index, index + 1
        self.asked_at = NEVER
        self.in_flight.clear()
        self.in_flight_bytes = 0

    def sent(self, last_index: int, size: int) -> None:
        self.next = last_index + 1
        self.in_flight.append((last_index, size))
        self.in_flight_bytes += size

    def acknowledged(self, index: int) -> None:
        while self.in_flight and self.in_flight[0][0] <= index:
            self.in_flight_bytes -= self.in_flight.popleft()[1]
