"""Edge: the broker under test: a command that the check starts and stops, or a process that a person starts and stops.
Tests: tests/cluster/test_broker_check.py.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import aiohttp

from metadata_log.errors import InvalidRequest

URLS: Final = "{controllers}"
CLUSTER: Final = "{cluster_id}"
ENDING_S: Final = 2.0
"""A process that does not end at SIGTERM within this time is killed."""

PROBE_S: Final = 1.0


def probe(url: str) -> Callable[[], Awaitable[bool]]:
    """Return what asks a broker's own probe whether it serves clients: then it answers 200."""

    async def serves() -> bool:
        try:
            timeout = aiohttp.ClientTimeout(total=PROBE_S)
            async with aiohttp.ClientSession(timeout=timeout) as http, http.get(url) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    return serves


class Commanded:
    """A broker that a command starts. In its words {cluster_id} and {controllers} are replaced.

    A word {controllers} becomes one word for each URL; within a word they are comma-joined.
    """

    is_watched = True

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._process: asyncio.subprocess.Process | None = None

    @property
    def ended(self) -> int | None:
        return None if self._process is None else self._process.returncode

    async def start(self, urls: Sequence[str], cluster_id: str) -> None:
        """Start the process; what it prints goes to stderr.

        Raises:
            InvalidRequest: there is no such program, or it may not be run.
        """
        command = [
            word for each in self._words for word in (urls if each == URLS else [_filled(each, urls, cluster_id)])
        ]  # fmt: skip
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr.fileno(), start_new_session=True
            )
        except OSError as error:
            raise InvalidRequest(f"{command[0]} cannot be run: {error.strerror}") from error

    async def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    async def end(self) -> None:
        assert self._process is not None
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(ENDING_S):
                await self._process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and to what it started: `go run` passes none on."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _filled(word: str, urls: Sequence[str], cluster_id: str) -> str:
    return word.replace(CLUSTER, cluster_id).replace(URLS, ",".join(urls))


class ByHand:
    """A broker that a person starts and stops, when `say` asks for it."""

    is_watched = False
    ended: int | None = None

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._starts = 0

    async def start(self, urls: Sequence[str], cluster_id: str) -> None:
        self._starts += 1
        again = "again" if self._starts > 1 else "with an empty cache"
        self._say(f"start the broker {again}: controllers {','.join(urls)}, cluster id {cluster_id}")

    async def ask_to_stop(self) -> None:
        self._say("stop the broker now, as its operator does (SIGTERM)")

    async def end(self) -> None:
        self._say("stop the broker if it still runs")
