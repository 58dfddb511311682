"""Pure: who may ask for what: the rights, those of each role, and those that a principal has.

Each process's table of routes has the right of each route; `quorum/decide/access.py` has that of each operation.
Tests: tests/unit/quorum/http/test_identity.py.
"""

from collections.abc import Container, Mapping
from enum import Enum
from typing import Final, NamedTuple

from metadata_log.errors import AuthenticationFailed, MetadataError, NotAuthorized
from metadata_log.ids import BrokerId
from metadata_log.wire.fetch import OBSERVER


class Right(Enum):
    """What a route needs."""

    OPEN = "open"
    """Nothing: whether a process lives, and whether it is ready."""
    TOKEN = "token"  # noqa: S105 (a right's name)
    """On a broker: something for the controller to judge, as the broker forwards the request with it."""
    READ = "read"
    """To see the metadata, secrets masked."""
    RAW = "raw"
    """Bytes of the log and of snapshots, which hold secrets in plain text."""
    ALTER = "alter"
    """To change topics, partitions and settings."""
    CLUSTER = "cluster"
    """To change what the cluster consists of: brokers, controllers, voters, features, leadership; and snapshots."""
    BROKER = "broker"
    """To take part as a broker, under the id that the principal has."""
    CONTROLLER = "controller"
    """To take part as a controller, under the id that the principal has."""


ROLES: Final[Mapping[str, frozenset[Right]]] = {
    "admin": frozenset({Right.READ, Right.RAW, Right.ALTER, Right.CLUSTER}),
    "broker": frozenset({Right.READ, Right.RAW, Right.BROKER}),
    "controller": frozenset({Right.READ, Right.RAW, Right.CONTROLLER}),
    "reader": frozenset({Right.READ}),
}


class Principal(NamedTuple):
    """Who asks: `name` as records' actors have it, `Broker:11` and `Controller:1` for nodes."""

    name: str
    rights: frozenset[Right]
    raw_if_registered: bool = False
    """The right raw comes from the role of a broker alone, and counts for one that is registered."""

    def authorize(self, right: Right, what: str) -> None:
        """Check that this principal may do what needs a right.

        Raises:
            AuthenticationFailed: it shows no identity.
            NotAuthorized: it may not.
        """
        if right is not Right.OPEN and right not in self.rights:
            raise self.refusal(right, what)

    def refusal(self, right: Right, what: str) -> MetadataError:
        """Return the error for a principal without a right, or without an identity at all."""
        if self is NOBODY:
            return AuthenticationFailed(
                f"{what} needs an identity: a client certificate, or `Authorization: Bearer TOKEN`"
            )
        return NotAuthorized(f"{self.name} has no right to {what}: it needs the right {right.value}")

    def check_broker(self, broker_id: BrokerId) -> None:
        """Check that this principal may speak as a broker.

        Raises:
            NotAuthorized: it may not.
        """
        name = f"Broker:{broker_id}"
        self.authorize(Right.BROKER, f"speak as {name}")
        self.check_is(name)

    def check_is(self, node: str) -> None:
        """Check that this principal is a node, `Broker:11`; while identity is off, anybody may speak as it.

        Raises:
            NotAuthorized: it is not.
        """
        if self is not ANYBODY and self.name != node:
            raise NotAuthorized(f"{self.name} is not {node}, and cannot speak as it")

    def check_raw(self, what: str, brokers: Container[BrokerId]) -> None:
        """Check that this principal may see bytes of the log or of a snapshot; `brokers` are those that are registered.

        Raises:
            NotAuthorized: it may not.
        """
        self.authorize(Right.RAW, what)
        if self.raw_if_registered and not self._is_among(brokers):
            raise NotAuthorized(
                f"{self.name} has no right to {what}: as a broker it has the right raw once it is registered"
            )

    def _is_among(self, brokers: Container[BrokerId]) -> bool:
        number = self.name.removeprefix("Broker:")
        return (
            number.isdecimal() and self.name == f"Broker:{int(number)}" and BrokerId(int(number)) in brokers
        )

    def check_poll(self, broker_id: BrokerId, brokers: Container[BrokerId]) -> None:
        """Check that this principal may fetch the log as this broker, or as an observer.

        Whether the broker that polls is registered, the active controller decides by its epoch: another one may not know of
        it yet, and that is no reason for the broker to give up.

        Raises:
            NotAuthorized: it may not.
        """
        if broker_id == OBSERVER:
            self.check_raw("fetch as an observer", brokers)
        else:
            self.authorize(Right.RAW, "fetch")
            self.check_broker(broker_id)

    def may_poll(self, broker_id: BrokerId, brokers: Container[BrokerId]) -> bool:
        """Return whether `check_poll` passes."""
        try:
            self.check_poll(broker_id, brokers)
        except (AuthenticationFailed, NotAuthorized):
            return False
        return True


ANYBODY: Final = Principal("User:ANONYMOUS", frozenset(Right))
"""Everybody while identity is off."""
NOBODY: Final = Principal("User:NOBODY", frozenset())
"""Who sends a request without identity while it is on."""
