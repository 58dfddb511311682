"""Pure: a digest counted from nothing, and the first key of which two states differ."""

import pytest

from metadata_log import limits
from metadata_log.digest import hex_of_text
from metadata_log.image.metadata_image import MetadataImage, lines
from metadata_log.records.configs import BROKER, ConfigRecord
from metadata_log.recount import (
    LinesOfBucket,
    Recount,
    bucket_of,
    differing_buckets,
    first_difference,
    lines_of_bucket,
)
from tests.support.decisions import World
from tests.support.flips import flipped
from tests.support.histories import history_of


def counted(image: MetadataImage) -> Recount:
    recount = Recount(image)
    while recount.count_some():
        pass
    return recount


@pytest.mark.parametrize("seed", range(5))
def test_what_is_counted_from_nothing_is_what_is_kept(seed: int) -> None:
    image = [*history_of(seed, 30)][-1].image
    assert counted(image).buckets() == image.digest_buckets
    for bucket in (0, 17, 255):
        gathered = LinesOfBucket(image, bucket)
        while gathered.find_some():
            pass
        wanted = sorted(line for line in lines(image) if bucket_of(line) == bucket)
        assert sorted(gathered.found) == lines_of_bucket(image, bucket) == wanted


def test_a_part_ends_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    image = [*history_of(1, 30)][-1].image
    count = len([*lines(image)])
    assert count < limits.LINES_COUNTED_AT_ONCE
    monkeypatch.setattr(limits, "LINES_BYTES_COUNTED_AT_ONCE", 1)
    recount, gathered = Recount(image), LinesOfBucket(image, 0)
    for do_some in (recount.count_some, gathered.find_some):
        parts = 0
        while do_some():
            parts += 1
        assert parts == count, "one line is a part"
    assert recount.buckets() == image.digest_buckets
    assert sorted(gathered.found) == lines_of_bucket(image, 0)


def a_world() -> World:
    world = World()
    for line in (
        "register 1",
        "heartbeat 1",
        "create t on=1/1",
        "set broker:1 log.roll.ms=6",
        "set t retention.ms=5",
    ):
        world.run(line)
    return world


def difference(here: MetadataImage, there: MetadataImage) -> str | None:
    buckets = [*differing_buckets(counted(here).buckets(), counted(there).buckets())]
    mine, theirs = (
        [line for each in buckets for line in lines_of_bucket(image, each)] for image in (here, there)
    )
    found = first_difference(mine, theirs, here)
    return None if found is None else found.key


def test_a_flipped_field_is_named_though_the_digest_that_is_kept_does_not_know_of_it() -> None:
    image = a_world().image
    other = flipped(image, "t", 1)
    assert other.digest_buckets == image.digest_buckets
    assert difference(other, image) == difference(image, other) == "partition t:1"
    assert difference(image, image) is None


@pytest.mark.parametrize(
    ("name", "is_told"), [("log.roll.ms", True), ("some.plugin.setting", False), ("ssl.key.password", False)]
)
def test_the_lines_that_differ_show_no_secret_though_its_record_has_no_key(name: str, is_told: bool) -> None:
    """Goal: neither a node's log nor its readiness has it. Method: settings as an older release wrote them."""
    world = a_world()
    before = world.image
    world.write([ConfigRecord(BROKER, "1", name, "hunter2")])
    (line,) = {*lines(world.image)} - {*lines(before)}
    for found in (
        first_difference([line], [], before),
        first_difference([], [line], before),
        first_difference([f"{line}00", f"{line}|"], [line], before),
    ):
        assert found is not None and found.key == f"config broker 1 {name}"
        assert (hex_of_text("hunter2") in f"{found.here}{found.there}") is is_told
    told = first_difference([line], [], before)
    assert told is not None and told.here is not None and told.here.startswith(line.rpartition("|")[0])


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("set broker:1 log.roll.ms=7", "config broker 1 log.roll.ms"),
        ("set cluster log.retention.ms=6", "config cluster log.retention.ms"),
        ("heartbeat 1 fence", "broker 1"),
    ],
)
def test_the_first_key_is_told_in_words(line: str, key: str) -> None:
    world = a_world()
    before = world.image
    world.run(line)
    assert difference(before, world.image) == key
