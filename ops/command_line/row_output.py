"""Edge: the rows of an answer on stdout: as a table, as JSON, and for other programs as CSV or Parquet.
Tests: tests/unit/ops/verbs/test_replay.py.
"""

import csv
import io
import json
import sys
from dataclasses import replace
from typing import Any

from ops.command_line import render
from ops.command_line.options import Output
from ops.command_line.talk import fail_usage


def check_output(asked: Output) -> None:
    """Refuse to write Parquet, which is no text, on a screen; before the work, and not after it."""
    if asked.output == "parquet" and sys.stdout.isatty():
        fail_usage("Parquet is no text: send it to a file, as `... -o parquet > answer.parquet`")


def show_rows(asked: Output, answer: Any) -> None:
    """Print a table of Arrow as the flags ask for it."""
    from metadata_log.replay.plain import parquet_of, plain_rows_of

    match asked.output:
        case "parquet":
            _put_bytes(parquet_of(answer))
        case "csv":
            _put_bytes(_csv(answer.column_names, plain_rows_of(answer)))
        case _:
            show_items(asked, plain_rows_of(answer))


def show_items(asked: Output, items: list[dict[str, Any]]) -> None:
    columns = [render.Column(key) for key in (items[0] if items else ())]
    asked.show(items, table=lambda: _drawn(asked, columns, items))


def _drawn(asked: Output, columns: list[render.Column], items: list[dict[str, Any]]) -> str:
    """Return a table, or each row as lines of its own where the table would be wider than what it is shown on."""
    look = asked.look
    measured = render.table(
        columns, items, empty="no rows", look=replace(look, shortens=False, colours=False)
    )
    if look.width is None or max(map(len, measured.splitlines())) <= look.width:
        return asked.table(columns, items, empty="no rows")
    return "\n\n".join(
        render.fields((column.key, column.show(item[column.key])) for column in columns) for item in items
    )


def _csv(names: list[str], rows: list[dict[str, Any]]) -> bytes:
    """Return CSV as RFC 4180 has it, in UTF-8: nothing for null, and JSON for what is no single value."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows([_cell(row[name]) for name in names] for row in rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cell(value: Any) -> Any:
    match value:
        case bool() | list() | dict():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return value


def _put_bytes(content: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
