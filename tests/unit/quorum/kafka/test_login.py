"""Edge: who sends requests of Kafka's protocol: by client certificate, by SASL PLAIN, or not at all."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from metadata_log import limits
from metadata_log.kafka.messages import API_VERSIONS
from metadata_log.node.identity.credentials import trusting
from metadata_log.node.identity.tls import Tls
from ops.certificates import Authority
from quorum.kafka.login import OFFERED, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.support.kafka_broker import FEATURES
from tests.support.kafka_client import KafkaClient, request_bytes, sized
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk, until
from tests.support.lab import CLUSTER, setting, uuid

ALICE = "the-token-of-alice-0123456789"
BROKER = "the-token-of-broker-11-9876543210"
PERSON = '[[principals]]\nname = "{}"\nroles = ["{}"]\ntoken_sha256 = "{}"\n'
REGISTRATION, CLUSTER_QUESTION = 62, (60, 2, False, 2, False)


def file_of_principals(directory: Path) -> Path:
    file = directory / "principals.toml"
    rows = (("User:alice", "reader", ALICE), ("Broker:11", "broker", BROKER))
    file.write_text(
        "".join(
            PERSON.format(name, role, hashlib.sha256(token.encode()).hexdigest())
            for name, role, token in rows
        )
    )
    file.chmod(0o600)
    return file


async def login(client: KafkaClient, message: str) -> Any:
    assert await client.ask(SASL_HANDSHAKE, 1, "PLAIN") == (0, OFFERED)
    return await client.ask(SASL_AUTHENTICATE, 2, message.encode())


async def register(client: KafkaClient, broker_id: int) -> int:
    listeners = [("PLAINTEXT", "h", 9092, 0)]
    registration = (broker_id, CLUSTER, uuid(7), listeners, FEATURES, None, False, [uuid(2008)], -1)
    error: int = (await client.ask(REGISTRATION, 4, *registration))[1]
    return error


def test_a_name_and_its_token_log_in(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            await client.ask(API_VERSIONS, 0, "", "")
            assert (await login(client, f"\0alice\0{ALICE}"))[:2] == (0, None)
            assert (await client.ask(*CLUSTER_QUESTION))[1] == 0
            assert await register(client, 11) == 31
        for message in (f"Broker:11\0Broker:11\0{BROKER}", f"\0Broker:11\0{BROKER}"):
            async with desk.client() as client:
                assert (await login(client, message))[0] == 0
                assert (await register(client, 11), await register(client, 12)) == (0, 31)
                # Another login on the same connection replaces the one before.
                assert (await login(client, f"\0alice\0{ALICE}"))[0] == 0
                assert await register(client, 11) == 31

    at_kafka_desk(tmp_path, story, principals=file_of_principals(tmp_path), security="sasl_plaintext")


@pytest.mark.parametrize(
    "message",
    [
        "",
        "alice",
        f"\0alice\0{ALICE}\0",
        f"\0alice\0{ALICE}x",
        f"\0bob\0{ALICE}",
        f"\0User:bob\0{ALICE}",
        f"\0alice\0{BROKER}",
        f"\x0011\0{BROKER}",
        f"bob\0alice\0{ALICE}",
        "\0alice\0",
    ],
)
def test_another_name_or_token_is_refused_and_ends_the_connection(tmp_path: Path, message: str) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            error, text, _, _ = await login(client, message)
            assert error == 58 and ALICE not in text
            assert await client.is_closed()
        assert desk.serving.closed == {"login": 1}

    at_kafka_desk(tmp_path, story, principals=file_of_principals(tmp_path), security="sasl_plaintext")


def test_before_login_only_the_way_to_it_is_open(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            assert await client.ask(SASL_HANDSHAKE, 0, "GSSAPI") == (33, OFFERED)
            assert (await client.ask(SASL_AUTHENTICATE, 0, b"\0alice\0x"))[0] == 34
            client.send(CLUSTER_QUESTION[0], 2, CLUSTER_QUESTION[2:])
            assert await client.is_closed()
        async with desk.client() as client:
            large = request_bytes(SASL_AUTHENTICATE, 2, (bytes(limits.KAFKA_LOGIN_BYTES_MAX),))
            client.writer.write(sized(large))
            assert await client.is_closed()
        assert desk.serving.closed == {"login": 1, "size": 1}

    at_kafka_desk(tmp_path, story, principals=file_of_principals(tmp_path), security="sasl_plaintext")


@pytest.mark.parametrize("is_logged_in", [False, True])
def test_only_a_connection_that_is_logged_in_may_be_silent_for_long(
    tmp_path: Path, is_logged_in: bool
) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            await client.ask(API_VERSIONS, 0, "", "")
            if is_logged_in:
                await login(client, f"\0alice\0{ALICE}")
            (connection,) = desk.serving.connections
            now_s = asyncio.get_running_loop().time()
            connection.look(now_s + limits.HTTP_SILENCE_MAX_MS / 1000 + 60)
            assert desk.serving.closed == ({} if is_logged_in else {"silent": 1})
            connection.look(now_s + limits.KAFKA_SILENCE_MAX_MS / 1000 + 60)
            assert await client.is_closed()

    at_kafka_desk(tmp_path, story, principals=file_of_principals(tmp_path), security="sasl_plaintext")


def test_without_sasl_there_is_no_login(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            assert await client.ask(SASL_HANDSHAKE, 1, "PLAIN") == (34, ())
            assert (await client.ask(*CLUSTER_QUESTION))[1] == 0

    at_kafka_desk(tmp_path, story)


def test_a_token_that_is_taken_away_ends_what_its_connection_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDENTITY_CHECK_S", 0.0)
    file = file_of_principals(tmp_path)

    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            assert (await login(client, f"\0alice\0{ALICE}"))[0] == 0
            file.write_text("principals = []\n")
            client.send(CLUSTER_QUESTION[0], 2, CLUSTER_QUESTION[2:])
            assert await client.is_closed()

    at_kafka_desk(tmp_path, story, principals=file, security="sasl_plaintext")


def test_a_certificate_binds_a_broker_to_its_id(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls", cluster_id=CLUSTER)
    tls = Tls(authority.certify("controller", "1"), cluster_id=CLUSTER)

    async def story(desk: KafkaDesk) -> None:
        async with desk.client(authority.certify("broker", "11").client()) as client:
            assert (await register(client, 12), await register(client, 11)) == (31, 0)
        async with desk.client(trusting(authority.ca)) as client:
            await client.ask(API_VERSIONS, 0, "", "")
            client.send(CLUSTER_QUESTION[0], 2, CLUSTER_QUESTION[2:])
            assert await client.is_closed()
        await desk.until_quiet()
        assert desk.door.connections.addresses.total == 0

    at_kafka_desk(tmp_path, story, principals=file_of_principals(tmp_path), security="tls", tls=tls)


def test_a_broker_reads_the_log_as_itself_alone(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            await login(client, f"\0Broker:11\0{BROKER}")
            for replica_id, error in ((11, 0), (12, 31), (-1, 31)):
                topic = ("__cluster_metadata", ((0, 1, (1, 1), 0, bytes(16)),))
                assert (await client.ask(59, 1, None, replica_id, 1, (topic,)))[1] == error
                partition = (0, 0, 0, 0, -1, 0, bytes(16), 0)
                asked = (None, -1, (replica_id, -1), 0, 0, 1, 0, 0, -1)
                topics = (("", bytes(15) + b"\1", (partition,)),)
                assert (await client.ask(1, 18, *asked, topics, (), ""))[1] == error

    at_kafka_desk(tmp_path, story, principals=file_of_principals(tmp_path), security="sasl_plaintext")


def test_a_fetch_that_has_waited_is_refused_once_its_token_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would get records that its sender may not see any more."""
    monkeypatch.setattr(limits, "IDENTITY_CHECK_S", 0.0)
    file = file_of_principals(tmp_path)

    async def story(desk: KafkaDesk) -> None:
        image = desk.controller.committed
        epoch, end_offset = image.controller_epoch, image.end_offset
        async with desk.client() as client:
            await login(client, f"\0Broker:11\0{BROKER}")
            partition = (0, epoch, end_offset, epoch, -1, 0, bytes(16), end_offset)
            topics = (("", bytes(15) + b"\1", (partition,)),)
            asked = (None, -1, (11, -1), 60_000, 0, 1 << 20, 0, 0, -1, topics, (), "")
            waiting = asyncio.create_task(client.ask(1, 18, *asked))
            await until(lambda: len(desk.door.kafka_log.fetches._parked) > 0)
            file.write_text("principals = []\n")
            await desk.lab.write(desk.controller, setting("1"))
            _, error, _, topics, _ = await waiting
            assert (error, topics) == (58, ())

    at_kafka_desk(tmp_path, story, principals=file, security="sasl_plaintext")
