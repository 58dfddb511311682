"""Pure: the quotas of clients as the log has made them. Tests: tests/property/test_folding.py."""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import immutables

from metadata_log.digest import hex_of_text
from metadata_log.image.subject import Builders, SubjectBuilder
from metadata_log.items import Items
from metadata_log.orders import in_parts
from metadata_log.records.quotas import ClientQuotaRecord, QuotaEntity
from metadata_log.records.registry import Record

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import Delta

DEFAULT: Final = ""
"""The name of a default in an image: no entity has an empty name, and all names can be put in order."""
Entity: TypeAlias = tuple[tuple[str, str], ...]
"""Type and name of each part, in order of types."""
QuotasImage: TypeAlias = "immutables.Map[Entity, immutables.Map[str, float]]"
"""The values by key of each entity that has any."""


def entity_of(parts: Iterable[QuotaEntity]) -> Entity:
    """Return an entity as an image has it; where a type is given twice, the last counts."""
    named = {kind: DEFAULT if name is None else name for kind, name in parts}
    return tuple(sorted(named.items()))


def in_order(parts: Iterable[QuotaEntity]) -> tuple[QuotaEntity, ...]:
    """Return the parts of an entity in the order of records; an empty name, which no entity has, stays one."""
    return tuple(QuotaEntity(kind, name) for kind, name in sorted(dict(parts).items(), key=itemgetter(0)))


def parts_of(entity: Entity) -> tuple[QuotaEntity, ...]:
    """Return an entity as records have it."""
    return tuple(QuotaEntity(kind, None if name == DEFAULT else name) for kind, name in entity)


class QuotasBuilder(SubjectBuilder[QuotasImage]):
    FIELD = "quotas"

    def __init__(self, before: QuotasImage, others: Builders) -> None:
        super().__init__(before, others)
        self._quotas = before.mutate()
        self._touched: set[tuple[Entity, str]] = set()

    def put(self, record: ClientQuotaRecord) -> None:
        entity = entity_of(record.entity)
        values = self._quotas.get(entity) or immutables.Map()
        if not record.remove:
            values = values.set(record.key, record.value)
        elif record.key in values:
            values = values.delete(record.key)
        if values:
            self._quotas[entity] = values
        else:
            self._quotas.pop(entity, None)
        self._touched.add((entity, record.key))

    STATES = {ClientQuotaRecord: put}  # noqa: RUF012 (a ClassVar of the base)

    def finish(self) -> QuotasImage:
        return self._quotas.finish()

    def delta(self) -> dict[str, Any]:
        return {"quotas": frozenset(self._touched)}

    @staticmethod
    def touched_lines(image: QuotasImage, touched: "Delta") -> Iterator[str]:
        for entity, key in touched.quotas:
            values = image.get(entity)
            if values is not None and key in values:
                yield _line(entity, key, values[key])

    @staticmethod
    def lines(image: QuotasImage) -> Iterator[str]:
        for entity, values in image.items():
            for key, value in values.items():
                yield _line(entity, key, value)

    @staticmethod
    def records(image: QuotasImage) -> Iterator[Record]:
        for entity in in_parts(image):
            parts, values = parts_of(entity), image[entity]
            for key in sorted(values):
                yield ClientQuotaRecord(parts, key, values[key], remove=False)

    @staticmethod
    def view(image: QuotasImage) -> dict[str, Any]:
        return {"quotas": Items(len(image), (quotas_item(image, entity) for entity in in_parts(image)))}


def quotas_item(image: QuotasImage, entity: Entity) -> dict[str, Any]:
    """Return the quotas of an entity as HTTP shows them; the name null means the default."""
    return {
        "entity": [part._asdict() for part in parts_of(entity)],
        "quotas": dict(sorted(image[entity].items())),
    }


def _line(entity: Entity, key: str, value: float) -> str:
    named = ",".join(f"{hex_of_text(kind)}:{hex_of_text(name)}" for kind, name in entity)
    return f"u|{named}|{hex_of_text(key)}|{value!r}"
