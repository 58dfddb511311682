"""Pure: the log that a played controller tells a broker: real frames, a snapshot, and a history that parts from the first.
Tests: tests/cluster/test_broker_check.py.
"""

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from metadata_log.apply import apply
from metadata_log.batch import NO_ENVELOPE
from metadata_log.codec import encode
from metadata_log.errors import MetadataError
from metadata_log.ids import BrokerId, NodeId
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, ConfigRecord
from metadata_log.records.features import (
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METAQUORUM_VERSION,
    METAQUORUM_VERSION_LEVEL,
    FeatureLevelRecord,
)
from metadata_log.records.quorum import ControllerClaimRecord, NoOpRecord, QuorumVersionRecord
from metadata_log.records.registry import Record
from metadata_log.wire.commands import RegisterBroker
from metadata_log.wire.fetch import FetchRequest, SnapshotOffer
from quorum.decide.founding import Founding
from quorum.whatif.cluster import Cluster, Options
from snapshots.snapshot_file import snapshot_frames, snapshot_id

CONTROLLER: Final = NodeId(1)
BEGAN_MS: Final = 1_750_000_000_000
"""The time of the first batch; each batch is stamped a millisecond later."""
PREFIX_BATCHES: Final = 5
PREFIX_RECORDS: Final = 4
"""Records of each batch of the prefix: more than one, so that offsets count otherwise than frames."""


class Position(NamedTuple):
    """What a poll names: the end of a frame, and the epoch and crc of that frame; (0, -1, 0) before the first."""

    offset: int
    epoch: int
    crc: int

    @classmethod
    def of(cls, poll: FetchRequest) -> "Position":
        return cls(poll.fetch_offset, poll.last_epoch, poll.last_crc)


START: Final = Position(0, -1, 0)


class Told(NamedTuple):
    """One batch: its frame, and the image after it."""

    frame: bytes
    image: MetadataImage


class Story:
    """A log that grows as the play needs it. Its prefix is what a new broker gets as a snapshot."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.told: list[Told] = []
        self._claim(1)
        self.append(
            QuorumVersionRecord(1),
            FeatureLevelRecord(METADATA_VERSION, METADATA_VERSION_LEVEL),
            FeatureLevelRecord(METAQUORUM_VERSION, METAQUORUM_VERSION_LEVEL),
            *Founding.at(METADATA_VERSION_LEVEL).records(min_insync_replicas="1"),
        )
        for batch in range(PREFIX_BATCHES):
            self.append(*(NoOpRecord() for _ in range(PREFIX_RECORDS - 1)), _setting(batch))
        self.snapshot_at = self.image
        self.snapshot = b"".join(snapshot_frames(self.image))

    @property
    def image(self) -> MetadataImage:
        return self.told[-1].image if self.told else EMPTY

    @property
    def end(self) -> Position:
        return _end_of(self.image)

    @property
    def offer(self) -> SnapshotOffer:
        image = self.snapshot_at
        return SnapshotOffer(
            id=snapshot_id(image.end_offset, image.controller_epoch),
            end_offset=image.end_offset,
            controller_epoch=image.controller_epoch,
            bytes=len(self.snapshot),
            sha256=hashlib.sha256(self.snapshot).hexdigest(),
        )

    @property
    def snapshot_end(self) -> Position:
        return _end_of(self.snapshot_at)

    def append(self, *records: Record) -> bytes:
        """Append one batch, and return its frame."""
        return self._append(records, self.image.controller_epoch)

    def _append(self, records: Sequence[Record], epoch: int) -> bytes:
        image = self.image
        batch, frame = encode(
            base_offset=image.end_offset,
            controller_epoch=epoch,
            appended_at_ms=BEGAN_MS + len(self.told),
            previous_crc=image.last_crc,
            envelope=NO_ENVELOPE,
            records=records,
        )
        self.told.append(Told(frame, apply(image, batch).image))
        return frame

    def _claim(self, epoch: int) -> None:
        self._append([ControllerClaimRecord(CONTROLLER, epoch, self.cluster_id)], epoch)

    def fill(self, *, batches: int) -> None:
        for _ in range(batches):
            self.append(*(NoOpRecord() for _ in range(PREFIX_RECORDS)))

    def fork(self, at: int) -> None:
        """Drop the batches from the end offset `at` on, and let a new claim begin another history there."""
        self.told = [told for told in self.told if told.image.end_offset <= at]
        self._claim(self.image.controller_epoch + 1)
        self.fill(batches=2)

    # --- positions

    def after(self, position: Position) -> list[bytes] | None:
        """Return the frames after a position; None where no frame of this history ends there."""
        if position == START:
            return [told.frame for told in self.told]
        ends = [_end_of(told.image) for told in self.told]
        if position not in ends:
            return None
        return [told.frame for told in self.told[ends.index(position) + 1 :]]

    def end_of(self, frames: Sequence[bytes]) -> Position:
        """Return where a broker is once it has applied frames of this history, the last of which is `frames[-1]`."""
        return _end_of(next(told.image for told in self.told if told.frame == frames[-1]))

    # --- the broker

    def refusal_of(self, command: RegisterBroker) -> MetadataError | None:
        """Return why a controller would refuse a registration in this state."""
        return Cluster(Options(), self.image).decide(command).refusal

    def register(self, command: RegisterBroker) -> int:
        """Write a registration, and return its broker_epoch."""
        epoch = self.image.end_offset
        self.append(
            RegisterBrokerRecord(
                command.broker_id,
                command.incarnation_id,
                epoch,
                command.endpoints,
                command.features,
                command.rack,
                True,
                False,
                command.log_dirs,
                None,
            )
        )
        return epoch

    def change(
        self, broker_id: BrokerId, *, fenced: bool | None = None, stopping: bool | None = None
    ) -> None:
        epoch = self.image.brokers[broker_id].broker_epoch
        self.append(BrokerRegistrationChangeRecord(broker_id, epoch, fenced, stopping))

    def unregister(self, broker_id: BrokerId) -> None:
        self.append(UnregisterBrokerRecord(broker_id, self.image.brokers[broker_id].broker_epoch))


def _end_of(image: MetadataImage) -> Position:
    return Position(image.end_offset, image.controller_epoch, image.last_crc) if image.end_offset else START


def _setting(number: int) -> ConfigRecord:
    return ConfigRecord(BROKER, CLUSTER_DEFAULT, "log.cleaner.threads", str(number + 1))
