"""Pure: seeded bugs of the controller: claims, waiters, sessions, fencings in parts, kept answers, registrations."""

import asyncio
import dataclasses
import os
import time
from collections import Counter
from typing import Any, Final

from metadata_log.errors import ChangePending
from metadata_log.image.metadata_image import EMPTY
from metadata_log.limits import LOOP_SLICE_MS
from quorum.pace.turns import Turns
from tests.simulation.mutants.mutant import Directed, Mutant, Seeds, always, reads_at_once

_CONTROLLER_TESTS: Final = "tests/unit/quorum/controller/test_controller.py"
_REGISTRATION_TESTS: Final = "tests/unit/quorum/node/test_registration.py"
_BROKER_TESTS: Final = "tests/unit/quorum/decide/test_brokers.py"
_FETCH_TESTS: Final = "tests/unit/quorum/fetch/test_service.py"
_SERVER_TESTS: Final = "tests/unit/quorum/node/test_server.py"
_C: Final = "quorum.controller.controller:Controller"


def _under_another_id(original: Any) -> Any:
    return lambda registration, _request_id: original(registration, os.urandom(16))


def _refuses_the_third_change(check_change: Any) -> Any:
    passed: Counter[int] = Counter()

    def check(command: Any, raft: Any, *, node_id: int) -> None:
        if passed[node_id] >= 2:
            raise ChangePending("another change of voters is in flight; ask again when it is in force")
        check_change(command, raft, node_id=node_id)
        passed[node_id] += 1

    return check


def _leads_before_its_claim_is_applied(original: Any) -> Any:
    def claim(controller: Any) -> None:
        original(controller)
        controller.reign.is_active = True

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


def _forgets_requests(original: Any) -> Any:
    async def submit(controller: Any, command: Any, *, actor: Any, request_id: Any) -> Any:
        return await original(controller, command, actor=actor, request_id=None)

    return submit


def _takes_any_batch_at_its_offset(_original: Any) -> Any:
    return lambda image, batch: batch.base_offset == image.end_offset


def _begins_nothing(take_over: Any) -> Any:
    return lambda changes, image: take_over(changes, dataclasses.replace(image, begun=EMPTY.begun))


def _joins_those_under_way(elect_for: Any) -> Any:
    return lambda changes, broker_id: None if changes.elected_to else elect_for(changes, broker_id)


def _looks_at_the_tip_alone(_original: Any) -> Any:
    return lambda controller, _command, image, _leaving: controller.tip is image


def _takes_the_first(_original: Any) -> Any:
    return lambda changes: next(iter(changes), None)


def _keeps_what_was_begun(begun_after: Any) -> Any:
    return lambda begun, batch, features: (
        begun if batch.claim is not None else begun_after(begun, batch, features)
    )


def _waits_for_no_record(original: Any) -> Any:
    return lambda *args, **rest: (original(*args, **rest)[0], None)


def _evicts_by_its_own_clock(original: Any) -> Any:
    def evicted(results: Any, *, now_ms: int) -> Any:
        del now_ms
        return original(results, now_ms=time.time_ns() // 1_000_000)

    return evicted


def _lets_go_of_sessions(_original: Any) -> Any:
    return lambda *_args, **_kwargs: None


def _goes_on_whatever_was_written(_original: Any) -> Any:
    async def in_slices(turns: Any, work: Any, **_: Any) -> Any:
        began_ms = turns._now_ms()
        while True:
            try:
                next(work)
            except StopIteration as ended:
                turns.is_mid_decision = False
                turns._end_turn()
                return ended.value
            if turns._now_ms() - began_ms >= LOOP_SLICE_MS:
                turns.is_mid_decision = True
                turns._hold()
                await asyncio.sleep(0)
                began_ms = turns._now_ms()

    return in_slices


def _keeps_its_builders(parts: Any) -> Any:
    def keeping(builders: Any) -> Any:
        held = builders._open
        made = yield from parts(builders)
        builders._open = held
        return made

    return keeping


MUTANTS: Final = (
    Mutant(
        "slices-of-any-length",
        "a large request is decided, encoded and applied without a rest",
        "metadata_log.limits:LOOP_SLICE_MS",
        lambda _original: 10**9,
        Directed(f"{_CONTROLLER_TESTS}::test_a_large_request_leaves_the_loop_to_others_and_is_one_batch"),
    ),
    Mutant(
        "goes-on-on-an-old-tip",
        "a large request is appended though something was written while it rested",
        "quorum.pace.turns:Turns.in_slices",
        _goes_on_whatever_was_written,
        Directed(
            f"{_CONTROLLER_TESTS}::test_a_tip_that_moves_in_the_middle_of_a_large_request_has_it_begin_again"
        ),
    ),
    Mutant(
        "keeps-its-builders",
        "each batch leaves a cycle that holds the image before it",
        "metadata_log.apply:_OpenBuilders.parts",
        _keeps_its_builders,
        Directed(
            "tests/unit/metadata_log/test_apply.py::test_what_is_applied_leaves_nothing_for_the_cycle_collector"
        ),
    ),
    Mutant(
        "walks-from-the-start",
        "each part of a fencing walks over the broker's partitions from the first",
        "quorum.controller.changes:Changes.visited",
        always(None),
        Seeds("heavy", 10),
    ),
    Mutant(
        "parts-of-any-length",
        "a part of a long change takes as long as its records do",
        "quorum.controller.upkeep:PART_MS",
        lambda _original: 10**9,
        Seeds("heavy", 20),
    ),
    Mutant(
        "ends-unheard",
        "who waits for records when a controller ends is told nothing",
        f"{_C}.stop_waiting",
        always(None),
        Directed(f"{_SERVER_TESTS}::test_who_waits_for_a_controller_that_stops_is_answered_before_it_ends"),
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
        "quorum.controller.waiters:Waiters.fail_before",
        _waits_under_any_claim,
        Directed(f"{_CONTROLLER_TESTS}::test_a_newer_claim_ends_older_waiters_before_their_offset_is_filled"),
    ),
    Mutant(
        "keeps-waiters",
        "a newer claim ends no older waiter",
        "quorum.controller.waiters:Waiters.fail_before",
        always(None),
        Directed(_CONTROLLER_TESTS),
    ),
    Mutant(
        "hasty-refusal",
        "a refusal does not wait for what it rests on",
        f"{_C}._carried_out",
        _refuses_at_once,
        Directed(f"{_CONTROLLER_TESTS}::test_a_refusal_waits_for_the_records_it_rests_on"),
    ),
    Mutant(
        "no-turns",
        "long decisions that arrive together are made one right after the other",
        "quorum.pace.turns:Turns.wait_for_turn",
        reads_at_once,
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
        "half-fenced-leads",
        "a broker between two parts of its fencing gets replicas and leads",
        "metadata_log.image.begun:begun_after",
        always(EMPTY.begun),
        Directed(
            f"{_CONTROLLER_TESTS}::test_a_topic_made_between_two_parts_of_a_fencing_keeps_off_the_broker"
        ),
        elsewhere=("metadata_log.apply",),
    ),
    Mutant(
        "unwritten-fencing",
        "a broker whose fencing has visited partitions and written nothing yet gets replicas and leads",
        "quorum.controller.changes:Changes.leaving",
        always(frozenset()),
        Directed(
            f"{_CONTROLLER_TESTS}::test_a_broker_whose_fencing_began_without_a_record_gets_nothing_either"
        ),
    ),
    Mutant(
        "unregisters-the-living",
        "a controller that runs can be unregistered",
        "quorum.controller.controller:Controller._is_linked",
        always(False),
        Directed(f"{_REGISTRATION_TESTS}::test_a_controller_that_is_linked_keeps_its_registration"),
    ),
    Mutant(
        "registers-twice",
        "a registration whose answer was lost is sent as another one",
        "quorum.node.registration:Registration._register",
        _under_another_id,
        Directed(f"{_REGISTRATION_TESTS}::test_a_lost_answer_leads_to_no_second_record"),
    ),
    Mutant(
        "asks-no-rights",
        "a command is decided whatever its caller may",
        "quorum.controller.callers:authorize",
        always(None),
        Directed("tests/unit/quorum/controller/test_callers.py"),
    ),
    Mutant(
        "changes-voters-no-more",
        "once two changes of voters were made, the next is refused for ever",
        "quorum.decide.quorum:check_change",
        _refuses_the_third_change,
        Seeds("members", 20),
    ),
    Mutant(
        "takes-late-batches",
        "a deposed controller's late batch is applied",
        "metadata_log.apply:is_next",
        _takes_any_batch_at_its_offset,
        Directed("tests/unit/metadata_log/test_apply.py"),
        elsewhere=("quorum.controller.standby", "broker_agent.follower"),
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
        "quorum.controller.sessions:Sessions.grant_all",
        always(None),
        Directed(_CONTROLLER_TESTS),
    ),
    Mutant(
        "all-in-one-turn",
        "all that arrived together is decided in one turn of the loop",
        "quorum.pace.turns:Turns.is_round_long",
        lambda _original: property(lambda _turns: False),
        Directed(
            f"{_CONTROLLER_TESTS}::test_long_decisions_that_arrive_together_leave_the_loop_to_others_in_between"
        ),
    ),
    Mutant(
        "new-leader-new-session",
        "a new leader begins nothing of what the one before had begun",
        "quorum.controller.changes:Changes.take_over",
        _begins_nothing,
        Directed(f"{_CONTROLLER_TESTS}::test_a_new_controller_goes_on_with_a_fencing_at_once"),
    ),
    Mutant(
        "half-an-election",
        "a new leader leaves an election in parts as the one before left it",
        "quorum.controller.changes:Changes.take_over",
        always(None),
        Directed(f"{_CONTROLLER_TESTS}::test_an_election_in_parts_is_gone_on_with_by_the_next_controller"),
    ),
    Mutant(
        "joins-amid-elections",
        "the elections under way count for a broker that joins amid them",
        "quorum.controller.changes:Changes.elect_for",
        _joins_those_under_way,
        Directed(f"{_BROKER_TESTS}::test_who_joins_amid_elections_in_parts_gets_its_own_behind_them"),
    ),
    Mutant(
        "one-after-the-other",
        "a long change makes all its parts before another one makes any",
        "quorum.controller.changes:Changes.next",
        _takes_the_first,
        Directed(f"{_CONTROLLER_TESTS}::test_fencings_take_turns_part_by_part"),
    ),
    Mutant(
        "answers-amid-a-fencing",
        "a broker is answered between two parts of its fencing, and serves beyond the last",
        "quorum.controller.changes:Changes.takes_out",
        always(False),
        Directed(
            f"{_FETCH_TESTS}::test_a_broker_that_is_being_fenced_gets_no_answer_before_its_fencing_is_applied"
        ),
    ),
    Mutant(
        "removal-without-a-request",
        "who repeats a removal that another controller finished is told that there is no such broker",
        "quorum.controller.upkeep:with_request",
        lambda _original: lambda cause, *_: cause,
        Directed(
            f"{_CONTROLLER_TESTS}::test_a_removal_that_the_next_controller_finishes_is_answered_to_who_repeats_it"
        ),
    ),
    Mutant(
        "believes-an-old-fencing",
        "a fencing goes on behind a controller that may not have known of it",
        "metadata_log.image.begun:begun_after",
        _keeps_what_was_begun,
        Directed(
            f"{_CONTROLLER_TESTS}::"
            "test_a_fencing_is_not_gone_on_with_behind_a_controller_that_may_not_have_known_of_it"
        ),
        elsewhere=("metadata_log.apply",),
    ),
    Mutant(
        "waits-behind-a-creation",
        "session checks and long changes wait for a large request",
        "quorum.controller.controller:OVERTAKEN_MAX",
        lambda _original: 0,
        Directed(f"{_CONTROLLER_TESTS}::test_a_fencing_overtakes_a_large_request_which_is_decided_behind_it"),
    ),
    Mutant(
        "parts-wait-behind-a-creation",
        "a part of a long change waits for the end of a large request, as a small one does",
        "quorum.pace.turns:Turns.wait_for_part",
        lambda _original: Turns.wait_for_turn,
        Seeds("heavy", 8),
    ),
    Mutant(
        "overtaken-by-nothing-written",
        "a large request gives partitions to a broker whose fencing began meanwhile and is past them",
        f"{_C}._holds",
        _looks_at_the_tip_alone,
        Directed(
            f"{_CONTROLLER_TESTS}::test_a_fencing_that_begins_without_a_record_overtakes_a_large_request_too"
        ),
    ),
    Mutant(
        "overtaken-for-ever",
        "a large request begins again as often as anything overtakes it",
        "quorum.controller.controller:OVERTAKEN_MAX",
        lambda _original: 10**9,
        Directed(
            f"{_CONTROLLER_TESTS}::test_a_large_request_that_is_overtaken_again_and_again_is_decided_all_the_same"
        ),
    ),
    Mutant(
        "answers-whom-it-fences",
        "a broker is answered while the records of its fencing are in flight, and serves beyond them",
        f"{_C}.heartbeat",
        _waits_for_no_record,
        Directed(
            f"{_FETCH_TESTS}::test_a_broker_that_is_being_fenced_gets_no_answer_before_its_fencing_is_applied"
        ),
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
