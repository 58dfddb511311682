"""Pure: the header by which a controller that refuses a request says for how long it has known of no leader.

Tests: tests/unit/metadata_log/node/test_leaderless.py.
"""

from collections.abc import Mapping
from typing import Final

LEADERLESS: Final = "X-Leaderless-Ms"
LEADERLESS_MS: Final = 1_000
"""A controller that has known of no leader for this long will not find one soon: an election takes less."""
DIGITS_MAX: Final = 12


def says_leaderless(headers: Mapping[str, str]) -> bool:
    """Return whether an answer's headers, in lower case or of any, say that no leader was known for LEADERLESS_MS."""
    passed_ms = headers.get(LEADERLESS.lower(), "")
    is_number = passed_ms.isascii() and passed_ms.isdigit() and len(passed_ms) <= DIGITS_MAX
    return is_number and int(passed_ms) >= LEADERLESS_MS
