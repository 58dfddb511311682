"""Pure: the shapes of answers about access control lists. Tests: tests/unit/quorum/http/test_openapi.py."""

from typing import NotRequired, TypedDict

from quorum.http.answer_parts import Listing, Outcome, Written


class AclSays(TypedDict):
    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission_type: str


class Acl(AclSays):
    id: str


class Acls(Listing):
    """`enforced`: whether ACLs count on the doors of the controller that answers."""

    enforced: bool
    items: list[Acl]


class AclVerdict(TypedDict):
    """`why` is "rule", "super user", or why no rule decides; `rule` is the ACL that does.

    `roles` are the principal's: what they give here, ACLs do not take away, and the verdict does not count.
    """

    allowed: bool
    why: str
    rule: Acl | None
    enforced: bool
    roles: list[str]
    end_offset: int


class AclsCreated(Written):
    """A result of each, in order; `doubts` say which match nothing, and the cure: of the first hundred of them."""

    acls: list[Outcome]
    doubts: NotRequired[list[str]]


class AclsOfFilter(Outcome):
    acls: list[AclSays]


class AclsDeleted(Written):
    """What each filter meant; `left` more are still there."""

    filters: list[AclsOfFilter]
    deleted: int
    left: int
