"""Edge: the analyses, each one SQL text for both engines.

They are written in Spark's dialect; what DuckDB words otherwise is a macro there (engines.py) or, where it is
syntax, one of the substitutions below. A name in braces is a table the caller gives. A common table whose first line ends
with "-- kept" is named more than once, and has fewer rows than what it is made of.
Tests: tests/unit/metadata_log/replay/test_analyses.py.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

_LAMBDA: Final = re.compile(r"\b(\w+) -> ")
_IGNORE_NULLS: Final = re.compile(r"\) IGNORE NULLS")
_WORDS: Final = (
    ("transform(", "list_transform("),
    ("array(", "list_value("),
    ("[0]", "[1]"),
)


_COMMON_TABLE: Final = re.compile(
    r"^(?:WITH )?(\w+) AS \(( -- kept)?\n(.*?)^\),?\n", re.MULTILINE | re.DOTALL
)


class SparkSteps(NamedTuple):
    """An analysis as Spark is asked for it: each of the tables that it keeps, in order, by name, and then the query."""

    kept: tuple[tuple[str, str], ...]
    query: str


@cache
def spark_steps(name: str) -> SparkSteps:
    """Return the analysis of that name, its kept common tables apart: Spark plans a common table again, and computes it
    again, wherever it is named.

    A table that is kept is a name in braces to what comes after it.
    """
    text = spark_text(name)
    for found in _COMMON_TABLE.finditer(text):
        if found[2]:
            text = re.sub(rf"\b(FROM|JOIN) {found[1]}\b", rf"\1 {{{found[1]}}}", text)
    kept: list[tuple[str, str]] = []
    common: list[str] = []
    end = 0
    for found in _COMMON_TABLE.finditer(text):
        if found[2]:
            kept.append((found[1], _with(common, found[3])))
        else:
            common.append(f"{found[1]} AS (\n{found[3]})")
        end = found.end()
    return SparkSteps(tuple(kept), _with(common, text[end:]) if kept else text)


def _with(common: list[str], query: str) -> str:
    return "WITH " + ",\n".join(common) + "\n" + query if common else query


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
