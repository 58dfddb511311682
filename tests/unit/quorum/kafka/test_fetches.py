"""Fetches of Kafka's metadata log at three controllers of one quorum: who is answered when, and with what."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from metadata_log import limits
from metadata_log.errors import ThrottlingQuotaExceeded
from metadata_log.ids import NodeId, Uuid
from metadata_log.kafka.batches import batches
from metadata_log.log.segmented_log import SegmentedLog
from quorum.kafka import fetches
from quorum.kafka.fetches import Fetch, KafkaFetches
from quorum.kafka.replies import Leadership, Position, SnapshotName
from quorum.kafka.translated_log import TranslatedLog
from quorum.log.committed_log import CommittedLog
from quorum.node.config import TimingSettings
from tests.support.kraft_observer import (
    FENCED,
    NOBODY,
    NONE,
    NOT_LEADER,
    UNKNOWN_EPOCH,
    Answered,
    Ended,
    KraftObserver,
    answered,
)
from tests.support.lab import Lab, setting, settings, spin


class NoSnapshots:
    """Snapshots for Kafka's brokers: the test says which are whole."""

    def __init__(self) -> None:
        self.whole: SnapshotName | None = None
        self.bytes = 1 << 40
        self.wanted: list[int] = []

    def newest(self) -> SnapshotName | None:
        return self.whole

    def is_shorter(self, log_bytes: int) -> bool:
        return self.bytes < log_bytes

    def want(self, start: int) -> None:
        self.wanted.append(start)


class KafkaLab(Lab):
    """The lab, with the log as Kafka's on each controller."""

    def __init__(self, directory: Path) -> None:
        super().__init__(kafka=True)
        self.fetches: dict[int, KafkaFetches] = {}
        self.translated: dict[int, TranslatedLog] = {}
        self.offered = NoSnapshots()
        for node_id, controller in self.controllers.items():
            log = CommittedLog(SegmentedLog.open(directory / str(node_id), segment_bytes=1))
            translated = TranslatedLog(log, listener="QUORUM", now_ms=lambda: self.now_ms)
            self.translated[node_id] = translated
            self.fetches[node_id] = KafkaFetches(
                settings=settings(node_id, kafka=True),
                controller=controller,
                translated=translated,
                snapshots=self.offered,
                log_bytes=lambda log=log: log.bytes_total,  # type: ignore[misc]
                now_ms=lambda: self.now_ms,
            )
            controller.attach(controller.raft, [log, translated, self.fetches[node_id]])

    def ask(self, node_id: int, fetch: Fetch) -> "Asked":
        return Asked(self, node_id, fetch)

    async def follow(self, broker: KraftObserver, first: int = 1) -> None:
        """Have a broker ask until it has all that the leader has."""
        for _ in range(100):
            leader = broker.leader if broker.leader != NOBODY else first
            asked = self.ask(leader, broker.fetch())
            await spin()
            if not asked.is_answered:
                return
            broker.read(asked.answer)
        raise AssertionError("it asks and asks")

    def pass_ms(self, time_ms: int) -> None:
        """Let time pass, and timers with it."""
        self.now_ms += time_ms
        for each in self.fetches.values():
            due = [parked for parked in each._parked if parked.until_ms <= self.now_ms]
            for parked in due:
                each._parked.take(parked)
            each._have_news(due)


class Asked:
    def __init__(self, lab: KafkaLab, node_id: int, fetch: Fetch) -> None:
        self.tails: list[bytes] = []
        self.version = fetch.version
        self.give_up = lab.fetches[node_id].take(fetch, self.tails.append)

    @property
    def is_answered(self) -> bool:
        return bool(self.tails)

    @property
    def answer(self) -> Answered:
        (tail,) = self.tails
        return answered(tail, self.version)


def run(directory: Path, story: Callable[[KafkaLab], Awaitable[None]]) -> None:
    async def main() -> None:
        lab = KafkaLab(directory)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(each.run()) for each in lab.fetches.values()]
            await story(lab)
            for task in running:
                task.cancel()

    asyncio.run(main())


def test_a_broker_follows_from_nothing_and_is_woken_by_a_commit(tmp_path: Path) -> None:
    async def story(lab: KafkaLab) -> None:
        controller = lab.lead(1)
        broker = KraftObserver(11)
        asked = lab.ask(2, broker.fetch())
        assert (asked.answer.error, asked.answer.high_watermark) == (FENCED, -1)
        assert asked.answer.leader == 1 and asked.answer.endpoints == {1: ("127.0.0.1", 9201)}
        broker.read(asked.answer)
        await lab.follow(broker)
        assert broker.high_watermark == controller.committed.end_offset
        waits = lab.ask(1, broker.fetch())
        assert not waits.is_answered
        await lab.write(controller, setting("1"))
        await spin()
        broker.read(waits.answer)
        assert broker.high_watermark == controller.committed.end_offset
        assert {batch.leader_epoch for batch in broker.log} == {1}

    run(tmp_path, story)


def test_a_fetch_waits_no_longer_than_it_says(tmp_path: Path) -> None:
    async def story(lab: KafkaLab) -> None:
        controller = lab.lead(1)
        broker = KraftObserver(11)
        broker.read(lab.ask(1, broker.fetch()).answer)
        await lab.follow(broker)
        asked = lab.ask(1, broker.fetch())
        lab.pass_ms(499)
        await spin()
        assert not asked.is_answered
        lab.pass_ms(1)
        await spin()
        answer = asked.answer
        assert (answer.error, answer.records, answer.leader) == (NONE, b"", 1)
        assert answer.high_watermark == controller.committed.end_offset

    run(tmp_path, story)


def test_a_fetch_waits_no_longer_than_a_poll_may(tmp_path: Path) -> None:
    async def story(lab: KafkaLab) -> None:
        lab.lead(1)
        broker = KraftObserver(11)
        broker.read(lab.ask(1, broker.fetch()).answer)
        await lab.follow(broker)
        asked = lab.ask(1, broker.fetch()._replace(max_wait_ms=2**31 - 1))
        lab.pass_ms(TimingSettings().max_wait_ms)
        await spin()
        assert asked.answer.records == b""

    run(tmp_path, story)


def test_who_knows_less_of_the_high_watermark_is_answered_at_once(tmp_path: Path) -> None:
    """A broker that starts again has all records, and loads none before it knows which are committed. Source: KIP-1166."""

    async def story(lab: KafkaLab) -> None:
        controller = lab.lead(1)
        broker = KraftObserver(11)
        broker.read(lab.ask(1, broker.fetch()).answer)
        await lab.follow(broker)
        broker.restart()
        broker.leader = 1
        asked = lab.ask(1, broker.fetch())
        broker.read(asked.answer)
        assert broker.high_watermark == controller.committed.end_offset
        assert not lab.ask(1, broker.fetch(version=17)).is_answered

    run(tmp_path, story)


def test_a_claim_answers_all_that_wait_with_the_new_leader(tmp_path: Path) -> None:
    """Goal: it does so at once, and not with the next commits that are gathered. Method: a commit has just woken them."""

    async def story(lab: KafkaLab) -> None:
        controller = lab.lead(1)
        brokers = [KraftObserver(11 + number) for number in range(5)]
        for broker in brokers:
            broker.read(lab.ask(1, broker.fetch()).answer)
            await lab.follow(broker)
        waiting = [(broker, lab.ask(1, broker.fetch())) for broker in brokers]
        await lab.write(controller, setting("1"))
        await spin()
        for broker, asked in waiting:
            broker.read(asked.answer)
        waiting = [(broker, lab.ask(1, broker.fetch())) for broker in brokers]
        lab.lead(2)
        await spin()
        for broker, asked in waiting:
            assert (asked.answer.error, asked.answer.leader, asked.answer.epoch) == (FENCED, 2, 2)
            broker.read(asked.answer)
            await lab.follow(broker)
            assert broker.high_watermark == lab.controllers[2].committed.end_offset

    run(tmp_path, story)


def test_of_fetches_that_end_together_each_is_answered_once_by_what_holds_then(tmp_path: Path) -> None:
    """Goal: those that are looked at by the piece are judged one by one. Method: as the third of twenty is answered, the
    client of the fourth goes, and another controller leads.
    """

    async def story(lab: KafkaLab) -> None:
        lab.lead(1)
        broker = KraftObserver(11)
        broker.read(lab.ask(1, broker.fetch()).answer)
        await lab.follow(broker)
        waiting = [lab.ask(1, broker.fetch()) for _ in range(20)]
        third, give_up = list(lab.fetches[1]._parked)[-20:][2], waiting[3].give_up
        done = third.done
        assert done is not None and give_up is not None

        def in_the_middle(tail: bytes) -> None:
            done(tail)
            give_up()
            lab.lead(2)

        third.done = in_the_middle
        lab.pass_ms(500)
        await spin()
        assert not waiting.pop(3).is_answered
        found = [(asked.answer.error, asked.answer.leader) for asked in waiting]
        assert found == [(NONE, 1)] * 3 + [(FENCED, 2)] * 16

    run(tmp_path, story)


def test_while_nobody_may_be_named_all_wait(tmp_path: Path) -> None:
    """Goal: brokers do not ask the survivor again and again while it looks for a leader. Method: the leader is gone; after
    its time the fetch is answered without a leader, and a claim answers the next one at once.
    """

    async def story(lab: KafkaLab) -> None:
        lab.lead(1)
        broker = KraftObserver(11)
        broker.read(lab.ask(1, broker.fetch()).answer)
        lab.quorum.depose()
        lab.quorum.leader_heard_ms_ago = None
        lab.pass_ms(limits.FETCH_TICK_MS)
        for node_id in (1, 2):
            fresh = KraftObserver(12)
            asked = [lab.ask(node_id, one.fetch()) for one in (broker, fresh)]
            assert not any(each.is_answered for each in asked)
            lab.pass_ms(500)
            await spin()
            assert [(each.answer.error, each.answer.leader) for each in asked] == [
                (NOT_LEADER, NOBODY),
                (FENCED, NOBODY),
            ]
            for one, each in zip((broker, fresh), asked, strict=True):
                one.read(each.answer)
                assert one.epoch == 1
        asked = [lab.ask(node_id, broker.fetch()) for node_id in (1, 2, 3)]
        lab.quorum.leader_heard_ms_ago = 0
        lab.pass_ms(limits.FETCH_TICK_MS)
        lab.lead(3)
        await spin()
        assert {(each.answer.error, each.answer.leader) for each in asked} == {(FENCED, 3)}

    run(tmp_path, story)


def test_an_epoch_whose_claim_has_not_arrived_is_waited_for(tmp_path: Path) -> None:
    async def story(lab: KafkaLab) -> None:
        lab.lead(1)
        broker = KraftObserver(11)
        broker.epoch = 2
        asked, late = (lab.ask(2, broker.fetch()._replace(max_wait_ms=time)) for time in (500, 100))
        lab.pass_ms(100)
        await spin()
        assert late.answer.error == UNKNOWN_EPOCH
        broker.read(late.answer)
        assert not asked.is_answered
        lab.lead(3)
        await spin()
        assert (asked.answer.error, asked.answer.leader, asked.answer.epoch) == (NOT_LEADER, 3, 2)

    run(tmp_path, story)


def test_nobody_is_named_who_does_not_say_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(lab: KafkaLab) -> None:
        lab.lead(1)
        monkeypatch.setattr(fetches, "kafka_address", lambda _image, _node_id: None)
        asked = lab.ask(1, KraftObserver(11).fetch())
        assert not asked.is_answered
        lab.pass_ms(500)
        await spin()
        assert (asked.answer.leader, asked.answer.endpoints) == (NOBODY, {})

    run(tmp_path, story)


def test_a_node_that_does_not_know_the_claimant_names_nobody(tmp_path: Path) -> None:
    """Goal: no epoch gets two leaders. Method: the image of a snapshot of an older level, at a node that hears a leader."""

    async def story(lab: KafkaLab) -> None:
        lab.lead(1)
        object.__setattr__(lab.controllers[2].committed, "claimant", None)
        assert lab.fetches[2].leadership() == Leadership(1, NodeId(NOBODY), is_ours=False)
        assert lab.fetches[3].leadership() == Leadership(1, NodeId(1), is_ours=False)

    run(tmp_path, story)


def test_a_mutant_that_names_rafts_leader_ends_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the rule about the claimant is what keeps brokers alive. Method: another leader is heard, whose claim is not
    applied yet; with Raft's leader in the claimant's place a broker ends.
    """

    async def story(lab: KafkaLab) -> None:
        lab.lead(1)
        broker = KraftObserver(11)
        broker.read(lab.ask(1, broker.fetch()).answer)
        lab.quorum.depose()
        lab.quorum.leader = lab.quorum.nodes[NodeId(3)]
        lab.pass_ms(limits.FETCH_TICK_MS)
        monkeypatch.setattr(
            fetches,
            "leadership",
            lambda *, epoch, heard, **_: Leadership(epoch, heard or NodeId(NOBODY), is_ours=False),
        )
        lab.fetches[2]._led_by = (None, False, None)  # what was found before it counts no more
        asked = lab.ask(2, broker.fetch())
        with pytest.raises(Ended, match="epoch 1 has leaders 1 and 3"):
            broker.read(asked.answer)

    run(tmp_path, story)


def test_a_broker_that_is_behind_reads_segments_with_others(tmp_path: Path) -> None:
    async def story(lab: KafkaLab) -> None:
        controller = lab.lead(1)
        await lab.write(controller, setting("1"))
        first = KraftObserver(11)
        first.read(lab.ask(1, first.fetch()).answer)
        asked = [lab.ask(1, first.fetch()) for _ in range(3)]
        assert len(lab.fetches[1]._waits_for_cold) == 1
        async with asyncio.timeout(60):
            while not all(each.is_answered for each in asked):
                await asyncio.sleep(0)
        first.read(asked[0].answer)
        assert first.high_watermark == controller.committed.end_offset
        assert asked[0].tails == asked[1].tails == asked[2].tails

    run(tmp_path, story)


def test_a_client_with_many_cold_reads_takes_no_turn_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KAFKA_COLD_READS_OF_CLIENT_MAX", 5)

    async def story(lab: KafkaLab) -> None:
        controller = lab.lead(1)
        await lab.write(controller, setting("1"))
        read, done = lab.translated[1].read_cold, []

        async def reading(offset: int, *, max_bytes: int) -> bytes:
            done.append(max_bytes)
            return await read(offset, max_bytes=max_bytes)

        monkeypatch.setattr(lab.translated[1], "read_cold", reading)
        greedy, other = KraftObserver(11), KraftObserver(12)
        for broker in (greedy, other):
            broker.read(lab.ask(1, broker.fetch()).answer)
        asked = [lab.ask(1, greedy.fetch(max_bytes=100 + number)) for number in range(8)]
        last = lab.ask(1, other.fetch(max_bytes=500))
        same = lab.ask(1, other.fetch(max_bytes=101))
        async with asyncio.timeout(60):
            while not all(each.is_answered for each in (*asked[:5], last, same)):
                await asyncio.sleep(0)
        await spin()
        assert done == [100, 500, 101, 102, 103, 104]
        assert not any(each.is_answered for each in asked[5:])
        assert not lab.fetches[1]._waits_for_cold
        lab.pass_ms(600)
        async with asyncio.timeout(60):
            while not all(each.is_answered for each in asked):
                await asyncio.sleep(0)

    run(tmp_path, story)


def test_records_that_cannot_be_read_are_none_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(lab: KafkaLab) -> None:
        controller = lab.lead(1)
        await lab.write(controller, setting("1"))

        async def refused(*_: object, **__: object) -> bytes:
            raise ThrottlingQuotaExceeded("too many reads wait")

        monkeypatch.setattr(lab.translated[1], "read_cold", refused)
        broker = KraftObserver(11)
        broker.read(lab.ask(1, broker.fetch()).answer)
        asked = lab.ask(1, broker.fetch())
        await spin()
        assert not asked.is_answered
        lab.pass_ms(600)
        await spin()
        assert (asked.answer.error, asked.answer.records) == (NONE, b"")

    run(tmp_path, story)


def test_an_answer_that_is_asked_for_again_is_the_same_bytes(tmp_path: Path) -> None:
    async def story(lab: KafkaLab) -> None:
        controller = lab.lead(1)
        brokers = [KraftObserver(11 + number) for number in range(3)]
        for broker in brokers:
            broker.read(lab.ask(1, broker.fetch()).answer)
            await lab.follow(broker)
        asked = [lab.ask(1, broker.fetch()) for broker in brokers]
        await lab.write(controller, setting("1"))
        await spin()
        (first,) = asked[0].tails
        assert all(each.tails[0] is first for each in asked)
        await lab.write(controller, setting("2"))
        again = lab.ask(1, brokers[0].fetch())
        assert len([*batches(again.answer.records)]) == 2

    run(tmp_path, story)


def test_a_broker_below_the_start_is_sent_a_snapshot_once_there_is_one(tmp_path: Path) -> None:
    async def story(lab: KafkaLab) -> None:
        controller = lab.lead(1)
        await lab.write(controller, setting("1"))
        end = controller.committed.end_offset
        lab.translated[1]._begin_behind(end)
        broker = KraftObserver(11)
        broker.read(lab.ask(1, broker.fetch()).answer)
        asked = lab.ask(1, broker.fetch())
        await spin()
        assert not asked.is_answered and lab.offered.wanted == [end]
        lab.offered.whole = SnapshotName(end, 1)
        lab.fetches[1].wake()
        await spin()
        assert asked.answer.snapshot == (end, 1) and asked.answer.log_start_offset == end
        broker.read(asked.answer)
        assert broker.wanted == (end, 1)
        broker.load(broker.wanted)
        await lab.write(controller, setting("2"))
        await lab.follow(broker)
        assert broker.position == Position(controller.committed.end_offset, 1)

    run(tmp_path, story)


def test_a_new_broker_is_sent_a_snapshot_where_the_log_is_longer(tmp_path: Path) -> None:
    async def story(lab: KafkaLab) -> None:
        lab.lead(1)
        broker = KraftObserver(11)
        broker.read(lab.ask(1, broker.fetch()).answer)
        lab.offered.bytes = 0
        asked = lab.ask(1, broker.fetch())
        assert not asked.is_answered and lab.offered.wanted == [0]
        lab.offered.whole = SnapshotName(3, 1)
        assert lab.ask(1, broker.fetch()).answer.snapshot == (3, 1)

    run(tmp_path, story)


def test_a_client_that_goes_is_forgotten(tmp_path: Path) -> None:
    async def story(lab: KafkaLab) -> None:
        controller = lab.lead(1)
        broker = KraftObserver(11)
        broker.read(lab.ask(1, broker.fetch()).answer)
        await lab.follow(broker)
        asked = lab.ask(1, broker.fetch())
        assert asked.give_up is not None
        asked.give_up()
        await lab.write(controller, setting("1"))
        await spin()
        assert not asked.is_answered and not len(lab.fetches[1]._parked)

    run(tmp_path, story)


def test_observers_are_told_of_and_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BROKERS_MAX", 2)

    async def story(lab: KafkaLab) -> None:
        controller = lab.lead(1)
        end, began = controller.committed.end_offset, lab.now_ms
        behind, level = KraftObserver(11), KraftObserver(12)
        for broker in (behind, level):
            broker.read(lab.ask(1, broker.fetch()).answer)
        level.snapshot = (end, 1)
        lab.now_ms += 10
        lab.ask(1, level.fetch())
        found = {each.replica_id: each for each in lab.fetches[1].observers()}
        assert (found[11].log_end_offset, found[11].last_fetch_ms, found[11].last_caught_up_ms) == (
            0,
            began,
            None,
        )
        assert found[12].directory_id == Uuid(bytes([12] * 16))
        assert (found[12].log_end_offset, found[12].last_caught_up_ms) == (end, began + 10)
        await lab.write(controller, setting("1"))
        lab.now_ms += 10
        lab.ask(1, level.fetch())
        assert found[12].last_caught_up_ms == began + 10, "it had all that there was when it asked before"
        lab.ask(1, KraftObserver(13).fetch())
        assert [each.replica_id for each in lab.fetches[1].observers()] == [12, 13]
        lab.now_ms += limits.OBSERVER_MS
        assert not list(lab.fetches[1].observers())
        assert not list(lab.fetches[2].observers())

    run(tmp_path, story)


@pytest.mark.parametrize("version", range(12, 19))
def test_every_version_is_answered_in_its_own_form(tmp_path: Path, version: int) -> None:
    async def story(lab: KafkaLab) -> None:
        lab.lead(1)
        asked = lab.ask(1, KraftObserver(11).fetch(version=version))
        assert (asked.answer.error, asked.answer.leader) == (FENCED, 1)
        assert bool(asked.answer.endpoints) is (version >= 16)

    run(tmp_path, story)
