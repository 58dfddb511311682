"""Edge: every production module has its tests where its path says, or says where they are."""

import pytest

from tests.house.mirrors import ROOT, home_of, modules, use


def test_a_module_has_tests_or_names_them() -> None:
    """A new one gets a file of tests, or names what tests it."""
    assert [module.path for module in modules() if home_of(module) is None] == []


@pytest.mark.slow
def test_the_home_of_a_module_use_it() -> None:
    found = {module: tests for module in modules() if (tests := home_of(module)) is not None}
    assert [tests for tests in found.values() if not (ROOT / tests).exists()] == []
    assert [(module.path, tests) for module, tests in found.items() if not use(tests, module)] == []


def test_other_tests_do_not() -> None:
    """Goal: the check tells tests from others. Method: the modules that one file of tests reaches are few."""
    reached = {module.path for module in modules() if use("tests/unit/metadata_log/test_orders.py", module)}
    assert "metadata_log/orders.py" in reached and "quorum/raft/guard.py" not in reached and len(reached) < 60
