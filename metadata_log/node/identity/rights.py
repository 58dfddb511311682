"""Pure: the rights, those of each role, and those that a principal has.

`quorum/decide/access.py` has what each operation of a controller needs. A broker's table of routes has the right of each
route.
Tests: tests/unit/quorum/http/test_identity.py.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from metadata_log.errors import AuthenticationFailed, MetadataError, NotAuthorized

BROKER: Final = "Broker"
CONTROLLER: Final = "Controller"
_NODE: Final = re.compile(f"({BROKER}|{CONTROLLER}):(0|[1-9][0-9]{{0,9}})")


class Right(Enum):
    """What an operation or a route needs."""

    OPEN = "open"
    """Nothing: whether a process lives, and whether it is ready."""
    TOKEN = "token"  # noqa: S105 (a right's name)
    """On a broker: something for the controller to judge, as the broker forwards the request with it."""
    IDENTITY = "identity"
    """To be known by a name: what is asked for is the principal's own, or is looked at further."""
    READ = "read"
    """To see the metadata, secrets masked."""
    RAW = "raw"
    """Bytes of the log and of snapshots, which hold secrets in plain text."""
    ALTER = "alter"
    """To change topics, partitions and settings."""
    CLUSTER = "cluster"
    """To change what the cluster consists of: brokers, controllers, voters, features, leadership; and snapshots."""
    PRINCIPALS = "principals"
    """To see who may do what, and what was refused."""
    BROKER = "broker"
    """To take part as a broker, under the id that the principal has."""
    CONTROLLER = "controller"
    """To take part as a controller, under the id that the principal has."""

    __hash__ = (
        object.__hash__
    )  # each request looks for one among those of its sender; an Enum's would hash its name


ROLES: Final[Mapping[str, frozenset[Right]]] = {
    "admin": frozenset({Right.READ, Right.RAW, Right.ALTER, Right.CLUSTER, Right.PRINCIPALS}),
    "broker": frozenset({Right.READ, Right.RAW, Right.BROKER}),
    "controller": frozenset({Right.READ, Right.RAW, Right.CONTROLLER}),
    "reader": frozenset({Right.READ}),
}


ACL_RIGHTS: Final = frozenset({Right.READ, Right.ALTER, Right.CLUSTER})
"""What ACLs can give. A principal whose roles give all of it is a super user. No ACL gives raw bytes, or a node's part."""


class ByAcls(NamedTuple):
    """ACLs count, as the settings of this node say; `allow_if_none`: what no ACL concerns is allowed."""

    allow_if_none: bool


class Node(NamedTuple):
    """A node as principals name it: `kind` is BROKER or CONTROLLER."""

    kind: str
    id: int


class Principal(NamedTuple):
    """The sender of requests: `name` as records' actors have it, `Broker:11` and `Controller:1` for nodes."""

    name: str
    rights: frozenset[Right]
    raw_if_registered: bool = False
    """The right raw comes from the role of a broker alone, and counts for one that is registered."""
    roles: tuple[str, ...] = ()
    """Those that the file of principals gives it."""
    by_acls: ByAcls | None = None
    """None: what its roles do not give, it has not."""
    acl_name: str | None = None
    """By which ACLs know it; None: by its name."""
    by_token: bool = False
    """It logged in by a delegation token, here or at the broker that forwards."""
    user: str | None = None
    """The name by which it logs in at the listener for Kafka, too; None: by its own alone."""

    def has(self, right: Right) -> bool:
        """Answer whether its roles, or its being known, give it a right."""
        if right is Right.IDENTITY:
            return self is not NOBODY
        return right is Right.OPEN or right in self.rights

    def may_ask_acls(self, right: Right) -> bool:
        """Answer whether ACLs may give this right to this principal."""
        return self.by_acls is not None and right in ACL_RIGHTS

    @property
    def node(self) -> Node | None:
        """The node that the name is that of; None: it names no node."""
        named = _NODE.fullmatch(self.name)
        return None if named is None else Node(named[1], int(named[2]))

    def authorize(self, right: Right, what: str) -> None:
        """Check that this principal may do what needs a right.

        Raises:
            AuthenticationFailed: it shows no identity.
            NotAuthorized: it may not.
        """
        if not self.has(right):
            raise self.refusal(right, what)

    def refusal(self, right: Right, what: str) -> MetadataError:
        """Return the error for a principal without a right, or without an identity at all."""
        if self is NOBODY:
            return AuthenticationFailed(
                f"{what} needs an identity: a client certificate, or `Authorization: Bearer TOKEN`"
            )
        if not self.rights:
            return NotAuthorized(
                f"{self.name} has no right to {what}: the file of principals ([identity] principals) gives it no role"
            )
        return NotAuthorized(f"{self.name} has no right to {what}: it needs the right {right.value}")

    def check_is(self, node: str) -> None:
        """Check that this principal is a node, `Broker:11`; while identity is off, anybody may speak as it.

        Raises:
            NotAuthorized: it is not.
        """
        if self is not ANYBODY and self.name != node:
            raise NotAuthorized(f"{self.name} is not {node}, and cannot speak as it")


ANYBODY: Final = Principal("User:ANONYMOUS", frozenset(Right))
"""Everybody while identity is off."""
NOBODY: Final = Principal("User:NOBODY", frozenset())
"""The sender of a request without identity while identity is on."""
