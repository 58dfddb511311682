"""Edge: tells a story: on a stage that is given, or on a cluster of its own in a directory that goes with it.

Tests: tests/kafka/stories.
"""

import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ops.stories.cluster import story_cluster
from ops.stories.registry import STORIES
from ops.stories.stage import Facts, Stage, WindowMissed

ATTEMPTS: Final = 3
"""A follower may be held for replica.lag.time.max.ms; on a machine that is too slow for that, a story is told again."""


def tell(name: str, stage: Stage) -> Facts:
    """Tell a story on a running cluster, and return what was seen.

    Raises:
        StoryFailed: what it tells did not happen.
    """
    story = STORIES[name]
    run = importlib.import_module(f"ops.stories.{story.module}").run
    stage.tell(f"{name}: {story.about}")
    for attempt in range(1, ATTEMPTS + 1):
        stage.begin()
        try:
            facts: Facts = run(stage)
        except WindowMissed as missed:
            if attempt == ATTEMPTS:
                raise
            stage.tell(f"\n{missed.message}; once more from the beginning")
            stage.heal()
        else:
            return facts
    raise AssertionError("the last attempt returns or raises")


def tell_alone(name: str, say: Callable[[str], None]) -> Facts:
    """Start a small cluster in a temporary directory, tell a story on it, and stop it.

    Raises:
        StoryFailed: as `tell`.
        NodeFailed: a node ended instead of starting.
        NotReady: the cluster was not ready in time.
    """
    story = STORIES[name]
    with tempfile.TemporaryDirectory(prefix="metaquorum-learn-") as scratch:
        say(f"starting three controllers and {story.brokers} brokers of Kafka below {scratch} ...")
        with story_cluster(Path(scratch, "cluster"), brokers=story.brokers, tell=say) as stage:
            return tell(name, stage)
