"""A change that is tried out: the records it would write are shown, and none is written."""

from pathlib import Path

from metadata_log.image.metadata_image import EMPTY
from metadata_log.records.configs import ConfigRecord
from quorum.decide.decision import Decision
from quorum.views.trial import RECORDS_SHOWN_MAX, records_shown
from tests.unit.quorum.http.test_administration import over_http

T = {"topic": "t", "partition": 0}


async def test_each_change_that_is_tried_out_says_what_it_would_write_and_writes_nothing(
    tmp_path: Path,
) -> None:
    """Goal: what is shown is what is written. Method: each change is tried out, and then carried out."""
    async with over_http(tmp_path, undelete_window_ms=60_000) as (controller, ask):
        created = {"topics": [{"name": "t", "assignment": [[11, 12]]}, {"name": "u", "assignment": [[11]]}]}
        assert (await ask("POST", "/v1/topics", created))[0] == 200
        changes = (
            ("POST", "/v1/partitions/reassign", {"partitions": [{**T, "replicas": [12, 11]}]}),
            ("POST", "/v1/partitions/elect", {"election": "preferred", "partitions": [T]}),
            ("POST", "/v1/topics/delete", {"topics": [{"name": "u"}]}),
            ("POST", "/v1/topics/undelete", {"topics": [{"name": "u"}]}),
            ("DELETE", "/v1/topics/u", None),
            ("DELETE", "/v1/brokers/12", None),
        )
        for method, path, body in changes:
            before = controller.committed.end_offset
            status, tried = await ask(method, f"{path}?validate_only=true", body)
            assert (status, controller.committed.end_offset) == (200, before), path
            status, done = await ask(method, path, body)
            assert (status, done["offsets"]["base"]) == (200, before), path
            assert done["offsets"]["end"] - before == tried["foreseen"]["count"] > 0, path
            assert len(tried["foreseen"]["records"]) == tried["foreseen"]["count"], path
            assert {**tried, "foreseen": 0, "offsets": 0} == {**done, "foreseen": 0, "offsets": 0}, path
        status, refused = await ask(
            "POST", "/v1/partitions/elect?validate_only=true", {"election": "unclean"}
        )
        assert status == 400 and "partitions" in refused["message"]


def test_what_is_shown_is_bounded_and_hides_secrets() -> None:
    secret = ConfigRecord(resource_type=4, resource_name="11", name="ssl.key.password", value="hush")
    shown = records_shown(Decision(records=[secret] * (RECORDS_SHOWN_MAX + 1), more=True), EMPTY)
    assert (shown["count"], len(shown["records"]), shown["more"]) == (
        RECORDS_SHOWN_MAX + 1,
        RECORDS_SHOWN_MAX,
        True,
    )
    assert "hush" not in str(shown)
