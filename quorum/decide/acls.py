"""Pure: which access control lists there are to be: what may be created, and what a filter deletes or describes.

Source: KIP-11, KIP-290; Kafka's AclControlManager, AclBindingFilter and ResourcePatternFilter.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_log.errors import InvalidRequest, PolicyViolation, Rejected
from metadata_log.ids import Uuid, in_order, random_uuid
from metadata_log.image.acls import AclsImage, Pattern, Principals, Rules
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import RECORDS_PER_BATCH_MAX
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
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, Sliced
from metadata_log.wire.commands import Command
from quorum.decide.access import ALTERS_CLUSTER, CLUSTER, DESCRIBES
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides, Kept
from quorum.decide.decision import Decision
from quorum.decide.items import ManyItems, why
from quorum.decide.levels import check_level

NO_ID: Final = Uuid(bytes(16))
ANY: Final = 1
"""The number of ANY, of each kind."""
_OF_FILTERS: Final = (0, ANY)
"""UNKNOWN and ANY."""
WALKS_MAX: Final = 100
"""Filters of one request for which all ACLs are looked at: one takes some ms where there are 25,000."""
LISTED_MAX: Final = 2 * RECORDS_PER_BATCH_MAX
"""ACLs that one answer lists: each filter lists what it means, also where another one means it, too."""


class Acl(NamedTuple):
    """What an ACL says: the fields of its record without the id."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    def record(self, acl_id: Uuid) -> AccessControlEntryRecord:
        return AccessControlEntryRecord(acl_id, *self)


class AclFilter(NamedTuple):
    """Which ACLs are meant; ANY, or None of a text, is any.

    With the pattern type MATCH, `resource_name` is the name of a resource, and all ACLs are meant that concern it.
    """

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission_type: int = PermissionType.ANY

    def is_meant(self, acl: AccessControlEntryRecord) -> bool:
        """Answer whether an ACL is meant."""
        return (
            self._means_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (PermissionType.ANY, acl.permission_type)
        )

    @property
    def walks(self) -> bool:
        """Whether all ACLs are looked at for it, since it names no resource."""
        return self.resource_name is None or ANY in (self.resource_type, self.pattern_type)

    def _means_pattern(self, acl: AccessControlEntryRecord) -> bool:
        if self.resource_type not in (ResourceType.ANY, acl.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        name, wanted = acl.resource_name, self.resource_name
        if wanted is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return name == wanted
        if acl.pattern_type == PatternType.LITERAL:
            return name in (wanted, WILDCARD)
        return acl.pattern_type == PatternType.PREFIXED and wanted.startswith(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAcls(ManyItems):
    """Create ACLs; one that is there already is as wanted."""

    acls: tuple[Acl, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAcls(Command):
    """Delete all ACLs that filters mean.

    More than one batch holds are refused, as in Kafka; with `in_steps` as many as it holds are deleted, in order of id, and
    the outcome says how many are left.
    """

    filters: tuple[AclFilter, ...]
    in_steps: bool = False
    validate_only: bool = False


class AclResult(NamedTuple):
    """What became of one creation: the error's name and text, None where the ACL is there now."""

    error: str | None = None
    message: str | None = None


class AclsCreated(NamedTuple):
    """A result for each creation, in order."""

    results: tuple[AclResult, ...]


class FilterResult(NamedTuple):
    """What one filter meant: the ACLs that are deleted, or the error's name and text."""

    acls: tuple[Acl, ...] = ()
    error: str | None = None
    message: str | None = None


class AclsDeleted(NamedTuple):
    """A result for each filter, in order. ACLs that several filters mean are `deleted` once; `left` are still there."""

    results: tuple[FilterResult, ...]
    deleted: int
    left: int


class FilterKept(NamedTuple):
    error: str | None
    message: str | None


class AclsDeletedKept(NamedTuple):
    """What is kept of AclsDeleted: how many were deleted, without what they said."""

    results: tuple[FilterKept, ...]
    deleted: int
    left: int


# --- creation


def create(context: DecideContext, command: CreateAcls) -> Sliced[Decision]:
    """Decide new ACLs; one that is refused changes nothing for the others.

    Raises:
        UnsupportedVersion: the log has ACLs from level 4 of metaquorum.version on.
        PolicyViolation: more are new than one batch holds.
    """
    check_level(context.image, AccessControlEntryRecord, "ACLs")
    present, fresh = context.image.acls, dict[Acl, Uuid]()
    results: list[AclResult] = []
    for looked_at, acl in enumerate(command.acls, 1):
        if looked_at % ITEMS_BETWEEN_RESTS == 0:
            yield
        try:
            _check_new(acl, as_brokers=context.checks_as_brokers)
        except Rejected as refusal:
            results.append(AclResult(*why(refusal)))
            continue
        if acl not in fresh and present.id_of(acl.record(NO_ID)) is None:
            fresh[acl] = _new_id(context, present)
        results.append(AclResult())
    if len(fresh) > RECORDS_PER_BATCH_MAX:
        raise PolicyViolation(
            f"{len(fresh)} new ACLs; at most {RECORDS_PER_BATCH_MAX} can be created at once: ask for less at once"
        )
    outcome = AclsCreated(tuple(results))
    records = () if command.validate_only else [acl.record(acl_id) for acl, acl_id in fresh.items()]
    return Decision(records=records, outcome=outcome)


def _new_id(context: DecideContext, present: AclsImage) -> Uuid:
    while True:
        acl_id = random_uuid(context.rng)
        if acl_id not in present.by_id:
            return acl_id


def _check_new(acl: Acl, *, as_brokers: bool) -> None:
    """Check what an ACL says, in Kafka's order and words.

    Raises:
        InvalidRequest: one of its kinds is none, its name is empty, or its principal has no type; with `as_brokers` also a
            name of the cluster that is not its own, which Kafka's request layer refuses.
    """
    if as_brokers and acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER.name:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER.name}")
    if acl.resource_type in _OF_FILTERS:
        raise InvalidRequest(f"Invalid resourceType {ResourceType(acl.resource_type).name}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequest(f"Invalid patternType {PatternType(acl.pattern_type).name}")
    if acl.operation in _OF_FILTERS:
        raise InvalidRequest(f"Invalid operation {AclOperation(acl.operation).name}")
    if acl.permission_type in _OF_FILTERS:
        raise InvalidRequest(f"Invalid permissionType {PermissionType(acl.permission_type).name}")
    if not acl.resource_name:
        raise InvalidRequest("Resource name should not be empty")
    if ":" not in acl.principal:
        raise InvalidRequest(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from "
            "the principal name)"
        )


# --- deletion


def delete(context: DecideContext, command: DeleteAcls) -> Sliced[Decision]:
    """Decide the end of the ACLs that filters mean; a filter that is refused changes nothing for the others.

    Raises:
        InvalidRequest: they mean more than one batch holds, and not `in_steps`.
        PolicyViolation: too many filters name no resource, or mean the same ACLs.
        UnsupportedVersion: the log has ACLs from level 4 of metaquorum.version on.
    """
    image = context.image
    check_level(image, AccessControlEntryRecord, "ACLs")
    walks = sum(one.walks for one in command.filters)
    if walks > WALKS_MAX:
        raise PolicyViolation(
            f"{walks} filters name no resource of a type; at most {WALKS_MAX} can do so in one request"
        )
    results: list[FilterResult] = []
    gone = dict[Uuid, None]()
    left = set[Uuid]()
    listed = 0
    for looked_at, one in enumerate(command.filters, 1):
        if looked_at % ITEMS_BETWEEN_RESTS == 0:
            yield
        try:
            check_filter(one)
        except Rejected as refusal:
            error, message = why(refusal)
            results.append(FilterResult(error=error, message=message))
            continue
        meant: list[Acl] = []
        for acl in (yield from meant_by(image.acls, one)):
            if acl.id not in gone and len(gone) >= RECORDS_PER_BATCH_MAX:
                left.add(acl.id)
                continue
            gone[acl.id] = None
            meant.append(Acl(*acl[1:]))
        listed += len(meant)
        if listed > LISTED_MAX:
            raise PolicyViolation(
                f"filters mean the same ACLs: one answer would list more than {LISTED_MAX}: ask with less filters at once"
            )
        results.append(FilterResult(tuple(meant)))
    if left and not command.in_steps:
        raise InvalidRequest(
            f"Cannot remove more than {RECORDS_PER_BATCH_MAX} acls in a single delete operation. The filters mean "
            f"{len(gone) + len(left)}: delete them in steps (metaquorum acls delete does)"
        )
    records: list[Record] = [RemoveAccessControlEntryRecord(acl_id) for acl_id in gone]
    outcome = AclsDeleted(tuple(results), len(gone), len(left))
    return Decision(records=() if command.validate_only else records, outcome=outcome)


def check_filter(one: AclFilter) -> None:
    """Check the kinds of a filter.

    Raises:
        InvalidRequest: one of them is not known.
    """
    if one.pattern_type == PatternType.UNKNOWN or one.resource_type == ResourceType.UNKNOWN:
        raise InvalidRequest("Unknown patternFilter.")
    if one.operation == AclOperation.UNKNOWN or one.permission_type == PermissionType.UNKNOWN:
        raise InvalidRequest("Unknown entryFilter.")


def meant_by(image: AclsImage, one: AclFilter) -> Sliced[list[AccessControlEntryRecord]]:
    """Return the ACLs that a filter means, in order of id. One that names a resource needs no walk over all of them."""
    found: list[AccessControlEntryRecord] = []
    for looked_at, acl_id in enumerate(in_order(_candidates(image, one)), 1):
        if looked_at % ITEMS_BETWEEN_RESTS == 0:
            yield
        acl = image.by_id[acl_id]
        if one.is_meant(acl):
            found.append(acl)
    return found


def _candidates(image: AclsImage, one: AclFilter) -> Iterable[Uuid]:
    """Return the ids of all ACLs that a filter may mean."""
    if one.walks:
        return image.by_id
    assert one.resource_name is not None
    of_resource: Iterable[Principals]
    if one.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
        exact = image.by_pattern.get(Pattern(one.resource_type, one.pattern_type, one.resource_name))
        of_resource = () if exact is None else (exact,)
    else:
        found = dict(image.concerning(one.resource_type, one.resource_name))
        # An authorizer passes over what concerns all resources where a name begins with `*`; a filter does not.
        of_all = Pattern(one.resource_type, PatternType.LITERAL, WILDCARD)
        if of_all in image.by_pattern:
            found[of_all] = image.by_pattern[of_all]
        of_resource = found.values()
    return [
        acl_id
        for principals in of_resource
        for rules in _rules_of(principals, one.principal)
        for acl_id in rules.values()
    ]


def _rules_of(principals: Principals, principal: str | None) -> Iterable[Rules]:
    """Return the rules of one principal, or of all (None)."""
    if principal is None:
        return principals.values()
    rules = principals.get(principal)
    return () if rules is None else (rules,)


def _keep(outcome: AclsDeleted) -> AclsDeletedKept:
    results = tuple(FilterKept(one.error, one.message) for one in outcome.results)
    return AclsDeletedKept(results, outcome.deleted, outcome.left)


def _restore(kept: AclsDeletedKept, _records: object, _image: MetadataImage) -> AclsDeleted:
    """Return the results as they were, without what the ACLs said: nothing tells that any more."""
    results = tuple(FilterResult((), one.error, one.message) for one in kept.results)
    return AclsDeleted(results, kept.deleted, kept.left)


DECISIONS: Final = (
    Decides(CreateAcls, "CreateAcls", AclsCreated, ALTERS_CLUSTER, create),
    Decides(
        DeleteAcls, "DeleteAcls", AclsDeleted, ALTERS_CLUSTER, delete, Kept(AclsDeletedKept, _keep, _restore)
    ),
)
OTHER_OPERATIONS: Final = {"DescribeAcls": DESCRIBES}
