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
from ops.admin.bulk_reads import bulk_source, read_in_bulk
from ops.admin.causes import CAUSES
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
from ops.command_line import render
from ops.command_line.log_text import LogText
from ops.command_line.options import Network, R, argument, either, flag, option, reading
from ops.command_line.talk import fail_usage, put, say
from ops.command_line.values import existing_path, from_to, moment
from ops.when import OFFSET_MAX, AtOffset, AtTime, When

OCTETS: Final = "application/octet-stream"
TAIL: Final = 20


def log_range(run: R, *more: str) -> R:
    """Declare which part of the log is read, and from which controller: `first`, `until` and `leader`.

    `more` are other words for --until.
    """
    leader = flag("--leader", help="read from the leader, not from a follower")
    until = option(
        "--until", *more, "until", read=moment, metavar="WHEN", help="below this one; default: the end"
    )
    first = option(
        "--from", "--since", "first", read=moment, metavar="WHEN", help="the first record; default: 0"
    )
    return first(until(leader(run)))


def _range_of_dump(run: R) -> R:
    return log_range(run, "--to")


def _type_names() -> list[str]:
    return sorted(each.__name__.removesuffix("Record") for each in RECORD_TYPES)


def _type_name(text: str) -> str:
    known = _type_names()
    if text.lower() not in map(str.lower, known):
        raise ValueError(f"{text!r} is no type of record; they are {', '.join(known)}")
    return text.lower()


def _cause(text: str) -> str:
    """Return a code, or the name of an operation, which is not written in capitals."""
    is_code = "_" in text or text.isupper()
    if is_code and text.upper() not in CAUSES:
        raise ValueError(f"{text!r} is no cause; they are {', '.join(CAUSES)}, and the names of operations")
    return text.lower()


def _filters(run: R) -> R:
    """Declare which records are shown: `topics`, and the fields of `Wanted`."""
    for declare in (
        option(
            "--cause",
            "causes",
            multiple=True,
            read=_cause,
            words=lambda: CAUSES,
            metavar="CODE",
            help="written because of this, or by this operation",
        ),
        option(
            "--type",
            "types",
            multiple=True,
            read=_type_name,
            words=_type_names,
            metavar="TYPE",
            help="records of this type",
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
        causes=frozenset(causes),
    )


@argument("path", "DIR|FILE", required=False, read=existing_path)
@_range_of_dump
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


@option("-n", "--lines", "count", read=from_to(0, INT32_MAX), metavar="N", help=f"default: {TAIL}")
@option("--since", "--from", "first", read=moment, metavar="WHEN", help="all since then, not the last N")
@either("count", "first")
@_filters
@flag("-f", "--follow", help="go on with what is written from now on")
@reading
def run_tail(
    asked: Network,
    *,
    count: int | None,
    first: When | None,
    topics: Sequence[str],
    follow: bool,
    **filters: Any,
) -> int:
    """Print the last records, and with --follow what comes."""
    client = asked.client()
    if first is None:
        source = bulk_source(client)
        last = TAIL if count is None else count
        begin = str(max(source.status["log_start_offset"], source.end_offset - last))
    else:
        begin = first.query
    lines = feed_lines(client, topics=topics, first=begin, until=None, follow=follow)
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
        say("no such record lies in this range of the log")


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
