"""Edge: access control lists over HTTP: list, explain, create, delete. Tests: tests/unit/quorum/http/test_acls.py."""

import enum
from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, Final, Literal

from aiohttp import web
from msgspec import Meta

from metadata_log.errors import InvalidRequest
from metadata_log.image.acls import acl_item
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.items import Items
from metadata_log.limits import CONFIG_VALUE_BYTES_MAX, LARGE_VIEW_ITEMS, REQUEST_ITEMS_MAX
from metadata_log.node.http.query import flag
from metadata_log.node.http.routes import NAME, Parameter, one_of
from metadata_log.node.identity.rights import ACL_RIGHTS
from metadata_log.records.acls import AclOperation, PatternType, PermissionType, ResourceType
from metadata_log.records.registry import json_rows
from metadata_log.sliced import at_once
from metadata_log.wire.shapes import Shape, check_text, read_shape
from quorum.decide.acl_doubts import doubts
from quorum.decide.acls import (
    NO_ID,
    Acl,
    AclFilter,
    AclsCreated,
    AclsDeleted,
    CreateAcls,
    DeleteAcls,
    check_filter,
    meant_by,
)
from quorum.decide.authorizer import Question, java_host, verdict_of
from quorum.http.bodies import read_body
from quorum.http.door import Door, Write, carry_out, results_as
from quorum.http.routes import AS_FRESH, TRIAL, reading, writing

DOUBTS_MAX: Final = 100
"""Doubts that one answer tells: a person reads no more."""
_TYPES: Final = tuple(kind.name for kind in tuple(ResourceType)[2:])
_OPERATIONS: Final = tuple(kind.name for kind in tuple(AclOperation)[2:])
OfType = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]
Operation = Literal[
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
]


class NewAcl(Shape, frozen=True):
    """An ACL to create; the words are Kafka's."""

    resource_type: OfType
    resource_name: str
    principal: str
    operation: Operation
    pattern_type: Literal["LITERAL", "PREFIXED"] = "LITERAL"
    host: str = "*"
    permission_type: Literal["ALLOW", "DENY"] = "ALLOW"


class NewAcls(Shape, frozen=True):
    acls: Annotated[tuple[NewAcl, ...], Meta(min_length=1, max_length=REQUEST_ITEMS_MAX)]
    validate_only: bool = False
    all_or_nothing: bool = False


class MeantAcls(Shape, frozen=True):
    """The ACLs that a filter means: what is left out may be anything.

    With the pattern type MATCH, all ACLs are meant that concern the resource of that name.
    """

    resource_type: OfType | Literal["ANY"] = "ANY"
    resource_name: str | None = None
    pattern_type: Literal["ANY", "MATCH", "LITERAL", "PREFIXED"] = "ANY"
    principal: str | None = None
    host: str | None = None
    operation: Operation | Literal["ANY"] = "ANY"
    permission_type: Literal["ANY", "ALLOW", "DENY"] = "ANY"


class EndingAcls(Shape, frozen=True):
    """`in_steps`: of more than one batch holds, so many are deleted, and `left` says how many are there still."""

    filters: Annotated[tuple[MeantAcls, ...], Meta(min_length=1, max_length=REQUEST_ITEMS_MAX)]
    in_steps: bool = False
    validate_only: bool = False


def _new_acls(body: Any) -> CreateAcls:
    wanted = read_shape(body, NewAcls, "acls")
    return CreateAcls(
        acls=tuple(Acl(*_fields(one)) for one in wanted.acls),
        validate_only=wanted.validate_only,
        all_or_nothing=wanted.all_or_nothing,
    )


def _fields(one: NewAcl | MeantAcls) -> tuple[Any, ...]:
    """Return the fields of an `Acl`, or of an `AclFilter`."""
    for text in (one.resource_name, one.principal, one.host):
        check_text("a name of an ACL", text or "", bytes_max=CONFIG_VALUE_BYTES_MAX)
    return (
        ResourceType[one.resource_type],
        one.resource_name,
        PatternType[one.pattern_type],
        one.principal,
        one.host,
        AclOperation[one.operation],
        PermissionType[one.permission_type],
    )


def _ending_acls(body: Any) -> DeleteAcls:
    wanted = read_shape(body, EndingAcls, "acls")
    return DeleteAcls(
        filters=tuple(AclFilter(*_fields(one)) for one in wanted.filters),
        in_steps=wanted.in_steps,
        validate_only=wanted.validate_only,
    )


def _deleted(outcome: AclsDeleted) -> dict[str, Any]:
    return {
        "filters": [
            {"error": one.error, "message": one.message, "acls": [_shown(acl) for acl in one.acls]}
            for one in outcome.results
        ],
        "deleted": outcome.deleted,
        "left": outcome.left,
    }


def _shown(acl: Acl) -> dict[str, Any]:
    """Return what an ACL says as JSON shows it; its id is gone."""
    item = acl_item(acl.record(NO_ID))
    del item["id"]
    return item


async def create_acls(door: Door, request: web.Request) -> web.StreamResponse:
    """Create ACLs, and tell of those that match nothing."""
    command = _new_acls(await read_body(request, door.bodies))
    told = [*islice((doubt for acl in command.acls for doubt in doubts(acl)), DOUBTS_MAX)]

    def answer_of(outcome: AclsCreated) -> dict[str, Any]:
        return {"acls": json_rows(outcome.results), "doubts": told}

    carry_it_out = door.try_out if flag(request, "validate_only") else door.write
    return await carry_it_out(request, command, answer_of)


async def list_acls(door: Door, request: web.Request) -> web.StreamResponse:
    query = dict(request.query)
    query.pop("consistency", None)
    meant = AclFilter(*_fields(read_shape(query, MeantAcls, "query")))
    check_filter(meant)

    def view(image: MetadataImage) -> dict[str, Any]:
        found = at_once(meant_by(image.acls, meant))
        return {
            "end_offset": image.end_offset,
            "controller_epoch": image.controller_epoch,
            "enforced": door.settings.acls.enforced,
            "items": Items(len(found), map(acl_item, found)),
        }

    return await door.read_large(
        request, view, is_large=lambda image: len(image.acls.by_id) > LARGE_VIEW_ITEMS
    )


async def explain(door: Door, request: web.Request) -> web.Response:
    """Answer whether a principal may do something, and which rule decides."""
    query = request.query
    wanted = [name for name in ("principal", "operation", "resource") if name not in query]
    if wanted:
        raise InvalidRequest(f"{wanted[0]} is missing: wanted principal, operation and resource")
    resource_type, _, resource_name = query["resource"].partition(":")
    try:
        host = java_host(query["host"]) if "host" in query else ""
    except ValueError as error:
        raise InvalidRequest(f"host {query['host']!r} is no numeric address") from error
    question = Question(
        query["principal"],
        host,
        AclOperation[query["operation"]],
        ResourceType[resource_type.upper()],
        resource_name,
    )
    # A principal whose roles give all that ACLs can give is a super user, whatever they say.
    known = door.access.named(question.principal) if door.access.is_on else None
    is_super_user = known is not None and known.rights >= ACL_RIGHTS
    settings = door.settings.acls

    def view(image: MetadataImage) -> dict[str, Any]:
        verdict = verdict_of(
            image,
            question,
            super_users=(question.principal,) if is_super_user else (),
            allow_if_none=settings.allow_everyone_if_no_acl_found,
        )
        return {
            "allowed": verdict.is_allowed,
            "why": verdict.why.value,
            "rule": None if verdict.rule is None else acl_item(verdict.rule),
            "enforced": settings.enforced,
            "roles": [] if known is None else list(known.roles),
            "end_offset": image.end_offset,
        }

    return door.ok(request, await door.read(request, view))


def _any_of(kind: type[enum.IntEnum]) -> Parameter:
    return one_of(*(each.name for each in kind if each.name != "UNKNOWN"))


_RESOURCE: Final = Parameter(
    "TYPE:NAME, as topic:orders",
    lambda text: text.partition(":")[0].upper() in _TYPES and text.partition(":")[2] != "",
)
FILTER: Final[Mapping[str, Parameter]] = {
    "resource_type": one_of("ANY", *_TYPES),
    "resource_name": NAME,
    "pattern_type": _any_of(PatternType),
    "principal": NAME,
    "host": NAME,
    "operation": one_of("ANY", *_OPERATIONS),
    "permission_type": _any_of(PermissionType),
}
WRITES: Final = {
    "CreateAcls": Write(_new_acls, results_as("acls")),
    "DeleteAcls": Write(_ending_acls, _deleted),
}
ROUTES: Final = (
    reading("/v1/acls", list_acls, "DescribeAcls", {**AS_FRESH, **FILTER}),
    reading(
        "/v1/acls/explain",
        explain,
        "DescribeAcls",
        {
            **AS_FRESH,
            "principal": NAME,
            "operation": one_of(*_OPERATIONS),
            "resource": _RESOURCE,
            "host": NAME,
        },
    ),
    writing("POST", "/v1/acls", create_acls, "CreateAcls", TRIAL),
    writing("POST", "/v1/acls/delete", carry_out(WRITES["DeleteAcls"]), "DeleteAcls", TRIAL),
)
