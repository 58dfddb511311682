"""Pure: ACLs and quotas that a file declares, and how a cluster differs from them.

Where the file has a part, `acls` or `quotas`, what it does not name there is left alone unless its deletion is asked for.
Tests: tests/unit/ops/verbs/test_declared.py.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import msgspec

from metadata_log.image.acls import acl_item
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.quotas import DEFAULT, Entity
from metadata_log.records.acls import AclOperation, PatternType, PermissionType, ResourceType
from metadata_log.records.quotas import CLIENT_ID, IP, USER

CLUSTER: Final = "kafka-cluster"
TYPES: Final = tuple(kind.name.lower() for kind in tuple(ResourceType)[2:])
OPERATIONS: Final = tuple(operation.name for operation in tuple(AclOperation)[2:])
_PARTS: Final = {"user": USER, "client_id": CLIENT_ID, "ip": IP}


class DeclaredAcl(msgspec.Struct, forbid_unknown_fields=True):
    """One rule for each operation; `resource` is TYPE:NAME, or cluster."""

    principal: str
    operations: list[str]
    resource: str
    prefixed: bool = False
    deny: bool = False
    host: str = "*"


class DeclaredQuotas(msgspec.Struct, forbid_unknown_fields=True):
    """Quotas of an entity; `defaults` names the types of its parts that are the default of their type."""

    values: dict[str, float]
    user: str | None = None
    client_id: str | None = None
    ip: str | None = None
    defaults: list[Literal["user", "client_id", "ip"]] = []


class Difference(NamedTuple):
    """One thing that is not as declared; `now` None: it is not there."""

    resource: str
    what: str
    declared: str
    now: str | None


@dataclass(slots=True)
class AccessDrift:
    """How a cluster differs, and the items of the requests that make it as declared."""

    differences: list[Difference] = field(default_factory=list)
    creations: list[dict[str, Any]] = field(default_factory=list)
    """ACLs to create."""
    ends: list[dict[str, Any]] = field(default_factory=list)
    """Filters that mean one ACL each, to delete."""
    quotas: list[dict[str, Any]] = field(default_factory=list)
    undeclared: list[Difference] = field(default_factory=list)
    """What is there and not declared, where its deletion is not asked for."""


def acl_rows(declared: Iterable[DeclaredAcl]) -> list[dict[str, str]]:
    """Return the rules that are declared, each once, as requests have them.

    Raises:
        ValueError: a resource, an operation or a principal is none.
    """
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for place, one in enumerate(declared):
        kind, colon, name = one.resource.partition(":")
        if kind == "cluster" and not colon:
            name = CLUSTER
        if kind not in TYPES or not name:
            raise ValueError(
                f"acls[{place}]: {one.resource!r} is not TYPE:NAME, as topic:orders ({', '.join(TYPES)})"
            )
        if ":" not in one.principal:
            raise ValueError(
                f"acls[{place}]: principal {one.principal!r} has no type: wanted such as User:alice"
            )
        if not one.operations:
            raise ValueError(f"acls[{place}]: no operation")
        for operation in one.operations:
            if operation not in OPERATIONS:
                raise ValueError(f"acls[{place}]: operation {operation!r} is none of {', '.join(OPERATIONS)}")
            row = {
                "resource_type": kind.upper(),
                "resource_name": name,
                "pattern_type": (PatternType.PREFIXED if one.prefixed else PatternType.LITERAL).name,
                "principal": one.principal,
                "host": one.host,
                "operation": operation,
                "permission_type": (PermissionType.DENY if one.deny else PermissionType.ALLOW).name,
            }
            rows[tuple(row.values())] = row
    return list(rows.values())


def quota_rows(declared: Iterable[DeclaredQuotas]) -> dict[Entity, dict[str, float]]:
    """Return the values that are declared of each entity.

    Raises:
        ValueError: an entity has no part, or is declared twice, or a part is named and the default.
    """
    found: dict[Entity, dict[str, float]] = {}
    for place, one in enumerate(declared):
        named = {word: name for word in _PARTS if (name := getattr(one, word)) is not None}
        twice = [word for word in one.defaults if word in named]
        if twice or "" in named.values() or not (named or one.defaults):
            raise ValueError(
                f"quotas[{place}]: wanted user, client_id, both, or ip, each by its name or in defaults"
            )
        parts = named | dict.fromkeys(one.defaults, DEFAULT)
        entity = tuple(sorted((_PARTS[word], name) for word, name in parts.items()))
        if entity in found:
            raise ValueError(f"quotas[{place}]: {entity_text(entity)} is declared twice")
        found[entity] = dict(one.values)
    return found


def entity_text(entity: Entity) -> str:
    return ", ".join(f"{kind}={name if name != DEFAULT else '<default>'}" for kind, name in entity)


def access_drift(
    acls: list[DeclaredAcl] | None,
    quotas: list[DeclaredQuotas] | None,
    image: MetadataImage,
    *,
    deletes: bool,
) -> AccessDrift:
    """Return how ACLs and quotas differ from what is declared; a part of None is not looked at.

    Raises:
        ValueError: as `acl_rows` and `quota_rows`.
    """
    found = AccessDrift()
    if acls is not None:
        _compare_acls(acl_rows(acls), image, found, deletes=deletes)
    if quotas is not None:
        _compare_quotas(quota_rows(quotas), image, found, deletes=deletes)
    return found


def _compare_acls(
    wanted: list[dict[str, str]], image: MetadataImage, found: AccessDrift, *, deletes: bool
) -> None:
    present = {}
    for acl in image.acls.by_id.values():
        row = acl_item(acl)
        del row["id"]
        present[tuple(row.values())] = row
    declared = {tuple(row.values()) for row in wanted}
    for row in wanted:
        if tuple(row.values()) not in present:
            found.creations.append(row)
            found.differences.append(_of_acl(row, declared=_effect(row), now=None))
    for key in sorted(present.keys() - declared, key=str):
        row = present[key]
        difference = _of_acl(row, declared="none", now=_effect(row))
        if deletes:
            found.ends.append(row)
        (found.differences if deletes else found.undeclared).append(difference)


def _of_acl(row: dict[str, Any], *, declared: str, now: str | None) -> Difference:
    prefix = "prefix " if row["pattern_type"] == PatternType.PREFIXED.name else ""
    resource = f"{str(row['resource_type']).lower()} {prefix}{row['resource_name']}"
    return Difference(
        f"acls of {resource}", f"{row['principal']} {row['operation']} from {row['host']}", declared, now
    )


def _effect(row: dict[str, Any]) -> str:
    return str(row["permission_type"]).lower()


def _compare_quotas(
    wanted: dict[Entity, dict[str, float]], image: MetadataImage, found: AccessDrift, *, deletes: bool
) -> None:
    for entity in sorted(wanted.keys() | set(image.quotas)):
        now = dict(image.quotas.get(entity) or {})
        values = wanted.get(entity, {})
        differing = {key: value for key, value in values.items() if now.get(key) != value}
        extra = sorted(now.keys() - values.keys())
        found.differences += [*_of_quotas(entity, differing, now)]
        removed = [
            Difference(f"quotas of {entity_text(entity)}", key, "none", f"{now[key]:.15g}") for key in extra
        ]
        (found.differences if deletes else found.undeclared).extend(removed)
        if differing or (deletes and extra):
            words = {kind: word for word, kind in _PARTS.items()}
            parts = {words[kind]: name if name != DEFAULT else None for kind, name in entity}
            found.quotas.append({**parts, "set": differing, "unset": extra if deletes else []})


def _of_quotas(entity: Entity, differing: dict[str, float], now: dict[str, float]) -> Iterator[Difference]:
    for key, value in sorted(differing.items()):
        was = f"{now[key]:.15g}" if key in now else None
        yield Difference(f"quotas of {entity_text(entity)}", key, f"{value:.15g}", was)
