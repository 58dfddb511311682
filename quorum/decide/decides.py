"""Pure: what a subject declares of a command that it decides."""

from collections.abc import Callable
from typing import Any, NamedTuple

from metadata_log.wire.commands import Command
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision, Outcome


class Decides(NamedTuple):
    """`operation` is the name in envelopes, in scripts and in Kafka; `outcome` the type of what a decision answers."""

    command: type[Command]
    operation: str
    outcome: type[Outcome]
    decide: Callable[[DecideContext, Any], Decision]
