"""Edge: the encoding of a whole state, in parts, so that no copy of it is held.
Tests: tests/unit/quorum/log/test_past.py.
"""

from collections.abc import Iterator

from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.views import state_json
from metadata_log.node.http.answer_pieces import parts_of


def state_items(image: MetadataImage, *, as_msgpack: bool) -> Iterator[bytes]:
    """Yield a state's encoding, a few items at a time. The first call counts the digest."""
    yield from parts_of(state_json(image), as_msgpack=as_msgpack)
