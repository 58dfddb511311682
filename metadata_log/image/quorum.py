"""Pure: the quorum itself as the log has made it. Tests: tests/property/test_folding.py."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata_log.batch import RecordBatch
from metadata_log.digest import hex_of_text
from metadata_log.ids import MIGRATING, NodeId
from metadata_log.image.features import FeaturesImage, metaquorum_version
from metadata_log.image.subject import Builders, SubjectBuilder
from metadata_log.records.declaration import declaration_of
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    NoOpRecord,
    QuorumVersionRecord,
    Voter,
    VotersRecord,
)
from metadata_log.records.registry import Record, json_rows
from metadata_log.records.snapshots import SnapshotHeaderRecord

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import Delta


class QuorumImage(NamedTuple):
    """What was never written is None. The cluster id is no part of the digest, nor of a snapshot's records."""

    cluster_id: str | None = None
    kraft_version: int | None = None
    voters: tuple[Voter, ...] | None = None


SAYS_CLAIMANT: Final = 1
"""The version of the header of a snapshot that says who claimed."""


class Claimant(NamedTuple):
    """The controller of the newest claim.

    `is_kept`: snapshots say it. That depends on the level at the claim alone, so equal logs have equal snapshots.
    """

    controller_id: NodeId
    is_kept: bool


def claimant_after(claimant: Claimant | None, batch: RecordBatch, features: FeaturesImage) -> Claimant | None:
    """Return who claimed last after one more batch of the log; `features` are those after it."""
    claim = batch.claim
    if claim is None:
        return claimant
    level = declaration_of(SnapshotHeaderRecord).levels[SAYS_CLAIMANT]
    return Claimant(claim.controller_id, is_kept=metaquorum_version(features) >= level)


class QuorumBuilder(SubjectBuilder[QuorumImage]):
    FIELD = "quorum"

    def __init__(self, before: QuorumImage, others: Builders) -> None:
        super().__init__(before, others)
        self._after = before
        self.claims = 0
        """How many claims were applied."""

    def claim(self, record: ControllerClaimRecord) -> None:
        if self._after.cluster_id not in (None, record.cluster_id):
            raise ValueError(f"a claim of cluster {record.cluster_id} in the log of {self._after.cluster_id}")
        self.set_cluster_id(record.cluster_id)
        self.claims += 1

    def set_cluster_id(self, cluster_id: str) -> None:
        self._after = self._after._replace(cluster_id=cluster_id)

    def set_version(self, record: QuorumVersionRecord) -> None:
        self._after = self._after._replace(kraft_version=record.kraft_version)

    def set_voters(self, record: VotersRecord) -> None:
        self._after = self._after._replace(voters=record.voters)

    def no_op(self, record: NoOpRecord) -> None:
        """Change nothing: the record is there for its offset."""

    STATES = {QuorumVersionRecord: set_version, VotersRecord: set_voters}  # noqa: RUF012 (a ClassVar of the base)
    CHANGES = {ControllerClaimRecord: claim, NoOpRecord: no_op}  # noqa: RUF012

    def finish(self) -> QuorumImage:
        return self._after

    def delta(self) -> dict[str, Any]:
        return {"quorum": self._is_changed(), "claim": self.claims > 0}

    def _is_changed(self) -> bool:
        return self.before[1:] != self._after[1:]

    @staticmethod
    def touched_lines(image: QuorumImage, touched: "Delta") -> Iterator[str]:
        return QuorumBuilder.lines(image) if touched.quorum else iter(())

    @staticmethod
    def lines(image: QuorumImage) -> Iterator[str]:
        if image.kraft_version is not None:
            yield f"q|{image.kraft_version}"
        # A voter without a directory is known from a LeaderChange of Kafka's alone (kraft.version 0), which no checkpoint
        # repeats: the state of one log would have two digests.
        yield from (voter_line(voter) for voter in image.voters or () if voter.directory_id != MIGRATING)

    @staticmethod
    def records(image: QuorumImage) -> Iterator[Record]:
        if image.kraft_version is not None:
            yield QuorumVersionRecord(image.kraft_version)
        if image.voters is not None:
            yield VotersRecord(image.voters)

    @staticmethod
    def view(image: QuorumImage) -> dict[str, Any]:
        return {"kraft_version": image.kraft_version, "voters": json_rows(image.voters or ())}


def voter_line(voter: Voter) -> str:
    endpoints = ",".join(f"{hex_of_text(e.name)}:{hex_of_text(e.host)}:{e.port}" for e in voter.endpoints)
    return f"v|{voter.node_id}|{voter.directory_id.hex()}|{endpoints}|{voter.min_version}|{voter.max_version}"
