"""Pure: the subjects of an export, found by the names that the log's subjects have.
Tests: tests/unit/metadata_log/replay/test_changes.py.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from metadata_log.records.registry import TYPE_IDS, subject_names
from metadata_log.replay.subjects.subject import ReplaySubject


def _found() -> Iterator[tuple[str, ReplaySubject]]:
    for name in subject_names():
        module = f"metadata_log.replay.subjects.{name}"
        if find_spec(module) is not None:
            yield name, import_module(module).SUBJECT


SUBJECTS: Final[Mapping[str, ReplaySubject]] = dict(_found())
CHANGES: Final = tuple(family for subject in SUBJECTS.values() for family in subject.changes)
"""The families of an export that hold changes, each with the values before it; a family may read those above it."""


def type_ids(*, is_large: bool) -> tuple[int, ...]:
    """Return the record types of the large subjects, of which a log has millions, or those of the others."""
    return tuple(
        sorted(
            TYPE_IDS[of]
            for subject in SUBJECTS.values()
            if subject.is_large is is_large
            for of in subject.columns
        )
    )
