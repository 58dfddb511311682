"""Edge: the encoding of a state, whole or some lists of it, in parts, so that no copy of it is held.
Tests: tests/unit/quorum/log/test_past.py.
"""

from collections.abc import Collection, Iterator
from functools import cache
from typing import Final

from metadata_log import limits
from metadata_log.errors import InvalidRequest
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.image.views import state_json
from metadata_log.node.http.encodings import parts_of

HEAD: Final = ("end_offset", "controller_epoch", "time_ms", "digest")
"""What every answer has: which state it is."""


@cache
def _names() -> tuple[str, ...]:
    return tuple(name for name in state_json(EMPTY) if name not in HEAD)


def parts_named(text: str | None) -> tuple[str, ...]:
    """Return the parts of a state that a request names, with commas between; none means all.

    Raises:
        InvalidRequest: a state has no such part.
    """
    names = () if text is None else tuple(text.split(","))
    for name in names:
        if name not in _names():
            shown = name[: limits.TEXT_BYTES_MAX]
            raise InvalidRequest(f"only={shown}: a state has no such part; it has {', '.join(_names())}")
    return names


def state_items(image: MetadataImage, *, as_msgpack: bool, only: Collection[str] = ()) -> Iterator[bytes]:
    """Yield a state's encoding, or that of HEAD and the parts that `only` names, a few items at a time.

    The first call counts the digest.
    """
    state = state_json(image)
    if only:
        state = {name: part for name, part in state.items() if name in HEAD or name in only}
    yield from parts_of(state, as_msgpack=as_msgpack)
