"""Pure: whether and where a node keeps an audit log. Tests: tests/unit/metadata_log/node/test_audit_log.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from metadata_log.limits import MIB

_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The audit log of one node; without a `file` there is none."""

    file: Path | None = None
    file_bytes: int = 64 * MIB
    """Size at which the file is moved aside."""
    files_kept: int = 4
    """Files moved aside that are kept: FILE.1 is the newest."""
    reads: bool = False
    """Whether what only reads is logged, too."""


BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "audit.file_bytes": (MIB, _INT64_MAX),
    "audit.files_kept": (1, 1_000),
}
"""The least and the most of each number, by its key in a settings file."""
