"""Edge: the sample host's rules one by one: appends, high watermark (A10), ISR (A14), divergence, failures."""

from collections.abc import Sequence

import pytest

from broker_agent.replicas import Delete, Follow, Lead, Start, Stray, Wait
from metadata_log.ids import UNASSIGNED, BrokerId
from metadata_log.records.partitions import RECOVERED, RECOVERING, PartitionChangeRecord
from metadata_log.wire.commands import AlteredPartition, ReportedIsr
from tests.support.decisions import World, ids, word_uuid
from tests.support.replica_log import Disks, EpochEnd, Record, ReplicaLog
from tests.support.sample_host import (
    REPLICA_LAG_TIME_MAX_MS,
    Fetch,
    FetchAnswer,
    FetchedRecords,
    FetchPosition,
    Message,
    SampleHost,
)

HERE = word_uuid("d1a")


class Rig:
    """The host on broker 1 of three, with a topic of one partition; what it sends and reports stays here."""

    def __init__(self, replicas: str = "1,2,3", min_isr: int = 2, disks: Disks | None = None) -> None:
        self.world = World()
        for broker_id in (1, 2, 3):
            self.world.run(f"register {broker_id}")
            self.world.run(f"heartbeat {broker_id}")
        self.world.run(f"create t on={replicas} min.insync.replicas={min_isr}")
        self.key = (self.world.image.topics.ids["t"], 0)
        self.now_ms = 1_000_000
        self.serves = True
        self.sent: list[tuple[BrokerId, Message]] = []
        self.reports: list[ReportedIsr] = []
        self.assigned: list[bytes] = []
        self.done: list[str | None] = []
        self.numbers = 0
        self.disks = Disks((HERE,)) if disks is None else disks
        self.host = SampleHost(
            BrokerId(1),
            self.disks,
            now_ms=lambda: self.now_ms,
            may_serve=lambda: self.serves,
            send=lambda to, message: self.sent.append((to, message)),
            report=self.reports.append,
            assign=lambda _key, directory: self.assigned.append(directory),
        )
        self.host.carry_out([Start(*self.key, "t", HERE)], self.world.image)

    @property
    def partition(self):
        return self.world.image.topics.by_id[self.key[0]].partitions[0]

    @property
    def replica(self):
        return self.host.replicas[self.key]

    def change(self, **changes: object) -> None:
        self.world.write([PartitionChangeRecord(*self.key, **changes)])  # type: ignore[arg-type]
        self.learn()

    def learn(self) -> None:
        partition, image = self.partition, self.world.image
        if partition.leader == 1:
            self.host.carry_out([Lead(*self.key, partition)], image)
        elif partition.leader == -1:
            self.host.carry_out([Wait(*self.key, partition)], image)
        else:
            endpoint = image.brokers[partition.leader].endpoints[0]
            self.host.carry_out([Follow(*self.key, partition, endpoint)], image)

    def append(self, *values: str) -> None:
        for value in values:
            self.host.append(self.key, value, self.done.append)

    def fetch(self, broker_id: int, offset: int, *, last_epoch: int = 0, **changes: int) -> FetchedRecords:
        """Let another broker fetch, and return what it is answered."""
        self.numbers += 1
        epoch = changes.get("broker_epoch", self.world.image.brokers[BrokerId(broker_id)].broker_epoch)
        leader_epoch = changes.get("leader_epoch", self.replica.leader_epoch)
        last_epoch = last_epoch if offset else -1
        position = FetchPosition(*self.key, leader_epoch, offset, last_epoch)
        number = changes.get("number", self.numbers)
        self.host.receive(Fetch(BrokerId(broker_id), epoch, number, (position,)))
        _, answer = self.sent.pop()
        assert isinstance(answer, FetchAnswer)
        return answer.partitions[0]

    def answer(self, error: str | None = None, isr: Sequence[int] = ()) -> None:
        reported = self.reports[-1]
        altered = AlteredPartition(
            topic_id=self.key[0],
            partition_id=0,
            error=error,
            leader=1,
            leader_epoch=reported.leader_epoch,
            isr=tuple(isr),
            leader_recovery_state=RECOVERED,
            partition_epoch=reported.partition_epoch + 1,
        )
        self.host.isr_answered(reported, altered)

    def reported(self) -> list[int]:
        return [member.broker_id for member in self.reports[-1].isr]


def leading(**changes: int) -> Rig:
    rig = Rig(**changes)  # type: ignore[arg-type]
    rig.learn()
    return rig


# --- appends and the high watermark


def test_a_record_is_done_once_every_member_of_the_isr_has_it() -> None:
    """A10: ends {L: 2, F1: 2, F2: 1} make the high watermark 1. A12: of two records that wait, the first is done."""
    rig = leading()
    rig.append("a", "b")
    assert [one.value for one in rig.fetch(2, 0).records] == ["a", "b"]
    rig.fetch(2, 2)
    rig.fetch(3, 1)
    assert rig.done == [None]
    assert rig.replica.high_watermark == 1
    rig.fetch(3, 2)
    assert rig.done == [None, None]
    assert rig.host.committed(rig.key) == ["a", "b"]


@pytest.mark.parametrize(
    ("error", "isr", "leader", "serves"),
    [
        (None, "1,2,3", 1, True),
        ("NOT_LEADER_OR_FOLLOWER", "1,2,3", 2, True),
        ("NOT_LEADER_OR_FOLLOWER", "1", -1, True),
        ("BROKER_NOT_AVAILABLE", "1,2,3", 1, False),
        ("NOT_ENOUGH_REPLICAS", "1", 1, True),
    ],
)
def test_who_may_append(error: str | None, isr: str, leader: int, serves: bool) -> None:
    rig = Rig()
    rig.serves = serves
    rig.change(leader=BrokerId(leader), isr=ids(isr))
    rig.append("a")
    assert rig.done == ([] if error is None else [error])
    rig.host.append((rig.key[0], 7), "a", rig.done.append)
    assert rig.done[-1] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_who_asks_for_no_acks_needs_no_isr() -> None:
    rig = Rig()
    rig.change(isr=ids("1"))
    rig.host.append(rig.key, "a", rig.done.append, all_acks=False)
    assert rig.done == [None]
    assert rig.host.committed(rig.key) == []  # KIP-966: nothing is committed under min.insync.replicas


def test_what_waits_fails_when_the_leadership_ends() -> None:
    rig = leading()
    rig.append("a")
    rig.change(leader=BrokerId(2))
    assert rig.done == ["NOT_LEADER_OR_FOLLOWER"]


def test_a_member_that_is_proposed_holds_the_high_watermark_already() -> None:
    """Its fate may be known to the controllers alone: it may lead at once."""
    rig = Rig()
    rig.change(isr=ids("1,2"))
    rig.append("a")
    rig.fetch(2, 1)
    rig.fetch(3, 1)
    assert rig.reported() == [1, 2, 3]
    rig.now_ms += REPLICA_LAG_TIME_MAX_MS + 1
    rig.append("b")
    rig.fetch(2, 2)
    assert rig.replica.high_watermark == 1
    rig.fetch(3, 2)
    assert rig.replica.high_watermark == 2


def test_a_member_that_is_to_leave_counts_until_the_controllers_have_said_so() -> None:
    """A11: a smaller ISR is adopted once the controllers accepted it."""
    rig = leading()
    rig.append("a")
    rig.fetch(2, 1)
    rig.now_ms += REPLICA_LAG_TIME_MAX_MS + 1
    rig.fetch(2, 1)
    rig.host.tick()
    assert rig.reported() == [1, 2]
    assert rig.replica.high_watermark == 0
    rig.answer(isr=(1, 2))
    assert rig.replica.high_watermark == 1


def test_a_follower_that_has_caught_up_is_waited_for_before_it_is_a_member() -> None:
    rig = Rig(min_isr=1)
    rig.change(isr=ids("1,2"))
    rig.append("a")
    rig.fetch(2, 1)
    rig.fetch(3, 1)
    rig.answer(error="INELIGIBLE_REPLICA")
    rig.append("b")
    rig.fetch(2, 2)
    assert rig.replica.high_watermark == 1


# --- the ISR


@pytest.mark.parametrize(("lag_ms", "leaves"), [(29_999, False), (30_001, True)])
def test_a_follower_leaves_when_it_has_not_caught_up_for_too_long(lag_ms: int, leaves: bool) -> None:
    """A14"""
    rig = leading()
    rig.fetch(2, 0)
    rig.fetch(3, 0)
    rig.append("a")
    rig.fetch(2, 1)
    rig.now_ms += lag_ms
    rig.fetch(2, 1)
    rig.host.tick()
    assert bool(rig.reports) is leaves


def test_a_follower_that_had_at_its_fetch_what_stood_at_the_one_before_had_caught_up_then() -> None:
    rig = leading()
    for offset in range(4):
        rig.append("a")
        rig.fetch(2, offset)
        rig.fetch(3, offset)
        rig.now_ms += 14_000
    rig.host.tick()
    assert rig.reports == []


def test_a_follower_joins_at_the_high_watermark_and_in_the_leaders_epoch() -> None:
    """A11: who has what every member has is proposed."""
    rig = Rig()
    rig.change(isr=ids("1,2"))
    rig.append("a", "b")
    rig.fetch(2, 2)
    rig.fetch(3, 1)
    assert rig.reports == []
    rig.fetch(3, 2)
    assert rig.reported() == [1, 2, 3]
    assert [member.broker_epoch for member in rig.reports[0].isr] == [
        rig.world.image.brokers[broker_id].broker_epoch for broker_id in ids("1,2,3")
    ]


def test_a_follower_below_the_start_of_the_epoch_does_not_join() -> None:
    """The new leader's high watermark lags behind what was committed before it began."""
    rig = Rig()
    log = rig.replica.log
    log.append(Record(0, "a"))
    log.append(Record(0, "b"))
    rig.change(isr=ids("1,2"), leader=BrokerId(1))
    assert rig.replica.high_watermark == 0
    rig.fetch(3, 1)
    assert rig.reports == []
    rig.fetch(3, 2)
    assert rig.reported() == [1, 2, 3]


def test_the_high_watermark_may_go_back_after_a_failover() -> None:
    """A59: 10 under the old leader, 9 here. From there to the end of the log nothing is read; behind it is no offset."""
    rig = following()
    take(rig, records=(Record(0, "x"),) * 12, high_watermark=9)
    rig.change(leader=BrokerId(1))
    assert (rig.replica.high_watermark, rig.replica.log.end_offset) == (9, 12)
    assert [rig.host.read(rig.key, offset) for offset in (8, 9, 10, 12)] == [["x"], [], [], []]
    assert rig.host.read(rig.key, 13) == "OFFSET_OUT_OF_RANGE"


def test_a_follower_serves_no_client() -> None:
    """A13: clients write to the leader and read from it, though a follower has the records."""
    rig = following()
    take(rig, records=(Record(0, "x"),), high_watermark=1)
    rig.append("a")
    assert (rig.done, rig.host.read(rig.key, 0)) == (["NOT_LEADER_OR_FOLLOWER"], "NOT_LEADER_OR_FOLLOWER")
    rig.change(leader=BrokerId(1))
    assert rig.host.read(rig.key, 0) == ["x"]


@pytest.mark.parametrize("state", ["expire 3", "heartbeat 3 shutdown", "older"])
def test_a_follower_joins_only_as_the_broker_that_is_registered_and_active(state: str) -> None:
    """KIP-903"""
    rig = Rig()
    rig.change(isr=ids("1,2"))
    changes = {"broker_epoch": 1} if state == "older" else {}
    if state != "older":
        rig.world.run(state)
        rig.learn()
    rig.fetch(3, 0, **changes)
    assert rig.reports == []


def test_after_a_refusal_for_now_a_follower_is_proposed_again_and_after_others_the_log_decides() -> None:
    rig = Rig()
    rig.change(isr=ids("1,2"))
    rig.fetch(3, 0)
    rig.answer(error="INELIGIBLE_REPLICA")
    rig.fetch(3, 0)
    assert len(rig.reports) == 2
    rig.answer(error="INVALID_UPDATE_VERSION")
    rig.fetch(3, 0)
    assert len(rig.reports) == 2
    rig.change(isr=ids("1"))
    rig.fetch(3, 0)
    assert rig.reported() == [1, 3]


def test_a_proposal_survives_the_batch_whose_answer_came_first() -> None:
    """The log tells of a partition epoch that the answer told already; the next proposal rests on it."""
    rig = Rig()
    rig.change(isr=ids("1"))
    rig.fetch(2, 0)
    rig.answer(isr=(1, 2))
    rig.fetch(3, 0)
    assert rig.reported() == [1, 2, 3]
    rig.change(isr=ids("1,2"))
    assert rig.replica.leading.proposed == (1, 2, 3)
    rig.change(isr=ids("1,2,3"))
    assert rig.replica.leading.proposed is None


def test_a_leader_that_was_elected_uncleanly_reports_that_it_recovered() -> None:
    rig = Rig()
    rig.change(isr=ids("1"), leader=BrokerId(1), leader_recovery_state=RECOVERING)
    assert rig.reported() == [1]
    assert rig.reports[0].leader_recovery_state == RECOVERED


# --- fetches


@pytest.mark.parametrize(
    ("error", "broker_id", "changes"),
    [
        (None, 2, {}),
        ("FENCED_LEADER_EPOCH", 2, {"leader_epoch": 0}),
        ("UNKNOWN_LEADER_EPOCH", 2, {"leader_epoch": 2}),
        ("NOT_LEADER_OR_FOLLOWER", 3, {}),
        ("NOT_LEADER_OR_FOLLOWER", 2, {"number": 1}),
    ],
)
def test_who_may_fetch(error: str | None, broker_id: int, changes: dict[str, int]) -> None:
    rig = Rig(replicas="1,2")
    rig.change(leader=BrokerId(1))
    rig.fetch(2, 0, number=1)
    assert rig.fetch(broker_id, 0, **changes).error == error


def following() -> Rig:
    rig = Rig()
    rig.change(leader=BrokerId(2))
    rig.host.tick()
    return rig


def take(rig: Rig, **changes: object) -> None:
    _, fetch = rig.sent[-1]
    assert isinstance(fetch, Fetch)
    position = fetch.positions[0]
    fetched = FetchedRecords(*rig.key, position.leader_epoch, position.fetch_offset)
    rig.host.receive(FetchAnswer(BrokerId(2), fetch.number, (fetched._replace(**changes),)))  # type: ignore[arg-type]


def test_a_follower_learns_the_high_watermark_with_the_records() -> None:
    rig = following()
    take(rig, records=(Record(0, "a"), Record(1, "b")), high_watermark=1)
    assert rig.host.committed(rig.key) == ["a"]
    take(rig, high_watermark=9)
    assert rig.host.committed(rig.key) == ["a", "b"]


def test_a_follower_takes_the_answer_to_its_newest_fetch_in_the_epoch_it_asked_in() -> None:
    rig = following()
    first = rig.sent[-1]
    rig.now_ms += 10_000
    rig.host.tick()
    assert len(rig.sent) == 2
    rig.sent.append(first)
    take(rig, records=(Record(0, "late"),))
    rig.sent.pop()
    rig.change(leader=BrokerId(3))
    take(rig, records=(Record(0, "of the old leader"),))
    assert rig.replica.log.records == []


def test_a_follower_truncates_to_where_its_log_leaves_the_leaders() -> None:
    rig = following()
    take(rig, records=tuple(Record(epoch, "x") for epoch in (0, 0, 1, 1)))
    take(rig, diverging=EpochEnd(0, 1))
    assert rig.replica.log.end_offset == 1
    assert rig.host.truncated_committed == 0


def test_a_follower_that_returns_truncates_and_fetches_from_there() -> None:
    """A9: its log ends at 12, its checkpointed high watermark is 9, and the leader's history is another from there on: it is
    truncated to 9, which loses nothing that was committed, and the next fetch is at 9. One checkpoint has all its replicas.
    """
    rig = following()
    other = (rig.key[0], 1)
    rig.host.carry_out([Start(*other, "t", HERE)], rig.world.image)
    take(rig, records=tuple(Record(epoch, "x") for epoch in (*[0] * 9, *[1] * 3)), high_watermark=9)
    rig.host.replicas[other].log.append(Record(0, "y"))
    rig.host.replicas[other].high_watermark = 1
    rig.host.checkpoint()
    again = Rig(disks=rig.disks)
    again.host.carry_out([Start(*other, "t", HERE)], again.world.image)
    assert [again.host.replicas[key].high_watermark for key in (again.key, other)] == [9, 1]
    assert again.replica.log.end_offset == 12
    again.change(leader=BrokerId(2))
    again.host.tick()
    take(again, diverging=EpochEnd(0, 9))
    assert (again.replica.log.end_offset, again.host.truncated_committed) == (9, 0)
    again.host.tick()
    _, fetch = again.sent[-1]
    assert isinstance(fetch, Fetch)
    assert fetch.positions[0].fetch_offset == 9


def test_what_it_means_to_lead_and_to_follow() -> None:
    """A57: a leader takes records and fetches nothing; a follower takes none, and fetches from the end of its log."""
    rig = leading()
    rig.append("a")
    rig.host.tick()
    assert (rig.done, rig.sent) == ([], [])
    rig.change(leader=BrokerId(2))
    assert rig.done == ["NOT_LEADER_OR_FOLLOWER"]
    rig.host.tick()
    to, fetch = rig.sent[-1]
    assert isinstance(fetch, Fetch)
    assert (to, fetch.positions[0].fetch_offset, rig.replica.leading) == (2, 1, None)
    rig.append("b")
    assert rig.done[1:] == ["NOT_LEADER_OR_FOLLOWER"]
    sent = len(rig.sent)
    rig.change(leader=BrokerId(1))
    rig.now_ms += 10_000
    rig.host.tick()
    assert len(rig.sent) == sent
    assert rig.replica.leading is not None


@pytest.mark.parametrize(
    ("own", "asked", "end"),
    [
        ([1, 1, 2], 2, EpochEnd(2, 3)),
        ([1, 1, 2], 1, EpochEnd(1, 2)),
        ([1, 1, 4], 3, EpochEnd(1, 2)),
        ([4, 4], 3, EpochEnd(3, 0)),
        ([1, 1], 3, None),
        ([], 3, None),
    ],
)
def test_where_an_epoch_ends(own: list[int], asked: int, end: EpochEnd | None) -> None:
    assert _log(own).end_of(asked) == end


@pytest.mark.parametrize(
    ("follower", "leader", "rounds"),
    [
        ([1, 1, 2], [1, 1, 2, 2], [3]),
        ([1, 1, 1], [1, 1, 2], [2]),
        ([1, 1, 2, 2, 2], [1, 1, 2], [3]),
        ([1, 3, 3, 3], [1, 1, 1, 2, 4], [1]),
        ([1, 1, 3, 3, 5], [1, 1, 1, 2, 4], [4, 2]),
        ([1, 1, 1, 3], [1, 2, 2, 2], [3, 1]),
        ([2, 2], [3], [0]),
        ([], [3], [0]),
    ],
)
def test_the_largest_common_epoch_is_found(follower: list[int], leader: list[int], rounds: list[int]) -> None:
    """KIP-279: it may take more than one round where both have epochs that the other lacks."""
    own, other = _log(follower), _log(leader)
    other.begin_epoch(9)
    ends = []
    while (diverging := other.diverges_at(own.end_offset, own.last_epoch)) is not None:
        own.truncate(own.common_end(diverging))
        ends.append(own.end_offset)
    assert (ends or [own.end_offset]) == rounds
    common = [record.leader_epoch for record in own.records]
    assert common == leader[: len(common)]


def test_a_leader_that_appended_nothing_forgets_its_epoch_when_it_follows() -> None:
    """Otherwise the records of the epoch before lie behind the begin of its own, and followers are told to cut there."""
    own, other = _log([4, 4]), _log([4, 4, 4, 4])
    own.begin_epoch(5)
    other.begin_epoch(6)
    diverging = other.diverges_at(own.end_offset, own.last_epoch)
    assert diverging == EpochEnd(4, 4)
    own.truncate(own.common_end(diverging))
    assert (own.end_offset, own.last_epoch) == (2, 4)
    for record in other.records[2:]:
        own.append(record)
    own.begin_epoch(7)
    assert own.end_of(4) == EpochEnd(4, 4)


def _log(epochs: list[int]) -> ReplicaLog:
    log = ReplicaLog(HERE, "t")
    for epoch in epochs:
        log.append(Record(epoch, "x"))
    return log


# --- disks


def test_a_deleted_replica_is_gone_and_a_stray_is_set_aside() -> None:
    """A58: nobody waits for it any more, nothing is fetched for it, and its data are gone."""
    rig = leading()
    rig.append("a")
    rig.host.carry_out([Delete(*rig.key, "t", topic_deleted=True)], rig.world.image)
    assert rig.done == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert rig.host.held() == []
    rig.host.carry_out([Start(*rig.key, "t", HERE), Stray(*rig.key)], rig.world.image)
    assert rig.host.held() == []
    assert [*rig.disks.set_aside] == [rig.key]


def test_a_restart_goes_on_from_the_checkpoint() -> None:
    rig = leading()
    rig.append("a")
    rig.fetch(2, 1)
    rig.fetch(3, 1)
    rig.host.checkpoint()
    again = Rig(disks=rig.disks)
    assert again.host.committed(rig.key) == ["a"]
    assert rig.key in again.host.held()


def test_a_failed_directory_takes_its_replicas_along() -> None:
    rig = leading()
    rig.append("a")
    rig.host.fail_directory(HERE)
    assert rig.done == ["KAFKA_STORAGE_ERROR"]
    assert rig.host.replicas == {}
    assert rig.host.held() == []
    rig.change(isr=ids("1,2"))  # an instruction for it is ignored


def test_a_replica_that_nobody_placed_goes_to_the_emptiest_directory_and_is_reported() -> None:
    rig = Rig(disks=Disks((HERE, word_uuid("d1b"))))
    rig.change(directories=(UNASSIGNED, word_uuid("d2a"), word_uuid("d3a")))
    other = (rig.key[0], 1)
    rig.host.carry_out([Start(*other, "t", UNASSIGNED)], rig.world.image)
    assert rig.disks.logs[other].directory == word_uuid("d1b")
    assert rig.assigned == [HERE]
