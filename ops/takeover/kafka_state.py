"""Edge: the state that the controllers of a Kafka quorum left in their metadata directories; the directories are only read.

Kafka's files do not say up to where its log was committed. So the log with the highest (epoch, end offset) among those of a
majority of the voters counts: it holds all that was committed, and Kafka's own election would choose it, too.
Tests: tests/unit/ops/takeover/test_kafka_state.py.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from metadata_log.apply import apply
from metadata_log.batch import NO_ENVELOPE, RecordBatch
from metadata_log.errors import DamagedFile, InvalidRequest, InvariantBroken, OffsetCompacted
from metadata_log.ids import Uuid
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.kafka.batches import Batch
from metadata_log.kafka.counterparts import READ
from metadata_log.kafka.records import CONTROL_TYPES_FROM, Decoded, encode
from metadata_log.node.disk.durable_files import renamed_os_errors
from metadata_log.node.uncollected import no_collections
from metadata_log.records.configs import MASK_KEY_BYTES, ConfigRecord, is_sensitive
from metadata_log.records.declaration import declaration_of
from metadata_log.records.quorum import ControllerClaimRecord
from metadata_log.records.registry import Record
from metadata_log.replay.kafka.files import (
    UNKNOWN_CLUSTER,
    KafkaLog,
    Unit,
    checkpoint_image,
    checkpoints_in,
    decoded,
    opened,
    units,
    whole_batches,
)
from metadata_log.replay.kafka.records import Translator
from metadata_log.replay.opaque import OpaqueRecord
from ops.takeover.kafka_directory import META, Owner, is_locked, owner_of
from ops.takeover.majority import check_are_voters_own, check_majority, check_one_each, listed, majority_of
from ops.takeover.progress import OnProgress, unheard

QUORUM_STATE: Final = "quorum-state"
RECORDS_AT_ONCE: Final = 10_000
"""Records of Kafka's batches that are applied together."""
_WITHOUT_STATE: Final = frozenset({"BeginTransaction", "EndTransaction", "AbortTransaction", "ClearElr"})
"""Records without a counterpart that change nothing which is not taken: what they mean for others is applied."""
_ZK_MIGRATIONS: Final = {1: "is prepared", 2: "has not ended"}
"""The states of ZkMigrationState in which ZooKeeper still counts; 0 and 3 are none, and one that is over."""


class Position(NamedTuple):
    """How far a log reaches, in the order in which Kafka's controllers compare logs."""

    epoch: int
    end_offset: int


class ControllerLog(NamedTuple):
    """The metadata directory of one of Kafka's controllers."""

    log: KafkaLog
    node_id: int
    directory_id: Uuid | None
    """None: a release before directories had one."""
    epoch: int
    """The newest that its log or its quorum-state has."""
    end: Position
    voters: tuple[int, ...] | None
    """The ids that its log named last, else its quorum-state; None: neither names any."""
    torn: str | None
    """What is not whole at the log's end, and so was never committed."""

    @property
    def path(self) -> Path:
        return self.log.path


class KafkaState(NamedTuple):
    """What the directories add up to."""

    image: MetadataImage
    """At the end of the log that counts; its controllers and voters are Kafka's."""
    of: ControllerLog
    epoch: int
    """The newest that any of the directories has seen."""
    voters: tuple[int, ...] | None
    only_here: int
    """Offsets at the end that fewer than a majority of the voters have: they may have been acknowledged all the same."""
    left_out: tuple[str, ...]
    """What was never committed."""
    lost: dict[str, int]
    """What has no counterpart here, and how many of each there are."""


# --- each directory


def controller_log(path: Path, *, progress: OnProgress = unheard) -> ControllerLog:
    """Return what a directory holds, after a look at every batch in it.

    Raises:
        InvalidRequest: it holds no log, or does not say whose it is.
        DamagedFile: a segment, or what says the epoch, is damaged, or a segment is missing; names file and byte.
    """
    log = opened(path)
    node_id, directory_id = _owner(log)
    torn: list[str] = []
    end, voters = Position(0, 0), None
    begins_at = _places(log)
    for file, batch in whole_batches(
        log.segments,
        0,
        last_crc=0,
        on_torn=lambda file, at, why: torn.append(f"{file}: from byte {at} on: {why}"),
        reads_data=False,
    ):
        end = Position(batch.leader_epoch, batch.end_offset)
        progress(path, "checked", begins_at[file] + batch.at, begins_at[log.directory])
        if batch.is_control:
            voters = _voters_in(file, batch) or voters
    for file, end_offset in checkpoints_in(log.directory):
        end = max(end, Position(int(file.stem.partition("-")[2]), end_offset))
    epoch, told = _quorum_state(log)
    return ControllerLog(
        log,
        node_id,
        directory_id,
        max(end.epoch, epoch),
        end,
        voters or told,
        torn[0] if torn else None,
    )


def _places(log: KafkaLog) -> dict[Path, int]:
    """Return how many bytes of the log are before each of its segments; for the directory, in all."""
    found, size = dict[Path, int](), 0
    for segment in log.segments:
        found[segment] = size
        with renamed_os_errors(segment):
            size += segment.stat().st_size
    return found | {log.directory: size}


def _owner(log: KafkaLog) -> Owner:
    """Return whose directory it is, and its id."""
    for folder in (log.directory.parent, log.directory):
        if (found := owner_of(folder)) is not None:
            return found
    raise InvalidRequest(
        f"{log.path}: no {META} is in it: take the whole directory, so that it says whose it is"
    )


def _voters_in(file: Path, batch: Batch) -> tuple[int, ...] | None:
    voters = None
    for _, record in decoded(file, batch):
        if record.name in ("LeaderChange", "KRaftVoters") and record.fields is not None:
            voters = tuple(sorted(voter["voter_id"] for voter in record.fields["voters"])) or voters
    return voters


def _quorum_state(log: KafkaLog) -> tuple[int, tuple[int, ...] | None]:
    """Return the epoch that the quorum-state says, and the ids of the voters, which it names at kraft.version 0."""
    file = log.directory / QUORUM_STATE
    if not file.is_file():
        return 0, None
    with renamed_os_errors(file):
        content = file.read_bytes()
    try:
        state = json.loads(content)
        voters = tuple(sorted(int(voter["voterId"]) for voter in state.get("currentVoters") or ()))
        return int(state["leaderEpoch"]), voters or None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFile(
            f"{file}: byte 0: it does not say the epoch, or who votes ({error!r})", path=str(file)
        ) from error


def is_running(path: Path) -> bool:
    """Answer whether a process of Kafka's runs in a directory, or in the folder above it."""
    log = opened(path)
    return any(map(is_locked, {log.directory, log.directory.parent}))


# --- all of them


def kafka_state(
    directories: Sequence[Path],
    *,
    gone: Sequence[int] = (),
    voters_unknown: bool = False,
    rng: random.Random,
    progress: OnProgress = unheard,
) -> KafkaState:
    """Return the state that the controllers of the directories left; `gone` are voters whose directories are lost.

    `voters_unknown` goes on where no directory says who votes. `rng` draws the keys of the masks of secrets. The memory that
    it takes is that of the state: of the log it holds some thousand records at a time.

    Raises:
        InvalidRequest: the directories are of different clusters, or too few of the voters, or none says who votes; or a
            migration from ZooKeeper has not ended.
        DamagedFile, OffsetCompacted, WrittenByAnotherVersion: as `checkpoint_image` and `controller_log`.
    """
    logs = [controller_log(path, progress=progress) for path in directories]
    if len(clusters := {each.log.cluster_id for each in logs}) > 1:
        raise InvalidRequest(f"the directories are of different clusters: {', '.join(sorted(clusters))}")
    if UNKNOWN_CLUSTER in clusters:
        raise InvalidRequest(f"{logs[0].path}: its meta.properties names no cluster.id")
    check_one_each([each.node_id for each in logs])
    chosen = max(logs, key=lambda each: each.end)
    fold = _Fold(chosen, rng=rng, progress=progress)
    with no_collections():
        image = fold.image()
    if fold.zk_migration in _ZK_MIGRATIONS:
        raise InvalidRequest(
            f"{chosen.path}: a migration from ZooKeeper {_ZK_MIGRATIONS[fold.zk_migration]} (ZkMigrationState "
            f"{fold.zk_migration}): let Kafka's controllers finish it first, for brokers may still be ZooKeeper's"
        )
    newest_first = sorted(logs, key=lambda each: each.end, reverse=True)
    voters = next((each.voters for each in newest_first if each.voters), None)
    if image.quorum.voters:
        voters = tuple(sorted(voter.node_id for voter in image.quorum.voters))
    if voters is None and not voters_unknown:
        raise InvalidRequest(
            f"{chosen.path}: neither its log nor its quorum-state says who votes, so what was acknowledged may be missing. "
            f"Take the whole directories, {QUORUM_STATE} included; if none is left, name all directories, and go on with "
            "--voters-unknown"
        )
    check_are_voters_own(image.quorum.voters or (), here={each.node_id: each.directory_id for each in logs})
    only_here = _only_here(logs, chosen, voters, gone)
    left_out = [line for line in (chosen.torn, fold.open_transaction) if line is not None]
    end = max(image.end_offset, chosen.end.end_offset)
    return KafkaState(
        replace(image, end_offset=end, controller_epoch=chosen.end.epoch),
        chosen,
        max(each.epoch for each in logs),
        voters,
        only_here,
        tuple(left_out),
        {name: count for name, count in sorted(fold.lost.items()) if count > 0},
    )


def _only_here(
    logs: Sequence[ControllerLog], chosen: ControllerLog, voters: Sequence[int] | None, gone: Sequence[int]
) -> int:
    """Check that a majority of the voters is there, and return how many offsets fewer than a majority have."""
    if voters is None:
        return 0
    if strangers := sorted(each.node_id for each in logs if each.node_id not in voters):
        raise InvalidRequest(
            f"node {strangers[0]} is no controller of this quorum ({listed(voters)}): what it has followed may lack "
            "records that were acknowledged. Take the controllers' directories"
        )
    check_majority(voters, here={each.node_id for each in logs}, gone=gone)
    ends = sorted((each.end for each in logs), reverse=True)
    agreed = ends[min(majority_of(voters), len(ends)) - 1]
    return max(0, chosen.end.end_offset - agreed.end_offset)


# --- the fold


class _Fold:
    """Folds one log, from its newest checkpoint on, and counts what is lost thereby."""

    def __init__(self, of: ControllerLog, *, rng: random.Random, progress: OnProgress) -> None:
        self._of, self._rng, self._progress = of, rng, progress
        self._log = of.log
        self.lost: Counter[str] = Counter()
        self.open_transaction: str | None = None
        self.zk_migration = 0
        """The last ZkMigrationState; 0 without any."""

    def image(self) -> MetadataImage:
        image = self._begin()
        translator = Translator(image, cluster_id=self._log.cluster_id, keeps_secrets=True)
        image = _with_keys(image, self._rng)
        waiting: list[Record] = []
        offsets: list[int] = []
        end_offset, time_ms = image.end_offset, image.last_time_ms
        try:
            for unit in units(self._batches(image.end_offset)):
                for offset, record in self._counted(translator, unit):
                    waiting.append(_keyed(record, self._rng))
                    offsets.append(offset)
                if len(waiting) >= RECORDS_AT_ONCE:
                    image = _applied(image, waiting)
                    waiting, offsets = [], []
                end_offset, time_ms = unit.batches[-1].end_offset, unit.batches[-1].max_timestamp
                self._progress(self._of.path, "applied", end_offset, self._of.end.end_offset)
            image = _applied(image, waiting)
        except InvariantBroken as error:
            at = offsets[int(str(error.context["offset"])) - image.end_offset]
            raise self._contradicts(at, error) from error
        if end_offset < self._of.end.end_offset:
            self.open_transaction = (
                f"the offsets {end_offset} to {self._of.end.end_offset - 1}: a transaction that has not ended, which "
                "Kafka's next controller would abort"
            )
        return replace(image, end_offset=end_offset, last_time_ms=max(0, time_ms), last_crc=0, elapsed_ms=0)

    def _begin(self) -> MetadataImage:
        """Return the state of the newest checkpoint; the empty one where the log begins at 0 without any."""
        found = checkpoints_in(self._log.directory)
        begins_at = int(self._log.segments[0].stem) if self._log.segments else None
        if not found:
            if begins_at == 0:
                return EMPTY
            raise OffsetCompacted(
                f"{self._log.directory}: the log begins at offset {begins_at}, and no checkpoint is here to begin at: copy "
                "the *.checkpoint files too"
            )
        newest, end_offset = found[-1]
        if begins_at is not None and begins_at > end_offset:
            raise OffsetCompacted(
                f"{self._log.directory}: the log begins at offset {begins_at}, behind {newest.name}: a segment is missing"
            )
        try:
            return checkpoint_image(
                newest, cluster_id=self._log.cluster_id, keeps_secrets=True, on_record=self._see
            )
        except InvariantBroken as error:
            raise DamagedFile(f"{newest}: {error.message}", path=str(newest)) from error

    def _batches(self, first: int) -> Iterator[tuple[Path, Batch]]:
        yield from whole_batches(self._log.segments, first, last_crc=0, on_torn=lambda *_: None)

    def _counted(self, translator: Translator, unit: Unit) -> Iterator[tuple[int, Record]]:
        """Yield the records of ours that a unit means; where the quorum stands is Kafka's own."""
        names_voters = any(record.name == "KRaftVersion" for _, record in unit.records)
        epoch = unit.batches[-1].leader_epoch
        for offset, record in unit.records:
            if offset in unit.aborted:
                continue
            self._see(record)
            try:
                entries = translator.entries(offset, record, leader_epoch=epoch, names_voters=names_voters)
            except (KeyError, ValueError) as error:
                raise self._contradicts(offset, error) from error
            for entry in entries:
                if not isinstance(entry.record, OpaqueRecord | ControllerClaimRecord):
                    yield offset, entry.record

    def _see(self, record: Decoded) -> None:
        """Count a record that has no counterpart, and one that holds a field which this release does not know."""
        name, values = record.name, record.values
        if values is None:
            self.lost[f"records of {name}"] += 1
        elif name in READ:
            if record.type_id < CONTROL_TYPES_FROM and encode(name, record.version, values) != record.raw:
                self.lost[f"unknown fields of {name}"] += 1
            if name == "RegisterBroker" and (record.fields or {})["is_migrating_zk_broker"]:
                self.lost["brokers that migrate from ZooKeeper"] += 1
        elif name == "ZkMigrationState":
            self.zk_migration = (record.fields or {})["zk_migration_state"]
        elif name not in _WITHOUT_STATE:
            self.lost[name] += 1

    def _contradicts(self, offset: int, error: Exception) -> DamagedFile:
        file = [each for each in self._log.segments if int(each.stem) <= offset][-1]
        return DamagedFile(
            f"{file}: the record at offset {offset} contradicts the state before it: {error}", path=str(file)
        )


def _applied(image: MetadataImage, records: Sequence[Record]) -> MetadataImage:
    if not records:
        return image
    batch = RecordBatch(
        base_offset=image.end_offset,
        controller_epoch=image.controller_epoch,
        appended_at_ms=image.last_time_ms,
        previous_crc=image.last_crc,
        crc=0,
        envelope=NO_ENVELOPE,
        records=tuple(records),
    )
    return apply(image, batch).image


def _keyed(record: Any, rng: random.Random) -> Any:
    """Return a record with a key of masks, if it holds a secret."""
    name = declaration_of(type(record)).mask_key
    if name is None or getattr(record, name) is not None:
        return record
    if isinstance(record, ConfigRecord) and (
        record.value is None or not is_sensitive(record.resource_type, record.name)
    ):
        return record
    return record._replace(**{name: rng.randbytes(MASK_KEY_BYTES)})


def _with_keys(image: MetadataImage, rng: random.Random) -> MetadataImage:
    """Return a checkpoint's state with the keys that Kafka's records lack."""
    changed = [after for record in image.to_records() if (after := _keyed(record, rng)) is not record]
    after = _applied(image, changed)
    return replace(after, end_offset=image.end_offset, controller_epoch=image.controller_epoch)
