"""Pure: the only maker of images: what an image is after a batch. Controllers, brokers, snapshots and restarts run this."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from metadata_log.batch import RecordBatch
from metadata_log.digest import Buckets
from metadata_log.errors import InvariantBroken
from metadata_log.image.begun import begun_after, begun_of
from metadata_log.image.metadata_image import (
    EMPTY,
    SUBJECT_BUILDERS,
    Delta,
    MetadataImage,
    StateDigest,
    buckets_of,
)
from metadata_log.image.quorum import Claimant, QuorumBuilder, claimant_after
from metadata_log.image.results import RequestResults
from metadata_log.image.snapshot_rows import SnapshotRow
from metadata_log.image.subject import SubjectBuilder
from metadata_log.records.snapshots import BegunChangeRecord, RequestResultRecord, SnapshotHeaderRecord
from metadata_log.sliced import Sliced, at_once, chunks

B = TypeVar("B", bound=SubjectBuilder[Any])


class Applied(NamedTuple):
    image: MetadataImage
    delta: Delta


def is_next(image: MetadataImage, batch: RecordBatch) -> bool:
    """Answer whether a batch continues an image: by offset, by the crc of the frame before, and by epoch.

    A claim carries an epoch greater than the last; every other batch carries the image's own. So a deposed
    controller's late batch is refused alike by all, and a batch lands on exactly the image it was decided on.
    """
    if batch.base_offset != image.end_offset or batch.previous_crc != image.last_crc:
        return False
    claim = batch.claim
    if claim is None:
        return batch.controller_epoch == image.controller_epoch
    return batch.controller_epoch == claim.controller_epoch > image.controller_epoch


def may_be_refused(image: MetadataImage, batch: RecordBatch) -> bool:
    """Answer whether a committed batch for which `is_next` does not hold is refused by all, or applied already.

    All nodes refuse a deposed controller's late batch, whose epoch is over, and its late claim. A snapshot may hold
    batches of the payload after its position in Raft's log; they come once more. Any other batch was decided on the
    state that all before it in Raft's log lead to, so it proves that the state here is another one.
    """
    if batch.controller_epoch < image.controller_epoch + (batch.claim is not None):
        return True
    if batch.end_offset == image.end_offset:
        return batch.crc == image.last_crc
    return batch.end_offset < image.end_offset


def apply(image: MetadataImage, batch: RecordBatch, *, keeps_results: bool = True) -> Applied:
    """Return the image after a batch for which `is_next` holds, and the keys it touched; as `applying`."""
    return at_once(applying(image, batch, keeps_results=keeps_results))


def applying(image: MetadataImage, batch: RecordBatch, *, keeps_results: bool = True) -> Sliced[Applied]:
    """Make the image after a batch for which `is_next` holds, and name the keys it touched.

    With `keeps_results`, the answers to requests are kept for their repetitions, which controllers alone are asked for.

    Raises:
        InvariantBroken: a record contradicts the image; no node can go on from here.
    """
    elapsed_ms = image.elapsed_at(batch.appended_at_ms)
    builders = _OpenBuilders(image, elapsed_ms=elapsed_ms)
    applied = 0
    try:
        for some in chunks(batch.records):
            for record in some:
                builders.apply(_IN_LOG[type(record)], record)
                applied += 1
            yield
        if builders.claims != (batch.claim is not None):
            raise ValueError("a claim is the first record of its batch")
    except (KeyError, ValueError, IndexError, TypeError) as error:
        offset = min(batch.base_offset + applied, batch.last_offset)
        raise InvariantBroken(
            f"offset {offset}: {type(batch.records[offset - batch.base_offset]).__name__} contradicts the state "
            f"before it: {error!r}",
            offset=offset,
        ) from error
    envelope = batch.envelope
    results = image.results
    if keeps_results and envelope.request_id is not None:
        results = results.with_result(
            RequestResultRecord(
                request_id=envelope.request_id,
                operation=envelope.operation or "",
                request_sha256=envelope.request_sha256 or b"",
                base_offset=batch.base_offset,
                end_offset=batch.end_offset,
                response=envelope.response or b"",
                stored_at_ms=batch.appended_at_ms,
            )
        )
    delta = builders.delta()
    parts = yield from builders.parts()
    after = MetadataImage(
        end_offset=batch.end_offset,
        controller_epoch=batch.controller_epoch,
        last_crc=batch.crc,
        last_time_ms=batch.appended_at_ms,
        elapsed_ms=elapsed_ms,
        results=results.evicted(now_ms=batch.appended_at_ms),
        begun=begun_after(image.begun, batch, parts["features"]),
        claimant=claimant_after(image.claimant, batch, parts["features"]),
        state_digest=StateDigest.behind(image, delta),
        **parts,
    )
    return Applied(after, delta)


def image_of(
    records: Iterable[SnapshotRow], *, header: SnapshotHeaderRecord, digest_buckets: Buckets | None = None
) -> MetadataImage:
    """Return the image that a snapshot's records add up to, at the position its header names.

    `digest_buckets` are taken for its own; without them they are counted.

    Raises:
        InvariantBroken: the records contradict each other.
    """
    builders = _OpenBuilders(EMPTY, elapsed_ms=0)
    results: list[RequestResultRecord] = []
    begun: list[BegunChangeRecord] = []
    record: SnapshotRow = header
    try:
        for record in records:
            if type(record) is RequestResultRecord:
                results.append(record)
            elif type(record) is BegunChangeRecord:
                begun.append(record)
            else:
                builders.apply(_IN_SNAPSHOT[type(record)], record)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise InvariantBroken(
            f"a snapshot's {type(record).__name__} contradicts what stands before it: {error!r}"
        ) from error
    builders.of(QuorumBuilder).set_cluster_id(header.cluster_id)
    image = MetadataImage(
        end_offset=header.end_offset,
        controller_epoch=header.controller_epoch,
        last_crc=header.last_crc,
        last_time_ms=header.last_time_ms,
        results=RequestResults.of(results),
        begun=begun_of(begun),
        claimant=None if header.controller_id is None else Claimant(header.controller_id, is_kept=True),
        **at_once(builders.parts()),
    )
    return replace(image, state_digest=StateDigest(digest_buckets or buckets_of(image)))


Steps = tuple[tuple[type[SubjectBuilder[Any]], Callable[[Any, Any], None]], ...]
"""What applies one record type: builders and their methods, in order."""


class _OpenBuilders:
    """The builders of the subjects that a batch concerns; each is made when it is first needed."""

    def __init__(self, before: MetadataImage, *, elapsed_ms: int) -> None:
        self._before = before
        self.elapsed_ms = elapsed_ms
        self._open: dict[type[SubjectBuilder[Any]], SubjectBuilder[Any]] = {}

    def of(self, kind: type[B]) -> B:
        builder = self._open.get(kind)
        if builder is None:
            builder = self._open[kind] = kind(getattr(self._before, kind.FIELD), self)
        return builder  # type: ignore[return-value]  # each is kept under its own type

    def apply(self, steps: Steps, record: SnapshotRow) -> None:
        for kind, method in steps:
            method(self._open.get(kind) or self.of(kind), record)

    @property
    def claims(self) -> int:
        return self.of(QuorumBuilder).claims if QuorumBuilder in self._open else 0

    def parts(self) -> Sliced[dict[str, Any]]:
        """Make every subject's part of the image after all records, by field; the builders have served then.

        Each builder refers to this object, and this one no more to them: so nothing is left that only the cycle collector
        can free. A controller freezes what is alive during a long collection, and would keep such a cycle with all images
        that it reaches.
        """
        open_, self._open = self._open, {}
        parts: dict[str, Any] = {}
        for kind in SUBJECT_BUILDERS:
            builder = open_.get(kind)
            parts[kind.FIELD] = (
                getattr(self._before, kind.FIELD) if builder is None else (yield from builder.finishing())
            )
        return parts

    def delta(self) -> Delta:
        fields: dict[str, Any] = {}
        for builder in self._open.values():
            fields |= builder.delta()
        return Delta(**fields)


def _steps(*, in_log: bool) -> Mapping[type, Steps]:
    """Return what applies each record type. A subject that depends on another applies a record of both before it."""
    steps: dict[type, Steps] = {}
    for kind in reversed(SUBJECT_BUILDERS):
        for record_type, method in {
            **kind.STATES,
            **(kind.CHANGES if in_log else kind.SNAPSHOT_ROWS),
        }.items():
            steps[record_type] = (*steps.get(record_type, ()), (kind, method))
    return steps


# A batch may hold 10,000 records, and a match statement would try ten classes for some: one look-up finds the steps.
_IN_LOG: Final = _steps(in_log=True)
_IN_SNAPSHOT: Final = _steps(in_log=False)
