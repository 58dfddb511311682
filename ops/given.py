"""Pure: what a client may be given, and what is said of it where that contradicts itself.
Tests: tests/unit/ops/verbs/test_configs.py.
"""

from typing import Final

SHOWN: Final = ("ca", "cert", "key", "token_file")
"""Files, each also named by a variable (METAQUORUM_CA and so on): what a client shows, and whom it trusts."""
TIMEOUT_S: Final = 10.0


class Misuse(ValueError):
    """What was asked contradicts itself or lacks a part; nothing was sent."""
