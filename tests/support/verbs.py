"""Edge: verbs of the command line, which tests run to their end. Each is a process of its own (tests/support/preloaded.py).

tests/cluster/test_wheel.py runs the program itself, as it is installed. Tests: tests/unit/support/test_preloaded.py.
"""

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.preloaded import PRELOADED, python_path

TIMEOUT_S: Final = 600.0
"""Longer than any verb takes here; pytest ends a test that waits without an end."""


def run_verb(
    *words: str | Path, variables: Mapping[str, str] = {}, timeout_s: float = TIMEOUT_S
) -> "subprocess.CompletedProcess[str]":
    """Run `metaquorum WORDS` with these variables beside those of this process; return how it ended, and what it said.

    Raises:
        subprocess.TimeoutExpired: it ran longer, and was killed.
    """
    line = [*map(str, words)]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        copy = PRELOADED.start(line, {**os.environ, "PYTHONPATH": python_path(), **variables}, output, errors)
        try:
            code = copy.wait(timeout_s)
        finally:
            copy.send_signal(signal.SIGKILL)  # unless it has ended
        said = []
        for file in (output, errors):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(line, code, *said)
