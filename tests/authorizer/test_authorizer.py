"""Edge: the command that asks Kafka's authorizer and ours the same finds what differs."""

from typing import Any

import pytest

from quorum.decide.authorizer import Why
from tests.authorizer import __main__ as program
from tests.authorizer.worlds import worlds
from tests.differential import kafka


def test_equal_seeds_ask_the_same() -> None:
    assert worlds(7, 120) == worlds(7, 120)
    assert worlds(7, 120) != worlds(8, 120)
    assert sum(len(world.questions) for world in worlds(7, 120)) == 120


def test_questions_meet_rules_of_all_kinds() -> None:
    found = set()
    for world in worlds(1, 3_000):
        image = world.image()
        for question in world.questions:
            allowed, why = program.answer(image, world, question)
            found.add(
                (allowed, why if why in {"SuperUser", "DefaultAllow", "DefaultDeny", None} else Why.RULE)
            )
    assert len(found) == 6


def test_a_difference_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def answers(_folder: Any, lines: Any, *, program: str) -> Any:
        assert program == "Authorizer"
        for line in lines:
            yield [[True, "SuperUser"] for _ in line["questions"]]

    monkeypatch.setattr(kafka, "built", lambda: None)
    monkeypatch.setattr(kafka, "answers", answers)
    assert program.main(["--questions", "20", "--seed", "1"]) == 1
    assert "Kafka [True, 'SuperUser'], ours" in capsys.readouterr().out


@pytest.mark.slow
def test_kafkas_authorizer_answers_the_same() -> None:
    """B84: 300 questions here; `python -m tests.authorizer` asks 10,000."""
    assert program.main(["--questions", "300", "--seed", "4"]) == 0
