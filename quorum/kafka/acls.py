"""Edge: access control lists in Kafka's protocol: described, created, deleted.

As long as ACLs are not enforced here, they are refused with SECURITY_DISABLED, as by a Kafka without an authorizer: its
tools must not say that something is protected which is not. Tests: tests/unit/quorum/kafka/test_acls.py.
"""

import enum
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

from metadata_log.errors import PolicyViolation
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.kafka.reading import Values
from metadata_log.records.acls import (
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from metadata_log.sliced import at_once
from quorum.decide.acls import (
    Acl,
    AclFilter,
    AclsCreated,
    AclsDeleted,
    CreateAcls,
    DeleteAcls,
    FilterResult,
    check_filter,
    meant_by,
)
from quorum.kafka.door import ITEMS_AT_ONCE, NO_THROTTLE, Api, Asked, KafkaDoor, Waits
from quorum.kafka.errors import NONE, KafkaError, item_error

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
NOT_ENFORCED: Final = KafkaError(54, "this controller does not enforce ACLs: [acls] enforced is not true")
"""SECURITY_DISABLED, as from a Kafka without an authorizer."""
FILTERS_MAX: Final = 10_000


async def describe_acls(door: KafkaDoor, asked: Asked) -> Values:
    if not door.settings.acls.enforced:
        return (NO_THROTTLE, *NOT_ENFORCED, ())
    meant = _filter(asked.values)
    check_filter(meant)
    image: MetadataImage = await door.controller.read(lambda image: image)
    return (NO_THROTTLE, NONE, None, await door.reads.run(_described, image, meant))


def _described(image: MetadataImage, meant: AclFilter) -> list[Values]:
    by_pattern: dict[Values, list[Values]] = defaultdict(list)
    for acl in at_once(meant_by(image.acls, meant)):
        pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
        by_pattern[pattern].append((acl.principal, acl.host, acl.operation, acl.permission_type))
    return [(*pattern, acls) for pattern, acls in by_pattern.items()]


async def create_acls(door: KafkaDoor, asked: Asked) -> Values:
    creations = asked.values[0]
    if not door.settings.acls.enforced:
        return await _made(door, creations, lambda some: (NO_THROTTLE, [tuple(NOT_ENFORCED) for _ in some]))
    acls = tuple(_acl(each) for each in creations)
    written = await door.controller.submit(CreateAcls(acls=acls), asked.caller)
    assert isinstance(written.outcome, AclsCreated)
    return (NO_THROTTLE, [item_error(each.error, each.message) for each in written.outcome.results])


async def delete_acls(door: KafkaDoor, asked: Asked) -> Values:
    filters = asked.values[0]
    if not door.settings.acls.enforced:
        return await _made(door, filters, lambda some: (NO_THROTTLE, [(*NOT_ENFORCED, ()) for _ in some]))
    if len(filters) > FILTERS_MAX:
        raise PolicyViolation(f"{len(filters)} filters in one request; at most {FILTERS_MAX} can be")
    command = DeleteAcls(filters=tuple(map(_filter, filters)))
    written = await door.controller.submit(command, asked.caller)
    assert isinstance(written.outcome, AclsDeleted)
    return await _made(
        door, written.outcome.results, lambda results: (NO_THROTTLE, [_deleted(each) for each in results])
    )


async def _made(door: KafkaDoor, items: Sequence[Any], make: Callable[[Sequence[Any]], Values]) -> Values:
    """Return an answer about many items: that of very many is made in a thread."""
    listed = sum(len(item.acls) for item in items if isinstance(item, FilterResult))
    if len(items) + listed <= ITEMS_AT_ONCE:
        return make(items)
    return await door.reads.run(make, items)


def _acl(creation: Values) -> Acl:
    resource_type, name, pattern_type, principal, host, operation, permission_type = creation
    return Acl(
        _known(ResourceType, resource_type),
        name,
        _known(PatternType, pattern_type),
        principal,
        host,
        _known(AclOperation, operation),
        _known(PermissionType, permission_type),
    )


def _filter(meant: Values) -> AclFilter:
    return AclFilter(*_acl(meant))


def _known(kind: type[enum.IntEnum], number: int) -> int:
    """Return a number of a kind; that of UNKNOWN for one that this release does not know, as in Kafka."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def _deleted(one: FilterResult) -> Values:
    return (*item_error(one.error, one.message), [(NONE, None, *acl) for acl in one.acls])


def _refused_creations(_api: Api, asked: Asked, error: KafkaError) -> Values:
    return (NO_THROTTLE, [tuple(error) for _ in asked.values[0]])


def _refused_filters(_api: Api, asked: Asked, error: KafkaError) -> Values:
    return (NO_THROTTLE, [(*error, ()) for _ in asked.values[0]])


APIS: Final = (
    Api(DESCRIBE_ACLS, Waits(describe_acls), "DescribeAcls"),
    Api(CREATE_ACLS, Waits(create_acls), "CreateAcls", _refused_creations, in_envelopes=True),
    Api(DELETE_ACLS, Waits(delete_acls), "DeleteAcls", _refused_filters, in_envelopes=True),
)
