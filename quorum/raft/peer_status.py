"""Pure: the status of the other controllers, as this node sees them."""

from quorum.raft.guard import Guard
from quorum.raft.progress import NEVER
from quorum.raft.raft_log import Member, PeerStatus


def peer_statuses(guard: Guard, now: float) -> tuple[PeerStatus, ...]:
    """Return the status of the other voters in order of id, then of the linked observers."""
    state = guard.state
    voters = [Member(*item) for item in sorted(state.voters.items())]
    observers = [Member(*item) for item in sorted(state.links.items()) if Member(*item) not in voters]
    return tuple(_status(guard, peer, now) for peer in (*voters, *observers) if peer != state.me)


def _status(guard: Guard, peer: Member, now: float) -> PeerStatus:
    log = guard.state.log
    last = log[-1][1] if len(log) else 0
    progress = guard.replication.peers.get(peer.node_id)
    if progress is not None and progress.directory_id != peer.directory_id:
        progress = None
    return PeerStatus(
        node_id=peer.node_id,
        directory_id=peer.directory_id,
        is_voter=guard.state.counts(peer),
        reachable=guard.state.links.get(peer.node_id) == peer.directory_id,
        entries_behind=None if progress is None else last - progress.match,
        forgot=progress is not None and progress.forgot,
        last_caught_up_ms_ago=None if progress is None else ms_ago(progress.caught_up_at, now),
    )


def ms_ago(then: float, now: float) -> int | None:
    """Return how long ago something happened, None if it never did."""
    return None if then == NEVER else round(now - then)
