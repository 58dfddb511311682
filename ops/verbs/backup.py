"""Edge: `backup take|restore|recover`: a cluster's state as a file, and a controller that begins with it.
Tests: tests/cluster/test_backup.py.
"""

import socket
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metadata_log.errors import InvalidRequest, NotController, SnapshotNotFound
from metadata_log.ids import uuid_text
from metadata_log.node.addresses import HostPort, address_text
from metadata_log.node.disk.data_directory import read_meta
from metadata_log.node.disk.durable_files import renamed_os_errors, replace_file, sync_directory
from metadata_log.wire.shapes import INT32_MAX
from ops.command_line.given_snapshots import read_given
from ops.command_line.options import Network, Noun, Output, argument, flag, network, option, output, together
from ops.command_line.talk import fail_usage, say
from ops.command_line.values import existing_path, from_to
from ops.processes import keep_files_private

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import MetadataImage
    from ops.admin.cluster import Cluster
    from quorum.node.config import ControllerSettings

NOUN: Final = Noun()
ATTEMPTS: Final = 3
"""Another controller may come to lead while a snapshot is taken and read."""
LISTENS_S: Final = 2.0
"""A controller that runs takes a connection in some milliseconds."""
LEFT: Final = (
    "format the other controllers with --no-initial-controllers, start them, and add each: "
    "metaquorum quorum add-voter --id N"
)


_beginning: Final = together(
    option(
        "--config",
        read=Path,
        required=True,
        metavar="SETTINGS",
        help="of the controller; its directory is formatted",
    ),
    option(
        "--gone",
        read=from_to(0, INT32_MAX),
        multiple=True,
        metavar="ID",
        help="a controller that does not answer and never runs again, as its host is lost; may be repeated",
    ),
    flag(
        "--dry-run",
        help="show what the controller would begin with, and what may be missing; write nothing",
    ),
    output,
)
"""What the two verbs take that let a controller begin with a state."""


def _place(text: str) -> Path:
    """Read where a backup goes: a directory that is there, or a new file in one."""
    path = Path(text)
    folder = path if text.endswith("/") else path.parent
    if not path.is_dir() and not folder.is_dir():
        fail_usage(f"--to {text}: there is no directory {folder}: make it first")
    return path


@NOUN.verb(
    "take",
    "Write the whole state of a running cluster to one file, checked and durable.",
    "backup take --to backups/",
    "backup take --to today.snapshot",
)
@option("--to", read=str, required=True, metavar="PATH", help="a new file, or a directory that gets one")
@network
def run_take(asked: Network, *, to: str) -> int:
    """Take a snapshot on the active controller, and read it; what was acknowledged before is in it."""
    from snapshots.store import sha256_of

    keep_files_private()
    path = _place(to)
    client = asked.client()
    taken, body = _taken(client)
    if path.is_dir():
        cluster = client.read("/v1/quorum")["cluster_id"]
        path /= f"{cluster}-{taken['id']}.snapshot"
    image = _written(path, body, taken["id"])
    asked.show_fields(
        {"path": str(path)} | _described(image) | {"bytes": len(body), "sha256": sha256_of(path)}
    )
    return 0


def _taken(client: "Cluster") -> tuple[dict[str, Any], bytes]:
    """Return a snapshot that holds all that was acknowledged before, and its bytes.

    Any controller takes one of what it has applied, and one that is cut off has applied less. So the one that leads is asked
    for both, alone, and its snapshot must reach the end that it proved to be committed.

    Raises:
        Unavailable: the active controller changed again and again.
    """
    for _ in range(ATTEMPTS):
        leader = client.get("/v1/configs?cluster=1", is_consistent=True)
        taken: dict[str, Any] = client.write("POST", "/v1/snapshots", repeatable=False)
        path = f"/v1/metadata/snapshots/{taken['id']}"
        answer = client.ask_one(leader.url, path, accept="application/octet-stream")
        if answer.ok and taken["end_offset"] >= int(leader.headers["x-high-watermark"]):
            return taken, answer.body
        if not answer.ok and not isinstance(error := answer.error(), SnapshotNotFound):
            raise error
    raise NotController("the active controller changed while the backup was taken; try again")


def _written(path: Path, body: bytes, snapshot_id: str) -> "MetadataImage":
    """Write a backup, and return the state in it; a file of its name is there only once all of it was checked."""
    from snapshots.snapshot_file import read_snapshot

    if path.exists():
        fail_usage(f"--to {path}: exists already: name another file, or a directory")
    unchecked = path.with_name(f"{path.name}.unchecked")
    try:
        replace_file(unchecked, body)
        image = read_snapshot(unchecked, expected_id=snapshot_id)
        with renamed_os_errors(path):
            unchecked.replace(path)
            sync_directory(path.parent)
    finally:
        with renamed_os_errors(path):
            unchecked.unlink(missing_ok=True)
    return image


@NOUN.verb(
    "restore",
    "Let one controller, just formatted, begin a new cluster with the state of a backup.",
    "backup restore today.snapshot --config controller.toml --dry-run",
    "backup restore today.snapshot --config controller.toml",
)
@argument("path", "FILE", read=existing_path)
@_beginning
def run_restore(asked: Output, *, path: Path, config: Path, gone: tuple[int, ...], dry_run: bool) -> int:
    """Begin a cluster of another id: what still runs of the old one keeps apart from it."""
    settings = _settings(config)
    image = read_given(path, "backup restore")
    if image.quorum.cluster_id == settings.cluster_id:
        fail_usage(
            f"{path} is a backup of cluster {settings.cluster_id}, to which {config} belongs: its brokers and controllers "
            "that still run would meet two clusters of one id. Give the new cluster an id of its own; for a cluster whose "
            "controllers are all lost, see `metaquorum backup recover`"
        )
    _begin(asked, settings, image, epoch=image.controller_epoch, gone=gone, dry_run=dry_run)
    return 0


@NOUN.verb(
    "recover",
    "After a lost majority: let one controller begin with what a stopped controller's directory, or a backup, holds.",
    "backup recover old/controller-2 --config controller.toml --dry-run",
    "backup recover old/controller-2 --config controller.toml",
)
@argument("source", "DIR|FILE", read=existing_path)
@_beginning
def run_recover(asked: Output, *, source: Path, config: Path, gone: tuple[int, ...], dry_run: bool) -> int:
    """Go on under the same cluster id, in an epoch above all that the brokers have seen."""
    from quorum.node.restoring import EPOCHS_SKIPPED, surviving_state

    settings = _settings(config)
    if source.is_dir():
        if source.resolve() == settings.data_dir.resolve():
            fail_usage(
                f"{source} is the directory of {config} itself: it is only read. Move it away, and format another one "
                "in its place"
            )
        if not (source / "meta.json").exists():
            raise InvalidRequest(f"{source} is no data directory of a controller: it has no meta.json")
        survivor = surviving_state(source)
        image, epoch = survivor.image, survivor.epoch
        known = {
            "committed_until": survivor.applied_end,
            "not_known_to_be_committed": (
                None if survivor.applied_end is None else max(0, image.end_offset - survivor.applied_end)
            ),
        }
    else:
        image = read_given(source, "backup recover")
        epoch, known = image.controller_epoch, {"committed_until": image.end_offset}
    if image.quorum.cluster_id != settings.cluster_id:
        fail_usage(
            f"{source} is of cluster {image.quorum.cluster_id}, and {config} of {settings.cluster_id}: a recovery goes on "
            "under the same id; for another one, see `metaquorum backup restore`"
        )
    _begin(asked, settings, image, epoch=epoch + EPOCHS_SKIPPED, gone=gone, dry_run=dry_run, known=known)
    say(
        f"what only the lost controllers had, from offset {image.end_offset} on, is missing. Keep them from starting again: "
        "those that are a majority of the former voters would elect a leader of their own"
    )
    return 0


def _settings(config: Path) -> "ControllerSettings":
    from ops.settings import load_controller_settings

    keep_files_private()
    return load_controller_settings(config)


def _check_others_are_stopped(
    settings: "ControllerSettings", image: "MetadataImage", gone: Collection[int]
) -> None:
    """Check that no other controller of the settings or of the state runs: there would be two clusters of one id.

    Only a host that refuses the connection proves that no controller runs there. One that is frozen, or cut off from this
    machine, answers nothing, and leads on or comes back.
    """
    others = dict.fromkeys(_others(settings, image))
    for node_id in gone:
        if node_id not in {known for known, _ in others}:
            named = ", ".join(str(known) for known in sorted({known for known, _ in others}))
            fail_usage(f"--gone {node_id}: is none of the other controllers ({named or 'there is none'})")
    for node_id, address in others:
        at = f"controller {node_id} at {address_text(address)}"
        try:
            socket.create_connection(address, timeout=LISTENS_S).close()
        except ConnectionRefusedError:
            continue
        except OSError as error:
            if node_id not in gone:
                fail_usage(
                    f"whether {at} is stopped is not known ({error.strerror or error}): one that is frozen or cut off "
                    "answers nothing, and leads on, or comes back, as another cluster of this id. Stop its process, or "
                    f"its host; if it can never run again, say so: --gone {node_id}"
                )
            say(f"{at} does not answer ({error.strerror or error}): taken as gone, as --gone {node_id} says")
            continue
        fail_usage(
            f"{at} listens: with this one there would be two clusters of one id, and brokers would leave the other one. "
            "Stop every controller first"
        )


def _others(settings: "ControllerSettings", image: "MetadataImage") -> Iterator[tuple[int, HostPort]]:
    """Yield id and Raft address of the controllers that may run beside this one.

    A recovery goes on under the cluster's id, so the voters of its log count, too: the settings may name none of them.
    """
    from metadata_log.records.quorum import RAFT_ENDPOINT

    for voter in settings.voters:
        if voter.id != settings.node_id:
            yield voter.id, voter.raft
    if image.quorum.cluster_id == settings.cluster_id:
        for logged in image.quorum.voters or ():
            address = logged.address(RAFT_ENDPOINT)
            if address not in (None, settings.raft_address):
                yield logged.node_id, address


def _begin(
    asked: Output,
    settings: "ControllerSettings",
    image: "MetadataImage",
    *,
    epoch: int,
    gone: Collection[int],
    dry_run: bool,
    known: dict[str, Any] | None = None,
) -> None:
    """Let the controller's directory begin with a state, unless it is only shown."""
    from quorum.controller.standby import configured_voters
    from quorum.node.restoring import begin_directory, check_may_begin, restored

    meta = read_meta(settings.data_dir, "controller", settings.node_id, settings.cluster_id)
    check_may_begin(settings.data_dir)
    if not settings.is_listed:
        fail_usage(
            f"node {settings.node_id} has no [[voters]] entry in its settings: it becomes the only voter"
        )
    _check_others_are_stopped(settings, image, gone)
    voter = next(one for one in configured_voters(settings) if one.node_id == settings.node_id)
    if voter.directory_id != meta.directory_id:
        fail_usage(
            f"the [[voters]] entry of node {settings.node_id} names the directory {uuid_text(voter.directory_id)}, and "
            f"{settings.data_dir} is {uuid_text(meta.directory_id)}: correct the entry"
        )
    begun = restored(image, cluster_id=settings.cluster_id, voters=(voter,), epoch=epoch)
    if not dry_run:
        begin_directory(settings.data_dir, begun)
    asked.show_fields(
        {"data_dir": str(settings.data_dir)} | _described(begun) | (known or {}) | {"written": not dry_run}
    )
    if not dry_run:
        say(f"start controller {settings.node_id}: it is the only voter. Then {LEFT}")


def _described(image: "MetadataImage") -> dict[str, Any]:
    return {
        "cluster_id": image.quorum.cluster_id,
        "end_offset": image.end_offset,
        "controller_epoch": image.controller_epoch,
        "brokers": len(image.brokers),
        "topics": len(image.topics.by_id),
        "partitions": sum(len(topic.partitions) for topic in image.topics.by_id.values()),
        "digest": _digest(image),
    }


def _digest(image: "MetadataImage") -> str:
    from metadata_log.digest import digest

    return digest(image)
