"""Pure: the rows of an answer as JSON, CSV and Parquet have them. Tests: tests/unit/metadata_log/replay/test_library.py."""

import io
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metadata_log.errors import InvalidRequest


def plain_rows_of(computed: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table of Arrow as JSON can hold them: times as text in UTC, and null for what is no number.

    Raises:
        InvalidRequest: it has times that Python does not know.
    """
    try:
        rows = computed.to_pylist()
    except (OverflowError, ValueError) as error:
        raise InvalidRequest(f"the answer cannot be shown: {error}: cast such columns to text") from error
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def parquet_of(computed: pa.Table) -> bytes:
    """Return a table of Arrow as a file of Parquet."""
    buffer = io.BytesIO()  # a pipe has no position, which a writer of Parquet asks for
    pq.write_table(computed, buffer, compression="zstd")
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            zoned = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return zoned.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case Decimal():
            return int(value) if value == int(value) else float(value)
        case pa.MonthDayNano():  # a tuple, too
            return str(value)
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)
