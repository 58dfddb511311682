"""Pure: the operations of scripts on delegation tokens; a token is named `token#n`, the n-th that was issued.

Tests: tests/unit/quorum/whatif/test_kafka_scripts.py.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from metadata_log.wire.commands import Command
from quorum.decide.tokens import (
    CreateDelegationToken,
    CreateDelegationTokenFor,
    ExpireDelegationToken,
    RenewDelegationToken,
    TokenCreated,
    TokenExpiry,
)
from quorum.whatif.operation import Answer, Line, Run, or_default

NO_HMAC: Final = b"the HMAC of no token"


def create(run: Run, line: Line) -> Answer:
    requester, name = _principal(line), line.get("owner_principal_name")
    owner = f"{line['owner_principal_type']}:{name}" if name else requester
    fields: dict[str, Any] = {
        "renewers": tuple(
            f"{each['principal_type']}:{each['principal_name']}" for each in line.get("renewers") or ()
        ),
        "max_lifetime_ms": or_default(line, "max_lifetime_ms", -1),
    }
    command: Command = (
        CreateDelegationToken(**fields)
        if owner == requester
        else CreateDelegationTokenFor(owner=owner, **fields)
    )
    issued = run.decide(command, requester=requester)
    assert isinstance(issued, TokenCreated)
    hmac = run.cluster.tokens.hmac_of(issued.token_id)
    return {
        "response": {
            **issued._asdict(),
            "token_id": run.names.token_word(issued.token_id),
            "raw_token_id": issued.token_id,
            "hmac": base64.b64encode(hmac).decode(),
        }
    }


def renew(run: Run, line: Line) -> Answer:
    period_ms = or_default(line, "renew_period_ms", -1)
    return _moved(run, line, RenewDelegationToken(hmac=_hmac(run, line), renew_period_ms=period_ms))


def expire(run: Run, line: Line) -> Answer:
    period_ms = or_default(line, "expiry_time_period_ms", -1)
    return _moved(run, line, ExpireDelegationToken(hmac=_hmac(run, line), expiry_time_period_ms=period_ms))


def _moved(run: Run, line: Line, command: Command) -> Answer:
    outcome = run.decide(command, requester=_principal(line))
    assert isinstance(outcome, TokenExpiry)
    return {"response": outcome._asdict()}


def _hmac(run: Run, line: Line) -> bytes:
    token_id = run.names.token_id(line["token"])
    return run.cluster.tokens.hmac_of(token_id) if token_id and run.cluster.tokens.is_on else NO_HMAC


def _principal(line: Line) -> str:
    """Return the principal that asks."""
    principal: str = or_default(line, "principal", "User:ann")
    return principal


OPERATIONS: Final[Mapping[str, Callable[[Run, Mapping[str, Any]], Answer]]] = {
    "CreateDelegationToken": create,
    "RenewDelegationToken": renew,
    "ExpireDelegationToken": expire,
}
