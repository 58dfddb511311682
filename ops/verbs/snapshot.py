"""Edge: `snapshot list|take|verify`."""

import argparse
from pathlib import Path

from metadata_log.image.metadata_image import MetadataImage
from metadata_log.replay.kinds import Kind, kind_of, not_for
from ops import render
from ops.arguments import Noun, client_from, existing_path
from ops.render import Column
from ops.talk import fail_usage, show
from ops.verbs.log import saying_what_to_do

SNAPSHOTS = (
    Column("id"),
    Column("end_offset"),
    Column("controller_epoch", "EPOCH"),
    Column("bytes", "SIZE", render.bytes_text),
    Column("sha256"),
)


def add_parsers(noun: Noun) -> None:
    noun.verb(
        "list",
        "List the snapshots a controller holds.",
        run=run_list,
        parent=noun.flags.network,
        examples=("snapshot list",),
    )
    take = noun.verb(
        "take",
        "Write a snapshot now.",
        run=run_take,
        parent=noun.flags.network,
        examples=("snapshot take", "snapshot take --dry-run"),
    )
    take.add_argument("--dry-run", action="store_true", help="say which snapshot it would be; write none")
    check = noun.verb(
        "verify",
        "Check every frame, the count and the digest of a snapshot file, or a checkpoint of Kafka's; damage is exit code 6.",
        run=run_verify,
        parent=noun.flags.output,
        examples=("snapshot verify 00000000000000001200-0000000003.snapshot",),
    )
    check.add_argument("path", type=existing_path, metavar="FILE")


def run_list(args: argparse.Namespace) -> int:
    items = client_from(args).read("/v1/snapshots")["items"]
    show(args, items, table=lambda: render.table(SNAPSHOTS, items, empty="no snapshots"))
    return 0


def run_take(args: argparse.Namespace) -> int:
    if args.dry_run:
        return _show_due(args)
    taken = client_from(args).write("POST", "/v1/snapshots")
    show(args, taken, table=lambda: render.table(SNAPSHOTS, [taken], empty=""))
    return 0


def _show_due(args: argparse.Namespace) -> int:
    """Show the snapshot that a controller would write now, and the newest that it has."""
    from snapshots.snapshot_file import snapshot_id

    client = client_from(args)
    status = client.read("/v1/quorum")
    end_offset, epoch = status["high_watermark"], status["controller_epoch"]
    held = [one["id"] for one in client.read("/v1/snapshots")["items"]]
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

    show(args, due, table=table)
    return 0


def run_verify(args: argparse.Namespace) -> int:
    """Check every frame, the count and the digest of a snapshot file; damage ends in exit 6."""
    from metadata_log.digest import digest
    from snapshots.snapshot_file import read_snapshot

    if not args.path.is_file():
        fail_usage(f"{args.path} is no file; `metaquorum log verify DIR` checks all that a directory holds")
    kind = kind_of(args.path)
    if kind is Kind.CHECKPOINT:
        image = _checkpoint(args.path)
    elif kind in {None, Kind.SNAPSHOT}:
        with saying_what_to_do():
            image = read_snapshot(args.path)
    else:
        raise not_for("snapshot verify", args.path, reads="snapshots, and checkpoints of Kafka's")
    checked = {
        "path": str(args.path),
        "end_offset": image.end_offset,
        "controller_epoch": image.controller_epoch,
        "bytes": args.path.stat().st_size,
        "digest": digest(image),
    }
    show(args, checked, table=lambda: render.fields((k, render.plain(v)) for k, v in checked.items()))
    return 0


def _checkpoint(path: Path) -> MetadataImage:
    from metadata_log.replay.kafka.log import checkpoint_image, cluster_id_of

    return checkpoint_image(path, cluster_id=cluster_id_of(path.parent))
