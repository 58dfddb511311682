"""Edge: what is served by no controller here is refused in the form of its answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metadata_log.kafka.messages import REQUESTS
from quorum.kafka.apis import APIS
from quorum.kafka.refused import CONTROLLERS_ONLY
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk

ACL = (2, "a", 3, "User:a", "*", 3, 3)
FILTER = (2, None, 3, None, None, 3, 3)


@pytest.mark.parametrize(
    ("key", "values", "answered"),
    [
        (29, FILTER, lambda answer: answer[1]),
        (30, ([ACL, ACL],), lambda answer: [row[0] for row in answer[1]]),
        (31, ([FILTER],), lambda answer: [row[0] for row in answer[1]]),
        (38, (None, None, (), 1), lambda answer: answer[0]),
        (39, (b"", 1), lambda answer: answer[0]),
        (40, (b"", 1), lambda answer: answer[0]),
        (41, (None,), lambda answer: answer[0]),
    ],
)
def test_what_is_not_here_is_refused_as_kafka_without_it_refuses_it(
    tmp_path: Path, key: int, values: tuple[Any, ...], answered: Any
) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            answer = await client.ask(key, REQUESTS[key].versions.last, *values)
        expected: dict[int, Any] = {29: 54, 30: [54, 54], 31: [54], 38: 61, 39: 61, 40: 61, 41: 61}
        assert answered(answer) == expected[key]

    at_kafka_desk(tmp_path, story)


def test_a_controller_of_kafka_is_refused_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            assert (await client.ask(52, 2, None, -1, ()))[0] == 35
            assert (await client.ask(53, 1, None, -1, (), ()))[0] == 35
            assert (await client.ask(54, 1, None, (), ()))[0] == 35
            assert (await client.ask(70, 0, 1, bytes(16), False, (), ()))[1] == 35
            assert (await client.ask(82, 0, None, 1, 1, bytes(16), (), (0, 1)))[1] == 35

    at_kafka_desk(tmp_path, story)
    assert caplog.messages.count("kafka_controller_asked") <= 1


def test_every_key_has_a_row_and_those_of_controllers_are_not_advertised() -> None:
    assert {key for key, api in APIS.items() if not api.is_advertised} == set(CONTROLLERS_ONLY)


@pytest.mark.parametrize("key", [30, 31])
def test_many_refusals_are_made_and_encoded_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: int
) -> None:
    items: dict[int, tuple[Any, ...]] = {
        30: ([ACL] * 5_000,),
        31: ([FILTER] * 5_000,),
    }

    async def story(desk: KafkaDesk) -> None:
        works: list[Callable[..., Any]] = []
        run = desk.door.reads.run

        async def counted(work: Callable[..., Any], *args: object) -> Any:
            works.append(work)
            return await run(work, *args)

        monkeypatch.setattr(desk.door.reads, "run", counted)
        async with desk.client() as client:
            answer = await client.ask(key, REQUESTS[key].versions.last, *items[key])
        assert len(answer[1]) == 5_000
        assert len(works) == 2 and works[1] == APIS[key].tail

    at_kafka_desk(tmp_path, story)
