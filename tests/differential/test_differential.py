"""Edge: the comparison with Kafka's controller finds what differs, and a listed reason explains nothing else.

`cases/` has one small script for each reason, with the answers of the unmodified controller.
"""

import copy
import json
from pathlib import Path
from typing import Any, Self

import pytest

from metadata_log.records.features import METADATA_VERSION_LEVEL
from quorum.whatif.script import Script
from tests.differential import __main__ as program
from tests.differential import kafka
from tests.differential.comparison import Difference, difference
from tests.differential.reasons import REASONS, reason_of
from tests.differential.scripts.generator import LINES, script
from tests.differential.scripts.picture import Line

CASES = Path(__file__).parent / "cases"
REASON_NAMES = [reason.name for reason in REASONS]


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def case(name: str) -> tuple[list[Line], list[dict[str, Any]]]:
    return read(CASES / f"{name}.jsonl"), read(CASES / f"{name}.expected.jsonl")


def found(lines: list[Line], kafkas: list[dict[str, Any]]) -> Difference:
    difference_ = difference(lines, copy.deepcopy(kafkas))
    assert difference_ is not None
    return difference_


def name_of(difference_: Difference) -> str | None:
    reason = reason_of(difference_)
    return None if reason is None else reason.name


@pytest.mark.parametrize("name", REASON_NAMES)
def test_a_difference_has_its_reason(name: str) -> None:
    lines, kafkas = case(name)
    last = found(lines, kafkas)
    assert (last.number, name_of(last)) == (len(lines) - 1, name)


@pytest.mark.parametrize("name", REASON_NAMES)
def test_a_reason_explains_no_other_error_beside_it(name: str) -> None:
    lines, kafkas = case(name)
    if kafkas[-1].get("faults"):
        kafkas[-1]["faults"] = ["fault: something else"]
    else:
        kafkas[-1]["error"] = {"error": "NOT_CONTROLLER", "code": 41, "message": None}
    assert name_of(found(lines, kafkas)) is None


@pytest.mark.parametrize(
    "name", [name for name in REASON_NAMES if name not in ("deleted-topic", "candidate-without-replica")]
)
def test_a_reason_explains_no_other_record_beside_it(name: str) -> None:
    lines, kafkas = case(name)
    if not kafkas[-1]["batches"]:
        kafkas[-1]["batches"] = [[]]
    other = {
        "type": "PARTITION_CHANGE_RECORD",
        "version": 2,
        "topic_id": "other#1",
        "partition_id": 7,
        "leader": 1,
    }
    kafkas[-1]["batches"][-1].append(other)
    assert name_of(found(lines, kafkas)) is None


@pytest.mark.parametrize("name", REASON_NAMES)
def test_a_reason_needs_what_went_before(name: str) -> None:
    """The same last line and answers without the history that the reason rests on."""
    lines, kafkas = case(name)
    last = found(lines, kafkas)
    empty = type(last.before)()
    empty.brokers = {broker_id: copy.copy(broker) for broker_id, broker in last.before.brokers.items()}
    for broker in empty.brokers.values():
        broker.is_fenced = False
    empty.topics = dict.fromkeys(last.before.topics, "another")
    assert empty.level == METADATA_VERSION_LEVEL
    bare = Difference(last.number, last.line, last.kafka, last.ours, last.faults, empty)
    if name == "lost-directory":
        empty.partitions = last.before.partitions
        empty.brokers[last.line["broker_id"]].log_dirs = [last.line["directories"][0]["id"]]
    assert name_of(bare) is None


def test_equal_answers_are_no_difference_and_any_other_is_one() -> None:
    lines = script(1)
    run = Script()
    answers = [run.answer(line) for line in lines]
    assert difference(lines, copy.deepcopy(answers)) is None
    number = next(number for number, answer in enumerate(answers) if number > 50 and answer["batches"])
    answers[number]["batches"][0].append(answers[number]["batches"][0][0])
    assert found(lines, answers).number == number


def test_a_script_follows_from_its_seed() -> None:
    assert script(7) == script(7) != script(8)
    for has_eligible in (False, True):
        first, *_, last = lines = script(7, has_eligible=has_eligible)
        assert len(lines) == LINES
        assert (first["op"], first["eligible_leader_replicas"], last["op"]) == (
            "Options",
            has_eligible,
            "State",
        )


@pytest.mark.slow
def test_scripts_ask_for_everything_and_every_line_is_an_operation() -> None:
    scripts = [script(seed) for seed in range(60)]
    for lines in scripts[:10]:
        run = Script()
        for line in lines:
            assert (run.answer(line)["error"] or {}).get("error") != "BAD_SCRIPT", line
    asked = {line["op"] for lines in scripts for line in lines}
    assert asked == {
        *("Options", "RegisterBroker", "BrokerHeartbeat", "FenceBroker", "UnregisterBroker", "AdvanceTime"),
        *("CreateTopics", "DeleteTopics", "CreatePartitions", "AlterPartition", "ElectLeaders", "State"),
        *("AlterPartitionReassignments", "ListPartitionReassignments", "AssignReplicasToDirs"),
        *("IncrementalAlterConfigs", "LegacyAlterConfigs", "AllocateProducerIds", "UpdateFeatures"),
        *("AlterClientQuotas", "AlterUserScramCredentials", "CreateAcls", "DeleteAcls"),
        *("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "RegisterController"),
    }


def test_a_run_that_was_ended_goes_on_and_one_of_other_code_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    verdicts = [
        program.Verdict(5),
        program.Verdict(6, "deleted-topic"),
        program.Verdict(7, None, "unlisted: ..."),
    ]
    assert program._known(results, None) == {}
    program._keep(results, verdicts)
    assert program._known(results, None) == {verdict.seed: verdict for verdict in verdicts}
    monkeypatch.setattr(program, "_fingerprint", lambda: "of other code")
    assert program._known(results, None) == {}


def test_totals_are_those_of_each_reason() -> None:
    verdicts = [
        program.Verdict(5),
        program.Verdict(6, "deleted-topic"),
        program.Verdict(7, None, "unlisted: ..."),
    ]
    first, *reasons, last = program.summary(verdicts).splitlines()
    assert (first.split(), last.split()) == (
        ["1", "the", "same", "to", "the", "end"],
        ["1", "unlisted:", "seeds", "7"],
    )
    assert [int(row.split()[0]) for row in reasons] == [name == "deleted-topic" for name in REASON_NAMES]


@pytest.mark.parametrize("is_listed", [False, True])
def test_the_exit_code_is_1_if_a_difference_is_unlisted(
    is_listed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka's answers are those of a case; ours are decided."""
    lines, kafkas = case("failed-directory")
    if not is_listed:
        kafkas[2]["batches"] = []
    monkeypatch.setattr(program, "ProcessPoolExecutor", lambda _: AtOnce())
    monkeypatch.setattr(program, "script", lambda seed, has_eligible: lines)
    monkeypatch.setattr(kafka, "built", lambda: CASES)
    monkeypatch.setattr(kafka, "answers", lambda folder, sent: iter(copy.deepcopy(kafkas)))
    assert program.main(["--scripts", "1", "--seed", "12"]) == (not is_listed)
    out = capsys.readouterr().out
    assert ("unlisted: seed 12, line 2" in out) == (not is_listed)


class AtOnce:
    """A pool that computes where it is asked."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    map = staticmethod(map)
