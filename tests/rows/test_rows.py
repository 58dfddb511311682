"""Edge: how ids of rows are found, and what is in the table."""

from pathlib import Path

import pytest

from tests.rows.scan import carried, ids_in, ids_in_name, ids_in_source
from tests.rows.table import ROWS


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("B41: the order", ["B41"]),
        ("B41-B43, C2", ["B41", "B42", "B43", "C2"]),
        ("A9-11", ["A9", "A10", "A11"]),
        ("B1234 B4x xB4 b4 AB4", []),
        ("A1-B3", ["A1", "B3"]),
    ],
)
def test_ids_in_a_text(text: str, found: list[str]) -> None:
    assert list(ids_in(text)) == found


def test_ids_in_a_name() -> None:
    assert list(ids_in_name("test_b41_and_c2")) == ["B41", "C2"]
    assert list(ids_in_name("test_a_504_is_repeated_a1b")) == []


def test_only_tests_carry_rows() -> None:
    source = '"""Edge: A1."""\n\ndef of_a2():\n    """A3."""\n\ndef test_a4():\n    """A5."""\n    # A6\n'
    assert list(ids_in_source(source)) == [("A1", ""), ("A4", "test_a4"), ("A5", "test_a4")]
    assert list(ids_in_source('"""Edge: A1."""\n')) == []


def test_scripts_and_transcripts_carry_rows(tmp_path: Path) -> None:
    scripts, transcripts = tmp_path / "golden" / "kafka", tmp_path / "transcripts"
    for directory in (scripts, transcripts):
        directory.mkdir(parents=True)
    (scripts / "B13-cluster-id.expected.jsonl").write_text("{}\n")
    (transcripts / "one.txt").write_text("# A5: a broker.\n> A6\n")
    assert dict(carried(tmp_path)) == {
        "B13": ["golden/kafka/B13-cluster-id.expected.jsonl"],
        "A5": ["transcripts/one.txt"],
    }


@pytest.mark.slow
def test_a_row_that_needs_no_test_says_why_and_has_none() -> None:
    tests = carried()
    assert all(row.meaning and not (row.untested and row.not_built) for row in ROWS.values())
    assert [row_id for row_id, row in ROWS.items() if row.reason and row_id in tests] == []


def test_every_row_is_known_and_has_a_test_or_a_reason() -> None:
    """112 of the founding documents, 98 of Kafka, 23 beyond both."""
    assert list(ROWS) == [
        f"{letter}{number}"
        for letter, last in (("A", 112), ("B", 98), ("C", 23))
        for number in range(1, last + 1)
    ]
    tests = carried()
    assert [row_id for row_id, row in ROWS.items() if not row.reason and row_id not in tests] == []
