"""Edge: tells a story: on a stage that is given, or on a cluster of its own in a directory that goes with it.

Tests: tests/unit/ops/stories/test_telling.py.
"""

import asyncio
import importlib
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from metadata_log.errors import MetadataError
from ops.local.cluster import LocalCluster
from ops.stories.cluster import story_cluster
from ops.stories.registry import STORIES
from ops.stories.stage import Facts, Stage, StoryFailed, WindowMissed
from ops.toolchain.jars import kafka_jars

FOLDER: Final = "metaquorum-learn-"
"""How the directory of a story begins, below that for temporary files."""
CLUSTER: Final = "cluster"
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
        except (OSError, KafkaException) as error:
            raise StoryFailed(f"a broker did not answer as it should: {error}") from error
        else:
            stage.tell(f"\n{name}: all {stage.seen} observations are as told")
            return facts
    raise AssertionError("the last attempt returns or raises")


def stop_forgotten(temporary: Path, say: Callable[[str], None]) -> None:
    """Stop the nodes of stories that were killed before they could, and remove their directories."""
    for folder in sorted(temporary.glob(f"{FOLDER}*/{CLUSTER}")):
        cluster = LocalCluster(folder)
        try:
            cluster.prepare()
        except MetadataError:
            continue  # a story that runs, or another user's
        say(f"stopping what a story left in {folder} when it was killed")
        cluster.kill_all()
        asyncio.run(cluster.stop())
        shutil.rmtree(folder.parent, ignore_errors=True)


def tell_alone(name: str, say: Callable[[str], None]) -> Facts:
    """Start a small cluster in a temporary directory, tell a story on it, and stop it.

    Raises:
        StoryFailed: as `tell`.
        ToolMissing: Kafka or Java is not here, and cannot be taken.
        NodeFailed: a node ended instead of starting.
        NotReady: the cluster was not ready in time.
    """
    story = STORIES[name]
    kafka_jars()  # before any node is started: it may take a minute, once
    stop_forgotten(Path(tempfile.gettempdir()), say)
    with tempfile.TemporaryDirectory(prefix=FOLDER) as scratch:
        say(f"starting three controllers and {story.brokers} brokers of Kafka below {scratch} ...")
        with story_cluster(Path(scratch, CLUSTER), brokers=story.brokers, tell=say) as stage:
            return tell(name, stage)
