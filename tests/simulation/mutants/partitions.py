"""Pure: seeded bugs of decisions about ISRs, reassignments, sweeps, settings, and topics and their deletion."""

import importlib
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from tests.simulation.mutants.mutant import Directed, Mutant, Seeds, always, leaves_cleanly

_ISR_TESTS: Final = "tests/unit/quorum/decide/test_partitions.py"
_KAFKA_TESTS: Final = "tests/unit/quorum/whatif/test_kafka_scripts.py"
_KAFKA_CASE: Final = f"{_KAFKA_TESTS}::test_a_case_is_answered_as_kafka_answers_it"
_SWEEP_TESTS: Final = "tests/unit/quorum/decide/test_sweeps.py"
_DELETED_TESTS: Final = "tests/unit/quorum/decide/test_deleted_topics.py"
_ITEM_TESTS: Final = "tests/unit/quorum/decide/test_items.py"
_TOPIC_TESTS: Final = "tests/unit/quorum/decide/test_topics.py"
_HOST_TESTS: Final = "tests/unit/broker_agent/test_dataless_host.py"
_CONTROLLERS_TESTS: Final = "tests/unit/quorum/decide/test_controllers.py"
_PLAN_TESTS: Final = "tests/unit/ops/admin/test_reassignment_plan.py"
_HISTORY_TESTS: Final = "tests/unit/ops/admin/test_reassignment_history.py"
_SIZE_TESTS: Final = "tests/unit/quorum/http/test_too_large.py"
_PRODUCER_IDS_TESTS: Final = "tests/unit/quorum/decide/test_producer_ids.py"


def _names_the_deleted(original: Any) -> Any:
    def named(topics: Any, name: str) -> Any:
        deleted = (each.topic for each in topics.deleted.values() if each.topic.name == name)
        return original(topics, name) or next(deleted, None)

    return named


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


def _in_one_turn(original: Any) -> Any:
    return lambda sweep, context: original(sweep, replace(context, is_turn_over=lambda: False))


def _recovers_never(original: Any) -> Any:
    return lambda electorate, target, *partition: original(
        electorate, target._replace(recovery_state=None), *partition
    )


MUTANTS: Final = (
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
        Seeds("returns", 25),
    ),
    Mutant(
        "moved-behind-the-walk",
        "a replica that is reported in a directory between two parts of its failure stays in its ISR",
        "quorum.controller.changes:Changes.failing_directories",
        always(()),
        Directed(
            "tests/unit/quorum/decide/test_brokers.py"
            "::test_a_replica_that_is_reported_in_a_directory_between_two_parts_of_its_failure_leaves_its_isr"
        ),
    ),
    Mutant(
        "deleted-behind-the-failure",
        "the failure of a directory passes over deleted topics, which can be restored",
        "quorum.decide.heartbeat:without_directory",
        always(None),
        Directed(
            "tests/unit/quorum/decide/test_deleted_topics.py"
            "::test_a_directory_that_failed_and_came_back_is_in_no_isr_that_comes_back"
        ),
    ),
    Mutant(
        "restored-without-its-directory",
        "a broker that came back without a directory is in the ISRs of restored topics that had replicas there",
        "quorum.decide.elections:Electorate._present",
        lambda _original: (
            lambda electorate, _partition, isr: tuple(each for each in isr if each in electorate._up) or isr
        ),
        Directed(
            "tests/unit/quorum/decide/test_deleted_topics.py"
            "::test_a_broker_that_comes_back_without_a_directory_is_in_no_isr_that_relied_on_it"
        ),
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
                always(()),
                "B38-elr",
            ),
            (
                "last-leader-forgotten",
                "the last leader of a partition without any eligible replica is forgotten",
                "elections:_last_known",
                always(None),
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
                leaves_cleanly,
                "B38-unclean-shutdown",
            ),
            (
                "eligible-for-good",
                "who was eligible under another min.insync.replicas still is",
                "configs:_topics_cleared",
                always(()),
                "B40-elr-configs",
            ),
            (
                "min-isr-of-one-broker",
                "with eligible leader replicas, min.insync.replicas of a single broker can be set",
                "configs:_has_eligible",
                always(False),
                "B40-elr-configs",
            ),
            (
                "directories-forgotten",
                "new replicas have no directories",
                "elections:_directories",
                always(None),
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
                always(None),
                "B49-manual-assignment-errors",
            ),
            (
                "factor-changes",
                "a reassignment changes the replication factor though it must not",
                "reassignments:_check_factor",
                always(None),
                "B49-manual-assignment-errors",
            ),
            (
                "names-collide",
                "two topics have names that metrics cannot tell apart",
                "topics:check_collision",
                always(None),
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
        always(None),
        Directed(f"{_TOPIC_TESTS}::test_a_policy_is_asked_last"),
    ),
    Mutant(
        "as-it-comes",
        "values of brokers' settings that are no numbers are stored",
        "quorum.decide.configs:_check_as_brokers",
        always(None),
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
        "features-nobody-asked",
        "a feature is finalized at a level that a registered broker or controller does not support",
        "quorum.decide.features:_blockers",
        lambda _original: lambda *_: iter(()),
        Directed(f"{_CONTROLLERS_TESTS}::test_every_registered_controller_must_support_the_level"),
    ),
    Mutant(
        "ids-go-back",
        "producer ids that were given away are given away again",
        "metadata_log.image.producer_ids:_check_grows",
        always(None),
        Directed(f"{_PRODUCER_IDS_TESTS}::test_the_next_id_only_grows"),
    ),
    Mutant(
        "balances-nothing",
        "leaderships never go back to first replicas",
        "quorum.decide.sweeps:Sweep._topics",
        always(()),
        Directed(f"{_SWEEP_TESTS}::test_leaderships_go_back_to_first_replicas"),
    ),
    Mutant(
        "sweeps-uncleanly",
        "topics that accept no loss are elected uncleanly by the sweep",
        "quorum.decide.elections:is_unclean_allowed",
        always(True),
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
        always(0),
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
        always(None),
        Directed(f"{_DELETED_TESTS}::test_who_may_have_lost_messages_is_in_no_isr_that_comes_back"),
    ),
    Mutant(
        "comes-back-fenced",
        "a restored topic has fenced brokers in its ISRs",
        "quorum.decide.elections:Electorate._present",
        lambda _original: lambda _electorate, _partition, isr: isr,
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
        always(True),
        Directed(f"{_ISR_TESTS}::test_a_leader_whose_directory_is_lost_reports_an_isr_and_leads_no_longer"),
    ),
    Mutant(
        "plan-forgets",
        "a plan of reassignments takes what is under way for something else",
        "ops.admin.reassignment_plan:_is_on_its_way",
        always(False),
        Directed(f"{_PLAN_TESTS}::test_a_plan_that_is_interrupted_again_and_again_does_nothing_twice"),
    ),
    Mutant(
        "plan-as-a-whole",
        "a plan of reassignments begins all at once",
        "ops.admin.reassignment_plan:Progress.take",
        lambda original: lambda progress, image, _at_most: original(progress, image, 0),
        Directed(f"{_PLAN_TESTS}::test_a_plan_is_carried_out_a_part_at_a_time"),
    ),
    Mutant(
        "history-without-ends",
        "a reassignment that another replaced, or that was cancelled, is told as completed",
        "ops.admin.reassignment_history:_how_it_ended",
        always("completed"),
        Directed(f"{_HISTORY_TESTS}::test_each_reassignment_is_told_from_its_beginning_to_its_end"),
    ),
    Mutant(
        "places-whatever-is-asked",
        "new partitions are placed before anybody counts whether their records fit into a batch",
        "quorum.decide.topics:check_fits",
        always(None),
        Directed(f"{_SIZE_TESTS}::test_each_door_names_what_was_asked_for_and_what_fits"),
    ),
    Mutant(
        "sweep-skips-what-was-refused",
        "a part of a sweep whose append was refused is not decided once more",
        "quorum.decide.sweeps:Sweep._is_refused",
        always(False),
        Directed(
            "tests/unit/quorum/test_refused_appends.py::test_a_sweep_whose_append_is_refused_leaves_no_partition_out"
        ),
    ),
)
