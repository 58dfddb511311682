"""Pure: access control lists as columns. Tests: tests/unit/metadata_log/replay/test_changes.py."""

from typing import Final

import pyarrow as pa

from metadata_log.ids import uuid_from_text
from metadata_log.records.acls import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from metadata_log.replay.subjects.subject import ReplaySubject, uuid_column

SUBJECT: Final = ReplaySubject(
    fields=(
        (
            "acl_id",
            pa.string(),
            "the ACL, which concerns resource_type (as of a setting, and more) and resource_name",
        ),
        (
            "pattern_type",
            pa.int32(),
            "3 LITERAL: the resource of that name, `*` all; 4 PREFIXED: all that begin so",
        ),
        ("principal", pa.string(), "whom it concerns; `User:*`: everybody"),
        ("host", pa.string(), "the address from which; `*`: any"),
        (
            "acl_operation",
            pa.int32(),
            "what it allows or denies, by the number of Kafka's AclOperation; 2 ALL, 3 READ, 4 WRITE, 8 DESCRIBE",
        ),
        ("permission_type", pa.int32(), "2 DENY, 3 ALLOW"),
    ),
    identity=("acl_id",),
    key="'acl:' || acl_id",
    columns={
        AccessControlEntryRecord: (
            *("acl_id", "resource_type", "resource_name", "pattern_type"),
            *("principal", "host", "acl_operation", "permission_type"),
        ),
        RemoveAccessControlEntryRecord: ("acl_id",),
    },
    changes=("acl_changes",),
    to_column={"acl_id": uuid_column},
    from_column={"acl_id": uuid_from_text},
)
