"""Pure: the records of a new active controller, and changes of voters."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from metadata_log.batch import Cause
from metadata_log.errors import DuplicateVoter, InvalidRequest, VoterNotFound
from metadata_log.ids import BrokerId, NodeId, Uuid, is_reserved, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import CONTROLLERS_MAX
from metadata_log.node.addresses import address_text, is_host
from metadata_log.records.features import (
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METAQUORUM_VERSION,
    METAQUORUM_VERSION_LEVEL,
    FeatureLevelRecord,
)
from metadata_log.records.quorum import (
    KRAFT_VERSION_LEVEL,
    ControllerClaimRecord,
    QuorumVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from metadata_log.records.registry import Record
from metadata_log.wire.commands import AddVoter, RemoveVoter
from quorum.decide.access import ALTERS_CLUSTER
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision
from quorum.decide.voter_changes import check_change, check_none_pending
from quorum.raft.raft_log import RaftStatus


class VoterIdentity(NamedTuple):
    node_id: NodeId
    directory_id: Uuid


class VotersChanged(NamedTuple):
    """Who votes after the change, by id."""

    voters: tuple[VoterIdentity, ...]


def claim(image: MetadataImage, *, node_id: NodeId, cluster_id: str, voters: tuple[Voter, ...]) -> Decision:
    """Decide the batch with which a node becomes the active controller.

    The first claim of all founds the quorum of the configured voters, and the cluster's features. From then on the log
    names the voters; settings of the same voters only change their addresses.
    """
    voters = tuple(sorted(voters))
    records: list[Record] = [ControllerClaimRecord(node_id, image.controller_epoch + 1, cluster_id)]
    founding = image.quorum.voters is None
    if founding or (
        image.quorum.voters != voters and identities(image.quorum.voters or ()) == identities(voters)
    ):
        records += [QuorumVersionRecord(KRAFT_VERSION_LEVEL), VotersRecord(voters)]
    if image.end_offset == 0:
        records += [
            FeatureLevelRecord(METADATA_VERSION, METADATA_VERSION_LEVEL),
            FeatureLevelRecord(METAQUORUM_VERSION, METAQUORUM_VERSION_LEVEL),
        ]
    previous = None if image.end_offset == 0 else image.controller_epoch
    return Decision(
        records=tuple(records),
        cause=Cause("CONTROLLER_CLAIMED", None, {"node_id": node_id, "previous_controller_epoch": previous}),
    )


def add_voter(context: DecideContext, command: AddVoter) -> Decision:
    """Decide that one more controller votes. With `validate_only` nothing is written.

    Raises:
        DuplicateVoter: a voter has this id, with whatever directory: a wiped one must be removed first.
        InvalidRequest: the id is a broker's; the directory id is reserved or another voter's, or so is the address;
            no host can be called so; CONTROLLERS_MAX vote already; a change that is not only
            validated replaces something; the observer is not linked to the leader.
        NotCaughtUp: the observer lacks too much of the log.
        and what `remove_voter` raises, of what is replaced.

    Source: KIP-853, AddVoterHandler.
    """
    raft = _raft_status(context)
    image = context.image
    voters = _voters(image)
    identity = _identity_text(command.voter_id, command.directory_id)
    if command.replaces is not None:
        if not command.validate_only:
            raise InvalidRequest(
                f"{identity} replaces nothing in one step: remove the voter first, then add this one"
            )
        voters = _without(voters, command.voter_id, command.replaces)
    present = next((voter for voter in voters if voter.node_id == command.voter_id), None)
    if present is not None:
        raise DuplicateVoter(f"{_identity_text(present.node_id, present.directory_id)} is a voter already")
    if BrokerId(command.voter_id) in image.brokers:
        raise InvalidRequest(
            f"id {command.voter_id} is a broker's; brokers and controllers share one id space"
        )
    if is_reserved(command.directory_id):
        raise InvalidRequest(f"{uuid_text(command.directory_id)} is no directory's id")
    if not is_host(command.host):
        raise InvalidRequest(f"{identity}: {command.host!r} is no name that a host can have")
    endpoint = VoterEndpoint("CONTROLLER", command.host, command.port)
    for voter in voters:
        if voter.directory_id == command.directory_id:
            raise InvalidRequest(f"{identity}: this is the directory of voter {voter.node_id}")
        if endpoint in voter.endpoints:
            raise InvalidRequest(
                f"{identity}: {address_text((command.host, command.port))} is where voter {voter.node_id} is reached"
            )
    if len(voters) >= CONTROLLERS_MAX:
        raise InvalidRequest(f"{CONTROLLERS_MAX} controllers vote already, more only slow them down")
    if raft is not None:
        check_change(command, raft, node_id=NodeId(context.node_id))
    added = Voter(command.voter_id, command.directory_id, (endpoint,), 0, KRAFT_VERSION_LEVEL)
    return _changed("VOTER_ADDED", command, (*voters, added))


def remove_voter(context: DecideContext, command: RemoveVoter) -> Decision:
    """Decide that a controller votes no more. With `validate_only` nothing is written.

    Raises:
        VoterNotFound: no voter has this id with this directory.
        InvalidRequest: it is the last one, or no majority of those who remain could decide.
        ChangePending: the change of voters before is not in force yet.

    Source: KIP-853, RemoveVoterHandler; Kafka, too, never shrinks the set to nobody.
    """
    raft = _raft_status(context)
    left = _without(_voters(context.image), command.voter_id, command.directory_id)
    if raft is not None:
        check_change(command, raft, node_id=NodeId(context.node_id))
    return _changed("VOTER_REMOVED", command, left)


def _raft_status(context: DecideContext) -> RaftStatus | None:
    """Return Raft's view of the quorum, if the decision rests on it; raises as `check_none_pending`."""
    if context.raft_status is None:
        return None
    raft = context.raft_status()
    check_none_pending(raft)
    return raft


def identities(voters: Sequence[Voter]) -> dict[NodeId, Uuid]:
    """Return the voters by id and directory, whatever their addresses."""
    return {voter.node_id: voter.directory_id for voter in voters}


def _voters(image: MetadataImage) -> tuple[Voter, ...]:
    assert image.quorum.voters is not None, (
        "only an active controller decides, and the first claim of all founded the quorum"
    )
    return image.quorum.voters


def _without(voters: tuple[Voter, ...], node_id: NodeId, directory_id: Uuid) -> tuple[Voter, ...]:
    identity = _identity_text(node_id, directory_id)
    left = tuple(voter for voter in voters if voter[:2] != (node_id, directory_id))
    if len(left) == len(voters):
        known = ", ".join(_identity_text(voter.node_id, voter.directory_id) for voter in voters)
        raise VoterNotFound(f"{identity} is no voter; the voters are {known}")
    if not left:
        raise InvalidRequest(f"{identity} is the last voter: without it nobody could decide anything")
    return left


def _changed(code: str, command: AddVoter | RemoveVoter, voters: Sequence[Voter]) -> Decision:
    voters = tuple(sorted(voters))
    outcome = VotersChanged(tuple(VoterIdentity(voter.node_id, voter.directory_id) for voter in voters))
    if command.validate_only:
        return Decision(outcome=outcome)
    detail = {"node_id": command.voter_id, "directory_id": uuid_text(command.directory_id)}
    return Decision(records=(VotersRecord(voters),), outcome=outcome, cause=Cause(code, None, detail))


def _identity_text(node_id: NodeId, directory_id: Uuid) -> str:
    return f"controller {node_id} with directory {uuid_text(directory_id)}"


DECISIONS: Final = (
    Decides(AddVoter, "AddRaftVoter", VotersChanged, ALTERS_CLUSTER, add_voter),
    Decides(RemoveVoter, "RemoveRaftVoter", VotersChanged, ALTERS_CLUSTER, remove_voter),
)
