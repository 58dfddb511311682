"""Edge: access control lists in Kafka's protocol, and what they give to names that brokers vouch for."""

from pathlib import Path
from typing import Any

import pytest

from metadata_log.kafka.messages import REQUESTS
from metadata_log.node.identity.rights import ROLES, Principal
from quorum.controller.callers import Caller
from quorum.kafka.acls import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from quorum.kafka.door import Asked
from quorum.kafka.envelope import unwrap
from quorum.node.config import AclSettings
from tests.support.kafka_client import answer_values, request_bytes
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.lab import online
from tests.unit.quorum.kafka.test_envelope import FILE, envelope, principal

ACL = (2, "a", 4, "User:carol", "*", 5, 3)
"""User:carol may CREATE topics that begin with a."""
ANY = (1, None, 1, None, None, 1, 1)
ENFORCED = AclSettings(enforced=True)


@pytest.mark.parametrize(
    ("key", "values", "answered"),
    [
        (DESCRIBE_ACLS, ANY, lambda answer: answer[1]),
        (CREATE_ACLS, ([ACL, ACL],), lambda answer: [row[0] for row in answer[1]]),
        (DELETE_ACLS, ([ANY],), lambda answer: [row[0] for row in answer[1]]),
    ],
)
def test_where_acls_do_not_count_they_are_refused_as_by_a_kafka_without_an_authorizer(
    tmp_path: Path, key: int, values: tuple[Any, ...], answered: Any
) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            answer = await client.ask(key, REQUESTS[key].versions.last, *values)
        assert answered(answer) == {DESCRIBE_ACLS: 54, CREATE_ACLS: [54, 54], DELETE_ACLS: [54]}[key]

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_created_described_and_deleted(tmp_path: Path, version: int) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            created = await client.ask(CREATE_ACLS, version, [ACL, ACL, (2, "", 3, "User:a", "*", 3, 3)])
            assert [row[0] for row in created[1]] == [0, 0, 42]
            unknown = await client.ask(CREATE_ACLS, version, [(99, "a", 3, "User:a", "*", 3, 3)])
            assert unknown[1] == ((42, "Invalid resourceType UNKNOWN"),)
            other = (4, "other", 3, "User:a", "*", 3, 3)
            told = await client.ask(CREATE_ACLS, version, [other])
            assert told[1] == ((42, "The only valid name for the CLUSTER resource is kafka-cluster"),)
            described = await client.ask(DESCRIBE_ACLS, version, *ANY)
            assert described == (0, 0, None, ((2, "a", 4, (("User:carol", "*", 5, 3),)),))
            assert (await client.ask(DESCRIBE_ACLS, version, 99, None, 1, None, None, 1, 1))[1] == 42
            deleted = await client.ask(DELETE_ACLS, version, [ANY, (2, "b", 2, None, None, 1, 1)])
            assert deleted == (0, ((0, None, ((0, None, *ACL),)), (0, None, ())))
            assert (await client.ask(DESCRIBE_ACLS, version, *ANY))[3] == ()

    at_kafka_desk(tmp_path, story, acls=ENFORCED)


def test_a_name_that_a_broker_vouches_for_has_what_acls_give_it(tmp_path: Path) -> None:
    """Goal: each topic of one request is judged alone, as in Kafka: 29 is TOPIC_AUTHORIZATION_FAILED."""
    file = tmp_path / "principals.toml"
    file.write_text(FILE)

    async def story(desk: KafkaDesk) -> None:
        await online(desk.lab, desk.controller, 11)
        broker = Caller(Principal("Broker:11", ROLES["broker"]), "10.0.0.2")

        async def ask(who: str, key: int, version: int, *values: Any) -> Any:
            inner = request_bytes(key, version, values)
            asked = Asked(0, envelope(inner, principal(who)), broker)
            data, error = await unwrap(desk.door, asked)
            assert error == 0
            return answer_values(key, version, data)[1]

        topics = [(name, 1, 1, (), ()) for name in ("ab", "b", "ac")]

        def errors(answer: Any) -> dict[str, int]:
            return {row[0]: row[2] for row in answer[1]}

        assert errors(await ask("carol", 19, 4, topics, 1_000, False)) == {"ab": 29, "b": 29, "ac": 29}
        assert (await ask("carol", CREATE_ACLS, 3, [ACL]))[1][0][0] == 31
        assert (await ask("bob", CREATE_ACLS, 3, [ACL]))[1][0][0] == 31
        assert (await ask("alice", CREATE_ACLS, 3, [ACL]))[1] == ((0, None),)
        assert errors(await ask("carol", 19, 4, topics, 1_000, False)) == {"ab": 0, "b": 29, "ac": 0}
        deleted = await ask("carol", 20, 4, (), ["ab", "b"], 1_000)
        assert {row[0]: row[2] for row in deleted[1]} == {"ab": 29, "b": 29}
        of_ann = (2, "a", 4, "User:CN=Ann Ä,O=b", "*", 5, 3)
        assert errors(await ask("CN=Ann Ä,O=b", 19, 4, [("ad", 1, 1, (), ())], 1_000, False)) == {"ad": 29}
        await ask("alice", CREATE_ACLS, 3, [of_ann])
        assert errors(await ask("CN=Ann Ä,O=b", 19, 4, [("ad", 1, 1, (), ())], 1_000, False)) == {"ad": 0}
        await ask("alice", CREATE_ACLS, 3, [(2, "a", 4, "User:carol", "10.0.0.9", 6, 3)])
        deleted = await ask("carol", 20, 4, (), ["ab", "b"], 1_000)
        assert {row[0]: row[2] for row in deleted[1]} == {"ab": 0, "b": 29}

    at_kafka_desk(tmp_path, story, principals=file, acls=ENFORCED)
