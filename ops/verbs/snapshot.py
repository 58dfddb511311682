"""Edge: `snapshot list|take|verify`. Tests: tests/unit/ops/verbs/test_kinds.py."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from metadata_log.replay.kinds import Kind, kind_of
from ops.command_line import render
from ops.command_line.given_snapshots import check_is_snapshot
from ops.command_line.options import Network, Noun, Output, argument, flag, network, output, watchable
from ops.command_line.render import Column
from ops.command_line.talk import fail_usage
from ops.command_line.values import existing_path
from ops.verbs.log import saying_what_to_do

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import MetadataImage

SNAPSHOTS = (
    Column("id"),
    Column("end_offset"),
    Column("controller_epoch", "EPOCH"),
    Column("bytes", "SIZE", render.bytes_text),
    Column("sha256", is_wide=True),
)


NOUN: Final = Noun()


@NOUN.verb("list", "List the snapshots a controller holds.", "snapshot list")
@watchable
@network
def run_list(asked: Network) -> int:
    items = asked.client().items("/v1/snapshots")
    asked.show_items(items, SNAPSHOTS, empty="no snapshots")
    return 0


@NOUN.verb("take", "Write a snapshot now.", "snapshot take", "snapshot take --dry-run")
@flag("--dry-run", help="say which snapshot it would be; write none")
@network
def run_take(asked: Network, *, dry_run: bool) -> int:
    if dry_run:
        return _show_due(asked)
    taken = asked.client().write("POST", "/v1/snapshots")
    asked.show(taken, table=lambda: asked.table(SNAPSHOTS, [taken], empty=""))
    return 0


def _show_due(asked: Network) -> int:
    """Show the snapshot that a controller would write now, and the newest that it has."""
    from snapshots.snapshot_file import snapshot_id

    client = asked.client()
    status = client.read("/v1/quorum")
    end_offset, epoch = status["high_watermark"], status["controller_epoch"]
    held = [one["id"] for one in client.items("/v1/snapshots")]
    due = {
        "id": snapshot_id(end_offset, epoch),
        "end_offset": end_offset,
        "controller_epoch": epoch,
        "newest": max(held, default=None),
        "records": [],
    }

    def table() -> str:
        fields = render.fields((key, render.plain(value)) for key, value in due.items() if key != "records")
        return f"{fields}\n\nno record is written: a snapshot is a file of one controller"

    asked.show(due, table=table)
    return 0


@NOUN.verb(
    "verify",
    "Check every frame, the count and the digest of a snapshot file, or a checkpoint of Kafka's; damage is exit code 6.",
    "snapshot verify 00000000000000001200-0000000003.snapshot",
)
@argument("path", "FILE", read=existing_path)
@output
def run_verify(asked: Output, *, path: Path) -> int:
    """Check every frame, the count and the digest of a snapshot file; damage ends in exit 6."""
    from metadata_log.digest import digest
    from snapshots.snapshot_file import read_snapshot

    if not path.is_file():
        fail_usage(f"{path} is no file; `metaquorum log verify DIR` checks all that a directory holds")
    kind = kind_of(path)
    if kind is Kind.CHECKPOINT:
        image = _checkpoint(path)
    else:
        check_is_snapshot(path, "snapshot verify", reads="snapshots, and checkpoints of Kafka's")
        with saying_what_to_do():
            image = read_snapshot(path)
    checked = {
        "path": str(path),
        "end_offset": image.end_offset,
        "controller_epoch": image.controller_epoch,
        "bytes": path.stat().st_size,
        "digest": digest(image),
    }
    asked.show(checked, table=lambda: render.fields((k, render.plain(v)) for k, v in checked.items()))
    return 0


def _checkpoint(path: Path) -> "MetadataImage":
    from metadata_log.replay.kafka.files import checkpoint_image, cluster_id_of

    return checkpoint_image(path, cluster_id=cluster_id_of(path.parent))
