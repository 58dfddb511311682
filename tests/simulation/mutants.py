"""Seeded bugs: each switches one rule of the shipped code off, and simulated lives or a directed test must notice.

    python -m tests.simulation --mutants [--only NAME] [--markdown docs/mutants.md]

A mutant is a few attributes of shipped classes, replaced. It is caught by simulated lives within a bound of seeds, or, where
chance hardly comes by, by a directed test that fails under it; `Directed` names the test, which runs in a process of its own
with this module as a plugin of pytest. Without a mutant the same lives and tests pass: that is the rest of the suite.
"""

import argparse
import importlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from metadata_log.codec import read_header
from metadata_log.errors import ChangePending
from quorum.log.topic_feeds import filter_of
from tests.simulation import data_mutants, decision_mutants

VARIABLE: Final = "METAQUORUM_MUTANT"
"""Which mutant the plugin puts in place."""
SECONDS: Final = 12.0
TIMEOUT_S: Final = 300
_GUARD_TESTS: Final = "tests/unit/quorum/raft/test_guard_rules.py"
_ADAPTER_TESTS: Final = "tests/unit/quorum/raft/test_adapter.py"
_VOTERS_TESTS: Final = "tests/unit/quorum/raft/test_voters.py"
_JOURNAL_TESTS: Final = "tests/unit/quorum/raft/journal/test_journal.py"
_CONTROLLER_TESTS: Final = "tests/unit/quorum/test_controller.py"
_CONNECTION_TESTS: Final = "tests/unit/quorum/http/test_poll_connection.py"
_FETCH_TESTS: Final = "tests/unit/quorum/fetch/test_service.py"
_ISR_TESTS: Final = "tests/unit/quorum/decide/test_partitions.py"
_KAFKA_TESTS: Final = "tests/unit/quorum/whatif/test_kafka_scripts.py"
_KAFKA_CASE: Final = f"{_KAFKA_TESTS}::test_a_case_is_answered_as_kafka_answers_it"
_SWEEP_TESTS: Final = "tests/unit/quorum/decide/test_sweeps.py"
_DELETED_TESTS: Final = "tests/unit/quorum/decide/test_deleted_topics.py"
_ITEM_TESTS: Final = "tests/unit/quorum/decide/test_items.py"
_TOPIC_TESTS: Final = "tests/unit/quorum/decide/test_topics.py"
_FORWARDING_TESTS: Final = "tests/unit/broker_agent/test_forwarding.py"
_HOST_TESTS: Final = "tests/unit/broker_agent/test_dataless_host.py"
_REPLICAS_TESTS: Final = "tests/unit/broker_agent/test_replicas.py"
_REPORTS_TESTS: Final = "tests/unit/broker_agent/test_reports.py"
_AGENT_HOST_TESTS: Final = "tests/unit/broker_agent/test_agent_host.py"
_SAMPLE_HOST_TESTS: Final = "tests/unit/support/test_sample_host.py"
_DIGEST_TESTS: Final = "tests/unit/metadata_log/test_state_digest.py"
_CONTROLLERS_TESTS: Final = "tests/unit/quorum/decide/test_controllers.py"
_REGISTRATION_TESTS: Final = "tests/unit/quorum/test_registration.py"
_PRODUCER_IDS_TESTS: Final = "tests/unit/quorum/decide/test_producer_ids.py"
_SERVER_TESTS: Final = "tests/unit/quorum/test_server.py"


@dataclass(frozen=True, slots=True)
class Seeds:
    """Simulated lives with seeds from 1 on, `most` at most."""

    profile: str
    most: int
    voters: int = 3
    observers: int = 0
    brokers: int = 3
    raft_only: bool = False

    def __str__(self) -> str:
        level = "raft" if self.raft_only else "cluster"
        brokers = "" if self.brokers == 3 else f", {self.brokers} brokers"
        return f"seeds, {level}, {self.profile}, {self.voters} voters{brokers}"


@dataclass(frozen=True, slots=True)
class Directed:
    """A test that fails under the mutant."""

    test: str

    def __str__(self) -> str:
        return f"`{self.test.rsplit('/', 1)[-1]}`"


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    breaks: str
    target: str
    """module:Class.attribute, or module:attribute."""
    replacement: Callable[[Any], Any]
    """Given what was there, returns what stands there instead."""
    caught_by: Seeds | Directed


def _always(value: object) -> Callable[[Any], Any]:
    """Replace a method by one that returns `value`."""
    return lambda _original: lambda *_args, **_kwargs: value


# --- replacements that need more than a value


def _names_the_deleted(original: Any) -> Any:
    def named(topics: Any, name: str) -> Any:
        deleted = (each.topic for each in topics.deleted.values() if each.topic.name == name)
        return original(topics, name) or next(deleted, None)

    return named


def _starts_with_any_image(_original: Any) -> Any:
    return lambda replicas, _image, _epoch: replicas.phase.value == "CATCHING_UP"


def _forgets_what_the_host_knew(start: Any) -> Any:
    def mutant(replicas: Any, image: Any, held: Any, *, known_offset: int = 0) -> None:
        start(replicas, image, held)
        replicas.strays_withheld = replicas._are_strays_told = False

    return mutant


def _follows_on_a_replaced_image(on_delta: Any) -> Any:
    def mutant(replicas: Any, before: Any, after: Any, delta: Any) -> Any:
        return [] if delta is None else on_delta(replicas, before, after, delta)

    return mutant


def _deletes_last(on_delta: Any) -> Any:
    def mutant(replicas: Any, before: Any, after: Any, delta: Any) -> Any:
        told = on_delta(replicas, before, after, delta)
        return sorted(told, key=lambda one: type(one).__name__ == "Delete")

    return mutant


def _tells_of_elections_alone(on_delta: Any) -> Any:
    def mutant(replicas: Any, before: Any, after: Any, delta: Any) -> Any:
        def is_election(one: Any) -> bool:
            was = before.topics.partition(one[:2])
            return was is None or was.leader_epoch != one.partition.leader_epoch

        told = on_delta(replicas, before, after, delta)
        return [one for one in told if type(one).__name__ != "Lead" or is_election(one)]

    return mutant


def _wants_no_fence(_original: Any) -> Any:
    def mutant(agent: Any, session: Any) -> None:
        session.want_fence = agent._want_fence

    return mutant


def _retries_every_error(isr_reports: Any) -> Any:
    return partial(isr_reports, final_errors=frozenset())


def _the_committed_isr(_original: Any) -> Any:
    return property(lambda leading: {*leading.isr})


def _waits_to_the_end(_original: Any) -> Any:
    async def mutant(_self: Any, work: Coroutine[Any, Any, None]) -> bool:
        await work
        return True

    return mutant


def _commits_with_the_news(_original: Any) -> Any:
    return lambda _guard, message: {
        "type": "append_entries",
        "term": message["term"],
        "commit_index": message["index"],
        "serialized": None,
    }


def _only_what_is_applied(_original: Any) -> Any:
    def change_in_force(in_force: Any, applied_index: int) -> Any:
        return in_force._newest_change(max([applied_index, *in_force._log.voter_changes[:1]]))

    return change_in_force


def _under_another_id(original: Any) -> Any:
    return lambda registration, _request_id: original(registration, os.urandom(16))


def _trusts_the_cache(original: Any) -> Any:
    def recover(disk: Any, file_bytes: int) -> Any:
        with patch("quorum.raft.journal.format.JournalFile.write_header", lambda _file: None):
            return original(disk, file_bytes)

    return recover


def _applies_before_its_sync(apply: Any) -> Any:
    def at_once(applied: Any, now: float) -> bool:
        log, synced_index = applied._state.log, applied._state.log.synced_index
        log.synced_index = log[-1][1]
        try:
            goes_on: bool = apply(applied, now)
        finally:
            log.synced_index = synced_index
        return goes_on

    return at_once


def _takes_names_of_now(_original: Any) -> Any:
    return lambda feeds, _offset, *, names, ids: filter_of(feeds._image, names, ids)


def _judges_what_it_lacks(reply: Any) -> Any:
    def judged(service: Any, position: Any) -> Any:
        with patch.object(type(service._controller), "is_active", new=True):
            return reply(service, position)

    return judged


def _asks_without_patience(probe: Any) -> Any:
    def asks(replication: Any, peer: Any, progress: Any) -> None:
        progress.asked_at = float("-inf")
        probe(replication, peer, progress)

    return asks


def _fences_unheard(fence: Any) -> Any:
    def unheard(controller: Any, *arguments: Any) -> bool:
        ends = dict(controller._broker_ends)
        done: bool = fence(controller, *arguments)
        if not done:
            controller._broker_ends = ends
        return done

    return unheard


def _keeps_walks(contact: Any) -> Any:
    def keeping(sessions: Any, *arguments: Any, **rest: Any) -> None:
        walks = dict(sessions._walks)
        contact(sessions, *arguments, **rest)
        sessions._walks = walks

    return keeping


def _forgets_who_was_heard_of(leaving_after: Any) -> Any:
    def after(leaving: Any, batch: Any) -> Any:
        cause = batch.envelope.cause
        return (
            leaving
            if cause is not None and cause.code == "BROKER_HEARD_OF"
            else leaving_after(leaving, batch)
        )

    return after


def _grants_everybody(begin: Any) -> Any:
    return lambda sessions, image, now_ms, silent: begin(sessions, image, now_ms)


def _refuses_the_third_change(change_voters: Any) -> Any:
    made: dict[int, int] = {}

    async def change(controller: Any, command: Any, **rest: Any) -> Any:
        if made.get(id(controller), 0) >= 2:
            raise ChangePending("another change of voters is in flight; ask again when it is in force")
        outcome = await change_voters(controller, command, **rest)
        made[id(controller)] = made.get(id(controller), 0) + 1
        return outcome

    return change


def _without_the_first_frame(read: Any) -> Any:
    def less(log: Any, from_offset: int, **bounds: Any) -> bytes:
        frames: bytes = read(log, from_offset, **bounds)
        return frames[read_header(frames).frame_bytes :] if frames else frames

    return less


def _always_hurries(hurries: Any) -> Any:
    def again(log: Any, now: float) -> Any:
        log._only_began_sync = False
        return hurries(log, now)

    return again


def _counts_who_forgot(count_synced: Any) -> Any:
    def count(replication: Any) -> None:
        for progress in replication.peers.values():
            progress.forgot = False
        count_synced(replication)

    return count


def _installs_at_once(original: Any) -> Any:
    def accept(start: Any, leader: Any, news: Any) -> Any:
        with patch("quorum.raft.journal.journal.Journal.is_begun", new=True):
            return original(start, leader, news)

    return accept


def _may_always_be_new(recover: Any) -> Any:
    return lambda disk, file_bytes, **_: recover(disk, file_bytes, may_be_new=True)


def _forgets_who_voted(original: Any) -> Any:
    def stand_on(in_force: Any, voters: Any) -> None:
        founders = in_force._before_log
        original(in_force, voters)
        in_force._before_log = founders

    return stand_on


def _leads_before_its_claim_is_applied(original: Any) -> Any:
    def claim(controller: Any) -> None:
        original(controller)
        controller._active = True

    return claim


def _waits_under_any_claim(_original: Any) -> Any:
    def keep(waiters: Any, controller_epoch: int, _error: Any) -> None:
        kept = [waiter._replace(controller_epoch=controller_epoch) for waiter in waiters]
        waiters._waiting.clear()
        waiters._waiting.extend(kept)

    return keep


def _refuses_at_once(original: Any) -> Any:
    async def carried_out(controller: Any, begun: Any, **options: Any) -> Any:
        if begun.batch is None:
            begun.decision.result()
        return await original(controller, begun, **options)

    return carried_out


def _passes_over(error: str) -> Callable[[Any], Any]:
    """Return a refusal of all but one error."""

    def refusal(original: Any) -> Any:
        def passing(*args: Any) -> Any:
            found = original(*args)
            return None if found == error else found

        return passing

    return refusal


def _whatever_its_epoch(original: Any) -> Any:
    return lambda context, broker_id, _epoch: original(context, broker_id, -1)


def _eligible_between_parts(original: Any) -> Any:
    return lambda context, *member: original(replace(context, ineligible=frozenset()), *member)


def _elects_uncleanly(original: Any) -> Any:
    unclean = importlib.import_module("quorum.decide.elections").Election.UNCLEAN
    return lambda electorate, target, *partition: original(electorate, target, *partition[:3], unclean)


def _completes_at_once(_original: Any) -> Any:
    return lambda replicas, isr, _adding, removing: (
        tuple(each for each in replicas if each not in removing),
        tuple(each for each in isr if each not in removing),
        (),
        (),
    )


def _leaves_cleanly(original: Any) -> Any:
    decision = importlib.import_module("quorum.decide.decision")
    return lambda *args: replace(original(*args), kind=decision.WalkKind.LEAVES)


def _in_one_turn(original: Any) -> Any:
    return lambda sweep, context: original(sweep, replace(context, is_turn_over=lambda: False))


def _recovers_never(original: Any) -> Any:
    return lambda electorate, target, *partition: original(
        electorate, target._replace(recovery_state=None), *partition
    )


def _forgets_requests(original: Any) -> Any:
    async def submit(controller: Any, command: Any, *, actor: Any, request_id: Any) -> Any:
        return await original(controller, command, actor=actor, request_id=None)

    return submit


def _takes_any_batch_at_its_offset(_original: Any) -> Any:
    return lambda image, batch: batch.base_offset == image.end_offset


async def _at_once(*_args: object) -> None:
    """In place of a wait."""


def _reads_at_once(_original: Any) -> Any:
    return _at_once


class _Unproved:
    """What stands for a controller's Raft, or for the controller, in a fetch service whose answers rest on no proof."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        if name == "read_index":
            return _at_once
        return _Unproved(self._real.raft) if name == "raft" else getattr(self._real, name)


def _fetches_at_once(original: Any) -> Any:
    def init(service: Any, **parts: Any) -> None:
        original(service, **parts)
        service._controller = _Unproved(service._controller)

    return init


def _forgets_the_last(original: Any) -> Any:
    def take_before(waiting: Any, end_offset: int) -> Any:
        return original(waiting, end_offset)[:-1]

    return take_before


def _runs_one_slice(_original: Any) -> Any:
    def run(slices: Any) -> None:
        slices._is_due = False
        for _ in range(slices.pieces_max):
            slices._step()

    return run


def _runs_all_slices(_original: Any) -> Any:
    def run(slices: Any) -> None:
        slices._is_due = False
        while slices._step():
            pass

    return run


def _packs_whatever_waits(original: Any) -> Any:
    limits = importlib.import_module("metadata_log.limits")

    def take(proposals: Any) -> Any:
        with patch("quorum.raft.proposals.RAFT_ENTRY_SHARED_BYTES", limits.RAFT_ENTRY_BYTES_MAX):
            return original(proposals)

    return take


def _counts_with_the_batch(original: Any) -> Any:
    def behind(before: Any, touched: Any) -> Any:
        before.digest_buckets  # noqa: B018 (who asks has them counted)
        return original(before, touched)

    return staticmethod(behind)


def _forgets_snapshots(original: Any) -> Any:
    def check(data: Path, **facts: Any) -> None:
        original(data, **(facts | {"has_snapshots": False}))

    return check


def _copies_unsynced(original: Any) -> Any:
    def copy(path: Path) -> Path:
        with patch("os.fsync", lambda _descriptor: None):
            kept: Path = original(path)
        return kept

    return copy


def _counts_from_now(_original: Any) -> Any:
    def on_fetched(session: Any, _now_ms: int, call: Any, _answer: Any) -> None:
        # An answer arrives as late as one may: at the end of the patience it was given.
        session._answered_sent_ms = call.sent_ms + call.silence_max_ms
        session._succeeded()

    return on_fetched


def _serves_what_it_knew(original: Any) -> Any:
    def on_fetched(session: Any, now_ms: int, call: Any, answer: Any) -> None:
        original(session, now_ms, call, answer)
        session._serves_from = 0

    return on_fetched


def _looks_through_nothing(_original: Any) -> Any:
    def begin(sessions: Any, image: Any, now_ms: int) -> None:
        sessions.clear()
        sessions.grant_all(image, now_ms)

    return begin


def _knows_any_position(original: Any) -> Any:
    def reply_to(position: Any, *, log: Any, high_watermark: int, **other: Any) -> Any:
        if log.log_start_offset <= position.offset < high_watermark:
            return importlib.import_module("quorum.fetch.position").SendDelta(position.offset)
        return original(position, log=log, high_watermark=high_watermark, **other)

    return reply_to


def _votes_in_secret(original: Any) -> Any:
    def set_current_term(journal: Any, term: int, vote: Any) -> None:
        original(journal, term, None)
        journal._vote = vote

    return set_current_term


def _keeps_terms_to_itself(_original: Any) -> Any:
    def set_current_term(journal: Any, term: int, vote: Any) -> None:
        journal._term, journal._vote = term, vote

    return set_current_term


def _numbers_begin_anew(original: Any) -> Any:
    def init(journal: Any, *args: Any, **kwargs: Any) -> None:
        original(journal, *args, **kwargs)
        journal._number = 0

    return init


def _every_loss_is_the_leaders(original: Any) -> Any:
    def lost(guard: Any, node_id: Any, now_ms: float, *, by_peer: bool) -> None:
        del by_peer
        original(guard, node_id, now_ms, by_peer=True)

    return lost


def _evicts_by_its_own_clock(original: Any) -> Any:
    def evicted(results: Any, *, now_ms: int) -> Any:
        del now_ms
        return original(results, now_ms=time.time_ns() // 1_000_000)

    return evicted


def _trims_before_the_pointer(_original: Any) -> Any:
    async def compact(log: Any, pointer: Any) -> None:
        start = log._log_start
        async with start._lock:
            if pointer.index > start._journal.snapshot_index:
                if start._trim(pointer):
                    log._wake.set()
                await start._replace_pointer(pointer)

    return compact


def _lets_go_of_sessions(_original: Any) -> Any:
    return lambda *_args, **_kwargs: None


def _campaigns_at_once(_original: Any) -> Any:
    return lambda elections: elections.campaign()


def _trusts_its_end(_original: Any) -> Any:
    return lambda journal: journal[-1][1] if len(journal) else 1


def _keeps_the_unproved(_original: Any) -> Any:
    return lambda reads: reads._round is None and reads._state.engine.role.value == "leader"


def _asks_for_its_own_term(original: Any) -> Any:
    def on_pre_vote(elections: Any, source: Any, message: Any) -> None:
        if message["term"] == elections._state.engine.term:
            elections._send(source, {"type": "pre_vote_response", "term": message["term"], "granted": False})
        else:
            original(elections, source, message)

    return on_pre_vote


def _proved_for_good(original: Any) -> Any:
    def delete(journal: Any, *args: Any) -> None:
        proved = journal.proved_changes
        original(journal, *args)
        journal.proved_changes = proved

    return delete


def _reads_files_of_any_size(original: Any) -> Any:
    return lambda disk, _file_bytes: original(disk, 0)


_L: Final = "quorum.raft.adapter:PySyncObjLog"
_J: Final = "quorum.raft.journal.journal:Journal"
_C: Final = "quorum.controller:Controller"

MUTANTS: Final = (
    Mutant(
        "member",
        "a wiped voter's acknowledgements count as those of the voter it was",
        "quorum.raft.quorum_state:QuorumState.counts",
        _always(True),
        Directed(f"{_GUARD_TESTS}::test_member_a_wiped_voter_is_not_counted"),
    ),
    Mutant(
        "member-by-id",
        "an id is taken for a voter, whatever its disk",
        "quorum.raft.quorum_state:QuorumState.counts",
        lambda _: lambda state, sender: sender.node_id in state.voters,
        Seeds("members", 30, observers=2, raft_only=True),
    ),
    Mutant(
        "changes-at-once",
        "a change of voters is proposed while another is in flight",
        "quorum.raft.adapter:PySyncObjLog._change_pending",
        _always(False),
        Directed(f"{_VOTERS_TESTS}::test_one_change_at_a_time"),
    ),
    Mutant(
        "change-of-two",
        "two voters change at once",
        "quorum.raft.adapter:check_one_change",
        _always(None),
        Directed(f"{_VOTERS_TESTS}::test_two_voters_do_not_change_at_once"),
    ),
    Mutant(
        "change-unproved",
        "a leader proposes a change before it has committed anything",
        "quorum.raft.adapter:PySyncObjLog.check_change",
        _always(None),
        Directed(f"{_VOTERS_TESTS}::test_no_change_before_the_leadership_has_committed_anything"),
    ),
    Mutant(
        "voters-too-old",
        "a node acts under voters that two later changes have replaced",
        "quorum.raft.voters_in_force:VotersInForce._change_in_force",
        _only_what_is_applied,
        Directed(f"{_VOTERS_TESTS}::test_a_change_behind_it_proves_that_one_was_committed"),
    ),
    Mutant(
        "founds-again",
        "two nodes with empty logs found a second quorum beside a node that has a log",
        "quorum.raft.elections:Elections.would_found_another",
        _always(False),
        Directed(f"{_ADAPTER_TESTS}::test_a_node_with_an_empty_log_founds_no_second_quorum"),
    ),
    Mutant(
        "proved-for-good",
        "what proved a change of voters proves it when it is cut from the log",
        f"{_J}.deleteEntriesFrom",
        _proved_for_good,
        Directed(f"{_VOTERS_TESTS}::test_what_was_proved_is_not_proved_once_it_is_cut"),
    ),
    Mutant(
        "voters-of-the-settings",
        "after a snapshot the settings say who votes",
        "quorum.raft.voters_in_force:VotersInForce.stand_on",
        _forgets_who_voted,
        Directed(f"{_VOTERS_TESTS}::test_a_snapshots_pointer_says_who_voted_there"),
    ),
    Mutant(
        "stale-term",
        "answers of former terms count",
        "quorum.raft.quorum_state:QuorumState.is_current",
        _always(True),
        Directed(f"{_GUARD_TESTS}::test_term_a_higher_one_deposes"),
    ),
    Mutant(
        "lower-term",
        "a message of a lower term is not answered with the higher one",
        "quorum.raft.quorum_state:QuorumState.rejects_lower_term",
        _always(False),
        Directed(f"{_GUARD_TESTS}::test_a_lower_term_is_answered_with_the_higher_one"),
    ),
    Mutant(
        "held-entries",
        "entries that match are cut and written again",
        "quorum.raft.follower_log:FollowerLog.drop_held_entries",
        lambda _: lambda _guard, message: (message, None),
        Seeds("nasty", 20, raft_only=True),
    ),
    Mutant(
        "unproved-tail",
        "a follower acknowledges its stale tail",
        "quorum.raft.follower_log:FollowerLog.limit_to_proved",
        lambda _: lambda _guard, value, _proved: value,
        Directed(f"{_GUARD_TESTS}::test_proved_a_follower_acknowledges_no_more_than_was_proved"),
    ),
    Mutant(
        "vote-twice",
        "two votes of one voter count",
        "quorum.raft.elections:Elections.is_new_vote",
        _always(True),
        Directed(f"{_GUARD_TESTS}::test_votes_one_voter_has_one_vote"),
    ),
    Mutant(
        "pre-vote",
        "a node campaigns without a pre-vote",
        "quorum.raft.elections:Elections.begin_pre_vote",
        _campaigns_at_once,
        Directed(f"{_GUARD_TESTS}::test_pre_vote_a_lonely_node_keeps_its_term"),
    ),
    Mutant(
        "too-low-a-term",
        "a pre-vote of a lower term is not answered with the higher one",
        "quorum.raft.elections:Elections.on_pre_vote",
        _asks_for_its_own_term,
        Directed(f"{_GUARD_TESTS}::test_pre_vote_a_node_that_can_win_learns_a_term_that_nobody_leads"),
    ),
    Mutant(
        "live-leader",
        "a node votes against a leader whose messages still arrive",
        "quorum.raft.elections:Elections.has_live_leader",
        _always(False),
        Directed(f"{_GUARD_TESTS}::test_live_leader_is_not_voted_away"),
    ),
    Mutant(
        "lost-leader",
        "a closed link to the leader begins no pre-vote",
        "quorum.raft.elections:Elections.lost_leader",
        _always(None),
        Directed(f"{_GUARD_TESTS}::test_lost_leader_a_closed_link_starts_the_pre_vote"),
    ),
    Mutant(
        "own-close",
        "a link that we closed ourselves loses the leader",
        "quorum.raft.guard:Guard.lost",
        _every_loss_is_the_leaders,
        Directed(
            f"{_GUARD_TESTS}::test_lost_leader_a_link_that_we_closed_ourselves_says_nothing_of_the_leader"
        ),
    ),
    Mutant(
        "check-quorum",
        "a leader without a majority's answers leads on",
        "quorum.raft.replication:Replication.check_quorum_seconds",
        _always(1e9),
        Directed(f"{_GUARD_TESTS}::test_check_quorum_an_unheard_leader_steps_down"),
    ),
    Mutant(
        "next-index",
        "what is in flight is sent again",
        "quorum.raft.replication:Replication.next_index",
        lambda _: lambda _guard, _progress, acked: acked + 1,
        Directed(f"{_GUARD_TESTS}::test_next_index_an_acknowledgement_resends_nothing"),
    ),
    Mutant(
        "counts-unsynced",
        "a leader counts itself before its own sync",
        "quorum.raft.replication:Replication.limit_to_synced",
        lambda _: lambda _guard, index: index,
        Seeds("calm", 10, raft_only=True),
    ),
    Mutant(
        "applies-early",
        "a node applies what is committed before it has synced that itself",
        "quorum.raft.applied_entries:AppliedEntries.run",
        _applies_before_its_sync,
        Seeds("swarm", 120),
    ),
    Mutant(
        "only-syncs",
        "a follower under load never applies",
        "quorum.raft.adapter:PySyncObjLog._syncs_first",
        _always_hurries,
        Directed(f"{_ADAPTER_TESTS}::test_a_follower_puts_off_applying_for_a_sync_but_not_for_ever"),
    ),
    Mutant(
        "forgot",
        "a leader counts a follower that lost what it acknowledged",
        "quorum.raft.replication:Replication.count_synced",
        _counts_who_forgot,
        Directed(f"{_GUARD_TESTS}::test_synced_a_follower_that_lost_what_it_acknowledged_does_not_count"),
    ),
    Mutant(
        "engine-sends",
        "the engine sends by itself",
        "quorum.raft.guard:Guard.drops_appends",
        _always(False),
        Directed(f"{_GUARD_TESTS}::test_the_engine_sends_no_entry_itself"),
    ),
    Mutant(
        "snapshot-offer",
        "an offered snapshot moves the commit index",
        "quorum.raft.follower_log:FollowerLog.as_heartbeat",
        _commits_with_the_news,
        Directed(f"{_GUARD_TESTS}::test_offered_snapshot_commits_nothing"),
    ),
    Mutant(
        "older-snapshot",
        "an older snapshot replaces a newer log",
        "quorum.raft.follower_log:FollowerLog.holds",
        _always(False),
        Seeds("nasty", 30, raft_only=True),
    ),
    Mutant(
        "read-majority",
        "a read asks no majority",
        "quorum.raft.read_rounds:ReadRounds.is_confirmed",
        _always(True),
        Directed(f"{_GUARD_TESTS}::test_read_a_deposed_leader_answers_none"),
    ),
    Mutant(
        "early-read",
        "a new leader answers reads before it has committed",
        "quorum.raft.read_rounds:ReadRounds.may_begin",
        _keeps_the_unproved,
        Directed(f"{_GUARD_TESTS}::test_read_none_before_the_first_commit_of_the_term"),
    ),
    Mutant(
        "leaves-unsynced",
        "votes and acknowledgements leave before their sync",
        "quorum.raft.outbox:Outbox.split_by_sync",
        lambda _: lambda _guard, message: (message, None),
        Seeds("fifo", 10, raft_only=True),
    ),
    Mutant(
        "sends-unsynced-term",
        "a leader that elected itself sends before its term is synced",
        "quorum.raft.replication:Replication.may_send",
        lambda _: lambda replication: not replication._state.disk_stalled,
        Directed(
            f"{_GUARD_TESTS}::test_sync_a_leader_that_elected_itself_sends_nothing_before_its_term_is_synced"
        ),
    ),
    Mutant(
        "reads-at-once",
        "reads and fetches rest on no proof of leadership",
        f"{_L}.read_index",
        _reads_at_once,
        Seeds("fifo", 110),
    ),
    Mutant(
        "deposed-renews",
        "a deposed leader that slept renews a broker's session: its answers to polls rest on no proof",
        "quorum.fetch.service:FetchService.__init__",
        _fetches_at_once,
        Directed(f"{_FETCH_TESTS}::test_news_at_hand_is_answered_only_with_proof_of_leadership"),
    ),
    Mutant(
        "proved-before",
        "a round of probes renews brokers whose polls arrived after it began",
        "quorum.fetch.service:FetchService._take_unproved",
        lambda _: lambda service: service._unproved,
        Directed(f"{_FETCH_TESTS}::test_a_round_of_probes_counts_for_those_alone_that_arrived_before_it"),
    ),
    Mutant(
        "poll-forgotten",
        "a commit wakes all parked polls but the last",
        "quorum.fetch.waiting:WaitingPolls.take_before",
        _forgets_the_last,
        Directed(f"{_FETCH_TESTS}::test_no_poll_is_forgotten"),
    ),
    Mutant(
        "slice-forgotten",
        "polls that one slice does not reach are left until something else happens",
        "quorum.fetch.slices:Slices._run",
        _runs_one_slice,
        Directed(f"{_FETCH_TESTS}::test_no_poll_is_forgotten"),
    ),
    Mutant(
        "polls-in-one-turn",
        "all polls that are due are answered in one turn of the loop",
        "quorum.fetch.slices:Slices._run",
        _runs_all_slices,
        Seeds("heavy", 10, brokers=20),
    ),
    Mutant(
        "encodes-each-poll",
        "polls at one position do not share the bytes of their answer",
        "quorum.fetch.service:same_answer",
        lambda original: lambda *told, **rest: (object(), original(*told, **rest)),
        Directed(
            f"{_FETCH_TESTS}::test_polls_at_one_position_share_their_bytes_and_those_in_another_state_do_not"
        ),
    ),
    Mutant(
        "reads-on-the-loop",
        "frames that are in segments alone are read in a turn of the loop",
        "quorum.log.committed_log:CommittedLog.is_cold",
        _always(False),
        Seeds("heavy", 30),
    ),
    Mutant(
        "walks-from-the-start",
        "each part of a fencing walks over the broker's partitions from the first",
        "quorum.sessions:Sessions.visited",
        _always(None),
        Seeds("heavy", 10),
    ),
    Mutant(
        "parts-of-any-length",
        "a part of a long change takes as long as its records do",
        "quorum.controller:PART_MS",
        lambda _original: 10**9,
        Seeds("heavy", 20),
    ),
    Mutant(
        "entries-of-any-size",
        "all batches that wait share one entry, which followers apply in one turn of the loop",
        "quorum.raft.proposals:Proposals.take",
        _packs_whatever_waits,
        Seeds("heavy", 30),
    ),
    Mutant(
        "digest-with-each-batch",
        "the state digest is counted with each batch, in the same turn of the loop",
        "metadata_log.image.metadata_image:StateDigest.behind",
        _counts_with_the_batch,
        Directed(f"{_DIGEST_TESTS}::test_a_batch_counts_nothing_of_the_digest"),
    ),
    Mutant(
        "digest-at-once",
        "who asks for the state digest has all of it counted in one turn of the loop",
        "metadata_log.image.metadata_image:LINES_COUNTED_AT_ONCE",
        lambda _original: 10**9,
        Directed(f"{_DIGEST_TESTS}::test_who_asks_has_some_lines_counted_at_a_time"),
    ),
    Mutant(
        "shared-state",
        "a fenced broker gets the answer of one that is online",
        "quorum.fetch.service:same_answer",
        lambda original: lambda request, _state, **told: original(request, None, **told),
        Directed(
            f"{_FETCH_TESTS}::test_polls_at_one_position_share_their_bytes_and_those_in_another_state_do_not"
        ),
    ),
    Mutant(
        "unread-answers",
        "a client that reads nothing is sent one answer after the other",
        "quorum.http.poll_connection:PollConnection._is_idle",
        lambda _: lambda connection: not (connection._waiter is None or connection._waiter.done()),
        Directed(f"{_CONNECTION_TESTS}::test_who_does_not_read_is_owed_a_bounded_number_of_answers"),
    ),
    Mutant(
        "begun-request",
        "a poll is read in the middle of another request's headers",
        "quorum.http.poll_connection:PollConnection._begins_request",
        lambda _: property(lambda _connection: True, lambda _connection, _value: None),
        Directed(f"{_CONNECTION_TESTS}::test_headers_that_look_like_a_poll_are_read_as_headers"),
    ),
    Mutant(
        "trim-first",
        "the journal is trimmed before the pointer is durable",
        f"{_L}._compact",
        _trims_before_the_pointer,
        Seeds("nasty", 40, raft_only=True),
    ),
    Mutant(
        "quarantine-unsynced",
        "a damaged segment is cut before its copy in quarantine is durable",
        "metadata_log.log.recovery:quarantine_copy",
        _copies_unsynced,
        Directed("tests/powercut/test_powercut.py::test_nothing_promised_is_lost[damaged segments]"),
    ),
    Mutant(
        "lost-all",
        "a journal that is empty beside a snapshot was never begun",
        "quorum.raft.journal.lost:check_reaches_log",
        _forgets_snapshots,
        Directed(
            "tests/unit/ops/verbs/test_log.py::test_a_journal_that_is_gone_is_refused_as_the_start_does"
        ),
    ),
    Mutant(
        "begins-anew",
        "a voter that lost all it ever wrote begins anew, and votes again",
        "quorum.raft.journal.journal:recover",
        _may_always_be_new,
        Directed(f"{_JOURNAL_TESTS}::test_a_journal_that_was_begun_is_never_begun_anew"),
    ),
    Mutant(
        "installs-first",
        "a snapshot is installed beside a journal that was never begun, so that a crash looks like its loss",
        "quorum.raft.log_start:LogStart.accept",
        _installs_at_once,
        Directed(f"{_ADAPTER_TESTS}::test_no_snapshot_is_installed_beside_a_journal_that_was_never_begun"),
    ),
    Mutant(
        "serves-rot",
        "a snapshot is served as it was written, unread: whoever is far behind circles for ever",
        "snapshots.store:SnapshotStore.check",
        _always(None),
        Directed("tests/unit/snapshots/test_store.py::test_one_that_rotted_is_found_before_it_is_sent"),
    ),
    Mutant(
        "ends-unheard",
        "who waits for records when a controller ends is told nothing",
        f"{_C}.stop_waiting",
        _always(None),
        Directed(f"{_SERVER_TESTS}::test_who_waits_for_a_controller_that_stops_is_answered_before_it_ends"),
    ),
    Mutant(
        "start-ignores-stop",
        "a node that fetches its snapshot at the start stops only once it has it",
        f"{_L}._unless_closed",
        _waits_to_the_end,
        Directed(f"{_ADAPTER_TESTS}::test_close_does_not_wait_for_a_snapshot_that_nobody_gives"),
    ),
    Mutant(
        "unpinned",
        "a snapshot goes while the pointer names it",
        f"{_L}.pinned_snapshots",
        _always(frozenset()),
        Directed("tests/powercut/test_powercut.py::test_nothing_promised_is_lost[node]"),
    ),
    Mutant(
        "secret-vote",
        "a vote is not written down",
        f"{_J}.setCurrentTerm",
        _votes_in_secret,
        Directed(_JOURNAL_TESTS),
    ),
    Mutant(
        "secret-term",
        "a term is not written down",
        f"{_J}.setCurrentTerm",
        _keeps_terms_to_itself,
        Directed(_JOURNAL_TESTS),
    ),
    Mutant(
        "numbers-anew",
        "batch numbers begin anew at a restart",
        f"{_J}.__init__",
        _numbers_begin_anew,
        Directed(_JOURNAL_TESTS),
    ),
    Mutant(
        "trusted-commit",
        "the log's end counts as committed after a restart",
        f"{_J}.getRaftCommitIndex",
        _trusts_its_end,
        Seeds("fifo", 20, raft_only=True),
    ),
    Mutant(
        "journal-crc",
        "the journal's checksums say nothing",
        "quorum.raft.journal.format:batch_crc",
        _always(0),
        Directed(f"{_JOURNAL_TESTS}::test_no_flipped_bit_goes_unnoticed"),
    ),
    Mutant(
        "shortened",
        "a journal file that became shorter was never longer",
        "quorum.raft.journal.recovery:read_journal",
        _reads_files_of_any_size,
        Directed(f"{_JOURNAL_TESTS}::test_a_file_cut_at_any_length_is_refused"),
    ),
    Mutant(
        "lost-end",
        "a journal that ends below its log only lost what was torn",
        "quorum.raft.journal.lost:check_reaches_log",
        _always(None),
        Directed(
            "tests/unit/ops/verbs/test_log.py::test_a_journal_that_ends_below_its_log_is_refused_as_the_start_does"
        ),
    ),
    Mutant(
        "file-half-made",
        "the journal enters a file that is still in the making",
        "quorum.raft.journal.journal:Journal._make_spare",
        _always(None),
        Directed(f"{_JOURNAL_TESTS}::test_a_new_file_is_whole_and_synced_before_its_first_batch"),
    ),
    Mutant(
        "header-unsynced",
        "an unused file's header is trusted as the kernel's cache shows it",
        "quorum.raft.journal.journal:recover",
        _trusts_the_cache,
        Directed(f"{_JOURNAL_TESTS}::test_the_header_of_an_unused_file_is_not_trusted_before_it_is_synced"),
    ),
    Mutant(
        "ack-before-sync",
        "the journal's sync does nothing",
        "quorum.raft.journal.os_disk:OsFile.sync",
        _always(None),
        Directed("tests/powercut/test_powercut.py::test_nothing_promised_is_lost[journal]"),
    ),
    Mutant(
        "directory-unsynced",
        "new files have no durable name",
        "quorum.raft.journal.os_disk:sync_directory",
        _always(None),
        Directed("tests/powercut/test_powercut.py::test_nothing_promised_is_lost[journal]"),
    ),
    Mutant(
        "announced-early",
        "a snapshot is announced before the segments are synced",
        "metadata_log.log.segmented_log:SegmentedLog.sync",
        _always(None),
        Directed("tests/powercut/test_powercut.py::test_nothing_promised_is_lost[node]"),
    ),
    Mutant(
        "snapshot-unsynced",
        "a snapshot has no durable name",
        "snapshots.snapshot_file:sync_directory",
        _always(None),
        Directed("tests/powercut/test_powercut.py::test_nothing_promised_is_lost[snapshots]"),
    ),
    Mutant(
        "seen-not-synced",
        "a snapshot whose name a killed process left un-synced is stood on",
        "snapshots.store:SnapshotStore._sync",
        _always(None),
        Directed(
            "tests/unit/snapshots/test_store.py::test_what_is_seen_at_the_start_is_durable_from_then_on"
        ),
    ),
    Mutant(
        "claim-not-awaited",
        "decides before its claim is applied",
        f"{_C}._claim",
        _leads_before_its_claim_is_applied,
        Directed(f"{_CONTROLLER_TESTS}::test_nothing_is_decided_before_the_claim_is_applied"),
    ),
    Mutant(
        "waits-by-offset",
        "a waiter is answered when anybody's records fill its offset",
        "quorum.waiters:Waiters.fail_before",
        _waits_under_any_claim,
        Directed(f"{_CONTROLLER_TESTS}::test_a_newer_claim_ends_older_waiters_before_their_offset_is_filled"),
    ),
    Mutant(
        "keeps-waiters",
        "a newer claim ends no older waiter",
        "quorum.waiters:Waiters.fail_before",
        _always(None),
        Directed(_CONTROLLER_TESTS),
    ),
    Mutant(
        "hasty-refusal",
        "a refusal does not wait for what it rests on",
        f"{_C}._carried_out",
        _refuses_at_once,
        Seeds("nasty", 40),
    ),
    Mutant(
        "no-turns",
        "long decisions that arrive together are made one right after the other",
        f"{_C}.turn",
        _reads_at_once,
        Directed(
            f"{_CONTROLLER_TESTS}::test_long_decisions_that_arrive_together_leave_the_loop_to_others_in_between"
        ),
    ),
    Mutant(
        "forgets-requests",
        "a repeated request is carried out again",
        f"{_C}.submit",
        _forgets_requests,
        Seeds("wild", 10),
    ),
    Mutant(
        "half-a-fencing-unheard",
        "a broker that heartbeats between two parts of its fencing is answered before the first has committed",
        f"{_C}._fence",
        _fences_unheard,
        Directed(
            f"{_CONTROLLER_TESTS}::test_a_broker_heard_of_between_two_parts_of_its_fencing_stays_registered"
        ),
    ),
    Mutant(
        "half-fenced-leads",
        "a broker between two parts of its fencing gets replicas and leads",
        "quorum.controller:leaving_after",
        _always({}),
        Directed(
            f"{_CONTROLLER_TESTS}::test_a_topic_made_between_two_parts_of_a_fencing_keeps_off_the_broker"
        ),
    ),
    Mutant(
        "unwritten-fencing",
        "a broker whose fencing has visited partitions and written nothing yet gets replicas and leads",
        "quorum.sessions:Sessions.walking_out",
        _always(frozenset()),
        Directed(
            f"{_CONTROLLER_TESTS}::test_a_broker_whose_fencing_began_without_a_record_gets_nothing_either"
        ),
    ),
    Mutant(
        "walk-outlives-contact",
        "a broker that heartbeats between two parts of its fencing is still taken out of service",
        "quorum.sessions:Sessions.contact",
        _keeps_walks,
        Directed(f"{_CONTROLLER_TESTS}::test_a_fencing_that_begins_anew_visits_all_partitions"),
    ),
    Mutant(
        "heard-of-in-secret",
        "the next controller goes on with a fencing that was given up, though the broker got another session",
        "quorum.controller:leaving_after",
        _forgets_who_was_heard_of,
        Directed(
            f"{_CONTROLLER_TESTS}::"
            "test_a_broker_heard_of_between_two_parts_of_its_fencing_is_not_silent_to_the_next_controller"
        ),
    ),
    Mutant(
        "new-leader-new-session",
        "a new leader gives a broker another session whose fencing had begun",
        "quorum.sessions:Sessions.begin",
        _grants_everybody,
        Directed(f"{_CONTROLLER_TESTS}::test_a_new_controller_goes_on_with_a_fencing_at_once"),
    ),
    *(
        Mutant(
            f"isr-{name}",
            f"an ISR is taken from {breaks}",
            "quorum.decide.partitions:_refusal",
            _passes_over(error),
            Directed(f"{_KAFKA_TESTS}::test_a_case_is_answered_as_kafka_answers_it"),
        )
        for name, error, breaks in (
            ("unknown-epoch", "NOT_CONTROLLER", "a leader that knows epochs which this controller does not"),
            ("past-leader", "FENCED_LEADER_EPOCH", "a leader whose leader epoch is over"),
            ("no-leader", "INVALID_REQUEST", "anybody, whatever it holds"),
            (
                "past-partition",
                "INVALID_UPDATE_VERSION",
                "a leader that does not know the partition's last change",
            ),
            ("ineligible", "INELIGIBLE_REPLICA", "a leader that names brokers which may not serve"),
        )
    ),
    Mutant(
        "isr-past-member",
        "a broker that registered anew joins an ISR by what its leader knew of the run before",
        "quorum.decide.partitions:_is_eligible",
        _whatever_its_epoch,
        Directed(f"{_KAFKA_TESTS}::test_a_case_is_answered_as_kafka_answers_it"),
    ),
    Mutant(
        "isr-half-fenced",
        "a broker between two parts of its fencing joins an ISR",
        "quorum.decide.partitions:_is_eligible",
        _eligible_between_parts,
        Directed(f"{_ISR_TESTS}::test_a_broker_that_a_change_in_parts_takes_out_joins_no_isr"),
    ),
    Mutant(
        "elects-the-elected",
        "an election that somebody asked for, and that is not needed, is held",
        "quorum.decide.partitions:ElectionNotNeeded.error",
        lambda _original: None,
        Directed(f"{_KAFKA_TESTS}::test_a_case_is_answered_as_kafka_answers_it"),
    ),
    Mutant(
        "preferred-unclean",
        "a preferred election gives up what only the ISR holds",
        "quorum.decide.elections:Electorate.change_to",
        _elects_uncleanly,
        Directed(f"{_ISR_TESTS}::test_a_preferred_election_is_never_unclean"),
    ),
    *(
        Mutant(name, breaks, f"quorum.decide.{target}", replacement, Directed(f"{_KAFKA_CASE}[{case}]"))
        for name, breaks, target, replacement, case in (
            (
                "nobody-eligible",
                "who leaves an ISR below min.insync.replicas is not eligible to lead",
                "elections:_eligible",
                _always(()),
                "B38-elr",
            ),
            (
                "last-leader-forgotten",
                "the last leader of a partition without any eligible replica is forgotten",
                "elections:_last_known",
                _always(None),
                "B39-last-known-leader",
            ),
            (
                "reassigns-for-ever",
                "a reassignment is never complete",
                "elections:_completed",
                lambda _original: lambda *lists: lists,
                "B45-completion",
            ),
            (
                "reassigns-at-once",
                "a reassignment is complete before the new replicas are in sync",
                "elections:_completed",
                _completes_at_once,
                "B45-completion",
            ),
            (
                "reverts-nothing",
                "a cancelled reassignment leaves the replicas as they are",
                "reassignments:_reverted",
                lambda _original: (
                    lambda partition: importlib.import_module("quorum.decide.elections").AS_IT_IS
                ),
                "B47-revert",
            ),
            (
                "crash-is-clean",
                "a broker that crashed stays eligible to lead what it may have lost",
                "brokers:_walk_out",
                _leaves_cleanly,
                "B38-unclean-shutdown",
            ),
            (
                "eligible-for-good",
                "who was eligible under another min.insync.replicas still is",
                "configs:_topics_cleared",
                _always(()),
                "B40-elr-configs",
            ),
            (
                "min-isr-of-one-broker",
                "with eligible leader replicas, min.insync.replicas of a single broker can be set",
                "configs:_has_eligible",
                _always(False),
                "B40-elr-configs",
            ),
            (
                "directories-forgotten",
                "new replicas have no directories",
                "elections:_directories",
                _always(None),
                "B44-reassign-arithmetic",
            ),
            (
                "ids-given-twice",
                "the next block of producer ids is the same",
                "producer_ids:BLOCK_SIZE",
                lambda _original: 0,
                "B88-producer-ids",
            ),
            (
                "reassigns-to-anybody",
                "a reassignment names brokers that are not registered, or one twice",
                "reassignments:check_replicas",
                _always(None),
                "B49-manual-assignment-errors",
            ),
            (
                "factor-changes",
                "a reassignment changes the replication factor though it must not",
                "reassignments:_check_factor",
                _always(None),
                "B49-manual-assignment-errors",
            ),
            (
                "names-collide",
                "two topics have names that metrics cannot tell apart",
                "topics:check_collision",
                _always(None),
                "B54-topic-names",
            ),
            (
                "lists-replaced",
                "an append to a list replaces it",
                "configs:_list_changed",
                lambda _original: lambda _resource, _name, _before, _operation, value: value,
                "B83-configs",
            ),
            (
                "waits-in-vain",
                "a leaderless partition that another broker could lead waits for its own",
                "heartbeat:changes_on_joining",
                lambda _original: lambda *_: iter(()),
                "B33-two-epochs",
            ),
        )
    ),
    *(
        Mutant(name, breaks, target, replacement, Directed(test))
        for name, breaks, target, replacement, test in decision_mutants.ROWS
    ),
    Mutant(
        "all-or-some",
        "a request that wants all or nothing writes what is not refused",
        "quorum.decide.registry:all_or_nothing",
        lambda _original: lambda decision: decision,
        Directed(f"{_ITEM_TESTS}::test_all_or_nothing_writes_nothing_if_one_item_is_refused"),
    ),
    Mutant(
        "deleted-twice",
        "a topic that is given by name and by id is removed twice in one batch",
        "quorum.decide.topics:_is_given_twice",
        lambda _original: lambda given, _topic_id, times: times[given] > 1,
        Directed(f"{_ITEM_TESTS}::test_topics_are_deleted_by_name_and_by_id_each_once"),
    ),
    Mutant(
        "no-policy",
        "topics are created whatever the policy says",
        "quorum.decide.topics:_check_policy",
        _always(None),
        Directed(f"{_TOPIC_TESTS}::test_a_policy_is_asked_last"),
    ),
    Mutant(
        "as-it-comes",
        "values of brokers' settings that are no numbers are stored",
        "quorum.decide.configs:_check_as_brokers",
        _always(None),
        Directed("tests/unit/quorum/http/test_items.py::test_settings_of_many_resources"),
    ),
    Mutant(
        "plain-from-zero",
        "the partitions that a topic gets more are placed as if they were its first",
        "quorum.decide.new_partitions:place_plainly",
        lambda original: lambda brokers, **how: original(brokers, **{**how, "first": 0}),
        Directed(
            "tests/unit/quorum/decide/test_placement.py::test_topics_are_placed_plainly_by_name_of_the_strategy"
        ),
    ),
    Mutant(
        "obeys-late-heartbeats",
        "an overloaded controller decides on what brokers wanted a while ago",
        "quorum.fetch.service:FetchService._is_late",
        _always(False),
        Directed(f"{_FETCH_TESTS}::test_a_heartbeat_that_stood_here_too_long_only_renews_its_session"),
    ),
    Mutant(
        "features-nobody-asked",
        "a feature is finalized at a level that a registered broker or controller does not support",
        "quorum.decide.features:_blockers",
        lambda _original: lambda *_: iter(()),
        Directed(f"{_CONTROLLERS_TESTS}::test_every_registered_controller_must_support_the_level"),
    ),
    Mutant(
        "unregisters-the-living",
        "a controller that runs can be unregistered",
        "quorum.controller:Controller._is_linked",
        _always(False),
        Directed(f"{_REGISTRATION_TESTS}::test_a_controller_that_is_linked_keeps_its_registration"),
    ),
    Mutant(
        "registers-twice",
        "a registration whose answer was lost is sent as another one",
        "quorum.registration:Registration._register",
        _under_another_id,
        Directed(f"{_REGISTRATION_TESTS}::test_a_lost_answer_leads_to_no_second_record"),
    ),
    Mutant(
        "ids-go-back",
        "producer ids that were given away are given away again",
        "metadata_log.image.producer_ids:_check_grows",
        _always(None),
        Directed(f"{_PRODUCER_IDS_TESTS}::test_the_next_id_only_grows"),
    ),
    Mutant(
        "balances-nothing",
        "leaderships never go back to first replicas",
        "quorum.decide.sweeps:Sweep._topics",
        _always(()),
        Directed(f"{_SWEEP_TESTS}::test_leaderships_go_back_to_first_replicas"),
    ),
    Mutant(
        "sweeps-uncleanly",
        "topics that accept no loss are elected uncleanly by the sweep",
        "quorum.decide.elections:is_unclean_allowed",
        _always(True),
        Directed(f"{_SWEEP_TESTS}::test_only_topics_that_accept_losses_are_elected_uncleanly"),
    ),
    Mutant(
        "sweeps-in-one-turn",
        "a sweep holds the loop until it is at its end",
        "quorum.decide.sweeps:Sweep.part",
        _in_one_turn,
        Directed(f"{_SWEEP_TESTS}::test_a_part_has_the_elections_of_one_batch_and_the_time_of_one_turn"),
    ),
    Mutant(
        "gone-by-the-clock",
        "a clock that jumps ends the window of deleted topics",
        "metadata_log.image.metadata_image:log_time_step_ms",
        lambda _original: lambda before_ms, now_ms: max(0, now_ms - before_ms),
        Directed(f"{_DELETED_TESTS}::test_a_clock_that_jumps_ends_no_window_early"),
    ),
    Mutant(
        "gone-early",
        "a deleted topic is removed within its window",
        "metadata_log.image.topics:DeletedTopic.left_ms",
        _always(0),
        Directed(f"{_DELETED_TESTS}::test_behind_its_window_a_topic_is_gone"),
    ),
    Mutant(
        "time-stands-still",
        "a quiet log ends no window",
        "quorum.decide.deleted_topics:LOG_TIME_STEP_MS",
        lambda _original: 10**12,
        Directed(f"{_DELETED_TESTS}::test_a_quiet_log_still_counts"),
    ),
    Mutant(
        "relies-on-the-lost",
        "a broker that may have lost messages of a deleted topic leads it once it is restored",
        "quorum.decide.elections:_without",
        _always(None),
        Directed(f"{_DELETED_TESTS}::test_who_may_have_lost_messages_is_in_no_isr_that_comes_back"),
    ),
    Mutant(
        "comes-back-fenced",
        "a restored topic has fenced brokers in its ISRs",
        "quorum.decide.elections:Electorate._present",
        lambda _original: lambda _self, isr: isr,
        Directed(f"{_DELETED_TESTS}::test_who_may_have_lost_messages_is_in_no_isr_that_comes_back"),
    ),
    Mutant(
        "shows-the-deleted",
        "clients see deleted topics",
        "metadata_log.image.topics:TopicsImage.named",
        _names_the_deleted,
        Directed(f"{_DELETED_TESTS}::test_nobody_asks_anything_of_a_deleted_topic"),
    ),
    Mutant(
        "deletes-the-data",
        "a broker deletes the data of topics that can be restored",
        "metadata_log.image.topics:TopicsImage.known",
        lambda _original: lambda topics, topic_id: topics.by_id.get(topic_id),
        Directed(f"{_REPLICAS_TESTS}::test_a_topic_that_is_deleted_for_a_time_keeps_its_data"),
    ),
    Mutant(
        "recovers-never",
        "a leader that has recovered stays RECOVERING",
        "quorum.decide.elections:Electorate.change_to",
        _recovers_never,
        Directed(f"{_HOST_TESTS}::test_an_unclean_leader_has_nothing_to_recover"),
    ),
    Mutant(
        "leads-on-a-lost-disk",
        "a leader whose directory is lost keeps the leadership when it reports an ISR",
        "quorum.decide.elections:has_online_directory",
        _always(True),
        Directed(f"{_ISR_TESTS}::test_a_leader_whose_directory_is_lost_reports_an_isr_and_leads_no_longer"),
    ),
    Mutant(
        "rejoins-no-isr",
        "a broker that returns joins no ISR",
        "broker_agent.dataless_host:DatalessHost._wanted",
        _always(None),
        Seeds("swarm", 10),
    ),
    Mutant(
        "reports-once",
        "an ISR that a controller refused for now is not reported again",
        "broker_agent.reports:Reports._again",
        _always(None),
        Directed(f"{_HOST_TESTS}::test_what_is_refused_for_now_is_reported_again"),
    ),
    Mutant(
        "reports-for-ever",
        "an ISR that a controller refused for good is reported again and again",
        "broker_agent.reports:isr_reports",
        _retries_every_error,
        Directed(f"{_REPORTS_TESTS}::test_any_other_error_is_handed_back_once"),
    ),
    Mutant(
        "strays-of-an-old-image",
        "a host's replicas are compared with an image that may be old",
        "broker_agent.replicas:LocalReplicas.may_start",
        _starts_with_any_image,
        Directed(
            f"{_REPLICAS_TESTS}::test_nothing_is_said_before_the_image_has_caught_up_with_the_registration"
        ),
    ),
    Mutant(
        "strays-of-a-lost-history",
        "an image older than the one a host knew calls replicas strays",
        "broker_agent.replicas:LocalReplicas.start",
        _forgets_what_the_host_knew,
        Directed(f"{_REPLICAS_TESTS}::test_an_image_older_than_what_the_host_knew_calls_nothing_a_stray"),
    ),
    Mutant(
        "follows-a-replaced-image",
        "a host is told of batches on an image that was replaced and has not caught up",
        "broker_agent.replicas:LocalReplicas.on_delta",
        _follows_on_a_replaced_image,
        Directed(f"{_REPLICAS_TESTS}::test_a_replaced_image_deletes_nothing_until_it_has_caught_up"),
    ),
    Mutant(
        "starts-before-it-deletes",
        "a topic of the same name is started before the deleted one is gone",
        "broker_agent.replicas:LocalReplicas.on_delta",
        _deletes_last,
        Directed(
            f"{_REPLICAS_TESTS}::"
            "test_a_deleted_topic_takes_its_replicas_along_before_one_of_its_name_is_started"
        ),
    ),
    Mutant(
        "tells-of-elections-alone",
        "a leader is not told of an ISR that changed without an election",
        "broker_agent.replicas:LocalReplicas.on_delta",
        _tells_of_elections_alone,
        Directed(
            f"{_REPLICAS_TESTS}::test_a_leader_learns_of_each_partition_epoch_and_a_follower_of_its_leader"
        ),
    ),
    Mutant(
        "unfenced-without-its-replicas",
        "a broker asks to be unfenced before its host knows its replicas",
        "broker_agent.agent:BrokerAgent._set_wishes",
        _wants_no_fence,
        Directed(
            f"{_AGENT_HOST_TESTS}::test_a_host_is_told_of_all_its_replicas_before_the_broker_may_be_unfenced"
        ),
    ),
    Mutant(
        "joins-below-the-high-watermark",
        "the sample host's leader takes followers into the ISR that lack committed records",
        "tests.support.sample_host:SampleHost._expand",
        data_mutants.joins_early,
        Seeds("brokers", 12),
    ),
    Mutant(
        "acknowledges-alone",
        "the sample host's leader acknowledges what no follower has",
        "tests.support.sample_host:SampleHost._advance",
        data_mutants.advances_alone,
        Seeds("brokers", 4),
    ),
    Mutant(
        "acknowledges-with-few",
        "the sample host's high watermark rises while the ISR is smaller than min.insync.replicas",
        "tests.support.sample_host:SampleHost._advance",
        data_mutants.advances_with_few,
        Seeds("brokers", 12),
    ),
    Mutant(
        "appends-with-few",
        "the sample host ignores min.insync.replicas",
        "tests.support.sample_host:SampleHost._min_isr",
        _always(1),
        Seeds("brokers", 12),
    ),
    Mutant(
        "truncates-to-the-high-watermark",
        "a follower of a new leader cuts its log at its own high watermark, not where the epochs part",
        "tests.support.sample_host:SampleHost._take_role",
        data_mutants.truncates_to_the_high_watermark,
        Seeds("brokers", 25),
    ),
    Mutant(
        "fetches-by-its-last-record",
        "a follower does not name the epoch in which it led without appending",
        "tests.support.replica_log:ReplicaLog.last_epoch",
        data_mutants.epoch_of_the_last_record,
        Directed(
            f"{_SAMPLE_HOST_TESTS}::test_a_leader_that_appended_nothing_forgets_its_epoch_when_it_follows"
        ),
    ),
    Mutant(
        "elects-outside-the-isr",
        "where no member of the ISR can lead, another replica is elected as if it were one",
        "quorum.decide.elections:change",
        data_mutants.elects_anybody,
        Seeds("brokers", 20),
    ),
    Mutant(
        "power-loss-is-clean",
        "a broker that lost power stays eligible to lead what it lost",
        "quorum.decide.brokers:_walk_out",
        _leaves_cleanly,
        Seeds("brokers", 20),
    ),
    Mutant(
        "commits-without-a-proposed-member",
        "the sample host's high watermark passes a member whose joining is proposed",
        "tests.support.sample_host:Leading.maximal_isr",
        _the_committed_isr,
        Directed(f"{_SAMPLE_HOST_TESTS}::test_a_member_that_is_proposed_holds_the_high_watermark_already"),
    ),
    Mutant(
        "changes-voters-no-more",
        "once two changes of voters were made, the next is refused for ever",
        f"{_C}.change_voters",
        _refuses_the_third_change,
        Seeds("members", 5),
    ),
    Mutant(
        "elects-late",
        "elections wait for twenty times as long",
        "tests.simulation.world:RaftSettings",
        lambda settings: partial(settings, election_timeout_min_ms=6_000, election_timeout_max_ms=12_000),
        Seeds("fifo", 40),
    ),
    Mutant(
        "settles-nothing",
        "a start goes on from what only the kernel's cache holds",
        "quorum.raft.journal.recovery:settle",
        _always(None),
        Seeds("nasty", 10, raft_only=True),
    ),
    Mutant(
        "takes-late-batches",
        "a deposed controller's late batch is applied",
        "metadata_log.apply:is_next",
        _takes_any_batch_at_its_offset,
        Directed("tests/unit/metadata_log/test_apply.py"),
    ),
    Mutant(
        "fences-in-words",
        "an expired session fences nobody",
        f"{_C}._fence",
        _lets_go_of_sessions,
        Directed(f"{_CONTROLLER_TESTS}::test_a_silent_broker_is_fenced_and_its_leaderships_move_first"),
    ),
    Mutant(
        "blames-brokers",
        "a controller that slept takes its own silence for theirs",
        "quorum.sessions:Sessions.grant_all",
        _always(None),
        Directed(_CONTROLLER_TESTS),
    ),
    Mutant(
        "answers-without-leader",
        "a follower that has lost its leader answers observers as if it were current",
        "quorum.fetch.service:FetchService._follows",
        _always(value=True),
        Directed(f"{_FETCH_TESTS}::test_a_follower_without_a_leader_answers_no_observer"),
    ),
    Mutant(
        "ahead-is-diverging",
        "a follower that lags calls an observer diverging that has read on at the leader",
        "quorum.fetch.service:FetchService._reply",
        _judges_what_it_lacks,
        Directed(f"{_FETCH_TESTS}::test_a_follower_that_lags_does_not_call_an_observer_diverging"),
    ),
    Mutant(
        "feed-names-of-now",
        "a change feed from an earlier offset takes names for the topics that bear them now",
        "quorum.log.topic_feeds:TopicFeeds.filter_at",
        _takes_names_of_now,
        Directed("tests/unit/quorum/http/test_feed.py"),
    ),
    Mutant(
        "all-in-one-turn",
        "all that arrived together is decided in one turn of the loop",
        "quorum.controller:Controller.is_round_long",
        lambda _original: property(lambda _controller: False),
        Directed(
            f"{_CONTROLLER_TESTS}::test_long_decisions_that_arrive_together_leave_the_loop_to_others_in_between"
        ),
    ),
    Mutant(
        "forwards-twice",
        "a broker sends a write without a request id again after its connection broke",
        "broker_agent.forwarding:_is_repeatable",
        _always(value=True),
        Directed(f"{_FORWARDING_TESTS}::test_a_write_without_an_id_is_sent_once"),
    ),
    Mutant(
        "forwards-not-written",
        "a broker passes on that nothing was written, though it sent the write twice",
        "broker_agent.forwarding:_says_not_written",
        _always(value=False),
        Directed(f"{_FORWARDING_TESTS}::test_once_a_write_may_be_done_no_answer_says_that_it_is_not"),
    ),
    Mutant(
        "session-from-arrival",
        "a broker counts its session from an answer's arrival",
        "broker_agent.session:Session.on_fetched",
        _counts_from_now,
        Directed("tests/unit/broker_agent/test_session.py"),
    ),
    Mutant(
        "serves-what-it-knew",
        "a broker whose session had ended serves before it has read what was written meanwhile, its own fencing too",
        "broker_agent.session:Session.on_fetched",
        _serves_what_it_knew,
        Directed("tests/unit/broker_agent/test_session.py"),
    ),
    Mutant(
        "half-an-election",
        "a new leader leaves an election in parts as the one before left it",
        "quorum.sessions:Sessions.begin",
        _looks_through_nothing,
        Directed(f"{_CONTROLLER_TESTS}::test_an_election_in_parts_is_gone_on_with_by_the_next_controller"),
    ),
    Mutant(
        "applies-at-once",
        "a new leader applies all of a long log before its first heartbeat",
        "quorum.raft.applied_entries:AppliedEntries.has_long_tail",
        _always(False),
        Directed(f"{_ADAPTER_TESTS}::test_a_new_leader_with_a_long_log_to_apply_leads_once_it_is_applied"),
    ),
    Mutant(
        "empty-entries-weigh-nothing",
        "a message takes any number of entries without content, more than a link sends",
        "quorum.raft.messages:entry_bytes",
        lambda _original: lambda entry: len(entry[0]),
        Directed(f"{_GUARD_TESTS}::test_entries_without_content_are_bounded_in_a_message_as_others_are"),
    ),
    Mutant(
        "own-delay",
        "a node that was itself delayed declares its peers silent at once",
        "quorum.raft.elections:Elections.waits_for_own_delay",
        _always(False),
        Directed(f"{_GUARD_TESTS}::test_own_delay_a_node_that_was_delayed_waits_one_more_heartbeat"),
    ),
    Mutant(
        "one-probe",
        "a follower whose position is unknown is asked again before it answers",
        "quorum.raft.replication:Replication._probe",
        _asks_without_patience,
        Directed(f"{_GUARD_TESTS}::test_probe_has_one_question_in_flight"),
    ),
    Mutant(
        "delta-gap",
        "a delta lacks its first batch",
        "quorum.log.committed_log:CommittedLog.read",
        _without_the_first_frame,
        Seeds("calm", 5),
    ),
    Mutant(
        "any-position",
        "a broker is sent a delta behind a foreign history",
        "quorum.fetch.position:reply_to",
        _knows_any_position,
        Directed("tests/unit/quorum/fetch/test_position.py"),
    ),
    Mutant(
        "evicts-at-a-leap",
        "a leader whose clock is an hour ahead evicts all results",
        "metadata_log.image.results:REQUEST_RESULT_STEP_MS",
        lambda _: 10**12,
        Directed("tests/unit/metadata_log/test_apply.py::test_no_leap_of_the_clock_takes_a_result"),
    ),
    Mutant(
        "evicts-by-clock",
        "results are evicted by each node's own clock",
        "metadata_log.image.results:RequestResults.evicted",
        _evicts_by_its_own_clock,
        Directed(
            "tests/unit/metadata_log/test_apply.py::test_results_are_kept_for_their_time_and_an_id_used_again_names_the_newer"
        ),
    ),
)


def named(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


@contextmanager
def in_place(mutant: Mutant) -> Iterator[None]:
    """Put a mutant in the shipped code's place."""
    holder, attribute = _holder(mutant)
    with patch.object(holder, attribute, mutant.replacement(getattr(holder, attribute))):
        yield


def _holder(mutant: Mutant) -> tuple[Any, str]:
    module, _, path = mutant.target.partition(":")
    *parts, attribute = path.split(".")
    holder: Any = importlib.import_module(module)
    for part in parts:
        holder = getattr(holder, part)
    return holder, attribute


# --- what catches them


@dataclass(frozen=True, slots=True)
class Caught:
    mutant: Mutant
    seeds: int | None
    """How many lives it took; None for a directed test, or where nothing caught it."""
    seconds: float
    how: str | None
    """What noticed; None: nothing did."""


def catch(mutant: Mutant) -> Caught:
    """Try a mutant in a process of its own."""
    began = time.monotonic()
    taken = partial(lambda: time.monotonic() - began)
    if isinstance(mutant.caught_by, Directed):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "tests.simulation.mutants",
            mutant.caught_by.test,
        ]
        environment = os.environ | {VARIABLE: mutant.name}
        done = _run(command, environment)
        return Caught(mutant, None, taken(), str(mutant.caught_by) if done.returncode == 1 else None)
    done = _run([sys.executable, "-m", "tests.simulation.mutants", "--live", mutant.name], dict(os.environ))
    words = done.stdout.strip().split("\t")
    if done.returncode != 0 or len(words) != 2:
        return Caught(mutant, None, taken(), None)
    return Caught(mutant, int(words[0]), taken(), words[1])


def _run(command: Sequence[str], environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )


def live(mutant: Mutant) -> tuple[int, str] | None:
    """Live seed after seed under a mutant; return after how many something was violated, and what."""
    from tests.simulation.cluster import ClusterWorld
    from tests.simulation.world import World, profile_of

    seeds = mutant.caught_by
    assert isinstance(seeds, Seeds)
    with ExitStack() as stack:
        stack.enter_context(in_place(mutant))
        for seed in range(1, seeds.most + 1):
            make = World if seeds.raft_only else partial(ClusterWorld, brokers=seeds.brokers)
            profile = profile_of(seeds.profile, seed)
            world = make(seed=seed, profile=profile, voters=seeds.voters, observers=seeds.observers)
            try:
                violations = world.run(SECONDS)
            except Exception as error:  # the mutant broke something that even the simulator rests on
                violations = [f"{type(error).__name__}: {error}"]
            if violations:
                return seed, violations[0]
    return None


_FOR_THE_RUN: Final = ExitStack()
"""Never closed: the process ends with the run."""


def pytest_configure(config: object) -> None:
    """Put the mutant that the environment names in place for a whole run of pytest."""
    name = os.environ.get(VARIABLE)
    if name is not None:
        _FOR_THE_RUN.enter_context(in_place(named(name)))


# --- the command


def table_of(caught: Sequence[Caught]) -> str:
    lines = ["| mutant | what is broken | caught by | seeds | s |", "|---|---|---|---:|---:|"]
    for one in caught:
        seeds = "" if one.seeds is None else str(one.seeds)
        how = "**NOT CAUGHT**" if one.how is None else str(one.mutant.caught_by)
        lines.append(f"| {one.mutant.name} | {one.mutant.breaks} | {how} | {seeds} | {one.seconds:.0f} |")
    return "\n".join(lines)


def main(only: str | None = None, markdown: Path | None = None) -> int:
    """Try all mutants, or one, and print the table; 1 if one was not caught."""
    chosen = MUTANTS if only is None else (named(only),)
    caught = []
    for mutant in chosen:
        caught.append(catch(mutant))
        told = caught[-1].how or "NOT CAUGHT"
        print(f"{mutant.name}: {told[:150]} ({caught[-1].seconds:.0f} s)", flush=True)
    missed = [one.mutant.name for one in caught if one.how is None]
    print(f"{len(caught) - len(missed)} of {len(caught)} mutants caught", *missed)
    if markdown is not None:
        begin, end = "<!-- table -->\n", "<!-- end of table -->\n"
        text = markdown.read_text()
        markdown.write_text(f"{text.split(begin)[0]}{begin}{table_of(caught)}\n{end}{text.split(end)[1]}")
    return 1 if missed else 0


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants")
    parser.add_argument("--live", choices=[mutant.name for mutant in MUTANTS])
    found = live(named(parser.parse_args().live))
    if found is None:
        sys.exit(1)
    print(f"{found[0]}\t{' '.join(found[1].split())}")
