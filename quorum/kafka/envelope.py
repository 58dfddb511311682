"""Edge: a request that a broker forwards for its client, in an envelope with the client's name and address.

The broker has authenticated its client, and the controller believes it: the name has the rights that the file of principals
gives it, and a name that is not in there has none. So a stolen key of a broker speaks for everybody. Source: KIP-590.
"""

import ipaddress
import struct
from typing import Final

from metadata_log import limits
from metadata_log.errors import MetadataError, NotController
from metadata_log.kafka.messages import (
    PRINCIPAL,
    REQUESTS,
    Malformed,
    RequestHeader,
    read_whole,
    request_header,
)
from metadata_log.kafka.reading import Values
from metadata_log.node.identity.rights import Principal
from quorum.controller.callers import Caller
from quorum.kafka.door import Answer, Api, Asked, AtOnce, KafkaDoor, Waits, tail_in_time

ENVELOPE: Final = 58
NONE, INVALID_REQUEST, PRINCIPAL_DESERIALIZATION_FAILURE = 0, 42, 97
_VERSION: Final = struct.Struct(">h")


async def unwrap(door: KafkaDoor, asked: Asked) -> Values:
    data, principal_data, address_data = asked.values
    if not door.controller.is_active:
        return _refused(NotController.code)
    try:
        principal = _principal(door, principal_data)
    except Malformed:
        return _refused(PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        address = str(ipaddress.ip_address(address_data))
        header = request_header(data)
        api = door.apis.get(header.key)
        if api is None or not api.in_envelopes or header.version not in api.versions:
            return _refused(INVALID_REQUEST)
        values = await _read(door, header, data)
    except ValueError:
        return _refused(INVALID_REQUEST)
    inner = Asked(
        header.version, values, Caller(principal, address, door="kafka", client_id=header.client_id or "")
    )
    try:
        answer = await _answered(door, api, inner)
    except NotController:
        # Where an answer says so differs from request to request: the envelope says it for all of them.
        return _refused(NotController.code)
    except MetadataError as error:
        answer = api.refusal(door, inner, error)
    tail = await tail_in_time(api, door, header.version, answer)
    return (header.correlation_id.to_bytes(4, signed=True) + tail, NONE)


def _refused(error: int) -> Values:
    return (None, error)


def _principal(door: KafkaDoor, data: bytes | None) -> Principal:
    """Return the principal that an envelope names.

    Raises:
        Malformed: it names none.
    """
    if data is None or len(data) < _VERSION.size:
        raise Malformed("an envelope without a principal")
    (version,) = _VERSION.unpack_from(data)
    if version not in PRINCIPAL.versions:
        raise Malformed(f"a principal in version {version}")
    kind, name, by_token = read_whole(PRINCIPAL, version, data, _VERSION.size)
    return door.named(kind, name)._replace(by_token=by_token)


async def _read(door: KafkaDoor, header: RequestHeader, data: bytes) -> Values:
    """Return the values of the inner request, read in a thread if it is large; raises Malformed."""
    schema = REQUESTS[header.key]
    if len(data) <= limits.HTTP_BODY_AT_ONCE_BYTES:
        return read_whole(schema, header.version, data, header.at)
    return await door.bodies.run(read_whole, schema, header.version, data, header.at)


async def _answered(door: KafkaDoor, api: Api, asked: Asked) -> Answer:
    """Return the answer to an inner request, or raise a MetadataError."""
    api.check(door, asked.caller)
    match api.handler:
        case AtOnce(answer=answer_at_once):
            return answer_at_once(door, asked)
        case Waits(answer=answer):
            return await answer(door, asked)
    raise AssertionError(f"request {api.key} is parked: nothing of that kind is forwarded")


APIS: Final = (Api(ENVELOPE, Waits(unwrap), "Envelope"),)
