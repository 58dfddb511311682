"""Edge: `learn` lists its stories, refuses others, and shows what a story told and saw."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ops import cli
from ops.stories import telling
from ops.stories.registry import STORIES
from ops.stories.stage import StoryFailed


def told_alone(name: str, say: Callable[[str], None]) -> dict[str, Any]:
    say(f"{name} is told")
    return {"ends": {11: 10, 13: 7}, "read": b"", "pair": ("NONE", 1)}


def test_without_a_name_the_stories_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["learn"]) == cli.OK
    shown = capsys.readouterr().out
    assert all(name in shown and story.about[:40] in shown for name, story in STORIES.items())
    assert cli.main(["learn", "-o", "json"]) == cli.OK
    rows = json.loads(capsys.readouterr().out)
    assert [row["story"] for row in rows] == list(STORIES)


def test_another_name_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["learn", "watermark"]) == 2
    assert "there is no story 'watermark': high-watermark" in capsys.readouterr().err


def test_a_story_is_told_as_it_happens_or_shown_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(telling, "tell_alone", told_alone)
    assert cli.main(["learn", "isr"]) == cli.OK
    assert capsys.readouterr().out == "isr is told\n"
    assert cli.main(["learn", "isr", "-o", "json"]) == cli.OK
    assert json.loads(capsys.readouterr().out) == {
        "story": "isr",
        "facts": {"ends": {"11": 10, "13": 7}, "read": "", "pair": ["NONE", 1]},
        "told": ["isr is told"],
    }


def test_without_the_packages_of_kafkas_clients_it_says_what_installs_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "ops.stories.telling")
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert cli.main(["learn", "isr"]) == 2
    assert "`./ops/up --kafka`" in capsys.readouterr().err


def test_a_story_that_does_not_happen_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(name: str, say: Callable[[str], None]) -> dict[str, Any]:
        raise StoryFailed("high watermark: expected 7, and saw 10")

    monkeypatch.setattr(telling, "tell_alone", fails)
    assert cli.main(["learn", "isr"]) == cli.FAULT
    assert "StoryFailed: high watermark: expected 7, and saw 10" in capsys.readouterr().err
