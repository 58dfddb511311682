"""Edge: a broker that registers again: when it may, at which epoch, and what becomes of what it led (B14, B15, C22)."""

from dataclasses import dataclass

import pytest

from metadata_log.ids import BrokerId
from metadata_log.records.brokers import FeatureRange, RegisterBrokerRecord
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION as ELR
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord
from quorum.decide.decision import Decision
from tests.support.decisions import FEATURES, World, registration, word_uuid

ONE = BrokerId(1)
SESSION_MS = 9_000


@dataclass(frozen=True, slots=True)
class End:
    """How the process before ended: "stop" with the controller's leave, "fence" unfenced but heard of, "kill" -9."""

    how: str
    waited_ms: int = 0


def world(*, has_eligible: bool = False) -> World:
    """Return two brokers in the ISR of a partition that needs both, led by the first."""
    made = World(session_timeout_ms=SESSION_MS)
    for broker_id in (1, 2):
        features = (*FEATURES, FeatureRange(ELR, 0, 1))
        assert made.decide(registration(broker_id, features=features)).refusal is None
        made.run(f"heartbeat {broker_id}")
    if has_eligible:
        made.write([FeatureLevelRecord(ELR, 1)])
    made.run("create t on=1,2 min.insync.replicas=2")
    for broker_id in (1, 2):
        made.run(f"heartbeat {broker_id}")
    return made


def ended(made: World, end: End) -> int:
    """End the process of broker 1 and let time pass; return its epoch."""
    epoch = made.image.brokers[ONE].broker_epoch
    match end.how:
        case "stop":
            made.run("heartbeat 1 shutdown")
            made.run("heartbeat 2")
            made.run("heartbeat 1 shutdown")
            assert made.image.brokers[ONE].fenced
            made.sessions.forget(ONE, epoch)  # as FetchService does when it lets the broker go
        case "fence":
            made.run("heartbeat 1 fence")
    made.run(f"advance {end.waited_ms} alive=2")
    return epoch


def again(made: World, *, previous: int, incarnation: str = "b1-2") -> Decision:
    return made.decide(
        registration(
            1,
            incarnation_id=word_uuid(incarnation),
            previous_broker_epoch=previous,
            features=(*FEATURES, FeatureRange(ELR, 0, 1)),
        )
    )


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (End("stop"), None),
        (End("stop", 1_000), None),
        (End("kill"), "DUPLICATE_BROKER_REGISTRATION"),
        (End("kill", 1_000), "DUPLICATE_BROKER_REGISTRATION"),
        (End("kill", SESSION_MS), "DUPLICATE_BROKER_REGISTRATION"),
        (End("kill", SESSION_MS + SESSION_MS // 8 + 1), None),
        (End("fence", 1_000), "DUPLICATE_BROKER_REGISTRATION"),  # fenced, and heard of all the same
        (End("fence", SESSION_MS + SESSION_MS // 8 + 1), None),
    ],
)
@pytest.mark.parametrize("knows_epoch", [False, True])
def test_another_process_waits_for_the_session_of_the_one_before(
    end: End, error: str | None, knows_epoch: bool
) -> None:
    """B14, C22: a clean stop frees the id at once, a kill when the session expires. A token changes nothing of that."""
    made = world()
    epoch = ended(made, end)
    decision = again(made, previous=epoch if knows_epoch else -1)
    assert (decision.refusal and decision.refusal.error) == error
    if error is None:
        assert made.image.brokers[ONE].broker_epoch == made.image.end_offset - 1 > epoch
        assert made.image.brokers[ONE].fenced


@pytest.mark.parametrize("end", [End("kill"), End("fence"), End("stop"), End("kill", SESSION_MS + 2_000)])
def test_the_same_process_keeps_its_epoch(end: End) -> None:
    """B15: the same incarnation is never refused; it keeps epoch, fencing and shutdown flag, and its record is written."""
    made = world()
    epoch = ended(made, end)
    before = made.image.brokers[ONE]
    decision = again(made, previous=-1, incarnation="b1-1")
    assert [type(record) for record in decision.records] == [RegisterBrokerRecord]
    after = made.image.brokers[ONE]
    assert (after.broker_epoch, after.fenced, after.in_controlled_shutdown) == (
        epoch,
        before.fenced,
        before.in_controlled_shutdown,
    )
    assert made.sessions.shutdown_offset(ONE, epoch) is None


@pytest.mark.parametrize(
    ("has_eligible", "how", "previous", "eligible"),
    [
        (True, "stop", "epoch", (1,)),
        (True, "stop", "none", ()),
        (True, "kill", "none", ()),
        (True, "kill", "older", ()),
        (False, "stop", "epoch", ()),
        (False, "kill", "none", ()),
    ],
)
def test_only_a_proven_clean_stop_leaves_a_broker_eligible(
    has_eligible: bool, how: str, previous: str, eligible: tuple[int, ...]
) -> None:
    """C22: the token of a clean stop is the epoch of that run; without it the run counts as unclean, and what it was
    eligible to lead is taken away before the registration (B27).
    """
    made = world(has_eligible=has_eligible)
    epoch = ended(made, End(how, 0 if how == "stop" else SESSION_MS + SESSION_MS // 8 + 1))
    (topic,) = made.image.topics.by_id.values()
    partition = topic.partitions[0]
    assert partition.isr == (2,)
    assert partition.eligible_leader_replicas == ((1,) if has_eligible else ())
    decision = again(made, previous={"epoch": epoch, "none": -1, "older": epoch - 1}[previous])
    assert decision.refusal is None
    assert decision.cause is not None and decision.cause.detail["clean"] is (previous == "epoch")
    (topic,) = made.image.topics.by_id.values()
    assert topic.partitions[0].eligible_leader_replicas == eligible
    changes, last = decision.records[:-1], decision.records[-1]
    assert isinstance(last, RegisterBrokerRecord)
    assert all(isinstance(record, PartitionChangeRecord) for record in changes)
    assert bool(changes) is (has_eligible and not eligible)
