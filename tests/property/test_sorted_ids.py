"""Pure: an ordered set of ids equals a sorted list after any additions and removals."""

import random

import pytest

from metadata_log.ids import TopicId
from metadata_log.image.sorted_ids import SortedIds


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_it_is_a_sorted_list(seed: int) -> None:
    """Goal: order and content. Method: changes of all sizes, small ones mostly, so that chunks split and vanish."""
    rng = random.Random(seed)
    ids, plain = SortedIds(), set[TopicId]()
    for _ in range(60):
        joined = {TopicId(rng.randbytes(16)) for _ in range(rng.choice((0, 1, 1, 2, 700)))} - plain
        left = set(rng.sample(sorted(plain), k=min(len(plain), rng.choice((0, 1, 2, 200)))))
        before, was = ids, list(ids)
        ids = ids.changed(joined=joined, left=left)
        assert list(before) == was
        plain = (plain | joined) - left
        assert list(ids) == sorted(plain)
        assert (len(ids), bool(ids)) == (len(plain), bool(plain))
        start = TopicId(rng.randbytes(16))
        assert list(ids.starting_at(start)) == [one for one in sorted(plain) if one >= start]
        assert ids == SortedIds.of(plain)


def test_an_id_that_is_not_there_cannot_leave() -> None:
    ids = SortedIds.of(TopicId(bytes(15) + bytes([n])) for n in range(0, 100, 2))
    with pytest.raises(KeyError):
        ids.changed(joined=(), left=(TopicId(bytes(15) + b"\x03"),))
