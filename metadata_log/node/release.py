"""Pure: which release of metaquorum this is. Tests: tests/unit/ops/verbs/test_version.py."""

from typing import Final

VERSION: Final = "0.2.0"
"""Here alone: pyproject.toml reads it from this line, and CHANGELOG.md says what it brings."""
