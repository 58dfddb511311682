"""Pure: one command, one decision: the way that the controller, a dry run and the tests all go.

A subject's file in this folder lists what it decides as `DECISIONS`; this file finds it by the subject's name.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from metadata_log.errors import Rejected
from metadata_log.records.registry import subject_names
from metadata_log.sliced import Sliced, at_once
from metadata_log.wire.commands import Command
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision
from quorum.decide.items import ManyItems, all_or_nothing


def _found() -> Iterator[Decides]:
    for name in subject_names():
        module = f"quorum.decide.{name}"
        if find_spec(module) is not None:
            yield from getattr(import_module(module), "DECISIONS", ())


DECISIONS: Final[Mapping[type[Command], Decides]] = {decides.command: decides for decides in _found()}
BY_OPERATION: Final[Mapping[str, Decides]] = {decides.operation: decides for decides in DECISIONS.values()}


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
