"""Heartbeats of brokers that send the next one only after a while: what their answers wait for, and for how long."""

import asyncio
import dataclasses
from typing import Any

import pytest

from metadata_log.errors import MetadataError, NotController, StaleBrokerEpoch
from metadata_log.ids import BrokerId, NodeId
from metadata_log.wire.commands import BrokerHeartbeat
from metadata_log.wire.fetch import BrokerState
from quorum.controller.controller import Controller
from quorum.controller.heartbeats import Heartbeats
from quorum.decide.brokers import UnregisterBroker
from quorum.decide.heartbeat import HeartbeatAnswered
from tests.support.callers import anybody
from tests.support.lab import Lab, online, poll, registration, spin
from tests.unit.quorum.controller.test_controller import (
    MANY,
    fence_the_silent,
    leaders,
    silence,
    with_many_partitions,
)

LONG_MS = 60_000


class Beats:
    """A lab whose brokers send heartbeats to controller 1."""

    def __init__(self, *, max_wait_ms: int = LONG_MS) -> None:
        self.lab = lab = Lab()
        self.controller: Controller = lab.controllers[1]
        self.released: list[int] = []
        self.heartbeats = Heartbeats(
            self.controller,
            now_ms=lambda: lab.now_ms,
            max_wait_ms=max_wait_ms,
            release=self.released.append,
        )
        self.controller.attach(self.controller.raft, [self.heartbeats])

    def send(self, command: BrokerHeartbeat, *, ago_ms: int = 0) -> "asyncio.Task[HeartbeatAnswered]":
        arrived_ms = self.lab.now_ms - ago_ms
        return asyncio.create_task(self.heartbeats.finished(command, anybody(), arrived_ms=arrived_ms))

    def at_end(self, broker_id: int, epoch: int, **wishes: bool) -> BrokerHeartbeat:
        return poll(broker_id, epoch, applied=self.controller.tip.end_offset, **wishes)

    async def commit(self) -> None:
        await spin()
        self.lab.quorum.commit()
        await spin()

    async def told(self, answer: "asyncio.Task[HeartbeatAnswered]") -> HeartbeatAnswered:
        """Commit whatever is appended until a heartbeat is answered."""
        for _ in range(10):
            await self.commit()
        assert answer.done()
        return await answer


async def test_the_answer_that_unfences_comes_with_its_record() -> None:
    made = Beats()
    controller = made.lab.lead(1)
    epoch = (await made.lab.write(controller, registration(11))).outcome[0]
    behind = await made.send(poll(11, epoch, applied=epoch))
    assert behind == HeartbeatAnswered(BrokerState.FENCED, should_shut_down=False, is_caught_up=False)
    answer = made.send(poll(11, epoch, applied=epoch + 1))
    await spin()
    assert not answer.done()
    await made.commit()
    assert await answer == HeartbeatAnswered(BrokerState.ONLINE, should_shut_down=False, is_caught_up=True)


async def test_a_shutdown_of_many_leaderships_takes_one_heartbeat() -> None:
    """Goal: its parts wait for no heartbeat. Method: five parts; another broker reports the last of them."""
    made = Beats()
    controller, epochs = await with_many_partitions(made.lab, 11, 12)
    controller.records_per_part_max = MANY // 5
    assert leaders(controller) == {11: MANY}
    answer = made.send(made.at_end(11, epochs[11], want_shut_down=True))
    await spin()
    assert leaders_of_tip(controller) > 0, "the first part is made"
    made.lab.finish(controller)
    await made.commit()
    assert leaders(controller) == {12: MANY}
    assert not answer.done(), "the other broker does not know yet"
    made.lab.now_ms += 1_999  # its next heartbeat
    caught_up = made.send(made.at_end(12, epochs[12]))
    await made.commit()
    assert (await answer).should_shut_down
    assert made.released == [11]
    assert (await caught_up).state is BrokerState.ONLINE
    assert controller.committed.brokers[BrokerId(11)].fenced
    assert not controller.sessions.has_session(BrokerId(11), epochs[11], now_ms=made.lab.now_ms)


def leaders_of_tip(controller: Controller) -> int:
    topic = controller.tip.topics.named("many")
    assert topic is not None
    return sum(partition.leader == 12 for partition in topic.partitions)


async def test_a_broker_that_may_not_go_yet_is_told_so_after_a_while() -> None:
    made = Beats(max_wait_ms=50)
    controller, epochs = await with_many_partitions(made.lab, 11, 12)
    answer = made.send(made.at_end(11, epochs[11], want_shut_down=True))
    await spin()
    made.lab.finish(controller)
    await made.commit()
    assert await answer == HeartbeatAnswered(BrokerState.STOPPING, should_shut_down=False, is_caught_up=True)
    assert controller.sessions.has_session(BrokerId(11), epochs[11], now_ms=made.lab.now_ms)


@pytest.mark.parametrize("is_fenced", [False, True])
async def test_a_broker_that_is_fenced_meanwhile_may_go_with_the_same_heartbeat(is_fenced: bool) -> None:
    """Goal: it need not send another one. Method: its fencing for silence is under way, in parts, or over."""
    made = Beats()
    controller, epochs = await with_many_partitions(made.lab, 11, 12)
    controller.records_per_part_max = MANY // 5
    silence(made.lab, controller, (12, epochs[12]))
    if is_fenced:
        made.lab.finish(controller)
        await made.commit()
    answer = made.send(made.at_end(11, epochs[11], want_shut_down=True))
    await made.commit()
    assert answer.done() == is_fenced
    made.lab.finish(controller)
    assert (await made.told(answer)).should_shut_down
    assert leaders(controller) == {12: MANY}


async def test_the_last_broker_waits_for_no_other() -> None:
    made = Beats()
    controller, epochs = await with_many_partitions(made.lab, 11)
    answer = made.send(made.at_end(11, epochs[11], want_shut_down=True))
    await spin()
    made.lab.finish(controller)
    assert (await made.told(answer)).should_shut_down
    assert leaders(controller) == {-1: MANY}


async def test_a_heartbeat_that_came_late_renews_its_session_and_waits_for_nothing() -> None:
    made = Beats()
    controller, epochs = await with_many_partitions(made.lab, 11, 12)
    answer = await made.send(made.at_end(11, epochs[11], want_shut_down=True), ago_ms=1_000)
    assert answer.state is BrokerState.ONLINE
    assert leaders(controller) == {11: MANY}


async def test_a_late_wish_is_none_whether_its_answer_has_a_task_or_not() -> None:
    made = Beats()
    controller = made.lab.lead(1)
    epoch = await online(made.lab, controller, 11)
    late = made.at_end(11, epoch, want_fence=True)
    taken = made.heartbeats.take(late, anybody(), arrived_ms=made.lab.now_ms - 1_000, done=lambda _: None)
    assert taken is not None
    async with asyncio.timeout(60):
        assert (await taken).state is BrokerState.ONLINE
    assert not controller.tip.brokers[BrokerId(11)].fenced


async def test_an_answer_without_records_waits_for_a_proof_of_leadership() -> None:
    """Goal: a deposed leader tells nobody for long that it is well; a thousand idle brokers share one round of probes."""
    made = Beats()
    controller = made.lab.lead(1)
    epoch = await online(made.lab, controller, 11)
    node = made.lab.quorum.nodes[NodeId(1)]
    node.hold_reads = True
    answers = [made.send(made.at_end(11, epoch)) for _ in range(3)]
    while not node._reads and not any(answer.done() for answer in answers):
        await asyncio.sleep(0.001)
    assert len(node._reads) == 1 and not any(answer.done() for answer in answers)
    node.answer_reads()
    for answer in answers:
        assert (await answer).state is BrokerState.ONLINE
    deposed = made.send(made.at_end(11, epoch))
    await spin()
    made.lab.quorum.elect(2)
    with pytest.raises(NotController):
        await deposed


async def test_a_heartbeat_that_waits_for_the_proof_alone_has_no_task() -> None:
    made = Beats()
    lab = made.lab
    controller = lab.lead(1)
    epochs = {broker_id: await online(lab, controller, broker_id) for broker_id in (11, 12)}
    node = lab.quorum.nodes[NodeId(1)]
    node.hold_reads = True
    told: list[HeartbeatAnswered | MetadataError] = []

    def take(command: BrokerHeartbeat) -> Any:
        return made.heartbeats.take(command, anybody(), arrived_ms=lab.now_ms, done=told.append)

    for broker_id, epoch in epochs.items():
        assert take(made.at_end(broker_id, epoch)) is None
    assert controller.sessions.applied_offset(BrokerId(11)) == controller.tip.end_offset
    async with asyncio.timeout(60):
        while not node._reads:
            await asyncio.sleep(0.001)
    assert len(node._reads) == 1 and not told
    node.answer_reads()
    await spin()
    assert [each.state for each in told if isinstance(each, HeartbeatAnswered)] == [BrokerState.ONLINE] * 2
    leaving = take(made.at_end(11, epochs[11], want_shut_down=True))
    assert leaving is not None
    node.hold_reads = False
    assert (await made.told(asyncio.create_task(leaving))).should_shut_down
    fencing = take(made.at_end(12, epochs[12], want_fence=True))
    assert fencing is not None, "its answer waits for a record, and that proves leadership"
    assert (await made.told(asyncio.create_task(fencing))).state is BrokerState.FENCED
    with pytest.raises(StaleBrokerEpoch):
        take(made.at_end(12, epochs[12] + 1))
    told.clear()
    assert take(made.at_end(12, epochs[12], want_fence=True)) is None
    lab.quorum.elect(2)
    async with asyncio.timeout(60):
        while not told:
            await asyncio.sleep(0.001)
    assert isinstance(told[0], NotController)


async def test_a_heartbeat_that_is_a_contact_waits_for_no_turn() -> None:
    """Goal: brokers that want nothing are heard at once while decisions hold the loop; the others have their turns."""
    made = Beats()
    lab = made.lab
    controller = lab.lead(1)
    epochs = {broker_id: await online(lab, controller, broker_id) for broker_id in (11, 12)}
    told: list[HeartbeatAnswered | MetadataError] = []

    def take(command: BrokerHeartbeat) -> Any:
        return made.heartbeats.take(command, anybody(), arrived_ms=lab.now_ms, done=told.append)

    controller.turns._hold()
    lab.now_ms += 1_000
    assert take(made.at_end(11, epochs[11])) is None
    assert controller.sessions.last_contact_ms_ago(BrokerId(11), now_ms=lab.now_ms) == 0
    fencing = asyncio.create_task(take(made.at_end(12, epochs[12], want_fence=True)))
    await spin()
    assert not controller.tip.brokers[BrokerId(12)].fenced
    controller.turns._end_turn()
    assert (await made.told(fencing)).state is BrokerState.FENCED


@pytest.mark.parametrize("what", ["its unfencing", "its fencing in parts", "its removal in parts"])
async def test_a_contact_that_waits_for_no_turn_overtakes_nothing_about_its_broker(what: str) -> None:
    """Goal: no broker is told that it serves, or stays, before what was decided about it is applied."""
    made = Beats()
    lab = made.lab
    controller, epochs = await with_many_partitions(lab, 11, 12)
    told: list[HeartbeatAnswered | MetadataError] = []
    if what == "its fencing in parts":
        controller.records_per_part_max = MANY // 5
        silence(lab, controller, (12, epochs[12]))
    elif what == "its unfencing":
        fence_the_silent(lab, controller, (12, epochs[12]))
        lab.quorum.commit()
        controller.heartbeat(made.at_end(11, epochs[11]), anybody())
        assert not controller.tip.brokers[BrokerId(11)].fenced
    else:
        removal = asyncio.create_task(controller.submit(UnregisterBroker(broker_id=BrokerId(11)), anybody()))
        await spin()
        assert controller.is_taken_out(BrokerId(11))
    controller.turns._hold()
    contact = made.at_end(11, epochs[11])
    taken = made.heartbeats.take(contact, anybody(), arrived_ms=lab.now_ms, done=told.append)
    assert taken is not None
    waiting = asyncio.create_task(taken)
    await spin()
    assert not waiting.done()
    controller.turns._end_turn()
    await spin()
    assert not waiting.done()
    lab.finish(controller)
    if what == "its removal in parts":
        with pytest.raises(StaleBrokerEpoch):
            await made.told(waiting)
        await removal
    else:
        expected = BrokerState.FENCED if what == "its fencing in parts" else BrokerState.ONLINE
        assert (await made.told(waiting)).state is expected
    assert told == []


@pytest.mark.parametrize("way", ["take", "finished"])
async def test_no_broker_is_told_that_it_serves_while_parts_of_its_fencing_are_left(way: str) -> None:
    """Goal: an answer in between would renew its session, and it would serve beyond its fence.

    Method: a turn is free, and the parts that are made are committed, so that nothing about the broker is in flight.
    """
    made = Beats()
    lab = made.lab
    controller, epochs = await with_many_partitions(lab, 11, 12)
    controller.records_per_part_max = MANY // 5
    silence(lab, controller, (12, epochs[12]))
    lab.quorum.commit()
    assert controller.turns.is_free and controller.is_taken_out(BrokerId(11))
    contact = made.at_end(11, epochs[11])
    told: list[HeartbeatAnswered | MetadataError] = []
    if way == "take":
        taken = made.heartbeats.take(contact, anybody(), arrived_ms=lab.now_ms, done=told.append)
        assert taken is not None
        waiting = asyncio.create_task(taken)
    else:
        waiting = made.send(contact)
    await spin()
    assert not waiting.done()
    lab.finish(controller)
    assert (await made.told(waiting)).state is BrokerState.FENCED
    assert told == []


async def test_an_error_of_one_that_waits_for_the_proof_ends_none_of_the_others() -> None:
    made = Beats()
    controller = made.lab.lead(1)
    epoch = await online(made.lab, controller, 11)
    told: list[HeartbeatAnswered | MetadataError] = []
    logged: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: logged.append(context["exception"])
    )

    def fails(_outcome: HeartbeatAnswered | MetadataError) -> None:
        raise ValueError("unforeseen")

    for done in (told.append, fails, fails, told.append):
        taken = made.heartbeats.take(made.at_end(11, epoch), anybody(), arrived_ms=made.lab.now_ms, done=done)
        assert taken is None
    async with asyncio.timeout(60):
        while len(told) < 2:
            await asyncio.sleep(0.001)
    assert list(map(type, logged)) == [ValueError] * 2


async def test_all_that_wait_hear_that_the_controller_resigned() -> None:
    made = Beats()
    controller, epochs = await with_many_partitions(made.lab, 11, 12)
    answer = made.send(made.at_end(11, epochs[11], want_shut_down=True))
    await spin()
    made.lab.finish(controller)
    await made.commit()
    assert not answer.done()
    made.lab.lead(2)
    with pytest.raises(NotController):
        await answer
    assert not made.heartbeats._stopping


async def test_two_heartbeats_of_one_broker_are_both_answered() -> None:
    """Goal: a broker whose connection broke sends its wish again on another one."""
    made = Beats()
    controller, epochs = await with_many_partitions(made.lab, 11, 12)
    command = made.at_end(11, epochs[11], want_shut_down=True)
    given_up, answer = made.send(command), made.send(dataclasses.replace(command))
    await spin()
    made.lab.finish(controller)
    await made.commit()
    given_up.cancel()
    await spin()
    made.send(made.at_end(12, epochs[12]))
    await made.commit()
    assert (await answer).should_shut_down
