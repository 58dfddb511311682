"""Edge: a node's comparison of its state: what is asked, and that nothing is said where nothing can be compared."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from metadata_log import limits
from metadata_log.digest import digest, digest_of_buckets
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.recount import bucket_of, lines_of_bucket
from snapshots.state_check import StateCheck, asking
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


async def test_a_difference_stays_while_its_lines_cannot_be_asked_for() -> None:
    image = a_state()
    reference, is_silent = Reference(image), False

    async def ask(path: str) -> object:
        return None if is_silent and "bucket=" in path else await reference.ask(path)

    check = StateCheck(lambda: flipped(image, "t", 0), ask)
    await check.check()
    found, is_silent = check.differs, True
    await check.check()
    assert found is not None
    assert check.differs == found


async def test_a_difference_is_logged_once_though_the_log_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    image = a_state()
    reference = Reference(image)
    held = [flipped(image, "t", 0)]
    check = StateCheck(lambda: held[0], reference.ask)
    for more in range(3):
        reference.image = replace(image, end_offset=image.end_offset + more)
        held[0] = replace(flipped(image, "t", 0), end_offset=image.end_offset + more)
        await check.check()
        assert check.differs is not None
        assert check.differs.end_offset == image.end_offset + more
    assert caplog.messages.count("state_differs") == 1


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


OF_ANOTHER_FORM: Mapping[str, Callable[[dict[str, Any]], object]] = {
    "a list": lambda answer: [answer],
    "a number": lambda _: 7,
    "a text": lambda _: "end_offset",
    "an empty map": lambda _: {},
    "no digest": lambda answer: {key: answer[key] for key in ("end_offset", "buckets") if key in answer},
    "no buckets": lambda answer: {key: answer[key] for key in ("end_offset", "digest") if key in answer},
    "one bucket": lambda answer: {**answer, "buckets": answer.get("buckets", [])[:1], "lines": [7]},
    "buckets of two numbers": lambda answer: {**answer, "buckets": [[1, 2]] * 256, "lines": [None]},
    "buckets of text": lambda answer: {**answer, "buckets": [["1", "2", "3"]] * 256, "lines": "lines"},
    "numbers for buckets": lambda answer: {**answer, "buckets": list(range(256)), "lines": {}},
    "a digest of other buckets": lambda answer: {**answer, "digest": "0" * 64, "lines": ["of no bucket"] * 2},
    "another offset": lambda answer: {**answer, "end_offset": answer["end_offset"] + 1},
}


@pytest.mark.parametrize("of_buckets", [True, False])
@pytest.mark.parametrize("form", OF_ANOTHER_FORM)
async def test_an_answer_of_another_form_is_none(form: str, *, of_buckets: bool) -> None:
    image = a_state()
    reference = Reference(image)

    async def ask(path: str) -> object:
        answer = await reference.ask(path)
        assert isinstance(answer, dict)
        return OF_ANOTHER_FORM[form](answer) if ("bucket=" in path) is not of_buckets else answer

    check = StateCheck(lambda: flipped(image, "t", 0), ask)
    await check.check()
    assert (check.differs, check.compared) == (None, None if of_buckets else image.end_offset)


async def test_a_line_of_another_form_is_named_as_it_is() -> None:
    image = a_state()
    for line in ("p|zz|0|1", "c", "s", "", "p|00", "a"):
        reference = Reference(image)

        async def ask(path: str, *, reference: Reference = reference, line: str = line) -> object:
            answer: Any = await reference.ask(path)
            if "bucket=" in path:
                return {**answer, "lines": [line] if f"bucket={bucket_of(line)}&" in path else []}
            buckets = [
                [1, 2, 3] if bucket == bucket_of(line) else each
                for bucket, each in enumerate(answer["buckets"])
            ]
            whole = tuple((count, x1, x2) for count, x1, x2 in buckets)
            return {**answer, "digest": digest_of_buckets(whole), "buckets": buckets}

        check = StateCheck(lambda: image, ask)
        await check.check()
        assert check.differs is not None
        assert check.differs.there in (line, None)


async def test_a_body_that_is_no_json_of_ours_is_no_answer_and_the_next_controller_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "STATE_CHECK_ANSWER_BYTES_MAX", 300_000)
    bodies = [
        b"[" * 200_000,
        b"[" * 100 + b"]" * 100,
        b"",
        b"{",
        b"\xff\xff\xff",
        b'"\\ud800"',
        b"[" + b" " * 300_000 + b"]",
        b"9" * 5_000,
    ]

    async def answer(request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        return web.Response(
            body=bodies[number] if number < len(bodies) else json.dumps({"sound": True}).encode()
        )

    app = web.Application()
    app.router.add_get("/{number}/v1/digest", answer)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        for number in range(len(bodies)):
            first, last = (str(server.make_url(f"/{each}")) for each in (number, len(bodies)))
            assert await asking(lambda: session, lambda first=first: [first])("/v1/digest") is None  # type: ignore[misc]
            both = asking(lambda: session, lambda urls=(first, last): urls)  # type: ignore[misc]
            assert await both("/v1/digest") == {"sound": True}
