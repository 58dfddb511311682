"""Pure: the sender of a command, and the one step between reading a command and deciding it: whether the sender may."""

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from metadata_log.batch import at_address
from metadata_log.errors import NotAuthorized
from metadata_log.ids import Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.identity.rights import ANYBODY, Principal
from metadata_log.wire.commands import Command
from quorum.decide.access import Resource
from quorum.decide.registry import BY_OPERATION, DECISIONS


class Caller(NamedTuple):
    """The sender of a command, as its door knows it.

    `address` is the numeric one of the client's connection; None within this process. `request_id` makes the command
    repeatable; None: a repetition is another command.
    """

    principal: Principal
    address: str | None = None
    request_id: Uuid | None = None

    def actor_of(self, command: Command) -> str:
        """Return the actor that the command's records show: the principal, or the node that alone may send it.

        A node is shown without its address while identity is off, since anybody may speak as it.
        """
        sender = DECISIONS[type(command)].access.sender
        if sender is None:
            return at_address(self.principal.name, self.address)
        return at_address(sender(command), None if self.principal is ANYBODY else self.address)


def authorize(caller: Caller, operation: str, resources: Iterable[Resource]) -> None:
    """Check that a caller may carry out an operation on all of these resources, whichever door it came through.

    Raises:
        NotAuthorized: it lacks the right; the message names the first resource.
    """
    right = BY_OPERATION[operation].access.right
    if right not in caller.principal.rights:
        named = "".join(f" on {resource}" for resource in islice(resources, 1))
        raise NotAuthorized(
            f"{caller.principal.name} has no right to {operation}{named}: it needs the right {right.value}"
        )


def authorize_command(caller: Caller, command: Command, image: MetadataImage) -> None:
    """Check that a caller may have a command decided; `image` has the names of topics that the command names by id.

    Raises:
        NotAuthorized: the caller lacks the right, or is not the node that alone may send this command.
    """
    decides = DECISIONS[type(command)]
    access = decides.access
    authorize(caller, decides.operation, access.resources(command, image))
    if access.sender is not None:
        caller.principal.check_is(access.sender(command))
