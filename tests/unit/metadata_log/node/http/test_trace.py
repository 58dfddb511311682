"""W3C's trace context: what is one, what is ignored, and that a node answers it back."""

from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from metadata_log.node.http.trace import note_trace, trace_headers, trace_id_of
from metadata_log.node.traceparent import is_traceparent
from tests.support.desk import at_desk

SOUND = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (SOUND, True),
        (SOUND.replace("-01", "-00"), True),
        ("cc" + SOUND[2:], True),
        ("cc" + SOUND[2:] + "-what-comes-later", True),
        (SOUND + "-more", False),
        ("ff" + SOUND[2:], False),
        (SOUND.upper(), False),
        (SOUND[:-1], False),
        (SOUND + "0", False),
        ("00-" + "0" * 32 + SOUND[35:], False),
        (SOUND[:36] + "0" * 16 + "-01", False),
        ("", False),
        (SOUND + "\n", False),
        ("cc" + SOUND[2:] + "-\x01", False),
        ("cc" + SOUND[2:] + "-" + "x" * 300, False),
        (SOUND.replace("4", "\u0664"), False),
    ],
)
def test_what_is_a_trace_context(text: str, is_one: bool) -> None:
    assert is_traceparent(text) == is_one


async def test_a_trace_context_is_answered_back_and_garbage_is_counted(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, _ask):
        assert desk.client is not None
        for path in ("/healthz", "/v1/topics", "/v1/nothing"):
            async with desk.client.get(path, headers={"traceparent": SOUND}) as answer:
                assert answer.headers["traceparent"] == SOUND, path
        for garbage in ("", "x" * 8_000, SOUND.upper()):
            async with desk.client.get("/healthz", headers={"traceparent": garbage}) as answer:
                assert (answer.status, "traceparent" in answer.headers) == (200, False)
        assert desk.access.traces_ignored == 3
        twice = [("traceparent", SOUND), ("traceparent", SOUND)]
        async with desk.client.get("/healthz", headers=twice) as answer:
            assert (answer.status, "traceparent" in answer.headers) == (200, False)
        assert desk.access.traces_ignored == 4


@pytest.mark.parametrize(("given", "trace_id"), [(SOUND, SOUND[3:35]), (SOUND.upper(), None), (None, None)])
def test_a_request_has_the_trace_id_of_a_sound_context_alone(given: str | None, trace_id: str | None) -> None:
    request = make_mocked_request("GET", "/", headers={} if given is None else {"traceparent": given})
    assert note_trace(request) == (given is not None and trace_id is None)
    assert trace_id_of(request) == trace_id
    assert trace_headers(request) == ({} if trace_id is None else {"traceparent": given})
