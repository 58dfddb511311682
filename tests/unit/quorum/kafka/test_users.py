"""Edge: users' SCRAM credentials in Kafka's protocol, and logins by them, over a real socket."""

from pathlib import Path
from typing import Any

import pytest

from metadata_log import limits
from metadata_log.node.identity.access import Access
from metadata_log.node.identity.scram import salted
from quorum.decide.users import AlterUserScramCredentials, ScramUpsertion
from quorum.kafka.login import SASL_AUTHENTICATE, SASL_HANDSHAKE
from quorum.kafka.users import ALTER_CREDENTIALS, DESCRIBE_CREDENTIALS
from tests.support.kafka_client import KafkaClient
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.lab import CLUSTER
from tests.unit.metadata_log.node.identity.test_scram import final_message
from tests.unit.quorum.kafka.test_login import (
    ALICE,
    BROKER,
    CLUSTER_QUESTION,
    file_of_principals,
    login,
    register,
)

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
OFFERED = ("PLAIN", *MECHANISMS)


def upsertion(user: str, password: str, mechanism: int = 1, iterations: int = 4_096) -> tuple[Any, ...]:
    salt = f"salt of {user}".encode()
    return user, mechanism, iterations, salt, salted(mechanism, password.encode(), salt, iterations)


def test_credentials_are_altered_and_described_each_with_an_answer(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            changes = [
                upsertion("ann", "a"),
                upsertion("bob", "b", 2, 8_192),
                upsertion("", "x"),
                ("eve", 7, 4_096, b"salt", b"password"),
            ]
            _, rows = await client.ask(ALTER_CREDENTIALS, 0, [("eve", 1)], changes)
            assert {user: code for user, code, _ in rows} == {"eve": 91, "ann": 0, "bob": 0, "": 93}
            _, error, _, rows = await client.ask(DESCRIBE_CREDENTIALS, 0, None)
            assert (error, [(user, infos) for user, _, _, infos in rows]) == (
                0,
                [("ann", ((1, 4_096),)), ("bob", ((2, 8_192),))],
            )
            _, _, _, rows = await client.ask(
                DESCRIBE_CREDENTIALS, 0, [("bob",), ("eve",), ("ann",), ("ann",)]
            )
            assert [(user, code) for user, code, _, _ in rows] == [("bob", 0), ("eve", 91), ("ann", 92)]
            _, rows = await client.ask(ALTER_CREDENTIALS, 0, [("ann", 1)], ())
            assert rows == (("ann", 0, None),)
            assert [*desk.controller.committed.users] == [("bob", 2)]

    at_kafka_desk(tmp_path, story)


async def scram(
    client: KafkaClient, user: str, password: str, mechanism: str = "SCRAM-SHA-256"
) -> tuple[int, bool]:
    """Log in; return the error of the last answer, and whether the server proved that it knows the password, too."""
    assert await client.ask(SASL_HANDSHAKE, 1, mechanism) == (0, OFFERED)
    bare = f"n={user},r=of-the-client"
    error, _, challenge, _ = await client.ask(SASL_AUTHENTICATE, 2, f"n,,{bare}".encode())
    if error:
        return error, False
    message, wanted = final_message(MECHANISMS[mechanism], bare, challenge, password)
    error, _, proof, _ = await client.ask(SASL_AUTHENTICATE, 2, message)
    return error, proof == wanted


def test_users_log_in_by_their_passwords_with_the_rights_of_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those end with the credential, also on connections that are there: each request looks."""
    monkeypatch.setattr(limits, "IDENTITY_CHECK_S", 0.0)

    async def story(desk: KafkaDesk) -> None:
        changes = [upsertion("alice", "alice's"), upsertion("eve", "eve's", 2)]
        for each in changes:
            await _write(desk, each)
        async with desk.client() as client:
            assert await scram(client, "alice", "alice's") == (0, True)
            assert (await client.ask(*CLUSTER_QUESTION))[1] == 0
            # Who needs another right than the file gives is refused by name.
            assert (await client.ask(ALTER_CREDENTIALS, 0, [("eve", 2)], ()))[1][0][1] == 31
            async with desk.client() as other:
                assert await scram(other, "eve", "eve's", "SCRAM-SHA-512") == (0, True)
                assert (await other.ask(*CLUSTER_QUESTION))[1] == 31, (
                    "the file of principals has no such name"
                )
            await _write(desk, upsertion("alice", "another"))
            with pytest.raises((EOFError, ConnectionError, OSError)):
                await client.ask(*CLUSTER_QUESTION)
        async with desk.client() as client:
            assert (await login(client, f"\0alice\0{ALICE}"))[0] == 0
            assert await scram(client, "alice", "another") == (0, True)
            assert (await client.ask(*CLUSTER_QUESTION))[1] == 0

    at_kafka_desk(tmp_path, story, principals=file_of_principals(tmp_path), security="sasl_plaintext")


def test_a_broker_logs_in_as_the_user_that_the_file_of_principals_names_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a broker of a cluster that is taken over keeps its user's name, and speaks for itself alone.

    A user that calls itself Broker:11, and that the file does not name, is none. Nor is a client that a broker forwards for,
    or the owner of a delegation token, whatever its type and name are.
    """
    monkeypatch.setattr(limits, "IDENTITY_CHECK_S", 0.0)
    file = file_of_principals(tmp_path)
    file.write_text(file.read_text() + 'user = "kafka-eleven"\n')  # the last row is that of Broker:11
    listed = {row["name"]: row["user"] for row in Access(file, cluster_id=CLUSTER).listed()}
    assert listed == {"Broker:11": "kafka-eleven", "User:alice": None}

    async def story(desk: KafkaDesk) -> None:
        for user in ("kafka-eleven", "Broker:11"):
            await _write(desk, upsertion(user, "its"))
        async with desk.client() as client:
            assert await scram(client, "kafka-eleven", "its") == (0, True)
            assert (await register(client, 11), await register(client, 12)) == (0, 31)
            seen = {row["name"]: row["seen_at_ms"] for row in desk.door.access.listed()}
            assert seen["Broker:11"] is not None and seen["User:alice"] is None
            assert (await login(client, f"\0kafka-eleven\0{BROKER}"))[0] == 0
            assert (await register(client, 11), await register(client, 12)) == (0, 31)
            assert await scram(client, "Broker:11", "its") == (0, True)
            assert await register(client, 11) == 31
            assert await scram(client, "kafka-eleven", "its") == (0, True)
            vouched = [
                desk.door.named(*of)
                for of in (("User", "kafka-eleven"), ("Broker", "11"), ("User", "Broker:11"))
            ]
            assert not any(each.rights or each.node for each in vouched)
            file.write_text(file.read_text().replace("kafka-eleven", "kafka-12"))
            assert await register(client, 11) == 31

    at_kafka_desk(tmp_path, story, principals=file, security="sasl_plaintext")


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "any")])
def test_a_wrong_password_and_an_unknown_user_end_the_connection_alike(
    tmp_path: Path, user: str, password: str
) -> None:
    async def story(desk: KafkaDesk) -> None:
        await _write(desk, upsertion("alice", "alice's"))
        async with desk.client() as client:
            assert await scram(client, user, password) == (58, False)
            with pytest.raises((EOFError, ConnectionError, OSError)):
                await client.ask(*CLUSTER_QUESTION)

    at_kafka_desk(tmp_path, story, principals=file_of_principals(tmp_path), security="sasl_plaintext")


def test_a_password_that_is_changed_during_a_login_does_not_count_beyond_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDENTITY_CHECK_S", 0.0)

    async def story(desk: KafkaDesk) -> None:
        await _write(desk, upsertion("alice", "leaked"))
        async with desk.client() as client:
            await client.ask(SASL_HANDSHAKE, 1, "SCRAM-SHA-256")
            bare = "n=alice,r=of-the-client"
            _, _, challenge, _ = await client.ask(SASL_AUTHENTICATE, 2, f"n,,{bare}".encode())
            await _write(desk, upsertion("alice", "another"))
            message, _ = final_message(MECHANISMS["SCRAM-SHA-256"], bare, challenge, "leaked")
            assert (await client.ask(SASL_AUTHENTICATE, 2, message))[
                0
            ] == 0  # it is what the challenge asked for
            with pytest.raises((EOFError, ConnectionError, OSError)):
                await client.ask(*CLUSTER_QUESTION)

    at_kafka_desk(tmp_path, story, principals=file_of_principals(tmp_path), security="sasl_plaintext")


@pytest.mark.parametrize("message", [b"", b"n,,n=alice", b"\0alice\0token"])
def test_what_is_no_scram_is_refused(tmp_path: Path, message: bytes) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            await client.ask(SASL_HANDSHAKE, 1, "SCRAM-SHA-256")
            assert (await client.ask(SASL_AUTHENTICATE, 2, message))[0] == 58

    at_kafka_desk(tmp_path, story, principals=file_of_principals(tmp_path), security="sasl_plaintext")


async def _write(desk: KafkaDesk, change: tuple[Any, ...]) -> None:
    command = AlterUserScramCredentials(deletions=(), upsertions=(ScramUpsertion(*change),))
    await desk.lab.write(desk.controller, command)
