"""Uuids in order."""

import random

import pytest

from metadata_log.ids import SORTED_AT_ONCE, Uuid, in_order


@pytest.mark.parametrize("alike", [0, 1, 7])
@pytest.mark.parametrize("count", [0, 1, 300, 3 * SORTED_AT_ONCE])
def test_uuids_come_in_order_however_alike_they_begin(alike: int, count: int) -> None:
    """As those of version 7 do, which begin with the time."""
    rng = random.Random(count)
    ids = list({Uuid(bytes(alike) + rng.randbytes(16 - alike)) for _ in range(count)})
    assert list(in_order(ids)) == sorted(ids)


def test_uuids_that_differ_in_their_last_bytes_alone() -> None:
    ids = [Uuid(number.to_bytes(16, "big")) for number in range(2 * SORTED_AT_ONCE)]
    assert list(in_order(reversed(ids))) == ids
