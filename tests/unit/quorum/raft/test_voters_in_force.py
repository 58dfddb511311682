"""Voters in force, on a log of bare entries: no engine, no journal file."""

from metadata_log.ids import NodeId, Uuid
from quorum.raft.messages import NO_OP, Entry
from quorum.raft.raft_log import Voters
from quorum.raft.voters import is_change, to_command
from quorum.raft.voters_in_force import VotersInForce


class Log(list[Entry]):
    def __init__(self, *commands: bytes, first: int = 1) -> None:
        super().__init__((command, index, 1) for index, command in enumerate(commands, first))
        self.voter_changes = [index for command, index, _ in self if is_change(command)]
        self.proved_changes = 0


def voters_of(*ids: int) -> Voters:
    return {NodeId(number): Uuid(bytes([number]) * 16) for number in ids}


def set_by(*ids: int) -> bytes:
    return to_command(voters_of(*ids), b"")


def test_before_the_founding_entry_the_settings_say_who_votes() -> None:
    in_force = VotersInForce(voters_of(1, 2, 3), Log(NO_OP, NO_OP))
    in_force.begin(applied_index=2)
    assert in_force.voters == voters_of(1, 2, 3)
    assert not in_force.is_founded


def test_a_change_is_in_force_once_it_is_applied() -> None:
    in_force = VotersInForce(voters_of(1, 2, 3), Log(NO_OP, set_by(1, 2, 3), set_by(1, 2, 3, 4)))
    in_force.begin(applied_index=1)
    assert in_force.is_founded
    assert in_force.voters == voters_of(1, 2, 3)
    assert in_force.set_up_to(3) == voters_of(1, 2, 3, 4)
    assert not in_force.follow(applied_index=2)
    assert in_force.follow(applied_index=3)
    assert in_force.voters == voters_of(1, 2, 3, 4)
    assert not in_force.follow(applied_index=3)


def test_all_changes_but_the_last_are_in_force_unapplied() -> None:
    in_force = VotersInForce(voters_of(1, 2), Log(set_by(1, 2), set_by(1, 2, 3), set_by(1, 2, 3, 4), first=5))
    in_force.begin(applied_index=4)
    assert in_force.voters == voters_of(1, 2, 3)


def test_the_same_voters_once_more_change_nothing() -> None:
    in_force = VotersInForce(voters_of(1, 2), Log(set_by(1, 2), NO_OP, set_by(1, 2)))
    in_force.begin(applied_index=1)
    assert not in_force.follow(applied_index=3)
    assert in_force.set_at == 3


def test_a_snapshots_voters_stand_before_the_log() -> None:
    in_force = VotersInForce(voters_of(1, 2, 3), Log(NO_OP, set_by(4, 5, 6), first=9))
    in_force.stand_on(voters_of(4, 5))
    in_force.begin(applied_index=9)
    assert in_force.is_founded
    assert in_force.voters == voters_of(4, 5)
    assert in_force.set_up_to(9) == voters_of(4, 5)
