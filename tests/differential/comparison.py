"""Pure: one script's answers, Kafka's beside ours, up to the first difference."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from quorum.whatif.script import Script
from tests.differential.kafka_indexes import KafkaIndexes
from tests.differential.scripts.picture import Line
from tests.support.kafka_answers import Normal


@dataclass(frozen=True, slots=True)
class Difference:
    """The first line that the controllers answer differently, or in which Kafka's meets a fault of its own.

    `kafka` and `ours` are normal answers. `before` are Kafka's indexes before the line.
    """

    number: int
    line: Line
    kafka: dict[str, Any]
    ours: dict[str, Any]
    faults: Sequence[str]
    before: KafkaIndexes


def difference(script: Sequence[Line], kafkas: Iterable[dict[str, Any]]) -> Difference | None:
    """Run a script here, and return the first difference from Kafka's answers to it; behind it states are not the same.

    Records of one batch count in their order, unless Kafka takes them from a hash map; error texts do not count.
    """
    ours, theirs, run, before = Normal(), Normal(), Script(), KafkaIndexes()
    for number, (line, expected) in enumerate(zip(script, kafkas, strict=True)):
        faults = expected.pop("faults", ())
        answer = run.answer(line)
        if line["op"] == "Options":
            assert (answer["error"], answer["next_offset"]) == (None, expected["next_offset"])
            before.follow(expected["batches"])
            continue
        mine, kafka = ours.answer(answer), theirs.answer(expected)
        if faults or mine != kafka:
            return Difference(number, line, kafka, mine, faults, before)
        before.follow(expected["batches"])
    return None
