"""Pure: what can happen to access control lists: an ACL allows or denies principals an operation on resources.

The numbers are Kafka's. Source: KIP-11, KIP-290, KIP-801; Kafka's ResourceType, PatternType, AclOperation and
AclPermissionType. Tests: tests/unit/metadata_log/image/test_acls.py.
"""

import enum
from typing import Final, NamedTuple, TypeAlias

from metadata_log.ids import Uuid
from metadata_log.records.declaration import NO_SECRETS, record

ACLS_LEVEL: Final = 4
"""The level of metaquorum.version from which on the log has ACLs."""


class ResourceType(enum.IntEnum):
    """UNKNOWN and ANY are those of filters alone."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """How an ACL's name means resources; UNKNOWN, ANY and MATCH are those of filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """Of a filter: all ACLs that concern a resource of that name."""
    LITERAL = 3
    """The resource of that name; `*`: all of the type."""
    PREFIXED = 4
    """All resources whose names begin so."""


class AclOperation(enum.IntEnum):
    """What is done to a resource; UNKNOWN and ANY are those of filters alone."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(enum.IntEnum):
    """UNKNOWN and ANY are those of filters alone."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


WILDCARD: Final = "*"
"""Any resource of a type (LITERAL), any host, and as `User:*` any principal."""


@record(type_id=18, secret_fields=NO_SECRETS, levels=(ACLS_LEVEL,))
class AccessControlEntryRecord(NamedTuple):
    """An ACL was created. Its four kinds are numbers of ResourceType, PatternType, AclOperation and PermissionType."""

    id: Uuid
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    """Such as `User:alice`; `User:*` is everybody."""
    host: str
    """A numeric address as Java writes it, or `*`."""
    operation: int
    permission_type: int


@record(type_id=19, secret_fields=NO_SECRETS, levels=(ACLS_LEVEL,))
class RemoveAccessControlEntryRecord(NamedTuple):
    """An ACL was deleted."""

    id: Uuid


Record: TypeAlias = AccessControlEntryRecord | RemoveAccessControlEntryRecord
