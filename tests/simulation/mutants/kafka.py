"""Pure: seeded bugs of Kafka's bytes, read and written."""

from typing import Any, Final

from tests.simulation.mutants.mutant import Directed, Mutant, always

_RECORDS_TESTS: Final = "tests/unit/metadata_log/kafka/test_records.py"
_COUNTERPARTS_TESTS: Final = "tests/unit/metadata_log/kafka/test_counterparts.py"
_TRANSLATION_TESTS: Final = "tests/unit/metadata_log/kafka/test_translation.py"
_DOOR_TESTS: Final = "tests/unit/quorum/kafka"


def _without_deleted(_original: Any) -> Any:
    return lambda records, _deleted: records


def _newest_version(_original: Any) -> Any:
    return lambda row, _level: row.schema.versions.last


def _names_rafts_leader(original: Any) -> Any:
    def named(*, heard: Any, **known: Any) -> Any:
        found = original(heard=heard, **known)
        return found if heard is None or found.leader >= 0 else found._replace(leader=heard)

    return named


def _kept_at_any_level(original: Any) -> Any:
    def after(*args: Any) -> Any:
        claimant = original(*args)
        return claimant and claimant._replace(is_kept=True)

    return after


MUTANTS: Final = (
    Mutant(
        "believes-sizes",
        "an array, a text or a tagged field of a record of Kafka's has as many bytes as it claims",
        "metadata_log.kafka.reading:_beyond",
        always(None),
        Directed(f"{_RECORDS_TESTS}::test_an_array_claims_no_more_than_is_there"),
    ),
    Mutant(
        "null-anywhere",
        "a field of Kafka's that may not be null is null",
        "metadata_log.kafka.reading:_null",
        always(None),
        Directed(f"{_RECORDS_TESTS}::test_null_where_nothing_may_be_null_is_refused"),
    ),
    Mutant(
        "loses-fields",
        "a field that an older version of a record lacks is left out, whatever it says",
        "metadata_log.kafka.writing:_Source._refuse",
        always(None),
        Directed(f"{_RECORDS_TESTS}::test_a_field_that_a_version_lacks_is_not_lost"),
    ),
    Mutant(
        "newest-version",
        "records are written in a version that brokers of the cluster's level do not know",
        "metadata_log.kafka.counterpart:Counterpart.fixed_version",
        _newest_version,
        Directed(f"{_COUNTERPARTS_TESTS}::test_the_level_decides_the_version"),
    ),
    Mutant(
        "changes-of-the-gone",
        "Kafka's brokers get records about a topic that they have removed",
        "metadata_log.kafka.translation:_without_gone_topics",
        _without_deleted,
        Directed(f"{_TRANSLATION_TESTS}::test_a_deleted_topic_changes_no_more_for_kafka"),
    ),
    Mutant(
        "quorum-among-data",
        "records of the quorum stand in batches of data",
        "metadata_log.kafka.translation:CONTROL_TYPES",
        lambda _original: frozenset[type](),
        Directed(f"{_TRANSLATION_TESTS}::test_records_of_the_quorum_are_batches_of_their_own"),
    ),
    Mutant(
        "names-rafts-leader",
        "Kafka's brokers are told of Raft's leader where the claimant of an epoch is not known",
        "quorum.kafka.replies:leadership",
        _names_rafts_leader,
        Directed(f"{_DOOR_TESTS}/test_fetches.py::test_a_node_that_does_not_know_the_claimant_names_nobody"),
        elsewhere=("quorum.kafka.fetches",),
    ),
    Mutant(
        "claimant-at-any-level",
        "a snapshot names the claimant before all nodes know the field, and not every node's snapshot does",
        "metadata_log.image.quorum:claimant_after",
        _kept_at_any_level,
        Directed(
            "tests/unit/snapshots/test_snapshot_file.py::"
            "test_a_snapshot_names_the_controller_of_a_claim_that_was_written_at_a_level_that_knows_it"
        ),
        elsewhere=("metadata_log.apply",),
    ),
    Mutant(
        "epochs-never-end",
        "a broker whose records are not those of an epoch is sent what follows in ours",
        "quorum.kafka.replies:EpochTable.end_of",
        lambda _original: lambda _table, epoch, *, high_watermark: (epoch, high_watermark),
        Directed(f"{_DOOR_TESTS}/test_replies.py::test_a_position_in_a_log_from_offset_0_on"),
    ),
    Mutant(
        "any-snapshot",
        "a broker is sent a snapshot that does not replace its log, and ends",
        "quorum.kafka.replies:_is_beyond",
        always(True),
        Directed(f"{_DOOR_TESTS}/test_replies.py::test_a_position_in_a_log_that_begins_later"),
    ),
    Mutant(
        "topics-that-come-back",
        "a log with a restored topic is offered from before it",
        "quorum.kafka.translated_log:TranslatedLog._begin_behind",
        always(None),
        Directed(f"{_DOOR_TESTS}/test_translated_log.py::test_a_log_is_offered_from_a_restored_topic_on"),
    ),
    Mutant(
        "pins-nothing-for-kafka",
        "a snapshot goes while a broker of Kafka loads it",
        "quorum.kafka.derived_snapshots:DerivedSnapshots._pin",
        always(None),
        Directed(f"{_DOOR_TESTS}/test_snapshots.py::test_what_is_downloaded_stays_for_some_time"),
    ),
    Mutant(
        "reads-as-another",
        "a broker of Kafka reads the log under another broker's id",
        "quorum.controller.callers:authorize_poll",
        always(None),
        Directed(f"{_DOOR_TESTS}/test_login.py::test_a_broker_reads_the_log_as_itself_alone"),
        elsewhere=("quorum.kafka.fetch", "quorum.kafka.snapshots"),
    ),
)
