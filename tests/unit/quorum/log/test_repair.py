"""Edge: which frames a controller fetches from the others when a file of its log is damaged."""

import aiohttp
import pytest

from quorum.log.repair import fetch_frames


@pytest.mark.parametrize("url", ["http://a..b:80", "http://a\\b:80", "http://127.0.0.1:1"])
async def test_a_controller_that_cannot_be_reached_has_no_frames(url: str) -> None:
    """Even where its address cannot be looked up."""
    async with aiohttp.ClientSession() as session:
        assert await fetch_frames(session, url, 0, 10) is None
