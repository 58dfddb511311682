"""Edge: a section of the report is an entry: the table that it reads, and how its rows are shown."""

from dataclasses import replace
from typing import Any, cast

import pytest

from metadata_log.replay.catalog import TABLES
from metadata_log.replay.report.section import Row, Section, Told
from metadata_log.replay.report.sections import JSON_TABLES, SECTIONS

MADE_UP = Section(
    reads="made_up",
    title="Made up",
    columns=("n", "since"),
    cells=lambda row, first: (row["n"], "before" if row["at"] < first else row["at"]),
    by=lambda row: -row["n"],
    order="the largest first",
)


class Rows:
    """Stands in for what is told of a log that begins at offset 5."""

    first_offset = 5

    def __init__(self, *found: Row) -> None:
        self._found = found

    def rows(self, name: str) -> list[Row]:
        assert name == "made_up"
        return [*self._found]


def shown(section: Section, *found: Row) -> str | None:
    return section.markdown(cast("Told", cast("Any", Rows(*found))))


def test_rows_are_shown_in_the_order_of_the_section() -> None:
    text = shown(MADE_UP, {"n": 1, "at": 9}, {"n": 2, "at": 4})
    assert text == "## Made up\n\n| n | since |\n| --- | --- |\n| 2 | before |\n| 1 | 9 |"


@pytest.mark.parametrize(("none", "expected"), [(None, None), ("Nothing.", "## Made up\n\nNothing.")])
def test_without_rows_a_section_says_so_or_is_left_out(none: str | None, expected: str | None) -> None:
    assert shown(replace(MADE_UP, none=none)) == expected


def test_a_section_without_a_title_is_in_the_json_alone() -> None:
    assert shown(replace(MADE_UP, title="")) is None


def test_every_section_reads_a_table_that_there_is_once() -> None:
    read = [section.reads for section in SECTIONS if section.reads]
    assert len(read) == len({*read}) and {*read} - {*TABLES} == {"under_min_isr"}
    assert {*JSON_TABLES} == {section.reads for section in SECTIONS if section.in_json and section.reads}
    assert len(JSON_TABLES) == len({*JSON_TABLES})
