"""Edge: which tokens of others a role or an ACL shows."""

from metadata_log.ids import Uuid
from metadata_log.node.identity.rights import ROLES, ByAcls, Principal
from metadata_log.records.acls import (
    AccessControlEntryRecord,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from metadata_log.records.tokens import DelegationTokenRecord
from quorum.controller.callers import Caller
from quorum.controller.tokens_seen import may_describe
from tests.support.decisions import World

TOKEN = DelegationTokenRecord("id", "User:carol", "User:carol", (), 0, 9, 9)
BY_ACLS = ByAcls(allow_if_none=False)


def acl(
    number: int, principal: str, of: ResourceType, name: str, does: AclOperation
) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        Uuid(bytes([number]) * 16), of, name, PatternType.LITERAL, principal, "*", does, PermissionType.ALLOW
    )


def test_a_role_or_an_acl_shows_tokens_of_others() -> None:
    world = World()
    world.write(
        [
            acl(1, "User:by-id", ResourceType.DELEGATION_TOKEN, "id", AclOperation.DESCRIBE),
            acl(2, "User:by-owner", ResourceType.USER, "User:carol", AclOperation.DESCRIBE_TOKENS),
            acl(3, "User:of-another", ResourceType.USER, "User:dave", AclOperation.DESCRIBE_TOKENS),
        ]
    )

    def sees(principal: Principal) -> bool:
        return may_describe(Caller(principal, "10.0.0.1"), world.image)(TOKEN)

    by_role = {role: sees(Principal("User:x", rights)) for role, rights in ROLES.items()}
    assert by_role == {"admin": True, "broker": False, "controller": False, "reader": False}, (
        "it gets the HMAC"
    )
    assert not sees(Principal("User:nobody-knows", frozenset()))
    told = {
        name: sees(Principal(f"User:{name}", frozenset(), by_acls=BY_ACLS))
        for name in ("by-id", "by-owner", "of-another")
    }
    assert told == {"by-id": True, "by-owner": True, "of-another": False}
