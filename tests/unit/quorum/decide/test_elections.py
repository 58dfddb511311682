"""Edge: elections and the change builder, case by case as Kafka's PartitionChangeBuilder has them without ELR."""

from collections.abc import Sequence

import pytest

from metadata_log.ids import LOST, MIGRATING, NO_LEADER, UNASSIGNED, BrokerId, TopicId
from metadata_log.image.partitions import PartitionImage
from metadata_log.records.partitions import RECOVERED, RECOVERING, PartitionChangeRecord
from quorum.decide.effective_configs import is_unclean_allowed
from quorum.decide.elections import Election, Target, change, directory_of, has_online_directory
from tests.support.decisions import World, ids, word_uuid

TOPIC = TopicId(word_uuid("topic"))
PREFERRED, ONLINE, UNCLEAN = Election.PREFERRED, Election.ONLINE, Election.UNCLEAN


def partition(replicas: str, isr: str, leader: int, recovery: int = RECOVERED) -> PartitionImage:
    of = ids(replicas)
    return PartitionImage(
        of, ids(isr), BrokerId(leader), 5, 9, recovery, (), (), (), (), (word_uuid("dir"),) * len(of)
    )


def changed(
    before: PartitionImage, isr: str | None, election: Election, up: Sequence[int]
) -> PartitionChangeRecord | None:
    return change(
        TOPIC,
        0,
        before,
        may_lead=lambda broker_id: broker_id in up,
        target=Target(isr=None if isr is None else ids(isr)),
        election=election,
    )


@pytest.mark.parametrize(
    ("replicas", "leader", "isr", "election", "up", "elected", "is_unclean"),
    [
        ("2,1,3", 1, "1,2,3", PREFERRED, (1, 2), 2, False),
        ("2,1,3", 1, "1,3", PREFERRED, (1, 2), 1, False),
        ("2,1,3", 2, "1,3", PREFERRED, (1, 2), 1, False),
        ("2,1,3", 1, "1,2,3", ONLINE, (1, 2), 1, False),
        ("2,1,3", 3, "1,2,3", ONLINE, (1, 2), 2, False),
        ("2,1,3", 1, "3", ONLINE, (1, 2), NO_LEADER, False),
        ("2,1,3", 1, "3", UNCLEAN, (1, 2), 2, True),
        ("2,1,3,4", 1, "4", UNCLEAN, (1, 2, 4), 4, False),
        ("2,1,3", 1, "3", UNCLEAN, (), NO_LEADER, False),
        ("1,2,3,4,5", 1, "2,3", ONLINE, (2, 3, 4), 2, False),
        ("1,2,3,4,5", 1, "2,3", ONLINE, (2, 3, 5), 2, False),
        ("1,2,3,4,5", 1, "2,3", UNCLEAN, (4, 6, 7), 4, True),
        ("1,2,3,4,5", 1, "2,3", ONLINE, (4, 6, 7), NO_LEADER, False),
    ],
)
def test_who_is_elected(
    replicas: str,
    leader: int,
    isr: str,
    election: Election,
    up: tuple[int, ...],
    elected: int,
    is_unclean: bool,
) -> None:
    """B30, A50, A51: with replicas 1 to 5, ISR [1, 2, 3] and 1 lost, 2 leads, whether 4 or 5 is up as well."""
    before = partition(replicas, replicas, leader)
    record = changed(before, isr, election, up)
    assert record is not None
    after = before.changed_by(record)
    assert after.leader == elected
    assert after.leader_epoch == before.leader_epoch + (elected != leader)
    assert after.leader_recovery_state == (RECOVERING if is_unclean else RECOVERED)
    assert after.isr == ((elected,) if is_unclean else ids(isr))


def test_no_change_is_no_record() -> None:
    before = partition("1,2", "1,2", 1)
    assert changed(before, None, ONLINE, (1, 2)) is None
    assert changed(before, "1,2", PREFERRED, (1, 2)) is None
    assert changed(partition("1,2", "2", NO_LEADER), "", ONLINE, ()) is None


def test_an_isr_in_another_order_is_a_change() -> None:
    record = changed(partition("1,2", "1,2", 1), "2,1", ONLINE, (1, 2))
    assert record == PartitionChangeRecord(TOPIC, 0, isr=ids("2,1"))


def test_the_last_member_keeps_its_seat_without_a_leader() -> None:
    record = changed(partition("1,2", "1", 1), "", ONLINE, (2,))
    assert record == PartitionChangeRecord(TOPIC, 0, leader=NO_LEADER)


def test_a_recovering_partition_stays_so() -> None:
    before = partition("1,2,3", "1", 1, RECOVERING)
    record = changed(before, "", UNCLEAN, (2,))
    assert record == PartitionChangeRecord(TOPIC, 0, leader=BrokerId(2), isr=ids("2"))
    assert before.changed_by(record).leader_recovery_state == RECOVERING


@pytest.mark.parametrize(
    ("isr", "eligible", "up", "elected", "isr_after"),
    [
        ("1,2", "", (1, 2, 3), 1, "1,2"),
        ("1,2", "", (2, 3), 2, "1,2"),
        ("1,2", "", (3,), NO_LEADER, "1,2"),
        ("1,2", "3", (3,), NO_LEADER, "1,2"),
        ("", "3", (1, 2, 3), 3, "3"),
        ("", "2,3", (1, 3), 3, "3"),
        ("", "2,3", (1,), NO_LEADER, ""),
    ],
)
def test_a_valid_leader_is_in_sync_or_eligible_where_nobody_is(
    isr: str, eligible: str, up: tuple[int, ...], elected: int, isr_after: str
) -> None:
    """B31: and active; who is eligible counts only while the ISR is empty."""
    before = partition("1,2,3", isr, NO_LEADER)._replace(eligible_leader_replicas=ids(eligible))
    record = change(TOPIC, 0, before, may_lead=lambda broker_id: broker_id in up, min_isr=3)
    after = before if record is None else before.changed_by(record)
    assert (after.leader, after.isr) == (elected, ids(isr_after))


def test_a_replica_leads_from_an_online_directory_only() -> None:
    """B31: the directory that a broker lost, or does not have, is not online."""
    world = World()
    world.run("register 1 dirs=a,b")
    for directory, is_online in (("a", True), ("gone", False)):
        p = partition("1", "1", 1)._replace(directories=(word_uuid(directory),))
        assert has_online_directory(world.image, BrokerId(1), p) is is_online
    for reserved, is_online in ((MIGRATING, True), (UNASSIGNED, True), (LOST, False)):
        p = partition("1", "1", 1)._replace(directories=(reserved,))
        assert has_online_directory(world.image, BrokerId(1), p) is is_online
    assert directory_of(partition("1", "1", 1)._replace(directories=()), BrokerId(1)) == MIGRATING


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ((), False),
        (("set cluster: {}=true",), True),
        (("set cluster: {}=true", "set topic:t {}=false"), False),
        (("set cluster: {}=false", "set topic:t {}=TRUE"), True),
    ],
)
def test_the_topics_setting_stands_before_the_clusters(settings: tuple[str, ...], allowed: bool) -> None:
    world = World()
    for line in ("register 1", "heartbeat 1", "create t on=1", *settings):
        world.run(line.format("unclean.leader.election.enable"))
    assert is_unclean_allowed(world.context(), world.image.topics.ids["t"]) is allowed
