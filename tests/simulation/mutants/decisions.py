"""Pure: seeded bugs of decisions about brokers and partitions: name, what is broken, where, what stands there instead, and
the directed test that notices it.
"""

import importlib
from collections.abc import Callable
from typing import Any, Final

from msgspec import structs

from metadata_log.ids import NO_LEADER
from metadata_log.wire.shapes import INT64_MAX
from tests.simulation.mutants.mutant import Directed, Mutant, always

Row = tuple[str, str, str, Callable[[Any], Any], str]

_KAFKA: Final = "tests/unit/quorum/whatif/test_kafka_scripts.py::test_a_case_is_answered_as_kafka_answers_it"
_TRANSCRIPT: Final = "tests/transcripts/test_transcripts.py::test_the_cluster_does_as_the_transcript_says"
_DECIDE: Final = "tests/unit/quorum/decide"


def _elections() -> Any:
    return importlib.import_module("quorum.decide.elections")


def _knows_no_preference(elect: Any) -> Any:
    def mutant(*args: Any, election: Any, **kwargs: Any) -> Any:
        kinds = _elections().Election
        return elect(*args, election=kinds.ONLINE if election is kinds.PREFERRED else election, **kwargs)

    return mutant


def _never_unclean(elect: Any) -> Any:
    def mutant(*args: Any, election: Any, **kwargs: Any) -> Any:
        kinds = _elections().Election
        return elect(*args, election=kinds.ONLINE if election is kinds.UNCLEAN else election, **kwargs)

    return mutant


def _forgets_the_last_leader(elect: Any) -> Any:
    return lambda *args, **kwargs: elect(*args, **kwargs | {"with_last_known": False})


def _moves_for_nothing(elect: Any) -> Any:
    return lambda partition, *args, **kwargs: elect(partition._replace(leader=NO_LEADER), *args, **kwargs)


def _without(change: Any, drop: Callable[[Any, Any], dict[str, None]]) -> Any:
    def mutant(topic_id: Any, partition_id: int, partition: Any, **kwargs: Any) -> Any:
        record = change(topic_id, partition_id, partition, **kwargs)
        return None if record is None else record._replace(**drop(partition, record))

    return mutant


def _keeps_the_epoch(change: Any) -> Any:
    return _without(change, lambda was, record: {"leader": None} if record.leader == was.leader else {})


def _recovers_at_once(change: Any) -> Any:
    return _without(change, lambda _was, _record: {"leader_recovery_state": None})


def _anybody_leads(_original: Any) -> Any:
    return lambda electorate, broker_id, partition: broker_id in partition.replicas


def _fences_first(fenced: Any) -> Any:
    def mutant(*args: Any, **rest: Any) -> Any:
        decision = fenced(*args, **rest)
        return structs.replace(decision, records=tuple(reversed(decision.records)))

    return mutant


def _believes_any_epoch(_original: Any) -> Any:
    return lambda image, command: image.brokers[command.broker_id]


def _goes_at_once(_original: Any) -> Any:
    return lambda broker: broker._let_go()


def _in_sync_though_fenced(partition: Any) -> Any:
    def mutant(new: Any, replicas: Any) -> Any:
        made = partition(new, replicas)
        return None if made is None else made._replace(isr=replicas)

    return mutant


def _drops_at_once(_original: Any) -> Any:
    return lambda _partition, replicas: _elections().Target(replicas=replicas)


def _writes_what_is_there(_original: Any) -> Any:
    record = importlib.import_module("metadata_log.records.configs").ConfigRecord
    return lambda _context, resource, _before, values: [
        record(resource.resource_type, resource.resource_name, name, value) for name, value in values.items()
    ]


def _fenced_first(_original: Any) -> Any:
    def mutant(rack: Any, epoch: int) -> Any:
        broker_id = rack._fenced.next(epoch)
        return rack._up.next(epoch) if broker_id is None else broker_id

    return mutant


def _every_broker(_original: Any) -> Any:
    def mutant(context: Any) -> Any:
        usable = importlib.import_module("quorum.decide.placement").UsableBroker
        return tuple(
            usable(broker_id, broker.rack, broker.fenced)
            for broker_id, broker in sorted(context.image.brokers.items())
        )

    return mutant


def _case(name: str) -> str:
    return f"{_KAFKA}[{name}]"


_ROWS: Final[tuple[Row, ...]] = (
    (
        "preferred-is-online",
        "a preferred election leaves the present leader where it is",
        "quorum.decide.elections:_elect",
        _knows_no_preference,
        _case("B30-elections"),
    ),
    (
        "never-unclean",
        "a partition that accepts losses waits for its ISR all the same",
        "quorum.decide.elections:_elect",
        _never_unclean,
        _case("B32-unclean"),
    ),
    (
        "last-leader-unelected",
        "the last known leader returns and does not lead",
        "quorum.decide.elections:_elect",
        _forgets_the_last_leader,
        _case("B39-last-known-leader"),
    ),
    (
        "moves-for-nothing",
        "a leader that is valid loses the leadership to the first replica",
        "quorum.decide.elections:_elect",
        _moves_for_nothing,
        _case("B30-elections"),
    ),
    (
        "epoch-survives-a-replica",
        "a replica is dropped and the leader epoch stays",
        "quorum.decide.elections:change",
        _keeps_the_epoch,
        _case("B34-forced-leader-epoch"),
    ),
    (
        "recovered-at-once",
        "an unclean leader has nothing to recover",
        "quorum.decide.elections:change",
        _recovers_at_once,
        _case("B37-recovery-state"),
    ),
    (
        "anybody-leads",
        "who is fenced or on its way out is elected",
        "quorum.decide.elections:Electorate._may_lead",
        _anybody_leads,
        f"{_DECIDE}/test_stories.py::test_the_chain_of_who_may_lead",
    ),
    (
        "fences-and-leads",
        "a fenced broker stays in its ISRs",
        "quorum.decide.fencing:changes_on_leaving",
        lambda _original: lambda *_: iter(()),
        _case("B29-fence-several"),
    ),
    (
        "fenced-before-its-partitions",
        "the record of a fencing comes before those of the partitions",
        "quorum.decide.fencing:fenced",
        _fences_first,
        f"{_DECIDE}/test_stories.py::test_every_partition_of_a_broker_is_decided_in_order",
    ),
    (
        "isr-of-anything",
        "an ISR names strangers, one twice, or leaves the leader out",
        "quorum.decide.partitions:_is_possible",
        always(True),
        _case("B41-alter-partition-checks"),
    ),
    (
        "leads-from-nowhere",
        "a replica in a directory that is not online keeps leading",
        "quorum.decide.directories:is_online",
        always(True),
        _case("B58-directories"),
    ),
    (
        "id-taken-over",
        "another incarnation takes the id of a broker that is alive",
        "quorum.decide.brokers:is_taken",
        always(False),
        _case("B14-id-conflict"),
    ),
    (
        "any-features",
        "a broker registers that does not support a finalized level",
        "quorum.decide.brokers:_check_features",
        always(None),
        _case("B16-features"),
    ),
    (
        "any-directories",
        "a broker registers without directories, or with another's",
        "quorum.decide.brokers:_check_registration",
        always(None),
        _case("B17-log-directories"),
    ),
    (
        "removed-and-in-sync",
        "a broker that is removed, or registers anew, stays in ISRs",
        "quorum.decide.brokers:changes_on_leaving",
        lambda _original: lambda *_, **__: iter(()),
        _case("B19-unregister"),
    ),
    (
        "any-broker-epoch",
        "a heartbeat of a registration that was replaced counts",
        "quorum.decide.heartbeat:_registered",
        _believes_any_epoch,
        _case("B18-broker-epoch"),
    ),
    (
        "stops-at-once",
        "a broker that wants to stop goes before its leaderships have moved and others know",
        "quorum.decide.heartbeat:_Broker._begin_shutdown",
        _goes_at_once,
        _case("B23-shutdown-offset"),
    ),
    (
        "waits-for-nobody",
        "a stopping broker goes before the slowest of the others knows of it",
        "quorum.controller.sessions:Sessions.lowest_active_offset",
        always(INT64_MAX),
        _case("B23-fence-the-slow-one"),
    ),
    (
        "caught-up-at-once",
        "a broker is unfenced before it has applied its own registration",
        "quorum.controller.sessions:Sessions.registration_offset",
        always(-1),
        f"{_TRANSCRIPT}[heartbeat-caught-up]",
    ),
    (
        "directories-never-fail",
        "a failed directory changes nothing",
        "quorum.decide.heartbeat:_changes_on_failure",
        lambda _original: lambda *_: iter(()),
        _case("B58-offline-directory-moves-leaders"),
    ),
    (
        "sweep-leaves-the-rest",
        "where a part of a sweep ends inside a topic, the rest of the topic is passed over",
        "quorum.decide.sweeps:chain",
        lambda _original: lambda _first, rest: rest,
        f"{_DECIDE}/test_sweeps.py::test_a_part_may_end_inside_a_topic[700]",
    ),
    (
        "settings-of-nobody",
        "settings are written for topics and brokers that do not exist",
        "quorum.decide.configs:_check_resource",
        always(None),
        _case("B83-configs"),
    ),
    (
        "settings-of-any-value",
        "a topic's settings have any names and values",
        "quorum.decide.configs:check_topic_configs",
        always(None),
        _case("B83-configs"),
    ),
    (
        "tiered-storage-for-nobody",
        "a topic's tiered storage is switched on and off as if it existed",
        "quorum.decide.config_types:_check_remote_storage",
        always(None),
        _case("B83-remote-storage"),
    ),
    (
        "tiers-end-with-their-data",
        "a topic's tiers are switched off while what lies there stays",
        "quorum.decide.config_types:_check_end_of_remote_storage",
        always(None),
        f"{_DECIDE}/test_configs.py::test_a_topic_that_has_tiers_loses_them_with_their_data",
    ),
    (
        "settings-written-again",
        "a topic's setting that is there already is written once more",
        "quorum.decide.configs:_records",
        _writes_what_is_there,
        _case("B83-configs"),
    ),
    (
        "topics-of-any-name",
        "the settings of a topic are judged without a look at its name",
        "quorum.decide.configs:check_name",
        always(None),
        f"{_DECIDE}/test_configs.py::test_the_topics_name_is_judged_before_the_value_and_that_before_the_topic",
    ),
    (
        "born-in-sync",
        "a fenced replica of a new partition is in its ISR",
        "quorum.decide.new_partitions:NewPartitions._partition",
        _in_sync_though_fenced,
        f"{_DECIDE}/test_stories.py::test_a_new_topic_is_led_by_the_first_that_is_up",
    ),
    (
        "assigned-to-anybody",
        "a new partition is assigned to brokers that are not registered, or to one twice",
        "quorum.decide.new_partitions:check_replicas",
        always(None),
        _case("B49-manual-assignment-errors"),
    ),
    (
        "placed-on-who-leaves",
        "a new partition is placed on a broker that is on its way out",
        "quorum.decide.placement:usable_brokers",
        _every_broker,
        f"{_DECIDE}/test_placement.py::test_who_takes_new_replicas",
    ),
    (
        "placed-on-the-fenced",
        "fenced brokers get replicas before those that are up",
        "quorum.decide.placement:_Rack.next",
        _fenced_first,
        f"{_DECIDE}/test_placement.py::test_a_fenced_broker_is_used_only_where_too_few_are_up",
    ),
    (
        "followers-for-ever",
        "the same brokers follow each other in all partitions",
        "quorum.decide.placement:_Rack.shuffle",
        always(None),
        f"{_DECIDE}/test_placement.py::test_the_same_followers_do_not_go_together_for_ever",
    ),
    (
        "reassigns-without-waiting",
        "the old replicas go before the new ones are in sync",
        "quorum.decide.reassignments:_target",
        _drops_at_once,
        _case("B44-reassign-arithmetic"),
    ),
)

_ELSEWHERE: Final = {"placed-on-who-leaves": ("quorum.decide.new_partitions",)}
MUTANTS: Final = tuple(
    Mutant(name, breaks, target, replacement, Directed(test), _ELSEWHERE.get(name, ()))
    for name, breaks, target, replacement, test in _ROWS
)
