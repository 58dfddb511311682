"""Pure: the status of the other controllers, as this node sees them, and who is locked out by its term."""

from typing import Final

from metadata_log.ids import uuid_text
from metadata_log.limits import OBSERVER_MS
from quorum.raft.belief import SECOND_LEADER_MS
from quorum.raft.guard import Guard
from quorum.raft.progress import NEVER, Progress
from quorum.raft.raft_log import Member, PeerStatus
from quorum.raft.term_pace import REFUSED_AGAIN_MS

CLAIMS_MS: Final = 1_000
_CURE: Final = "or replace the voter that is alone with its term: ops/runbooks/locked-out-voter.md"


def peer_statuses(guard: Guard, now: float) -> tuple[PeerStatus, ...]:
    """Return the status of the other voters in order of id, then of the linked observers."""
    state = guard.state
    voters = [Member(*item) for item in sorted(state.voters.items())]
    observers = [Member(*item) for item in sorted(state.links.items()) if Member(*item) not in voters]
    return tuple(_status(guard, peer, now) for peer in (*voters, *observers) if peer != state.me)


def gone_observers(guard: Guard, now: float) -> tuple[PeerStatus, ...]:
    """Return the status of the observers whose links ended, for as long as Kafka remembers one: OBSERVER_MS."""
    return tuple(
        _status_of(guard, member, progress, now)
        for member, progress in sorted(guard.replication.gone.items())
        if now - progress.heard_at < OBSERVER_MS and not guard.state.counts(member)
    )


def _status(guard: Guard, peer: Member, now: float) -> PeerStatus:
    progress = guard.replication.peers.get(peer.node_id)
    if progress is not None and progress.directory_id != peer.directory_id:
        progress = None
    return _status_of(guard, peer, progress, now)


def _status_of(guard: Guard, peer: Member, progress: Progress | None, now: float) -> PeerStatus:
    log = guard.state.log
    last = log[-1][1] if len(log) else 0
    return PeerStatus(
        node_id=peer.node_id,
        directory_id=peer.directory_id,
        is_voter=guard.state.counts(peer),
        reachable=guard.state.links.get(peer.node_id) == peer.directory_id,
        entries_behind=None if progress is None else last - progress.match,
        forgot=progress is not None and progress.forgot,
        last_caught_up_ms_ago=None if progress is None else ms_ago(progress.caught_up_at, now),
        last_fetch_ms_ago=None if progress is None else ms_ago(progress.answered_at, now),
        unheard_ms=guard.elections.owes_ms(peer.node_id, now)
        if progress is None
        else ms_ago(progress.heard_at, now),
        locked_out=_why_locked_out(guard, peer, now),
    )


def _why_locked_out(guard: Guard, peer: Member, now: float) -> str | None:
    """Return why a voter's messages are refused for its term, and the cure; None if they are not."""
    pace = guard.belief.pace
    if peer not in pace.refused:
        return None
    own = guard.state.engine.term
    refused = pace.refused_now(peer, own, now)
    if refused is None:
        return None
    left_s = max(0, round((refused.at + refused.wait_ms - now) / 1000))
    return (
        f"its messages are refused: its term {refused.term} is {refused.term - own} above this node's. Leave both running: "
        f"it is accepted in about {left_s} s; {_CURE}"
    )


def why_led_below(guard: Guard, now: float) -> str | None:
    """Return why this node does not follow a leader that there is, and the cure; None if it follows, or there is none."""
    state, found = guard.state, guard.belief.led_below
    if found is None or state.leader is not None or now - found[2] > REFUSED_AGAIN_MS:
        return None
    leader, term, _ = found
    gap = state.engine.term - term
    if gap <= 0:
        return None
    where = f"controller {leader} leads in term {term}, which is {gap} below this node's, so this node does not follow it"
    if state.is_voter:
        return f"{where}. `quorum status` of the others says when they accept this node's term; {_CURE}"
    return (
        f"{where}. An observer's term deposes no leader: it follows after {gap} more elections (each `quorum transfer` is "
        "one), or at once if its data directory is moved away and formatted anew"
    )


def why_two_quorums(guard: Guard, now: float) -> str | None:
    """Return which stranger claims to lead, again and again, while this node leads or follows another; None: none does.

    A voter that was just removed may claim it once more.
    """
    found, state = guard.belief.second_leader, guard.state
    if found is None or now - found.last > SECOND_LEADER_MS or found.last - found.first < CLAIMS_MS:
        return None
    return (
        f"controller {found.member.node_id} with directory {uuid_text(found.member.directory_id)} claims to lead this "
        f"cluster in term {found.term}, and this node's log names it as no voter; this node is in term {state.engine.term}. "
        "Two quorums run under one cluster id: ops/runbooks/two-histories.md"
    )


def ms_ago(then: float, now: float) -> int | None:
    """Return how long ago something happened, None if it never did."""
    return None if then == NEVER else round(now - then)
