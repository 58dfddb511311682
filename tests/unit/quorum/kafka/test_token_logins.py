"""Edge: first logins by delegation tokens: their credentials are made beside the loop, for few at a time, and shared."""

import asyncio
import base64
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from metadata_log.errors import ThrottlingQuotaExceeded
from metadata_log.kafka.messages import API_VERSIONS
from metadata_log.node.identity.scram import Credential, salted
from metadata_log.node.threads import Threads
from quorum.controller import token_hmacs
from quorum.controller.token_hmacs import TokenHmacs
from quorum.kafka import token_logins
from quorum.kafka.login import SASL_AUTHENTICATE, SASL_HANDSHAKE
from quorum.kafka.token_logins import TokenLogins
from quorum.kafka.tokens import CREATE_TOKEN
from tests.support.kafka_client import KafkaClient, answer_values
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk, until
from tests.unit.metadata_log.node.identity.test_scram import final_message
from tests.unit.quorum.kafka.test_login import ALICE, CLUSTER_QUESTION, file_of_principals, login

SECRET = b"the cluster's secret"
LOGINS = 50
STANDS_STILL_S = 10.0
"""So long a thread waits at most for what a test lets happen at once."""
THROTTLED = 89


class Gate:
    """Makes credentials, but only once it is open; says of each in which thread that began."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.on_loop: list[bool] = []
        self.passwords: list[bytes] = []

    def salted(self, mechanism: int, password: bytes, salt: bytes, iterations: int) -> bytes:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        self.passwords.append(password)
        assert self.open.wait(STANDS_STILL_S), "the loop stands still"
        return salted(mechanism, password, salt, iterations)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(token_hmacs, "salted", made.salted)
    yield made
    made.open.set()


def at_desk(directory: Path, story: Any) -> None:
    async def with_key(desk: KafkaDesk) -> None:
        desk.controller.tokens.use(SECRET)
        await story(desk)

    at_kafka_desk(directory, with_key, principals=file_of_principals(directory), security="sasl_plaintext")


async def issued(desk: KafkaDesk, count: int) -> list[tuple[str, bytes]]:
    """Have tokens of alice issued; return their ids and HMACs."""
    async with desk.client() as alice:
        await login(alice, f"\0alice\0{ALICE}")
        answers = [await alice.ask(CREATE_TOKEN, 3, None, None, [], -1) for _ in range(count)]
        return [(answer[-3], answer[-2]) for answer in answers]


async def begin(
    desk: KafkaDesk, stack: AsyncExitStack, token_id: str
) -> tuple[KafkaClient, asyncio.Task[Any]]:
    """Send the first message of a login; return its client, and what will have the answer."""
    client = await stack.enter_async_context(desk.client())
    await client.ask(SASL_HANDSHAKE, 1, "SCRAM-SHA-256")
    message = f"n,,{bare(token_id)}".encode()
    return client, asyncio.ensure_future(client.ask(SASL_AUTHENTICATE, 2, message))


def bare(token_id: str) -> str:
    return f"n={token_id},r=of-the-client,tokenauth=true"


async def ended(client: KafkaClient, token_id: str, hmac: bytes, challenge: bytes) -> int:
    """Send the final message of a login, and return the error of its answer."""
    message, _ = final_message(1, bare(token_id), challenge, base64.b64encode(hmac).decode())
    return int((await client.ask(SASL_AUTHENTICATE, 2, message))[0])


def test_the_loop_serves_others_while_many_logins_begin(tmp_path: Path, gate: Gate) -> None:
    async def story(desk: KafkaDesk) -> None:
        tokens = await issued(desk, LOGINS)
        async with AsyncExitStack() as stack:
            begun = [await begin(desk, stack, token_id) for token_id, _ in tokens]
            await until(lambda: len(gate.on_loop) == 1)
            async with desk.client() as other:
                assert (await other.ask(API_VERSIONS, 0, "", ""))[0] == 0
                assert (await login(other, f"\0alice\0{ALICE}"))[0] == 0
                assert (await other.ask(*CLUSTER_QUESTION))[1] == 0
            assert not any(answer.done() for _, answer in begun)
            gate.open.set()
            challenges = [await answer for _, answer in begun]
            assert gate.on_loop == [False] * LOGINS
            for (client, _), (token_id, hmac), (error, _, challenge, _) in zip(
                begun, tokens, challenges, strict=True
            ):
                assert (error, await ended(client, token_id, hmac, challenge)) == (0, 0)
                assert (await client.ask(*CLUSTER_QUESTION))[1] == 0
            # A second login by a token that is known waits for nothing.
            gate.open.clear()
            client, answer = await begin(desk, stack, tokens[0][0])
            assert (await answer)[0] == 0 and len(gate.on_loop) == LOGINS

    at_desk(tmp_path, story)


def test_logins_by_one_token_share_its_credential_and_a_request_behind_one_waits(
    tmp_path: Path, gate: Gate
) -> None:
    async def story(desk: KafkaDesk) -> None:
        ((token_id, hmac),) = await issued(desk, 1)
        async with AsyncExitStack() as stack:
            begun = [await begin(desk, stack, token_id) for _ in range(3)]
            leaver, left = begun.pop(0)
            leaver.close()
            client, _ = begun[0]
            client.send(API_VERSIONS, 0, ("", ""))
            await until(lambda: len(desk.serving.connections) == 2)
            gate.open.set()
            for each, challenged in begun:
                error, _, challenge, _ = await challenged
                assert error == 0
                if each is client:
                    assert answer_values(API_VERSIONS, 0, await each.answer())[1][0] == 0
                assert await ended(each, token_id, hmac, challenge) == 0
            assert len(gate.on_loop) == 1
            with pytest.raises(EOFError):
                await left

    at_desk(tmp_path, story)


def test_nothing_is_made_for_a_client_that_is_gone_before(tmp_path: Path, gate: Gate) -> None:
    async def story(desk: KafkaDesk) -> None:
        tokens = await issued(desk, 3)
        async with AsyncExitStack() as stack:
            begun = [await begin(desk, stack, token_id) for token_id, _ in tokens]
            await until(lambda: len(gate.on_loop) == 1)
            begun[1][0].close()
            await until(lambda: len(desk.serving.connections) == 2)
            gate.open.set()
            assert [(await begun[at][1])[0] for at in (0, 2)] == [0, 0]
            assert gate.passwords == [base64.b64encode(tokens[at][1]) for at in (0, 2)]
            with pytest.raises(EOFError):
                await begun[1][1]
        await desk.until_quiet()
        assert not desk.door.token_logins._of_address

    at_desk(tmp_path, story)


def test_a_flood_is_refused_and_its_connections_are_closed(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_logins, "LOGINS_OF_ADDRESS_MAX", 2)

    async def story(desk: KafkaDesk) -> None:
        tokens = await issued(desk, 3)
        async with AsyncExitStack() as stack:
            begun = [await begin(desk, stack, token_id) for token_id, _ in tokens[:2]]
            await until(lambda: len(gate.on_loop) == 1)
            client, refused = await begin(desk, stack, tokens[2][0])
            assert (await refused)[0] == THROTTLED
            assert await client.is_closed()
            # A user's login needs nothing of this.
            async with desk.client() as other:
                assert (await login(other, f"\0alice\0{ALICE}"))[0] == 0
            gate.open.set()
            assert [(await answer)[0] for _, answer in begun] == [0, 0]
            client, answer = await begin(desk, stack, tokens[2][0])
            error, _, challenge, _ = await answer
            assert (error, await ended(client, *tokens[2], challenge)) == (0, 0)

    at_desk(tmp_path, story)


def logins(unfinished_max: int = 8) -> tuple[TokenLogins, Threads]:
    hmacs, threads = TokenHmacs(), Threads("logins", threads=1, unfinished_max=unfinished_max)
    hmacs.use(SECRET)
    return TokenLogins(hmacs, threads), threads


async def test_an_address_with_few_logins_comes_before_one_with_many(gate: Gate) -> None:
    waiting, threads = logins()
    made: list[str] = []

    def wait(token_id: str, address: str) -> None:
        waiting.wait_for(token_id, 1, address=address, done=lambda _: made.append(token_id))

    wait("first", "10.0.0.1")
    await until(lambda: len(gate.on_loop) == 1)
    for token_id in ("second", "third"):
        wait(token_id, "10.0.0.1")
    wait("of-another", "10.0.0.2")
    gate.open.set()
    await until(lambda: len(made) == 4)
    assert made == ["first", "of-another", "second", "third"]
    await threads.shut_down()


async def test_all_addresses_together_are_bounded(gate: Gate) -> None:
    waiting, threads = logins(unfinished_max=2)
    made: list[Credential] = []
    for number in range(2):
        waiting.wait_for(str(number), 1, address=f"10.0.0.{number}", done=made.append)
    with pytest.raises(ThrottlingQuotaExceeded, match="as many logins as this node bears"):
        waiting.wait_for("2", 1, address="10.0.0.2", done=made.append)
    waiting.wait_for("1", 1, address="10.0.0.2", done=made.append)
    gate.open.set()
    await until(lambda: len(made) == 3)
    assert not waiting._of_address and not waiting._makings
    await threads.shut_down()


async def test_a_credential_that_was_given_up_is_made_for_the_next_that_needs_it(gate: Gate) -> None:
    waiting, threads = logins()
    made: list[Credential] = []
    give_up = waiting.wait_for("a", 1, address=None, done=made.append)
    await until(lambda: len(gate.on_loop) == 1)
    give_up()
    waiting.wait_for("a", 1, address=None, done=made.append)
    give_up()
    gate.open.set()
    await until(lambda: bool(made))
    assert len(made) == 1 and len(gate.on_loop) == 2
    await threads.shut_down()


async def test_a_login_that_is_gone_once_its_credential_is_made_takes_nothing_from_the_next(
    gate: Gate,
) -> None:
    """Goal: the next login is answered. Method: the first is given up in the turn of the loop in which its outcome comes."""
    waiting, threads = logins()
    made: list[str] = []
    give_up = waiting.wait_for("a", 1, address=None, done=lambda _: made.append("first"))
    (making,) = waiting._makings.values()
    gate.open.set()
    while not making.outcome.done():
        await asyncio.sleep(0)
    give_up()
    waiting.wait_for("a", 1, address=None, done=lambda _: made.append("next"))
    await until(lambda: bool(made))
    assert made == ["next"] and not waiting._makings and not waiting._of_address
    await threads.shut_down()
