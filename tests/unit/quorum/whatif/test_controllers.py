"""Edge: the loss and the restart of controllers, foreseen: the records are those that the quorum then writes."""

from metadata_log.codec import decode_all
from metadata_log.ids import NodeId
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.quorum import ControllerClaimRecord
from metadata_log.records.registry import Record
from quorum.whatif.cluster import Cluster, Options
from quorum.whatif.controllers import QuorumOf
from tests.support.lab import Lab, online, run

ALL = (NodeId(1), NodeId(2), NodeId(3))


def played(lab: Lab, *, running: tuple[NodeId, ...] = ALL, leader: int | None = 1) -> QuorumOf:
    cluster = Cluster(Options(), lab.controllers[1].committed)
    return QuorumOf(cluster, running=running, leader_id=None if leader is None else NodeId(leader))


def newest(lab: Lab) -> tuple[Record, ...]:
    [(batch, _)] = decode_all(lab.quorum.log[-1])
    return tuple(batch.records)


def test_c4_what_the_loss_of_a_leader_writes_is_what_the_next_one_writes() -> None:
    """C4: whatif(lose 1) = the records that are written when controller 1 goes at the same offset."""

    async def main(lab: Lab) -> None:
        await online(lab, lab.lead(1), 11)
        (step,) = played(lab).lose([NodeId(1)])
        assert (step.led, step.successors, step.running, step.majority, step.writes) == (
            True,
            (NodeId(2), NodeId(3)),
            2,
            2,
            True,
        )
        lab.lead(2)
        assert newest(lab) == step.records
        assert isinstance(step.records[0], ControllerClaimRecord)

    run(main)


def test_a_follower_goes_without_a_record_and_a_second_loss_stops_the_writes() -> None:
    async def main(lab: Lab) -> None:
        lab.lead(1)
        third, second, first = played(lab).lose([NodeId(3), NodeId(2), NodeId(1)])
        assert (third.led, third.records, third.writes) == (False, (), True)
        assert (second.led, second.records, second.writes, second.running) == (False, (), False, 1)
        assert (first.led, first.successors, first.records, first.writes) == (True, (), (), False)

    run(main)


def test_a_roll_restarts_the_leader_last_and_each_registers_again() -> None:
    async def main(lab: Lab) -> None:
        lab.lead(2)
        quorum = played(lab, leader=2)
        assert quorum.ids == (1, 3, 2)
        steps = [*quorum.roll(quorum.ids)]
        assert [(step.what, step.controller_id, step.writes) for step in steps] == [
            (what, node_id, True) for node_id in (1, 3, 2) for what in ("stopped", "back")
        ]
        assert [step.led for step in steps] == [False, False, False, False, True, False]
        assert steps[4].successors == (1, 3)
        for step in steps[1::2]:
            assert all(isinstance(record, RegisterControllerRecord) for record in step.records)

    run(main)


def test_a_roll_of_a_quorum_that_lacks_a_voter_stops_its_writes_meanwhile() -> None:
    async def main(lab: Lab) -> None:
        lab.lead(1)
        quorum = played(lab, running=(NodeId(1), NodeId(2)))
        steps = [*quorum.roll([NodeId(2), NodeId(1)])]
        assert [step.writes for step in steps] == [False, True, False, True]
        assert isinstance(steps[3].records[0], ControllerClaimRecord), "whoever has a majority again claims"

    run(main)
