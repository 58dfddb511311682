"""Edge: every command has a decision and a name; a refusal is a decision; no decision changes its arguments."""

import copy

from metadata_log.ids import BrokerId
from metadata_log.wire.commands import Command
from quorum.decide.items import ManyItems
from quorum.decide.registry import BY_OPERATION, DECISIONS
from quorum.decide.topics import DeleteTopic
from tests.support.decisions import World, registration


def test_every_command_has_an_operation() -> None:
    # By name: a dataclass with slots leaves the class behind that it was made of.
    commands = {of.__name__ for base in (Command, ManyItems) for of in base.__subclasses__()}
    assert {of.__name__ for of in DECISIONS} == commands - {ManyItems.__name__}
    assert len(BY_OPERATION) == len(DECISIONS)


def test_a_refusal_is_a_decision() -> None:
    decision = World().decide(DeleteTopic(name="no"))
    assert decision.refusal is not None and not decision.records


def test_a_decision_changes_no_session() -> None:
    """Goal: an append that is refused leaves everything as it was. Method: each kind of heartbeat, decided twice."""
    world = World()
    for line in ("register 1", "heartbeat 1", "register 2", "heartbeat 2", "create t on=1,2/2,1"):
        world.run(line)
    for wishes in ({}, {"want_fence": True}, {"want_shut_down": True}):
        before = copy.deepcopy(world.sessions)
        command = world.request(1, **wishes).heartbeat()
        first, second = world.decided(command), world.decided(command)
        assert first == second
        again = registration(1)
        assert world.decided(again) == world.decided(again)
        epoch = world.image.brokers[BrokerId(1)].broker_epoch
        for sessions in (before, world.sessions):
            assert sessions.last_contact_ms_ago(BrokerId(1), now_ms=world.now_ms) == 0
            assert sessions.shutdown_offset(BrokerId(1), epoch) is None
            assert not sessions.is_leaving(BrokerId(1), epoch)
