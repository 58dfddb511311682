"""Pure: an immutable set of ids in order, which shares what did not change with its neighbours.

A walk over a broker's partitions is made in parts, and each goes on after an id: a hash trie has no order, and sorting it
for each part would cost more the larger the cluster is. Tests: tests/property/test_sorted_ids.py.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from operator import lt
from typing import Final

from metadata_log.ids import TopicId, in_order

_CHUNK_MAX: Final = 512
_REBUILT_AT: Final = 16
"""If more than one in this many ids changes, the set is built from scratch: an image is often made from nothing."""

Chunk = tuple[TopicId, ...]


class SortedIds:
    """Ids in ascending order, in chunks of at most 512; no chunk is empty."""

    __slots__ = ("_chunks", "_size")

    def __init__(self, chunks: tuple[Chunk, ...] = (), size: int = 0) -> None:
        self._chunks = chunks
        self._size = size

    @staticmethod
    def of(ids: Iterable[TopicId]) -> "SortedIds":
        known = [*ids]
        ordered = iter(known) if all(map(lt, known, islice(known, 1, None))) else in_order(known)
        chunks = tuple(iter(lambda: tuple(islice(ordered, _CHUNK_MAX)), ()))
        return SortedIds(chunks, sum(map(len, chunks)))

    def changed(self, *, joined: Collection[TopicId], left: Collection[TopicId]) -> "SortedIds":
        """Return the set with the ids of `joined`, none of which is in it, and without those of `left`, which all are."""
        if (len(joined) + len(left)) * _REBUILT_AT > self._size:
            return SortedIds.of({*self, *joined}.difference(left))
        chunks = list(self._chunks)
        for topic_id in joined:
            _insert(chunks, topic_id)
        for topic_id in left:
            _remove(chunks, topic_id)
        return SortedIds(tuple(chunks), self._size + len(joined) - len(left))

    def starting_at(self, topic_id: TopicId) -> Iterator[TopicId]:
        """Yield the ids that are not less than `topic_id`, in order."""
        at = _chunk_of(self._chunks, topic_id)
        if at < len(self._chunks):
            first = self._chunks[at]
            yield from first[bisect_left(first, topic_id) :]
            yield from chain.from_iterable(self._chunks[at + 1 :])

    def __iter__(self) -> Iterator[TopicId]:
        return chain.from_iterable(self._chunks)

    def __len__(self) -> int:
        return self._size

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SortedIds) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"SortedIds({len(self)})"


NO_IDS: Final = SortedIds()


def _chunk_of(chunks: Collection[Chunk], topic_id: TopicId) -> int:
    """Return the place of the first chunk whose last id is not less than `topic_id`."""
    return bisect_left(chunks, topic_id, key=lambda chunk: chunk[-1])  # type: ignore[call-overload, no-any-return]


def _insert(chunks: list[Chunk], topic_id: TopicId) -> None:
    at = min(_chunk_of(chunks, topic_id), len(chunks) - 1)
    chunk = chunks[at]
    place = bisect_left(chunk, topic_id)
    grown = (*chunk[:place], topic_id, *chunk[place:])
    half = len(grown) // 2
    chunks[at : at + 1] = [grown] if len(grown) <= _CHUNK_MAX else [grown[:half], grown[half:]]


def _remove(chunks: list[Chunk], topic_id: TopicId) -> None:
    at = _chunk_of(chunks, topic_id)
    chunk = chunks[at]
    place = bisect_left(chunk, topic_id)
    if chunk[place] != topic_id:
        raise KeyError(topic_id)
    shrunk = chunk[:place] + chunk[place + 1 :]
    chunks[at : at + 1] = [shrunk] if shrunk else []
