"""Watches rare branches of the shipped code from outside, and counts each under its marker (`markers`).

What takes a branch is wrapped for a while, and does the same as before: no run is another one because it is watched.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, Final, TypeAlias
from unittest.mock import patch

import quorum.decide.elections
import quorum.decide.quorum
import quorum.raft.journal.journal
from broker_agent.cache import Cache
from metadata_log.errors import ChangePending, DamagedFile, NotController, OffsetCompacted, Rejected
from metadata_log.image.results import RequestResults
from metadata_log.log.segmented_log import SegmentedLog
from quorum.controller.changes import Changes
from quorum.controller.controller import Controller
from quorum.controller.sessions import Sessions
from quorum.controller.waiters import Waiters
from quorum.decide.elections import Election
from quorum.fetch.polls import Polls
from quorum.fetch.service import FetchService
from quorum.log.snapshot_keeper import SnapshotKeeper
from quorum.pace.turns import Turns
from quorum.raft.applied_entries import AppliedEntries
from quorum.raft.belief import Belief
from quorum.raft.elections import Elections
from quorum.raft.follower_log import FollowerLog
from quorum.raft.guard import Guard
from quorum.raft.journal.journal import Journal
from quorum.raft.link import Link
from quorum.raft.log_start import LogStart
from quorum.raft.quorum_state import QuorumState
from quorum.raft.raft_log import Role
from quorum.raft.raw_node import RawNode
from quorum.raft.read_rounds import ReadRounds
from quorum.raft.transfer import LeadershipTransfer
from quorum.raft.waiting_reads import WaitingReads
from tests.simulation.world.network import SimulatedTransport

Sometimes: TypeAlias = Callable[[str], None]
Shipped: TypeAlias = Callable[..., Any]
Wrap: TypeAlias = Callable[[Sometimes, Shipped], Shipped]


def _when(name: str, is_reached: Callable[..., bool]) -> Wrap:
    """Count calls whose arguments, before the call, are of a kind."""

    def wrap(sometimes: Sometimes, shipped: Shipped) -> Shipped:
        @wraps(shipped)
        def watched(*args: Any, **rest: Any) -> Any:
            if is_reached(*args, **rest):
                sometimes(name)
            return shipped(*args, **rest)

        return watched

    return wrap


def _returns(name: str, is_reached: Callable[..., bool]) -> Wrap:
    """Count calls whose result, and then arguments, are of a kind."""

    def wrap(sometimes: Sometimes, shipped: Shipped) -> Shipped:
        @wraps(shipped)
        def watched(*args: Any, **rest: Any) -> Any:
            result = shipped(*args, **rest)
            if is_reached(result, *args):
                sometimes(name)
            return result

        return watched

    return wrap


def _raises(name: str, error: type[Exception]) -> Wrap:
    def wrap(sometimes: Sometimes, shipped: Shipped) -> Shipped:
        @wraps(shipped)
        def watched(*args: Any, **rest: Any) -> Any:
            try:
                return shipped(*args, **rest)
            except error:
                sometimes(name)
                raise

        return watched

    return wrap


def _raises_later(name: str, error: type[Exception]) -> Wrap:
    """Count coroutines that raise an error."""

    def wrap(sometimes: Sometimes, shipped: Shipped) -> Shipped:
        @wraps(shipped)
        async def watched(*args: Any, **rest: Any) -> Any:
            try:
                return await shipped(*args, **rest)
            except error:
                sometimes(name)
                raise

        return watched

    return wrap


def _returns_later(name: str, is_reached: Callable[..., bool]) -> Wrap:
    """Count coroutines whose result, and then arguments, are of a kind."""

    def wrap(sometimes: Sometimes, shipped: Shipped) -> Shipped:
        @wraps(shipped)
        async def watched(*args: Any, **rest: Any) -> Any:
            result = await shipped(*args, **rest)
            if is_reached(result, *args):
                sometimes(name)
            return result

        return watched

    return wrap


def _always(name: str) -> Wrap:
    return _when(name, lambda *_args, **_rest: True)


def _is_true(result: object, *_args: object) -> bool:
    return bool(result)


def _prepared(sometimes: Sometimes, shipped: Shipped) -> Shipped:
    """Tell a snapshot that could not be fetched from one that is not needed any more."""

    @wraps(shipped)
    async def watched(start: LogStart, *args: Any) -> bool:
        before = start._not_fetched
        stands: bool = await shipped(start, *args)
        if start._not_fetched is not before:
            sometimes("snapshot fetch failed")
        elif not stands:
            sometimes("log caught up during a snapshot fetch")
        return stands

    return watched


def _steps_down(sometimes: Sometimes, shipped: Shipped) -> Shipped:
    @wraps(shipped)
    def watched(state: QuorumState, *args: Any) -> None:
        if state.engine.role is Role.LEADER:
            is_stalled = state.disk_stalled
            sometimes(
                "leader steps down on a stalled disk" if is_stalled else "leader deposed by a higher term"
            )
        shipped(state, *args)

    return watched


def _gives_up_leading(guard: Guard, role: Role) -> bool:
    replication, state = guard.replication, guard.state
    return role is not Role.LEADER and bool(replication.peers) and replication.unheard_at() <= state.now


def _is_late(transfer: LeadershipTransfer) -> bool:
    under_way = transfer._transfer
    return under_way is not None and transfer._state.now >= under_way.until


def _believes_stranger(is_admitted: bool, belief: Belief, _sender: object, message: dict[str, Any]) -> bool:
    return is_admitted and message["type"] != "next_node_idx" and not belief._is_empty()


def _has_waiting(reads: WaitingReads, _why: str) -> bool:
    return bool(reads._for_next_round or reads._for_answers or reads._for_apply)


def _has_older(waiters: Waiters, controller_epoch: int, _error: object) -> bool:
    return any(waiter.controller_epoch < controller_epoch and not waiter.future.done() for waiter in waiters)


def _elected(sometimes: Sometimes, shipped: Shipped) -> Shipped:
    @wraps(shipped)
    def watched(*args: Any, **rest: Any) -> tuple[int, bool]:
        elected: tuple[int, bool] = shipped(*args, **rest)
        if not elected[1]:
            is_asked = rest["election"] is Election.UNCLEAN
            sometimes("partition elected uncleanly" if is_asked else "last known leader elected")
        return elected

    return watched


_WATCHED: Final[tuple[tuple[Any, str, Wrap], ...]] = (
    (Journal, "deleteEntriesFrom", _when("follower truncates its log", lambda log, at: 0 < at < len(log))),
    (Journal, "clear", _when("log replaced by a snapshot", lambda log: len(log) > 0)),
    (Guard, "role_changed", _when("leader steps down without a majority", _gives_up_leading)),
    (QuorumState, "step_down", _steps_down),
    (
        LeadershipTransfer,
        "leave_to",
        _when("leader without a vote hands over", lambda _transfer, target: target is not None),
    ),
    (LeadershipTransfer, "give_up_if_late", _when("transfer given up", _is_late)),
    (Elections, "has_live_leader", _returns("vote refused because a leader is alive", _is_true)),
    (Elections, "waits_for_own_delay", _returns("delayed node waits a heartbeat longer", _is_true)),
    (FollowerLog, "on_arriving", _always("bytes of a large message keep a leader")),
    (Elections, "may_stand", _returns("candidacy waits for a slow disk", lambda may, *_: not may)),
    (Belief, "_admits_stranger", _returns("stranger ignored", lambda admitted, *_: not admitted)),
    (Belief, "_admits_stranger", _returns("stranger believed after a silence", _believes_stranger)),
    (FollowerLog, "holds", _returns("offered snapshot is held already", _is_true)),
    (LogStart, "prepare", _prepared),
    (LogStart, "ensure", _raises_later("start without its snapshot refused", DamagedFile)),
    (AppliedEntries, "has_tail", _returns("log applied before leading", _is_true)),
    (RawNode, "check_change", _raises("second change of voters refused", ChangePending)),
    (
        quorum.decide.quorum,
        "check_none_pending",
        _raises("second change of voters refused", ChangePending),
    ),
    (
        quorum.decide.quorum,
        "check_change",
        _raises("change of voters refused by the quorum's state", Rejected),
    ),
    (
        quorum.raft.journal.journal,
        "recover",
        _returns("torn journal batch cut", lambda found, *_: found.torn_bytes > 0),
    ),
    (RequestResults, "evicted", _returns("result evicted", lambda after, before, **_: after is not before)),
    (Controller, "_repeated", _always("request repeated and answered again")),
    (Controller, "_fate_after_restore", _always("waiter ended by a snapshot")),
    (
        Controller,
        "_fate_after_restore",
        _returns("waiter answered from a snapshot", lambda fate, *_: fate is None),
    ),
    (Waiters, "fail_before", _when("waiter ended by another claim", _has_older)),
    (Waiters, "_overdue", _when("write overdue", lambda _waiters, waiter: waiter.wrote)),
    (Controller, "_may_refuse", _returns("late batch refused", _is_true)),
    (Turns, "in_slices", _raises_later("leader deposed amid a decision", NotController)),
    (
        Turns,
        "in_slices",
        _returns_later("large decision overtaken", lambda made, *_: made is None),
    ),
    (WaitingReads, "fail", _when("read refused at a deposed leader", _has_waiting)),
    (ReadRounds, "must_refuse", _returns("read refused without a majority", _is_true)),
    (Sessions, "grant_all", _when("session checks late", lambda sessions, *_: bool(sessions._sessions))),
    (
        Changes,
        "take_over",
        _when("fencing goes on under the next controller", lambda _changes, image: bool(image.begun)),
    ),
    (Controller, "until_in_service", _always("poll held until its broker is out of service")),
    (Polls, "_refuse", _when("poll refused by a resigning controller", lambda _, polls: bool(polls))),
    (FetchService, "_deliver_cold", _always("poll answered from segments")),
    (SimulatedTransport, "drop", _always("link dropped by its reader")),
    (Link, "drop", _always("link dropped by its reader")),
    (SegmentedLog, "read", _raises("poll overtaken by a retention", OffsetCompacted)),
    (SegmentedLog, "forget", _always("log shortened by a retention")),
    (SegmentedLog, "restart_at", _always("segments restart at a snapshot")),
    (Cache, "unlink", _always("broker's cache shortened by a snapshot")),
    (SnapshotKeeper, "_attempt", _returns_later("snapshot not written", lambda taken, *_: not taken)),
    (quorum.decide.elections, "_elect", _elected),
)


@contextmanager
def watched(sometimes: Sometimes) -> Iterator[None]:
    """Count for a while what the shipped code reaches."""
    with ExitStack() as patched:
        for holder, name, wrap in _WATCHED:
            patched.enter_context(patch.object(holder, name, wrap(sometimes, getattr(holder, name))))
        yield
