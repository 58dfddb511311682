"""Edge: quotas of clients over HTTP: list and alter. Tests: tests/unit/quorum/http/test_quotas.py."""

from collections.abc import Callable
from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import UNSET, Meta, UnsetType, field

from metadata_log import limits
from metadata_log.errors import InvalidRequest
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.quotas import DEFAULT, Entity, quotas_item
from metadata_log.items import Items
from metadata_log.node.http.query import flag
from metadata_log.node.http.routes import FLAG, NAME, NAMES
from metadata_log.orders import in_parts
from metadata_log.records.quotas import CLIENT_ID, IP, USER, QuotaEntity
from metadata_log.records.registry import json_rows
from metadata_log.wire.shapes import Shape, check_text, read_shape
from quorum.decide.quotas import AlterClientQuotas, EntityChange, QuotaChange, QuotasAltered
from quorum.http.door import Door, Write, carry_out, items_of
from quorum.http.routes import AS_FRESH, TRIAL, reading, writing

KINDS: Final = {"user": USER, "client_id": CLIENT_ID, "ip": IP}
"""The types of entities by their names in bodies and queries."""
Values = Annotated[dict[str, float], Meta(max_length=limits.LIST_ITEMS_MAX)]
Keys = Annotated[tuple[str, ...], Meta(max_length=limits.LIST_ITEMS_MAX)]


class EntityQuotas(Shape, frozen=True):
    """Quotas to set and to unset of the entity named; a name of null is the default."""

    user: str | UnsetType | None = UNSET
    client_id: str | UnsetType | None = UNSET
    ip: str | UnsetType | None = UNSET
    set: Values = field(default_factory=dict)
    unset: Keys = ()


class WantedQuotas(Shape, frozen=True):
    entries: Annotated[tuple[EntityQuotas, ...], Meta(min_length=1, max_length=limits.REQUEST_ITEMS_MAX)]
    validate_only: bool = False
    all_or_nothing: bool = False


def _changes(body: Any) -> AlterClientQuotas:
    wanted = read_shape(body, WantedQuotas, "quotas")
    return AlterClientQuotas(
        entries=tuple(map(_entry, wanted.entries)),
        validate_only=wanted.validate_only,
        all_or_nothing=wanted.all_or_nothing,
    )


def _entry(entry: EntityQuotas) -> EntityChange:
    parts = []
    for name, kind in KINDS.items():
        value = getattr(entry, name)
        if value is not UNSET:
            check_text(f"quotas.{name}", value or "")
            parts.append(QuotaEntity(kind, value))
    for key in (*entry.set, *entry.unset):
        check_text("a key in quotas", key)
    changes = (*entry.set.items(), *((key, None) for key in entry.unset))
    return EntityChange(tuple(parts), tuple(QuotaChange(key, value) for key, value in changes))


def _altered(outcome: QuotasAltered) -> dict[str, Any]:
    return {
        "entries": [
            {**row, "entity": json_rows(result.entity)}
            for row, result in zip(json_rows(outcome.results), outcome.results, strict=True)
        ]
    }


async def list_quotas(door: Door, request: web.Request) -> web.StreamResponse:
    """Answer with the quotas of entities that have all named parts, with `strict` no others; `defaults` names types."""
    wanted = _wanted(request)
    is_strict = flag(request, "strict")
    if is_strict and not wanted:
        raise InvalidRequest("strict needs a user, a client_id or an ip: name one")
    chosen = _chooser(wanted, is_strict=is_strict)

    def view(image: MetadataImage) -> dict[str, Any]:
        found = [entity for entity in image.quotas if chosen(entity)]
        items = (quotas_item(image.quotas, entity) for entity in in_parts(found))
        return items_of(image, Items(len(found), items))

    return await door.read_large(
        request, view, is_large=lambda image: len(image.quotas) > limits.LARGE_VIEW_ITEMS
    )


def _wanted(request: web.Request) -> dict[str, str]:
    """Return the parts that the query names, by type."""
    wanted = {kind: request.query[name] for name, kind in KINDS.items() if name in request.query}
    for name in request.query["defaults"].split(",") if "defaults" in request.query else ():
        if name not in KINDS or name in request.query:
            raise InvalidRequest(
                f"defaults has {', '.join(KINDS)}, each where the query does not name one, not {name[:100]!r}"
            )
        wanted[KINDS[name]] = DEFAULT
    return wanted


def _chooser(wanted: dict[str, str], *, is_strict: bool) -> Callable[[Entity], bool]:
    def chosen(entity: Entity) -> bool:
        named = dict(entity)
        return wanted.items() <= named.items() and (not is_strict or len(named) == len(wanted))

    return chosen


WRITES: Final = {"AlterClientQuotas": Write(_changes, _altered)}
ROUTES: Final = (
    reading(
        "/v1/quotas",
        list_quotas,
        "DescribeClientQuotas",
        {**AS_FRESH, "user": NAME, "client_id": NAME, "ip": NAME, "defaults": NAMES, "strict": FLAG},
    ),
    writing("PATCH", "/v1/quotas", carry_out(WRITES["AlterClientQuotas"]), "AlterClientQuotas", TRIAL),
)
