"""Pure: senders of commands while identity is off."""

from metadata_log.ids import Uuid
from metadata_log.node.identity.rights import ANYBODY, Principal
from quorum.controller.callers import Caller


def anybody(request_id: Uuid | None = None) -> Caller:
    return Caller(ANYBODY, request_id=request_id)


def called(name: str, request_id: Uuid | None = None) -> Caller:
    """Return a client of this name, with every right."""
    return Caller(Principal(name, ANYBODY.rights), request_id=request_id)
