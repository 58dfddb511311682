"""Pure: the sender of a request, and the one step between reading a request and carrying it out: whether the sender may."""

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from metadata_log.batch import at_address
from metadata_log.errors import NotAuthorized
from metadata_log.ids import BrokerId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.identity.refusals import DoorName
from metadata_log.node.identity.rights import ANYBODY, BROKER, Node, Principal, Right
from metadata_log.wire.commands import BrokerHeartbeat, Command
from metadata_log.wire.fetch import OBSERVER
from quorum.decide.access import CLUSTER, FETCH, Resource
from quorum.decide.registry import DECISIONS, OPERATIONS

_HEARTBEAT: Final = DECISIONS[BrokerHeartbeat].operation


class Caller(NamedTuple):
    """The sender of a request, as its door knows it.

    `address` is the numeric one of the client's connection; None within this process. `request_id` makes the command
    repeatable; None: a repetition is another command. `trace_id` is that of its W3C trace context.
    """

    principal: Principal
    address: str | None = None
    request_id: Uuid | None = None
    trace_id: str | None = None
    door: DoorName = "http"

    @property
    def node(self) -> Node | None:
        """The broker or controller that a certificate or a token proves; None: a client, or identity is off."""
        return self.principal.node

    def actor_of(self, command: Command) -> str:
        """Return the actor that the command's records show: the principal, or the node that alone may send it.

        A node is shown without its address while identity is off, since anybody may speak as it.
        """
        sender = DECISIONS[type(command)].access.sender
        if sender is None:
            return at_address(self.principal.name, self.address)
        return at_address(sender(command), None if self.principal is ANYBODY else self.address)


def authorize(caller: Caller, operation: str, resources: Iterable[Resource], image: MetadataImage) -> None:
    """Check that a caller may carry out an operation on all of these resources, whichever door it came through.

    Raises:
        AuthenticationFailed: the caller shows no identity.
        NotAuthorized: it lacks the right; the message names the first resource. The right raw of a broker's role counts once
            that broker is registered.
    """
    right, principal = OPERATIONS[operation].right, caller.principal
    if right is not Right.OPEN and right not in principal.rights:
        named = "".join(f" on {resource}" for resource in islice(resources, 1))
        raise principal.refusal(right, f"{operation}{named}")
    if right is Right.RAW and principal.raw_if_registered and not _is_registered(caller.node, image):
        raise NotAuthorized(
            f"{principal.name} has no right to {operation}: as a broker it has the right raw once it is registered"
        )


def _is_registered(node: Node | None, image: MetadataImage) -> bool:
    return node is not None and node.kind == BROKER and node.id in image.brokers


def authorize_command(caller: Caller, command: Command, image: MetadataImage) -> None:
    """Check that a caller may have a command decided; `image` has the names of topics that the command names by id.

    Raises:
        AuthenticationFailed, NotAuthorized: as `authorize`, or the caller is not the node that alone may send this command.
    """
    decides = DECISIONS[type(command)]
    access = decides.access
    authorize(caller, decides.operation, access.resources(command, image), image)
    if access.sender is not None:
        caller.principal.check_is(access.sender(command))


def authorize_poll(caller: Caller, broker_id: BrokerId, image: MetadataImage) -> None:
    """Check that a caller may fetch the log as a broker, or as an observer.

    The active controller looks up by its epoch whether the broker is registered. Another controller may not know of it
    yet, and that is no reason for the broker to give up.

    Raises:
        AuthenticationFailed, NotAuthorized: as `authorize`, or the caller is not this broker.
    """
    if broker_id == OBSERVER:
        authorize(caller, FETCH, (CLUSTER,), image)
    else:
        authorize(caller, _HEARTBEAT, (CLUSTER,), image)
        caller.principal.check_is(f"{BROKER}:{broker_id}")
