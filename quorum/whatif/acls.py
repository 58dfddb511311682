"""Pure: the operations of scripts on access control lists. Tests: tests/unit/quorum/whatif/test_kafka_scripts.py."""

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final

from metadata_log.records.acls import AclOperation, PatternType, PermissionType, ResourceType
from quorum.decide.acls import Acl, AclFilter, AclsCreated, AclsDeleted, CreateAcls, DeleteAcls
from quorum.whatif.operation import Answer, Line, Run, or_default, result


def acls_of(line: Line) -> tuple[Acl, ...]:
    return tuple(
        Acl(
            _number(ResourceType, each["resource_type"]),
            each["resource_name"],
            _number(PatternType, or_default(each, "resource_pattern_type", "LITERAL")),
            or_default(each, "principal", "User:ann"),
            or_default(each, "host", "*"),
            _number(AclOperation, each["operation"]),
            _number(PermissionType, or_default(each, "permission_type", "ALLOW")),
        )
        for each in line["creations"]
    )


def filters_of(line: Line) -> tuple[AclFilter, ...]:
    return tuple(
        AclFilter(
            _number(ResourceType, or_default(each, "resource_type_filter", "ANY")),
            each.get("resource_name_filter"),
            _number(PatternType, or_default(each, "pattern_type_filter", "ANY")),
            each.get("principal_filter"),
            each.get("host_filter"),
            _number(AclOperation, or_default(each, "operation", "ANY")),
            _number(PermissionType, or_default(each, "permission_type", "ANY")),
        )
        for each in line["filters"]
    )


def create(run: Run, line: Line) -> Answer:
    outcome = run.decide(CreateAcls(acls=acls_of(line)))
    assert isinstance(outcome, AclsCreated)
    return {"results": [result(each.error, each.message) for each in outcome.results]}


def delete(run: Run, line: Line) -> Answer:
    outcome = run.decide(DeleteAcls(filters=filters_of(line)))
    assert isinstance(outcome, AclsDeleted)
    return {
        "results": [
            result(each.error, each.message) | {"deleted": len(each.acls)} for each in outcome.results
        ]
    }


def _number(kind: type[enum.IntEnum], name: str) -> int:
    """Return the number of a kind's name; that of UNKNOWN for another text, as in Kafka."""
    return kind[name] if name in kind.__members__ else kind["UNKNOWN"]


OPERATIONS: Final[Mapping[str, Callable[[Run, Mapping[str, Any]], Answer]]] = {
    "CreateAcls": create,
    "DeleteAcls": delete,
}
