"""A controller that stops does not wait for a snapshot that takes its time."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from metadata_log.errors import DiskFailed, ThrottlingQuotaExceeded
from metadata_log.image.metadata_image import MetadataImage
from quorum import snapshot_keeper
from tests.unit.quorum.test_controller import Lab, run
from tests.unit.quorum.test_voters import Desk


def test_who_stops_rests_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[Callable[[float], object]] = []

    def written(_image: MetadataImage, _directory: Path, *, rest: Callable[[float], object]) -> Path:
        rests.append(rest)
        raise DiskFailed("full")

    async def story(lab: Lab) -> None:
        desk = Desk(lab, tmp_path)
        lab.lead(1)
        running = asyncio.create_task(desk.keeper.run())
        await asyncio.sleep(0)
        with pytest.raises(ThrottlingQuotaExceeded, match="full"):
            await desk.keeper.take()
        began = time.monotonic()
        assert not rests[0](0.01)
        assert time.monotonic() - began >= 0.01
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert rests[0](60.0)

    monkeypatch.setattr(snapshot_keeper, "write_snapshot", written)
    run(story)
