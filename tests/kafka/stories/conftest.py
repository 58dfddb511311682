"""Edge: one cluster of four brokers for all stories; each story is told once, whoever asks what it saw."""

from collections.abc import Callable, Iterator

import pytest

from ops.stories.cluster import story_cluster
from ops.stories.stage import Facts, Stage
from ops.stories.telling import tell


@pytest.fixture(scope="package")
def told() -> list[str]:
    """What all stories told."""
    return []


@pytest.fixture(scope="package")
def stage(tmp_path_factory: pytest.TempPathFactory, told: list[str]) -> Iterator[Stage]:
    with story_cluster(tmp_path_factory.mktemp("stories") / "c", brokers=4, tell=told.append) as running:
        yield running


@pytest.fixture(scope="package")
def story(stage: Stage) -> Callable[[str], Facts]:
    """Return a function that tells a story once, and returns what it saw, also to those who ask later."""
    seen: dict[str, Facts] = {}

    def once(name: str) -> Facts:
        if name not in seen:
            stage.heal()
            seen[name] = tell(name, stage)
        return seen[name]

    return once
