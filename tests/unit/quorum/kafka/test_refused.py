"""Edge: what is served by no controller here is refused in the form of its answer."""

from pathlib import Path

import pytest

from quorum.kafka.apis import APIS
from quorum.kafka.refused import _ASKING, CONTROLLERS_ONLY
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk


def test_a_controller_of_kafka_is_refused_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ASKING, "_addresses", set())

    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            assert (await client.ask(52, 2, None, -1, ()))[0] == 35
            assert (await client.ask(53, 1, None, -1, (), ()))[0] == 35
            assert (await client.ask(54, 1, None, (), ()))[0] == 35
            assert (await client.ask(70, 0, 1, bytes(16), False, (), ()))[1] == 35
            assert (await client.ask(82, 0, None, 1, 1, bytes(16), (), (0, 1)))[1] == 35

    at_kafka_desk(tmp_path, story)
    assert caplog.messages.count("kafka_controller_asked") == 1


def test_every_key_has_a_row_and_those_of_controllers_are_not_advertised() -> None:
    assert {key for key, api in APIS.items() if not api.is_advertised} == set(CONTROLLERS_ONLY)
