"""Edge: quotas of clients: entities, keys, values, and the records written (B86)."""

import math
from collections.abc import Sequence

import pytest

from metadata_log.image.quotas import quotas_item
from metadata_log.limits import RECORDS_PER_BATCH_MAX
from metadata_log.records.features import METAQUORUM_VERSION, FeatureLevelRecord
from metadata_log.records.quotas import CLIENT_ID, IP, USER, ClientQuotaRecord, QuotaEntity
from quorum.decide.decision import Decision
from quorum.decide.quotas import AlterClientQuotas, EntityAltered, EntityChange, QuotaChange
from tests.support.decisions import World

ANN = (QuotaEntity(USER, "ann"),)
ANNS_APP = (QuotaEntity(CLIENT_ID, "app"), QuotaEntity(USER, "ann"))
ADDRESS = (QuotaEntity(IP, "10.0.0.1"),)


def entry(entity: Sequence[QuotaEntity], **quotas: float | None) -> EntityChange:
    return EntityChange(tuple(entity), tuple(QuotaChange(key, value) for key, value in quotas.items()))


def alter(world: World, *entries: EntityChange, validate_only: bool = False, whole: bool = False) -> Decision:
    return world.decide(AlterClientQuotas(entries=entries, validate_only=validate_only, all_or_nothing=whole))


def results(decision: Decision) -> list[EntityAltered]:
    assert decision.outcome is not None
    return list(decision.outcome[0])


def written(decision: Decision) -> list[ClientQuotaRecord]:
    records = [record for record in decision.records if isinstance(record, ClientQuotaRecord)]
    assert len(records) == len(decision.records)
    return records


def errors(decision: Decision) -> list[str | None]:
    return [result.error for result in results(decision)]


def test_a_quota_is_set_changed_and_removed_and_an_equal_one_writes_nothing() -> None:
    """B86: unchanged gives no record, and so does the removal of one that is not there."""
    world = World()
    (record,) = written(alter(world, entry(ANN, producer_byte_rate=1024)))
    assert record == ClientQuotaRecord(ANN, "producer_byte_rate", 1024.0, remove=False)
    assert type(record.value) is float
    assert not alter(world, entry(ANN, producer_byte_rate=1024.0)).records
    assert len(alter(world, entry(ANN, producer_byte_rate=2048.0, request_percentage=2.5)).records) == 2
    ((entity, values),) = world.image.quotas.items()
    assert (entity, dict(values)) == (
        ((USER, "ann"),),
        {"producer_byte_rate": 2048.0, "request_percentage": 2.5},
    )
    assert not alter(world, entry(ANN, consumer_byte_rate=None)).records
    removed = alter(world, entry(ANN, producer_byte_rate=None)).records
    assert removed == [ClientQuotaRecord(ANN, "producer_byte_rate", 0.0, remove=True)]
    alter(world, entry(ANN, request_percentage=None))
    assert not world.image.quotas


def test_entities_are_users_client_ids_both_or_addresses_and_defaults_of_each() -> None:
    world = World()
    default = (QuotaEntity(CLIENT_ID, None), QuotaEntity(USER, None))
    made = alter(
        world,
        entry(ANNS_APP[::-1], request_percentage=1.0),
        entry(default, controller_mutation_rate=0.5),
        entry(ADDRESS, connection_creation_rate=7.0),
        entry((QuotaEntity(IP, None),), connection_creation_rate=8.0),
    )
    assert errors(made) == [None] * 4
    assert [record.entity for record in written(made)] == [
        ANNS_APP,
        default,
        ADDRESS,
        (QuotaEntity(IP, None),),
    ]
    assert quotas_item(world.image.quotas, ((CLIENT_ID, ""), (USER, ""))) == {
        "entity": [
            {"entity_type": CLIENT_ID, "entity_name": None},
            {"entity_type": USER, "entity_name": None},
        ],
        "quotas": {"controller_mutation_rate": 0.5},
    }


@pytest.mark.parametrize(
    "entity",
    [
        (),
        (*ADDRESS, *ANN),
        (*ADDRESS, QuotaEntity(CLIENT_ID, None)),
        (QuotaEntity(USER, ""),),
        (QuotaEntity("topic", "t"),),
        (QuotaEntity(IP, "no address"),),
    ],
)
def test_other_entities_are_refused(entity: tuple[QuotaEntity, ...]) -> None:
    """B86: INVALID_REQUEST."""
    key = "connection_creation_rate" if any(kind == IP for kind, _ in entity) else "producer_byte_rate"
    decision = alter(World(), entry(entity, **{key: 1.0}))
    assert (errors(decision), decision.records) == (["INVALID_REQUEST"], [])


@pytest.mark.parametrize(
    ("entity", "key", "good", "bad"),
    [
        (ANN, "producer_byte_rate", (1, 1.0, 1.0000001, 2.0**63), (0, -1, 0.5, 1.5, 2.0**64, math.nan)),
        (ANN, "consumer_byte_rate", (9,), (0.1,)),
        (ANN, "request_percentage", (0.1, 1e300), (0, -0.1, math.nan, math.inf)),
        (ANNS_APP, "controller_mutation_rate", (0.1,), (0,)),
        (ADDRESS, "connection_creation_rate", (1, 2.0**31 - 1), (0, 0.5, 2.0**31)),
        (ADDRESS, "producer_byte_rate", (), (1,)),
        (ANN, "connection_creation_rate", (), (1,)),
        (ANN, "nope", (), (1,)),
    ],
)
def test_values(
    entity: tuple[QuotaEntity, ...], key: str, good: tuple[float, ...], bad: tuple[float, ...]
) -> None:
    """B86: above 0, and whole where the key is of whole numbers."""
    for value in good:
        assert errors(alter(World(), entry(entity, **{key: value}))) == [None], value
    for value in bad:
        decision = alter(World(), entry(entity, **{key: value}))
        assert (errors(decision), decision.records) == (["INVALID_REQUEST"], []), value


def test_one_entity_that_is_refused_changes_nothing_for_the_others_unless_asked_for_all_or_none() -> None:
    world = World()
    entries = (
        entry(ANN, producer_byte_rate=1.0, request_percentage=-1.0),
        entry(ADDRESS, connection_creation_rate=1.0),
    )
    tried = alter(world, *entries, validate_only=True)
    assert (errors(tried), tried.records) == (["INVALID_REQUEST", None], ())
    decision = alter(world, *entries, whole=True)
    assert (errors(decision), decision.records) == (["INVALID_REQUEST", "OPERATION_NOT_ATTEMPTED"], ())
    decision = alter(world, *entries)
    assert errors(decision) == ["INVALID_REQUEST", None]
    assert decision.records == [ClientQuotaRecord(ADDRESS, "connection_creation_rate", 1.0, remove=False)]


def test_what_is_given_twice_is_refused_and_the_first_change_of_an_entity_counts() -> None:
    """Kafka's answer names the entity once, with the error, although the first change is written."""
    world = World()
    decision = alter(
        world, entry(ANNS_APP, request_percentage=1.0), entry(ANNS_APP[::-1], request_percentage=2.0)
    )
    assert errors(decision) == ["INVALID_REQUEST"]
    assert [record.value for record in written(decision)] == [1.0]
    twice = EntityChange(
        ANN, (QuotaChange("request_percentage", 1.0), QuotaChange("request_percentage", None))
    )
    assert errors(alter(world, twice)) == ["INVALID_REQUEST"]


def test_an_empty_name_is_not_taken_for_the_default() -> None:
    empty, default = (QuotaEntity(USER, ""),), (QuotaEntity(USER, None),)
    decision = alter(World(), entry(empty, request_percentage=1.0), entry(default, request_percentage=1.0))
    assert [(each.entity, each.error) for each in results(decision)] == [
        (empty, "INVALID_REQUEST"),
        (default, None),
    ]
    assert [record.entity for record in written(decision)] == [default]


def test_more_than_a_batch_holds_are_refused() -> None:
    entries = [
        entry((QuotaEntity(USER, f"u{n}"),), request_percentage=1.0) for n in range(RECORDS_PER_BATCH_MAX + 1)
    ]
    decision = alter(World(), *entries)
    assert decision.refusal is not None and decision.refusal.error == "POLICY_VIOLATION"


def test_a_cluster_at_an_older_level_refuses_quotas() -> None:
    world = World()
    world.write([FeatureLevelRecord(METAQUORUM_VERSION, 3)])
    decision = alter(world, entry(ANN, producer_byte_rate=1.0))
    assert decision.refusal is not None and decision.refusal.error == "UNSUPPORTED_VERSION"
