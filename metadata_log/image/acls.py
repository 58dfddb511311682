"""Pure: the access control lists as the log has made them, found by id and by what they concern.

An authorizer asks what concerns one resource, one principal and one host. `by_pattern` answers with a few lookups, however
many ACLs there are: one for the resource's name, one for `*`, and one for each length that some prefix has.
Tests: tests/unit/metadata_log/image/test_acls.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import immutables

from metadata_log.digest import hex_of_text
from metadata_log.ids import Uuid, in_order, uuid_text
from metadata_log.image.subject import Builders, SubjectBuilder
from metadata_log.items import Items
from metadata_log.records.acls import (
    WILDCARD,
    AccessControlEntryRecord,
    AclOperation,
    PatternType,
    PermissionType,
    RemoveAccessControlEntryRecord,
    ResourceType,
)
from metadata_log.records.registry import Record

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import Delta


class Pattern(NamedTuple):
    """What an ACL concerns; numbers of ResourceType and PatternType."""

    resource_type: int
    pattern_type: int
    name: str


class Rule(NamedTuple):
    """What an ACL says of its pattern and principal; numbers of AclOperation and PermissionType."""

    operation: int
    host: str
    permission_type: int


Rules: TypeAlias = "immutables.Map[Rule, Uuid]"
Principals: TypeAlias = "immutables.Map[str, Rules]"


@dataclass(frozen=True, slots=True)
class AclsImage:
    """All ACLs: by id, and by pattern, then principal, then rule. No two say the same."""

    by_id: "immutables.Map[Uuid, AccessControlEntryRecord]" = field(default_factory=immutables.Map)
    by_pattern: "immutables.Map[Pattern, Principals]" = field(default_factory=immutables.Map, compare=False)
    prefixes: "immutables.Map[int, immutables.Map[int, int]]" = field(
        default_factory=immutables.Map, compare=False
    )
    """By type of resource: how many prefixes there are of each length."""

    def concerning(self, resource_type: int, name: str) -> Iterator[tuple[Pattern, Principals]]:
        """Yield what concerns a resource: of its own name, of its prefixes, the longest first, and of all resources.

        Source: Kafka's StandardAuthorizerData. Its order tells which of several rules decides. What concerns all resources
        passes over those whose names begin with `*`: there it takes `*` for a prefix, which a literal name is not.
        """
        lengths = [length for length in self.prefixes.get(resource_type, _NONE) if length <= len(name)]
        lengths.sort(reverse=True)
        patterns = [
            Pattern(resource_type, PatternType.LITERAL, name),
            *(Pattern(resource_type, PatternType.PREFIXED, name[:length]) for length in lengths),
        ]
        if not name.startswith(WILDCARD):
            patterns.append(Pattern(resource_type, PatternType.LITERAL, WILDCARD))
        for pattern in patterns:
            found = self.by_pattern.get(pattern)
            if found is not None:
                yield pattern, found

    def id_of(self, acl: AccessControlEntryRecord) -> Uuid | None:
        """Return the id under which the log has what an ACL says; None: it does not."""
        principals = self.by_pattern.get(pattern_of(acl))
        rules = None if principals is None else principals.get(acl.principal)
        return None if rules is None else rules.get(rule_of(acl))


_NONE: "immutables.Map[int, int]" = immutables.Map()


def pattern_of(acl: AccessControlEntryRecord) -> Pattern:
    return Pattern(acl.resource_type, acl.pattern_type, acl.resource_name)


def rule_of(acl: AccessControlEntryRecord) -> Rule:
    return Rule(acl.operation, acl.host, acl.permission_type)


class AclsBuilder(SubjectBuilder[AclsImage]):
    FIELD = "acls"

    def __init__(self, before: AclsImage, others: Builders) -> None:
        super().__init__(before, others)
        self._by_id = before.by_id.mutate()
        self._by_pattern = before.by_pattern.mutate()
        self._prefixes = before.prefixes
        self._touched: set[Uuid] = set()

    def create(self, record: AccessControlEntryRecord) -> None:
        if record.id in self._by_id:
            raise ValueError(f"ACL {uuid_text(record.id)} is there already")
        pattern, rule = pattern_of(record), rule_of(record)
        principals = self._by_pattern.get(pattern)
        if principals is None:
            principals = immutables.Map()
            self._count(pattern, 1)
        rules: Rules = principals.get(record.principal) or immutables.Map()
        if rule in rules:
            raise ValueError(f"ACL {uuid_text(record.id)} says the same as {uuid_text(rules[rule])}")
        self._by_pattern[pattern] = principals.set(record.principal, rules.set(rule, record.id))
        self._by_id[record.id] = record
        self._touched.add(record.id)

    def remove(self, record: RemoveAccessControlEntryRecord) -> None:
        acl = self._by_id.pop(record.id)
        pattern = pattern_of(acl)
        principals = self._by_pattern[pattern]
        rules = principals[acl.principal].delete(rule_of(acl))
        principals = principals.set(acl.principal, rules) if rules else principals.delete(acl.principal)
        if principals:
            self._by_pattern[pattern] = principals
        else:
            del self._by_pattern[pattern]
            self._count(pattern, -1)
        self._touched.add(record.id)

    def _count(self, pattern: Pattern, by: int) -> None:
        """Count a pattern that came or went, if it is a prefix."""
        if pattern.pattern_type != PatternType.PREFIXED:
            return
        lengths = self._prefixes.get(pattern.resource_type) or immutables.Map()
        length = len(pattern.name)
        left = lengths.get(length, 0) + by
        lengths = lengths.set(length, left) if left else lengths.delete(length)
        if lengths:
            self._prefixes = self._prefixes.set(pattern.resource_type, lengths)
        else:
            self._prefixes = self._prefixes.delete(pattern.resource_type)

    STATES = {AccessControlEntryRecord: create}  # noqa: RUF012 (a ClassVar of the base)
    CHANGES = {RemoveAccessControlEntryRecord: remove}  # noqa: RUF012

    def finish(self) -> AclsImage:
        return AclsImage(self._by_id.finish(), self._by_pattern.finish(), self._prefixes)

    def delta(self) -> dict[str, Any]:
        return {"acls": frozenset(self._touched)}

    @staticmethod
    def touched_lines(image: AclsImage, touched: "Delta") -> Iterator[str]:
        return (acl_line(image.by_id[acl_id]) for acl_id in touched.acls if acl_id in image.by_id)

    @staticmethod
    def lines(image: AclsImage) -> Iterator[str]:
        return map(acl_line, image.by_id.values())

    @staticmethod
    def records(image: AclsImage) -> Iterator[Record]:
        for acl_id in in_order(image.by_id):
            yield image.by_id[acl_id]

    @staticmethod
    def view(image: AclsImage) -> dict[str, Any]:
        return {"acls": acl_items(image)}


def acl_items(image: AclsImage) -> Items[dict[str, Any]]:
    """Return all ACLs as JSON shows them, in order of id."""
    return Items(len(image.by_id), (acl_item(image.by_id[acl_id]) for acl_id in in_order(image.by_id)))


def acl_item(acl: AccessControlEntryRecord) -> dict[str, Any]:
    """Return an ACL as JSON shows it: its kinds by name, or by number where this release has no name for it."""
    return {
        "id": uuid_text(acl.id),
        "resource_type": _named(ResourceType, acl.resource_type),
        "resource_name": acl.resource_name,
        "pattern_type": _named(PatternType, acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _named(AclOperation, acl.operation),
        "permission_type": _named(PermissionType, acl.permission_type),
    }


def _named(kind: type[ResourceType | PatternType | AclOperation | PermissionType], number: int) -> str | int:
    try:
        return kind(number).name
    except ValueError:
        return number


def acl_line(acl: AccessControlEntryRecord) -> str:
    """Return the digest line of an ACL."""
    return (
        f"a|{acl.id.hex()}|{acl.resource_type}|{hex_of_text(acl.resource_name)}|{acl.pattern_type}"
        f"|{hex_of_text(acl.principal)}|{hex_of_text(acl.host)}|{acl.operation}|{acl.permission_type}"
    )
