"""Pure: brokers in Kafka's log. Tests: tests/unit/metadata_log/kafka/test_counterparts.py."""

from typing import Final

from metadata_log.kafka.counterpart import NONE_FOR_EMPTY, Conversion, Counterpart, rows_of
from metadata_log.records.brokers import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FeatureRange,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

_FENCED: Final = Conversion(
    to_ours=lambda value: None if value == 0 else value > 0,
    to_kafka=lambda fenced: 1 if fenced else -1,
    absent=None,
)
_IN_SHUTDOWN: Final = Conversion(to_ours=lambda value: True if value else None, to_kafka=int, absent=None)


def _change_version(change: BrokerRegistrationChangeRecord) -> int:
    """Return the first version that says a change, as Kafka does."""
    if change.cordoned_log_dirs is not None:
        return 3
    if change.log_dirs is not None or all(value is None for value in change[2:]):
        return 2  # a change of nothing: the last directory failed, which Kafka writes as an empty list
    return 0 if change.in_controlled_shutdown is None else 1


COUNTERPARTS: Final = (
    Counterpart(
        "RegisterBroker",
        RegisterBrokerRecord,
        renamed={"end_points": "endpoints"},
        conversions={
            "end_points": rows_of(BrokerEndpoint),
            "features": rows_of(FeatureRange),
            "rack": NONE_FOR_EMPTY,
        },
        kafka_alone={"is_migrating_zk_broker": False},
        versions={7: 1, 8: 2, 17: 3, 30: 4},
        dropped=("log_dirs", "cordoned_log_dirs"),
    ),
    Counterpart("UnregisterBroker", UnregisterBrokerRecord),
    Counterpart(
        "BrokerRegistrationChange",
        BrokerRegistrationChangeRecord,
        conversions={"fenced": _FENCED, "in_controlled_shutdown": _IN_SHUTDOWN, "log_dirs": NONE_FOR_EMPTY},
        version=_change_version,
    ),
    *(
        # As releases before metadata.version 3.3-IV2 fenced and unfenced brokers.
        Counterpart(
            kafka,
            BrokerRegistrationChangeRecord,
            renamed={"id": "broker_id", "epoch": "broker_epoch"},
            ours_alone={
                "fenced": fenced,
                **dict.fromkeys(("in_controlled_shutdown", "log_dirs", "cordoned_log_dirs")),
            },
            is_written=False,
        )
        for kafka, fenced in (("FenceBroker", True), ("UnfenceBroker", False))
    ),
)
