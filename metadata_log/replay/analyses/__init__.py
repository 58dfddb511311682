"""P: the analyses, each one SQL text for both engines.

They are written in Spark's dialect; what DuckDB words otherwise is a macro there (engines.py) or, where it is
syntax, one of the substitutions below. A name in braces is a table the caller gives.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Final

_LAMBDA: Final = re.compile(r"\b(\w+) -> ")
_IGNORE_NULLS: Final = re.compile(r"\) IGNORE NULLS")
_TRANSFORM: Final = re.compile(r"\btransform\(")
_EXPLODE: Final = re.compile(r"\bexplode\(")


@cache
def spark_text(name: str) -> str:
    """Return the analysis of that name as it is written."""
    return files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")


@cache
def duckdb_text(name: str) -> str:
    """Return the analysis of that name in DuckDB's words."""
    text = _LAMBDA.sub(r"lambda \1: ", spark_text(name))
    text = _IGNORE_NULLS.sub(" IGNORE NULLS)", text)
    text = _EXPLODE.sub("unnest(", _TRANSFORM.sub("list_transform(", text))
    return text.replace("[0]", "[1]")
