"""Edge: what brokers forward for their clients: the inner answer, the errors of the envelope, and whose rights count."""

import struct
from pathlib import Path
from typing import Any

import pytest

from metadata_log.codec import decode_all
from metadata_log.kafka.messages import PRINCIPAL, message_writer
from metadata_log.node.identity.rights import ROLES, Principal
from quorum.controller.callers import Caller
from quorum.kafka.door import Asked, Waits, answered_in_time
from quorum.kafka.envelope import ENVELOPE, unwrap
from tests.support.kafka_client import answer_values, request_bytes
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.lab import online

ADDRESS = bytes((10, 0, 0, 9))
NEW_TOPIC = ([("a", 1, 1, (), ())], 1_000, False)
FILE = """
[[principals]]
name = "User:alice"
roles = ["admin"]
[[principals]]
name = "User:bob"
roles = ["reader"]
[[principals]]
name = "Broker:12"
roles = ["admin"]
"""


def principal(name: str, kind: str = "User") -> bytes:
    return struct.pack(">h", 0) + message_writer(PRINCIPAL, 0)((kind, name, False))


def envelope(data: bytes, who: bytes | None = principal("alice"), address: bytes = ADDRESS) -> Any:
    return (data, who, address)


def newest_actor(desk: KafkaDesk) -> str | None:
    [(batch, _)] = decode_all(desk.lab.quorum.log[-1])
    return batch.envelope.actor


def test_the_inner_request_is_carried_out_as_its_client_and_answered_in_its_version(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        await online(desk.lab, desk.controller, 11)
        async with desk.client() as client:
            inner = request_bytes(19, 4, NEW_TOPIC, correlation_id=77)
            data, error = await client.ask(ENVELOPE, 0, *envelope(inner))
            assert error == 0
            correlation_id, (_, [row]) = answer_values(19, 4, data)
            assert (correlation_id, row[0], row[2]) == (77, "a", 0)
            assert newest_actor(desk) == "User:alice@10.0.0.9"
            data, error = await client.ask(ENVELOPE, 0, *envelope(inner))
            _, (_, [row]) = answer_values(19, 4, data)
            assert (error, row[2]) == (0, 36)  # a refusal is the inner answer's
            inner = request_bytes(30, 3, ([(2, "a", 3, "User:a", "*", 3, 3)],))
            data, error = await client.ask(ENVELOPE, 0, *envelope(inner))
            assert (error, answer_values(30, 3, data)[1][1][0][0]) == (0, 54)
            odd = principal("CN=Älice, O=x", kind="Odd")
            inner = request_bytes(20, 4, ((), ["a"], 1_000))
            _, error = await client.ask(ENVELOPE, 0, *envelope(inner, odd, bytes(15) + b"\1"))
            assert error == 0
            assert newest_actor(desk) == "User:Odd:CN=%C3%84lice,%20O=x@::1"

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (envelope(request_bytes(19, 7, NEW_TOPIC), None), 97),
        (envelope(request_bytes(19, 7, NEW_TOPIC), b"\0"), 97),
        (envelope(request_bytes(19, 7, NEW_TOPIC), principal("alice") + b"\0"), 97),
        (envelope(request_bytes(19, 7, NEW_TOPIC), b"\0\1" + principal("alice")[2:]), 97),
        (envelope(request_bytes(19, 7, NEW_TOPIC), address=b"\1\2\3"), 42),
        (envelope(request_bytes(19, 7, NEW_TOPIC)[:-1]), 42),
        (envelope(request_bytes(19, 7, NEW_TOPIC) + b"\0"), 42),
        (envelope(b""), 42),
        (envelope(request_bytes(60, 2, (False, 2, False))), 42),
        (envelope(request_bytes(18, 4, ("a", "1"))), 42),
        (envelope(b"\0\x12\0\x09" + request_bytes(18, 4, ("a", "1"))[4:]), 42),
        (envelope(request_bytes(ENVELOPE, 0, envelope(b""))), 42),
    ],
)
def test_what_cannot_be_unwrapped_is_refused_by_the_envelope(tmp_path: Path, asked: Any, code: int) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            assert await client.ask(ENVELOPE, 0, *asked) == (None, code)

    at_kafka_desk(tmp_path, story)


def test_one_that_does_not_lead_says_so_by_the_envelope(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        desk.lab.lead(2)
        async with desk.client() as client:
            inner = request_bytes(19, 7, NEW_TOPIC)
            assert await client.ask(ENVELOPE, 0, *envelope(inner)) == (None, 41)

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize(
    ("who", "code"),
    [
        (principal("alice"), 0),
        (principal("bob"), 31),
        (principal("mallory"), 31),
        (principal("12", kind="Broker"), 31),
        (principal("alice", kind="Group"), 31),
    ],
)
def test_a_name_has_the_rights_that_the_file_gives_it(tmp_path: Path, who: bytes, code: int) -> None:
    """Goal: an envelope's client has its own rights; what no file names has none, nor has a node that a broker names."""
    file = tmp_path / "principals.toml"
    file.write_text(FILE)
    file.chmod(0o600)
    broker = Caller(Principal("Broker:11", ROLES["broker"]))

    async def story(desk: KafkaDesk) -> None:
        await online(desk.lab, desk.controller, 11)
        inner = envelope(request_bytes(19, 7, NEW_TOPIC), who)
        data, error = await unwrap(desk.door, Asked(0, inner, broker))
        _, (_, [row]) = answer_values(19, 7, data)
        assert (error, row[2]) == (0, code)
        assert ("a" in desk.controller.committed.topics.ids) == (code == 0)

    at_kafka_desk(tmp_path, story, principals=file)


def test_only_a_broker_may_send_an_envelope(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        api = desk.door.apis[ENVELOPE]
        alice = Caller(Principal("User:alice", ROLES["admin"]))
        asked = Asked(0, envelope(request_bytes(19, 7, NEW_TOPIC)), alice)
        assert isinstance(api.handler, Waits)
        assert await answered_in_time(api, api.handler, desk.door, asked) == (None, 31)

    at_kafka_desk(tmp_path, story)
