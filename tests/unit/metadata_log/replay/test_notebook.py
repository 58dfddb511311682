"""The notebook in docs/ runs, and answers what is kept beside it."""

from pathlib import Path

import pytest

from tests.notebook import RENDERED, rendered

pytestmark = pytest.mark.slow


def test_the_notebook_answers_what_is_kept(tmp_path: Path) -> None:
    assert rendered(tmp_path) == RENDERED.read_text(), "run `python -m tests.notebook`, and read what changed"
