"""The write path over a model of Raft: claims, tips, waiters, and their answers when leadership moves."""

import asyncio
import dataclasses
from collections import Counter
from functools import partial
from itertools import count, pairwise
from typing import Any

import pytest
from msgspec import structs

from metadata_log.apply import image_of
from metadata_log.batch import NO_ENVELOPE, RecordBatch
from metadata_log.codec import decode_all, decoding, encode
from metadata_log.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    Fault,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvariantBroken,
    NotController,
    OutcomeUnknown,
    TopicAlreadyExists,
    WrittenByAnotherVersion,
)
from metadata_log.ids import BrokerId, NodeId
from metadata_log.image.metadata_image import EMPTY
from metadata_log.limits import LOOP_SLICE_MS, OVERTAKEN_MAX, RECORDS_PER_PART_MAX, SLOW_DECISION_MS
from metadata_log.metadata_versions import formatted_with
from metadata_log.records import registry
from metadata_log.records.configs import BROKER, ConfigRecord
from metadata_log.records.features import METAQUORUM_VERSION, FeatureLevelRecord
from metadata_log.records.quorum import NoOpRecord
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.sliced import Sliced, at_once
from metadata_log.wire.commands import AssignReplicasToDirs, ReplicaDirectory
from quorum.controller.changes import LongChange
from quorum.controller.controller import Controller
from quorum.controller.written import Written
from quorum.decide.brokers import UnregisterBroker
from quorum.decide.decision import Decision
from quorum.decide.deleted_topics import UndeleteTopics
from quorum.decide.registry import deciding
from quorum.decide.topics import CreateTopic, CreateTopics, DeleteTopic, NewTopic
from tests.support.callers import anybody
from tests.support.histories import A_TOPIC_ID_OF_INT, A_TYPE_UNKNOWN_HERE, frame_behind, history_of
from tests.support.lab import CLUSTER, Lab, online, poll, registration, run, setting, spin, uuid


async def test_the_first_claim_founds_the_cluster() -> None:
    lab = Lab()
    controller = lab.lead(1)
    image = controller.committed
    assert image.controller_epoch == 1
    assert image.quorum.cluster_id == CLUSTER
    assert dict(image.features) == {
        "metadata.version": 30,
        "metaquorum.version": 5,
        **formatted_with(30),
    }
    assert dict(image.configs[4, ""]) == {"min.insync.replicas": "1"}
    assert image.quorum.kraft_version == 1
    assert [voter.node_id for voter in image.quorum.voters or ()] == [1, 2, 3]
    lab.same_everywhere()


async def test_a_write_is_answered_only_when_it_is_applied() -> None:
    lab = Lab()
    controller = lab.lead(1)
    task = asyncio.create_task(controller.submit(setting("1"), anybody()))
    await spin()
    assert not task.done()
    before = controller.committed.end_offset
    lab.quorum.commit()
    outcome = await task
    assert (outcome.base_offset, outcome.end_offset) == (before, before + 1)
    lab.same_everywhere()


async def test_no_record_is_appended_that_the_finalized_level_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node of the release before would stop at it: a mutant of this rule is a cluster that cannot be upgraded."""
    lab = Lab()
    controller = lab.lead(1)
    before = controller.tip
    monkeypatch.setitem(registry._LEVELLED, ConfigRecord, (1, 6))
    keyed = Decision(records=(ConfigRecord(BROKER, "", "a.password", "x", b"k" * 16),))
    with pytest.raises(InvariantBroken, match=r"metaquorum\.version 6, and the cluster is at 5"):
        controller.append(keyed, NO_ENVELOPE)
    assert controller.tip is before
    controller.append(Decision(records=(ConfigRecord(BROKER, "", "a.setting", "x", None),)), NO_ENVELOPE)


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        (A_TYPE_UNKNOWN_HERE, WrittenByAnotherVersion, "record type 7777 version 0 is unknown"),
        (A_TOPIC_ID_OF_INT, InvariantBroken, "topic_id of a TopicRecord: expected bytes, got int"),
    ],
)
def test_what_is_committed_and_cannot_be_read_stops_it_by_offset(
    body: bytes, error: type[Fault], said: str
) -> None:
    history = [*history_of(1, 3)]
    controller = Lab().controllers[1]
    for step in history:
        at_once(controller.committing(step.frame))
    end = history[-1].batch.end_offset
    with pytest.raises(error, match=f"the quorum's log: offset {end}: .*{said}"):
        at_once(controller.committing(frame_behind(history[-1].frame, body)))


async def test_a_newer_claim_ends_older_waiters_before_their_offset_is_filled() -> None:
    """The deposed controller's batch was cut; another's records fill the offset it waited for: it must not hear yes."""
    lab = Lab()
    old = lab.lead(1)
    task = asyncio.create_task(old.submit(setting("1"), anybody()))
    await spin()
    new = lab.lead(2, keep=0)
    await lab.write(new, setting("2"))
    with pytest.raises(NotController):
        await task
    assert new.committed.configs[BROKER, ""]["a.setting"] == "2"
    lab.same_everywhere()


async def test_a_write_that_survives_the_change_of_leader_is_acknowledged() -> None:
    lab = Lab()
    old = lab.lead(1)
    task = asyncio.create_task(old.submit(setting("1"), anybody()))
    await spin()
    lab.lead(2)  # the tail survives: our record commits before the claim
    outcome = await task
    assert outcome.end_offset == outcome.base_offset + 1
    lab.same_everywhere()


async def test_a_deposed_controllers_late_batch_is_refused_by_all() -> None:
    lab = Lab()
    lab.lead(1)
    lab.quorum.elect(1)
    late = lab.quorum.log[-1]  # a claim of epoch 2, not committed
    lab.quorum.elect(2, keep=0)
    lab.quorum.commit()
    lab.quorum.log.append(late)
    lab.quorum.commit()
    assert {
        c.metrics.registry.get_sample_value("metaquorum_batches_refused_total")
        for c in lab.controllers.values()
    } == {1.0}
    lab.same_everywhere()


def test_a_committed_batch_that_one_node_alone_refuses_stops_it() -> None:
    """Goal: no node goes on with another history's state, to lead and acknowledge what nobody else holds. Method: one of
    the same length and epoch, which a snapshot of the same id may hold.
    """

    def set_to(value: str) -> list[ConfigRecord]:
        return [ConfigRecord(resource_type=BROKER, resource_name="", name="a.setting", value=value)]

    history = [*history_of(1, 5)]
    controller = Lab().controllers[1]
    for step in history:
        at_once(controller.committing(step.frame))
    ours, theirs = (
        encode(
            base_offset=controller.committed.end_offset,
            controller_epoch=controller.committed.controller_epoch,
            appended_at_ms=1,
            previous_crc=controller.committed.last_crc,
            envelope=NO_ENVELOPE,
            records=set_to(value),
        )
        for value in "12"
    )
    at_once(controller.committing(ours[1]))
    at_once(controller.committing(ours[1]))  # once more, as behind a snapshot's position in Raft's log
    with pytest.raises(InvariantBroken, match="the quorum committed a batch of epoch"):
        at_once(controller.committing(theirs[1]))
    _, behind_theirs = encode(
        base_offset=controller.committed.end_offset,
        controller_epoch=controller.committed.controller_epoch,
        appended_at_ms=1,
        previous_crc=theirs[0].crc,
        envelope=NO_ENVELOPE,
        records=set_to("3"),
    )
    with pytest.raises(InvariantBroken, match="the quorum committed a batch of epoch") as broken:
        at_once(controller.committing(behind_theirs))
    assert broken.value.context == {"runbook": "two-histories.md"}
    assert controller.committed.configs[BROKER, ""]["a.setting"] == "1"


async def test_a_refusal_waits_for_the_records_it_rests_on() -> None:
    """B73:  "Exists" is never said of a topic that then does not commit."""
    lab = Lab()
    controller = lab.lead(1)
    await online(lab, controller, 11)
    command = CreateTopic(
        name="a", partitions=1, replication_factor=1, assignment=None, configs={}, validate_only=False
    )
    first = asyncio.create_task(controller.submit(command, anybody()))
    second = asyncio.create_task(controller.submit(command, anybody()))
    await spin()
    assert not first.done()
    assert not second.done()
    lab.lead(2, keep=0)
    for task in (first, second):
        with pytest.raises(NotController):
            await task


async def test_a_refusal_is_told_only_with_proof_of_leadership() -> None:
    lab = Lab()
    controller = lab.lead(1)
    await online(lab, controller, 11)
    command = CreateTopic(
        name="a", partitions=1, replication_factor=1, assignment=None, configs={}, validate_only=False
    )
    await lab.write(controller, command)
    lab.quorum.nodes[NodeId(1)].hold_reads = True
    task = asyncio.create_task(controller.submit(command, anybody()))
    await spin()
    assert not task.done()
    lab.quorum.depose()
    with pytest.raises(NotController):
        await task
    lab.quorum.nodes[NodeId(1)].hold_reads = False
    controller = lab.lead(1)
    with pytest.raises(TopicAlreadyExists):
        await lab.write(controller, command)


async def test_a_request_id_gets_its_first_answer_also_from_the_next_controller() -> None:
    """C10"""
    lab = Lab()
    controller = lab.lead(1)
    await online(lab, controller, 11)
    command = CreateTopic(
        name="a", partitions=1, replication_factor=1, assignment=None, configs={}, validate_only=False
    )
    request_id = uuid(7)
    first = await lab.write(controller, command, request_id)
    again = await lab.write(controller, command, request_id)
    assert again == first
    successor = lab.lead(2)
    assert await lab.write(successor, command, request_id) == first
    with pytest.raises(InvalidRequest):
        await lab.write(successor, dataclasses.replace(command, name="b"), request_id)
    assert len(successor.committed.topics.by_id) == 1


async def test_a_duplicate_in_flight_joins_the_first() -> None:
    lab = Lab()
    controller = lab.lead(1)
    request_id = uuid(7)
    tasks = [asyncio.create_task(controller.submit(setting("1"), anybody(request_id))) for _ in range(3)]
    await spin()
    lab.quorum.commit()
    outcomes = [await task for task in tasks]
    assert outcomes[0] == outcomes[1] == outcomes[2]


async def test_no_word_in_time_is_an_unknown_outcome() -> None:
    """B9"""
    lab = Lab(commit_timeout_ms=20)
    controller = lab.lead(1)
    with pytest.raises(OutcomeUnknown):
        await controller.submit(setting("1"), anybody())
    lab.quorum.commit()
    assert controller.committed.configs[BROKER, ""]["a.setting"] == "1"


async def test_a_snapshot_under_a_waiter_answers_from_the_stored_result() -> None:
    lab = Lab()
    old = lab.lead(1)
    known = asyncio.create_task(old.submit(setting("1"), anybody(uuid(7))))
    unknown = asyncio.create_task(old.submit(setting("2"), anybody()))
    await spin()
    old.on_leadership(is_leader=False)
    del lab.quorum.nodes[NodeId(1)]
    new = lab.lead(2)
    lab.snapshots["s"] = new.committed
    old.on_restore("s")
    assert (await known).outcome
    with pytest.raises(OutcomeUnknown):
        await unknown
    assert old.committed == new.committed


@pytest.mark.parametrize("ahead", [0, 1])
async def test_a_snapshot_under_a_waiter_gives_the_answer_that_was_stored_not_its_own(ahead: int) -> None:
    """The client asked the next controller as well, which made another topic under the same request id.

    With one record lost ahead of ours, the next claim takes its place and the other topic takes our offsets.
    """
    lab = Lab()
    old = lab.lead(1)
    await online(lab, old, 11)
    command = CreateTopic(
        name="a", partitions=1, replication_factor=1, assignment=None, configs={}, validate_only=False
    )
    request_id = uuid(7)
    lost = [asyncio.create_task(old.submit(setting("1"), anybody())) for _ in range(ahead)]
    await spin()
    first = asyncio.create_task(old.submit(command, anybody(request_id)))
    again = asyncio.create_task(old.submit(command, anybody(request_id)))
    await spin()
    old.on_leadership(is_leader=False)
    del lab.quorum.nodes[NodeId(1)]
    new = lab.lead(2, keep=0)
    stored = await lab.write(new, command, request_id)
    lab.snapshots["s"] = new.committed
    old.on_restore("s")
    assert await first == stored
    assert await again == stored
    for task in lost:
        with pytest.raises(OutcomeUnknown):
            await task


async def test_a_refusal_proved_just_before_another_claim_is_not_waited_for() -> None:
    """The proof came, and before the waiter was woken a newer claim was applied: nothing would end its waiting."""
    lab = Lab()
    old = lab.lead(1)
    raft = lab.quorum.nodes[NodeId(1)]
    raft.hold_reads = True
    refused = DeleteTopic(name="none")
    task = asyncio.create_task(old.submit(refused, anybody()))
    await spin()
    raft.answer_reads()
    lab.lead(2)
    with pytest.raises(NotController):
        async with asyncio.timeout(60):
            await task


async def test_a_silent_broker_is_fenced_and_its_leaderships_move_first() -> None:
    lab = Lab()
    controller = lab.lead(1)
    epochs = {broker_id: await online(lab, controller, broker_id) for broker_id in (11, 12)}
    assignment = ((BrokerId(11), BrokerId(12)), (BrokerId(12), BrokerId(11)))
    command = CreateTopic(
        name="a",
        partitions=-1,
        replication_factor=-1,
        assignment=assignment,
        configs={},
        validate_only=False,
    )
    await lab.write(controller, command)
    for _ in range(40):
        lab.now_ms += 300
        controller.heartbeat(poll(12, epochs[12], applied=controller.committed.end_offset), anybody())
        controller.check_sessions()
    lab.quorum.commit()
    topic = controller.committed.topics.named("a")
    assert topic is not None
    assert [p.leader for p in topic.partitions] == [12, 12]
    assert [p.isr for p in topic.partitions] == [(12,), (12,)]
    assert controller.committed.brokers[BrokerId(11)].fenced
    assert not controller.committed.brokers[BrokerId(12)].fenced
    lab.same_everywhere()


MANY = 5_000


async def with_many_partitions(lab: Lab, *broker_ids: int) -> tuple[Controller, dict[int, int]]:
    """Return an active controller, whose brokers all hold the same MANY partitions, and their epochs."""
    controller = lab.lead(1)
    epochs = {broker_id: await online(lab, controller, broker_id) for broker_id in broker_ids}
    command = CreateTopic(
        name="many",
        partitions=-1,
        replication_factor=-1,
        assignment=(tuple(map(BrokerId, broker_ids)),) * MANY,
        configs={},
        validate_only=False,
    )
    await lab.write(controller, command)
    return controller, epochs


def leaders(controller: Controller) -> Counter[int]:
    topic = controller.committed.topics.named("many")
    assert topic is not None
    return Counter(partition.leader for partition in topic.partitions)


def silence(lab: Lab, controller: Controller, *heard: tuple[int, int]) -> None:
    """Let sessions run out but those of `heard`, brokers with their epochs, until one is to be fenced."""
    for _ in range(40):
        lab.now_ms += 300
        for broker_id, epoch in heard:
            controller.heartbeat(poll(broker_id, epoch, applied=controller.committed.end_offset), anybody())
        if controller.check_sessions():
            return
    raise AssertionError("nobody was silent")


def fence_the_silent(lab: Lab, controller: Controller, *heard: tuple[int, int]) -> None:
    """Let all be fenced but those of `heard`, in as many parts as it takes."""
    silence(lab, controller, *heard)
    lab.finish(controller)
    lab.quorum.commit()


async def test_a_broker_with_many_partitions_is_fenced_in_parts() -> None:
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    began = len(lab.quorum.log)
    fence_the_silent(lab, controller, (12, epochs[12]))
    sizes = [len(batch.records) for frames in lab.quorum.log[began:] for batch, _ in decode_all(frames)]
    assert sum(sizes) == MANY + 1
    assert max(sizes) <= RECORDS_PER_PART_MAX
    assert leaders(controller) == {12: MANY}
    assert controller.committed.brokers[BrokerId(11)].fenced
    lab.same_everywhere()


async def test_a_broker_heard_of_between_two_parts_of_its_fencing_is_fenced_and_then_comes_back() -> None:
    """Goal: what was begun is finished. Method: a heartbeat after each part."""
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    began = len(lab.quorum.log)
    silence(lab, controller, (12, epochs[12]))
    beat = poll(11, epochs[11], applied=controller.committed.end_offset)
    while not controller.is_fenced(BrokerId(11), epochs[11]):
        assert controller.is_taken_out(BrokerId(11)), "it gets no answer"
        decision, _ = controller.heartbeat(beat, anybody())
        assert not decision.records
        assert controller.make_part()
    assert not controller.is_taken_out(BrokerId(11))
    sizes = [len(batch.records) for frames in lab.quorum.log[began:] for batch, _ in decode_all(frames)]
    assert sum(sizes) == MANY + 1
    assert controller.sessions.has_session(BrokerId(11), epochs[11], now_ms=lab.now_ms)
    controller.heartbeat(beat, anybody())
    lab.quorum.commit()
    assert not controller.committed.brokers[BrokerId(11)].fenced
    assert leaders(controller) == {12: MANY}
    lab.same_everywhere()


async def test_fencings_take_turns_part_by_part() -> None:
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12, 13)
    began = len(lab.quorum.log)
    silence(lab, controller, (13, epochs[13]))
    assert controller.check_sessions() > 0, "the next one is begun beside it"
    lab.finish(controller)
    of = [
        batch.envelope.cause.detail["broker_id"]
        for frames in lab.quorum.log[began:]
        for batch, _ in decode_all(frames)
        if batch.envelope.cause is not None
    ]
    assert of[:6] == [11, 12, 11, 12, 11, 12]
    lab.quorum.commit()
    assert leaders(controller) == {13: MANY}


async def test_a_broker_leads_again_once_the_failure_of_its_directory_is_carried_out() -> None:
    """Between the parts of that it cannot be elected at all, so its other directory waits if the leader stops then."""
    lab = Lab()
    controller = lab.lead(1)
    await online(lab, controller, 12)
    failing, sound = uuid(2_000), uuid(2_001)
    both = structs.replace(registration(11), log_dirs=(failing, sound))
    epoch = (await lab.write(controller, both)).outcome[0]
    controller.heartbeat(poll(11, epoch, applied=controller.committed.end_offset), anybody())
    lab.quorum.commit()
    replicas = tuple(map(BrokerId, (12, 11)))
    await lab.write(controller, topic_of(-1, name="t", assignment=(replicas,) * 10))
    topic = controller.committed.topics.named("t")
    assert topic is not None
    placed = tuple(
        ReplicaDirectory(sound if partition_id == 0 else failing, topic.topic_id, partition_id)
        for partition_id in range(10)
    )
    report = AssignReplicasToDirs(broker_id=BrokerId(11), broker_epoch=epoch, replicas=placed)
    await lab.write(controller, report)
    controller.records_per_part_max = 4

    def beats(broker_id: int, epoch: int, **wishes: Any) -> Decision:
        beat = poll(broker_id, epoch, applied=controller.committed.end_offset)
        decision, _ = controller.heartbeat(dataclasses.replace(beat, **wishes), anybody())
        lab.quorum.commit()
        return decision

    assert beats(11, epoch, offline_log_dirs=(failing,)).more
    stops = controller.committed.brokers[BrokerId(12)].broker_epoch
    beats(12, stops, want_shut_down=True)
    assert not beats(11, epoch, offline_log_dirs=(failing,)).records
    lab.finish(controller)
    lab.quorum.commit()
    partitions = controller.committed.topics.by_id[topic.topic_id].partitions
    assert [partition.leader for partition in partitions] == [11] + [-1] * 9


async def test_a_process_that_registers_amid_a_fencing_waits_for_its_end() -> None:
    """The fencing is that of the controller before; the same process did not hear that it is registered."""
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    silence(lab, controller, (12, epochs[12]))
    lab.quorum.commit()
    successor = lab.lead(2)
    asked = asyncio.create_task(successor.submit(registration(11), anybody()))
    await spin()
    end = len(lab.quorum.log)
    await spin()
    assert len(lab.quorum.log) == end
    lab.finish(successor)
    assert successor.is_fenced(BrokerId(11), epochs[11])
    await spin()
    lab.quorum.commit()
    assert (await asked).outcome[0] == epochs[11]
    assert successor.committed.brokers[BrokerId(11)].fenced
    assert leaders(successor) == {12: MANY}
    lab.same_everywhere()


@pytest.mark.parametrize("is_by_the_next_controller", [False, True])
async def test_a_topic_made_between_two_parts_of_a_fencing_keeps_off_the_broker(
    is_by_the_next_controller: bool,
) -> None:
    """Goal: nobody leads on a broker that is being fenced. Method: topics between the first part and the last."""
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    silence(lab, controller, (12, epochs[12]))
    lab.quorum.commit()
    if is_by_the_next_controller:
        controller = lab.lead(2)
    assert not controller.committed.brokers[BrokerId(11)].fenced
    await lab.write(controller, topic_of(4, name="placed", replication_factor=1))
    on_both = topic_of(-1, name="assigned", assignment=((BrokerId(11), BrokerId(12)),))
    await lab.write(controller, on_both)
    with pytest.raises(InvalidReplicaAssignment):
        await lab.write(controller, topic_of(-1, name="refused", assignment=((BrokerId(11),),)))
    placed, assigned = (controller.committed.topics.named(name) for name in ("placed", "assigned"))
    assert placed is not None and assigned is not None
    assert {partition.replicas for partition in placed.partitions} == {(12,)}
    assert [(partition.isr, partition.leader) for partition in assigned.partitions] == [((12,), 12)]

    lab.finish(controller)
    lab.quorum.commit()
    controller.heartbeat(poll(11, epochs[11], applied=controller.committed.end_offset), anybody())
    await lab.write(controller, topic_of(-1, name="after", assignment=((BrokerId(11),),)))
    lab.same_everywhere()


def slow_parts(lab: Lab, controller: Controller, *, looks: int) -> None:
    """Let the time of each part be over at its `looks`-th look at the clock."""
    context = controller._context

    def slow() -> Any:
        times = iter(range(looks))
        return structs.replace(context(), is_turn_over=lambda: next(times, None) == looks - 1)

    controller._context = slow  # type: ignore[method-assign]


async def test_a_broker_whose_fencing_began_without_a_record_gets_nothing_either() -> None:
    """Goal: a walk that has written nothing yet is a fencing, too. Method: its first part finds nothing to change."""
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    fence_the_silent(lab, controller, (12, epochs[12]))
    back = poll(11, epochs[11], applied=controller.committed.end_offset)
    controller.heartbeat(back, anybody())
    lab.quorum.commit()
    assert not controller.committed.brokers[BrokerId(11)].fenced
    slow_parts(lab, controller, looks=1)
    appended = len(lab.quorum.log)
    silence(lab, controller, (12, epochs[12]))
    assert len(lab.quorum.log) == appended, "11 is in no ISR"
    for n in range(20):
        name = f"both-{n}"
        await lab.write(controller, topic_of(-1, name=name, assignment=((BrokerId(11), BrokerId(12)),)))
        topic = controller.committed.topics.named(name)
        assert topic is not None
        assert [partition.isr for partition in topic.partitions] == [(12,)]


async def test_a_new_controller_goes_on_with_a_fencing_at_once() -> None:
    """Goal: a change of controllers does not give a dead broker another session."""
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    silence(lab, controller, (12, epochs[12]))
    lab.quorum.commit()
    successor = lab.lead(2)
    lab.finish(successor)
    lab.quorum.commit()
    assert successor.committed.brokers[BrokerId(11)].fenced
    assert not successor.committed.brokers[BrokerId(12)].fenced
    assert leaders(successor) == {12: MANY}
    lab.same_everywhere()


async def test_the_controller_after_that_goes_on_with_the_fencing_at_once_too() -> None:
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    silence(lab, controller, (12, epochs[12]))
    for node_id in (2, 3):
        controller = lab.lead(node_id)
        assert controller.make_part()
        lab.quorum.commit()
    assert leaders(controller) == {
        12: 3 * (RECORDS_PER_PART_MAX - 1),
        11: MANY - 3 * (RECORDS_PER_PART_MAX - 1),
    }
    lab.same_everywhere()


async def test_a_fencing_goes_on_behind_a_controller_that_stands_on_a_snapshot() -> None:
    """The one in between makes no part of it, and keeps the broker waiting."""
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    silence(lab, controller, (12, epochs[12]))
    lab.quorum.commit()
    restored = lab.controllers[2]
    before = restored.committed
    header = SnapshotHeaderRecord(
        CLUSTER, before.end_offset, before.controller_epoch, before.last_time_ms, before.last_crc
    )
    lab.snapshots["s"] = image_of(list(before.to_rows()), header=header)
    restored.on_restore("s")
    assert restored.committed.begun == before.begun
    lab.lead(2)
    assert restored.is_taken_out(BrokerId(11))
    successor = lab.lead(3)
    lab.finish(successor)
    lab.quorum.commit()
    assert successor.committed.brokers[BrokerId(11)].fenced
    assert leaders(successor) == {12: MANY}
    lab.same_everywhere()


async def test_a_fencing_is_not_gone_on_with_behind_a_controller_that_may_not_have_known_of_it() -> None:
    """Goal: whoever got an answer has a whole session. Method: the controller in between stands on a snapshot, which of
    level 1, which does not say what had begun, so it answers the broker without a record. The controller after it remembers.
    """
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    controller.append(Decision(records=(FeatureLevelRecord(METAQUORUM_VERSION, 1),)), NO_ENVELOPE)
    silence(lab, controller, (12, epochs[12]))
    lab.quorum.commit()
    restored = lab.controllers[2]
    lab.snapshots["s"] = dataclasses.replace(restored.committed, begun=EMPTY.begun)
    restored.on_restore("s")
    lab.lead(2)
    _, written_end = restored.heartbeat(
        poll(11, epochs[11], applied=restored.committed.end_offset), anybody()
    )
    assert written_end is None
    successor = lab.lead(3)
    assert not successor.make_part()
    assert not successor.committed.brokers[BrokerId(11)].fenced
    fence_the_silent(lab, successor, (12, epochs[12]))
    assert successor.committed.brokers[BrokerId(11)].fenced
    lab.same_everywhere()


def topic_of(
    partitions: int,
    *,
    name: str,
    replication_factor: int = -1,
    assignment: tuple[tuple[BrokerId, ...], ...] | None = None,
) -> CreateTopic:
    return CreateTopic(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        assignment=assignment,
        configs={},
        validate_only=False,
    )


async def test_an_election_in_parts_is_gone_on_with_by_the_next_controller() -> None:
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11)
    fence_the_silent(lab, controller)
    assert leaders(controller) == {-1: MANY}
    controller.heartbeat(poll(11, epochs[11], applied=controller.committed.end_offset), anybody())
    lab.quorum.commit()
    assert 0 < leaders(controller)[11] < MANY
    controller.make_part()
    successor = lab.lead(2, keep=0)
    lab.finish(successor)
    lab.quorum.commit()
    assert leaders(successor) == {11: MANY}


async def test_a_request_repeated_between_two_parts_of_itself_is_carried_out_once() -> None:
    lab = Lab()
    controller, _ = await with_many_partitions(lab, 11, 12)
    began, request_id = len(lab.quorum.log), uuid(77)
    command = UnregisterBroker(broker_id=BrokerId(11))
    asked = [asyncio.create_task(controller.submit(command, anybody(request_id))) for _ in range(2)]
    await spin()
    lab.finish(controller)
    await spin()
    lab.quorum.commit()
    first, second = [await task for task in asked]
    assert first == second
    batches = [batch for frames in lab.quorum.log[began:] for batch, _ in decode_all(frames)]
    assert [batch.envelope.request_id for batch in batches] == [None] * (len(batches) - 1) + [uuid(77)]
    assert max(len(batch.records) for batch in batches) <= RECORDS_PER_PART_MAX
    assert leaders(controller) == {12: MANY}


async def test_a_topic_restored_amid_an_election_gets_its_leaders_too() -> None:
    """Goal: no partition waits for a leader that is up. Method: the election is past the topic that is restored."""
    lab = Lab(undelete_window_ms=1000000)
    controller = lab.lead(1)
    epoch = await online(lab, controller, 11)
    for name in ("one", "other"):
        assignment = ((BrokerId(11),),) * 3_000
        await lab.write(controller, topic_of(-1, name=name, assignment=assignment))
    first, last = sorted(controller.committed.topics.by_id.values(), key=lambda topic: topic.topic_id)
    await lab.write(controller, DeleteTopic(name=first.name))
    fence_the_silent(lab, controller)
    controller.heartbeat(poll(11, epoch, applied=controller.committed.end_offset), anybody())
    lab.quorum.commit()
    await lab.write(controller, UndeleteTopics(topics=(first.name,)))
    for topic in (first, last):
        assert {each.leader for each in controller.committed.topics.by_id[topic.topic_id].partitions} == {11}
    lab.same_everywhere()


def test_a_broker_that_polls_all_the_time_is_removed_in_as_many_parts_as_a_silent_one() -> None:
    """Goal: heartbeats send a removal back to no partition that it has visited. Method: one between any two parts."""

    async def parts(lab: Lab, *, polls: bool) -> list[str]:
        controller, epochs = await with_many_partitions(lab, 11, 12)
        began = len(lab.quorum.log)
        removal = UnregisterBroker(broker_id=BrokerId(11))
        asked = asyncio.create_task(controller.submit(removal, anybody()))
        applied = controller.committed.end_offset
        await spin()
        while not controller.is_fenced(BrokerId(11), epochs[11]):
            if polls:
                controller.heartbeat(poll(11, epochs[11], applied=applied), anybody())
            assert controller.make_part()
        lab.quorum.commit()
        await asked
        assert leaders(controller) == {12: MANY}
        assert not controller.make_part()
        batches = [batch for frames in lab.quorum.log[began:] for batch, _ in decode_all(frames)]
        return ["" if batch.envelope.cause is None else batch.envelope.cause.code for batch in batches]

    made: list[list[str]] = []

    async def story(lab: Lab, *, polls: bool) -> None:
        made.append(await parts(lab, polls=polls))

    for polls in (False, True):
        run(partial(story, polls=polls))
    assert len(made[0]) > 2
    assert made[0] == made[1] == ["BROKER_UNREGISTERED"] * len(made[0])


async def _begun(lab: Lab, controller: Controller, *, request_id: int | None = None) -> asyncio.Task[Written]:
    """Begin to remove broker 11, and return while other parts are due."""
    removal = UnregisterBroker(broker_id=BrokerId(11))
    known = None if request_id is None else uuid(request_id)
    asked = asyncio.create_task(controller.submit(removal, anybody(known)))
    while not controller.is_taken_out(BrokerId(11)):
        await asyncio.sleep(0)
    return asked


async def _given_up(asked: asyncio.Task[Written]) -> None:
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked


@pytest.mark.parametrize("is_by_the_next_controller", [False, True])
async def test_a_removal_that_nobody_waits_for_any_more_is_finished(is_by_the_next_controller: bool) -> None:
    lab = Lab()
    controller, _ = await with_many_partitions(lab, 11, 12)
    await _given_up(await _begun(lab, controller))
    lab.quorum.commit()
    if is_by_the_next_controller:
        controller = lab.lead(2)
    lab.finish(controller)
    lab.quorum.commit()
    assert BrokerId(11) not in controller.committed.brokers
    assert leaders(controller) == {12: MANY}
    assert not controller.committed.begun
    lab.same_everywhere()


@pytest.mark.parametrize("asks_amid_it", [False, True])
async def test_a_removal_that_the_next_controller_finishes_is_answered_to_who_repeats_it(
    asks_amid_it: bool,
) -> None:
    """Its parts name its request, so the last one keeps the answer, whether somebody waits for it there or not."""
    lab = Lab()
    controller, _ = await with_many_partitions(lab, 11, 12)
    asked = await _begun(lab, controller, request_id=7)
    successor = lab.lead(2)
    with pytest.raises(OutcomeUnknown):
        await asked
    again = UnregisterBroker(broker_id=BrokerId(11))
    if asks_amid_it:
        answer = await lab.write(successor, again, uuid(7))
    else:
        lab.finish(successor)
        lab.quorum.commit()
        answer = await lab.write(successor, again, uuid(7))
    assert answer.outcome[0] == 11
    with pytest.raises(BrokerIdNotRegistered):
        await lab.write(successor, again, uuid(8))
    lab.same_everywhere()


async def test_a_part_that_is_refused_ends_its_change_and_no_other() -> None:
    lab = Lab()
    controller, _ = await with_many_partitions(lab, 11, 12)

    def refuses(_context: object) -> Decision:
        raise BrokerIdNotRegistered("there is none")

    asked = await _begun(lab, controller)
    changes, told = controller.active_reign.changes, list[object]()
    changes.begin(LongChange("refused", refuses, "any", waiting=[told.append]))
    lab.finish(controller)
    assert [type(ended) for ended in told] == [BrokerIdNotRegistered]
    await spin()
    lab.quorum.commit()
    assert (await asked).outcome[0] == 11


async def test_a_second_removal_waits_for_the_end_of_the_first() -> None:
    lab = Lab()
    controller, _ = await with_many_partitions(lab, 11, 12)
    first = await _begun(lab, controller, request_id=1)
    second = asyncio.create_task(
        controller.submit(UnregisterBroker(broker_id=BrokerId(11)), anybody(uuid(2)))
    )
    await spin()
    lab.finish(controller)
    await spin()
    lab.quorum.commit()
    assert (await first).outcome[0] == 11
    with pytest.raises(BrokerIdNotRegistered):
        await second


@pytest.mark.parametrize("is_held", [True, False])
async def test_a_repeated_creation_is_answered_as_the_first_was(is_held: bool) -> None:
    """Goal: little is kept of an answer, all of it is answered. Method: with the batch in the log, and from the image."""
    lab = Lab()
    controller, request_id = lab.lead(1), uuid(78)
    for broker_id in (11, 12):
        await online(lab, controller, broker_id)
    if is_held:

        def reading(offset: int) -> Sliced[RecordBatch | None]:
            yield
            frame = next(
                frame
                for frames in lab.quorum.log
                for batch, frame in decode_all(frames)
                if batch.base_offset == offset
            )
            return (yield from decoding(frame))[0]

        controller._reading_batch_at = reading
    configs = {"retention.ms": "5", "cleanup.policy": "compact"}
    command = dataclasses.replace(topic_of(3, name="t", replication_factor=2), configs=configs)
    first = await lab.write(controller, command, request_id)
    kept = controller.committed.results.get(request_id)
    assert kept is not None and len(kept.response) < 30
    assert await lab.write(controller, command, request_id) == first
    if is_held:
        await lab.write(controller, DeleteTopic(name="t"))
        assert await lab.write(controller, command, request_id) == first
    else:
        await lab.write(controller, DeleteTopic(name="t"))
        again = await lab.write(controller, command, request_id)
        assert again.outcome == (*first.outcome[:2], (), ())


@pytest.mark.parametrize(
    ("took_ms", "apart"),
    [
        (SLOW_DECISION_MS, [True, True, True]),
        (LOOP_SLICE_MS, [True, True, True]),
        (LOOP_SLICE_MS - 1, [False, False, False, False, True]),
    ],
)
async def test_long_decisions_that_arrive_together_leave_the_loop_to_others_in_between(
    monkeypatch: pytest.MonkeyPatch, took_ms: int, apart: list[bool]
) -> None:
    """A slow one rests before it is written, and the others wait as long; quick ones have ROUND_MS of a turn in all."""
    lab = Lab()
    controller, loop_round, decided_in = lab.lead(1), 0, []

    def slow(*arguments: Any) -> Sliced[Decision]:
        lab.now_ms += took_ms
        decided_in.append(loop_round)
        return deciding(*arguments)

    monkeypatch.setattr("quorum.controller.controller.deciding", slow)
    writes = [
        asyncio.create_task(controller.submit(setting(str(n)), anybody())) for n in range(len(apart) + 1)
    ]
    while len(decided_in) < len(writes):
        await asyncio.sleep(0)
        loop_round += 1
    while len(controller._waiters) < len(writes):
        await asyncio.sleep(0)
    lab.quorum.commit()
    ends = [(await write).end_offset for write in writes]
    assert ends == sorted(ends)
    assert [after - before > 1 for before, after in pairwise(decided_in)] == apart


async def test_a_controller_that_slept_blames_no_broker() -> None:
    lab = Lab()
    controller = lab.lead(1)
    await online(lab, controller, 11)
    controller.check_sessions()
    lab.now_ms += 60_000
    controller.check_sessions()
    controller.check_sessions()
    assert not controller.tip.brokers[BrokerId(11)].fenced


async def test_a_clock_that_is_set_is_told_and_changes_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab()
    controller = lab.lead(1)
    await online(lab, controller, 11)
    for jump_ms in (0, 900, -3_600_000, 0, 3_600_000):
        lab.clock_set_by_ms += jump_ms
        lab.now_ms += 100
        controller.check_sessions()
    assert not controller.tip.brokers[BrokerId(11)].fenced
    told = [record for record in caplog.records if record.msg == "time_of_day_jumped"]
    assert [getattr(record, "jumped_ms", None) for record in told] == [-3_600_000, 3_600_000]


async def test_a_new_controller_grants_every_broker_a_full_session() -> None:
    lab = Lab()
    controller = lab.lead(1)
    await online(lab, controller, 11)
    lab.now_ms += 8_900
    successor = lab.lead(2)
    for _ in range(10):
        lab.now_ms += 899
        successor.check_sessions()
    assert not successor.tip.brokers[BrokerId(11)].fenced
    lab.now_ms += 20
    successor.check_sessions()
    assert successor.tip.brokers[BrokerId(11)].fenced


async def test_nothing_is_decided_before_the_claim_is_applied() -> None:
    lab = Lab()
    lab.quorum.elect(1)
    with pytest.raises(NotController):
        await lab.controllers[1].submit(setting("1"), anybody())
    assert lab.controllers[1].committed == EMPTY


def many(name: str, partitions: int = 3_000) -> CreateTopics:
    return CreateTopics(topics=(NewTopic(name, partitions, 1),), validate_only=False)


def ticking(lab: Lab) -> None:
    """Let each look at the clock take a millisecond, so that long work rests often."""

    def now_ms() -> int:
        lab.now_ms += 1
        return lab.now_ms

    for controller in lab.controllers.values():
        controller._now_ms = controller.turns._now_ms = now_ms


async def test_a_large_request_leaves_the_loop_to_others_and_is_one_batch() -> None:
    """Sessions are judged meanwhile; of two large requests one follows the other."""
    lab = Lab()
    controller = lab.lead(1)
    await online(lab, controller, 11)
    ticking(lab)
    before, rests = controller.tip, 0
    writes = [asyncio.create_task(controller.submit(many(name), anybody())) for name in ("a", "b")]
    while len(controller._waiters) < 2:
        await asyncio.sleep(0)
        if controller.turns.is_mid_decision:
            rests, now_ms = rests + 1, lab.now_ms
            assert controller.tip.end_offset in (before.end_offset, before.end_offset + 3_001)
            assert controller.check_sessions() == 0
            lab.now_ms = now_ms  # how often this loop looks is no part of how long the decision takes
    assert rests > 2
    lab.quorum.commit()
    ends = [(await write).end_offset for write in writes]
    assert ends == [before.end_offset + 3_001, before.end_offset + 6_002]
    assert not controller.turns.is_mid_decision
    lab.same_everywhere()


async def test_a_fencing_overtakes_a_large_request_which_is_decided_behind_it() -> None:
    """A24: no leader change waits for a creation. Method: a broker's session ends while the creation rests."""
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    now_ms = controller._now_ms
    for _ in range(2):
        lab.now_ms += 4_400
        controller.heartbeat(poll(12, epochs[12], applied=controller.committed.end_offset), anybody())
        controller.check_sessions()
    lab.now_ms += 300
    ticking(lab)
    write = asyncio.create_task(controller.submit(many("a"), anybody()))
    while not controller.turns.is_mid_decision:
        await asyncio.sleep(0)
    controller._now_ms = now_ms
    began = len(lab.quorum.log)
    assert controller.check_sessions() > 0
    assert controller.is_taken_out(BrokerId(11))
    assert len(lab.quorum.log) == began + 1, "a part is made at once"
    while controller.make_part():
        await asyncio.sleep(0)
    fenced = len(lab.quorum.log)
    assert controller.is_fenced(BrokerId(11), epochs[11])
    while len(lab.quorum.log) == fenced:
        await asyncio.sleep(0)
    lab.quorum.commit()
    await write
    made = controller.committed.topics.named("a")
    assert made is not None and {partition.leader for partition in made.partitions} == {12}
    lab.same_everywhere()


async def _at_its_end(controller: Controller) -> None:
    """Wait until no decision rests: the one that did is at its end, or given up."""
    while controller.turns.is_mid_decision:
        await asyncio.sleep(0)


def _counting_decisions(controller: Controller) -> list[object]:
    """Return what grows with each time that a request is decided."""
    begun: list[object] = []
    writing = controller._writing

    def begins(*arguments: Any) -> Any:
        begun.append(arguments)
        return writing(*arguments)

    controller._writing = begins  # type: ignore[assignment, method-assign]
    return begun


async def test_a_fencing_that_begins_without_a_record_overtakes_a_large_request_too() -> None:
    """Goal: a creation gives nothing to a broker whose fencing is past the new topic. Method: the tip stays as it is."""
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    fence_the_silent(lab, controller, (12, epochs[12]))
    controller.heartbeat(poll(11, epochs[11], applied=controller.committed.end_offset), anybody())
    lab.quorum.commit()
    assert not controller.committed.brokers[BrokerId(11)].fenced
    for _ in range(2):
        lab.now_ms += 4_400
        controller.heartbeat(poll(12, epochs[12], applied=controller.committed.end_offset), anybody())
        controller.check_sessions()
    lab.now_ms += 300
    now_ms, context = controller._now_ms, controller._context
    ticking(lab)
    both = (tuple(map(BrokerId, (11, 12))),) * 3_000
    begun = _counting_decisions(controller)
    write = asyncio.create_task(controller.submit(topic_of(-1, name="both", assignment=both), anybody()))
    while not controller.turns.is_mid_decision:
        await asyncio.sleep(0)
    controller._now_ms = now_ms
    slow_parts(lab, controller, looks=1)
    before = controller.tip
    assert controller.check_sessions() > 0
    assert controller.tip is before and controller.is_taken_out(BrokerId(11))
    controller._context = context  # type: ignore[method-assign]
    await _at_its_end(controller)
    while not len(controller._waiters):
        controller.make_part()
        await asyncio.sleep(0)
    lab.quorum.commit()
    await write
    assert len(begun) == 2
    made = controller.committed.topics.named("both")
    assert made is not None and {partition.isr for partition in made.partitions} == {(12,)}
    lab.same_everywhere()


async def test_a_large_request_that_is_overtaken_again_and_again_is_decided_all_the_same() -> None:
    lab = Lab()
    controller = lab.lead(1)
    await online(lab, controller, 11)
    ticking(lab)
    begun, overtook = _counting_decisions(controller), 0
    write = asyncio.create_task(controller.submit(many("a"), anybody()))
    async with asyncio.timeout(30):
        while not len(controller._waiters):
            await asyncio.sleep(0)
            turns = controller.turns
            if turns.is_mid_decision and not turns.is_exclusive and overtook < len(begun):
                controller.append(Decision(records=(NoOpRecord(),)), NO_ENVELOPE)
                overtook = len(begun)
    assert overtook == OVERTAKEN_MAX
    lab.quorum.commit()
    await write
    lab.same_everywhere()


async def test_a_claim_lost_in_the_middle_of_a_large_request_leaves_nothing_of_it() -> None:
    lab = Lab()
    controller = lab.lead(1)
    await online(lab, controller, 11)
    ticking(lab)
    before = controller.tip.end_offset
    write = asyncio.create_task(controller.submit(many("a"), anybody()))
    while not controller.turns.is_mid_decision:
        await asyncio.sleep(0)
    successor = lab.lead(2)
    with pytest.raises(NotController):
        await write
    assert successor.committed.end_offset == before + 1
    assert "a" not in successor.committed.topics.ids
    lab.same_everywhere()


@pytest.mark.parametrize("moved_at", [1, 4, 8, 12])
async def test_a_tip_that_moves_in_the_middle_of_a_large_request_has_it_begin_again(moved_at: int) -> None:
    """At any of its rests: while it is decided, encoded or applied."""
    lab = Lab()
    controller = lab.lead(1)
    await online(lab, controller, 11)
    ticking(lab)
    rests, moved = 0, []
    hold = controller.turns._hold

    def resting() -> None:
        nonlocal rests
        hold()
        rests += 1
        if rests == moved_at:
            moved.append(controller.append(Decision(records=(NoOpRecord(),)), NO_ENVELOPE))

    controller.turns._hold = resting  # type: ignore[method-assign]
    write = asyncio.create_task(controller.submit(many("a"), anybody()))
    while len(controller._waiters) < 1:
        await asyncio.sleep(0)
    lab.quorum.commit()
    assert (await write).base_offset == moved[0].end_offset
    lab.same_everywhere()


async def test_a_process_that_is_heard_of_while_another_registers_in_slices_keeps_its_id() -> None:
    """Goal: a session that was just renewed is not taken over. Method: the heartbeat comes at a rest and writes nothing."""
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    for _ in range(2):
        lab.now_ms += 4_000
        controller.check_sessions()
    lab.now_ms += 1_001
    looks = count(0, LOOP_SLICE_MS)
    controller.turns._now_ms = lambda: next(looks)
    asked = asyncio.create_task(controller.submit(registration(11, 2), anybody()))
    while not controller.turns.is_mid_decision:
        await asyncio.sleep(0)
    appended = len(lab.quorum.log)
    late = poll(11, epochs[11], applied=controller.committed.end_offset)
    _, written_end = controller.heartbeat(dataclasses.replace(late, is_late=True), anybody())
    assert written_end is None
    with pytest.raises(DuplicateBrokerRegistration):
        await asked
    assert len(lab.quorum.log) == appended
    assert leaders(controller) == {11: MANY}
