"""Pure: whose delegation tokens a caller may see beside those that concern it.
Tests: tests/unit/quorum/controller/test_tokens_seen.py.
"""

from collections.abc import Callable
from typing import Final

from metadata_log.errors import MetadataError
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.acls import ResourceType
from metadata_log.records.tokens import DelegationTokenRecord
from quorum.controller.callers import Caller, authorize
from quorum.decide.access import Resource

BY_ID: Final = "DescribeTokenOf"
BY_OWNER: Final = "DescribeTokensOf"


def may_describe(caller: Caller, image: MetadataImage) -> Callable[[DelegationTokenRecord], bool]:
    """Return what answers whether a role or an ACL lets a caller see a token, by its id or by its owner.

    Source: Kafka asks for DESCRIBE on the delegation token, then for DESCRIBE_TOKENS on the user.
    """

    def may(token: DelegationTokenRecord) -> bool:
        return _is_allowed(
            caller, BY_ID, Resource(ResourceType.DELEGATION_TOKEN, token.token_id), image
        ) or _is_allowed(caller, BY_OWNER, Resource(ResourceType.USER, token.owner), image)

    return may


def _is_allowed(caller: Caller, operation: str, resource: Resource, image: MetadataImage) -> bool:
    try:
        authorize(caller, operation, (resource,), image)
    except MetadataError:
        return False
    return True
