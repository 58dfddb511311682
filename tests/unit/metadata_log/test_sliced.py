"""Pure: sliced work makes the same whether it rests or not."""

import pytest

from metadata_log.sliced import ITEMS_BETWEEN_RESTS, Slice, Sliced, at_once, chunks


def test_work_without_rests_returns_what_it_makes() -> None:
    rests = 0

    def work() -> Sliced[str]:
        nonlocal rests
        for _ in range(3):
            rests += 1
            yield
        return "made"

    assert (at_once(work()), rests) == ("made", 3)


@pytest.mark.parametrize(
    ("count", "lots"),
    [
        (0, [0]),
        (1, [1]),
        (ITEMS_BETWEEN_RESTS, [ITEMS_BETWEEN_RESTS]),
        (ITEMS_BETWEEN_RESTS + 1, [ITEMS_BETWEEN_RESTS, 1]),
        (2 * ITEMS_BETWEEN_RESTS, [ITEMS_BETWEEN_RESTS] * 2),
    ],
)
def test_items_come_in_order_and_a_bounded_number_at_a_time(count: int, lots: list[int]) -> None:
    found = list(chunks(range(count)))
    assert [len(lot) for lot in found] == lots
    assert [item for lot in found for item in lot] == list(range(count))


def test_a_slice_does_a_little_of_the_work_at_least_and_ends_with_its_time() -> None:
    now_ms = 0

    def work() -> Sliced[str]:
        nonlocal now_ms
        for _ in range(5):
            now_ms += 1
            yield
        return "made"

    piece, slices = work(), Slice(lambda: now_ms, 2)
    now_ms += 2
    over = [slices.is_over]
    assert slices.made_by(piece) is None
    assert now_ms == 3, "one part"
    slices.begin()
    assert [*over, slices.is_over] == [True, False], "what had the loop before counts for no slice"
    assert slices.made_by(piece) is None
    assert now_ms == 5
    slices.begin()
    assert slices.made_by(piece) is None
    assert slices.made_by(piece) == ("made",)
