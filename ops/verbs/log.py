"""Edge: `log dump|tail|verify|export`: the log of the cluster over HTTP, or of files here; `dump` is in `log_dump.py`."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from metadata_log import limits
from metadata_log.errors import (
    DamagedFile,
    InvalidRequest,
    Unavailable,
    UnknownFormat,
    another_version,
)
from metadata_log.node.disk.data_directory import is_fresh, load_meta
from metadata_log.node.disk.durable_files import renamed_os_errors
from metadata_log.replay.kinds import Kind, kind_of, not_for
from ops.admin.connect import DEFAULT_CLUSTER_FILE
from ops.command_line import render
from ops.command_line.options import Network, Noun, Output, argument, flag, option, output, reading
from ops.command_line.talk import fail_usage, patience, say
from ops.command_line.values import directory, existing_path, seconds
from ops.foreign_logs import FOREIGN, checked, verified
from ops.processes import running_process
from ops.verbs import log_dump
from ops.verbs.log_dump import log_range
from ops.when import AtOffset, When

JOURNAL: Final = "journal"
Export: TypeAlias = Callable[..., dict[str, Any]]
"""Writes an export to the folder `to`, and returns its manifest."""


NOUN: Final = Noun()


NOUN.verb(
    "dump",
    "Print records: of the cluster, or offline of a data directory, a segment or a snapshot.",
    "log dump --from -10m -o jsonl",
    "log dump metaquorum-data/controller-1 --from 0 --until 50",
    "log dump --topic orders --from -1h --follow -o jsonl",
    "log dump --broker 13 --actor User:anna --type PartitionChange --cause SESSION_EXPIRED --since -1d",
)(log_dump.run_dump)
NOUN.verb(
    "tail",
    "Print the last records, and with -f what is written from now on.",
    "log tail -f",
    "log tail -n 100 --broker 13 -o jsonl",
    "log tail -f --since -1h --cause SESSION_EXPIRED",
)(log_dump.run_tail)


@NOUN.verb(
    "verify",
    "Check every frame of segments, snapshots and journals offline, of Kafka's log, and each byte of exports; damage is "
    "exit code 6 and names file and byte.",
    "log verify metaquorum-data/controller-1",
    "log verify 00000000000000000000.log",
)
@argument("path", "DIR|FILE", required=False, read=existing_path, help="default: all of ./metaquorum-data")
@output
def run_verify(asked: Output, *, path: Path | None) -> int:
    """Check segments, snapshots and journals byte by byte, without changing them or disturbing a running node."""
    rows: list[dict[str, Any]] = []
    for each in _logs_below(path):
        ends = {result["path"]: result["end_offset"] for result in rows if result["kind"] == "log"}
        with patience(f"{each} is being verified"):
            rows += _verified(each, ends)
    if not rows:
        raise InvalidRequest(
            f"{path or DEFAULT_CLUSTER_FILE.parent}: holds no segment, no snapshot and no journal to verify"
        )
    columns = [
        render.Column(key) for key in ("path", "kind", "files", "frames", "bytes", "end_offset", "torn_bytes")
    ]
    asked.show_items(rows, columns, empty="")
    return 0


def _logs_below(path: Path | None) -> Iterator[Path]:
    """Yield the paths to verify: a file, or the logs, snapshots and journals of the data directories in a folder."""
    path = DEFAULT_CLUSTER_FILE.parent if path is None else path
    with renamed_os_errors(path):
        path.stat()
        if path.is_file() or kind_of(path) in FOREIGN:
            yield path
            return
        nodes = [path, *sorted(meta.parent for meta in path.glob("*/meta.json"))]
        if any(path.glob("[0-9]*.log")) or path.name in {"log", JOURNAL}:
            yield path
        for node in nodes:
            if (node / "meta.json").exists():
                yield node / "log"
                yield from sorted((node / "snapshots").glob("*.snapshot"))
                if load_meta(node).role == "controller":
                    yield node / JOURNAL
        if not (path / "meta.json").exists():
            yield from sorted(path.glob("*.snapshot"))


def _verified(path: Path, ends: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Check one path; `ends` has the end offsets of the logs checked before, by path."""
    from metadata_log.log.recovery import verify
    from snapshots.snapshot_file import read_snapshot

    kind = kind_of(path)
    if kind in FOREIGN:
        yield from verified(path)
        return
    if kind is Kind.PARQUET or (kind is None and path.is_file()):
        raise not_for("log verify", path, reads="logs, segments, snapshots, journals and exports")
    if path.name == JOURNAL:
        yield from _verified_journal(path, log_end=ends.get(str(path.parent / "log")))
        return
    if path.suffix == ".snapshot":
        with saying_what_to_do():
            image = read_snapshot(path)
        yield checked(path, "snapshot", files=1, size=path.stat().st_size, end=image.end_offset)
        return
    with saying_what_to_do():
        found = verify(path)
    yield checked(
        path,
        "log",
        files=found.files,
        frames=found.frames,
        size=found.size,
        start=found.start_offset,
        end=found.end_offset,
        torn=found.torn_bytes,
    )


@contextmanager
def saying_what_to_do() -> Iterator[None]:
    """Add the next step to an error about a damaged segment or snapshot."""
    try:
        yield
    except DamagedFile as error:
        error.message += (
            ". A running node gets it again from the controllers that have it; if none has, see "
            "ops/runbooks/damaged-segment.md"
        )
        raise


def _verified_journal(path: Path, *, log_end: int | None) -> Iterator[dict[str, Any]]:
    """Check a Raft journal, its snapshot pointer, and that the journal fits the log beside it.

    `log_end` None: that log is not checked.

    Raises:
        DamagedFile: the node would refuse to start on it, or the log ends below the snapshot.
    """
    from quorum.raft import pointer
    from quorum.raft.journal.lost import check_reaches_log, lost_journal
    from quorum.raft.journal.os_disk import OsDisk
    from quorum.raft.journal.recovery import REPLACE_THE_VOTER, verify
    from snapshots.snapshot_file import position_of

    if running_process(path.parent) is not None:
        # A journal that is written while we read it looks damaged.
        say(f"{path}: not verified, for its node runs: stop it first")
        return
    if not path.exists():
        raise lost_journal(path.parent)
    disk, snapshot_end = OsDisk(path, read_only=True), 0
    try:
        found = verify(disk, file_bytes=limits.JOURNAL_FILE_BYTES, may_be_new=is_fresh(path.parent))
        snapshot = disk.read(pointer.FILE_NAME)
        if snapshot is not None:
            snapshot_end = position_of(pointer.Pointer.from_bytes(snapshot).snapshot_id)[0]
        elif found.entries and found.entries[0][1] > 1:
            raise ValueError(f"it is missing, and the journal begins at entry {found.entries[0][1]}")
    except DamagedFile as error:
        raise DamagedFile(f"{path}: {error.message}", path=str(path)) from error
    except UnknownFormat as error:
        raise another_version(path / pointer.FILE_NAME, error) from error
    except ValueError as error:
        at = path / pointer.FILE_NAME
        raise DamagedFile(f"{at}: byte 0: {error}. {REPLACE_THE_VOTER}", path=str(at)) from error
    check_reaches_log(
        path.parent,
        log_end=log_end or 0,
        entries=found.entries,
        snapshot_end=snapshot_end,
        has_snapshots=any((path.parent / "snapshots").glob("*.snapshot")),
        is_begun=found.batches > 0,
    )
    if log_end is not None and log_end < snapshot_end:
        with saying_what_to_do():
            beside = path.parent / "log"
            raise DamagedFile(
                f"{beside}: ends at offset {log_end}, below the snapshot at {snapshot_end} on which the journal stands",
                path=str(beside),
            )
    if found.torn_bytes:
        say(
            f"{path}: {found.torn_bytes} bytes at the end are torn by a crash; the node cuts them when it starts"
        )
    yield checked(
        path, "journal", files=found.files, frames=found.batches, size=found.size, torn=found.torn_bytes
    )


@NOUN.verb(
    "export",
    "Write the log as Parquet, what is new only, and print the manifest: of the cluster, or of a directory.",
    "log export --to export",
    "log export --to export --follow",
    "log export metaquorum-data/controller-1 --to lake --lake",
    "log export /var/lib/kafka/metadata --to lake --lake",
)
@argument(
    "path",
    "DIR",
    required=False,
    read=existing_path,
    help="a data directory, a folder of segments, or Kafka's metadata.log.dir; its node may be running",
)
@option("--to", read=directory, required=True, metavar="DIR")
@option(
    "--format",
    "form",
    choices=("metaquorum", "kafka"),
    help="whose log DIR holds; default: as its files look",
)
@flag(
    "--skip-damaged",
    help="of DIR's damaged segment files, take the longest part that is whole; stderr says what is missing",
)
@flag("--lake", help="--to is a folder of several clusters: write to cluster=ID in it")
@flag("--follow", help="go on with what is written from now on, until Ctrl-C")
@option(
    "--every",
    read=seconds,
    default=5.0,
    metavar="S",
    help="how long --follow waits between two exports; default: 5s",
)
@log_range
@reading
def run_export(
    asked: Network,
    *,
    path: Path | None,
    to: Path,
    form: str | None,
    skip_damaged: bool,
    lake: bool,
    follow: bool,
    every: float,
    first: When | None,
    until: When | None,
    leader: bool,
) -> int:
    """Export the new records."""
    from ops.admin.export import export_cluster

    if follow and until is not None:
        fail_usage("--follow has no end: leave out --until")
    part: dict[str, Any] = {"first": first, "until": until, "in_lake": lake}
    if path is None:
        if form is not None:
            fail_usage("--format is that of a directory's log: name the directory")
        if skip_damaged:
            fail_usage("--skip-damaged is for the files of a directory: name the directory")
        run: Export = partial(export_cluster, asked.client(), from_leader=leader, **part)
    else:
        if leader:
            fail_usage("--leader reads a running cluster, not files")
        if skip_damaged and follow:
            fail_usage("--skip-damaged takes what is whole now: leave out --follow")
        run = _export_of_files(path, form, skip_damaged=skip_damaged, **part)
    if follow:
        _follow(run, to, every)
    with patience("the log is being exported"):
        manifest = run(to=to)
    _say_unknown(to, manifest)
    columns = [
        render.Column(key, is_wide=key == "family")
        for key in ("path", "family", "rows", "first_offset", "last_offset", "bytes")
    ]
    asked.show(
        manifest,
        table=lambda: "\n\n".join(
            (
                asked.table(columns, manifest["files"], empty="no files"),
                render.fields(
                    (k, render.plain(v)) for k, v in manifest.items() if k not in {"files", "superseded"}
                ),
            )
        ),
    )
    return 0


def _export_of_files(
    path: Path,
    form: str | None,
    *,
    skip_damaged: bool,
    first: When | None,
    until: When | None,
    in_lake: bool,
) -> Export:
    from metadata_log.replay.damaged import export_whole_part
    from metadata_log.replay.source import export_files

    for word, asked in (("--from", first), ("--until", until)):
        if asked is not None and not isinstance(asked, AtOffset):
            fail_usage(f"{word} of a directory is an offset")
    begin, end = (asked.offset if isinstance(asked, AtOffset) else None for asked in (first, until))
    part: dict[str, Any] = {"form": form, "from_offset": begin, "until": end, "in_lake": in_lake}
    if not skip_damaged:
        return partial(export_files, path, **part)

    def whole_part(to: Path) -> dict[str, Any]:
        manifest, missing = export_whole_part(path, to, **part)
        for line in missing:
            say(line)
        return manifest

    return whole_part


def _say_unknown(to: Path, manifest: dict[str, Any], told: object = None) -> object:
    """Say once which records this release does not know; return what was told."""
    from metadata_log.replay.opaque import Unknown

    unknown = Unknown.of(manifest.get("unknown"))
    if unknown is not None and unknown != told:
        say(f"{to}: {unknown.line}")
    return unknown


class _Once(logging.Filter):
    """Lets each warning pass once: an export that follows a log would repeat it with every run."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        line = record.getMessage()
        is_new = line not in self._seen
        self._seen.add(line)
        return is_new


def _follow(run: Export, to: Path, every_s: float) -> NoReturn:
    """Export again and again; what a moment's fault costs is made up for by the next run."""
    ended, told = -1, None
    if logging.lastResort is not None:
        logging.lastResort.addFilter(_Once())
    while True:
        try:
            with patience("the log is being exported") if ended < 0 else nullcontext():
                manifest = run(to=to)
            if manifest["end_offset"] != ended:
                ended = manifest["end_offset"]
                say(f"{to}: exported up to offset {ended}")
                told = _say_unknown(to, manifest, told)
        except Unavailable as error:
            say(f"{error.message}; trying again")
        time.sleep(every_s)
