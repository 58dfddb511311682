"""Edge: scripts as Kafka 4.3.1 answered them: every error, every answer, every record.

`tests/golden/kafka` holds scripts by subject, named after rows of Kafka's rules, and forty random ones of 200
operations; the expected answers are those of the unmodified controller.
"""

import json

import pytest

from metadata_log.metadata_versions import TRANSACTIONS_FROM
from metadata_log.records.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    FeatureLevelRecord,
)
from quorum.whatif.cluster import Options, activation, founded
from quorum.whatif.kafka_records import as_kafka_json
from quorum.whatif.script import Script
from tests.support.decisions import World
from tests.support.kafka_answers import Normal
from tests.support.kafka_golden import CASES, Lines, scripts

RANDOM = range(40)


def check(script: Lines) -> None:
    ours, kafkas, run = Normal(), Normal(), Script()
    for place, (line, expected) in enumerate(script):
        if expected.get("faults"):
            return  # Kafka met what it holds to be impossible: nothing behind it can be compared
        answer = run.answer(line)
        if line["op"] == "Options":
            assert (answer["error"], answer["next_offset"]) == (None, expected["next_offset"])
            continue
        assert ours.answer(answer) == kafkas.answer(expected), f"line {place}: {json.dumps(line)}"


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_answered_as_kafka_answers_it(case: str) -> None:
    for script in scripts(case):
        check(script)


@pytest.mark.parametrize("level", [6, 32, "3.2-IV0", "none", True])
def test_a_script_of_no_level_is_refused(level: object) -> None:
    answer = Script().answer({"op": "Options", "metadata_version": level})
    assert answer["error"]["error"] == "BAD_SCRIPT"


@pytest.mark.parametrize("level", [27, "27", "4.1", "4.1-IV1"])
def test_a_script_names_its_level_as_kafka_does(level: object) -> None:
    run = Script()
    assert run.answer({"op": "Options", "metadata_version": level})["error"] is None
    registered = run.answer({"op": "RegisterBroker", "broker_id": 1})
    assert registered["batches"][0][0]["version"] == 3


def test_a_broker_of_a_script_supports_the_features_with_which_its_cluster_began() -> None:
    """A line that names none is as that of Kafka's driver from an empty cluster, and registers in a real one."""
    world = World()
    world.write([FeatureLevelRecord(METADATA_VERSION, 30), FeatureLevelRecord("group.version", 1)])
    for image, more in ((None, []), (world.image, ["group.version"])):
        registered = Script(image).answer({"op": "RegisterBroker", "broker_id": 1})
        names = [each["name"] for each in registered["batches"][0][0]["features"]]
        assert names == [METADATA_VERSION, ELIGIBLE_LEADER_REPLICAS_VERSION, *more]


def test_a_founding_writes_what_kafkas_activation_writes_at_each_level() -> None:
    """B77: bootstrap records, in a transaction from 3.6-IV1 on; here a batch is whole or not there, and needs none."""
    for script in scripts("B80-every-level"):
        line, answer = script[0]
        records = [record for batch in answer["batches"] for record in batch]
        kinds = [record["type"] for record in records]
        has_transactions = line["metadata_version"] >= TRANSACTIONS_FROM
        assert (kinds[0] == "BEGIN_TRANSACTION_RECORD") == has_transactions == (len(kinds) == 3)
        (feature,) = [record for record in records if record["type"] == "FEATURE_LEVEL_RECORD"]
        options = Options(metadata_version=line["metadata_version"])
        assert [as_kafka_json(each, str) for each in activation(options)] == [feature]
        assert founded(options).end_offset == 1 + len(records) == answer["next_offset"]


@pytest.fixture(scope="module")
def random_scripts() -> list[Lines]:
    return list(scripts("random", ".jsonl.gz"))


@pytest.mark.slow
@pytest.mark.parametrize("number", RANDOM)
def test_a_random_script_is_answered_as_kafka_answers_it(number: int, random_scripts: list[Lines]) -> None:
    check(random_scripts[number])


@pytest.mark.parametrize(
    ("name", "shown"),
    [("listener.name.x.SSL.keystore.Password", "(redacted)"), ("log.retention.ms", "hunter2")],
)
def test_a_script_prints_no_secret(name: str, shown: str) -> None:
    config = {"name": name, "value": "hunter2"}
    resource = {"resource_type": 4, "resource_name": "", "configs": [config]}
    script = Script()
    script.answer({"op": "Options"})
    answer = script.answer({"op": "IncrementalAlterConfigs", "resources": [resource]})
    assert [record["value"] for (record,) in answer["batches"]] == [shown]
    deleted = {
        "resource_type": 4,
        "resource_name": "",
        "configs": [{"name": name, "config_operation": "DELETE"}],
    }
    answer = script.answer({"op": "IncrementalAlterConfigs", "resources": [deleted]})
    assert [record["value"] for (record,) in answer["batches"]] == [None]
