"""Pure: what a decision is: the records to write, the typed outcome, and what changes in the brokers' sessions.
Tests: tests/unit/quorum/decide/test_registry.py.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from metadata_log.batch import Cause
from metadata_log.errors import Rejected
from metadata_log.ids import BrokerId, Uuid
from metadata_log.image.topics import PartitionKey
from metadata_log.records.registry import Record

Outcome: TypeAlias = tuple[Any, ...]
"""What a write is answered: a named tuple of its subject, of plain values and rows, which each door shows in its own way."""


# --- changes of sessions


@dataclass(frozen=True, slots=True)
class Contact:
    """A heartbeat of the broker arrived: its session is renewed as of now. `applied_offset` is exclusive."""

    broker_id: BrokerId
    broker_epoch: int
    applied_offset: int


@dataclass(frozen=True, slots=True)
class RegisteredAgain:
    """The broker's incarnation registered once more, at `offset`: what it reported before counts no longer."""

    broker_id: BrokerId
    broker_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class RegistrationChanged:
    """The broker's registration changes: it has not reported what it applied since."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class ShutdownBegan:
    """All leaderships of the stopping broker are gone at `offset` (exclusive); None: another part of its shutdown is due."""

    broker_id: BrokerId
    broker_epoch: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class ShutdownLeft:
    """The broker is no longer stopping: it was fenced, or its shutdown begins again."""

    broker_id: BrokerId


SessionChange: TypeAlias = Contact | RegisteredAgain | RegistrationChanged | ShutdownBegan | ShutdownLeft


# --- parts of long changes


@dataclass(frozen=True, slots=True)
class ElectionDue:
    """A broker may lead that could not (None: there are more partitions without a leader): all of them are looked at."""

    broker_id: BrokerId | None


@dataclass(frozen=True, slots=True)
class Elected:
    """A part of the elections was made, up to the partition `visited`; without `more`, the last."""

    visited: PartitionKey | None
    more: bool


class WalkKind(enum.Enum):
    LEAVES = "LEAVES"
    """The broker leaves every ISR it is in."""
    LOSES = "LOSES"
    """The same, without eligible leader replicas, for a broker that may have lost messages: deleted topics, too."""
    CRASHED = "CRASHED"
    """The broker leaves every ISR it is in, and is eligible to lead nothing: it may have lost messages."""
    REMOVED = "REMOVED"
    """The broker leaves every ISR it is in; what it is eligible to lead is looked at as well."""
    FAILED = "FAILED"
    """The broker leaves the ISRs of the partitions in failed directories."""
    STOPS = "STOPS"
    """The broker leaves every ISR it is in while it shuts down."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk over a broker's partitions; a part goes on where the one before of an equal walk stopped."""

    kind: WalkKind
    broker_id: BrokerId
    broker_epoch: int
    log_dirs: tuple[Uuid, ...] = ()


@dataclass(frozen=True, slots=True)
class Walked:
    """A walk has visited the partitions up to `visited`; None: it is at its end."""

    walk: Walk
    visited: PartitionKey | None


PartMade: TypeAlias = ElectionDue | Elected | Walked


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Records to append as one batch (none: nothing to do), and the outcome.

    A refusal is a decision too: it may rest on records in flight, and is answered only once those are applied.
    `session_changes` take effect, in order, once the records were appended; if the append is refused, nothing changes.
    `more` says that this is a part: the rest must be decided on the image after it, and is not asked for once more.
    """

    records: Sequence[Record] = ()
    outcome: Outcome | None = None
    refusal: Rejected | None = None
    cause: Cause | None = None
    session_changes: tuple[SessionChange | PartMade, ...] = ()
    more: bool = False

    @property
    def walked(self) -> Walk | None:
        """The walk over a broker's partitions of which this is a part, with others left; None: there is none."""
        for change in self.session_changes:
            if isinstance(change, Walked) and change.visited is not None:
                return change.walk
        return None

    def result(self) -> Outcome:
        """Return the outcome; () for a part, or where nothing is to be answered.

        Raises:
            Rejected: the refusal.
        """
        if self.refusal is not None:
            raise self.refusal
        return self.outcome or ()
