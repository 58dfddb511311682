"""Pure: what the audit log says of commands that clients send, through whichever door they come.

What nodes report of themselves (heartbeats, registrations, ISRs) is left out: the metadata log has it with its actor.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

from metadata_log.errors import AuthenticationFailed, Fault, MetadataError, NotAuthorized, OutcomeUnknown
from metadata_log.ids import uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.audit_log import RESOURCES_MAX, AuditLog
from metadata_log.wire.commands import Command
from quorum.controller.callers import Caller
from quorum.controller.written import Written
from quorum.decide.registry import DECISIONS

_BY_DOORS: Final = (AuthenticationFailed, NotAuthorized)


class Asked:
    """One command whose end the audit log is to have; its resources are those at its begin: it may delete them."""

    def __init__(self, audit: AuditLog, command: Command, caller: Caller, image: MetadataImage) -> None:
        decides = DECISIONS[type(command)]
        self._audit = audit
        self._caller = caller
        self._operation = decides.operation.partition(".")[0]  # `.many` is how it was sent
        resources = iter(decides.access.resources(command, image))
        self._resources = [str(resource) for resource in islice(resources, RESOURCES_MAX)]
        self._count = len(self._resources) + sum(1 for _ in resources)

    def ended(self, end: Written | MetadataError, *, noted_by_door: bool = True) -> None:
        """Note what the command led to. `noted_by_door`: the door notes a want of identity or right itself."""
        if isinstance(end, MetadataError):
            if not (noted_by_door and isinstance(end, _BY_DOORS)):
                self._note(outcome_of(end), error=end.error, message=end.message)
            return
        refused = _refused_items(end.outcome)
        of_all = len(getattr(end.outcome, "results", ()))
        outcome = "allowed" if not refused else "refused" if len(refused) == of_all else "partly"
        self._note(
            outcome,
            message="; ".join(refused[:RESOURCES_MAX]) or None,
            offsets={"base": end.base_offset, "end": end.end_offset},
        )

    def _note(
        self,
        outcome: str,
        *,
        error: str | None = None,
        message: str | None = None,
        offsets: dict[str, int] | None = None,
    ) -> None:
        caller = self._caller
        self._audit.note(
            door=caller.door,
            principal=caller.principal.name,
            address=caller.address,
            operation=self._operation,
            outcome=outcome,
            resources=self._resources,
            resource_count=self._count,
            error=error,
            message=message,
            request_id=None if caller.request_id is None else uuid_text(caller.request_id),
            trace_id=caller.trace_id,
            offsets=offsets,
        )


def asking(
    audit: AuditLog, image: Callable[[], MetadataImage], command: Command, caller: Caller
) -> Asked | None:
    """Return what takes the end of a command; None where the audit log has no line for it."""
    if not audit.is_on or DECISIONS[type(command)].access.sender is not None:
        return None
    return Asked(audit, command, caller, image())


def outcome_of(error: MetadataError) -> str:
    """Return the audit log's word for an error."""
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    return "failed" if isinstance(error, Fault) else "refused"


def _refused_items(outcome: object) -> list[str]:
    """Return a text for each item of a command that was refused while others were not."""
    results = getattr(outcome, "results", ())
    return [f"{row[0]}: {row.error}" for row in results if getattr(row, "error", None) is not None]
