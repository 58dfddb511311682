"""The state digest is counted when somebody asks for it, and then some lines in a turn of the loop."""

import pytest

from metadata_log.digest import Buckets
from metadata_log.image import metadata_image
from metadata_log.image.metadata_image import EMPTY, MetadataImage, buckets_of
from metadata_log.limits import KIB, LINES_COUNTED_AT_ONCE, UNCOUNTED_SMALL_BATCHES_MAX
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, ConfigRecord
from metadata_log.records.registry import Record
from tests.support.histories import claim, step_of

BATCHES, SETTINGS = 20, 300


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """About how many lines were counted each time."""
    sizes: list[int] = []
    count = metadata_image._counted

    def counting(steps: list[metadata_image._Uncounted], after: MetadataImage) -> Buckets:
        sizes.append(sum(step.size.lines for step in steps))
        return count(steps, after)

    monkeypatch.setattr(metadata_image, "_counted", counting)
    return sizes


def _after_many_batches(batches: int = BATCHES, *, settings: int = SETTINGS) -> MetadataImage:
    image = step_of(EMPTY, [claim(EMPTY)]).image
    for number in range(batches):
        records: list[Record] = [
            ConfigRecord(BROKER, CLUSTER_DEFAULT, f"setting-{each}", str(number)) for each in range(settings)
        ]
        image = step_of(image, records).image
    return image


def test_a_batch_counts_nothing_of_the_digest(counted: list[int]) -> None:
    _after_many_batches()
    assert counted == []


def test_who_asks_has_some_lines_counted_at_a_time(counted: list[int]) -> None:
    image = _after_many_batches()
    while image.state_digest.count_some(image):
        assert counted[-1] <= LINES_COUNTED_AT_ONCE
    assert len(counted) >= BATCHES * SETTINGS / LINES_COUNTED_AT_ONCE
    assert image.digest_buckets == buckets_of(image)


def test_changes_that_wait_to_be_counted_are_bounded_in_bytes(
    counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_image, "UNCOUNTED_BYTES_MAX", 5 * SETTINGS * KIB)
    image = _after_many_batches()
    state = image.state_digest.state
    assert isinstance(state, metadata_image._Uncounted)
    assert 0 < len(counted) < BATCHES
    assert state.behind.bytes <= 5 * SETTINGS * KIB
    assert image.digest_buckets == buckets_of(image)


def test_small_batches_are_counted_while_few_of_them_wait(counted: list[int]) -> None:
    image = _after_many_batches(5 * UNCOUNTED_SMALL_BATCHES_MAX, settings=1)
    state = image.state_digest.state
    assert isinstance(state, metadata_image._Uncounted)
    assert state.behind.batches <= UNCOUNTED_SMALL_BATCHES_MAX
    assert len(counted) >= 4
    assert max(counted) <= LINES_COUNTED_AT_ONCE
    assert image.digest_buckets == buckets_of(image)


def test_batches_of_many_lines_wait_for_who_asks(counted: list[int]) -> None:
    """A change in hundreds of parts, such as the fencing of a broker, is not slowed down by its digest."""
    lines = LINES_COUNTED_AT_ONCE // UNCOUNTED_SMALL_BATCHES_MAX + 1
    _after_many_batches(2 * UNCOUNTED_SMALL_BATCHES_MAX, settings=lines)
    assert counted == []
