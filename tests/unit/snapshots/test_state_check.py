"""Edge: a node's comparison of its state: what is asked, and that nothing is said where nothing can be compared."""

from collections.abc import Mapping
from typing import Any

import pytest

from metadata_log import limits
from metadata_log.digest import digest
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.recount import lines_of_bucket
from snapshots.state_check import StateCheck
from tests.support.decisions import World
from tests.support.flips import flipped


def a_state() -> MetadataImage:
    world = World()
    for line in ("register 1", "heartbeat 1", "create t on=1/1"):
        world.run(line)
    return world.image


class Reference:
    """A controller that answers with the state of its log; None: it does not answer."""

    def __init__(self, image: MetadataImage | None) -> None:
        self.image = image
        self.asked: list[str] = []

    async def ask(self, path: str) -> Mapping[str, Any] | None:
        self.asked.append(path)
        if self.image is None:
            return None
        end_offset = self.image.end_offset
        if "bucket=" in path:
            bucket = int(path.partition("bucket=")[2].partition("&")[0])
            return {"end_offset": end_offset, "lines": lines_of_bucket(self.image, bucket)}
        buckets = [list(each) for each in self.image.digest_buckets]
        return {"end_offset": end_offset, "digest": digest(self.image), "buckets": buckets}


async def test_a_state_that_differs_is_logged_once_and_is_sound_again_once_it_agrees(
    caplog: pytest.LogCaptureFixture,
) -> None:
    image = a_state()
    held = [flipped(image, "t", 0)]
    reference = Reference(image)
    check = StateCheck(lambda: held[0], reference.ask)
    await check.check()
    await check.check()
    assert check.differs is not None and check.differs.key == "partition t:0"
    assert caplog.messages.count("state_differs") == 1
    assert "in the log of a controller" in str(check.differs)
    held[0] = image
    await check.check()
    assert [*check.reasons()] == []
    assert reference.asked[0] == f"/v1/digest?at={image.end_offset}&consistency=stale"


async def test_a_state_that_is_too_large_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    image = a_state()
    for most, asked in ((2, 1), (1, 0)):
        monkeypatch.setattr(limits, "STATE_CHECK_PARTITIONS_MAX", most)
        reference = Reference(image)
        await StateCheck(lambda: image, reference.ask).check()
        assert len(reference.asked) == asked


async def test_nothing_is_said_where_nothing_can_be_compared() -> None:
    image = a_state()
    for held, reference in (
        (EMPTY, Reference(image)),
        (image, Reference(None)),
        (flipped(image, "t", 0), Reference(World().image)),  # of another offset: it lags
    ):
        check = StateCheck(lambda held=held: held, reference.ask)  # type: ignore[misc]
        await check.check()
        assert (check.differs, check.compared) == (None, None)
    assert [*check.reasons()] == []
