"""What an operator of a simulated cluster asks of a controller to change who votes."""

from typing import TYPE_CHECKING

from metadata_log.ids import NodeId
from quorum.controller.written import Written
from quorum.decide.quorum import AddVoter, RemoveVoter
from quorum.raft.raft_log import Member, Voters
from tests.support.callers import anybody

if TYPE_CHECKING:
    from tests.simulation.world.cluster_controller import SimulatedController


def addition(member: Member) -> AddVoter:
    return AddVoter(
        voter_id=member.node_id,
        directory_id=member.directory_id,
        host="127.0.0.1",
        port=9000 + member.node_id,
        validate_only=False,
    )


def removal(voters: Voters, node_id: NodeId) -> RemoveVoter:
    return RemoveVoter(voter_id=node_id, directory_id=voters[node_id], validate_only=False)


async def carry_out(command: AddVoter | RemoveVoter, controller: "SimulatedController") -> Written:
    return await controller.submit(command, anybody())
