"""The notebook in docs/ runs, and answers what is kept beside it."""

from pathlib import Path

import pytest

from tests.notebook import RENDERED, rendered, run_on
from tests.support import kafka_log as by_hand
from tests.support.histories import history_of

pytestmark = pytest.mark.slow


def test_the_notebook_answers_what_is_kept(tmp_path: Path) -> None:
    assert rendered(tmp_path) == RENDERED.read_text(), "run `python -m tests.notebook`, and read what changed"


def test_the_notebook_runs_on_a_log_of_ones_own(tmp_path: Path) -> None:
    """Goal: nobody has to edit it first. Method: a log without topics and brokers, and another history."""
    founded = by_hand.batch(0, [by_hand.leader_change(1, [1])], control=2)
    (tmp_path / "own").mkdir()
    frames = b"".join(step.frame for step in history_of(3, 30))
    (tmp_path / "own" / f"{0:020d}.log").write_bytes(frames)
    for log in (by_hand.written(tmp_path / "kafka", [founded]), tmp_path / "own"):
        assert '"output_type": "error"' not in run_on(log)
