"""Pure: where controllers are, as Kafka's brokers are told: at the endpoints for Kafka, under the name of their listener.

Tests: tests/unit/metadata_log/kafka/test_translation.py.
"""

from collections.abc import Iterator, Sequence

from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.quorum import KAFKA_ENDPOINT, VotersRecord
from metadata_log.records.registry import Record

_WITH_ENDPOINTS = frozenset({VotersRecord, RegisterControllerRecord})


def with_listener(records: Sequence[Record], listener: str | None) -> Sequence[Record]:
    """Return records whose controllers have their endpoint for Kafka alone, under a name; None: leave all as they are.

    A broker looks for the first of its `controller.listener.names`, and cannot speak to what listens for Raft.
    """
    if listener is None or _WITH_ENDPOINTS.isdisjoint(map(type, records)):
        return records
    return [*_told(records, listener)]


def _told(records: Sequence[Record], listener: str) -> Iterator[Record]:
    for record in records:
        if isinstance(record, VotersRecord):
            yield VotersRecord(
                tuple(
                    voter._replace(
                        endpoints=tuple(
                            each._replace(name=listener)
                            for each in voter.endpoints
                            if each.name == KAFKA_ENDPOINT
                        )
                    )
                    for voter in record.voters
                )
            )
        elif isinstance(record, RegisterControllerRecord):
            endpoints = tuple(
                each._replace(name=listener) for each in record.endpoints if each.name == KAFKA_ENDPOINT
            )
            yield record._replace(endpoints=endpoints)
        else:
            yield record
