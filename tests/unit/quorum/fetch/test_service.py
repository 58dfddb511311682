"""MetadataFetch over a model of Raft: proofs of leadership before answers, parked polls, and what wakes them."""

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from metadata_log import limits
from metadata_log.codec import decode_all
from metadata_log.errors import NotController, ThrottlingQuotaExceeded
from metadata_log.ids import BrokerId, NodeId
from metadata_log.limits import FETCH_BYTES_MAX, SLOW_DECISION_MS
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.pace import Pieces
from metadata_log.wire.fetch import FetchRequest, SnapshotOffer
from quorum.controller.controller import Controller
from quorum.decide.decision import Decision
from quorum.decide.registry import decide
from quorum.fetch.poll import PollState, Reply
from quorum.fetch.service import FetchService
from quorum.log.committed_log import CommittedLog
from tests.support.callers import anybody
from tests.support.lab import Lab, fetch_of, online, setting, settings, spin
from tests.support.retained import retained
from tests.unit.quorum.controller.test_controller import (
    MANY,
    fence_the_silent,
    silence,
    slow_parts,
    with_many_partitions,
)


class FetchLab(Lab):
    """The lab, with a committed log and a fetch service on each controller."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.services: dict[int, FetchService] = {}
        self.logs: dict[int, CommittedLog] = {}
        self.offer: SnapshotOffer | None = None
        self.running: list[asyncio.Task[None]] = []
        for node_id, controller in self.controllers.items():
            # So small that each frame has a file of its own.
            segments = SegmentedLog.open(directory / str(node_id), segment_bytes=1)
            committed_log = self.logs[node_id] = CommittedLog(segments)
            self.services[node_id] = FetchService(
                settings=settings(node_id),
                controller=controller,
                committed_log=committed_log,
                newest_snapshot=lambda: self.offer,
                now_ms=lambda: self.now_ms,
            )
            controller.attach(controller.raft, [committed_log, self.services[node_id]])

    def at_end(self, controller: Controller, broker_id: int, epoch: int) -> FetchRequest:
        """Return the poll of a broker that has applied all there is."""
        image = controller.committed
        request = fetch_of(broker_id, epoch, applied=image.end_offset)
        return replace(
            request, last_epoch=image.controller_epoch, last_crc=image.last_crc, max_wait_ms=60_000
        )

    async def fetch_now(self, request: FetchRequest) -> Reply:
        """Poll controller 1, and commit what that leads to."""
        fetch = self.fetch(1, request)
        await spin()
        self.quorum.commit()
        return await fetch

    def fetch(self, node_id: int, request: FetchRequest) -> "asyncio.Task[Reply]":
        return asyncio.create_task(self.services[node_id].fetch(request, anybody()))


def run(directory: Path, story: Callable[[FetchLab], Awaitable[None]]) -> None:
    async def main() -> None:
        lab = FetchLab(directory)
        async with asyncio.TaskGroup() as group:
            lab.running = [group.create_task(service.polls.run()) for service in lab.services.values()]
            lab.running += [group.create_task(service.cold.run()) for service in lab.services.values()]
            await story(lab)
            for task in lab.running:
                task.cancel()

    asyncio.run(main())


def header(reply: Reply) -> dict[str, object]:
    return reply.answer.to_map()


def test_a_parked_fetch_is_woken_by_a_commit_which_proves_leadership(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        lab.quorum.nodes[NodeId(1)].hold_reads = True  # no round of probes would answer
        fetch = lab.fetch(1, lab.at_end(controller, 11, epoch))
        await spin()
        assert not fetch.done()
        assert len(lab.services[1].polls.waiting) == 1
        await lab.write(controller, setting("1"))
        answer = header(await fetch)
        assert answer["kind"] == "DELTA"
        assert answer["high_watermark"] == controller.committed.end_offset
        assert len(lab.services[1].polls.waiting) == 0

    run(tmp_path, story)


def test_a_decision_that_was_stored_is_told_though_the_controller_died_in_between(tmp_path: Path) -> None:
    """A33: the controller ends between the commit and the answer; the next one tells the broker what is stored."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        request = lab.at_end(controller, 11, epoch)
        fetch = lab.fetch(1, request)
        await spin()
        task = asyncio.create_task(controller.submit(setting("1"), anybody()))
        await spin()
        fetch.cancel()  # the connection is gone, and with it who would have been answered
        new = lab.lead(2)  # which has the decision in its log, and commits it
        await task
        reply = await lab.services[2].fetch(replace(request, max_wait_ms=0), anybody())
        answer = header(reply)
        stored = [batch for batch, _ in decode_all(reply.frames)]
        assert answer["kind"] == "DELTA"
        assert [(batch.base_offset, batch.controller_epoch) for batch in stored][:1] == [
            (request.fetch_offset, 1)
        ]
        assert stored[-1].end_offset == new.committed.end_offset == answer["high_watermark"]
        assert new.committed.configs[4, ""]["a.setting"] == "1"

    run(tmp_path, story)


def test_a_foreign_position_fences_whole_however_many_parts_that_takes(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller, epochs = await with_many_partitions(lab, 11, 12)
        request = replace(lab.at_end(controller, 11, epochs[11]), last_crc=1)
        fetch = lab.fetch(1, request)
        await spin()
        lab.finish(controller)
        await spin()
        lab.quorum.commit()
        assert header(await fetch)["broker_state"] == "FENCED"
        assert controller.committed.brokers[BrokerId(11)].fenced
        assert not any(
            partition.leader == 11
            for *_, partition in controller.committed.topics.partitions_on(BrokerId(11))
        )

    run(tmp_path, story)


def test_polls_that_arrive_together_take_turns_where_each_means_long_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epochs = {broker_id: await online(lab, controller, broker_id) for broker_id in (11, 12)}

        def slow(*arguments: Any) -> Decision:
            lab.now_ms += SLOW_DECISION_MS
            return decide(*arguments)

        monkeypatch.setattr("quorum.controller.upkeep.decide", slow)
        for broker_id, epoch in epochs.items():
            lab.fetch(1, replace(lab.at_end(controller, broker_id, epoch), want_fence=True))
        began = controller.tip.end_offset
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert controller.tip.end_offset == began + 1
        await controller.turns.wait_for_turn()
        await spin()
        assert controller.tip.end_offset == began + 2

    run(tmp_path, story)


def test_a_poll_that_comes_late_unfences_a_broker_whose_session_must_then_run_out(tmp_path: Path) -> None:
    """A99: a poll unfences, and silence fences."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        late = lab.at_end(controller, 11, epoch)
        last = lab.fetch(1, replace(late, want_shut_down=True))
        await spin()
        lab.fetch(1, late)
        await spin()
        lab.quorum.commit()
        await last
        assert not controller.committed.brokers[BrokerId(11)].fenced
        assert controller.sessions.has_session(BrokerId(11), epoch, now_ms=lab.now_ms)

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("waited_ms", "is_late"),
    [(0, False), (limits.HEARTBEAT_LATE_MS - 1, False), (limits.HEARTBEAT_LATE_MS, True)],
)
@pytest.mark.parametrize("way", ["fetch", "take"])
def test_a_heartbeat_that_stood_here_too_long_only_renews_its_session(
    tmp_path: Path, waited_ms: int, is_late: bool, way: str
) -> None:
    """B25: contact and offset are taken over, what the broker wanted is not; it is counted, and soon said again."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        count = controller.metrics.registry.get_sample_value
        service, began = lab.services[1], controller.tip.end_offset
        request = lab.at_end(controller, 11, epoch)
        if way == "fetch":
            controller.turns._is_held = True
            fetch = lab.fetch(1, replace(request, want_fence=True))
            await spin()
            lab.now_ms += waited_ms
            controller.turns._end_turn()
            await spin()
            assert (controller.tip.end_offset == began) is is_late
            lab.quorum.commit()
            assert controller.committed.brokers[BrokerId(11)].fenced is not is_late
            if is_late:
                assert len(service.polls.waiting) == 1
                await lab.write(controller, setting("1"))
            await fetch
        else:
            lab.now_ms += waited_ms
            wants = replace(request, want_fence=True)
            taken = service.take(wants, lambda _: None, anybody(), arrived_ms=lab.now_ms - waited_ms)
            assert (taken is not None) is is_late, "another needs a decision, and so a task"
            if taken is not None:
                (tick_ms,) = service.polls.waiting._polls._ticks
                assert tick_ms <= lab.now_ms + limits.HEARTBEAT_AGAIN_MS + limits.FETCH_TICK_MS
            assert controller.tip.end_offset == began
        assert count("metaquorum_timed_out_broker_heartbeats_total") == is_late
        if is_late:
            assert controller.sessions.last_contact_ms_ago(BrokerId(11), now_ms=lab.now_ms) == 0
            assert controller.sessions.applied_offset(BrokerId(11)) == request.applied_offset

    run(tmp_path, story)


def test_a_late_heartbeat_waits_for_records_about_its_broker(tmp_path: Path) -> None:
    """Goal: no broker is renewed whose fencing is about to commit. Method: it is fenced, and the record is in flight."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        request = lab.at_end(controller, 11, epoch)
        controller.heartbeat(dataclasses.replace(request.heartbeat(), want_fence=True), anybody())
        service = lab.services[1]
        assert (
            service.take(request, lambda _: None, anybody(), arrived_ms=lab.now_ms - limits.HEARTBEAT_LATE_MS)
            is None
        )
        fetch = lab.fetch(1, request)
        await spin()
        assert not fetch.done() and len(service.polls.waiting) == 0
        lab.quorum.commit()
        await fetch

    run(tmp_path, story)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_broker_that_is_being_fenced_gets_no_answer_before_its_fencing_is_applied(
    tmp_path: Path, parts: int, *, is_late: bool
) -> None:
    """Goal: no broker serves after its fencing. Its own deadline counts from the last poll that was answered: with an answer
    from before the fencing it would serve for another session. Method: silence, and a poll amid the fencing.
    """

    async def story(lab: FetchLab) -> None:
        controller, epochs = await with_many_partitions(lab, 11, 12)
        controller.records_per_part_max = MANY // parts + 2
        silence(lab, controller, (12, epochs[12]))
        request = lab.at_end(controller, 11, epochs[11])
        arrived_ms = lab.now_ms - (limits.HEARTBEAT_LATE_MS if is_late else 0)
        assert lab.services[1].take(request, lambda _: None, anybody(), arrived_ms=arrived_ms) is None
        fetch = lab.fetch(1, request)
        for _ in range(1, parts):
            await spin()
            lab.quorum.commit()
            await spin()
            assert not fetch.done() and len(lab.services[1].polls.waiting) == 0
            assert controller.make_part()
        assert controller.is_fenced(BrokerId(11), epochs[11]) or parts == 1
        fenced_end = controller.tip.end_offset
        assert controller.committed.end_offset < fenced_end
        await spin()
        assert not fetch.done() and len(lab.services[1].polls.waiting) == 0
        lab.quorum.commit()
        assert header(await fetch)["high_watermark"] >= fenced_end  # type: ignore[operator]

    run(tmp_path, story)


def test_a_commit_of_what_was_appended_before_a_fetch_arrived_proves_nothing(tmp_path: Path) -> None:
    """The leader may have been deposed between the two: what it hears of now was agreed before."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        request = lab.at_end(controller, 11, epoch)
        write = asyncio.create_task(controller.submit(setting("1"), anybody()))
        await spin()
        lab.quorum.nodes[NodeId(1)].hold_reads = True
        fetch = lab.fetch(1, request)
        await spin()
        lab.quorum.commit()
        await write
        await spin()
        assert not fetch.done(), "a stale leader would have renewed a session"
        lab.quorum.depose()
        with pytest.raises(NotController):
            await fetch

    run(tmp_path, story)


def test_no_session_is_renewed_while_the_brokers_own_fencing_is_in_flight(tmp_path: Path) -> None:
    """A broker that was answered before its fencing commits would serve beyond it, on an image that knows nothing of it."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        request = replace(lab.at_end(controller, 11, epoch), max_wait_ms=0)
        for _ in range(8):
            lab.now_ms += 1_400
            controller.check_sessions()
        assert controller.tip.brokers[BrokerId(11)].fenced
        given_up = lab.fetch(1, request)  # appends its being online again, and is never answered
        await spin()
        given_up.cancel()
        again = lab.fetch(1, request)
        await spin()
        assert not again.done()
        lab.quorum.commit(1)
        await spin()
        assert controller.committed.brokers[BrokerId(11)].fenced
        assert not again.done()
        lab.quorum.commit()
        assert header(await again)["broker_state"] == "ONLINE"

    run(tmp_path, story)


def test_news_at_hand_is_answered_only_with_proof_of_leadership(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        request = lab.at_end(controller, 11, epoch)
        await lab.write(controller, setting("1"))
        lab.quorum.nodes[NodeId(1)].hold_reads = True
        fetch = lab.fetch(1, request)
        await spin()
        assert not fetch.done()
        lab.quorum.depose()
        with pytest.raises(NotController):
            await fetch

    run(tmp_path, story)


def test_all_who_are_parked_hear_at_once_that_the_controller_resigned(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epochs = {broker_id: await online(lab, controller, broker_id) for broker_id in (11, 12)}
        fetches = [lab.fetch(1, lab.at_end(controller, *broker)) for broker in epochs.items()]
        observer = fetch_of(-1, -1, applied=controller.committed.end_offset)
        fetches.append(
            lab.fetch(
                1,
                replace(observer, last_epoch=1, last_crc=controller.committed.last_crc, max_wait_ms=60_000),
            )
        )
        await spin()
        assert len(lab.services[1].polls.waiting) == 3
        lab.quorum.depose()
        for fetch in fetches:
            with pytest.raises(NotController):
                await fetch
        assert len(lab.services[1].polls.waiting) == 0

    run(tmp_path, story)


def test_a23_a_broker_waits_in_one_poll_however_many_partitions_it_has(tmp_path: Path) -> None:
    """The second design watched a partition of three replicas in 1 + 3 + 3 = 7 places: for reassignments on the leader's
    broker, for changes of the leader and of the state on every replica's. Here no partition is watched, and a change of all
    partitions is one answer for each broker.
    """
    replicas = (11, 12, 13)
    assert 1 + len(replicas) + len(replicas) == 7

    async def story(lab: FetchLab) -> None:
        controller, epochs = await with_many_partitions(lab, *replicas)
        fetches = [lab.fetch(1, lab.at_end(controller, *broker)) for broker in epochs.items()]
        await spin()
        assert len(lab.services[1].polls.waiting) == len(replicas), "not 7 for each partition"
        await lab.write(controller, setting("1"))
        await spin()
        assert len(lab.services[1].polls.waiting) == 0
        assert all(fetch.done() for fetch in fetches)

    run(tmp_path, story)


def test_a_fetch_whose_records_outlive_its_controller_is_refused_there(tmp_path: Path) -> None:
    """The records of its heartbeat commit under the next leader, to which the fetch was not sent."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        request = lab.at_end(controller, 11, epoch)
        fetch = lab.fetch(1, replace(request, want_fence=True))
        await spin()
        lab.quorum.elect(2)  # the tail survives
        lab.quorum.commit(1)
        with pytest.raises(NotController):
            await fetch
        assert len(lab.services[1].polls.waiting) == 0

    run(tmp_path, story)


def test_a_newer_fetch_of_a_broker_releases_the_older(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        older = lab.fetch(1, lab.at_end(controller, 11, epoch))
        await spin()
        newer = lab.fetch(1, lab.at_end(controller, 11, epoch))
        await spin()
        assert older.done()
        assert header(await older)["high_watermark"] == controller.committed.end_offset
        assert not newer.done()
        assert len(lab.services[1].polls.waiting) == 1
        await lab.write(controller, setting("1"))
        await newer

    run(tmp_path, story)


def test_the_end_of_a_long_change_releases_the_poll_of_its_broker(tmp_path: Path) -> None:
    """Goal: what it wants next does not wait for news. Method: it stops in parts, and the last part writes nothing."""

    async def story(lab: FetchLab) -> None:
        controller, epochs = await with_many_partitions(lab, 11, 12)
        request = replace(lab.at_end(controller, 11, epochs[11]), want_shut_down=True)
        first = lab.fetch(1, request)
        await spin()
        lab.quorum.commit()
        await first
        slow_parts(lab, controller, looks=1)
        fetch = lab.fetch(1, replace(request, want_shut_down=False, max_wait_ms=60_000))
        await spin()
        lab.quorum.commit()
        await fetch
        fetch = lab.fetch(1, lab.at_end(controller, 11, epochs[11]))
        await spin()
        assert len(lab.services[1].polls.waiting) == 1
        lab.finish(controller)
        await spin()
        assert len(lab.services[1].polls.waiting) == 0
        lab.quorum.commit()
        await fetch

    run(tmp_path, story)


def test_a_session_is_renewed_when_a_fetch_arrives_not_when_it_is_answered(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        lab.now_ms += 1_000
        fetch = lab.fetch(1, lab.at_end(controller, 11, epoch))
        await spin()
        lab.now_ms += 1_000
        await lab.write(controller, setting("1"))
        await fetch
        assert controller.sessions.last_contact_ms_ago(BrokerId(11), now_ms=lab.now_ms) == 1_000

    run(tmp_path, story)


def test_what_went_while_leadership_was_proved_is_not_promised(tmp_path: Path) -> None:
    """The log is shortened behind a snapshot between arrival and answer: the broker is sent there, not refused."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        request = lab.at_end(controller, 11, epoch)
        await lab.write(controller, setting("1"))
        raft = lab.quorum.nodes[NodeId(1)]
        raft.hold_reads = True
        fetch = lab.fetch(1, request)
        await spin()
        await lab.write(controller, setting("2"))
        image = controller.committed
        lab.offer = SnapshotOffer(
            id="s",
            end_offset=image.end_offset,
            controller_epoch=image.controller_epoch,
            bytes=1,
            sha256="0" * 64,
        )
        await spin()
        assert not fetch.done()
        segments = lab.logs[1].segments
        segments.sync()
        assert retained(segments, bytes_max=0, older_than_ms=None, below=image.end_offset)
        raft.answer_reads()
        assert header(await fetch)["kind"] == "IMAGE"

    run(tmp_path, story)


def test_who_can_be_sent_nothing_yet_is_told_to_ask_again(tmp_path: Path) -> None:
    """The log begins above it, and the snapshot that would bring it there is just being written anew."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        await lab.write(controller, setting("1"))
        image, log = controller.committed, lab.logs[1]
        log.segments.sync()
        assert retained(log.segments, bytes_max=0, older_than_ms=None, below=image.end_offset)
        log.on_restored(image)
        request = replace(fetch_of(11, epoch, applied=0), last_epoch=-1, max_wait_ms=0)
        answer = header(await lab.fetch(1, request))
        assert (answer["kind"], answer["snapshot"]) == ("DELTA", None)

    run(tmp_path, story)


def test_a_stop_that_is_granted_in_parts_is_told_with_the_last(tmp_path: Path) -> None:
    """Goal: a broker is let go once. Method: its parts end by time, without a record, whenever it asks."""

    async def story(lab: FetchLab) -> None:
        controller, epochs = await with_many_partitions(lab, 11, 12)
        fence_the_silent(lab, controller, (12, epochs[12]))
        slow_parts(lab, controller, looks=1)
        fetch = lab.fetch(1, replace(lab.at_end(controller, 11, epochs[11]), want_shut_down=True))
        await spin()
        lab.quorum.commit()
        await spin()
        assert not fetch.done()
        lab.finish(controller)
        await spin()
        lab.quorum.commit()
        assert header(await fetch)["should_shut_down"] is True

    run(tmp_path, story)


def test_a_clean_stop_ends_the_session_and_is_not_parked(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        request = lab.at_end(controller, 11, epoch)
        fetch = lab.fetch(
            1,
            replace(request, want_shut_down=True),
        )
        await spin()
        lab.quorum.commit()
        assert header(await fetch)["should_shut_down"] is True
        assert not controller.sessions.has_session(BrokerId(11), epoch, now_ms=lab.now_ms)

    run(tmp_path, story)


def test_a_poll_that_was_refused_is_not_answered_by_the_next_claim_of_the_same_controller(
    tmp_path: Path,
) -> None:
    """It arrived under another claim, whose proofs say nothing. Method: the controller leads again before the slice."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        fetch = lab.fetch(1, lab.at_end(controller, 11, epoch))
        await spin()
        [waiting] = lab.services[1].polls.under_way
        lab.quorum.depose()
        assert lab.lead(1).is_active
        assert waiting.state is PollState.REFUSED
        with pytest.raises(NotController):
            await fetch

    run(tmp_path, story)


def test_a_round_of_probes_counts_for_those_alone_that_arrived_before_it(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epochs = {broker_id: await online(lab, controller, broker_id) for broker_id in (11, 12)}
        raft = lab.quorum.nodes[NodeId(1)]
        raft.hold_reads = True
        requests = [replace(lab.at_end(controller, *broker), max_wait_ms=0) for broker in epochs.items()]
        first = lab.fetch(1, requests[0])
        await spin()
        second = lab.fetch(1, requests[1])
        await spin()
        raft.answer_reads()
        await first
        await spin()
        assert not second.done(), "the round had begun before this poll arrived"
        raft.answer_reads()
        await second

    run(tmp_path, story)


def test_polls_at_one_position_share_their_bytes_and_those_in_another_state_do_not(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epochs = {broker_id: await online(lab, controller, broker_id) for broker_id in (11, 12, 13)}
        await lab.fetch_now(replace(lab.at_end(controller, 13, epochs[13]), want_fence=True))
        fetches = [lab.fetch(1, lab.at_end(controller, 11, epochs[11]))]
        fetches.append(lab.fetch(1, lab.at_end(controller, 12, epochs[12])))
        # This broker claims to have applied nothing, and so stays fenced.
        fetches.append(lab.fetch(1, replace(lab.at_end(controller, 13, epochs[13]), applied_offset=0)))
        await spin()
        assert len(lab.services[1].polls.waiting) == 3
        await lab.write(controller, setting("1"))
        replies = [await fetch for fetch in fetches]
        assert replies[0] is replies[1]
        states = [header(body)["broker_state"] for body in replies]
        assert states == ["ONLINE", "ONLINE", "FENCED"]

    run(tmp_path, story)


def test_answers_that_are_kept_for_further_polls_are_bounded_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: polls from the log's start that ask for different numbers of bytes, while nothing is committed."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        kept, end_offset = lab.services[1].replies._kept, controller.committed.end_offset
        sizes = []
        for bytes_wanted in range(1, 9):
            request = replace(fetch_of(11, epoch, applied=0), last_epoch=-1, max_bytes=bytes_wanted)
            sizes.append(len((await lab.fetch_now(request)).frames) + limits.FETCH_HEAD_BYTES)
            assert sum(len(reply.frames) for reply in kept.values()) <= 3 * max(sizes)
        assert len(kept) < len(sizes)
        assert controller.committed.end_offset == end_offset

    monkeypatch.setattr(limits, "FETCH_ANSWERS_KEPT_BYTES", 100)
    run(tmp_path, story)


def test_commits_in_quick_succession_are_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        first = lab.fetch(1, lab.at_end(controller, 11, epoch))
        await spin()
        await lab.write(controller, setting("1"))
        await first
        monkeypatch.setattr(limits, "FETCH_COALESCE_MS", 60_000)
        fetch = lab.fetch(1, lab.at_end(controller, 11, epoch))
        await spin()
        await lab.write(controller, setting("2"))
        await lab.write(controller, setting("3"))
        await spin()
        assert not fetch.done(), "the clock stands still, so the commit before was just now"
        lab.services[1]._wake()
        assert header(await fetch)["high_watermark"] == controller.committed.end_offset

    run(tmp_path, story)


def test_a_poll_whose_client_is_gone_leaves_nothing_behind(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        fetch = lab.fetch(1, lab.at_end(controller, 11, epoch))
        await spin()
        fetch.cancel()
        await spin()
        assert (len(lab.services[1].polls.waiting), lab.services[1].polls.under_way) == (0, [])
        await lab.write(controller, setting("1"))

    run(tmp_path, story)


def test_a_controller_that_stops_refuses_polls_that_no_round_will_prove(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        lab.quorum.nodes[NodeId(1)].hold_reads = True
        fetch = lab.fetch(1, replace(lab.at_end(controller, 11, epoch), max_wait_ms=0))
        await spin()
        lab.running[0].cancel()
        with pytest.raises(NotController):
            await fetch

    run(tmp_path, story)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_poll_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Polls arrive while commits, changes of leadership and slices of one or two polls go on: each has an outcome."""
    rng = random.Random(seed)
    monkeypatch.setattr(Pieces, "pieces_max", rng.choice((1, 2)))

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epochs = {broker_id: await online(lab, controller, broker_id) for broker_id in range(11, 17)}
        fetches: list[tuple[int, asyncio.Task[Reply]]] = []
        for step in range(120):
            match rng.choice(("poll", "poll", "observe", "commit", "commit", "pass", "depose", "gone")):
                case "poll" if controller.is_active:
                    broker = rng.choice(list(epochs.items()))
                    request = lab.at_end(controller, *broker)
                    fetches.append((request.fetch_offset, lab.fetch(1, request)))
                case "observe" if controller.is_active:
                    request = lab.at_end(controller, -1, -1)
                    fetches.append((request.fetch_offset, lab.fetch(1, request)))
                case "commit" if controller.is_active:
                    await lab.write(controller, setting(str(step)))
                case "depose" if rng.random() < 0.2:
                    lab.quorum.depose()
                    lab.lead(1)
                case "gone" if fetches:
                    rng.choice(fetches)[1].cancel()
                case _:
                    await asyncio.sleep(rng.choice((0, 0.001)))
        await spin()
        await lab.write(controller, setting("last"))
        async with asyncio.timeout(60):
            outcomes = await asyncio.gather(*(fetch for _, fetch in fetches), return_exceptions=True)
        for (offset, _), outcome in zip(fetches, outcomes, strict=True):
            if isinstance(outcome, Reply):
                assert header(outcome)["high_watermark"] >= offset  # type: ignore[operator]
            else:
                assert isinstance(outcome, NotController | asyncio.CancelledError)
        assert any(isinstance(outcome, Reply) for outcome in outcomes)
        assert (len(lab.services[1].polls.waiting), lab.services[1].polls.under_way) == (0, [])

    run(tmp_path, story)


def test_frames_in_segments_only_are_read_off_the_loop_and_nobody_waits_for_them(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        await lab.write(controller, setting("1"))
        log, gate = lab.logs[1], asyncio.Event()
        image = controller.committed
        log._window.reset(image.end_offset, image.controller_epoch, image.last_crc)

        async def read_in_thread(work: Callable[..., Any], *args: object) -> Any:
            await gate.wait()
            return work(*args)

        log._read_in_thread = read_in_thread
        at_start = replace(fetch_of(-1, -1, applied=0), last_epoch=-1)
        cold = lab.fetch(1, at_start)
        parked = lab.fetch(1, lab.at_end(controller, 11, epoch))
        await spin()
        await lab.write(controller, setting("2"))
        assert header(await parked)["kind"] == "DELTA"
        assert not cold.done()
        gate.set()
        reply = await cold
        assert header(reply)["high_watermark"] == controller.committed.end_offset
        assert reply.frames == log.read(0, max_bytes=FETCH_BYTES_MAX, until=image.end_offset)

    run(tmp_path, story)


def test_polls_for_the_same_frames_share_one_read(tmp_path: Path) -> None:
    """Brokers that start together begin at the same offset; each gets the answer for its own state."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        await lab.write(controller, setting("1"))
        log, gate, image, reads = lab.logs[1], asyncio.Event(), controller.committed, 0
        log._window.reset(image.end_offset, image.controller_epoch, image.last_crc)

        async def read_in_thread(work: Callable[..., Any], *args: object) -> Any:
            nonlocal reads
            reads += 1
            await gate.wait()
            return work(*args)

        log._read_in_thread = read_in_thread
        at_start = replace(fetch_of(-1, -1, applied=0), last_epoch=-1)
        polls = [lab.fetch(1, at_start) for _ in range(3)]
        await spin()
        broker = replace(fetch_of(11, epoch, applied=0), last_epoch=-1, applied_offset=image.end_offset)
        polls.append(lab.fetch(1, broker))
        gone = lab.fetch(1, at_start)
        await spin()
        gone.cancel()
        gate.set()
        replies = [await poll for poll in polls]
        assert reads == 1
        assert replies[0] is replies[1] is replies[2]
        assert header(replies[3])["broker_state"] == "ONLINE"
        frames = log.read(0, max_bytes=FETCH_BYTES_MAX)
        assert all(reply.frames == frames for reply in replies)

    run(tmp_path, story)


def test_a_controller_that_is_deposed_while_frames_are_read_refuses_the_poll(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        await lab.write(controller, setting("1"))
        log, gate, image = lab.logs[1], asyncio.Event(), controller.committed
        log._window.reset(image.end_offset, image.controller_epoch, image.last_crc)

        async def read_in_thread(work: Callable[..., Any], *args: object) -> Any:
            await gate.wait()
            return work(*args)

        log._read_in_thread = read_in_thread
        cold = lab.fetch(1, replace(fetch_of(-1, -1, applied=0), last_epoch=-1))
        await spin()
        controller.resign()
        gate.set()
        with pytest.raises(NotController):
            await cold

    run(tmp_path, story)


def test_frames_in_segments_are_not_read_for_an_answer_that_would_be_refused(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        await lab.write(controller, setting("1"))
        log, image, reads = lab.logs[1], controller.committed, 0
        log._window.reset(image.end_offset, image.controller_epoch, image.last_crc)

        async def read_in_thread(work: Callable[..., Any], *args: object) -> Any:
            nonlocal reads
            reads += 1
            return work(*args)

        log._read_in_thread = read_in_thread
        poll = replace(fetch_of(-1, -1, applied=0), last_epoch=-1)
        lab.services[1].cold._refusal = lambda _size: ThrottlingQuotaExceeded("too much is unread")
        with pytest.raises(ThrottlingQuotaExceeded):
            await lab.fetch(1, poll)
        assert reads == 0
        lab.services[1].cold._refusal = lambda _size: None
        assert header(await lab.fetch(1, poll))["kind"] == "DELTA"
        assert reads == 1

    run(tmp_path, story)


# --- observers at followers


def observer_at_end(lab: FetchLab, controller: Controller, **changes: Any) -> FetchRequest:
    return replace(lab.at_end(controller, -1, -1), **changes)


def test_a_follower_answers_observers_that_take_what_it_has_applied(tmp_path: Path) -> None:
    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        epoch = await online(lab, controller, 11)
        follower = lab.services[2]
        with pytest.raises(NotController):
            await follower.fetch(observer_at_end(lab, controller), anybody())
        with pytest.raises(NotController):
            await follower.fetch(lab.at_end(controller, 11, epoch), anybody(), takes_stale=True)
        waiting = asyncio.create_task(
            follower.fetch(observer_at_end(lab, controller), anybody(), takes_stale=True)
        )
        await spin()
        assert len(follower.polls.waiting) == 1
        await lab.write(controller, setting("1"))
        answer = header(await waiting)
        assert (answer["kind"], answer["controller_id"]) == ("DELTA", 2)
        assert answer["high_watermark"] == lab.controllers[2].committed.end_offset
        assert answer["broker_state"] is None
        from_the_start = fetch_of(-1, -1, applied=0)
        reply = await follower.fetch(replace(from_the_start, last_epoch=-1), anybody(), takes_stale=True)
        assert reply.frames == lab.logs[1].read(0, max_bytes=FETCH_BYTES_MAX)

    run(tmp_path, story)


def test_a_follower_without_a_leader_answers_no_observer(tmp_path: Path) -> None:
    """One that is cut off, or slept, must not look current: neither at arrival, nor when a poll's time is up."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        follower = lab.services[2]
        silence_ms = settings(2).timing.election_timeout_min_ms
        request = observer_at_end(lab, controller, max_wait_ms=1)
        parked = asyncio.create_task(follower.fetch(request, anybody(), takes_stale=True))
        await spin()
        assert len(follower.polls.waiting) == 1
        for heard_ms_ago in (silence_ms, None):
            lab.now_ms += limits.FETCH_TICK_MS
            lab.quorum.leader_heard_ms_ago = heard_ms_ago
            with pytest.raises(NotController):
                await follower.fetch(request, anybody(), takes_stale=True)
        with pytest.raises(NotController):
            await parked
        lab.now_ms += limits.FETCH_TICK_MS
        lab.quorum.leader_heard_ms_ago = silence_ms - 1
        assert header(await follower.fetch(replace(request, max_wait_ms=0), anybody(), takes_stale=True))

    run(tmp_path, story)


def test_a_follower_that_lags_does_not_call_an_observer_diverging(tmp_path: Path) -> None:
    """The observer read on at the leader; this follower has not applied so much yet."""

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        end_offset = controller.committed.end_offset
        ahead = observer_at_end(lab, controller, fetch_offset=end_offset + 1, last_crc=77, max_wait_ms=0)
        answer = header(await lab.services[2].fetch(ahead, anybody(), takes_stale=True))
        assert (answer["kind"], answer["high_watermark"]) == ("DELTA", end_offset)
        assert header(await lab.services[1].fetch(ahead, anybody(), takes_stale=True))["kind"] == "DIVERGING"
        other = observer_at_end(lab, controller, last_crc=77, max_wait_ms=0)
        assert header(await lab.services[2].fetch(other, anybody(), takes_stale=True))["kind"] == "DIVERGING"

    run(tmp_path, story)


def test_the_leader_sends_observers_beyond_a_bound_to_a_follower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OBSERVERS_AT_LEADER_MAX", 1)
    monkeypatch.setattr(limits, "PARKED_OBSERVERS_MAX", 3)

    async def story(lab: FetchLab) -> None:
        controller = lab.lead(1)
        service, request = lab.services[1], observer_at_end(lab, controller)
        named: list[str | None] = ["http://follower"]
        service._read_replica = lambda: named[0]
        waiting = [asyncio.create_task(service.fetch(request, anybody(), takes_stale=True))]
        await spin()
        with pytest.raises(ThrottlingQuotaExceeded) as refused:
            await service.fetch(request, anybody(), takes_stale=True)
        assert refused.value.context == {"read_replica_url": "http://follower"}
        # An observer that wants the leader stays, and so does any other while there is no follower.
        waiting.append(asyncio.create_task(service.fetch(request, anybody())))
        await spin()
        named[0] = None
        waiting.append(asyncio.create_task(service.fetch(request, anybody(), takes_stale=True)))
        await spin()
        assert len(service.polls.waiting) == 3
        with pytest.raises(ThrottlingQuotaExceeded) as refused:
            await service.fetch(request, anybody())
        assert refused.value.context == {}
        await lab.write(controller, setting("1"))
        await asyncio.gather(*waiting)

    run(tmp_path, story)
