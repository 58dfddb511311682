"""Edge: where the shell's states come from: a running cluster, or a log or a state in files.

Tests: tests/unit/ops/shell/test_commands.py, tests/cluster/test_answers.py.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from metadata_log.apply import apply
from metadata_log.errors import InvalidRequest, OffsetCompacted, OffsetInFuture
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from ops.admin.causes import why
from ops.admin.client import ClusterClient
from ops.admin.explain import History, Step
from ops.admin.live_state import history, newer_image
from ops.command_line.values import moment
from ops.shell.commands import Moment, difference_lines
from ops.shell.tree import Path, differences, node_at, part_of, root, text_of
from ops.when import AtOffset, AtTime, When, time_text

if TYPE_CHECKING:
    from metadata_log.replay.library import Log

SHOWN_MAX: Final = 20
"""So many differing files of one batch are printed; of the others, the number."""


class ClusterSource:
    """A running cluster: snapshots and the log after them, read from a follower."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._newest = EMPTY

    def state_at(self, when: str | None) -> Moment:
        self._newest = newer_image(self._client, self._newest)
        if when is None:
            return Moment(self._newest)
        asked = _read(when)
        if isinstance(asked, AtOffset) and asked.offset > self._newest.end_offset:
            raise OffsetInFuture(f"the log ends at offset {self._newest.end_offset}, below {asked.offset}")
        return _folded(history(self._client, since=asked), asked)

    def history(self, path: Path) -> Iterator[str]:
        before: Step | None = None
        for step in history(self._client).steps:
            if before is not None:
                yield from _change(before, step.before, path)
            before = step
        if before is not None:
            yield from _change(before, apply(*before).image, path)


class FileSource:
    """An opened log: an export, or what was exported for this."""

    def __init__(self, log: "Log[Any]") -> None:
        self._log = log

    def state_at(self, when: str | None) -> Moment:
        from metadata_log.replay.digest import folded

        asked = None if when is None else _read(when)
        match asked:
            case AtTime(unix_ms):
                position = self._log.position(datetime.fromtimestamp(unix_ms / 1_000, UTC))
            case _:
                position = self._log.position(None if asked is None else asked.offset)
        image = folded(self._log.export, position.end_offset)
        # A fold of an export does not carry the time of each batch.
        image = replace(image, last_time_ms=position.time_ms)
        return Moment(image, "" if asked is None else position.note)

    def history(self, path: Path) -> Iterator[str]:
        from metadata_log.replay.plain import plain_rows_of

        rows = plain_rows_of(self._log.engine.answer(self._log.history(_key(path))))
        for row in rows:
            yield "  ".join(str(value) for value in row.values() if value not in (None, ""))


def _read(when: str) -> When:
    try:
        return moment(when)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error


def _folded(since: History, asked: When) -> Moment:
    """Return the state at a moment that is not before `since`."""
    image = since.image
    if isinstance(asked, AtOffset) and image.end_offset > asked.offset:
        raise OffsetCompacted(f"the log begins at offset {image.end_offset}, above {asked.offset}")
    for before, batch in since.steps:
        is_beyond = (
            batch.appended_at_ms > asked.unix_ms
            if isinstance(asked, AtTime)
            else batch.end_offset > asked.offset
        )
        if is_beyond:
            break
        image = apply(before, batch).image
    note = ""
    if isinstance(asked, AtOffset) and image.end_offset != asked.offset:
        note = f"{asked.offset} lies inside a batch that begins at {image.end_offset}: shown there"
    return Moment(image, note)


def _change(step: Step, after: MetadataImage, path: Path) -> Iterator[str]:
    """Yield what a batch changed below a path: a line for the batch, and one for each file, at most SHOWN_MAX.

    The provenance is left out of the root's history: every batch changes it.
    """
    before, batch = step
    was, now = root(before), root(after)
    paths = [path] if path else [(name,) for name in now.names() if name != "provenance"]
    changed = chain.from_iterable(
        differences(node_at(was, each), node_at(now, each), each)
        for each in paths
        if part_of(before, each) != part_of(after, each)
    )
    shown = [*islice(changed, SHOWN_MAX)]
    if not shown:
        return
    envelope = batch.envelope
    actor = f", by {envelope.actor}" if envelope.actor else ""
    yield f"{time_text(batch.appended_at_ms)} offset {batch.base_offset}: {why(envelope.cause, envelope.operation)}{actor}"
    yield from (f"    {line}" for line in difference_lines(shown))
    further = sum(1 for _ in changed)
    if further:
        yield f"    and {further:,} further files"


def _key(path: Path) -> str:
    """Return how an export names what a path shows.

    Raises:
        InvalidRequest: it has no history there.
    """
    match path:
        case ("topics", topic, *below) if not below or below == ["topic_id"]:
            return f"topic:{topic}"
        case ("topics", topic, "partitions", number):
            return f"{topic}:{number}"
        case ("brokers", broker_id):
            return f"broker:{broker_id}"
        case ("controllers", controller_id):
            return f"controller:{controller_id}"
        case ():
            return "cluster"
    raise InvalidRequest(
        f"a log in files has no history of {text_of(path)}: name a topic, a partition, a broker, a controller or /"
    )
