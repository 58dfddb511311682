"""Pure: ACLs that Kafka accepts and that match nothing are told, each with its cure."""

import re

import pytest

from metadata_log.records.acls import AclOperation, PatternType, PermissionType, ResourceType
from quorum.decide.acl_doubts import SUPPORTED, doubts, unsupported
from quorum.decide.acls import Acl

SOUND = Acl(
    *(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*"),
    *(AclOperation.READ, PermissionType.ALLOW),
)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"principal": "User:*"},
        {"principal": "User:CN=alice,O=x"},
        {"host": "10.0.0.7"},
        {"host": "0:0:0:0:0:0:0:1"},
        {"resource_name": "*"},
        {"resource_name": "team-", "pattern_type": PatternType.PREFIXED},
        {"resource_type": ResourceType.GROUP, "resource_name": "a b"},
        {"operation": AclOperation.ALL},
    ],
)
def test_what_matches_something_is_not_doubted(fields: dict[str, object]) -> None:
    assert doubts(SOUND._replace(**fields)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "cure"),
    [
        ({"principal": "user:alice"}, "clients are User:NAME, in these letters"),
        ({"principal": "Group:ops"}, "a principal builder of their own"),
        ({"principal": "User:"}, "write User:NAME"),
        ({"principal": "User:ali*"}, r"User:\* alone"),
        ({"host": "example.com"}, "no numeric address"),
        ({"host": "10.0.0.0/8"}, "is a network"),
        ({"host": "::1"}, "is written 0:0:0:0:0:0:0:1"),
        ({"host": ""}, "no numeric address"),
        ({"resource_name": "team-*"}, "make team- a prefix"),
        ({"resource_name": "team-*", "pattern_type": PatternType.PREFIXED}, "write the prefix team-"),
        ({"resource_name": "*", "pattern_type": PatternType.PREFIXED}, "leave the pattern literal"),
        ({"resource_name": "a b"}, "no topic has the name"),
        (
            {"operation": AclOperation.IDEMPOTENT_WRITE},
            "ResourceType TOPIC only supports operations ALL, READ",
        ),
    ],
)
def test_what_matches_nothing_is_told_with_its_cure(fields: dict[str, object], cure: str) -> None:
    (doubt,) = doubts(SOUND._replace(**fields))  # type: ignore[arg-type]
    assert re.search(cure, doubt), doubt


def test_every_type_has_its_operations_and_every_operation_a_type() -> None:
    assert set(SUPPORTED) == set(ResourceType) - {ResourceType.UNKNOWN, ResourceType.ANY}
    asked = {operation for supported in SUPPORTED.values() for operation in supported}
    assert asked == set(AclOperation) - {AclOperation.UNKNOWN, AclOperation.ANY, AclOperation.ALL}
    assert unsupported(SOUND._replace(resource_type=ResourceType.UNKNOWN)) is None
