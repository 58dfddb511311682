"""Edge: an analyst's own frames as tables beside those of the log: `log.sql("SELECT ... JOIN hosts ...", hosts=df)`.
Tests: tests/unit/metadata_log/replay/test_library.py.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from metadata_log.errors import InvalidRequest
from metadata_log.replay.catalog import TABLES

_ACCEPTED: Final = "a frame of pandas, polars, DuckDB or Spark, a table of Arrow, or a list of rows as dicts"


class OfSpark(Protocol):
    """A DataFrame of Spark."""

    def toArrow(self) -> pa.Table: ...  # noqa: N802 as Spark names it


class OfDuckDb(Protocol):
    """A relation of DuckDB."""

    def to_arrow_table(self) -> pa.Table: ...


class OfPolars(Protocol):
    """A frame of polars."""

    def to_arrow(self) -> pa.Table: ...


class OfArrow(Protocol):
    """A table of Arrow, a frame of pandas, or whatever else speaks Arrow."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


Frame: TypeAlias = (
    Sequence[Mapping[str, object]] | Mapping[str, object] | OfSpark | OfDuckDb | OfPolars | OfArrow
)
"""What a query may name beside the log's tables: a frame, rows as dicts, or columns by name."""


def arrow_of(name: str, frame: Frame) -> pa.Table:
    """Return a caller's frame as a table of Arrow.

    Raises:
        InvalidRequest: the name is a table's of the log, or no name, or the frame is of no known kind.
    """
    if name.lower() in TABLES or not name.isidentifier():
        raise InvalidRequest(f"a frame cannot be named {name!r}: name it as no table of the log is named")
    try:
        match frame:
            case pa.Table():
                return frame
            case list() | tuple():
                return pa.Table.from_pylist(list(frame))
            case dict():
                return pa.table(frame)
        for method in ("toArrow", "to_arrow_table", "to_arrow"):  # of Spark, of DuckDB, of polars
            if callable(convert := getattr(frame, method, None)):
                return convert()
        if hasattr(frame, "__arrow_c_stream__"):  # pandas, and whatever else speaks Arrow
            return pa.table(frame)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise InvalidRequest(f"the frame {name!r} cannot be read: {str(error).splitlines()[0]}") from error
    raise InvalidRequest(f"{name!r} is of type {type(frame).__name__}: wanted is {_ACCEPTED}")
