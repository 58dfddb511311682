"""Pure: how a topic may be named. Source: Kafka's Topic class."""

import itertools
import re
from typing import Final

from metadata_log.errors import InvalidTopic
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import NAME_LENGTH_MAX

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


def check_collision(image: MetadataImage, name: str) -> None:
    """Refuse a name that metrics could not tell from another: `.` and `_` are one character there."""
    places = [place for place, character in enumerate(name) if character in "._"]
    colliding: str | None
    if 2 ** len(places) <= len(image.topics.ids):
        # Fewer ways to write the name than topics: look each of them up.
        colliding = None
        letters = list(name)
        for choice in itertools.product("._", repeat=len(places)):
            for place_, character in zip(places, choice, strict=True):
                letters[place_] = character
            if "".join(letters) in image.topics.ids:
                colliding = "".join(letters)
                break
    else:
        unified = name.replace(".", "_")
        colliding = next((other for other in image.topics.ids if other.replace(".", "_") == unified), None)
    if colliding is not None:
        raise InvalidTopic(
            f"topic {name!r} collides with {colliding!r}: '.' and '_' are one in metric names; choose another name"
        )
