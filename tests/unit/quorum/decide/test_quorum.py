"""Edge: the records of a claim, and which controllers may become and cease to be voters (KIP-853)."""

import dataclasses

import pytest
from msgspec import structs

from metadata_log.batch import Cause
from metadata_log.ids import MIGRATING, UNASSIGNED, NodeId, Uuid, uuid_text
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    QuorumVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision
from quorum.decide.founding import Founding
from quorum.decide.quorum import (
    AddVoter,
    RemoveVoter,
    VoterIdentity,
    VotersChanged,
    add_voter,
    claim,
    remove_voter,
)
from quorum.decide.registry import decide
from tests.support.decisions import CLUSTER_ID, CONTROLLER, World, word_uuid
from tests.support.histories import step_of


def voter(node_id: int, port: int = 9093) -> Voter:
    directory_id = word_uuid("controller" if node_id == CONTROLLER else f"c{node_id}")
    return Voter(NodeId(node_id), directory_id, (VoterEndpoint("CONTROLLER", "c", port),), 0, 1)


def test_the_first_claim_founds_the_cluster() -> None:
    """B77"""
    decision = claim(EMPTY, node_id=NodeId(2), cluster_id=CLUSTER_ID, voters=(voter(2), voter(1)))
    assert decision.records == (
        ControllerClaimRecord(NodeId(2), 1, CLUSTER_ID),
        QuorumVersionRecord(1),
        VotersRecord((voter(1), voter(2))),
        FeatureLevelRecord("metadata.version", 30),
        FeatureLevelRecord("metaquorum.version", 5),
    )


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_a_claim_says_whether_it_was_handed_over(is_handed_over: bool) -> None:
    decision = claim(
        EMPTY, node_id=NodeId(2), cluster_id=CLUSTER_ID, voters=(voter(2),), is_handed_over=is_handed_over
    )
    assert decision.cause is not None
    assert decision.cause.detail.get("handed_over", False) == is_handed_over


def test_a_cluster_is_founded_as_kafka_does() -> None:
    """Goal: clients find what `kafka-storage format` of 4.3.1 finalizes, as `kafka-storage version-mapping` lists it."""
    decision = claim(
        EMPTY,
        node_id=NodeId(1),
        cluster_id=CLUSTER_ID,
        voters=(voter(1),),
        founding=Founding.at(30),
        min_insync_replicas="2",
    )
    image = step_of(EMPTY, list(decision.records)).image
    assert {**image.features, "kraft.version": image.quorum.kraft_version} == {
        "metadata.version": 30,
        "kraft.version": 1,
        "transaction.version": 2,
        "group.version": 1,
        "eligible.leader.replicas.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "metaquorum.version": 5,
    }
    assert dict(image.configs[4, ""]) == {"min.insync.replicas": "2"}
    again = claim(
        image,
        node_id=NodeId(1),
        cluster_id=CLUSTER_ID,
        voters=(voter(1),),
        founding=Founding.at(30),
        min_insync_replicas="3",
    )
    assert again.records == (ControllerClaimRecord(NodeId(1), 2, CLUSTER_ID),)


def static(*ids: int) -> World:
    """Return a world that was founded with kraft.version 0."""
    voters = tuple(voter(node_id) for node_id in (CONTROLLER, *ids))
    decision = claim(
        EMPTY,
        node_id=CONTROLLER,
        cluster_id=CLUSTER_ID,
        voters=voters,
        founding=Founding(kraft_version=0),
    )
    assert decision.records[1:3] == (QuorumVersionRecord(0), VotersRecord(tuple(sorted(voters))))
    world = World()
    world.write([QuorumVersionRecord(0), VotersRecord(tuple(sorted(voters)))])
    return world


def test_static_voters_are_neither_added_nor_removed() -> None:
    """As Kafka at kraft.version 0, in AddVoterHandler and RemoveVoterHandler."""
    world = static(2)
    add = AddVoter(voter_id=NodeId(3), directory_id=word_uuid("c3"), host="c", port=9095, validate_only=False)
    remove = RemoveVoter(voter_id=NodeId(2), directory_id=word_uuid("c2"), validate_only=False)
    for command, what in ((add, "added"), (remove, "removed")):
        refused = decide(world.context(), command).refusal
        assert refused is not None and refused.error == "UNSUPPORTED_VERSION"
        assert refused.message.startswith(f"no voter can be {what}: kraft.version is 0")
    world.write([QuorumVersionRecord(1)])
    assert decide(world.context(), add).refusal is None
    assert decide(world.context(), remove).refusal is None


def test_static_voters_are_where_the_settings_say_though_they_register() -> None:
    world = static()
    world.write([RegisterControllerRecord(CONTROLLER, word_uuid("process"), 1, False, (), ())])
    moved = voter(CONTROLLER, port=9999)
    decision = claim(world.image, node_id=CONTROLLER, cluster_id=CLUSTER_ID, voters=(moved,))
    assert decision.records[1:] == (QuorumVersionRecord(0), VotersRecord((moved,)))


def test_a_later_claim_is_alone_where_the_voters_are_the_same() -> None:
    world = World()
    decision = claim(world.image, node_id=CONTROLLER, cluster_id=CLUSTER_ID, voters=(voter(CONTROLLER),))
    assert decision.records == (ControllerClaimRecord(CONTROLLER, 2, CLUSTER_ID),)
    assert decision.cause is not None and decision.cause.code == "CONTROLLER_CLAIMED"


@pytest.mark.parametrize(
    "configured",
    [
        (voter(CONTROLLER), voter(2)),
        (voter(2),),
        (voter(CONTROLLER)._replace(directory_id=word_uuid("wiped")),),
        (voter(CONTROLLER, port=9999)._replace(directory_id=word_uuid("wiped")),),
    ],
)
def test_who_votes_is_the_logs_to_say_once_it_is_founded(configured: tuple[Voter, ...]) -> None:
    world = World()
    decision = claim(world.image, node_id=CONTROLLER, cluster_id=CLUSTER_ID, voters=configured)
    assert decision.records == (ControllerClaimRecord(CONTROLLER, 2, CLUSTER_ID),)


def test_a_voter_that_moved_is_written() -> None:
    world = World()
    moved = voter(CONTROLLER, port=9999)
    decision = claim(world.image, node_id=CONTROLLER, cluster_id=CLUSTER_ID, voters=(moved,))
    assert decision.records[1:] == (QuorumVersionRecord(1), VotersRecord((moved,)))


def test_the_addresses_of_a_voter_that_registers_are_not_those_of_another_node_s_file() -> None:
    world = World()
    world.write([RegisterControllerRecord(CONTROLLER, word_uuid("process"), 1, False, (), ())])
    old = voter(CONTROLLER, port=9999)
    decision = claim(world.image, node_id=CONTROLLER, cluster_id=CLUSTER_ID, voters=(old,))
    assert decision.records == (ControllerClaimRecord(CONTROLLER, 2, CLUSTER_ID),)


def test_a_voter_that_got_a_listener_for_kafka_is_written() -> None:
    world = World()
    (raft,) = voter(CONTROLLER).endpoints
    with_kafka = voter(CONTROLLER)._replace(endpoints=(raft, VoterEndpoint("KAFKA", "c", 9293)))
    decision = claim(world.image, node_id=CONTROLLER, cluster_id=CLUSTER_ID, voters=(with_kafka,))
    assert decision.records[1:] == (QuorumVersionRecord(1), VotersRecord((with_kafka,)))
    assert (with_kafka.address("CONTROLLER"), with_kafka.address("KAFKA")) == (("c", 9093), ("c", 9293))


def test_a_controller_without_a_listener_for_kafka_removes_no_address_of_one() -> None:
    image = World().image
    (raft,) = voter(CONTROLLER).endpoints
    with_kafka = voter(CONTROLLER)._replace(endpoints=(raft, VoterEndpoint("KAFKA", "c", 9293)))
    image = dataclasses.replace(image, quorum=image.quorum._replace(voters=(with_kafka,)))
    same = claim(image, node_id=CONTROLLER, cluster_id=CLUSTER_ID, voters=(voter(CONTROLLER),))
    assert same.records == (ControllerClaimRecord(CONTROLLER, 2, CLUSTER_ID),)
    moved = claim(image, node_id=CONTROLLER, cluster_id=CLUSTER_ID, voters=(voter(CONTROLLER, port=9999),))
    of_voters = moved.records[2]
    assert isinstance(of_voters, VotersRecord)
    (of_log,) = of_voters.voters
    assert (of_log.address("CONTROLLER"), of_log.address("KAFKA")) == (("c", 9999), ("c", 9293))


def quorum_of(*node_ids: int) -> MetadataImage:
    """Return a founded cluster whose voter N has directory cN and is reached at host cN."""
    image = World().image
    voters = tuple(member(node_id) for node_id in node_ids)
    return dataclasses.replace(image, quorum=image.quorum._replace(voters=voters))


def member(node_id: int) -> Voter:
    endpoint = VoterEndpoint("CONTROLLER", f"c{node_id}", 9093)
    return Voter(NodeId(node_id), word_uuid(f"c{node_id}"), (endpoint,), 0, 1)


def addition(
    node_id: int,
    directory: Uuid | None = None,
    host: str | None = None,
    *,
    validate_only: bool = False,
    replaces: str | None = None,
) -> AddVoter:
    return AddVoter(
        voter_id=NodeId(node_id),
        directory_id=directory or word_uuid(f"c{node_id}"),
        host=host or f"c{node_id}",
        port=9093,
        validate_only=validate_only,
        replaces=None if replaces is None else word_uuid(replaces),
    )


def removal(node_id: int, directory: str | None = None, *, validate_only: bool = False) -> RemoveVoter:
    return RemoveVoter(
        voter_id=NodeId(node_id),
        directory_id=word_uuid(directory or f"c{node_id}"),
        validate_only=validate_only,
    )


def voters_changed(*node_ids: int) -> VotersChanged:
    return VotersChanged(tuple(VoterIdentity(NodeId(n), word_uuid(f"c{n}")) for n in node_ids))


def decided(image: MetadataImage, command: AddVoter | RemoveVoter) -> Decision:
    return decide(context(image), command)


def context(image: MetadataImage) -> DecideContext:
    return structs.replace(World().context(), image=image)


@pytest.mark.parametrize(
    ("voters", "command", "error"),
    [
        ((1, 2, 3), addition(4), None),
        ((1,), addition(0), None),
        ((1, 2, 3), addition(3), "DUPLICATE_VOTER"),
        ((1, 2, 3), addition(3, word_uuid("wiped"), "elsewhere"), "DUPLICATE_VOTER"),
        ((1, 2, 3), addition(4, word_uuid("c3")), "INVALID_REQUEST"),
        ((1, 2, 3), addition(4, host="c3"), "INVALID_REQUEST"),
        ((1, 2, 3), addition(4, host="ctl4..example"), "INVALID_REQUEST"),
        ((1, 2, 3), addition(4, host="::1"), None),
        ((1, 2, 3), addition(4, MIGRATING), "INVALID_REQUEST"),
        ((1, 2, 3), addition(4, UNASSIGNED), "INVALID_REQUEST"),
        (range(1, 10), addition(10), None),
        (range(1, 11), addition(11), "INVALID_REQUEST"),
        ((1, 2, 3), removal(3), None),
        ((1, 2), removal(1), None),
        ((1, 2, 3), removal(4), "VOTER_NOT_FOUND"),
        ((1, 2, 3), removal(3, "wiped"), "VOTER_NOT_FOUND"),
        ((1, 2, 3), removal(3, "c2"), "VOTER_NOT_FOUND"),
        ((1,), removal(1), "INVALID_REQUEST"),
        ((1,), removal(2), "VOTER_NOT_FOUND"),
    ],
)
def test_who_may_come_and_go(
    voters: tuple[int, ...], command: AddVoter | RemoveVoter, error: str | None
) -> None:
    """B70"""
    decision = decided(quorum_of(*voters), command)
    assert (None if decision.refusal is None else decision.refusal.error) == error
    assert len(decision.records) == (error is None)


def test_no_controller_votes_under_a_brokers_id() -> None:
    world = World()
    world.run("register 4")
    image = dataclasses.replace(world.image, quorum=quorum_of(1, 2, 3).quorum)
    decision = decided(image, addition(4))
    assert decision.refusal is not None
    assert (decision.refusal.error, decision.records) == ("INVALID_REQUEST", ())
    assert "id 4 is a broker's" in decision.refusal.message


def test_an_addition_writes_the_whole_set_in_order() -> None:
    decision = add_voter(context(quorum_of(1, 3, 4)), addition(2))
    assert decision.records == (VotersRecord((member(1), member(2), member(3), member(4))),)
    assert decision.outcome == voters_changed(1, 2, 3, 4)
    assert decision.cause == Cause(
        "VOTER_ADDED", None, {"node_id": 2, "directory_id": uuid_text(word_uuid("c2"))}
    )


def test_an_added_voter_is_reached_by_kafkas_brokers_where_it_registered() -> None:
    image = quorum_of(1)
    endpoints = (BrokerEndpoint("CONTROLLER", "c2", 9093, 0), BrokerEndpoint("KAFKA", "k2", 9293, 1))
    registered = RegisterControllerRecord(NodeId(2), word_uuid("process"), 7, False, endpoints, ())
    image = dataclasses.replace(image, controllers=image.controllers.set(NodeId(2), registered))
    decision = add_voter(context(image), addition(2))
    added = member(2)
    added = added._replace(endpoints=(*added.endpoints, VoterEndpoint("KAFKA", "k2", 9293)))
    assert decision.records == (VotersRecord((member(1), added)),)


def test_a_removal_writes_who_is_left() -> None:
    decision = remove_voter(context(quorum_of(1, 2, 3)), removal(2))
    assert decision.records == (VotersRecord((member(1), member(3))),)
    assert decision.outcome == voters_changed(1, 3)
    assert decision.cause is not None and decision.cause.code == "VOTER_REMOVED"


def test_a_dry_run_answers_alike_and_writes_nothing() -> None:
    image = quorum_of(1, 2, 3)
    for real, dry in (
        (addition(4), addition(4, validate_only=True)),
        (removal(2), removal(2, validate_only=True)),
    ):
        assert decided(image, dry).records == ()
        assert decided(image, dry).outcome == decided(image, real).outcome
    assert decided(image, removal(9, validate_only=True)).refusal is not None


NEW_DISK = word_uuid("new disk")


@pytest.mark.parametrize(
    ("voters", "command", "error"),
    [
        ((1, 2, 3), addition(3, NEW_DISK, validate_only=True, replaces="c3"), None),
        (range(1, 11), addition(3, NEW_DISK, validate_only=True, replaces="c3"), None),
        ((1, 2, 3), addition(3, NEW_DISK), "DUPLICATE_VOTER"),
        ((1, 2, 3), addition(3, NEW_DISK, replaces="c3"), "INVALID_REQUEST"),
        ((1, 2, 3), addition(3, NEW_DISK, validate_only=True, replaces="c2"), "VOTER_NOT_FOUND"),
        ((1, 2, 3), addition(4, NEW_DISK, validate_only=True, replaces="c4"), "VOTER_NOT_FOUND"),
        ((1, 2, 3), addition(3, NEW_DISK, "c2", validate_only=True, replaces="c3"), "INVALID_REQUEST"),
        ((1, 2, 3), addition(3, word_uuid("c2"), validate_only=True, replaces="c3"), "INVALID_REQUEST"),
        ((3,), addition(3, NEW_DISK, validate_only=True, replaces="c3"), "INVALID_REQUEST"),
    ],
)
def test_a_replacement_is_judged_as_removal_and_addition_would_be_in_turn(
    voters: tuple[int, ...], command: AddVoter, error: str | None
) -> None:
    image = quorum_of(*voters)
    judged = decided(image, command)
    assert judged.records == ()
    assert (None if judged.refusal is None else judged.refusal.error) == error
    if error is None:
        left = remove_voter(context(image), removal(3)).records[0]
        assert isinstance(left, VotersRecord)
        after = dataclasses.replace(image, quorum=image.quorum._replace(voters=left.voters))
        assert judged.outcome == decided(after, dataclasses.replace(command, replaces=None)).outcome
