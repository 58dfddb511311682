"""Edge: a broker of Kafka 4.1 and one of 4.3 share a topic at the level of 4.1, and are upgraded with it, under load."""

import asyncio
from pathlib import Path

import pytest

from tests.kafka.upgrading import OLD_LEVEL, upgrade

pytestmark = pytest.mark.slow


def test_brokers_of_two_releases_serve_together_and_are_upgraded_without_a_loss(tmp_path: Path) -> None:
    """B80, B81: the level waits for the last old broker; afterwards no way leads back, as in Kafka 4.3.1."""
    found = asyncio.run(upgrade(tmp_path / "c", controllers=1, brokers=2))
    assert found.holds, found.text()
    assert f"broker 11 supports 7 to {OLD_LEVEL}" in found.refusals[0]
    assert "cordoned log directories (30)" in found.refusals[1]
