"""Edge: what the scripts of Kafka do not cover: kinds of refusals, changes in parts, partitions beside a fencing, causes."""

import dataclasses
import random
from typing import Any

import pytest
from msgspec.structs import replace

from broker_agent.session import SUPPORTED_FEATURES
from metadata_log.batch import NO_ENVELOPE
from metadata_log.codec import encode
from metadata_log.ids import NO_LEADER, UNASSIGNED, BrokerId, TopicId, uuid_text
from metadata_log.metadata_versions import formatted_with
from metadata_log.records.brokers import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FeatureRange,
    RegisterBrokerRecord,
)
from metadata_log.records.features import BROKERS_FEATURES, METADATA_VERSION_LEVEL, FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.wire.commands import AssignReplicasToDirs, Command, ReplicaDirectory
from metadata_log.wire.fetch import BrokerState
from quorum.controller.sessions import Sessions
from quorum.decide.brokers import BrokerRegistered, UnregisterBroker
from quorum.decide.decision import Walk, WalkKind
from quorum.decide.fencing import fence, state_of
from quorum.decide.parts import part_of
from tests.support.decisions import (
    FEATURES,
    World,
    answered,
    ids,
    invariants_hold,
    registration,
    word_uuid,
)

METADATA, OURS = FEATURES


def online(*broker_ids: int, **options: Any) -> World:
    world = World(**options)
    for broker_id in broker_ids:
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    return world


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"cluster_id": "B" * 22}, "INCONSISTENT_CLUSTER_ID"),
        ({"broker_id": BrokerId(9000)}, "INVALID_REGISTRATION"),
        ({"log_dirs": ()}, "INVALID_REGISTRATION"),
        ({"log_dirs": (bytes(15) + b"\x63",)}, "INVALID_REGISTRATION"),
        ({"log_dirs": (word_uuid("x"), word_uuid("x"))}, "INVALID_REGISTRATION"),
        ({"log_dirs": (word_uuid("d1a"),)}, "INVALID_REGISTRATION"),
        ({"features": ()}, "INVALID_REGISTRATION"),
        ({"features": (METADATA, METADATA)}, "INVALID_REGISTRATION"),
        (
            {"endpoints": (BrokerEndpoint("A", "a", 1, 0), BrokerEndpoint("A", "b", 2, 0))},
            "INVALID_REGISTRATION",
        ),
        ({"features": (FeatureRange("metadata.version", 7, 29), OURS)}, "UNSUPPORTED_VERSION"),
        ({"features": (FeatureRange("metadata.version", 30, 30), OURS)}, None),
        ({"features": (METADATA,)}, None),
        ({"features": (METADATA, FeatureRange("metaquorum.version", 6, 7))}, "UNSUPPORTED_VERSION"),
        ({"features": (METADATA, FeatureRange("kraft.version", 0, 1))}, None),
        ({"features": (METADATA, FeatureRange("kraft.version", 0, 0))}, "UNSUPPORTED_VERSION"),
        (
            {"features": (METADATA, FeatureRange("eligible.leader.replicas.version", 1, 1))},
            "UNSUPPORTED_VERSION",
        ),
        ({"features": (METADATA, FeatureRange("eligible.leader.replicas.version", 0, 1))}, None),
    ],
)
def test_a_registration_is_refused_by_name(changes: dict[str, Any], error: str | None) -> None:
    world = online(1)
    decision = world.decide(replace(registration(2), **changes))
    assert (decision.refusal and decision.refusal.error) == error
    assert (BrokerId(2) in world.image.brokers) == (error is None)


def test_each_finalized_feature_must_be_named() -> None:
    """Goal: a program that lacks some learns all of them at once, and what its author and an operator can do."""
    world = online(1)
    world.write([FeatureLevelRecord(*each) for each in formatted_with(METADATA_VERSION_LEVEL).items()])
    refusal = world.decide(registration(2, features=SUPPORTED_FEATURES[:-2])).refusal
    assert refusal is not None and refusal.error == "UNSUPPORTED_VERSION"
    assert refusal.message.startswith(
        "the broker does not support share.version (the cluster is at 1), streams.version (the cluster is at 1): it must "
    )
    assert "metaquorum features downgrade NAME=0" in refusal.message
    assert world.decide(registration(2, features=SUPPORTED_FEATURES)).refusal is None


def test_a_level_beyond_those_of_a_brokers_range_is_refused() -> None:
    world = online(1)
    world.write([FeatureLevelRecord("group.version", BROKERS_FEATURES["group.version"] + 1)])
    refusal = world.decide(registration(2, features=SUPPORTED_FEATURES)).refusal
    assert refusal is not None
    assert "supports group.version 0 to 1; the cluster is at 2: run a newer broker" in refusal.message
    eligible = FeatureRange("eligible.leader.replicas.version", 1, 1)
    refusal = world.decide(registration(2, features=(METADATA, eligible))).refusal
    assert refusal is not None
    assert refusal.message.endswith("is at 0: metaquorum features upgrade eligible.leader.replicas.version=1")


def test_the_epoch_is_the_offset_of_the_record() -> None:
    world = online(1, 2)
    world.run("create t on=1,2/2,1")
    world.now_ms += 9001
    decision = world.decide(registration(1, incarnation_id=word_uuid("b1-2")))
    assert [type(record) for record in decision.records] == [PartitionChangeRecord] * 2 + [
        RegisterBrokerRecord
    ]
    assert decision.outcome == BrokerRegistered(world.image.end_offset - 1)
    assert world.image.brokers[BrokerId(1)].broker_epoch == world.image.end_offset - 1


def test_a_new_registration_forgets_cordoned_directories_and_shutdown() -> None:
    world = online(1, 2)
    world.run("create t on=1,2")
    world.run("heartbeat 1 cordoned=d1a")
    world.run("heartbeat 1 shutdown")
    world.run("expire 1")
    world.run("register 1 incarnation=b1-2")
    broker = world.image.brokers[BrokerId(1)]
    assert (broker.fenced, broker.in_controlled_shutdown, broker.cordoned_log_dirs) == (True, False, None)


@pytest.mark.parametrize(("previous", "clean"), [(-1, False), (0, False), (None, True)])
def test_the_cause_says_whether_the_stop_was_clean(previous: int | None, clean: bool) -> None:
    world = online(1)
    epoch = world.image.brokers[BrokerId(1)].broker_epoch
    world.run("expire 1")
    again = registration(
        1, incarnation_id=word_uuid("b1-2"), previous_broker_epoch=epoch if previous is None else previous
    )
    cause = world.decide(again).cause
    assert cause == ("BROKER_REGISTERED", epoch, {"broker_id": 1, "clean": clean})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"broker_epoch": 0},
            "broker 1 at epoch 0 is not the registered one (epoch {epoch})",
        ),
        (
            {"broker_id": BrokerId(7)},
            "broker 7 at epoch {epoch} is not the registered one (none)",
        ),
        (
            {"incarnation_id": word_uuid("another")},
            "broker 1 of incarnation {other} is not the registered one (incarnation {incarnation} at epoch {epoch})",
        ),
    ],
)
def test_a_stale_heartbeat_is_refused_and_renews_nothing(changes: dict[str, Any], said: str) -> None:
    world = online(1)
    registered = world.image.brokers[BrokerId(1)]
    world.now_ms += 5000
    decided = world.decide(replace(world.request(1), **changes).heartbeat())
    assert decided.refusal is not None
    assert decided.refusal.error == "STALE_BROKER_EPOCH"
    assert (
        decided.refusal.message
        == said.format(
            epoch=registered.broker_epoch,
            incarnation=uuid_text(registered.incarnation_id),
            other=uuid_text(word_uuid("another")),
        )
        + "; register again"
    )
    assert world.sessions.last_contact_ms_ago(BrokerId(1), now_ms=world.now_ms) == 5000


def test_a_broker_that_registered_anew_is_not_fenced() -> None:
    world = online(1)
    decision = fence(world.context(), broker_id=BrokerId(1), broker_epoch=world.image.end_offset + 5)
    assert decision.refusal is not None and decision.refusal.error == "STALE_BROKER_EPOCH"
    assert not decision.records


def many_partitions(world: World, count: int, assignment: str) -> None:
    world.run("create many on=" + "/".join([assignment] * count))


def test_a_fencing_in_parts_ends_with_the_fencing_record() -> None:
    world = online(1, 2, records_max=10)
    many_partitions(world, 25, "1,2")
    parts = world.expire(1, world.image.brokers[BrokerId(1)].broker_epoch)
    assert [len(part.records) for part in parts] == [9, 9, 8]
    assert [part.more for part in parts] == [True, True, False]
    assert isinstance(parts[-1].records[-1], BrokerRegistrationChangeRecord)
    assert {p.leader for p in world.image.topics.by_id[world.image.topics.ids["many"]].partitions} == {2}
    invariants_hold(world.image)


def test_a_part_ends_when_its_time_is_over_and_the_next_goes_on_behind_it() -> None:
    """Goal: no part costs more for what stands before it. Method: partitions that need no change are visited once."""
    world = online(1, 2, turns_are_short=True)
    many_partitions(world, 500, "1,2")
    topic_id, epoch = world.image.topics.ids["many"], world.image.brokers[BrokerId(1)].broker_epoch
    world.write([PartitionChangeRecord(topic_id, n, leader=BrokerId(2), isr=ids("2")) for n in range(300)])
    parts = world.expire(1, epoch)
    assert [len(part.records) for part in parts] == [0, 0, 0, 0, 20, 64, 64, 53]
    assert {p.isr for p in world.image.topics.by_id[topic_id].partitions} == {(2,)}


@pytest.mark.parametrize("what", ["fence", "shutdown", "failed", "register", "unregister", "join"])
@pytest.mark.parametrize("seed", range(5))
def test_a_change_in_parts_ends_like_the_change_at_once(what: str, seed: int) -> None:
    ends = []
    for turns_are_short, records_max in ((False, 10_000), (True, 10_000), (True, 40)):
        world = online(1, 2, 3, turns_are_short=turns_are_short, records_max=records_max)
        rng = random.Random(seed)
        for name in "abc":
            assignment = [
                ",".join(rng.sample("123", rng.randint(1, 3))) for _ in range(rng.randrange(1, 300))
            ]
            world.run(f"create {name} on=" + "/".join(assignment))
        if what == "join":
            for broker_id in (2, 3, 1):
                world.expire(broker_id, world.image.brokers[BrokerId(broker_id)].broker_epoch)
        carry_on(world, what)
        ends.append(
            {(t.name, n): p for t in world.image.topics.by_id.values() for n, p in enumerate(t.partitions)}
        )
        invariants_hold(world.image)
    assert ends[0] == ends[1] == ends[2]


def carry_on(world: World, what: str) -> None:
    """Make all parts of a change of broker 1."""
    broker = world.image.brokers[BrokerId(1)]
    match what:
        case "fence":
            world.expire(1, broker.broker_epoch)
            return
        case "register":
            world.now_ms += 9001
            command: Command = registration(1, incarnation_id=word_uuid("b1-2"))
        case "unregister":
            command = UnregisterBroker(broker_id=BrokerId(1))
        case _:
            changes: dict[str, dict[str, Any]] = {
                "shutdown": {"want_shut_down": True},
                "failed": {"offline_log_dirs": broker.log_dirs},
                "join": {},
            }
            command = world.request(1, **changes[what]).heartbeat()
    while world.decide(command).more:
        pass


def test_a_broker_halfway_fenced_is_elected_nowhere_and_gets_no_replica() -> None:
    world = online(1, 2, 3)
    world.run("create t on=2,1")
    halfway = frozenset({BrokerId(1)})
    epoch = world.image.brokers[BrokerId(2)].broker_epoch
    decision = fence(world.context(ineligible=halfway), broker_id=BrokerId(2), broker_epoch=epoch)
    first = decision.records[0]
    assert isinstance(first, PartitionChangeRecord) and first.leader == -1


def test_a_shutdown_in_parts_moves_everything_before_it_counts() -> None:
    world = online(1, 2, records_max=10)
    many_partitions(world, 25, "1,2")
    states = [world.heartbeat(1, want_shut_down=True) for _ in range(3)]
    assert [len(beat.records) for beat in states] == [9 + 1 - 1, 9, 8]
    assert [beat.more for beat in states] == [True, True, False]
    assert {answered(beat).state for beat in states} == {BrokerState.STOPPING}
    epoch = world.image.brokers[BrokerId(1)].broker_epoch
    assert world.sessions.shutdown_offset(BrokerId(1), epoch) == world.image.end_offset
    assert not answered(world.heartbeat(1, want_shut_down=True)).should_shut_down
    world.heartbeat(2)
    assert answered(world.heartbeat(1, want_shut_down=True)).should_shut_down


def test_a_shutdown_in_parts_waits_for_others_also_where_all_leaderships_are_in_the_first() -> None:
    world = online(1, 2, records_max=10)
    world.run("create many on=" + "/".join(["1,2"] * 5 + ["2,1"] * 20))
    while world.heartbeat(1, want_shut_down=True).more:
        pass
    assert not answered(world.heartbeat(1, want_shut_down=True)).should_shut_down
    assert not world.image.brokers[BrokerId(1)].fenced
    world.heartbeat(2)
    assert answered(world.heartbeat(1, want_shut_down=True)).should_shut_down


def test_a_fenced_broker_that_may_go_only_after_further_parts_is_fenced_meanwhile() -> None:
    world = online(1, 2, turns_are_short=True)
    many_partitions(world, 500, "1,2")
    world.expire(1, world.image.brokers[BrokerId(1)].broker_epoch)
    beats = [world.heartbeat(1, want_shut_down=True)]
    while beats[-1].more:
        beats.append(world.heartbeat(1, want_shut_down=True))
    assert len(beats) > 1
    assert [answered(beat).should_shut_down for beat in beats] == [*[False] * (len(beats) - 1), True]
    assert {answered(beat).state for beat in beats} == {BrokerState.FENCED}


def test_an_unfencing_in_parts_elects_everywhere() -> None:
    world = online(1, 2, records_max=10)
    many_partitions(world, 25, "1")
    world.expire(1, world.image.brokers[BrokerId(1)].broker_epoch)
    parts = [world.heartbeat(1), *world.elect()]
    assert [len(part.records) for part in parts] == [9, 9, 8]
    assert {p.leader for p in world.image.topics.by_id[world.image.topics.ids["many"]].partitions} == {1}
    assert not world.heartbeat(1).records


def test_one_pass_over_the_leaderless_partitions_elects_for_all_brokers() -> None:
    """Goal: under a new controller a thousand brokers do not look at each of them a thousand times."""
    world = online(1, 2, 3, turns_are_short=True)
    many_partitions(world, 500, "3")
    world.expire(3, world.image.brokers[BrokerId(3)].broker_epoch)
    for broker_id in (1, 2):
        world.changes.elect_for(BrokerId(broker_id))
    assert [part.more for part in world.elect()] == [*[True] * 7, False]
    assert not world.changes.is_electing


def test_who_joins_amid_elections_in_parts_gets_its_own_behind_them() -> None:
    world = online(1, 2, turns_are_short=True)
    many_partitions(world, 200, "1")
    world.expire(1, world.image.brokers[BrokerId(1)].broker_epoch)
    world.changes.elect_for(BrokerId(2))
    elections = world.changes.next()
    assert elections is not None
    for _ in range(3):
        part = elections.next_part(world.context())
        assert part.more
        world.carry_out(part)
    assert len(world.heartbeat(1).records) == 1, "they are past most of its partitions"
    world.elect()
    assert {p.leader for p in world.image.topics.by_id[world.image.topics.ids["many"]].partitions} == {1}


def test_an_election_that_found_no_place_in_the_log_is_decided_again() -> None:
    world = online(1, 2)
    many_partitions(world, 5, "1")
    world.expire(1, world.image.brokers[BrokerId(1)].broker_epoch)
    world.write(
        [
            BrokerRegistrationChangeRecord(
                BrokerId(1), world.image.brokers[BrokerId(1)].broker_epoch, fenced=False
            )
        ]
    )
    world.changes.take_over(world.image)
    elections = world.changes.next()
    assert elections is not None
    for _ in range(2):
        refused = elections.next_part(world.context())
        assert len(refused.records) == 5
    assert [len(part.records) for part in world.elect()] == [5]
    assert not world.changes.is_electing


def test_a_directory_fails_in_parts() -> None:
    world = online(2, records_max=10)
    world.run("register 1 dirs=a,b")
    world.heartbeat(1)
    many_partitions(world, 25, "1,2")
    topic_id = world.image.topics.ids["many"]
    directories = (word_uuid("a"), word_uuid("d2a"))
    world.write([PartitionChangeRecord(topic_id, n, directories=directories) for n in range(25)])
    changes: dict[str, Any] = {"offline_log_dirs": (word_uuid("a"),), "cordoned_log_dirs": (word_uuid("b"),)}
    beats = [world.heartbeat(1, **changes)]
    while beats[-1].more:
        beats.append(world.heartbeat(1, **changes))
    assert [len(beat.records) for beat in beats] == [8, 8, 8, 3]
    broker = world.image.brokers[BrokerId(1)]
    assert (broker.log_dirs, broker.cordoned_log_dirs) == ((word_uuid("b"),),) * 2
    assert {p.leader for p in world.image.topics.by_id[topic_id].partitions} == {2}
    assert not world.heartbeat(1, **changes).records


def test_a_replica_that_is_reported_in_a_directory_between_two_parts_of_its_failure_leaves_its_isr() -> None:
    """The walk is past its partition, and knew it elsewhere."""
    world = online(2, records_max=10)
    world.run("register 1 dirs=a,b")
    world.heartbeat(1)
    many_partitions(world, 25, "1,2")
    topic_id = world.image.topics.ids["many"]
    first, others = (word_uuid("b"), word_uuid("d2a")), (word_uuid("a"), word_uuid("d2a"))
    world.write(
        [PartitionChangeRecord(topic_id, n, directories=others if n else first) for n in range(25)],
    )
    failed: dict[str, Any] = {"offline_log_dirs": (word_uuid("a"),)}
    assert world.heartbeat(1, **failed).more
    epoch = world.image.brokers[BrokerId(1)].broker_epoch
    report = (ReplicaDirectory(word_uuid("a"), topic_id, 0),)
    world.decide(AssignReplicasToDirs(broker_id=BrokerId(1), broker_epoch=epoch, replicas=report))
    while world.heartbeat(1, **failed).more:
        pass
    assert world.image.brokers[BrokerId(1)].log_dirs == (word_uuid("b"),)
    partitions = world.image.topics.by_id[topic_id].partitions
    assert {(partition.leader, partition.isr) for partition in partitions} == {(2, (2,))}


@pytest.mark.parametrize(("isr", "others"), [("1", "fenced"), ("1,2", "fenced"), ("1,2", "online")])
def test_a_leaderless_replica_reported_in_a_lost_directory_is_not_elected(isr: str, others: str) -> None:
    """The directory before the report is online, so an election that asks for that one alone would choose the broker."""
    world = online()
    world.run("register 1 dirs=a,b")
    world.heartbeat(1)
    world.run("register 2")
    if others == "online":
        world.heartbeat(2)
    many_partitions(world, 1, "1,2")
    topic_id = world.image.topics.ids["many"]
    here = (word_uuid("a"), UNASSIGNED)
    world.write(
        [PartitionChangeRecord(topic_id, 0, leader=BrokerId(-1), isr=ids(isr), directories=here)],
    )
    epoch = world.image.brokers[BrokerId(1)].broker_epoch
    report = (ReplicaDirectory(word_uuid("gone"), topic_id, 0),)
    world.decide(AssignReplicasToDirs(broker_id=BrokerId(1), broker_epoch=epoch, replicas=report))
    partition = world.image.topics.by_id[topic_id].partitions[0]
    assert partition.directories == (word_uuid("gone"), UNASSIGNED)
    assert partition.leader == (2 if others == "online" else -1)


def test_a_report_that_completes_a_reassignment_elects_none_of_the_replicas_that_leave() -> None:
    """Goal: no broker leads without a replica. Method: the report is of a lost directory, so its broker leads no longer."""
    world = World()
    for line in ("register 1", "register 2", "heartbeat 1", "heartbeat 2", "create t on=2"):
        world.run(line)
    topic_id = world.image.topics.ids["t"]
    reassigned = PartitionChangeRecord(
        topic_id,
        0,
        leader=BrokerId(1),
        isr=ids("1,2"),
        replicas=ids("1,2"),
        adding_replicas=ids("1"),
        removing_replicas=ids("2"),
        directories=(UNASSIGNED, UNASSIGNED),
    )
    world.write([reassigned])
    epoch = world.image.brokers[BrokerId(1)].broker_epoch
    report = (ReplicaDirectory(word_uuid("gone"), topic_id, 0),)
    world.decide(AssignReplicasToDirs(broker_id=BrokerId(1), broker_epoch=epoch, replicas=report))
    partition = world.image.topics.by_id[topic_id].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader) == (ids("1"), ids("1"), BrokerId(-1))


@pytest.mark.parametrize("failed_parts", [0, 1, 2])
def test_elections_amid_the_failure_of_a_directory_give_nothing_that_lies_there(failed_parts: int) -> None:
    """A broker may be elected in parts, or again, while a directory of it fails in parts that are past these partitions."""
    world = online(records_max=10)
    world.run("register 1 dirs=a,b")
    world.heartbeat(1)
    many_partitions(world, 25, "1")
    topic_id = world.image.topics.ids["many"]
    nobody_leads = failed_parts == 0
    world.write(
        [
            PartitionChangeRecord(
                topic_id, n, leader=BrokerId(-1) if nobody_leads else None, directories=(word_uuid("a"),)
            )
            for n in range(25)
        ]
    )
    failed: dict[str, Any] = {"offline_log_dirs": (word_uuid("a"),)}
    for _ in range(failed_parts):
        assert world.heartbeat(1, **failed).more
    world.changes.elect_for(BrokerId(1))
    world.elect()
    while world.heartbeat(1, **failed).more:
        pass
    world.elect()
    assert world.image.brokers[BrokerId(1)].log_dirs == (word_uuid("b"),)
    assert {partition.leader for partition in world.image.topics.by_id[topic_id].partitions} == {-1}


def test_a_broker_that_registers_a_lost_directory_again_leads_nothing_of_it_at_once() -> None:
    """As in Kafka: a registration of the same incarnation begins no election; the next one that is begun finds it."""
    world = online(2, records_max=10)
    world.run("register 1 dirs=a,b")
    world.heartbeat(1)
    many_partitions(world, 25, "1")
    topic_id = world.image.topics.ids["many"]
    world.write([PartitionChangeRecord(topic_id, n, directories=(word_uuid("a"),)) for n in range(25)])
    while world.heartbeat(1, offline_log_dirs=(word_uuid("a"),)).more:
        pass

    def leaders() -> set[int]:
        return {partition.leader for partition in world.image.topics.by_id[topic_id].partitions}

    assert leaders() == {-1}
    world.run("register 1 dirs=a,b")
    world.elect()
    assert leaders() == {-1}
    world.heartbeat(2, want_fence=True)
    world.heartbeat(2)
    world.elect()
    assert leaders() == {1}


@pytest.mark.parametrize("has_diverged", [False, True])
def test_a_fence_says_whether_the_broker_wished_it(has_diverged: bool) -> None:
    world = online(1, 2)
    wish = dataclasses.replace(world.request(2, want_fence=True).heartbeat(), has_diverged=has_diverged)
    cause = world.decide(wish).cause
    assert cause is not None and cause.code == "FENCE_REQUESTED"
    assert cause.detail.get("diverged", False) == has_diverged


def test_a_broker_that_began_to_stop_is_elected_no_more() -> None:
    """The elections are not over, and a poll that asks for nothing comes between two parts of its stop."""
    world = online(1, 2, records_max=10)
    many_partitions(world, 25, "1")
    world.changes.elect_for(BrokerId(1))
    assert world.heartbeat(1, want_shut_down=True).more
    leaders = [
        partition.leader for partition in world.image.topics.by_id[world.image.topics.ids["many"]].partitions
    ]
    assert NO_LEADER in leaders
    assert world.heartbeat(1).records == ()
    assert [part.records for part in world.elect()] == [[]]
    while world.heartbeat(1, want_shut_down=True).more:
        pass
    assert not world.image.topics.leads_any(BrokerId(1))


def test_a_shutdown_and_a_failed_directory_share_their_parts() -> None:
    world = online(1, 2, records_max=10)
    many_partitions(world, 25, "1,2")
    changes: dict[str, Any] = {"offline_log_dirs": (word_uuid("d1a"),), "want_shut_down": True}
    beats = [world.heartbeat(1, **changes)]
    while beats[-1].more:
        beats.append(world.heartbeat(1, **changes))
    assert max(len(beat.records) for beat in beats) <= 10
    assert {p.isr for p in world.image.topics.by_id[world.image.topics.ids["many"]].partitions} == {(2,)}


def test_registration_and_removal_come_in_parts_too() -> None:
    world = online(1, 2, records_max=10)
    many_partitions(world, 25, "1,2")
    world.now_ms += 9001
    again = registration(1, incarnation_id=word_uuid("b1-2"))
    parts = [world.decide(again)]
    while parts[-1].more:
        parts.append(world.decide(again))
    assert [len(part.records) for part in parts] == [9, 9, 8]
    assert parts[-1].outcome == BrokerRegistered(world.image.end_offset - 1)
    removal = world.decided(UnregisterBroker(broker_id=BrokerId(2)))
    assert removal.more and removal.outcome is None


def test_a_part_fits_into_a_batch_by_its_bytes() -> None:
    """Goal: fencing never fails for the size of its batch. Method: ISRs of 400 members with the longest ids."""
    isr = tuple(BrokerId(2**31 - 1 - n) for n in range(400))
    changes = [
        PartitionChangeRecord(
            TopicId(word_uuid("t")), 10**9 + n, leader=isr[0], isr=isr, leader_recovery_state=1
        )
        for n in range(600)
    ]
    world, sizes = World(), []
    walk = Walk(WalkKind.LEAVES, BrokerId(1), 0)
    while changes:
        visits = (((change.topic_id, change.partition_id), change) for change in changes)
        records, more, _ = part_of(world.context(), walk, visits, room=10_000)
        del changes[: len(records)]
        assert more == bool(changes)
        encode(
            base_offset=0,
            controller_epoch=1,
            appended_at_ms=0,
            previous_crc=0,
            envelope=NO_ENVELOPE,
            records=[*records, *world.decide(registration(1)).records],
        )
        sizes.append(len(records))
    assert len(sizes) == 2


def test_the_state_of_a_broker() -> None:
    world = online(1, 2)
    world.run("create t on=1,2")
    one = BrokerId(1)
    assert state_of(world.image, one, has_session=True) is BrokerState.ONLINE
    world.run("heartbeat 1 shutdown")
    assert state_of(world.image, one, has_session=True) is BrokerState.STOPPING
    world.run("expire 1")
    assert state_of(world.image, one, has_session=True) is BrokerState.FENCED
    assert state_of(world.image, one, has_session=False) is BrokerState.OFFLINE
    assert state_of(world.image, BrokerId(7), has_session=False) is BrokerState.OFFLINE


def test_a_stopping_broker_goes_on_after_a_change_of_controllers() -> None:
    """Goal: a new controller, which knows no shutdown offset, neither forgets the shutdown nor lets go too early."""
    world = online(1, 2)
    world.run("create t on=1,2")
    world.run("heartbeat 1 shutdown")
    world.sessions = Sessions(session_timeout_ms=9_000)
    world.sessions.grant_all(world.image, world.now_ms)
    decided = world.heartbeat(1, want_shut_down=True)
    assert answered(decided).should_shut_down, "it leads nothing, and says so itself"
    assert world.image.brokers[BrokerId(1)].fenced


def test_a_shutdown_whose_records_were_lost_is_tried_again() -> None:
    """Goal: a broker is not left leading for ever. Method: decide the shutdown, and drop what was decided."""
    world = online(1, 2)
    world.run("create t on=1,2")
    request = world.request(1, want_shut_down=True)
    lost = world.decided(request.heartbeat())
    world.run("create u on=2")
    again = world.heartbeat(1, want_shut_down=True)
    assert again.records == lost.records
    epoch = world.image.brokers[BrokerId(1)].broker_epoch
    assert world.sessions.shutdown_offset(BrokerId(1), epoch) == world.image.end_offset
