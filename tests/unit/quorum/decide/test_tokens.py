"""Edge: delegation tokens: how long they last, who moves their end, what is refused, with Kafka's errors (B87)."""

import pytest
from msgspec.structs import replace

from metadata_log.image.tokens import TokensBuilder
from metadata_log.metadata_versions import TOKENS_FROM
from metadata_log.records.features import METADATA_VERSION, METAQUORUM_VERSION, FeatureLevelRecord
from metadata_log.records.tokens import DelegationTokenRecord, RemoveDelegationTokenRecord
from metadata_log.wire.commands import Command
from metadata_log.wire.shapes import INT64_MAX
from quorum.decide import tokens
from quorum.decide.context import DecideContext, TokenRules
from quorum.decide.decision import Decision
from quorum.decide.registry import decide
from quorum.decide.tokens import (
    CreateDelegationToken,
    CreateDelegationTokenFor,
    ExpireDelegationToken,
    RenewDelegationToken,
    TokenCreated,
    TokenExpiry,
    TokenSweep,
    visible,
)
from quorum.node.config import DelegationTokenSettings
from tests.support.decisions import World

DAY_MS = 24 * 3600 * 1000
DEFAULTS = DelegationTokenSettings()


class Office(World):
    """A controller with a secret key, asked by principals; the HMAC of a token is its id here."""

    has_key = True

    administrators = frozenset({"User:root"})

    def context_of(self, who: str) -> DecideContext:
        rules = TokenRules(DEFAULTS.max_lifetime_ms, DEFAULTS.expiry_time_ms, lambda hmac: hmac.decode())
        return replace(
            self.context(),
            requester=who,
            is_administrator=who in self.administrators,
            tokens=rules if self.has_key else None,
        )

    def ask(self, command: Command, who: str = "User:ann") -> Decision:
        decision = decide(self.context_of(who), command)
        self.write(decision.records)
        return decision

    def token(self, **fields: object) -> DelegationTokenRecord:
        """Have a token issued to User:ann, and return it."""
        fields = {"renewers": ("User:bob",)} | fields
        outcome = self.ask(CreateDelegationToken(**fields)).outcome  # type: ignore[arg-type]
        assert isinstance(outcome, TokenCreated)
        return self.image.tokens[outcome.token_id]


def error_of(decision: Decision) -> str | None:
    assert decision.refusal is None or not decision.records
    return None if decision.refusal is None else decision.refusal.error


def test_a_token_lasts_a_day_and_is_renewed_for_a_week_at_most() -> None:
    office = Office()
    office.now_ms = 1_000
    token = office.token()
    assert token[1:] == ("User:ann", "User:ann", ("User:bob",), 1_000, 1_000 + 7 * DAY_MS, 1_000 + DAY_MS)
    assert len(token.token_id) == 22
    office.now_ms += DAY_MS  # its last millisecond
    renewed = office.ask(RenewDelegationToken(hmac=token.token_id.encode()), "User:bob")
    assert renewed.outcome == TokenExpiry(office.now_ms + DAY_MS)
    short = RenewDelegationToken(token_id=token.token_id, renew_period_ms=5)
    assert office.ask(short).outcome == TokenExpiry(office.now_ms + 5), "a period may be shorter"
    long = RenewDelegationToken(token_id=token.token_id, renew_period_ms=30 * DAY_MS)
    assert office.ask(long).outcome == TokenExpiry(office.now_ms + DAY_MS), "the settings bound it"
    while office.now_ms + DAY_MS <= token.max_timestamp_ms:
        office.now_ms += DAY_MS
        last = office.ask(RenewDelegationToken(token_id=token.token_id)).outcome
    assert last == TokenExpiry(token.max_timestamp_ms)
    office.now_ms = token.max_timestamp_ms + 1
    assert error_of(office.ask(RenewDelegationToken(token_id=token.token_id))) == "DELEGATION_TOKEN_EXPIRED"


@pytest.mark.parametrize(
    ("asked_ms", "max_ms", "expiry_ms"),
    [
        (-1, 7 * DAY_MS, DAY_MS),
        (0, 7 * DAY_MS, DAY_MS),
        (60_000, 60_000, 60_000),
        (30 * DAY_MS, 7 * DAY_MS, DAY_MS),
    ],
)
def test_a_lifetime_is_bounded_by_the_settings(asked_ms: int, max_ms: int, expiry_ms: int) -> None:
    token = Office().token(max_lifetime_ms=asked_ms)
    assert (token.max_timestamp_ms, token.expiry_timestamp_ms) == (max_ms, expiry_ms)


def test_owner_and_renewers_end_a_token_and_nobody_else_does() -> None:
    office = Office()
    token = office.token()
    named = {"token_id": token.token_id}
    for command in (RenewDelegationToken(**named), ExpireDelegationToken(**named)):  # type: ignore[arg-type]
        assert error_of(office.ask(command, "User:eve")) == "DELEGATION_TOKEN_OWNER_MISMATCH"
    later = ExpireDelegationToken(token_id=token.token_id, expiry_time_period_ms=50 * DAY_MS)
    assert office.ask(later, "User:bob").outcome == TokenExpiry(token.max_timestamp_ms)
    now = ExpireDelegationToken(token_id=token.token_id, expiry_time_period_ms=0)
    assert office.ask(now).outcome == TokenExpiry(0)
    office.now_ms = 1
    assert error_of(office.ask(now)) == "DELEGATION_TOKEN_EXPIRED"
    # What has expired can still be removed, as in Kafka.
    gone = office.ask(ExpireDelegationToken(token_id=token.token_id, expiry_time_period_ms=-7))
    assert (gone.records, gone.outcome) == ((RemoveDelegationTokenRecord(token.token_id),), TokenExpiry(1))
    assert error_of(office.ask(now)) == "DELEGATION_TOKEN_NOT_FOUND"


def test_an_administrator_ends_a_token_of_another_and_does_not_renew_it() -> None:
    office = Office()
    token = office.token()
    named = {"token_id": token.token_id}
    renewed = office.ask(RenewDelegationToken(**named), "User:root")  # type: ignore[arg-type]
    assert error_of(renewed) == "DELEGATION_TOKEN_OWNER_MISMATCH"
    ended = office.ask(ExpireDelegationToken(**named), "User:root")  # type: ignore[arg-type]
    assert ended.records == (RemoveDelegationTokenRecord(token.token_id),)


def test_the_tokens_of_one_owner_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "DELEGATION_TOKENS_OF_OWNER_MAX", 2)
    office = Office()
    first, _ = office.token(), office.token()
    refused = office.ask(CreateDelegationToken())
    assert error_of(refused) == "POLICY_VIOLATION" and "User:ann has 2" in str(refused.refusal)
    refused = office.ask(CreateDelegationTokenFor(owner="User:ann"), "User:root")
    assert error_of(refused) == "POLICY_VIOLATION", "whoever asks for it"
    assert error_of(office.ask(CreateDelegationToken(), "User:bob")) is None
    office.ask(ExpireDelegationToken(token_id=first.token_id))
    assert error_of(office.ask(CreateDelegationToken())) is None


def test_a_token_of_another_owner_is_the_owners_and_not_its_requesters() -> None:
    office = Office()
    outcome = office.ask(CreateDelegationTokenFor(owner="User:carol"), "User:ann").outcome
    assert isinstance(outcome, TokenCreated)
    assert (outcome.owner, outcome.requester) == ("User:carol", "User:ann")
    renewal = RenewDelegationToken(token_id=outcome.token_id)
    assert error_of(office.ask(renewal, "User:ann")) == "DELEGATION_TOKEN_OWNER_MISMATCH"
    assert error_of(office.ask(renewal, "User:carol")) is None


def test_refusals_come_in_kafkas_order() -> None:
    """Without a key, then below the level of either feature, then for the renewer's type."""
    office = Office()
    bad = CreateDelegationToken(renewers=("Group:x",))
    office.has_key = False
    for command in (bad, RenewDelegationToken(), ExpireDelegationToken()):
        assert error_of(office.ask(command)) == "DELEGATION_TOKEN_AUTH_DISABLED"
    office.has_key = True
    assert error_of(office.ask(bad)) == "INVALID_PRINCIPAL_TYPE"
    assert error_of(office.ask(RenewDelegationToken(hmac=b"none"))) == "DELEGATION_TOKEN_NOT_FOUND"
    for feature, level in ((METADATA_VERSION, TOKENS_FROM - 1), (METAQUORUM_VERSION, 4)):
        before = office.image.features[feature]
        office.write([FeatureLevelRecord(feature, level)])
        for command in (bad, RenewDelegationToken(), ExpireDelegationToken()):
            assert error_of(office.ask(command)) == "UNSUPPORTED_VERSION"
        office.write([FeatureLevelRecord(feature, before)])


def test_the_number_of_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "DELEGATION_TOKENS_MAX", 2)
    office = Office()
    office.token()
    office.token()
    assert error_of(office.ask(CreateDelegationToken())) == "POLICY_VIOLATION"


def test_times_beyond_an_int64_are_the_last_one() -> None:
    office = Office()
    office.now_ms = INT64_MAX - 5
    token = office.token()
    assert (token.max_timestamp_ms, token.expiry_timestamp_ms) == (INT64_MAX, INT64_MAX)


def test_the_sweep_removes_what_has_ended_in_parts() -> None:
    office = Office(records_max=2)
    ended = {office.token(max_lifetime_ms=1_000).token_id for _ in range(5)}
    lasting = office.token()
    office.now_ms = 1_000
    assert not TokenSweep().part(office.context()).records
    office.now_ms = 1_001
    sizes = []
    while (decision := TokenSweep().part(office.context())).records:
        assert decision.cause is not None and decision.cause.code == "DELEGATION_TOKEN_EXPIRED"
        sizes.append((len(decision.records), decision.more))
        office.write(decision.records)
    assert sizes == [(2, True), (2, True), (1, False)]
    assert {*office.image.tokens} == {lasting.token_id} and lasting.token_id not in ended


def test_a_principal_sees_what_concerns_it_and_what_it_is_allowed() -> None:
    office = Office()
    anns = office.token(renewers=())
    with_bob = office.token()
    issued = office.ask(CreateDelegationTokenFor(owner="User:carol"), "User:ann").outcome
    assert isinstance(issued, TokenCreated)
    carols = office.image.tokens[issued.token_id]
    everything = {anns, with_bob, carols}

    def seen(who: str, *owners: str, allowed: bool = False) -> set[DelegationTokenRecord]:
        return {*visible(office.image.tokens.values(), who, owners or None, lambda _: allowed)}

    assert seen("User:ann") == {anns, with_bob}
    assert seen("User:bob") == {with_bob}
    assert seen("User:bob", "User:carol") == set()
    assert seen("User:eve", allowed=True) == everything
    assert seen("User:eve", "User:carol", "User:bob", allowed=True) == {with_bob, carols}


def test_a_snapshot_has_the_tokens() -> None:
    office = Office()
    first, second = office.token(), office.token(renewers=())
    assert [*TokensBuilder.records(office.image.tokens)] == sorted([first, second])
