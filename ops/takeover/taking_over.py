"""Edge: makes directories from which controllers of ours resume the state of a Kafka quorum, under its cluster id.

Their log begins with a snapshot, above all offsets and epochs that the brokers have seen, so each broker loads the snapshot
and keeps its replicas. Every directory is made beside its place and gets its name last: at any moment a controller has the
whole state, or no directory with which it could start. Tests: tests/unit/ops/takeover/test_taking_over.py.
"""

import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.errors import ForeignDirectory, InvalidRequest
from metadata_log.ids import BrokerId, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.disk.data_directory import (
    FOLDERS,
    DirectoryLock,
    format_directory,
    is_fresh,
    let_only_join,
    read_meta,
)
from metadata_log.node.disk.durable_files import renamed_os_errors, sync_directory
from metadata_log.records.features import (
    METADATA_VERSION,
    METADATA_VERSION_MIN,
    METAQUORUM_VERSION,
    METAQUORUM_VERSION_LEVEL,
)
from metadata_log.records.quorum import KRAFT_VERSION_LEVEL, Voter
from ops.takeover.kafka_state import KafkaState
from ops.takeover.places import check_places
from quorum.controller.standby import configured_voters
from quorum.decide.features import supported
from quorum.node.config import ControllerSettings
from quorum.node.restoring import EPOCHS_SKIPPED, begin_directory, restored, surviving_state

OFFSETS_SKIPPED: Final = 1_000_000
"""Added to the end of the log that is taken over: a broker that has followed records which no controller kept is below the
snapshot, too, and loads it. A broker that is told to go back behind what it has applied ends instead."""
_BESIDE: Final = ".importing"
_REPLACED: Final = ".replaced"
_FORMATTED: Final = frozenset({*FOLDERS["controller"], "fresh", "joins", "lock", "meta.json"})
"""What a directory holds that was formatted and never used."""


class Begun(NamedTuple):
    """The state with which our controllers begin."""

    image: MetadataImage
    lost: Mapping[str, int]
    """What of Kafka's state is not in it, and how many of each there are."""


def begun_with(state: KafkaState, controllers: Sequence[ControllerSettings]) -> Begun:
    """Return the state with which the controllers begin that these settings name; all of them vote.

    Raises:
        InvalidRequest: the settings do not go together, or with Kafka's state: they are of another cluster, have no
            listener for Kafka's brokers, name a broker's id, or the level of metadata.version is unknown. What else
            brokers and topics need of them is in `obstacles.py`.
    """
    image = state.image
    cluster_id = state.of.log.cluster_id
    for settings in controllers:
        if settings.cluster_id != cluster_id:
            raise InvalidRequest(
                f"{state.of.path} is of cluster {cluster_id}, and controller {settings.node_id} of {settings.cluster_id}: "
                "the brokers know the former: write it into the settings"
            )
        if settings.listen_kafka is None:
            raise InvalidRequest(
                f"controller {settings.node_id} has no [listen] kafka: the brokers would not find it"
            )
        if BrokerId(settings.node_id) in image.brokers:
            raise InvalidRequest(
                f"id {settings.node_id} is a broker's; brokers and controllers share one id space: give the controller "
                "another"
            )
    levels = supported(unstable=any(each.features.unstable_levels for each in controllers))
    features, lost = image.features, dict(state.lost)
    level = features.get(METADATA_VERSION, 0)
    if not METADATA_VERSION_MIN <= level <= levels[METADATA_VERSION][1]:
        raise InvalidRequest(
            f"metadata.version is {level}, and this release knows {METADATA_VERSION_MIN} to {levels[METADATA_VERSION][1]}: "
            "let Kafka's controllers upgrade it first, or use a release that knows it"
        )
    for name, found in image.features.items():
        least, most = levels.get(name, (0, 0))
        if name != METAQUORUM_VERSION and not least <= found <= most:
            lost[f"feature {name} at level {found}"] = 1
            features = features.delete(name)
    image = replace(
        image,
        end_offset=image.end_offset + OFFSETS_SKIPPED,
        features=features.set(METAQUORUM_VERSION, METAQUORUM_VERSION_LEVEL),
        quorum=image.quorum._replace(kraft_version=KRAFT_VERSION_LEVEL),
    )
    voters = [_voter(settings) for settings in controllers]
    if len({voter.node_id for voter in voters}) < len(voters):
        raise InvalidRequest("two of the settings are of one controller")
    return Begun(
        restored(image, cluster_id=cluster_id, voters=voters, epoch=state.epoch + EPOCHS_SKIPPED), lost
    )


def _voter(settings: ControllerSettings) -> Voter:
    for voter in configured_voters(settings):
        if voter.node_id == settings.node_id:
            return voter
    raise InvalidRequest(f"controller {settings.node_id} has no [[voters]] entry in its settings: it votes")


def check_may_take_over(controllers: Sequence[ControllerSettings], image: MetadataImage) -> MetadataImage:
    """Check that each controller's directory is free; return the state that an interrupted call began with, else `image`.

    Raises:
        InvalidRequest: two are one directory, or one lies in another.
        ForeignDirectory: one holds something else than a fresh format, is another node's, or is a mount point.
        DirectoryInUse: a process runs in one.
    """
    begun, controllers = image, _placed(controllers)
    check_places([settings.data_dir for settings in controllers])
    for settings in controllers:
        data = settings.data_dir
        if not data.exists() or not any(data.iterdir()):
            continue
        meta = read_meta(data, "controller", settings.node_id, settings.cluster_id)
        wanted = _voter(settings).directory_id
        if meta.directory_id != wanted:
            raise ForeignDirectory(
                f"{data}: is {uuid_text(meta.directory_id)}, and the [[voters]] entry of controller {settings.node_id} "
                f"names {uuid_text(wanted)}: correct the entry",
                path=str(data),
            )
        if not is_fresh(data):
            begun = _begun_before(data, image)
        elif foreign := sorted(each.name for each in data.iterdir() if each.name not in _FORMATTED):
            raise ForeignDirectory(
                f"{data}: holds {foreign[0]}, and is replaced as a whole: move it away, or name another data_dir",
                path=str(data / foreign[0]),
            )
        else:
            with DirectoryLock(data):  # no process runs in it
                pass
    return begun


def _begun_before(data: Path, image: MetadataImage) -> MetadataImage:
    """Return the state in a directory that is in use, if it is this one, and nothing came after it."""
    found = surviving_state(data).image
    if (found.end_offset, found.controller_epoch, found.quorum) != (
        image.end_offset,
        image.controller_epoch,
        image.quorum,
    ):
        raise ForeignDirectory(
            f"{data}: a controller has run in it, or another state was put into it: format another directory",
            path=str(data),
        )
    return found


def take_over(image: MetadataImage, controllers: Sequence[ControllerSettings]) -> MetadataImage:
    """Make the controllers' directories, which begin with a state; return it.

    A call that was interrupted is made once more, with the same settings: what it finished stays, keys of masks included.

    Raises:
        InvalidRequest, ForeignDirectory, DirectoryInUse: as `check_may_take_over`.
        DiskFailed: one could not be written.
    """
    controllers = _placed(controllers)
    begun = check_may_take_over(controllers, image)
    left = [each for each in controllers if not each.data_dir.exists() or not _is_begun(each.data_dir)]
    for settings in left:
        # Else controllers that are started after half of this would found an empty quorum of the same cluster id.
        if (settings.data_dir / "meta.json").exists():
            let_only_join(settings.data_dir)
    for settings in left:
        _make_beside(settings, begun)
    for settings in left:
        _put_in_place(settings.data_dir)
    return begun


def _placed(controllers: Sequence[ControllerSettings]) -> list[ControllerSettings]:
    """Return the settings with the places of their directories: a link stays a link to the directory that is replaced."""
    return [replace(each, data_dir=each.data_dir.resolve()) for each in controllers]


def _is_begun(data: Path) -> bool:
    return (data / "meta.json").exists() and not is_fresh(data)


def _make_beside(settings: ControllerSettings, image: MetadataImage) -> None:
    data, beside = settings.data_dir, settings.data_dir.with_name(settings.data_dir.name + _BESIDE)
    with renamed_os_errors(data):
        for left in (beside, data.with_name(data.name + _REPLACED)):  # of a call that was interrupted
            if left.exists():
                shutil.rmtree(left)
    format_directory(
        beside,
        role="controller",
        node_id=settings.node_id,
        cluster_id=settings.cluster_id,
        rng=random.SystemRandom(),
        directory_id=_voter(settings).directory_id,
    )
    begin_directory(beside, image)


def _put_in_place(data: Path) -> None:
    beside, replaced = data.with_name(data.name + _BESIDE), data.with_name(data.name + _REPLACED)
    with renamed_os_errors(data):
        sync_directory(beside)
        if data.exists() and any(data.iterdir()):
            data.rename(replaced)
        beside.rename(data)
        sync_directory(data.parent)
        if replaced.exists():
            shutil.rmtree(replaced)
