"""Edge: a story is told again where the machine was too slow for it, and what a killed one left is stopped by the next."""

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ops.local.cluster import LocalCluster
from ops.stories import telling
from ops.stories.registry import STORIES, Story
from ops.stories.stage import Stage, StoryFailed, WindowMissed
from tests.support.processes import poll_until


class Attempts:
    """A story's file, whose first attempts end as `ends` says; and the stage that it is told on."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends = list(ends)
        self.said: list[str] = []
        self.healed = 0
        self.seen = 2

    def run(self, stage: Stage) -> dict[str, Any]:
        if (end := self.ends.pop(0)) is not None:
            raise end
        return {"attempts_left": len(self.ends)}

    def tell(self, line: str) -> None:
        self.said.append(line)

    def begin(self) -> None:
        pass

    def heal(self) -> None:
        self.healed += 1


def tell(monkeypatch: pytest.MonkeyPatch, attempts: Attempts) -> dict[str, Any]:
    monkeypatch.setitem(sys.modules, "ops.stories.attempts", cast("Any", SimpleNamespace(run=attempts.run)))
    monkeypatch.setitem(cast("Any", STORIES), "attempts", Story("A story.", "attempts", ()))
    return telling.tell("attempts", cast("Stage", attempts))


def test_a_window_that_was_missed_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = Attempts(WindowMissed("too slow"), None)
    assert tell(monkeypatch, attempts) == {"attempts_left": 0}
    assert attempts.healed == 1
    assert "\ntoo slow; once more from the beginning" in attempts.said
    assert attempts.said[-1] == "\nattempts: all 2 observations are as told"


def test_it_is_one_after_three_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WindowMissed, match="third"):
        tell(monkeypatch, Attempts(*(WindowMissed(word) for word in ("first", "second", "third"))))


def test_what_did_not_happen_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = Attempts(StoryFailed("expected 7, and saw 10"), None)
    with pytest.raises(StoryFailed, match="expected 7"):
        tell(monkeypatch, attempts)
    assert attempts.ends == [None]


def test_a_broker_that_does_not_answer_ends_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoryFailed, match=r"did not answer as it should: .*refused"):
        tell(monkeypatch, Attempts(ConnectionRefusedError("refused")))


@pytest.mark.slow
def test_what_a_killed_story_left_is_stopped(tmp_path: Path) -> None:
    """Method: a controller runs below a folder whose starter is gone; another folder belongs to a story that runs."""
    forgotten = LocalCluster(tmp_path / f"{telling.FOLDER}a" / telling.CLUSTER, controllers=1, brokers=0)
    forgotten.prepare()
    asyncio.run(forgotten.start_one(1))
    asyncio.run(forgotten.wait_until_ready())
    forgotten._release()
    running = LocalCluster(tmp_path / f"{telling.FOLDER}b" / telling.CLUSTER, controllers=1, brokers=0)
    running.prepare()
    try:
        said: list[str] = []
        telling.stop_forgotten(tmp_path, said.append)
        # Its lock is released shortly before it has ended.
        poll_until(lambda: forgotten.exit_code(1) is not None, deadline_s=60, what="the controller ends")
        assert [folder.name for folder in tmp_path.iterdir()] == [f"{telling.FOLDER}b"]
        assert len(said) == 1 and str(forgotten.directory) in said[0]
    finally:
        forgotten.kill_all()
        asyncio.run(running.stop())
