"""Edge: the change feed of a cluster as the CLI follows it: from any controller, each record once, none skipped."""

import json
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any, Final

from metadata_log.errors import OffsetInFuture, Unavailable
from ops.admin.bulk_reads import Source, bulk_source
from ops.admin.client import ClusterClient
from ops.admin.exchange import Answer, Unreachable

NDJSON: Final = "application/x-ndjson"
WAIT_MS: Final = 5_000
"""An answer without news takes this long."""
GRACE_S: Final = 1.0
"""A controller that is later than this after WAIT_MS hangs, and is left for another one."""
PAUSE_S: Final = 0.5


def feed_lines(
    client: ClusterClient,
    *,
    topics: Sequence[str],
    first: str | None,
    until: str | None,
    follow: bool,
    from_leader: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the lines that concern some topics (none given: all lines) from `first` on (None: where the log begins).

    With `follow` it goes on for ever, and stderr says where history ends and news begins.

    What one answer brings is yielded once it is whole, and the next request begins after it. So a controller that dies
    costs nothing: the next one goes on at the same offset.

    Raises:
        Rejected: the controllers refuse the request; OFFSET_COMPACTED: the log begins later.
        OffsetInFuture: the log ends before `first` or `until`.
        Unreachable: no controller answers, and nothing is to be followed.
    """
    at = first
    source: Source | None = None
    is_told = False
    while True:
        try:
            if source is None:
                source = bulk_source(client, from_leader=from_leader)
                if at is first:
                    _check_is_written(source, first, until)
            if at is None:
                at = str(source.status["log_start_offset"])
            path = _path(topics, at, until, wait_ms=WAIT_MS if follow else 0)
            answer = _followed(client, source.url, path) if follow else _whole(client, source, path)
            lines, next_offset = _read(answer)
        except Unavailable as error:
            if not follow:
                raise
            client.say(f"{error.message}; going on from offset {at or 0}")
            source = None
            time.sleep(PAUSE_S)
            continue
        yield from lines
        if follow and not is_told and next_offset >= source.end_offset:
            client.say(f"up to offset {next_offset} is history; what follows is written from now on")
            is_told = True
        is_further, at = str(next_offset) != at, str(next_offset)
        if not follow and (next_offset >= source.end_offset or not (lines or is_further)):
            if until is not None and until.isdigit() and next_offset < int(until):
                client.say(
                    f"{until} lies inside the batch that begins at offset {next_offset}: shown up to there"
                )
            return


def lines_between(client: ClusterClient, first: int, until: int) -> Iterator[dict[str, Any]]:
    """Yield the lines between two offsets that were written; a broker passes the request on.

    Raises:
        Rejected, Unavailable: as `ClusterClient.get`.
    """
    while first < until:
        answer = client.get(f"/v1/log/lines?from={first}&until={until}&wait_ms=0", accept=NDJSON)
        lines, next_offset = _read(answer)
        yield from lines
        if next_offset <= first:
            return
        first = next_offset


def _check_is_written(source: Source, *offsets: str | None) -> None:
    """Check that a feed would not wait for an offset that is far from written: a mistyped one is answered by silence.

    Raises:
        OffsetInFuture: one lies beyond what was acknowledged before.
    """
    for offset in offsets:
        if offset is not None and offset.isdigit() and int(offset) > source.end_offset:
            raise OffsetInFuture(f"offset {offset} lies beyond the high watermark {source.end_offset}")


def _followed(client: ClusterClient, url: str, path: str) -> Answer:
    """Return what a controller answers within the time that it may wait for news, and a little more."""
    answer = client.ask_one(url, path, accept=NDJSON, timeout_s=WAIT_MS / 1000 + GRACE_S)
    if not answer.ok:
        raise answer.error()
    return answer


def _whole(client: ClusterClient, source: Source, path: str) -> Answer:
    return client.ask_in_turn(source.urls, path, accept=NDJSON)


def _path(topics: Sequence[str], at: str, until: str | None, *, wait_ms: int) -> str:
    query = {"from": at, "wait_ms": str(wait_ms), "consistency": "stale"}
    if topics:
        query["topics"] = ",".join(topics)
    if until is not None:
        query["until"] = until
    return f"/v1/log?{urllib.parse.urlencode(query)}"


def _read(answer: Answer) -> tuple[list[dict[str, Any]], int]:
    """Return the lines of an answer, and the offset to go on from.

    Raises:
        Unreachable: the answer is not whole, or no feed.
    """
    try:
        *lines, last = [json.loads(line) for line in answer.body.splitlines()]
        return lines, int(last["next_offset"])
    except (ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"{answer.url} did not end its answer with the offset to go on from") from error
