"""Edge: what describing the quorum costs the event loop: while more is applied, and when many clients ask at once."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from aiohttp.test_utils import make_mocked_request

from metadata_log.digest import digest
from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import MetadataImage, StateDigest, _Uncounted, buckets_of
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, ConfigRecord
from quorum.http.quorum import show_quorum
from tests.support.desk import at_desk
from tests.support.histories import step_of


def _one_later(image: MetadataImage) -> MetadataImage:
    record = ConfigRecord(BROKER, CLUSTER_DEFAULT, "setting", str(image.end_offset))
    return step_of(image, [record], appended_at_ms=image.last_time_ms).image


async def test_what_is_applied_meanwhile_is_not_counted_at_once(tmp_path: Path) -> None:
    """Between two slices another batch is applied, as on a node that replays its log after a start."""
    shipped = StateDigest.count_some
    async with at_desk(tmp_path) as (desk, ask):
        asked = desk.controller.committed

        def counts_while_more_is_applied(state_digest: StateDigest, image: MetadataImage) -> object:
            slices_left = shipped(state_digest, image)
            desk.controller.committed = _one_later(desk.controller.committed)
            return slices_left

        with patch.object(StateDigest, "count_some", counts_while_more_is_applied):
            status, told = await ask("GET", "/v1/quorum")
        newest = desk.controller.committed
        assert (status, told["high_watermark"]) == (200, newest.end_offset)
        assert newest.end_offset > asked.end_offset
        assert told["digest"] == {"end_offset": asked.end_offset, "value": digest(asked)}
        assert asked.digest_buckets == buckets_of(asked)
        assert isinstance(newest.state_digest.state, _Uncounted)


async def test_clients_that_ask_at_once_are_answered_in_a_turn_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: 64 clients that look for a leader hold the loop no longer than one. Method: count the turns."""
    async with at_desk(tmp_path) as (desk, _ask):
        turn, answered_in = 0, list[int]()
        describe = desk.status.quorum

        async def count_turns() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        def quorum(counted: MetadataImage) -> dict[str, Any]:
            answered_in.append(turn)
            return describe(counted)

        monkeypatch.setattr(desk.status, "quorum", quorum)
        counting = asyncio.create_task(count_turns())
        requests = [make_mocked_request("GET", "/v1/quorum") for _ in range(8)]
        answers = await asyncio.gather(*(show_quorum(desk.door, request) for request in requests))
        counting.cancel()
        assert [answer.status for answer in answers] == [200] * 8
        assert len(set(answered_in)) == 8


@pytest.mark.parametrize(
    ("leader", "committed_ms_ago", "level_ms_ago", "wanted"),
    [
        (1, 900, 900, 0),
        (1, 42_000, 42_000, 42_000),
        (None, 900, 900, 900),
        (None, None, None, None),
        (1, 228, 40_000, 40_000),
        (1, 228, None, None),
    ],
)
async def test_a_node_knows_its_log_up_to_now_or_up_to_its_last_commit(
    leader: int | None,
    committed_ms_ago: int | None,
    level_ms_ago: int | None,
    wanted: int | None,
    tmp_path: Path,
) -> None:
    """Goal: what is open in the log is open up to when somebody saw it. A leader commits an entry every second, and a
    follower that was away for 40 s applies one of then 228 ms ago.
    """
    async with at_desk(tmp_path) as (desk, ask):
        raft = replace(
            desk.status.raft(),
            leader_id=None if leader is None else NodeId(leader),
            committed_ms_ago=committed_ms_ago,
            level_ms_ago=level_ms_ago,
        )
        with patch.object(desk.status, "raft", lambda: raft):
            _, told = await ask("GET", "/v1/quorum")
        now_ms = desk.controller.time_of_day_ms()
        assert told["observed_until_ms"] == (None if wanted is None else now_ms - wanted)
