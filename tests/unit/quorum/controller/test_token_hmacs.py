"""Edge: HMACs of delegation tokens: as Kafka makes them, and found for tokens that are committed, and for no others."""

import base64

import pytest

from metadata_log.image.metadata_image import EMPTY
from metadata_log.node.identity.scram import ITERATIONS_MIN, keys_of, salted
from metadata_log.records.tokens import DelegationTokenRecord, RemoveDelegationTokenRecord
from quorum.controller import token_hmacs
from quorum.controller.token_hmacs import TokenHmacs
from tests.support.decisions import World


def token(token_id: str) -> DelegationTokenRecord:
    return DelegationTokenRecord(token_id, "User:ann", "User:ann", (), 0, 9, 9)


def follower(world: World, secret: bytes | None = b"secret") -> TokenHmacs:
    hmacs = TokenHmacs()
    hmacs.use(secret)
    world.watchers.append(lambda _, image, delta: hmacs.on_applied(None, b"", image, delta))  # type: ignore[arg-type]
    return hmacs


def test_an_hmac_is_that_of_the_id_under_the_key() -> None:
    """Source: RFC 4231, test case 2, with a token id in place of the data."""
    hmacs = TokenHmacs()
    hmacs.use(b"Jefe")
    wanted = (
        "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e"
        "070a38bce737"
    )
    assert hmacs.is_on
    assert hmacs.hmac_of("what do ya want for nothing?").hex() == wanted


def test_tokens_are_found_by_their_hmacs_while_they_are_there() -> None:
    world = World()
    hmacs = follower(world)
    world.write([token("a"), token("b")])
    world.write([RemoveDelegationTokenRecord("a")])
    assert [hmacs.id_of(hmacs.hmac_of(each)) for each in "abc"] == [None, "b", None]
    restored = TokenHmacs()
    restored.use(b"secret")
    restored.on_restored(world.image)
    assert restored.id_of(hmacs.hmac_of("b")) == "b"
    again = follower(world)
    again.on_restored(world.image)
    world.write([token("c"), RemoveDelegationTokenRecord("b")])  # before anything was looked for
    assert [again.id_of(hmacs.hmac_of(each)) for each in "abc"] == [None, None, "c"]
    again.on_restored(EMPTY)
    assert again.id_of(hmacs.hmac_of("c")) is None


def test_the_hmacs_of_a_snapshot_are_made_in_parts_while_tokens_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_hmacs, "ITEMS_BETWEEN_RESTS", 2)
    world = World()
    world.write([token(each) for each in "abcdef"])
    hmacs = follower(world)
    hmacs.on_restored(world.image)
    parts = 0
    for _ in hmacs.catching_up():
        parts += 1
        if parts == 1:
            world.write([token("x"), *map(RemoveDelegationTokenRecord, "abcde")])
    assert parts == 3
    monkeypatch.setattr(TokenHmacs, "catching_up", lambda _: iter(()))
    assert [hmacs.id_of(hmacs.hmac_of(each)) for each in "abcdefx"] == [*[None] * 5, "f", "x"]


def test_few_credentials_are_kept_those_that_were_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_hmacs, "TOKEN_CREDENTIALS_MAX", 2)
    hmacs = TokenHmacs()
    hmacs.use(b"secret")
    made = {key: hmacs.made_credential(*key) for key in (("a", 2), ("a", 1), ("b", 2))}
    assert len(set(made.values())) == 3
    for key in (("a", 2), ("a", 1)):
        hmacs.keep(*key, made[key])
    assert hmacs.known_credential("a", 2) is made["a", 2], "the one used last is kept"
    hmacs.keep("b", 2, made["b", 2])
    assert [hmacs.known_credential(*key) for key in made] == [made["a", 2], None, made["b", 2]]
    hmacs.use(b"another")
    assert hmacs.known_credential("a", 2) is None
    assert hmacs.made_credential("a", 2) != made["a", 2]


def test_without_a_key_nothing_is_kept() -> None:
    world = World()
    hmacs = follower(world, None)
    world.write([token("a")])
    hmacs.on_restored(world.image)
    assert hmacs.id_of(b"") is None


def test_a_token_logs_in_with_its_hmac_in_base64_as_the_password() -> None:
    hmacs = TokenHmacs()
    hmacs.use(b"secret")
    credential = hmacs.made_credential("a", 2)
    password = base64.b64encode(hmacs.hmac_of("a"))
    assert credential.keys == keys_of(2, salted(2, password, credential.salt, ITERATIONS_MIN))
    assert hmacs.made_credential("a", 1).salt != credential.salt != hmacs.made_credential("b", 2).salt
