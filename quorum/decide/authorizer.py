"""Pure: whether a principal may do something to a resource, and which rule decides.

Super users may do everything. Else a rule that denies counts before all that allow. Without any rule that fits, the
operation is denied, or allowed where a setting says so for resources that no ACL concerns. Source: KIP-801, and Kafka's
StandardAuthorizerData, with which `python -m tests.authorizer` compares this file.
Tests: tests/unit/quorum/decide/test_authorizer.py.
"""

import enum
import ipaddress
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from metadata_log.errors import AuthorizerNotReady
from metadata_log.ids import Uuid
from metadata_log.image.acls import AclsImage, Principals, Rule
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.acls import WILDCARD, AccessControlEntryRecord, AclOperation, PermissionType

EVERYBODY: Final = "User:*"
_IMPLYING: Final = {
    AclOperation.DESCRIBE: (
        *(AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE),
        *(AclOperation.DELETE, AclOperation.ALTER),
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
}
"""What also allows an operation: who may read a topic may see it. A rule that denies implies nothing."""


class Question(NamedTuple):
    """May a principal, from a host, do this to a resource of that name? `host` is a numeric address as Java writes it."""

    principal: str
    host: str
    operation: int
    resource_type: int
    resource_name: str


class Why(enum.Enum):
    SUPER_USER = "super user"
    RULE = "rule"
    DEFAULT_ALLOW = "no ACL concerns the resource"
    DEFAULT_DENY = "no ACL allows it"


class Verdict(NamedTuple):
    """`rule` is the ACL that decides; None: none does."""

    is_allowed: bool
    why: Why
    rule: AccessControlEntryRecord | None = None


_SUPER_USER: Final = Verdict(True, Why.SUPER_USER)
_DEFAULT_ALLOW: Final = Verdict(True, Why.DEFAULT_ALLOW)
_DEFAULT_DENY: Final = Verdict(False, Why.DEFAULT_DENY)


def verdict_of(
    image: MetadataImage,
    question: Question,
    *,
    super_users: Collection[str] = (),
    allow_if_none: bool = False,
) -> Verdict:
    """Return whether something is allowed by the ACLs of an image.

    `allow_if_none`: whatever no ACL concerns is allowed (Kafka's `allow.everyone.if.no.acl.found`).

    Raises:
        AuthorizerNotReady: nothing of the log is known here yet.
    """
    if question.principal in super_users:
        return _SUPER_USER
    if image.quorum.cluster_id is None:
        raise AuthorizerNotReady("nothing of the log is applied here yet, so no right is known")
    return _by_rules(image.acls, question, allow_if_none=allow_if_none)


def _by_rules(acls: AclsImage, question: Question, *, allow_if_none: bool) -> Verdict:
    denying = _rules(question, PermissionType.DENY, (question.operation, AclOperation.ALL))
    implying = _IMPLYING.get(AclOperation(question.operation), (question.operation,))
    allowing = _rules(question, PermissionType.ALLOW, (*implying, AclOperation.ALL))
    allowed: Uuid | None = None
    is_concerned = False
    # Of several rules, Kafka names the first that denies, else the last that allows.
    for _, principals in acls.concerning(question.resource_type, question.resource_name):
        is_concerned = True
        denied = _found(principals, question, denying, min)
        if denied is not None:
            return Verdict(False, Why.RULE, acls.by_id[denied])
        allowed = _found(principals, question, allowing, max) or allowed
    if allowed is not None:
        return Verdict(True, Why.RULE, acls.by_id[allowed])
    return _DEFAULT_ALLOW if allow_if_none and not is_concerned else _DEFAULT_DENY


def _rules(question: Question, permission: PermissionType, operations: Iterable[int]) -> tuple[Rule, ...]:
    """Return all rules that would fit a question."""
    hosts = {question.host, WILDCARD}
    return tuple(Rule(operation, host, permission) for operation in operations for host in hosts)


def _found(
    principals: Principals,
    question: Question,
    fitting: Iterable[Rule],
    first: Callable[[Iterable[tuple[int, str, str, Uuid]]], tuple[int, str, str, Uuid]],
) -> Uuid | None:
    """Return the id of a rule of one pattern that fits: the first in Kafka's order, or with `max` the last."""
    found = list(_fitting(principals, question, fitting))
    return first(found)[-1] if found else None


def _fitting(
    principals: Principals, question: Question, fitting: Iterable[Rule]
) -> Iterator[tuple[int, str, str, Uuid]]:
    for principal in {question.principal, EVERYBODY}:
        rules = principals.get(principal)
        if rules is not None:
            for rule in fitting:
                acl_id = rules.get(rule)
                if acl_id is not None:
                    yield rule.operation, principal, rule.host, acl_id


@lru_cache(maxsize=4_096)
def java_host(address: str) -> str:
    """Return a numeric address as Java writes it, in which ACLs name hosts: `0:0:0:0:0:0:0:1` for `::1`."""
    numeric, percent, scope = address.partition("%")
    ip = ipaddress.ip_address(numeric)
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in ip.exploded.split(":")) + percent + scope
