"""Edge: why partitions and brokers are as they are."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import quorum.decide
from metadata_log.batch import Cause, Envelope, RecordBatch
from metadata_log.ids import BrokerId
from metadata_log.image.begun import TAKES_OUT
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.brokers import BrokerRegistrationChangeRecord
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.quorum import WRITE_NO_OP
from metadata_log.records.registry import Record
from metadata_log.records.topics import TopicRestoreRecord, TopicTombstoneRecord
from ops.admin.causes import CAUSES, LINKS, why
from ops.admin.explain import LEAVING, Step, explain_broker, explain_partition
from quorum.whatif.cluster import Written
from quorum.whatif.script import Script


class History:
    """What scripts of operations wrote, batch by batch."""

    def __init__(self) -> None:
        self._script = Script()
        self._script.answer({"op": "Options"})
        self._steps: list[Step] = []

    def run(self, op: str, **fields: Any) -> Any:
        run = self._script._run  # the state before, which no answer has
        assert run is not None
        before, take = run.image, run.take_batches
        batches: list[Written] = []

        def remember() -> list[Written]:
            batches.extend(take())
            return batches

        with patch.object(run, "take_batches", remember):
            answer = self._script.answer({"op": op, **fields})
        assert answer["error"] is None, answer
        for written in batches:
            self._steps.append(
                Step(
                    before,
                    RecordBatch(
                        base_offset=before.end_offset,
                        controller_epoch=1,
                        appended_at_ms=0,
                        previous_crc=0,
                        crc=0,
                        envelope=Envelope(cause=written.cause),
                        records=written.records,
                    ),
                )
            )
        return answer

    def image(self) -> MetadataImage:
        run = self._script._run
        assert run is not None
        return run.image

    def take(self, *records: Record, cause: str) -> None:
        """Let a batch follow that no script writes."""
        run = self._script._run
        assert run is not None
        before = run.image
        batch = RecordBatch(
            base_offset=before.end_offset,
            controller_epoch=1,
            appended_at_ms=0,
            previous_crc=0,
            crc=0,
            envelope=Envelope(cause=Cause(cause, None, {})),
            records=records,
        )
        self._steps.append(Step(before, batch))
        run.cluster.write(records)

    def partition(self) -> list[dict[str, Any]]:
        return list(explain_partition(self._each(), "t", 0))

    def broker(self, broker_id: int) -> list[dict[str, Any]]:
        return list(explain_broker(self._each(), broker_id))

    def _each(self) -> Iterator[Step]:
        return iter(self._steps)


def a_history() -> History:
    history = History()
    for broker_id in (1, 2, 3):
        history.run("RegisterBroker", broker_id=broker_id)
        history.run("BrokerHeartbeat", broker_id=broker_id)
    history.run("CreateTopics", topics=[{"name": "t", "assignments": [[1, 2, 3]]}])
    return history


def test_an_election_names_its_cause_and_every_candidate() -> None:
    """C2: the session of broker 1 ended; 2 was fenced, and 3 was elected."""
    history = a_history()
    history.run("BrokerHeartbeat", broker_id=2, want_fence=True)
    history.run("FenceBroker", broker_id=1)
    created, _, moved = history.partition()
    assert created["changed"] == {"replicas": [[], [1, 2, 3]], "leader": [-1, 1]}
    assert (moved["cause"], moved["why"]) == ("SESSION_EXPIRED", "broker 1 was silent: its session ended")
    assert moved["changed"] == {"isr": [[1, 3], [3]], "leader": [1, 3]}
    assert [(each["broker"], each["verdict"]) for each in moved["candidates"]] == [
        (1, "on its way out"),
        (2, "fenced"),
        (3, "elected"),
    ]
    assert moved["leader_epoch"] == 1
    assert (created["rule"], moved["rule"]) == (None, "IN_SYNC_REPLICA")
    # The session was that of the registration before, with which the chain ends: no other run came before it.
    (registered,) = moved["steps_back"]
    assert registered["offset"] == moved["rests_on"]
    assert registered["why"] == "broker 1 registered, and none was before"


def test_a_leaderless_partition_says_who_could_not_lead() -> None:
    history = a_history()
    for broker_id in (1, 2, 3):
        history.run("FenceBroker", broker_id=broker_id)
    last = history.partition()[-1]
    assert last["changed"] == {"leader": [3, -1]}
    assert last["rule"] == "NO_CANDIDATE"
    assert [each["verdict"] for each in last["candidates"]] == ["on its way out", "fenced", "fenced"]
    history.run("BrokerHeartbeat", broker_id=1)
    history.run("BrokerHeartbeat", broker_id=3)
    back = history.partition()[-1]
    assert back["why"] == "broker 3 had caught up and was unfenced"
    assert [(each["broker"], each["verdict"]) for each in back["candidates"]] == [
        (1, "not in sync"),
        (2, "fenced"),
        (3, "elected"),
    ]


def test_an_unclean_election_says_so() -> None:
    history = a_history()
    for broker_id in (1, 2, 3):
        history.run("FenceBroker", broker_id=broker_id)
    history.run("BrokerHeartbeat", broker_id=2)
    history.run("ElectLeaders", election_type=1, topic_partitions=[{"topic": "t", "partitions": [0]}])
    last = history.partition()[-1]
    assert last["cause"] == "UNCLEAN_ELECTION_REQUESTED"
    assert {"broker": 2, "verdict": "elected uncleanly: nobody in sync could lead"} in last["candidates"]
    assert last["changed"]["leader_recovery_state"] == [0, 1]
    assert last["rule"] == "UNCLEAN"


def test_a_broker_s_life_is_told() -> None:
    history = a_history()
    history.run("FenceBroker", broker_id=1)
    history.run("RegisterBroker", broker_id=1, incarnation_id="again")
    told = history.broker(1)
    assert [one["changed"].split(",")[0].split(" at")[0] for one in told] == [
        "registered",
        "unfenced",
        "fenced",
        "registered",
    ]
    assert told[0]["why"] == "broker 1 registered, and none was before"
    assert told[-1]["why"] == "broker 1 registered another run, and the one before had not ended cleanly"
    assert history.broker(9) == []


def test_every_cause_that_takes_a_broker_out_is_known() -> None:
    assert TAKES_OUT <= LEAVING <= set(CAUSES)


def test_every_cause_that_is_decided_has_words() -> None:
    texts = [path.read_text() for path in Path(quorum.decide.__path__[0]).glob("*.py")]
    decided = {code for text in texts for code in re.findall(r'\bCause\(\s*"([A-Z_]+)"', text)}
    assert len(decided) > 10 and decided <= set(CAUSES)
    assert why(None, WRITE_NO_OP) == "nothing was written for 30 s"


def test_a_topic_that_is_deleted_for_a_time_is_followed_until_it_is_back() -> None:
    history = a_history()
    topic_id = history.image().topics.ids["t"]
    history.take(TopicTombstoneRecord(topic_id, "t", 0, 1_000, (), 0), cause="TOPIC_DELETED")
    history.take(
        PartitionChangeRecord(topic_id, 0, isr=(BrokerId(2), BrokerId(3))), cause="BROKER_REGISTERED"
    )
    election = PartitionChangeRecord(topic_id, 0, leader=BrokerId(2))
    history.take(TopicRestoreRecord(topic_id), election, cause="TOPIC_UNDELETED")
    _, deleted, lost, restored = history.partition()
    assert (deleted["why"], deleted["changed"]) == (CAUSES["TOPIC_DELETED"], {"leader": [1, -1]})
    assert lost["changed"] == {"isr": [[1, 2, 3], [2, 3]]}
    assert (restored["why"], restored["changed"]) == ("the topic was restored", {"leader": [-1, 2]})
    assert [(each["broker"], each["verdict"]) for each in restored["candidates"]] == [
        (1, "not in sync"),
        (2, "elected"),
        (3, "could lead; another stands before it"),
    ]
    assert restored["leader_epoch"] == 1


@pytest.mark.parametrize("link", LINKS)
def test_c11_a_silence_is_told_with_what_the_brokers_connection_showed(link: str) -> None:
    facts = {"broker_id": 1, "silent_ms": 9_001}
    plain = why(Cause("SESSION_EXPIRED", 1, facts), None)
    assert plain == "broker 1 was silent: its session ended after 9001 ms"
    assert why(Cause("SESSION_EXPIRED", 1, facts | {"link": link}), None) == f"{plain}; {LINKS[link]}"
    assert why(Cause("SESSION_EXPIRED", 1, facts | {"link": "of a later release"}), None) == plain


@pytest.mark.parametrize(
    ("detail", "says"),
    [
        ({}, "broker 1 asked to be fenced"),
        ({"diverged": True}, "broker 1 had a history that is not the cluster's (DIVERGING), and rebuilds it"),
    ],
)
def test_a_broker_in_another_history_did_not_ask_to_be_fenced(detail: dict[str, Any], says: str) -> None:
    change = BrokerRegistrationChangeRecord(BrokerId(1), 1, fenced=True)
    envelope = Envelope(cause=Cause("FENCE_REQUESTED", 1, {"broker_id": 1, **detail}))
    batch = RecordBatch(
        base_offset=1,
        controller_epoch=1,
        appended_at_ms=0,
        previous_crc=0,
        crc=0,
        envelope=envelope,
        records=(change,),
    )
    (shown,) = explain_broker(iter([Step(EMPTY, batch)]), 1)
    assert (shown["changed"], shown["why"]) == ("fenced", says)
