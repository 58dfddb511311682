"""Pure: how a topic may be named. Source: Kafka's Topic class. Tests: tests/unit/quorum/decide/test_topics.py."""

import re
from typing import Final

from metadata_log.errors import InvalidRequest, InvalidTopic
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import unified_name
from metadata_log.limits import NAME_LENGTH_MAX

CLUSTER_METADATA: Final = "__cluster_metadata"
"""The name of Kafka's own metadata log. A topic of this name would be taken for it."""
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Check the name of a topic to be.

    Raises:
        InvalidTopic: empty, `.`, `..`, longer than 249, or other characters than letters, digits, `.`, `_` and `-`.
    """
    if not name:
        raise InvalidTopic("a topic needs a name")
    if name in (".", ".."):
        raise InvalidTopic(f"a topic cannot be named {name!r}: choose another name")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopic(f"the name has {len(name)} characters; at most {NAME_LENGTH_MAX} are allowed")
    if not _NAME.fullmatch(name):
        raise InvalidTopic(f"{name!r} has characters other than a-z, A-Z, 0-9, '.', '_' and '-'")


def check_not_metadata(name: str) -> None:
    """Refuse the name of the metadata log, as Kafka does before it asks its controller.

    Raises:
        InvalidRequest.
    """
    if name == CLUSTER_METADATA:
        raise InvalidRequest(f"the creation of the internal topic {CLUSTER_METADATA} is prohibited")


def check_collision(image: MetadataImage, name: str) -> None:
    """Refuse a name that metrics could not tell from another: `.` and `_` are one character there."""
    colliding = next(iter(image.topics.alike.get(unified_name(name), ())), None)
    if colliding is not None:
        raise InvalidTopic(
            f"topic {name!r} collides with {colliding!r}: '.' and '_' are one in metric names; choose another name"
        )
