"""Edge: registrations of controllers: what is written, what is refused, and who holds back a feature (B12, B81, C9)."""

import dataclasses
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from metadata_log import limits
from metadata_log.apply import apply
from metadata_log.batch import NO_ENVELOPE
from metadata_log.codec import encode
from metadata_log.errors import InvariantBroken, Rejected
from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import EMPTY, buckets_of, lines
from metadata_log.records.brokers import BrokerEndpoint, BrokerRegistrationChangeRecord, FeatureRange
from metadata_log.records.controllers import RegisterControllerRecord, UnregisterControllerRecord
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION as ELR
from metadata_log.records.features import METADATA_VERSION, FeatureLevelRecord
from metadata_log.records.features import METAQUORUM_VERSION as OURS
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    QuorumVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from metadata_log.records.registry import Record
from metadata_log.wire.commands import Command, RegisterController
from quorum.decide.controllers import ControllerRegistered, ControllerUnregistered, UnregisterController
from quorum.decide.decision import Decision
from quorum.decide.features import REGISTERED, FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.decide.quorum import reached_at
from quorum.decide.registry import decide
from tests.support.decisions import CLUSTER_ID, CONTROLLER, FEATURES, World, registration, word_uuid

ENDPOINTS = (BrokerEndpoint("CONTROLLER", "c", 9093, 0),)
ELR_UNKNOWN = (FeatureRange(METADATA_VERSION, 30, 30),)


def of(controller_id: int, incarnation: str = "1", **changes: object) -> RegisterController:
    fields: dict[str, object] = {
        "cluster_id": CLUSTER_ID,
        "controller_id": NodeId(controller_id),
        "incarnation_id": word_uuid(f"c{controller_id}-{incarnation}"),
        "endpoints": ENDPOINTS,
        "features": REGISTERED,
    }
    return RegisterController(**(fields | changes))  # type: ignore[arg-type]


def removal(controller_id: int, *, validate_only: bool = False) -> UnregisterController:
    return UnregisterController(controller_id=NodeId(controller_id), validate_only=validate_only)


def to_elr(level: int = 1) -> UpdateFeatures:
    upgrade = UpgradeType.UPGRADE if level else UpgradeType.SAFE_DOWNGRADE
    return UpdateFeatures(updates=(FeatureUpdate(ELR, level, upgrade),), validate_only=False)


def with_voters(world: World, *ids: int) -> World:
    world.write(
        [
            VotersRecord(
                tuple(
                    Voter(
                        NodeId(n),
                        word_uuid(f"controller {n}"),
                        (VoterEndpoint("CONTROLLER", "c", 9093),),
                        0,
                        1,
                    )
                    for n in ids
                )
            )
        ]
    )
    return world


def carried_out(world: World, command: Command) -> Decision:
    decision = world.decide(command)
    assert decision.refusal is None, decision.refusal
    return decision


def decided(
    world: World, command: Command, *, node_id: int = -1, linked: frozenset[int] = frozenset()
) -> Decision:
    context = replace(world.context(), node_id=node_id, is_linked=lambda node: node in linked)
    return decide(context, command)


def refusal(
    world: World, command: Command, *, node_id: int = -1, linked: frozenset[int] = frozenset()
) -> Rejected:
    refused = decided(world, command, node_id=node_id, linked=linked).refusal
    assert refused is not None
    return refused


def test_a_registration_is_one_record_whose_epoch_is_its_offset() -> None:
    """B12: ControllerRegistration writes what it was sent; ours is the epoch, as a broker's."""
    world = World()
    offset = world.image.end_offset
    decision = carried_out(world, of(7))
    record = RegisterControllerRecord(NodeId(7), word_uuid("c7-1"), offset, False, ENDPOINTS, REGISTERED)
    assert list(decision.records) == [record]
    assert decision.outcome == ControllerRegistered(NodeId(7), offset)
    assert decision.cause == ("CONTROLLER_REGISTERED", None, {"controller_id": 7})
    assert dict(world.image.controllers) == {7: record}
    assert world.image.digest_buckets == buckets_of(world.image)


@pytest.mark.parametrize(
    ("peers", "is_voter", "is_written"),
    [
        ((), True, True),
        ((SimpleNamespace(node_id=7, is_voter=True, reachable=True),), True, True),
        (
            (SimpleNamespace(node_id=7, is_voter=False, reachable=True),),
            True,
            False,
        ),  # another disk of this id
        ((SimpleNamespace(node_id=7, is_voter=False, reachable=False),), True, True),
        ((), False, False),  # this node itself, on another disk
    ],
)
def test_a_voter_that_registers_other_addresses_has_moved(
    peers: tuple[SimpleNamespace, ...], *, is_voter: bool, is_written: bool
) -> None:
    world = with_voters(World(), 7, 8)
    there = (BrokerEndpoint("CONTROLLER", "there", 9193, 0), BrokerEndpoint("HTTP", "there", 9101, 0))
    raft = SimpleNamespace(peers=peers, is_voter=is_voter)
    context = replace(world.context(), node_id=7, raft_status=lambda: raft)
    decision = decide(context, of(7, endpoints=there))
    voters = [one.voters for one in decision.records if isinstance(one, VotersRecord)]
    assert len(voters) == is_written
    for moved, other in voters:
        assert moved.endpoints == (VoterEndpoint("CONTROLLER", "there", 9193),), (
            "HTTP is no address of a voter"
        )
        assert other.endpoints == (VoterEndpoint("CONTROLLER", "c", 9093),)
    same = decide(context, of(7))
    assert not [one for one in same.records if isinstance(one, VotersRecord)]


def test_an_address_for_kafka_stays_where_a_registration_lacks_it() -> None:
    image = with_voters(World(), 7).image
    both = (BrokerEndpoint("CONTROLLER", "c", 9093, 0), BrokerEndpoint("KAFKA", "c", 9293, 0))
    (voter,) = reached_at(image, NodeId(7), both) or ()
    assert voter.address("KAFKA") == ("c", 9293)
    kept = dataclasses.replace(image, quorum=image.quorum._replace(voters=(voter,)))
    assert reached_at(kept, NodeId(7), ENDPOINTS) is None
    assert reached_at(kept, NodeId(9), both) is None, "it does not vote"


@pytest.mark.parametrize("incarnation", ["1", "2"])
def test_another_registration_of_an_id_replaces_the_one_before(incarnation: str) -> None:
    """B12: Kafka compares nothing; an equal registration is written again, and gets an epoch of its own."""
    world = World()
    first = carried_out(world, of(7)).records[0]
    assert isinstance(first, RegisterControllerRecord)
    offset = world.image.end_offset
    again = carried_out(world, of(7, incarnation, features=ELR_UNKNOWN))
    assert again.cause == ("CONTROLLER_REGISTERED", first.registration_epoch, {"controller_id": 7})
    assert again.outcome == ControllerRegistered(NodeId(7), offset)
    assert [each.registration_epoch for each in world.image.controllers.values()] == [offset]
    assert world.image.controllers[NodeId(7)].features == ELR_UNKNOWN


def test_another_cluster_s_controller_is_refused() -> None:
    assert refusal(World(), of(7, cluster_id="B" * 22)).error == "INCONSISTENT_CLUSTER_ID"


def test_brokers_and_controllers_share_one_space_of_ids() -> None:
    """A broker of Kafka ends if its leader has its id; an observer may come to vote, and to lead."""
    world = World()
    world.run("register 1")
    world.decide(of(4))
    context = replace(world.context(), checks_as_brokers=True)
    for command, named in ((of(1), "id 1 is a broker's"), (registration(4), "id 4 is a controller's")):
        refused = decide(context, command).refusal
        assert refused is not None and refused.error == "INVALID_REGISTRATION"
        assert named in refused.message
        assert decide(world.context(), command).refusal is None, "Kafka's scripts may"


def test_registrations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorum.decide.controllers.CONTROLLER_REGISTRATIONS_MAX", 2)
    world = World()
    for controller_id in (1, 2):
        carried_out(world, of(controller_id))
    assert refusal(world, of(3)).error == "POLICY_VIOLATION"
    carried_out(world, of(2, "another"))
    assert limits.CONTROLLER_REGISTRATIONS_MAX >= 10 * limits.CONTROLLERS_MAX


@pytest.mark.parametrize(
    ("controller_id", "linked", "error"),
    [
        (8, frozenset(), "UNKNOWN_CONTROLLER_ID"),
        (CONTROLLER, frozenset(), "NODE_STILL_ALIVE"),  # a voter, whether it runs or not
        (7, frozenset({7}), "NODE_STILL_ALIVE"),
        (9, frozenset(), "NODE_STILL_ALIVE"),  # this controller itself
        (7, frozenset({9}), None),
    ],
)
def test_only_a_dead_controller_without_a_vote_is_unregistered(
    controller_id: int, linked: frozenset[int], error: str | None
) -> None:
    """C9: the registration of a controller that votes or runs stays; it would be made again at once."""
    world = World()
    for each in (7, 9, CONTROLLER):
        carried_out(world, of(each))
    for validate_only in (True, False):
        decision = decided(
            world, removal(controller_id, validate_only=validate_only), node_id=9, linked=linked
        )
        if error is not None:
            assert decision.refusal is not None and decision.refusal.error == error
            assert not decision.records
            continue
        epoch = world.image.controllers[NodeId(7)].registration_epoch
        assert decision.outcome == ControllerUnregistered(NodeId(7), epoch)
        assert list(decision.records) == (
            [] if validate_only else [UnregisterControllerRecord(NodeId(7), epoch)]
        )
    if error is None:
        carried_out(world, removal(7))
        assert sorted(world.image.controllers) == sorted([9, CONTROLLER])
        assert world.image.digest_buckets == buckets_of(world.image)


def test_a_removal_of_another_registration_is_no_history() -> None:
    world = World()
    carried_out(world, of(7))
    epoch = world.image.controllers[NodeId(7)].registration_epoch
    for record in (
        UnregisterControllerRecord(NodeId(7), epoch + 1),
        UnregisterControllerRecord(NodeId(8), epoch),
    ):
        with pytest.raises(InvariantBroken):
            world.write([record])


# --- who holds back a feature


KNOWS = (*FEATURES, FeatureRange(ELR, 0, 1))
KNOWS_NOT = FEATURES


@pytest.mark.parametrize("level", [0, 1])
def test_every_voter_must_be_registered(level: int) -> None:
    """B81: a voter that did not register may not support the level; this controller knows itself."""
    world = with_voters(World(), 1, 2, 3)
    assert "controllers 2, 3 have not registered" in refusal(world, to_elr(level), node_id=1).message
    carried_out(world, of(2))
    assert "controller 3 has not registered" in refusal(world, to_elr(level), node_id=1).message
    carried_out(world, of(3))
    assert decided(world, to_elr(level), node_id=1).refusal is None


@pytest.mark.parametrize(
    ("features", "is_refused"),
    [
        (REGISTERED, False),
        ((), True),
        (ELR_UNKNOWN, True),
        ((FeatureRange(ELR, 0, 0),), True),
        ((FeatureRange(ELR, 1, 1),), False),
        ((FeatureRange(ELR, 2, 3),), True),
    ],
)
def test_every_registered_controller_must_support_the_level(
    features: tuple[FeatureRange, ...], is_refused: bool
) -> None:
    """B81: a controller without a vote counts as well; a feature that it does not name it supports at 0 alone."""
    world = with_voters(World(), 1)
    carried_out(world, of(4, features=features))
    decision = decided(world, to_elr(), node_id=1)
    assert (decision.refusal is not None) is is_refused
    # This controller's own registration says nothing that it does not know better.
    own = with_voters(World(), 4)
    carried_out(own, of(4, features=features))
    assert decided(own, to_elr(), node_id=4).refusal is None


def test_all_that_hold_back_a_feature_are_named_at_once() -> None:
    """C9: two dead brokers and one dead controller are all named; removed, they hold back nothing any more."""
    world = with_voters(World(), 1, 2)
    carried_out(world, of(2))
    for broker_id, features in ((11, KNOWS_NOT), (12, KNOWS), (13, KNOWS_NOT), (14, KNOWS_NOT)):
        carried_out(world, registration(broker_id, features=features))
    epoch = world.image.brokers[14].broker_epoch  # type: ignore[index]  # a plain number is one of those ids
    world.write([BrokerRegistrationChangeRecord(*(14, epoch), fenced=False)])  # type: ignore[arg-type]  # as above
    carried_out(world, of(4, features=ELR_UNKNOWN))
    message = refusal(world, to_elr(), node_id=1, linked=frozenset({2})).message
    assert (
        "brokers 11 (fenced), 13 (fenced), 14 support 0 to 0; controller 4 (not linked) supports 0 to 0"
        in message
    )
    assert "12" not in message and " 2 " not in message
    for broker_id in (11, 13, 14):
        world.run(f"unregister {broker_id}")
    carried_out(world, removal(4))
    assert decided(world, to_elr(), node_id=1).refusal is None


def test_the_digest_line_of_a_controller() -> None:
    """Equal states have equal digests, whichever way they were reached; the line is that of docs/formats.md."""
    records: list[Record] = [
        ControllerClaimRecord(NodeId(1), 1, CLUSTER_ID),
        RegisterControllerRecord(NodeId(7), word_uuid("x"), 1, False, ENDPOINTS, ELR_UNKNOWN),
    ]
    batch, _ = encode(
        base_offset=0,
        controller_epoch=1,
        appended_at_ms=0,
        previous_crc=0,
        envelope=NO_ENVELOPE,
        records=records,
    )
    name, version = b"CONTROLLER".hex(), METADATA_VERSION.encode().hex()
    assert list(lines(apply(EMPTY, batch).image)) == [
        f"n|7|1|{word_uuid('x').hex()}|0|{name}:{b'c'.hex()}:9093:0|{version}:30:30"
    ]


# --- metaquorum.version


def to_level(level: int, upgrade_type: UpgradeType = UpgradeType.UPGRADE) -> UpdateFeatures:
    return UpdateFeatures(updates=(FeatureUpdate(OURS, level, upgrade_type),), validate_only=False)


def at_level(level: int) -> World:
    world = World()
    world.write([FeatureLevelRecord(OURS, level)])
    return world


@pytest.mark.parametrize("who", ["broker", "controller"])
def test_the_level_of_our_records_waits_for_every_node_that_reads_them(who: str) -> None:
    """A node of the release before would stop at the first record that it does not know."""
    world, before = at_level(1), FeatureRange(OURS, 1, 1)
    if who == "broker":
        carried_out(world, registration(11, features=(FEATURES[0], before)))
    else:
        carried_out(world, of(7, features=(before,)))
    refused = refusal(world, to_level(2), node_id=CONTROLLER)
    assert refused.error == "INVALID_UPDATE_VERSION"
    assert "supports 1 to 1" in refused.message
    if who == "broker":
        carried_out(world, registration(11, incarnation_id=word_uuid("again"), features=FEATURES))
    else:
        carried_out(world, of(7, "2"))
    world.write([*decided(world, to_level(2), node_id=CONTROLLER).records])
    assert world.image.features[OURS] == 2


def test_the_voters_own_protocol_keeps_its_level() -> None:
    """Goal: Kafka's tools ask for all levels of a release at once, kraft.version among them."""
    world = World()
    carried_out(world, of(CONTROLLER))
    updates = {
        level: UpdateFeatures(
            updates=(
                FeatureUpdate("kraft.version", level, UpgradeType.UPGRADE),
                FeatureUpdate("group.version", 1, UpgradeType.UPGRADE),
            ),
            validate_only=False,
        )
        for level in (0, 1, 2)
    }
    assert decided(world, updates[1]).records == [FeatureLevelRecord("group.version", 1)]
    for level in (0, 2):
        refused = refusal(world, updates[level])
        assert refused.error == "INVALID_UPDATE_VERSION"
        told = "it is 1; ask for a downgrade" if level == 0 else "this controller supports 0 to 1"
        assert f"kraft.version cannot become {level}: {told}" in refused.message


def test_a_feature_that_the_controller_does_not_know_is_named_with_those_that_it_knows() -> None:
    update = FeatureUpdate("metadata.versio", 30, UpgradeType.UPGRADE)
    refused = refusal(World(), UpdateFeatures(updates=(update,), validate_only=False))
    assert refused.error == "INVALID_UPDATE_VERSION"
    assert "metadata.versio is no feature of this controller" in refused.message
    assert "metadata.version" in refused.message


def to_kraft(
    level: int = 1, upgrade_type: UpgradeType = UpgradeType.UPGRADE, *, validate_only: bool = False
) -> UpdateFeatures:
    update = FeatureUpdate("kraft.version", level, upgrade_type)
    return UpdateFeatures(updates=(update,), validate_only=validate_only)


def test_static_voters_become_the_logs_once_each_of_them_is_known() -> None:
    """Kafka 4.3.1 raises kraft.version once it knows the directory and the levels of every voter."""
    world = with_voters(World(), CONTROLLER, 2)
    world.write([QuorumVersionRecord(0)])
    carried_out(world, of(CONTROLLER))
    assert decided(world, to_kraft(0)).records == []
    assert "voter 2 has not registered" in refusal(world, to_kraft()).message
    carried_out(world, of(2))
    old = (FeatureRange(METADATA_VERSION, 30, 30), FeatureRange("kraft.version", 0, 0))
    carried_out(world, registration(11, features=old))
    assert "broker 11 supports 0 to 0" in refusal(world, to_kraft()).message
    again = (FeatureRange(METADATA_VERSION, 30, 30), FeatureRange("kraft.version", 0, 1))
    world.write([*decided(world, registration(11, features=again, incarnation_id=word_uuid("new"))).records])
    for kind in (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
        assert "it is 0; ask for an upgrade" in refusal(world, to_kraft(1, kind)).message
    assert decided(world, to_kraft(validate_only=True)).records == ()
    raised = decided(world, to_kraft())
    voters = world.image.quorum.voters
    assert raised.records == [QuorumVersionRecord(1), VotersRecord(voters or ())]
    world.write([*raised.records])
    assert (world.image.quorum.kraft_version, world.image.quorum.voters) == (1, voters)
    assert decided(world, to_kraft()).records == []
    for kind in (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
        assert "it is 1; it is never lowered" in refusal(world, to_kraft(0, kind)).message


def test_the_raise_writes_where_the_voters_registered() -> None:
    """A registration at level 0 moves nobody: the settings say where static voters are."""
    world = with_voters(World(), CONTROLLER, 2, 3)
    world.write([QuorumVersionRecord(0)])
    there = (BrokerEndpoint("CONTROLLER", "there", 9193, 0), BrokerEndpoint("KAFKA", "there", 9293, 0))
    carried_out(world, of(CONTROLLER))
    for node_id in (2, 3):
        carried_out(world, of(node_id, endpoints=there))
    other_disk = SimpleNamespace(node_id=3, is_voter=False, reachable=True)
    raft = SimpleNamespace(peers=(other_disk,), is_voter=True)
    context = replace(world.context(), node_id=CONTROLLER, raft_status=lambda: raft)
    _, record = decide(context, to_kraft()).records
    assert isinstance(record, VotersRecord)
    here = (VoterEndpoint("CONTROLLER", "c", 9093),)
    assert {voter.node_id: voter.endpoints for voter in record.voters} == {
        CONTROLLER: here,
        2: (VoterEndpoint("CONTROLLER", "there", 9193), VoterEndpoint("KAFKA", "there", 9293)),
        3: here,
    }


def test_a_voter_that_knows_one_level_of_kraft_version_keeps_it() -> None:
    world = with_voters(World(), CONTROLLER)
    (voter,) = world.image.quorum.voters or ()
    world.write([QuorumVersionRecord(0), VotersRecord((voter._replace(max_version=0),))])
    carried_out(world, of(CONTROLLER))
    assert f"voter {CONTROLLER} supports 0 to 0" in refusal(world, to_kraft()).message


def test_a_controller_with_static_voters_that_registers_elsewhere_is_not_written_as_a_voter() -> None:
    world = with_voters(World(), CONTROLLER)
    context = replace(
        world.context(), node_id=CONTROLLER, raft_status=lambda: SimpleNamespace(peers=(), is_voter=True)
    )
    moved = of(CONTROLLER, endpoints=(BrokerEndpoint("CONTROLLER", "elsewhere", 9093, 0),))
    assert [type(each) for each in decide(context, moved).records] == [RegisterControllerRecord, VotersRecord]
    world.write([QuorumVersionRecord(0)])
    context = replace(context, image=world.image)
    assert [type(each) for each in decide(context, moved).records] == [RegisterControllerRecord]


def test_a_broker_that_reads_none_of_our_records_holds_back_no_level() -> None:
    """A broker of Kafka names metadata.version alone."""
    world = at_level(1)
    carried_out(world, registration(11, features=FEATURES[:1]))
    assert decided(world, to_level(2), node_id=CONTROLLER).refusal is None


def test_the_level_of_our_records_never_falls() -> None:
    world = at_level(2)
    for upgrade_type in UpgradeType:
        refused = refusal(world, to_level(1, upgrade_type))
        assert refused.error == "INVALID_UPDATE_VERSION"
    assert "the log may hold records" in refused.message


def test_a_controller_of_the_release_before_does_not_register_at_a_level_it_does_not_know() -> None:
    world = at_level(2)
    refused = refusal(world, of(7, features=(FeatureRange(OURS, 1, 1),)))
    assert refused.error == "UNSUPPORTED_VERSION"
    carried_out(world, of(7))
