"""Edge: every story has its file, its rows, and a test for each of them."""

import importlib

import pytest

from ops.stories.registry import STORIES
from ops.stories.stage import Stage
from tests import learn_page
from tests.rows.scan import carried


def test_every_story_can_be_told() -> None:
    for name, story in STORIES.items():
        run = importlib.import_module(f"ops.stories.{story.module}").run
        assert run.__annotations__["stage"] is Stage, name
        assert story.about.endswith(".") and 3 <= story.brokers <= 4


@pytest.mark.slow
def test_every_row_of_a_story_has_a_test_among_the_stories() -> None:
    rows = [row for story in STORIES.values() for row in story.rows]
    tests = carried()
    assert [row for row in rows if not any("kafka/stories/" in each for each in tests.get(row, ()))] == []


def test_the_page_of_stories_is_that_of_the_registry() -> None:
    """`python -m tests.learn_page` writes it."""
    assert learn_page.PAGE.read_text(encoding="utf-8") == learn_page.page()
