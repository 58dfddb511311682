"""The trees of all source files are shared by these tests, and freed before the tests of other folders."""

from pathlib import Path

import pytest

from tests.house.rules import forget_trees


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.path.parent != Path(__file__).parent:
        forget_trees()
