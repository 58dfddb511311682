"""Edge: access control lists are created, deleted by filters, and bounded (B84, C16)."""

import random

import pytest

from metadata_log.image.acls import AclsImage
from metadata_log.records.acls import (
    AclOperation,
    PatternType,
    PermissionType,
    RemoveAccessControlEntryRecord,
    ResourceType,
)
from metadata_log.records.features import METAQUORUM_VERSION, FeatureLevelRecord
from metadata_log.sliced import at_once
from quorum.decide.acls import (
    LISTED_MAX,
    WALKS_MAX,
    Acl,
    AclFilter,
    AclsCreated,
    AclsDeleted,
    CreateAcls,
    DeleteAcls,
    meant_by,
)
from quorum.decide.registry import DECISIONS, decide
from tests.support.decisions import World

READ = Acl(
    ResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:ann",
    "*",
    AclOperation.READ,
    PermissionType.ALLOW,
)

NO_COLON = (
    "Could not parse principal from `ann` "
    "(no colon is present separating the principal type from the principal name)"
)


def of(count: int, *, name: str = "orders") -> tuple[Acl, ...]:
    return tuple(READ._replace(resource_name=name, principal=f"User:u{number}") for number in range(count))


def created(world: World, *acls: Acl) -> AclsCreated:
    outcome = world.decide(CreateAcls(acls=acls)).outcome
    assert isinstance(outcome, AclsCreated)
    return outcome


def with_many(count: int) -> World:
    world = World()
    for first in range(0, count, 5_000):
        created(world, *of(count)[first : first + 5_000])
    return world


def test_a_duplicate_gives_success_and_no_record() -> None:
    world = World()
    decision = world.decide(CreateAcls(acls=(READ, READ)))
    assert decision.outcome == AclsCreated((((None, None)), (None, None)))  # type: ignore[arg-type]
    assert [record[1:] for record in decision.records] == [READ]
    assert world.decide(CreateAcls(acls=(READ,))).records == []


@pytest.mark.parametrize(
    ("acl", "why"),
    [
        (READ._replace(resource_type=ResourceType.UNKNOWN), "Invalid resourceType UNKNOWN"),
        (READ._replace(resource_type=ResourceType.ANY), "Invalid resourceType ANY"),
        (READ._replace(pattern_type=PatternType.MATCH), "Invalid patternType MATCH"),
        (READ._replace(operation=AclOperation.ANY), "Invalid operation ANY"),
        (READ._replace(permission_type=PermissionType.UNKNOWN), "Invalid permissionType UNKNOWN"),
        (READ._replace(resource_name=""), "Resource name should not be empty"),
        (
            READ._replace(principal="ann"),
            NO_COLON,
        ),
    ],
)
def test_what_says_nothing_is_refused_in_kafkas_words_and_the_others_are_created(acl: Acl, why: str) -> None:
    world = World()
    outcome = created(world, acl, READ)
    assert [(each.error, each.message) for each in outcome.results] == [
        ("INVALID_REQUEST", why),
        (None, None),
    ]
    assert len(world.image.acls.by_id) == 1


def test_clients_are_told_the_only_name_of_the_cluster() -> None:
    """Kafka's request layer knows it; its controller does not."""
    acl = READ._replace(resource_type=ResourceType.CLUSTER, resource_name="other")
    assert created(World(), acl).results[0].error is None


def test_a_cluster_below_the_level_writes_no_acl() -> None:
    """B84: a node of the release before would stop at the record."""
    world = World()
    world.write([FeatureLevelRecord(METAQUORUM_VERSION, 3)])
    for command in (CreateAcls(acls=(READ,)), DeleteAcls(filters=(AclFilter(),))):
        refusal = world.decide(command).refusal
        assert refusal is not None and refusal.error == "UNSUPPORTED_VERSION"
        assert "metaquorum features upgrade metaquorum.version=4" in refusal.message


def test_a_dry_run_writes_nothing() -> None:
    world = World()
    assert world.decide(CreateAcls(acls=(READ,), validate_only=True)).records == ()
    created(world, READ)
    decision = world.decide(DeleteAcls(filters=(AclFilter(),), validate_only=True))
    assert decision.records == () and isinstance(decision.outcome, AclsDeleted)
    assert decision.outcome.results[0].acls == (READ,)


def test_an_acl_that_two_filters_mean_is_listed_by_both_and_removed_once() -> None:
    world = World()
    created(world, READ)
    decision = world.decide(DeleteAcls(filters=(AclFilter(), AclFilter(resource_name="orders"))))
    assert len(decision.records) == 1 and isinstance(decision.records[0], RemoveAccessControlEntryRecord)
    assert isinstance(decision.outcome, AclsDeleted)
    assert [each.acls for each in decision.outcome.results] == [(READ,), (READ,)]
    assert (decision.outcome.deleted, decision.outcome.left) == (1, 0)


@pytest.mark.parametrize(
    "one",
    [
        AclFilter(resource_type=ResourceType.UNKNOWN),
        AclFilter(pattern_type=PatternType.UNKNOWN),
        AclFilter(operation=AclOperation.UNKNOWN),
        AclFilter(permission_type=PermissionType.UNKNOWN),
    ],
)
def test_a_filter_of_an_unknown_kind_deletes_nothing(one: AclFilter) -> None:
    world = World()
    created(world, READ)
    decision = world.decide(DeleteAcls(filters=(one, AclFilter(resource_name="none"))))
    assert isinstance(decision.outcome, AclsDeleted)
    assert [each.error for each in decision.outcome.results] == ["INVALID_REQUEST", None]
    assert not decision.records


def test_more_new_acls_than_a_batch_holds_are_refused() -> None:
    refusal = World().decide(CreateAcls(acls=of(10_001))).refusal
    assert refusal is not None and refusal.error == "POLICY_VIOLATION" and "10001 new ACLs" in refusal.message


@pytest.mark.slow
def test_deleting_25000_is_three_steps_that_can_be_resumed() -> None:
    """C16: in one request they are refused as in Kafka, with their count; in steps each is one batch of at most 10,000."""
    world = with_many(25_000)
    refusal = world.decide(DeleteAcls(filters=(AclFilter(),))).refusal
    assert refusal is not None and refusal.error == "INVALID_REQUEST" and "25000" in refusal.message
    told: list[tuple[int, int]] = []
    while not told or told[-1][1]:
        decision = world.decide(DeleteAcls(filters=(AclFilter(),), in_steps=True))
        assert isinstance(decision.outcome, AclsDeleted)
        told.append((decision.outcome.deleted, decision.outcome.left))
        assert len(decision.records) == decision.outcome.deleted
    assert told == [(10_000, 15_000), (10_000, 5_000), (5_000, 0)]
    assert world.image.acls == AclsImage()


def test_the_work_of_one_request_is_bounded() -> None:
    world = with_many(10_000)
    too_many = DeleteAcls(filters=(AclFilter(principal="User:none"),) * (WALKS_MAX + 1))
    overlapping = DeleteAcls(filters=(AclFilter(),) * 3)
    for command, why in ((too_many, "101 filters"), (overlapping, f"more than {LISTED_MAX}")):
        refusal = decide(world.context(), command).refusal
        assert refusal is not None and refusal.error == "POLICY_VIOLATION" and why in refusal.message


@pytest.mark.parametrize("seed", range(20))
def test_a_filter_means_what_a_walk_over_all_acls_finds(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    names, principals = ["*", "*a", "a", "ab", "abc", "b"], ["User:ann", "User:*"]
    created(
        world,
        *(
            Acl(
                rng.choice([2, 3]),
                rng.choice(names),
                rng.choice([3, 4]),
                rng.choice(principals),
                rng.choice(["*", "h"]),
                rng.choice([3, 4]),
                rng.choice([2, 3]),
            )
            for _ in range(60)
        ),
    )
    acls = world.image.acls
    for _ in range(100):
        one = AclFilter(
            rng.choice([1, 2, 3]),
            rng.choice([None, *names, "abcd"]),
            rng.choice([1, 2, 3, 4]),
            rng.choice([None, *principals]),
            rng.choice([None, "*", "h"]),
            rng.choice([1, 3, 4]),
            rng.choice([1, 2, 3]),
        )
        expected = sorted(acl.id for acl in acls.by_id.values() if one.is_meant(acl))
        assert [acl.id for acl in at_once(meant_by(acls, one))] == expected


def test_a_repetition_is_told_how_many_were_deleted() -> None:
    """What they said is in no record of the batch."""
    kept = DECISIONS[DeleteAcls].kept
    assert kept is not None
    world = World()
    created(world, READ)
    outcome = world.decide(DeleteAcls(filters=(AclFilter(),))).outcome
    again = kept.restore(kept.keep(outcome), None, world.image)
    assert isinstance(again, AclsDeleted) and (again.deleted, again.left) == (1, 0)
    assert again.results[0].acls == ()
