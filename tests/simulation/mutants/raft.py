"""Pure: seeded bugs of consensus: elections, replication, members, reads."""

import importlib
from functools import partial
from typing import Any, Final
from unittest.mock import patch

from metadata_log.limits import RAFT_APPEND_BYTES_MAX, RAFT_IN_FLIGHT_BYTES
from tests.simulation.mutants.mutant import Directed, Mutant, Seeds, always, reads_at_once

_GUARD_TESTS: Final = "tests/unit/quorum/raft/test_guard_rules.py"
_ADAPTER_TESTS: Final = "tests/unit/quorum/raft/test_adapter.py"
_SLOW_TESTS: Final = "tests/simulation/test_slow.py"
_RAW_TESTS: Final = "tests/unit/quorum/raft/test_raw_node.py"
_VOTERS_TESTS: Final = "tests/unit/quorum/raft/test_voters.py"
_L: Final = "quorum.raft.adapter:PySyncObjLog"


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


def _asks_without_patience(probe: Any) -> Any:
    def asks(replication: Any, peer: Any, progress: Any) -> None:
        progress.asked_at = float("-inf")
        probe(replication, peer, progress)

    return asks


def _always_hurries(hurries: Any) -> Any:
    def again(node: Any) -> Any:
        node.only_began_sync = False
        return hurries(node)

    return again


def _trusts_any_timer(step: Any) -> Any:
    return lambda node, now, timer_is_set=False: step(node, now, timer_is_set=True)


def _tells_each_role(_original: Any) -> Any:
    def cease(node: Any) -> None:
        node.proposals.clear()
        node._tell += (False,)

    return cease


def _counts_who_forgot(count_synced: Any) -> Any:
    def count(replication: Any) -> None:
        for progress in replication.peers.values():
            progress.forgot = False
        count_synced(replication)

    return count


def _forgets_that_it_only_joins(original: Any) -> Any:
    def init(log: Any, **given: Any) -> None:
        original(log, **given | {"only_joins": False})

    return init


def _forgets_who_voted(original: Any) -> Any:
    def stand_on(in_force: Any, voters: Any) -> None:
        founders = in_force._before_log
        original(in_force, voters)
        in_force._before_log = founders

    return stand_on


def _packs_whatever_waits(original: Any) -> Any:
    limits = importlib.import_module("metadata_log.limits")

    def take(proposals: Any) -> Any:
        with patch("quorum.raft.proposals.RAFT_ENTRY_SHARED_BYTES", limits.RAFT_ENTRY_BYTES_MAX):
            return original(proposals)

    return take


def _every_loss_is_the_leaders(original: Any) -> Any:
    def lost(guard: Any, node_id: Any, now_ms: float, *, by_peer: bool) -> None:
        del by_peer
        original(guard, node_id, now_ms, by_peer=True)

    return lost


def _campaigns_at_once(_original: Any) -> Any:
    return lambda elections: elections.campaign()


def _keeps_the_unproved(_original: Any) -> Any:
    return lambda reads: reads._round is None and reads._state.engine.role.value == "leader"


def _asks_for_its_own_term(original: Any) -> Any:
    def on_pre_vote(elections: Any, source: Any, message: Any) -> None:
        if message["term"] == elections._state.engine.term:
            elections._send(source, {"type": "pre_vote_response", "term": message["term"], "granted": False})
        else:
            original(elections, source, message)

    return on_pre_vote


MUTANTS: Final = (
    Mutant(
        "member",
        "a wiped voter's acknowledgements count as those of the voter it was",
        "quorum.raft.quorum_state:QuorumState.counts",
        always(True),
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
        "quorum.raft.raw_node:RawNode.change_pending",
        always(False),
        Directed(f"{_VOTERS_TESTS}::test_one_change_at_a_time"),
    ),
    Mutant(
        "change-of-two",
        "two voters change at once",
        "quorum.raft.raw_node:check_one_change",
        always(None),
        Directed(f"{_VOTERS_TESTS}::test_two_voters_do_not_change_at_once"),
    ),
    Mutant(
        "change-unproved",
        "a leader proposes a change before it has committed anything",
        "quorum.raft.raw_node:RawNode.check_change",
        always(None),
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
        always(False),
        Directed(f"{_ADAPTER_TESTS}::test_a_node_with_an_empty_log_founds_no_second_quorum"),
    ),
    Mutant(
        "founds-though-it-only-joins",
        "a new disk that was formatted to join founds a quorum with another new disk",
        f"{_L}.__init__",
        _forgets_that_it_only_joins,
        Directed(f"{_ADAPTER_TESTS}::test_a_disk_that_only_joins_votes_for_nobody_whose_log_is_empty"),
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
        always(True),
        Directed(f"{_GUARD_TESTS}::test_term_a_higher_one_deposes"),
    ),
    Mutant(
        "lower-term",
        "a message of a lower term is not answered with the higher one",
        "quorum.raft.quorum_state:QuorumState.rejects_lower_term",
        always(False),
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
        always(True),
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
        "late-change-deposes",
        "a candidate that applies a change of voters late makes voters vote although they hear a leader",
        "quorum.raft.elections:Elections.was_asked",
        always(True),
        Directed(f"{_VOTERS_TESTS}::test_a_candidate_that_applies_a_change_late_deposes_no_live_leader"),
    ),
    Mutant(
        "live-leader",
        "a node votes against a leader whose messages still arrive",
        "quorum.raft.elections:Elections.has_live_leader",
        always(False),
        Directed(f"{_GUARD_TESTS}::test_live_leader_is_not_voted_away"),
    ),
    Mutant(
        "lost-leader",
        "a closed link to the leader begins no pre-vote",
        "quorum.raft.elections:Elections.lost_leader",
        always(None),
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
        always(1e9),
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
        "observers-window",
        "as much is in flight to whoever is linked as to a voter",
        "quorum.raft.replication:Replication.window",
        lambda _: lambda *_: RAFT_IN_FLIGHT_BYTES,
        Directed(f"{_GUARD_TESTS}::test_observers_that_acknowledge_nothing_are_sent_little"),
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
        "quorum.raft.applied_entries:AppliedEntries.until",
        lambda _: lambda applied: applied._state.commit_index,
        Seeds("swarm", 120),
    ),
    Mutant(
        "only-syncs",
        "a follower under load never applies",
        "quorum.raft.raw_node:RawNode.syncs_first",
        _always_hurries,
        Directed(f"{_ADAPTER_TESTS}::test_a_follower_puts_off_applying_for_a_sync_but_not_for_ever"),
    ),
    Mutant(
        "trusts-a-timer-that-rang",
        "an answer from which nothing follows, as the timer rings, leaves a leader without a timer",
        "quorum.raft.raw_node:RawNode.step",
        _trusts_any_timer,
        Directed(f"{_RAW_TESTS}::test_a_plan_of_nothing_needs_a_timer_that_is_set"),
    ),
    Mutant(
        "tells-a-leadership-of-no-time",
        "the listener is told of a leadership that ended before it could append",
        "quorum.raft.raw_node:RawNode._cease_to_lead",
        _tells_each_role,
        Directed(f"{_RAW_TESTS}::test_a_leadership_of_no_time_is_never_told"),
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
        always(False),
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
        always(False),
        Seeds("nasty", 30, raft_only=True),
    ),
    Mutant(
        "read-majority",
        "a read asks no majority",
        "quorum.raft.read_rounds:ReadRounds.is_confirmed",
        always(True),
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
        "counts-early-votes",
        "a candidate counts votes before its own is durable",
        "quorum.raft.elections:Elections.awaits_own_vote",
        always(False),
        Directed(f"{_GUARD_TESTS}::test_own_vote_no_votes_are_counted_before_it_is_durable"),
    ),
    Mutant(
        "overtakes",
        "voters promise further terms while their votes wait for slow disks",
        "quorum.raft.elections:Elections.awaits_own_vote",
        always(False),
        Directed(f"{_GUARD_TESTS}::test_own_vote_no_candidacy_overtakes_one_that_waits_for_a_slow_disk"),
    ),
    Mutant(
        "asks-for-an-unsynced-log",
        "a candidate names a log that its disk lacks",
        "quorum.raft.outbox:Outbox.split_by_sync",
        lambda _: (
            lambda _outbox, message: (
                (None, message) if message["type"] == "response_vote" else (message, None)
            )
        ),
        Directed(f"{_GUARD_TESTS}::test_request_vote_names_a_log_that_is_durable"),
    ),
    Mutant(
        "no-time-for-slow-disks",
        "a voter asks for the next term as soon as its own vote is durable",
        "quorum.raft.elections:Elections._postpone",
        lambda original: lambda elections, _syncs_ms=0.0: original(elections),
        Directed(
            "tests/unit/quorum/raft/test_slow_disks.py::test_the_first_candidate_wins_although_its_disk_is_later"
        ),
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
        reads_at_once,
        Seeds("fifo", 110),
    ),
    Mutant(
        "entries-of-any-size",
        "all batches that wait share one entry, which followers apply in one turn of the loop",
        "quorum.raft.proposals:Proposals.take",
        _packs_whatever_waits,
        Seeds("heavy", 30),
    ),
    Mutant(
        "elects-late",
        "elections wait for twenty times as long",
        "tests.simulation.world.world:RaftSettings",
        lambda settings: partial(settings, election_timeout_min_ms=6_000, election_timeout_max_ms=12_000),
        Seeds("fifo", 40),
    ),
    Mutant(
        "leads-before-it-applied",
        "a new leader appends before it has applied its log",
        "quorum.raft.applied_entries:AppliedEntries.has_tail",
        always(False),
        Directed(f"{_ADAPTER_TESTS}::test_a_new_leader_with_a_log_to_apply_leads_once_it_is_applied"),
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
        always(False),
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
        "deaf-to-arriving-bytes",
        "a leader is silent while a large message of it arrives",
        "quorum.raft.follower_log:FollowerLog.on_arriving",
        always(None),
        Directed(f"{_SLOW_TESTS}::test_a_leader_is_not_deposed_by_its_own_entries"),
    ),
    Mutant(
        "arrivals-unreported",
        "a link reports no bytes of a message that is not whole",
        "quorum.raft.link:HEARTBEAT_MS",
        lambda _original: float("inf"),
        Directed(f"{_SLOW_TESTS}::test_a_leader_is_not_deposed_by_its_own_entries"),
    ),
    Mutant(
        "anybodys-bytes-count",
        "bytes of a former leader, or of anybody, keep a node from asking for votes",
        "quorum.raft.belief:Belief.follows",
        always(True),
        Directed(f"{_GUARD_TESTS}::test_arriving_bytes_of_a_former_leader_keep_nobody"),
    ),
    Mutant(
        "entries-in-huge-messages",
        "entries share messages of any size up to what a link takes",
        "quorum.raft.replication:RAFT_APPEND_SHARED_BYTES",
        lambda _original: RAFT_APPEND_BYTES_MAX,
        Directed(
            f"{_SLOW_TESTS}::test_entries_share_messages_of_a_bounded_size_and_large_ones_fill_the_window"
        ),
    ),
    Mutant(
        "stands-on-a-busy-disk",
        "a node asks for votes while its disk still writes its vote, or its log",
        "quorum.raft.elections:Elections.may_stand",
        always(True),
        Seeds("slow-disks", 12, voters=5, raft_only=True),
    ),
    Mutant(
        "takes-waiting-for-hanging",
        "a sync that waits for other work on the disk counts as one that hangs",
        "quorum.raft.journal_sync:JournalSync.running_since",
        lambda _original: property(lambda sync: sync.since),
        Directed(
            f"{_SLOW_TESTS}::"
            "test_a_leader_on_slow_disks_leads_on_while_snapshots_are_named_and_files_are_begun"
        ),
    ),
    Mutant(
        "heartbeats-only-when-idle",
        "a follower that is sent entries is sent no heartbeat, which it would answer before its sync",
        "quorum.raft.replication:Replication._due_at",
        lambda _original: (
            lambda replication, progress: progress.sent_at + replication._state.settings.heartbeat_ms
        ),
        Directed(f"{_SLOW_TESTS}::test_followers_on_slow_disks_keep_their_leader_under_writes"),
    ),
)
