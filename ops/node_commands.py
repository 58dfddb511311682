"""Edge: an operator's own command for each of some nodes: without a shell, with the node's places filled in.
Tests: tests/unit/ops/verbs/test_roll.py.
"""

import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from metadata_log.node.addresses import is_host


def command_with(places: Collection[str]) -> Callable[[str], list[str]]:
    """Return what reads a command in which these places are replaced for each node, as {id}."""

    def read(text: str) -> list[str]:
        words = shlex.split(text)
        if not words:
            raise ValueError("the empty text is no command")
        for name in re.findall(r"\{(\w*)\}", text):
            if name not in places:
                raise ValueError(f"{{{name}}} is none of {', '.join(f'{{{each}}}' for each in places)}")
        return words

    return read


def words_for(command: Sequence[str], places: Mapping[str, Any]) -> list[str]:
    """Return the words of a command for one node."""

    def put(found: "re.Match[str]") -> str:
        return str(places[found[1]])

    return [re.sub(r"\{(\w+)\}", put, word) for word in command]


def run_for(command: Sequence[str], places: Mapping[str, Any], *, name: str, patience_s: float) -> None:
    """Run a command for the node of this name, and wait for its end.

    Raises:
        UnsafeStep: the command names the host, and the node registered something else.
        NotBack: it cannot be started, does not end in time, or fails.
    """
    from ops.admin.rolling import NotBack, UnsafeStep

    host = places["host"]
    if any("{host}" in word for word in command) and (not is_host(host) or host.startswith("-")):
        # A broker registers what it likes, and `ssh -oProxyCommand=...` would run it here.
        raise UnsafeStep(f"{name} is left alone: it registered {host!r}, which is no name of a host")
    words = words_for(command, places)
    # Into a file: what the command starts may keep its output open.
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(  # noqa: S603 the operator's own command, without a shell
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=patience_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotBack(f"{name}: {shlex.join(words)}: {error}") from error
        if done.returncode != 0:
            output.seek(0)
            said = output.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise NotBack(f"{name}: {shlex.join(words)} ended with {done.returncode}: {said}")
