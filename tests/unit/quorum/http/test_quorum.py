"""Edge: what `/v1/quorum` counts of the state digest while more is applied."""

from pathlib import Path
from unittest.mock import patch

from metadata_log.digest import digest
from metadata_log.image.metadata_image import MetadataImage, StateDigest, _Uncounted, buckets_of
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, ConfigRecord
from tests.support.histories import step_of
from tests.unit.quorum.test_voters import Ask, Desk, at_desk


def _one_later(image: MetadataImage) -> MetadataImage:
    record = ConfigRecord(BROKER, CLUSTER_DEFAULT, "setting", str(image.end_offset))
    return step_of(image, [record], appended_at_ms=image.last_time_ms).image


def test_what_is_applied_meanwhile_is_not_counted_at_once(tmp_path: Path) -> None:
    """Between two slices another batch is applied, as on a node that replays its log after a start."""
    shipped = StateDigest.count_some

    async def story(desk: Desk, ask: Ask) -> None:
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

    at_desk(tmp_path, story)
