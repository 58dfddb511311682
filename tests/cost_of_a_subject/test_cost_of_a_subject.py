"""A new subject is one file per layer and a line in each of at most three registries."""

from pathlib import Path

import pytest

from tests.cost_of_a_subject.scratch import REGISTRIES_MAX, SUBJECT
from tests.cost_of_a_subject.use import use


def test_a_subject_edits_few_files() -> None:
    assert len(SUBJECT.edited_files()) <= REGISTRIES_MAX
    assert not {*SUBJECT.edited_files()} & {*SUBJECT.new_files()}


@pytest.mark.slow
def test_a_made_up_subject_works_from_the_command_line_to_the_export(tmp_path: Path) -> None:
    assert list(use(SUBJECT.make_scratch(tmp_path / "code"), tmp_path / "cluster"))
