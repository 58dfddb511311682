"""Pure: random ACLs and questions about them; the same seed gives the same ones.

Names, principals and hosts are few, so that most questions meet several rules: of prefixes inside each other, of `*`, of
other hosts and operations, denying beside allowing.
"""

import random
from typing import Any, Final, NamedTuple

from metadata_log.ids import Uuid, uuid_text
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.acls import (
    AccessControlEntryRecord,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from quorum.decide.authorizer import Question
from tests.support.histories import claim, step_of

_TYPES: Final = tuple(ResourceType)[2:]
_OPERATIONS: Final = tuple(AclOperation)[2:]
_NAMES: Final = (
    "*",
    "a",
    "ab",
    "abc",
    "abcd",
    "abd",
    "ac",
    "b",
    "ba",
    "-",
    "!",
    "Ab",
    "ä",
    "äb",
    "kafka-cluster",
    "~",
)
_PRINCIPALS: Final = (
    "User:ann",
    "User:bob",
    "User:*",
    "Group:x",
    "User:CN=ann,OU=x",
    "User:ann:2",
    "User:ANONYMOUS",
)
_ASKING: Final = tuple(name for name in _PRINCIPALS if name != "User:*")
"""Kafka's class meets a fault of its own where somebody bears the name `*`."""
_HOSTS: Final = ("*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:7")
QUESTIONS_EACH: Final = 50


class World(NamedTuple):
    """What an authorizer knows, and what it is asked."""

    super_users: tuple[str, ...]
    allow_if_none: bool
    is_loaded: bool
    acls: tuple[AccessControlEntryRecord, ...]
    questions: tuple[Question, ...]

    def image(self) -> MetadataImage:
        return step_of(EMPTY, [claim(EMPTY), *self.acls]).image if self.is_loaded else EMPTY

    def to_json(self) -> dict[str, Any]:
        return {
            "super_users": ";".join(self.super_users),
            "allow_if_none": self.allow_if_none,
            "is_loaded": self.is_loaded,
            "acls": [[uuid_text(acl.id), *acl[1:]] for acl in self.acls],
            "questions": self.questions,
        }


def worlds(seed: int, questions: int) -> list[World]:
    """Return worlds with so many questions together."""
    rng = random.Random(seed)
    made = []
    while questions > 0:
        made.append(_world(rng, min(questions, QUESTIONS_EACH)))
        questions -= QUESTIONS_EACH
    return made


def _world(rng: random.Random, questions: int) -> World:
    types = rng.sample(_TYPES, rng.choice([1, 1, 2, 6]))
    operations = rng.sample(_OPERATIONS, rng.choice([2, 4, 14]))
    count = rng.choice([0, 1, 5, 20, 60, 200])
    says = {
        (
            rng.choice(types),
            rng.choice(_NAMES),
            rng.choice([PatternType.LITERAL, PatternType.PREFIXED]),
            rng.choice(_PRINCIPALS),
            rng.choice(_HOSTS) if rng.random() < 0.5 else "*",
            rng.choice(operations),
            PermissionType.DENY if rng.random() < 0.25 else PermissionType.ALLOW,
        ): None
        for _ in range(count)
    }
    acls = tuple(AccessControlEntryRecord(Uuid(rng.randbytes(16)), *each) for each in says)
    return World(
        tuple(rng.sample(_PRINCIPALS, rng.choice([0, 0, 1, 2]))),
        rng.random() < 0.4,
        rng.random() < 0.9,
        acls,
        tuple(
            Question(
                rng.choice(_ASKING),
                rng.choice(_HOSTS[1:]),
                rng.choice(operations if rng.random() < 0.8 else _OPERATIONS),
                rng.choice(types if rng.random() < 0.9 else _TYPES),
                rng.choice(_NAMES) + rng.choice(["", "", "x", "b"]),
            )
            for _ in range(questions)
        ),
    )
