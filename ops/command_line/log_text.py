"""Pure: lines of the log as text for people: each batch with its time, why it was written and by whom, then its records.
Tests: tests/unit/ops/command_line/test_log_text.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from metadata_log.batch import Cause
from ops.admin.causes import why
from ops.admin.log_filter import Line
from ops.command_line import render
from ops.command_line.render import Look
from ops.when import time_text

LEFT_OUT: Final = frozenset(
    {"directories", "leader_epoch", "partition_epoch", "leader_recovery_state", "partition_id"}
)
"""Fields of partitions that only `-o wide` shows."""


class LogText:
    """Writes lines as text; it learns the names of topics from the records that it sees."""

    def __init__(self, look: Look, names: Mapping[str, str] | None = None) -> None:
        """`names` are those of topics, by id."""
        self._look = look
        self._names = dict(names or {})
        self._about: tuple[Any, ...] | None = None

    def text(self, lines: Iterable[Line]) -> Iterator[str]:
        for line in lines:
            record = line["record"]
            if isinstance(record.get("topic_id"), str) and isinstance(record.get("name"), str):
                self._names[record["topic_id"]] = record["name"]
            about = (
                line["time_ms"],
                line["controller_epoch"],
                line["actor"],
                line["request_id"],
                line["operation"],
            )
            if about != self._about:
                self._about = about
                yield self._look.painted(self._heading(line), "heading")
            yield self._record(line)

    def _heading(self, line: Line) -> str:
        cause = line["cause"]
        told = None if cause is None else Cause(cause["code"], cause["ref_offset"], cause["detail"])
        words = [f"{time_text(line['time_ms'])}  {why(told, line['operation'])}"]
        if line["actor"] is not None:
            words.append(f"by {render.plain(line['actor'])}")
        if self._look.is_wide:
            words.append(f"controller epoch {line['controller_epoch']}")
            if line["request_id"] is not None:
                words.append(f"request {line['request_id']}")
        return ", ".join(words)

    def _record(self, line: Line) -> str:
        record, words = line["record"], []
        named = self._names.get(record.get("topic_id", ""))
        is_partition = named is not None and "partition_id" in record
        if named is not None:
            words.append(
                f"{render.plain(named)}:{record['partition_id']}" if is_partition else render.plain(named)
            )
        for key, value in record.items():
            is_said = named is not None and (
                key in {"topic_id", "name"} or (is_partition and key == "partition_id")
            )
            is_shown = self._look.is_wide or key not in LEFT_OUT or (key == "partition_id" and named is None)
            if value in (None, []) or (is_said and not self._look.is_wide) or not is_shown:
                continue
            words.append(f"{key}={render.plain(value)}")
        return f"{line['offset']:>10}  {line['type']:<22}  {' '.join(words)}".rstrip()
