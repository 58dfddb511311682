"""Edge: makes directories from which controllers of Kafka's own resume the state of ours, under the same cluster id.

Each holds a checkpoint above all offsets and epochs that the brokers have seen, no segment, and the quorum-state that keeps
its controller from electing in an older epoch. A directory is made beside its place and gets its name last.
Tests: tests/unit/ops/takeover/test_giving_back.py.
"""

import json
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.errors import ForeignDirectory, InvalidRequest
from metadata_log.ids import MIGRATING, BrokerId, NodeId, Uuid, random_uuid, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.kafka.checkpoints import checkpoint
from metadata_log.node.addresses import WILDCARDS, HostPort, read_address
from metadata_log.node.disk.data_directory import load_meta
from metadata_log.node.disk.durable_files import open_private, renamed_os_errors, replace_file, sync_directory
from metadata_log.records.features import METAQUORUM_VERSION, FeatureLevelRecord
from metadata_log.records.quorum import KRAFT_VERSION_LEVEL, Voter, VoterEndpoint
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.replay.kinds import PARTITION
from ops.java_properties import read_properties
from ops.takeover.kafka_directory import META
from ops.takeover.kafka_state import QUORUM_STATE
from ops.takeover.majority import check_are_voters_own, check_majority, check_one_each
from ops.takeover.places import check_places
from ops.takeover.taking_over import OFFSETS_SKIPPED
from quorum.node.restoring import EPOCHS_SKIPPED, Survivor, restored, surviving_state
from snapshots.snapshot_file import snapshot_id

_BESIDE: Final = ".exporting"


class KafkaController(NamedTuple):
    """What a file of properties says of one of Kafka's controllers."""

    node_id: int
    listener: str
    address: HostPort
    metadata_dir: Path
    log_dirs: tuple[Path, ...]
    """Beside that of the metadata."""

    @property
    def directories(self) -> tuple[Path, ...]:
        """All of them; that of the metadata last: a process does not start without it."""
        return (*self.log_dirs, self.metadata_dir)

    def placed(self) -> "KafkaController":
        """Return it with the places of its directories: a link stays a link to the directory that is made."""
        return self._replace(
            metadata_dir=self.metadata_dir.resolve(),
            log_dirs=tuple(each.resolve() for each in self.log_dirs),
        )


def read_controller(file: Path) -> KafkaController:
    """Read the properties of one of Kafka's controllers.

    Raises:
        InvalidRequest: it is no controller's, or something is missing; names the file.
    """
    with renamed_os_errors(file):
        text = file.read_text(errors="replace")
    try:
        properties = read_properties(text)
        if properties.get("process.roles", "").strip() != "controller":
            raise ValueError("process.roles is not controller: a broker's directories hold its replicas")
        listener = properties["controller.listener.names"].split(",")[0].strip()
        address = _address(properties, listener)
        listed = properties.get("log.dirs") or properties["log.dir"]
        log_dirs = [Path(each.strip()) for each in listed.split(",")]
        metadata_dir = Path(properties.get("metadata.log.dir") or log_dirs[0])
        others = tuple(each for each in log_dirs if each != metadata_dir)
        return KafkaController(int(properties["node.id"]), listener, address, metadata_dir, others)
    except KeyError as error:
        raise InvalidRequest(f"{file}: {error.args[0]} is missing") from error
    except ValueError as error:
        raise InvalidRequest(f"{file}: {error}") from error


def _address(properties: dict[str, str], listener: str) -> HostPort:
    """Return where a listener is reached: as it is advertised, else as it listens."""
    for key in ("advertised.listeners", "listeners"):
        for each in properties.get(key, "").split(","):
            name, _, address = each.strip().partition("://")
            if name == listener:
                host, port = ("", 0) if address.startswith(":") else read_address(address)
                if host in WILDCARDS:
                    raise ValueError(
                        f"{key} has no host for {listener} that brokers can dial: set advertised.listeners"
                    )
                return host, port
    raise ValueError(f"listeners has no {listener}")


# --- the state


def stopped_state(directories: Sequence[Path], *, gone: Sequence[int] = ()) -> tuple[Survivor, Path]:
    """Return the state that our stopped controllers hold, and the directory of the one whose log counts.

    That is the log with the highest epoch and end among those of a majority of the voters: it holds all that was
    acknowledged. `gone` are voters whose directories are lost for ever.

    Raises:
        InvalidRequest: they are of different clusters, two of one node, not a voter's own, or too few of the voters.
        and what `surviving_state` raises.
    """
    found = {path: surviving_state(path) for path in directories}
    metas = {path: load_meta(path) for path in directories}
    if len(clusters := {meta.cluster_id for meta in metas.values()}) > 1:
        raise InvalidRequest(f"the directories are of different clusters: {', '.join(sorted(clusters))}")
    path = max(found, key=lambda each: (found[each].epoch, found[each].image.end_offset))
    survivor = found[path]
    check_one_each([meta.node_id for meta in metas.values()])
    voters = survivor.image.quorum.voters or ()
    here: dict[int, Uuid | None] = {meta.node_id: meta.directory_id for meta in metas.values()}
    check_are_voters_own(voters, here=here)
    check_majority([voter.node_id for voter in voters], here=here, gone=gone)
    return survivor, path


def given_back(
    survivor: Survivor, controllers: Sequence[KafkaController]
) -> tuple[MetadataImage, dict[int, Uuid]]:
    """Return the state with which Kafka's controllers begin, all of which vote, and the directory id that each gets.

    Raises:
        InvalidRequest: a controller has a broker's id, or two have one.
    """
    image, rng = survivor.image, random.SystemRandom()
    ids = [each.node_id for each in controllers]
    if len({*ids}) < len(ids):
        raise InvalidRequest("two of the files are of one controller")
    for node_id in ids:
        if BrokerId(node_id) in image.brokers:
            raise InvalidRequest(
                f"node.id {node_id} is a broker's; brokers and controllers share one id space"
            )
    directory_ids = {node_id: random_uuid(rng) for node_id in ids}
    voters = [
        Voter(
            NodeId(each.node_id),
            directory_ids[each.node_id],
            (VoterEndpoint(each.listener, *each.address),),
            0,
            KRAFT_VERSION_LEVEL,
        )
        for each in controllers
    ]
    image = replace(
        image,
        end_offset=image.end_offset + OFFSETS_SKIPPED,
        quorum=image.quorum._replace(kraft_version=KRAFT_VERSION_LEVEL),
    )
    cluster_id = image.quorum.cluster_id
    assert cluster_id is not None, "a survivor has a cluster"
    return (
        restored(image, cluster_id=cluster_id, voters=voters, epoch=survivor.epoch + EPOCHS_SKIPPED),
        directory_ids,
    )


def kafkas_features(image: MetadataImage) -> dict[str, int]:
    """Return the finalized levels that Kafka's controllers get: all but that of our own protocol."""
    return {name: level for name, level in sorted(image.features.items()) if name != METAQUORUM_VERSION}


def _told(records: Iterator[Record]) -> Iterator[Record]:
    """Yield the records without the level of our own protocol, at which Kafka's controllers would stop."""
    for record in records:
        if not (isinstance(record, FeatureLevelRecord) and record.name == METAQUORUM_VERSION):
            yield record


# --- the directories


def check_may_give_back(controllers: Sequence[KafkaController]) -> None:
    """Check that no directory holds anything, and that each can be made.

    Raises:
        InvalidRequest: two are one directory, or one lies in another.
        ForeignDirectory: names the first that holds something, or is a mount point.
    """
    controllers = [each.placed() for each in controllers]
    check_places([path for each in controllers for path in each.directories])
    for each in controllers:
        for path in each.directories:
            if held := sorted(found.name for found in path.iterdir()) if path.exists() else []:
                raise ForeignDirectory(
                    f"{path}: holds {held[0]}: move it away; Kafka's controller {each.node_id} begins in an empty directory",
                    path=str(path),
                )


def give_back(
    image: MetadataImage, controllers: Sequence[KafkaController], directory_ids: dict[int, Uuid]
) -> None:
    """Make the directories of Kafka's controllers.

    Raises:
        InvalidRequest, ForeignDirectory: as `check_may_give_back`.
        DiskFailed: one could not be written.
    """
    controllers = [each.placed() for each in controllers]
    check_may_give_back(controllers)
    for each in controllers:
        for path in each.directories:
            _make_beside(
                path, image, each.node_id, directory_ids[each.node_id], holds=path == each.metadata_dir
            )
    for each in controllers:
        for path in each.directories:
            with renamed_os_errors(path):
                path.with_name(path.name + _BESIDE).rename(path)
                sync_directory(path.parent)


def _make_beside(path: Path, image: MetadataImage, node_id: int, directory_id: Uuid, *, holds: bool) -> None:
    beside = path.with_name(path.name + _BESIDE)
    with renamed_os_errors(beside):
        if beside.exists():  # of a call that was interrupted
            shutil.rmtree(beside)
        beside.mkdir(parents=True, mode=0o700)
        own = directory_id if holds else random_uuid(random.SystemRandom())
        text = {
            "version": 1,
            "cluster.id": image.quorum.cluster_id,
            "node.id": node_id,
            "directory.id": uuid_text(own),
        }
        replace_file(beside / META, "".join(f"{key}={value}\n" for key, value in text.items()).encode())
        if holds:
            partition = beside / PARTITION
            partition.mkdir(mode=0o700)
            _write_checkpoint(partition, image)
            state = {
                "leaderId": -1,
                "leaderEpoch": image.controller_epoch,
                "votedId": -1,
                "votedDirectoryId": uuid_text(MIGRATING),
                "data_version": 1,
            }
            replace_file(partition / QUORUM_STATE, json.dumps(state).encode())
        sync_directory(beside)


def _write_checkpoint(partition: Path, image: MetadataImage) -> None:
    path = partition / f"{snapshot_id(image.end_offset, image.controller_epoch)}.checkpoint"
    header = SnapshotHeaderRecord(
        image.quorum.cluster_id or "", image.end_offset, image.controller_epoch, image.last_time_ms, 0
    )
    with open_private(path, "wb") as file:
        for batch in checkpoint(_told(image.to_records()), header=header):
            file.write(batch)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(partition)
