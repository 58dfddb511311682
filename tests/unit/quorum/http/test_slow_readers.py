"""Edge: what an answer holds while its client reads."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from metadata_log.errors import OffsetCompacted
from metadata_log.image.metadata_image import MetadataImage
from tests.support.desk import at_desk
from tests.support.lab import setting, uuid


@pytest.fixture
def walks_of_its_own_objects() -> Iterator[None]:
    """Let the collector, and code that lists its objects, see only those that the test makes."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.usefixtures("walks_of_its_own_objects")
@pytest.mark.parametrize("path", ["/v1/log?from=0", "/v1/state?at=0", "/v1/state?"])
async def test_a_slow_reader_holds_no_results_that_are_evicted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Forty readers that left at once freed 200,000 results in one turn of the loop: 0.3 s, and an election."""
    reached, may_go_on = asyncio.Event(), asyncio.Event()

    async def slowly(*_: object, **__: object) -> Any:
        reached.set()
        await may_go_on.wait()
        raise OffsetCompacted("enough")

    @asynccontextmanager
    async def past(_at: int) -> AsyncIterator[Any]:
        yield await slowly()

    async with at_desk(tmp_path) as (desk, ask):
        controller = desk.lab.controllers[1]
        await desk.lab.write(controller, setting("1"), uuid(7))
        end_offset = controller.committed.end_offset

        def held() -> list[object]:
            gc.collect()
            return [
                each
                for each in gc.get_objects()
                if isinstance(each, MetadataImage) and each.end_offset == end_offset and each.results.by_id
            ]

        assert held()
        monkeypatch.setattr(desk.door.committed_log, "read_in_thread", slowly)
        monkeypatch.setattr(desk.door.past, "state_at", past)
        monkeypatch.setattr(desk.door.reads, "run", slowly)
        asking = asyncio.ensure_future(ask("GET", f"{path}&consistency=stale"))
        await reached.wait()
        await desk.lab.write(controller, setting("2"))
        for each in desk.lab.controllers.values():
            assert each.committed.digest_buckets  # what was not counted is kept
        assert not held()
        may_go_on.set()
        assert (await asking)[0] == 410
