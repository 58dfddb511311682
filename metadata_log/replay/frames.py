"""Edge: an analyst's own frames as tables beside those of the log: `log.sql("SELECT ... JOIN hosts ...", hosts=df)`."""

from typing import Any, Final

import pyarrow as pa

from metadata_log.errors import InvalidRequest
from metadata_log.replay.catalog import TABLES

_ACCEPTED: Final = "a frame of pandas, polars, DuckDB or Spark, a table of Arrow, or a list of rows as dicts"


def arrow_of(name: str, frame: Any) -> pa.Table:
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
            case list():
                return pa.Table.from_pylist(frame)
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
