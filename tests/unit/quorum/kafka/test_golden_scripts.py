"""Edge: scripts as Kafka 4.3.1 answered them, once more through the bytes of its protocol."""

import json
from typing import Any

import pytest

from quorum.whatif import script
from quorum.whatif.script import Script
from tests.support.kafka_answers import Normal
from tests.support.kafka_golden import CASES, scripts
from tests.support.kafka_scripts import THROUGH_BYTES, RunThroughBytes


@pytest.fixture(autouse=True)
def _through_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "OPERATIONS", {**script.OPERATIONS, **THROUGH_BYTES})
    monkeypatch.setattr(script, "Run", RunThroughBytes)


def check(lines: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    ours, kafkas, run = Normal(), Normal(), Script()
    for place, (line, expected) in enumerate(lines):
        if expected.get("faults"):
            return  # Kafka met what it holds to be impossible: nothing behind it can be compared
        answer = run.answer(line)
        if line["op"] != "Options":
            assert ours.answer(answer) == kafkas.answer(expected), (
                f"line {place}: {json.dumps(line)}: {answer['error']}"
            )


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_case_through_bytes_is_answered_as_kafka_answers_it(case: str) -> None:
    for lines in scripts(case):
        check(lines)


@pytest.mark.slow
def test_random_scripts_through_bytes_are_answered_as_kafka_answers_them() -> None:
    for lines in scripts("random", ".jsonl.gz"):
        check(lines)
