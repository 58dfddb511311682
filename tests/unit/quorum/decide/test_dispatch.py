"""Edge: every command has a decision and a name; a refusal is a decision."""

from typing import get_args

from metadata_log.wire.commands import Command, DeleteTopic
from quorum.decide.dispatch import OPERATIONS
from tests.support.decisions import World


def test_every_command_has_an_operation() -> None:
    assert set(OPERATIONS) == set(get_args(Command))
    assert len(set(OPERATIONS.values())) == len(OPERATIONS)


def test_a_refusal_is_a_decision() -> None:
    decision = World().decide(DeleteTopic(name="no"))
    assert decision.refusal is not None and not decision.records
