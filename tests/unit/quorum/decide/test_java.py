"""Pure: what of Java shows in Kafka's decisions."""

import hashlib

import pytest

from quorum.decide.java import ConcurrentHashMapOrder, JavaRandom, first_of_hash_table

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


def test_keys_come_in_the_order_of_a_concurrent_hash_map() -> None:
    """The digest is that of what Java 17 prints for the same 600 steps: pairs (record P(int, long)) come and go."""
    rng, order, seen = JavaRandom(1), ConcurrentHashMapOrder[tuple[int, int]](), ""
    for step in range(600):
        number = rng.randrange(16)
        # At first half of them share a slot.
        pair = number, (16 * rng.randrange(2) + number + 3 if step < 40 else rng.randrange(400))
        keys = list(order)
        if rng.randrange(3) > 0 or not keys:
            order.put(pair, 31 * pair[0] + pair[1])
        else:
            order.remove(keys[rng.randrange(len(keys))])
        if step % 10 == 9:
            seen += "".join(f"{first}:{second} " for first, second in order) + "\n"
    expected = "c065ae2102b6e8dd7b8227447eefb8d09f3f9c117bd55c0b314a871018fdcc98"
    assert hashlib.sha256(seen.encode()).hexdigest() == expected
