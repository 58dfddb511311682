"""Work that every node of a world does alike is done once: decoding frames, and applying a batch to an image.

Both are pure functions of immutable values, and all controllers, or all brokers, call them with the same arguments; shared,
a simulated second costs less. One result in sixteen is computed again and compared: a function that is not pure would be
found.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar
from unittest.mock import patch

import broker_agent.follower
import quorum.controller.standby
from metadata_log.apply import Applied
from metadata_log.batch import RecordBatch
from metadata_log.codec import decode_all
from metadata_log.errors import InvariantBroken
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.sliced import Sliced

KEPT = 512
CHECK_EVERY = 16

Key = TypeVar("Key")
Value = TypeVar("Value")
Applying = Callable[[MetadataImage, RecordBatch], Sliced[Applied]]


class SharedApply:
    def __init__(self, applying: Applying) -> None:
        self._applying = applying
        self._applied: dict[tuple[int, int, int], tuple[MetadataImage, Applied]] = {}
        self._hits = 0

    def applying(self, image: MetadataImage, batch: RecordBatch, **_how: bool) -> Sliced[Applied]:
        """Apply in slices whatever nobody has applied to its end."""
        key = (image.end_offset, image.last_crc, batch.crc)
        found = self._applied.get(key)
        if found is None:
            applied = yield from self._applying(image, batch)
            _keep(self._applied, key, (image, applied))
            return applied
        before, known = found
        if before is not image and before != image:
            # Else a node comes from a snapshot: from here on it goes the way of the others.
            raise InvariantBroken(f"two different states stand before the batch at {batch.base_offset}")
        self._hits += 1
        if self._hits % CHECK_EVERY == 0:
            again = yield from self._applying(image, batch)
            if again.image != known.image:
                raise InvariantBroken(
                    f"the batch at {batch.base_offset} was applied twice, to different ends"
                )
        return known


class SharedDecode:
    def __init__(self) -> None:
        self._decoded: dict[bytes, tuple[tuple[RecordBatch, bytes], ...]] = {}

    def decoding(self, frames: bytes, at: int) -> Sliced[tuple[RecordBatch, int]]:
        """Decode the payload at its first batch, in one slice."""
        yield from ()
        end = 0
        found = self._decoded.get(frames)
        if found is None:
            found = tuple(decode_all(frames))
            _keep(self._decoded, frames, found)
        for batch, frame in found:
            end += len(frame)
            if end > at:
                return batch, end
        raise AssertionError("the caller stops at the end of the payload")


def _keep(results: dict[Key, Value], key: Key, value: Value) -> None:
    results[key] = value
    if len(results) > KEPT:
        del results[next(iter(results))]


@contextmanager
def shared_work() -> Iterator[None]:
    """Let controllers and brokers of this process share their work for a while."""
    applies, follows = vars(quorum.controller.standby)["applying"], vars(broker_agent.follower)["applying"]
    shared, decode = SharedApply(applies), SharedDecode()
    following = SharedApply(partial(follows, keeps_results=False))
    with (
        patch.object(quorum.controller.standby, "applying", shared.applying),
        patch.object(quorum.controller.standby, "decoding", decode.decoding),
        patch.object(broker_agent.follower, "applying", following.applying),
    ):
        yield
