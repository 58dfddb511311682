"""Edge: runs many small pieces of work in slices, so that Raft's messages and heartbeats pass in between."""

import asyncio
from collections.abc import Callable

from metadata_log import limits


class Slices:
    """Runs `step` again and again until it answers that nothing is left.

    One slice is one turn of the loop: it ends after FETCH_SLICE_MS or `pieces_max` pieces. The next slice follows after
    FETCH_PAUSE_MS; meanwhile the loop reads its sockets and runs whatever else is ready, several times over.
    """

    pieces_max = limits.FETCH_SLICE_POLLS

    def __init__(self, step: Callable[[], bool], *, now_ms: Callable[[], int]) -> None:
        self._step = step
        self._now_ms = now_ms
        self._is_due = False

    def wake(self) -> None:
        """There is work: begin with the next turn of the loop, unless a slice is due already."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        ends_ms = self._now_ms() + limits.FETCH_SLICE_MS
        for _ in range(self.pieces_max):
            if not self._step():
                return
            if self._now_ms() >= ends_ms:
                break
        self._is_due = True
        asyncio.get_running_loop().call_later(limits.FETCH_PAUSE_MS / 1000, self._run)
