"""Edge: the analyses, each one SQL text for both engines.

They are written in Spark's dialect; what DuckDB words otherwise is a macro there (engines.py) or, where it is
syntax, one of the substitutions below. A name in braces is a table the caller gives.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Final

_LAMBDA: Final = re.compile(r"\b(\w+) -> ")
_IGNORE_NULLS: Final = re.compile(r"\) IGNORE NULLS")
_WORDS: Final = (
    ("transform(", "list_transform("),
    ("array(", "list_value("),
    ("[0]", "[1]"),
)


@cache
def spark_text(name: str) -> str:
    """Return the analysis of that name as it is written."""
    return files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")


@cache
def duckdb_text(name: str) -> str:
    """Return the analysis of that name in DuckDB's words."""
    return in_duckdb(spark_text(name))


def in_duckdb(text: str) -> str:
    """Return SQL of Spark's dialect in DuckDB's words."""
    text = _LAMBDA.sub(r"lambda \1: ", text)
    text = _IGNORE_NULLS.sub(" IGNORE NULLS)", text)
    for ours, theirs in _WORDS:
        text = text.replace(ours, theirs)
    return text
