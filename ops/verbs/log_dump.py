"""Edge: what `log dump` does: the records of the cluster over HTTP, or of files on this machine, piece by piece.
Tests: tests/unit/ops/verbs/test_log.py.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from metadata_log.errors import NotAuthorized, Rejected, Unavailable
from metadata_log.log.lines import log_lines
from metadata_log.records.registry import RECORD_TYPES
from metadata_log.replay.kinds import Kind, kind_of, not_for
from metadata_log.wire.shapes import INT32_MAX
from ops import render
from ops.admin.bulk_reads import bulk_source, read_in_bulk
from ops.admin.client import ClusterClient
from ops.admin.cluster import Cluster
from ops.admin.log_feed import feed_lines
from ops.admin.log_filter import Line, Wanted
from ops.admin.log_frames import (
    Frame,
    cluster_frames,
    file_frames,
    telling_of_its_beginning,
    within,
)
from ops.log_text import LogText
from ops.options import Network, R, argument, flag, option, reading
from ops.talk import fail_usage, put, say
from ops.values import existing_path, from_to, moment
from ops.when import OFFSET_MAX, AtOffset, AtTime, When

OCTETS: Final = "application/octet-stream"
TAIL: Final = 20


def log_range(run: R) -> R:
    """Declare which part of the log is read, and from which controller: `first`, `until` and `leader`."""
    leader = flag("--leader", help="read from the leader, not from a follower")
    until = option("--until", read=moment, metavar="WHEN", help="below this one; default: the end")
    first = option(
        "--from", "--since", "first", read=moment, metavar="WHEN", help="the first record; default: 0"
    )
    return first(until(leader(run)))


def _type_name(text: str) -> str:
    known = {each.__name__.removesuffix("Record").lower(): each.__name__ for each in RECORD_TYPES}
    if text.lower() not in known:
        names = ", ".join(sorted(name.removesuffix("Record") for name in known.values()))
        raise ValueError(f"{text!r} is no type of record; they are {names}")
    return text.lower()


def _filters(run: R) -> R:
    """Declare which records are shown: `topics`, and the fields of `Wanted`."""
    for declare in (
        option(
            "--cause",
            "causes",
            multiple=True,
            metavar="CODE",
            help="written because of this, or by this operation",
        ),
        option(
            "--type", "types", multiple=True, read=_type_name, metavar="TYPE", help="records of this type"
        ),
        option(
            "--actor", "actors", multiple=True, metavar="NAME", help="asked for by User:NAME, or Broker:ID"
        ),
        option(
            "--broker",
            "brokers",
            multiple=True,
            read=from_to(0, INT32_MAX),
            metavar="ID",
            help="about this broker, caused by it, or of a partition that it holds",
        ),
        option("--topic", "topics", multiple=True, metavar="NAME", help="only what concerns this topic"),
    ):
        run = declare(run)
    return run


def _wanted(
    *, brokers: Sequence[int], actors: Sequence[str], types: Sequence[str], causes: Sequence[str]
) -> Wanted:
    return Wanted(
        brokers=frozenset(brokers),
        actors=tuple(actors),
        types=frozenset(types),
        causes=frozenset(cause.lower() for cause in causes),
    )


@argument("path", "DIR|FILE", required=False, read=existing_path)
@log_range
@_filters
@flag("-f", "--follow", help="go on with what is written from now on")
@reading
def run_dump(
    asked: Network,
    *,
    path: Path | None,
    first: When | None,
    until: When | None,
    leader: bool,
    topics: Sequence[str],
    follow: bool,
    **filters: Any,
) -> int:
    """Print each record as one line; memory holds only the frames at hand."""
    match first, until:
        case (AtOffset(begin), AtOffset(end)) | (AtTime(begin), AtTime(end)) if end < begin:
            fail_usage("--until lies before --from")
    wanted = _wanted(**filters)
    if path is not None:
        if topics or follow:
            fail_usage("--topic and --follow read a running cluster, not files")
        _print(asked, wanted.of(_lines(_file_frames(path, first, until), first, until)))
        return 0
    if follow and until is not None:
        fail_usage("--follow has no end: leave out --until")
    client = asked.client()
    if topics or follow:
        lines: Iterator[Line] = feed_lines(
            client,
            topics=topics,
            first=None if first is None else first.query,
            until=None if until is None else until.query,
            follow=follow,
            from_leader=leader,
        )
    else:
        lines = _readable(client, first, until, from_leader=leader)
    _print(asked, wanted.of(lines), names=_names(asked, client), follows=follow, flush=bool(topics or follow))
    return 0


@option(
    "-n", "--lines", "count", read=from_to(0, INT32_MAX), default=TAIL, metavar="N", help=f"default: {TAIL}"
)
@_filters
@flag("-f", "--follow", help="go on with what is written from now on")
@reading
def run_tail(asked: Network, *, count: int, topics: Sequence[str], follow: bool, **filters: Any) -> int:
    """Print the last records, and with --follow what comes."""
    client = asked.client()
    source = bulk_source(client)
    first = max(source.status["log_start_offset"], source.end_offset - count)
    lines = feed_lines(client, topics=topics, first=str(first), until=None, follow=follow)
    wanted = _wanted(**filters)
    _print(asked, wanted.of(lines), names=_names(asked, client), follows=follow, flush=True)
    return 0


def _readable(
    client: ClusterClient, first: When | None, until: When | None, *, from_leader: bool
) -> Iterator[Line]:
    """Yield lines of the frames, which are quick to read; a reader, who may not see them, gets lines."""
    try:
        yield from _lines(_cluster_frames(client, first, until, from_leader=from_leader), first, until)
    except NotAuthorized:
        # Raised by the first answer, if at all: nothing was yielded.
        yield from feed_lines(
            client,
            topics=(),
            first=None if first is None else first.query,
            until=None if until is None else until.query,
            follow=False,
            from_leader=from_leader,
        )


def _names(asked: Network, client: Cluster) -> dict[str, str]:
    """Return the names of topics, by id, where text is wanted."""
    if not asked.is_text:
        return {}
    with suppress(Rejected, Unavailable):
        return {topic["topic_id"]: topic["name"] for topic in (*client.topics(), *client.deleted_topics())}
    return {}


def _print(
    asked: Network,
    lines: Iterable[Line],
    *,
    names: Mapping[str, str] | None = None,
    follows: bool = False,
    flush: bool = False,
) -> None:
    shown = lines if follows else _said_if_none(lines)
    text = LogText(asked.look, names).text(shown) if asked.is_text else _dumped(shown, asked.output)
    for piece in text:
        put(piece, output=asked.output, flush=flush)


def _cluster_frames(
    client: ClusterClient, first: When | None, until: When | None, *, from_leader: bool
) -> Iterator[Frame]:
    source = bulk_source(client, from_leader=from_leader)
    return telling_of_its_beginning(
        cluster_frames(
            lambda path: read_in_bulk(client, source, path, accept=OCTETS),
            first=None if first is None else first.query,
            until=None if until is None else until.query,
        ),
        first=first,
        begins_at=source.status["log_start_offset"],
        say=say,
    )


def _file_frames(path: Path, first: When | None, until: When | None) -> Iterator[Frame]:
    kind = kind_of(path)
    if kind not in {None, Kind.LOG, Kind.SEGMENT, Kind.SNAPSHOT} or (kind is None and path.is_file()):
        raise not_for("log dump", path, reads="logs, segments and snapshots of metaquorum")
    return within(file_frames(path, say=say), first=first, until=until, say=say)


def _lines(frames: Iterable[Frame], first: When | None, until: When | None) -> Iterator[Line]:
    """Yield the lines of frames whose offsets lie in the range; times were compared with whole frames."""
    from_offset = first.offset if isinstance(first, AtOffset) else 0
    until_offset = until.offset if isinstance(until, AtOffset) else OFFSET_MAX
    for frame in frames:
        for line in log_lines(frame.batch(), from_offset=from_offset):
            if line["offset"] < until_offset:
                yield line


def _said_if_none(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines, and say so if there are none: an empty dump looks like a log in which nothing happened."""
    is_empty = True
    for line in lines:
        is_empty = False
        yield line
    if is_empty:
        say("no record of the log lies in this range")


def _dumped(lines: Iterable[Line], output: str) -> Iterator[str]:
    """Yield the dump piece by piece: a log may be larger than memory."""
    match output:
        case "jsonl":
            yield from map(render.json_line, lines)
        case "json":
            before = "["
            for line in lines:
                yield f"{before}{render.json_line(line)}"
                before = ","
            yield "[]" if before == "[" else "]"
        case "yaml":
            for line in lines:
                yield render.rendered([line], output="yaml", table=str)
