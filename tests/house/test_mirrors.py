"""Edge: every production module has its tests where its path says, or says where they are."""

from tests.house.mirrors import LIST, ROOT, home_of, modules, unmirrored


def test_a_module_has_tests_or_names_them() -> None:
    """A new one is not for the list: give it a file of tests, or name what tests it."""
    listed = LIST.read_text(encoding="utf-8").splitlines()
    assert [module for module in unmirrored() if module not in listed] == []


def test_the_list_of_those_that_do_neither_becomes_shorter() -> None:
    """What has tests by now, or is gone, is taken off: `python -m tests.house.mirrors` does it."""
    assert LIST.read_text(encoding="utf-8").splitlines() == unmirrored()


def test_what_is_named_is_there() -> None:
    named = {module: home_of(module) for module in modules()}
    assert [
        module for module, tests in named.items() if tests is not None and not (ROOT / tests).exists()
    ] == []
