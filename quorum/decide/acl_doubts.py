"""Pure: what of an access control list can hardly be meant: rules that Kafka accepts, and that match nothing.

Kafka's tool `kafka-acls` refuses an operation that a type of resource does not have (`AclEntry.supportedOperations`); its
controllers do not. Principals, hosts and names are any text there, and are compared as they are written.
Tests: tests/unit/quorum/decide/test_acl_doubts.py.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Final

from metadata_log.records.acls import WILDCARD, AclOperation, PatternType, ResourceType
from quorum.decide.acls import Acl
from quorum.decide.authorizer import EVERYBODY, java_host

_CONFIGS: Final = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
SUPPORTED: Final[Mapping[int, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        *(AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE),
        *(AclOperation.ALTER, AclOperation.DESCRIBE, *_CONFIGS),
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_CONFIGS),
    ResourceType.CLUSTER: (
        *(AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION),
        *(*_CONFIGS, AclOperation.IDEMPOTENT_WRITE),
    ),
    ResourceType.TRANSACTIONAL_ID: (
        *(AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT),
    ),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations that each type of resource has, beside ALL. Source: AclEntry of Kafka 4.3.1, asked."""
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_USER: Final = "User:"


def unsupported(acl: Acl) -> str | None:
    """Return why no request needs this operation on a resource of this type; None: some need it."""
    supported = SUPPORTED.get(acl.resource_type)
    if supported is None or acl.operation in (AclOperation.ALL, *supported):
        return None
    names = ", ".join(one.name for one in sorted((AclOperation.ALL, *supported)))
    kind = ResourceType(acl.resource_type).name
    return f"ResourceType {kind} only supports operations {names}, not {AclOperation(acl.operation).name}"


def doubts(acl: Acl) -> list[str]:
    """Return why an ACL matches nothing, each with its cure."""
    found = [unsupported(acl), _of_principal(acl.principal), _of_host(acl.host), *_of_name(acl)]
    return [one for one in found if one is not None]


def _of_principal(principal: str) -> str | None:
    kind, colon, name = principal.partition(":")
    if not colon:
        return None  # it is refused
    if not name:
        return f"principal {principal!r}: no client has an empty name: write {_USER}NAME"
    if kind != "User":
        return (
            f"principal {principal!r}: clients are {_USER}NAME, in these letters; another type matches only where brokers "
            "have a principal builder of their own"
        )
    if WILDCARD in name and principal != EVERYBODY:
        return f"principal {principal!r} is one name: {EVERYBODY} alone means more than one"
    return None


def _of_host(host: str) -> str | None:
    if host == WILDCARD:
        return None
    try:
        written = java_host(host)
    except ValueError:
        what = "a network" if _is_network(host) else "no numeric address"
        return f"host {host!r} is {what}: clients have numeric addresses, each a rule of its own: 10.0.0.7, or {WILDCARD}"
    if written != host:
        return f"host {host!r} is written {written} where it is compared: write it so"
    return None


def _is_network(host: str) -> bool:
    try:
        ipaddress.ip_network(host, strict=False)
    except ValueError:
        return False
    return True


def _of_name(acl: Acl) -> Iterator[str]:
    name = acl.resource_name
    is_prefix = acl.pattern_type == PatternType.PREFIXED
    if is_prefix and name.endswith(WILDCARD):
        bare = name.rstrip(WILDCARD)
        cure = f"write the prefix {bare}" if bare else "for all names, leave the pattern literal"
        yield f"the prefix {name!r} has a {WILDCARD} of its own: {cure}"
    elif not is_prefix and name.endswith(WILDCARD) and name != WILDCARD:
        yield f"{name!r} is one name: for all names that begin so, make {name.rstrip(WILDCARD)} a prefix"
    elif (
        acl.resource_type == ResourceType.TOPIC
        and name not in ("", WILDCARD)
        and not _TOPIC_NAME.fullmatch(name)
    ):
        yield f"no topic has the name {name!r}: names have up to 249 letters, digits, '.', '_' and '-'"
