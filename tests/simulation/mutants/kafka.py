"""Pure: seeded bugs of Kafka's bytes, read and written."""

from typing import Any, Final

from tests.simulation.mutants.mutant import Directed, Mutant, always

_RECORDS_TESTS: Final = "tests/unit/metadata_log/kafka/test_records.py"
_COUNTERPARTS_TESTS: Final = "tests/unit/metadata_log/kafka/test_counterparts.py"
_TRANSLATION_TESTS: Final = "tests/unit/metadata_log/kafka/test_translation.py"


def _believes_sizes(_original: Any) -> Any:
    return lambda _data, at, size: at + size


def _without_deleted(_original: Any) -> Any:
    return lambda records, _deleted: records


def _newest_version(_original: Any) -> Any:
    return lambda row, _level: row.schema.versions.last


MUTANTS: Final = (
    Mutant(
        "believes-sizes",
        "an array, a text or a tagged field of a record of Kafka's has as many bytes as it claims",
        "metadata_log.kafka.reading:_end",
        _believes_sizes,
        Directed(f"{_RECORDS_TESTS}::test_an_array_claims_no_more_than_is_there"),
    ),
    Mutant(
        "null-anywhere",
        "a field of Kafka's that may not be null is null",
        "metadata_log.kafka.reading:_check_null",
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
)
