"""Pure: whether the quorum as Raft sees it can bear a change of voters; the image's rules are in `decide/quorum.py`.

Source: KIP-853 (an observer must have caught up); that a removal leaves a working majority is asked by us alone.
"""

from metadata_log.errors import ChangePending, InvalidRequest, NotCaughtUp
from metadata_log.ids import NodeId, uuid_text
from metadata_log.limits import VOTER_CAUGHT_UP_MS
from metadata_log.wire.commands import AddVoter, RemoveVoter
from quorum.raft.raft_log import PeerStatus, RaftStatus


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
