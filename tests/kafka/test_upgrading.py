"""Edge: brokers of Kafka 4.0, 4.1, 4.2 and 4.3 share a topic at the level of 4.0, and are upgraded with it, under load."""

import asyncio
from pathlib import Path

import pytest

from tests.kafka.upgrading import upgrade

pytestmark = pytest.mark.slow


def test_brokers_of_four_releases_serve_together_and_are_upgraded_without_a_loss(tmp_path: Path) -> None:
    """B80, B81: the level waits for the last broker that lacks it; afterwards no way leads back, as in Kafka 4.3.1."""
    found = asyncio.run(upgrade(tmp_path / "c", controllers=1))
    assert found.holds, found.text()
    for broker_id, level in ((11, 25), (12, 27), (13, 29)):
        assert f"broker {broker_id} supports 7 to {level}" in found.refusals[0]
    assert "cordoned log directories (30)" in found.refusals[1]
