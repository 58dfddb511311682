"""Edge: quotas of clients in Kafka's protocol: they are altered. Brokers describe them from their own image."""

from collections.abc import Iterable
from typing import Final

from metadata_log.errors import MetadataError
from metadata_log.image.quotas import in_order
from metadata_log.kafka.reading import Values
from metadata_log.records.quotas import QuotaEntity
from quorum.decide.quotas import AlterClientQuotas, EntityChange, QuotaChange
from quorum.kafka.door import NO_THROTTLE, Api, Asked, KafkaDoor, Waits
from quorum.kafka.errors import KafkaError, item_error, kafka_error
from quorum.kafka.parts_of_requests import Part, decided_in_parts

ALTER_CLIENT_QUOTAS: Final = 49
_BYTES_PER_WEIGHT: Final = 512
"""Names may have 32 KiB, and each change of an entity repeats them."""


async def alter_quotas(door: KafkaDoor, asked: Asked) -> Values:
    entries, validate_only = asked.values
    parts = await decided_in_parts(
        door,
        asked.caller,
        map(_entry, entries),
        lambda some: AlterClientQuotas(entries=tuple(some), validate_only=validate_only),
        weight=_weight,
        name=lambda entry: in_order(entry.entity),
    )
    return (NO_THROTTLE, list(_rows(parts)))


def _entry(entry: Values) -> EntityChange:
    entity, changes = entry
    return EntityChange(
        tuple(map(QuotaEntity._make, entity)),
        tuple(QuotaChange(key, None if remove else value) for key, value, remove in changes),
    )


def _weight(entry: EntityChange) -> int:
    size = sum(len(name or "") for _, name in entry.entity)
    return 1 + len(entry.changes) * (1 + size // _BYTES_PER_WEIGHT)


def _rows(parts: Iterable[Part]) -> Iterable[Values]:
    for some, outcome in parts:
        if isinstance(outcome, MetadataError):
            error = kafka_error(outcome)
            for entity in {in_order(each.entity): each.entity for each in some}.values():
                yield (error.code, error.message, list(entity))
        else:
            for result in outcome.results:
                yield (*item_error(result.error, result.message), list(result.entity))


def _refused(_api: Api, asked: Asked, error: KafkaError) -> Values:
    return (NO_THROTTLE, [(error.code, error.message, entity) for entity, _ in asked.values[0]])


APIS: Final = (
    Api(ALTER_CLIENT_QUOTAS, Waits(alter_quotas), "AlterClientQuotas", _refused, in_envelopes=True),
)
