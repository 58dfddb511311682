"""Edge: SCRAM credentials of users: what is refused, what is written, and that no secret is shown (B85)."""

import json

import pytest

from metadata_log.image.users import UsersBuilder, users_items
from metadata_log.node.identity.scram import keys_of
from metadata_log.records.declaration import shown
from metadata_log.records.features import METAQUORUM_VERSION, FeatureLevelRecord
from metadata_log.records.registry import to_json
from metadata_log.records.users import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from quorum.decide.decision import Decision
from quorum.decide.users import (
    AlterUserScramCredentials,
    ScramDeletion,
    ScramUpsertion,
    UsersAltered,
    describe,
)
from tests.support.decisions import World

SALTED = b"the salted password"


def upsertion(
    name: str = "ann", mechanism: int = 1, iterations: int = 4_096, salted: bytes = SALTED
) -> ScramUpsertion:
    return ScramUpsertion(name, mechanism, iterations, b"the salt", salted)


def alter(world: World, *changes: ScramDeletion | ScramUpsertion, whole: bool = False) -> Decision:
    return world.decide(
        AlterUserScramCredentials(
            deletions=tuple(each for each in changes if isinstance(each, ScramDeletion)),
            upsertions=tuple(each for each in changes if isinstance(each, ScramUpsertion)),
            all_or_nothing=whole,
        )
    )


def errors(decision: Decision) -> dict[str, str | None]:
    assert isinstance(decision.outcome, UsersAltered)
    return {result.user: result.error for result in decision.outcome.results}


def test_a_credential_has_the_keys_of_the_salted_password_and_is_replaced_and_deleted() -> None:
    world = World()
    for mechanism in (1, 2):
        (record,) = alter(world, upsertion(mechanism=mechanism)).records
        assert isinstance(record, UserScramCredentialRecord)
        assert (record.stored_key, record.server_key) == keys_of(mechanism, SALTED)
        assert record[:3] + record[5:6] == ("ann", mechanism, b"the salt", 4_096)
    (record,) = alter(world, upsertion(iterations=8_192)).records
    assert [each["credentials"] for each in users_items(world.image.users)] == [
        [
            {"mechanism": "SCRAM-SHA-256", "iterations": 8_192},
            {"mechanism": "SCRAM-SHA-512", "iterations": 4_096},
        ]
    ]
    (removed,) = alter(world, ScramDeletion("ann", 1)).records
    assert removed == RemoveUserScramCredentialRecord("ann", 1)
    assert [*world.image.users] == [("ann", 2)]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (upsertion(iterations=4_095), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion(iterations=16_385), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion(iterations=16_384), None),
        (upsertion(name=""), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion(salted=b""), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion(mechanism=0), "UNSUPPORTED_SASL_MECHANISM"),
        (upsertion(mechanism=3), "UNSUPPORTED_SASL_MECHANISM"),
        (ScramDeletion("ann", 1), "RESOURCE_NOT_FOUND"),
        (ScramDeletion("", 1), "UNACCEPTABLE_CREDENTIAL"),
        (ScramDeletion("ann", 9), "UNSUPPORTED_SASL_MECHANISM"),
    ],
)
def test_one_user_is_refused_alone(change: ScramDeletion | ScramUpsertion, error: str | None) -> None:
    """B85, with Kafka's errors."""
    world = World()
    decision = alter(world, change, upsertion("bob"))
    wanted: dict[str, str | None] = {change.name: error, "bob": None}
    assert errors(decision) == wanted
    assert {name for name, _ in world.image.users} == {name for name in wanted if wanted[name] is None}
    whole = alter(World(), change, upsertion("bob"), whole=True)
    assert len(whole.records) == (2 if error is None else 0)


def test_a_user_that_is_named_twice_is_refused_whatever_it_asks_for() -> None:
    world = World()
    alter(world, upsertion("bob"))
    for changes in (
        (upsertion("ann", 1), upsertion("ann", 2)),
        (ScramDeletion("bob", 1), upsertion("bob", 2)),
        (ScramDeletion("bob", 1), ScramDeletion("bob", 2), upsertion("bob", 0)),
    ):
        decision = alter(world, *changes)
        assert (errors(decision), decision.records) == ({changes[0].name: "DUPLICATE_RESOURCE"}, [])
    # Of a user that is refused already, nothing more is looked at.
    decision = alter(world, upsertion("ann", 0), upsertion("ann", 1))
    assert errors(decision) == {"ann": "UNSUPPORTED_SASL_MECHANISM"}


def test_nothing_shows_a_secret_and_equal_secrets_have_different_masks() -> None:
    world = World()
    alter(world, upsertion("ann"), upsertion("bob"))
    for record in world.image.users.values():
        told = json.dumps([to_json(record), *users_items(world.image.users)]) + "".join(
            UsersBuilder.lines(world.image.users)
        )
        for secret in (record.salt, record.stored_key, record.server_key, record.mask_key or b""):
            assert secret.hex() not in told and secret.decode("latin-1") not in told
    ann, bob = (shown(world.image.users[name, 1]) for name in ("ann", "bob"))
    assert len({ann.salt, ann.stored_key, ann.server_key, bob.salt, bob.stored_key}) == 5


def test_credentials_are_described_by_name_or_all() -> None:
    world = World()
    alter(world, upsertion("ann"))
    alter(world, upsertion("ann", 2, 8_192), upsertion("bob"))
    found = {
        each.user: [(one.mechanism, one.iterations) for one in each.credentials]
        for each in describe(world.image, None)
    }
    assert found == {"ann": [(1, 4_096), (2, 8_192)], "bob": [(1, 4_096)]}
    told = [
        (each.user, len(each.credentials), None if each.error is None else each.error.error)
        for each in describe(world.image, ["bob", "ann", "bob", "eve"])
    ]
    assert told == [("bob", 0, "DUPLICATE_RESOURCE"), ("ann", 2, None), ("eve", 0, "RESOURCE_NOT_FOUND")]


def test_a_cluster_at_an_older_level_refuses_credentials() -> None:
    world = World()
    world.write([FeatureLevelRecord(METAQUORUM_VERSION, 3)])
    decision = alter(world, upsertion())
    assert decision.refusal is not None and decision.refusal.error == "UNSUPPORTED_VERSION"
