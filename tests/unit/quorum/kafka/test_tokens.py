"""Edge: delegation tokens in Kafka's protocol: directly, in brokers' envelopes, and logins by them, over a real socket."""

import base64
import struct
from pathlib import Path
from typing import Any

import pytest

from metadata_log import limits
from metadata_log.kafka.messages import PRINCIPAL, message_writer
from metadata_log.node.identity.rights import ROLES, Principal
from quorum.controller.callers import Caller
from quorum.kafka.apis import APIS
from quorum.kafka.door import Asked, Waits, answered_in_time
from quorum.kafka.envelope import unwrap
from quorum.kafka.login import SASL_AUTHENTICATE, SASL_HANDSHAKE
from quorum.kafka.tokens import CREATE_TOKEN, DESCRIBE_TOKEN, EXPIRE_TOKEN, RENEW_TOKEN
from quorum.node.config import AclSettings
from tests.support.kafka_client import KafkaClient, answer_values, request_bytes
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.lab import online
from tests.unit.metadata_log.node.identity.test_scram import final_message
from tests.unit.quorum.kafka.test_envelope import envelope
from tests.unit.quorum.kafka.test_login import ALICE, CLUSTER_QUESTION, file_of_principals, login

SECRET = b"the cluster's secret"
AUTH_DISABLED, NOT_FOUND, MISMATCH, NOT_ALLOWED, NOT_AUTHORIZED = 61, 62, 63, 64, 65
INVALID_TYPE = 67


def principal(name: str, *, by_token: bool = False) -> bytes:
    return struct.pack(">h", 0) + message_writer(PRINCIPAL, 0)(("User", name, by_token))


async def through_a_broker(desk: KafkaDesk, who: bytes, key: int, version: int, *values: Any) -> Any:
    """Ask as a broker forwards for its client, and return the answer to the client."""
    broker = Caller(Principal("Broker:11", ROLES["broker"]), "10.0.0.2")
    data, error = await unwrap(
        desk.door, Asked(0, envelope(request_bytes(key, version, values), who), broker)
    )
    assert error == 0
    return answer_values(key, version, data)[1]


def test_tokens_are_issued_moved_and_described_through_brokers(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        desk.controller.tokens.use(SECRET)
        await online(desk.lab, desk.controller, 11)
        ann, bob, eve = map(principal, ("ann", "bob", "eve"))
        for version in (1, 2, 3):
            owner = (None, None) if version >= 3 else ("", "")
            answer = await through_a_broker(
                desk, ann, CREATE_TOKEN, version, *owner, [("User", "bob")], 60_000
            )
            assert answer[:3] == (0, "User", "ann")
            issued_ms, expiry_ms, max_ms, token_id, hmac, throttle_ms = answer[-6:]
            assert (expiry_ms - issued_ms, max_ms - issued_ms, throttle_ms) == (60_000, 60_000, 0)
            assert hmac == desk.controller.tokens.hmac_of(token_id)
        assert await through_a_broker(desk, bob, RENEW_TOKEN, 2, hmac, 1_000) == (0, issued_ms + 1_000, 0)
        assert await through_a_broker(desk, eve, RENEW_TOKEN, 2, hmac, 1_000) == (MISMATCH, -1, 0)
        assert await through_a_broker(desk, ann, EXPIRE_TOKEN, 2, b"another", -1) == (NOT_FOUND, -1, 0)
        assert (await through_a_broker(desk, bob, EXPIRE_TOKEN, 2, hmac, -1))[0] == 0
        assert len(desk.controller.committed.tokens) == 2
        describing, asks_as_ann = (
            APIS[DESCRIBE_TOKEN].handler,
            Caller(desk.door.named("User", "ann"), door="kafka"),
        )
        assert isinstance(describing, Waits)
        for version in (1, 2, 3):
            answer = await answered_in_time(
                APIS[DESCRIBE_TOKEN], describing, desk.door, Asked(version, (None,), asks_as_ann)
            )
            assert not isinstance(answer, bytes) and len(answer[1]) == 2
            assert {row[2:4] for row in answer[1]} == {("User", "ann") if version == 3 else ("", "")}
        answer = await through_a_broker(desk, ann, CREATE_TOKEN, 3, None, None, [("Group", "x")], -1)
        assert answer[0] == INVALID_TYPE
        answer = await through_a_broker(desk, ann, CREATE_TOKEN, 3, None, "carol", [], -1)
        assert answer[:3] == (INVALID_TYPE, "", "carol")
        # A name without the right asks for nobody else's.
        answer = await through_a_broker(desk, ann, CREATE_TOKEN, 3, "User", "carol", [], -1)
        assert answer == (NOT_AUTHORIZED, "User", "carol", "User", "ann", -1, -1, -1, "", b"", 0)
        answer = await through_a_broker(
            desk, principal("ann", by_token=True), CREATE_TOKEN, 3, None, None, [], -1
        )
        assert answer[0] == NOT_ALLOWED

    at_kafka_desk(tmp_path, story, principals=file_of_principals(tmp_path), security="sasl_plaintext")


def test_an_acl_lets_a_user_ask_for_anothers_tokens(tmp_path: Path) -> None:
    """KIP-373: CREATE_TOKENS (13) on the resource User:carol of the type USER (7)."""

    async def story(desk: KafkaDesk) -> None:
        desk.controller.tokens.use(SECRET)
        await online(desk.lab, desk.controller, 11)
        ann = principal("ann")
        wanted: tuple[Any, ...] = (CREATE_TOKEN, 3, "User", "carol", [], -1)
        assert (await through_a_broker(desk, ann, *wanted))[0] == NOT_AUTHORIZED
        acl = (7, "User:carol", 3, "User:ann", "*", 13, 3)
        await through_a_broker(desk, principal("root"), 30, 3, [acl])
        answer = await through_a_broker(desk, ann, *wanted)
        assert answer[:5] == (0, "User", "carol", "User", "ann")
        assert (await through_a_broker(desk, ann, CREATE_TOKEN, 3, "User", "dave", [], -1))[
            0
        ] == NOT_AUTHORIZED

    file = file_of_principals(tmp_path)
    file.write_text(file.read_text() + '\n[[principals]]\nname = "User:root"\nroles = ["admin"]\n')
    at_kafka_desk(
        tmp_path, story, principals=file, security="sasl_plaintext", acls=AclSettings(enforced=True)
    )


async def by_token(client: KafkaClient, token_id: str, hmac: bytes) -> int:
    """Log in by a token, and return the error of the last answer."""
    await client.ask(SASL_HANDSHAKE, 1, "SCRAM-SHA-256")
    bare = f"n={token_id},r=of-the-client,tokenauth=true"
    error, _, challenge, _ = await client.ask(SASL_AUTHENTICATE, 2, f"n,,{bare}".encode())
    assert error == 0
    message, _ = final_message(1, bare, challenge, base64.b64encode(hmac).decode())
    return int((await client.ask(SASL_AUTHENTICATE, 2, message))[0])


def test_a_client_logs_in_by_a_token_as_its_owner_while_the_token_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDENTITY_CHECK_S", 0.0)

    async def story(desk: KafkaDesk) -> None:
        desk.controller.tokens.use(SECRET)
        async with desk.client() as alice, desk.client() as client, desk.client() as wrong:
            assert (await login(alice, f"\0alice\0{ALICE}"))[0] == 0
            *_, token_id, hmac, _ = await alice.ask(CREATE_TOKEN, 3, None, None, [], -1)
            error, (row,), _ = await alice.ask(DESCRIBE_TOKEN, 3, None)
            assert (error, row[:4], row[7:]) == (0, ("User", "alice", "User", "alice"), (token_id, hmac, ()))
            assert (await alice.ask(DESCRIBE_TOKEN, 3, [("User", "eve")]))[1] == ()
            assert await by_token(client, token_id, hmac) == 0
            assert (await client.ask(*CLUSTER_QUESTION))[1] == 0  # as alice, a reader
            assert (await client.ask(CREATE_TOKEN, 3, None, None, [], -1))[0] == NOT_ALLOWED
            assert (await client.ask(DESCRIBE_TOKEN, 3, None))[0] == NOT_ALLOWED
            assert await by_token(wrong, token_id, b"another") == 58
            assert (await alice.ask(EXPIRE_TOKEN, 2, hmac, -1))[0] == 0
            with pytest.raises((EOFError, ConnectionError, OSError)):
                await client.ask(*CLUSTER_QUESTION)
        async with desk.client() as client:
            assert await by_token(client, token_id, hmac) == 58

    at_kafka_desk(tmp_path, story, principals=file_of_principals(tmp_path), security="sasl_plaintext")


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (CREATE_TOKEN, (None, None, (), 1)),
        (RENEW_TOKEN, (b"", 1)),
        (EXPIRE_TOKEN, (b"", 1)),
        (DESCRIBE_TOKEN, (None,)),
    ],
)
def test_tokens_are_not_asked_for_in_the_clear_and_not_without_a_secret_key(
    tmp_path: Path, key: int, values: tuple[Any, ...]
) -> None:
    async def in_the_clear(desk: KafkaDesk) -> None:
        desk.controller.tokens.use(SECRET)
        async with desk.client() as client:
            assert (await client.ask(key, 2 if key in (39, 40) else 3, *values))[0] == NOT_ALLOWED

    async def without_a_key(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            assert (await login(client, f"\0alice\0{ALICE}"))[0] == 0
            assert (await client.ask(key, 2 if key in (39, 40) else 3, *values))[0] == AUTH_DISABLED

    at_kafka_desk(tmp_path / "a", in_the_clear)
    at_kafka_desk(
        tmp_path / "b", without_a_key, principals=file_of_principals(tmp_path), security="sasl_plaintext"
    )
