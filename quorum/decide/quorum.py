"""Pure: the records of a new active controller, and changes of voters: by the log, and by the quorum as Raft sees it.

Source: KIP-853 (an observer must have caught up); that a removal leaves a working majority is asked by us alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_log.batch import Cause
from metadata_log.errors import (
    ChangePending,
    DuplicateVoter,
    InvalidRequest,
    NotCaughtUp,
    UnsupportedVersion,
    VoterNotFound,
)
from metadata_log.ids import BrokerId, NodeId, Uuid, is_reserved, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import CONTROLLERS_MAX, VOTER_CAUGHT_UP_MS
from metadata_log.node.addresses import address_text, is_host
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    METAQUORUM_VERSION,
    METAQUORUM_VERSION_LEVEL,
    FeatureLevelRecord,
)
from metadata_log.records.quorum import (
    KAFKA_ENDPOINT,
    KRAFT_VERSION_LEVEL,
    RAFT_ENDPOINT,
    ControllerClaimRecord,
    QuorumVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from metadata_log.records.registry import Record
from metadata_log.wire.commands import Command
from quorum.decide.access import ALTERS_CLUSTER, DESCRIBES
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision
from quorum.decide.founding import NEWEST, Founding
from quorum.raft.raft_log import PeerStatus, RaftStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter(Command):
    """Make an observer a voter; `host` and `port` are its address for the other voters. Source: KIP-853.

    Its address for Kafka's brokers is the one that it registered.

    `replaces` is a directory of this id that the checks treat as already removed; only with `validate_only`.
    """

    voter_id: NodeId
    directory_id: Uuid
    host: str
    port: int
    validate_only: bool
    replaces: Uuid | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoter(Command):
    """Remove a voter; its controller, if it runs, becomes an observer. Source: KIP-853."""

    voter_id: NodeId
    directory_id: Uuid
    validate_only: bool


class VoterIdentity(NamedTuple):
    node_id: NodeId
    directory_id: Uuid


class VotersChanged(NamedTuple):
    """The voters after the change, by id."""

    voters: tuple[VoterIdentity, ...]


def claim(
    image: MetadataImage,
    *,
    node_id: NodeId,
    cluster_id: str,
    voters: tuple[Voter, ...],
    founding: Founding = NEWEST,
    min_insync_replicas: str = "1",
    is_handed_over: bool = False,
) -> Decision:
    """Decide the batch with which a node becomes the active controller; `is_handed_over`: the one before asked for it.

    The first claim of all founds the quorum of the configured voters, and the cluster as `founding` says. From then on the
    log names the voters; settings of the same voters only change the addresses of those that have not registered, and with
    kraft.version 0 those of all. An address for Kafka's brokers stays where the settings have none: the file of this node
    may be older than those of the others.
    """
    present = image.quorum.kraft_version
    kraft_version = founding.kraft_version if present is None else present
    known = {voter.node_id: voter for voter in image.quorum.voters or ()}
    voters = tuple(
        _as_reached(
            voter,
            known.get(voter.node_id),
            image.controllers.get(voter.node_id) if kraft_version else None,
            is_claimant=voter.node_id == node_id,
        )
        for voter in sorted(voters)
    )
    records: list[Record] = [ControllerClaimRecord(node_id, image.controller_epoch + 1, cluster_id)]
    is_founding = image.quorum.voters is None
    if is_founding or (
        image.quorum.voters != voters and identities(image.quorum.voters or ()) == identities(voters)
    ):
        records += [QuorumVersionRecord(kraft_version), VotersRecord(voters)]
    if image.end_offset == 0:
        records += [
            FeatureLevelRecord(METADATA_VERSION, founding.metadata_version),
            FeatureLevelRecord(METAQUORUM_VERSION, METAQUORUM_VERSION_LEVEL),
            *founding.records(min_insync_replicas=min_insync_replicas),
        ]
    detail: dict[str, object] = {
        "node_id": node_id,
        "previous_controller_epoch": None if image.end_offset == 0 else image.controller_epoch,
    }
    if is_handed_over:
        # Without it an orderly stop in an idle cluster could not be told from a crash: both leave a gap in the log.
        detail["handed_over"] = True
    return Decision(records=tuple(records), cause=Cause("CONTROLLER_CLAIMED", None, detail))


def _as_reached(
    voter: Voter, known: Voter | None, registered: RegisterControllerRecord | None, *, is_claimant: bool
) -> Voter:
    """Return a voter of the settings with the addresses that count; `known` is what the log has under its id.

    Those of a controller that registers follow its own file (`reached_at`), and not that of the node that claims. The
    claimant's follow what it registered: a controller of an older release may have taken the registration alone.
    """
    if known is not None and registered is not None and known[:2] == voter[:2]:
        return _at(known, registered.endpoints) if is_claimant else known
    if known is None or voter.address(KAFKA_ENDPOINT) is not None:
        return voter
    kept = tuple(endpoint for endpoint in known.endpoints if endpoint.name == KAFKA_ENDPOINT)
    return voter._replace(endpoints=voter.endpoints + kept)


def reached_at(
    image: MetadataImage, node_id: NodeId, endpoints: Sequence[BrokerEndpoint]
) -> tuple[Voter, ...] | None:
    """Return the voters with one of them at the addresses that it registers; None: it does not vote, or nothing changes.

    An address for Kafka's brokers that the registration lacks stays. Source: KIP-853, UpdateRaftVoter.
    """
    voters = image.quorum.voters or ()
    voter = next((one for one in voters if one.node_id == node_id), None)
    if voter is None:
        return None
    moved = _at(voter, endpoints)
    if moved == voter:
        return None
    return tuple(moved if one is voter else one for one in voters)


def speaks_for_voter(context: DecideContext, node_id: NodeId) -> bool:
    """Answer whether what a controller registers says where the voter with its id is reached.

    A controller on another disk may register under a voter's id, from where that voter is not reached.
    """
    if context.raft_status is None:
        return False
    raft = context.raft_status()
    if any(peer.node_id == node_id and not peer.is_voter and peer.reachable for peer in raft.peers):
        return False
    return node_id != context.node_id or raft.is_voter


def all_reached_at(context: DecideContext) -> tuple[Voter, ...]:
    """Return the voters, each at the addresses that it registered, as far as the registration speaks for it."""
    controllers = context.image.controllers
    return tuple(
        _at(voter, controllers[voter.node_id].endpoints)
        if voter.node_id in controllers and speaks_for_voter(context, voter.node_id)
        else voter
        for voter in context.image.quorum.voters or ()
    )


def _at(voter: Voter, endpoints: Sequence[BrokerEndpoint]) -> Voter:
    """Return a voter at the addresses of a registration."""
    named = {
        one.name: VoterEndpoint(one.name, one.host, one.port)
        for one in endpoints
        if one.name in (RAFT_ENDPOINT, KAFKA_ENDPOINT)
    }
    kept = {one.name: one for one in voter.endpoints}
    return voter._replace(endpoints=tuple((kept | named).values()))


def add_voter(context: DecideContext, command: AddVoter) -> Decision:
    """Decide that one more controller votes. With `validate_only` nothing is written.

    Raises:
        DuplicateVoter: a voter has this id, with whatever directory: a wiped one must be removed first.
        InvalidRequest: the id is a broker's; the directory id is reserved or another voter's, or so is the address;
            no host can be called so; CONTROLLERS_MAX vote already; a change that is not only
            validated replaces something; the observer is not linked to the leader.
        NotCaughtUp: the observer lacks too much of the log.
        UnsupportedVersion: kraft.version is 0.
        and what `remove_voter` raises, of what is replaced.

    Source: KIP-853, AddVoterHandler.
    """
    image = context.image
    _check_voters_can_change(image, "added")
    raft = _raft_status(context)
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
    endpoint = VoterEndpoint(RAFT_ENDPOINT, command.host, command.port)
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
    endpoints = (endpoint, *_kafka_endpoints(image, command.voter_id))
    added = Voter(command.voter_id, command.directory_id, endpoints, 0, KRAFT_VERSION_LEVEL)
    return _changed("VOTER_ADDED", command, (*voters, added))


def _kafka_endpoints(image: MetadataImage, node_id: NodeId) -> tuple[VoterEndpoint, ...]:
    """Return where Kafka's brokers reach a controller, as its registration says; without a Kafka listener nothing."""
    controller = image.controllers.get(node_id)
    endpoints = () if controller is None else controller.endpoints
    return tuple(
        VoterEndpoint(KAFKA_ENDPOINT, each.host, each.port)
        for each in endpoints
        if each.name == KAFKA_ENDPOINT
    )


def remove_voter(context: DecideContext, command: RemoveVoter) -> Decision:
    """Decide that a controller votes no more. With `validate_only` nothing is written.

    Raises:
        VoterNotFound: no voter has this id with this directory.
        InvalidRequest: it is the last one, or no majority of those who remain could decide.
        ChangePending: the change of voters before is not in force yet.
        UnsupportedVersion: kraft.version is 0.

    Source: KIP-853, RemoveVoterHandler; Kafka, too, never removes the last voter.
    """
    _check_voters_can_change(context.image, "removed")
    raft = _raft_status(context)
    left = _without(_voters(context.image), command.voter_id, command.directory_id)
    if raft is not None:
        check_change(command, raft, node_id=NodeId(context.node_id))
    return _changed("VOTER_REMOVED", command, left)


def has_static_voters(image: MetadataImage) -> bool:
    """Answer whether the settings of the founders say for good who votes, and where it is reached (kraft.version 0)."""
    return image.quorum.kraft_version == 0


def _check_voters_can_change(image: MetadataImage, what: str) -> None:
    if has_static_voters(image):
        raise UnsupportedVersion(
            f"no voter can be {what}: {KRAFT_VERSION} is 0, with which the voters of the founding stay; first: "
            f"metaquorum features upgrade {KRAFT_VERSION}={KRAFT_VERSION_LEVEL}"
        )


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


def check_none_pending(raft: RaftStatus) -> None:
    """Refuse a change of voters while another one is in flight.

    Raises:
        ChangePending: the change before is not in force yet.
    """
    if raft.change_pending:
        raise ChangePending("another change of voters is in flight; ask again when it is in force")


def check_change(command: AddVoter | RemoveVoter, raft: RaftStatus, *, node_id: NodeId) -> None:
    """Refuse what would leave the quorum worse than the operator can see; `raft` is the view of leader `node_id`.

    Raises:
        InvalidRequest: the observer is not linked to the leader, or those who would remain cannot decide.
        NotCaughtUp: the observer is linked, and lacks too much of the log.
    """
    match command:
        case AddVoter():
            _check_added(command, raft)
        case RemoveVoter():
            _check_left(command, raft, node_id)


def _check_added(command: AddVoter, raft: RaftStatus) -> None:
    observers = [peer for peer in raft.peers if not peer.is_voter and peer.reachable]
    known = {(peer.node_id, peer.directory_id): peer for peer in observers}
    observer = known.get((command.voter_id, command.directory_id))
    if observer is None:
        linked = ", ".join(
            f"{peer.node_id} with directory {uuid_text(peer.directory_id)}" for peer in observers
        )
        raise InvalidRequest(
            f"controller {command.voter_id} with directory {uuid_text(command.directory_id)} does not follow the leader "
            f"as an observer; {f'those who do are {linked}' if linked else 'nobody does'}: start it first"
        )
    if not _is_caught_up(observer):
        behind = (
            "by an unknown number of" if observer.entries_behind is None else str(observer.entries_behind)
        )
        raise NotCaughtUp(
            f"controller {command.voter_id} is {behind} entries behind; it may vote once it held the whole log within "
            f"the last {VOTER_CAUGHT_UP_MS} ms"
        )


def _check_left(command: RemoveVoter, raft: RaftStatus, node_id: NodeId) -> None:
    left = [voter for voter in raft.voters if voter != command.voter_id]
    peers = {peer.node_id: peer for peer in raft.peers if peer.is_voter}
    fit = [voter for voter in left if voter == node_id or (voter in peers and _is_caught_up(peers[voter]))]
    if 2 * len(fit) <= len(left):
        others = ", ".join(str(voter) for voter in sorted(set(left) - set(fit)))
        raise InvalidRequest(
            f"without controller {command.voter_id} no majority could decide: of the {len(left)} voters left, "
            f"{others} cannot be reached or lag behind; bring them back first"
        )


def _is_caught_up(peer: PeerStatus) -> bool:
    ago = peer.last_caught_up_ms_ago
    return peer.reachable and ago is not None and ago <= VOTER_CAUGHT_UP_MS


DECISIONS: Final = (
    Decides(AddVoter, "AddRaftVoter", VotersChanged, ALTERS_CLUSTER, add_voter),
    Decides(RemoveVoter, "RemoveRaftVoter", VotersChanged, ALTERS_CLUSTER, remove_voter),
)
OTHER_OPERATIONS: Final = {"DescribeQuorum": DESCRIBES, "TransferLeadership": ALTERS_CLUSTER}
