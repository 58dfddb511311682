"""Pure: one command, one decision: the way that the controller, a dry run and the tests all go.

A subject's file in this folder lists what it decides as `DECISIONS`, and its operations that decide nothing as
`OTHER_OPERATIONS`; this file finds it by the subject's name.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from metadata_log.errors import Rejected
from metadata_log.records.registry import subject_names
from metadata_log.sliced import Sliced, at_once
from metadata_log.wire.commands import Command
from quorum.decide.access import OF_NO_SUBJECT, Access
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision
from quorum.decide.items import ManyItems, all_or_nothing


def _files() -> Iterator[ModuleType]:
    for name in subject_names():
        module = f"quorum.decide.{name}"
        if find_spec(module) is not None:
            yield import_module(module)


DECISIONS: Final[Mapping[type[Command], Decides]] = {
    decides.command: decides for file in _files() for decides in getattr(file, "DECISIONS", ())
}
BY_OPERATION: Final[Mapping[str, Decides]] = {decides.operation: decides for decides in DECISIONS.values()}
OPERATIONS: Final[Mapping[str, Access]] = {
    **{operation: decides.access for operation, decides in BY_OPERATION.items()},
    **{
        operation: access
        for file in _files()
        for operation, access in getattr(file, "OTHER_OPERATIONS", {}).items()
    },
    **OF_NO_SUBJECT,
}
"""What each operation needs, reads included: all that the doors of a controller offer."""


def decide(context: DecideContext, command: Command) -> Decision:
    """Return what a command leads to; a refusal is a decision too, and nothing is raised."""
    return at_once(deciding(context, command))


def deciding(context: DecideContext, command: Command) -> Sliced[Decision]:
    """Make the decision that `decide` returns."""
    try:
        made = DECISIONS[type(command)].decide(context, command)
        decision = made if isinstance(made, Decision) else (yield from made)
    except Rejected as refusal:
        return Decision(refusal=refusal)
    return all_or_nothing(decision) if isinstance(command, ManyItems) and command.all_or_nothing else decision
