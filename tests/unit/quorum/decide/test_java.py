"""Pure: what of Java shows in Kafka's decisions."""

import pytest

from quorum.decide.java import first_of_hash_table

FIBONACCI = 0x9E3779B97F4A7C15


def first_by_looking(size: int, *, is_changed: bool) -> int:
    """Return the last key in the first slot, by a look at every key."""
    slots = 2
    while (size + is_changed) * 3 > slots * 4:
        slots *= 2
    return max(key for key in range(size) if (key * FIBONACCI) % (1 << 64) < (1 << 64) // slots)


@pytest.mark.parametrize("is_changed", [False, True])
def test_the_key_that_a_hash_table_lists_first_is_computed(is_changed: bool) -> None:
    """Goal: no walk over all partitions of a topic. Method: every size up to 800, and some large ones, by looking."""
    for size in (*range(1, 800), 4_097, 10_000, 49_152, 65_537):
        found = first_of_hash_table(size, is_changed=is_changed)
        assert found == first_by_looking(size, is_changed=is_changed), size
    assert 0 <= first_of_hash_table(10**9, is_changed=is_changed) < 10**9
