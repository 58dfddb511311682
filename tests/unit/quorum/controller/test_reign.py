"""Edge: what the founding documents tell of controllers: who is active, under which epoch, what becomes of the others."""

import asyncio

import pytest

from metadata_log.batch import RecordBatch
from metadata_log.codec import decode_all
from metadata_log.errors import NotController
from metadata_log.ids import NO_LEADER, BrokerId, NodeId
from metadata_log.image.metadata_image import Delta, MetadataImage, buckets_of
from metadata_log.records.brokers import BrokerRegistrationChangeRecord
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.registry import Record
from quorum.controller.applied_listener import AppliedListener
from quorum.controller.controller import Controller
from quorum.decide.sweeps import Sweep, SweepKind
from quorum.decide.topics import DeleteTopic
from tests.support.callers import anybody, called
from tests.support.histories import step_of
from tests.support.lab import Lab, online, poll, setting, spin
from tests.unit.quorum.controller.test_controller import leaders, silence, with_many_partitions


def active(lab: Lab) -> list[int]:
    return [node_id for node_id, controller in lab.controllers.items() if controller.is_active]


async def test_one_controller_is_active_and_after_its_end_exactly_one_other() -> None:
    """A34, A36: each election, whatever it was for, is one more epoch."""
    lab = Lab()
    assert active(lab) == []
    seen = []
    lab.lead(1)  # the cluster starts
    seen.append((active(lab), lab.controllers[1].committed.controller_epoch))
    lab.lead(2)  # the active one has failed
    seen.append((active(lab), lab.controllers[1].committed.controller_epoch))
    lab.quorum.depose()  # the active one heard no majority for too long
    assert active(lab) == []
    lab.lead(3)
    seen.append((active(lab), lab.controllers[1].committed.controller_epoch))
    assert seen == [([1], 1), ([2], 2), ([3], 3)]
    lab.same_everywhere()


async def test_a_claim_of_another_ends_a_reign_though_nobody_told_it() -> None:
    """A38: a higher epoch in the log means that this controller was replaced: it decides nothing more."""
    lab = Lab()
    old = lab.lead(1)
    lab.quorum.leader = lab.quorum.nodes[NodeId(2)]
    lab.controllers[2].on_leadership(is_leader=True)
    assert active(lab) == [1]
    lab.quorum.commit()
    assert active(lab) == [2]
    with pytest.raises(NotController):
        await old.submit(setting("1"), anybody())
    assert old.committed.controller_epoch == 2


async def test_a_controller_that_slept_writes_nothing_more() -> None:
    """A43: paused for 7 s of 6 s, it wakes up believing that it leads; what it appends lands nowhere, and no epoch has
    records of two writers.
    """
    lab = Lab()
    old = lab.lead(1)
    await lab.write(old, setting("1"))
    lab.now_ms += 7_000
    task = asyncio.create_task(old.submit(setting("old"), called("User:old")))
    await spin()
    (late,) = lab.quorum.log[lab.quorum.committed :]
    new = lab.lead(2, keep=0)
    await lab.write(new, setting("2"))
    lab.quorum.log.append(late)  # it was on the way
    lab.quorum.commit()
    with pytest.raises(NotController):
        await task
    assert new.committed.configs[4, ""]["a.setting"] == "2"
    assert (new.committed.controller_epoch, active(lab)) == (2, [2])
    lab.same_everywhere()


class Steps(AppliedListener):
    """What a new controller does, in order, as seen at each step."""

    def __init__(self, lab: Lab, controller: Controller) -> None:
        self.lab, self.controller, self.seen = lab, controller, list[str]()

    def on_activity(self, *, active: bool) -> None:
        image, reign = self.controller.committed, self.controller.reign
        granted = [
            broker_id
            for broker_id, broker in image.brokers.items()
            if reign is not None
            and reign.sessions.has_session(broker_id, broker.broker_epoch, now_ms=self.lab.now_ms)
        ]
        self.seen.append(f"active {active}, epoch {image.controller_epoch}, sessions {granted}")

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:
        assert frame and delta is not None
        self.seen.append(f"told of epoch {batch.controller_epoch} at {image.end_offset == batch.end_offset}")


async def test_a_new_controller_takes_its_steps_in_order() -> None:
    """A39, A40: the claim in the log, with it the whole state; a session for every broker; the parts that only an active
    controller has; then the rest of the node hears of it. What is not applied yet is decided on by nobody, and the one
    before has stopped.
    """
    lab = Lab()
    old = lab.lead(1)
    await online(lab, old, 11)
    lab.now_ms += 60_000
    heard = {node_id: Steps(lab, lab.controllers[node_id]) for node_id in (1, 2)}
    for node_id, steps in heard.items():
        lab.controllers[node_id].attach(lab.quorum.nodes[NodeId(node_id)], [steps])
    lab.quorum.elect(2)
    assert heard[1].seen == ["active False, epoch 1, sessions []"]
    assert heard[2].seen == []
    lab.quorum.commit()
    assert heard[2].seen == ["active True, epoch 2, sessions [11]", "told of epoch 2 at True"]
    assert heard[1].seen[1:] == ["told of epoch 2 at True"]


async def test_a_controller_that_resigns_does_nothing_more() -> None:
    """A40: no session ends, no election is held, whoever asks is refused, and whoever waits hears from the next claim."""
    lab = Lab()
    controller = lab.lead(1)
    epoch = await online(lab, controller, 11)
    waiting = asyncio.create_task(controller.submit(setting("1"), anybody()))
    await spin()
    controller.resign()
    lab.now_ms += 60_000
    end = len(lab.quorum.log)
    assert controller.check_sessions() == 0
    assert controller.sweep(Sweep(SweepKind.UNCLEAN)) and not controller.make_part()
    for command in (DeleteTopic(name="t"), setting("2")):
        with pytest.raises(NotController):
            await controller.submit(command, anybody())
    with pytest.raises(NotController):
        controller.heartbeat(poll(11, epoch, applied=0), anybody())
    assert len(lab.quorum.log) == end
    lab.lead(2, keep=0)
    with pytest.raises(NotController):
        await waiting


async def test_periodic_work_runs_on_the_active_controller_alone() -> None:
    """A30: those that stand by check no session, sweep nothing and mark nothing, however long they are asked."""
    lab = Lab()
    await online(lab, lab.lead(1), 11)
    lab.now_ms += 600_000
    end = len(lab.quorum.log)
    for standby in (lab.controllers[2], lab.controllers[3]):
        assert standby.check_sessions() == 0
        for kind in SweepKind:
            standby.sweep(Sweep(kind))
        assert not standby.make_part()
    assert len(lab.quorum.log) == end


async def test_the_loss_of_a_controller_comes_before_that_of_brokers() -> None:
    """A42: while nobody is active nobody is fenced; the next controller gives every broker a full session first."""
    lab = Lab()
    old = lab.lead(1)
    await online(lab, old, 11)
    lab.quorum.depose()
    lab.now_ms += 60_000
    assert all(controller.check_sessions() == 0 for controller in lab.controllers.values())
    new = lab.lead(2)
    began = len(lab.quorum.log)
    silence(lab, new)
    lab.quorum.commit()
    (first, *_) = [batch for frames in lab.quorum.log[began - 1 :] for batch, _ in decode_all(frames)]
    assert first.claim is not None
    (fenced,) = [batch for frames in lab.quorum.log[began:] for batch, _ in decode_all(frames)]
    assert [type(record) for record in fenced.records] == [BrokerRegistrationChangeRecord]


async def test_a_new_controller_elects_where_there_is_no_leader_and_a_loser_does_nothing() -> None:
    """A41: the claim, with it the whole state; then leaders for the partitions that have none, what is to be added and
    removed goes on; the controller that lost the election writes nothing.
    """
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    topic_id = controller.committed.topics.ids["many"]
    lost: list[Record] = [PartitionChangeRecord(topic_id, number, leader=NO_LEADER) for number in (3, 5)]
    image = controller.committed
    lab.quorum.log.append(step_of(image, lost, appended_at_ms=image.last_time_ms).frame)
    lab.quorum.commit()
    began = len(lab.quorum.log)
    winner, loser = lab.lead(2), lab.controllers[3]
    for each in (winner, loser):
        each.check_sessions()
    with pytest.raises(NotController):
        loser.heartbeat(poll(11, epochs[11], applied=loser.committed.end_offset), anybody())
    lab.finish(winner)
    lab.quorum.commit()
    claim, elections = [batch for frames in lab.quorum.log[began:] for batch, _ in decode_all(frames)]
    assert (claim.claim is not None, claim.envelope.actor) == (True, "Controller:2")
    assert [(type(record), record.partition_id) for record in elections.records] == [  # type: ignore[union-attr]
        (PartitionChangeRecord, 3),
        (PartitionChangeRecord, 5),
    ]
    assert leaders(winner)[NO_LEADER] == 0


async def test_a_takeover_applies_the_end_of_the_log_and_no_snapshot() -> None:
    """A95: a controller that stood by has the whole state already; the lab has no snapshot to load."""
    lab = Lab()
    await with_many_partitions(lab, 11, 12)
    standby = lab.controllers[2]
    before = standby.committed
    assert not lab.snapshots
    lab.lead(2)
    assert standby.committed.end_offset == before.end_offset + 1
    assert standby.committed.topics is before.topics, "only the claim was applied"


async def test_silence_fences_and_a_poll_gives_back() -> None:
    """A99, A102: no poll for the session timeout: fenced, its leaderships gone; then a poll unfences it."""
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    silence(lab, controller, (12, epochs[12]))
    lab.finish(controller)
    lab.quorum.commit()
    assert controller.committed.brokers[BrokerId(11)].fenced
    assert set(leaders(controller)) == {12}
    controller.heartbeat(poll(11, epochs[11], applied=controller.committed.end_offset), anybody())
    lab.quorum.commit()
    assert not controller.committed.brokers[BrokerId(11)].fenced


async def test_every_change_says_who_asked_for_it() -> None:
    """C3: an operator, a broker or the controller itself is named in each batch, also after a change of controllers."""
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    task = asyncio.create_task(controller.submit(setting("7"), called("User:ann")))
    await spin()
    lab.quorum.commit()
    await task
    silence(lab, controller, (12, epochs[12]))
    lab.finish(controller)
    lab.quorum.commit()
    controller.heartbeat(poll(11, epochs[11], applied=controller.committed.end_offset), anybody())
    lab.quorum.commit()
    new = lab.lead(2)
    assert new.committed.digest_buckets == buckets_of(new.committed)
    actors = [
        (batch.envelope.actor, batch.envelope.cause and batch.envelope.cause.code)
        for frames in lab.quorum.log
        for batch, _ in decode_all(frames)
    ]
    named = list(dict.fromkeys(actors))
    assert named == [
        ("Controller:1", "CONTROLLER_CLAIMED"),
        ("Broker:11", "BROKER_REGISTERED"),
        ("Broker:11", "BROKER_UNFENCED"),
        ("Broker:12", "BROKER_REGISTERED"),
        ("Broker:12", "BROKER_UNFENCED"),
        ("User:ANONYMOUS", None),
        ("User:ann", None),
        ("Controller:1", "SESSION_EXPIRED"),
        ("Controller:2", "CONTROLLER_CLAIMED"),
    ]
