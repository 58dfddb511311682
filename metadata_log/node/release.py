"""Edge: which release of metaquorum runs here. Tests: tests/unit/ops/verbs/test_version.py."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def release() -> str:
    """Return the version of the installed package; "unknown" where the code runs without one."""
    try:
        return version("metaquorum")
    except PackageNotFoundError:
        return "unknown"
