"""Edge: snapshots over HTTP: taken, listed, and read by ranges."""

from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from metadata_log.errors import PositionOutOfRange
from quorum.http.snapshots import _range
from tests.support.desk import at_desk

SIZE = 100


async def test_a_snapshot_that_was_taken_is_listed(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        assert (await ask("GET", "/v1/snapshots"))[1]["items"] == []
        status, taken = await ask("POST", "/v1/snapshots")
        assert (status, taken["end_offset"]) == (201, desk.controller.committed.end_offset)
        assert (await ask("GET", "/v1/snapshots"))[1]["items"] == [taken]
        assert desk.store.path(taken["id"]).stat().st_size == taken["bytes"]


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({}, (0, SIZE)),
        ({"Range": "bytes=10-"}, (10, SIZE)),
        ({"Range": "bytes=10-19"}, (10, 20)),
        ({"Range": "bytes=90-1000"}, (90, SIZE)),
        ({"Range": "bytes=-10"}, (90, SIZE)),
        ({"Range": "bytes=-1000"}, (0, SIZE)),
        ({"Range": "bytes=10-", "If-Range": '"this"'}, (10, SIZE)),
        ({"Range": "bytes=10-", "If-Range": '"another"'}, (0, SIZE)),
    ],
)
def test_a_range_is_what_its_header_says(headers: dict[str, str], wanted: tuple[int, int]) -> None:
    assert _range(make_mocked_request("GET", "/", headers=headers), SIZE, '"this"') == wanted


@pytest.mark.parametrize("text", ["bytes=100-", "bytes=-0", "bytes=x", "bytes=20-10"])
def test_a_range_without_bytes_is_refused(text: str) -> None:
    with pytest.raises(PositionOutOfRange):
        _range(make_mocked_request("GET", "/", headers={"Range": text}), SIZE, '"this"')
