"""Edge: pages that follow the log, and when each of them is told: soon after a batch, and when the quorum looks different.

What a batch costs does not grow with the pages until they are told, all of them at most once in TOLD_AFTER_S. At rest a
page is woken once in BEAT_S. Tests: tests/unit/quorum/http/test_events.py.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from metadata_log.batch import RecordBatch
from metadata_log.errors import ThrottlingQuotaExceeded
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.limits import FEEDS_WOKEN_AT_ONCE, WATCHERS_MAX, WATCHERS_PER_PRINCIPAL_MAX
from metadata_log.node.pace import OneInATurn, Pieces
from quorum.controller.applied_listener import AppliedListener
from quorum.log.recent_batches import RecentBatches, event_of

TOLD_AFTER_S: Final = 0.05
LOOK_S: Final = 0.5
"""How often it is looked whether the quorum looks different, while there are pages."""
BEAT_S: Final = 3.0
"""A page that hears nothing for some of these knows that its node is gone. A broker forwards silence of up to 5 s."""
Look = Callable[[], dict[str, Any]]


class Watcher:
    """One page: what it was told last, and what wakes it."""

    __slots__ = ("is_over", "seen", "woken")

    def __init__(self) -> None:
        self.seen = -1
        """The number of the view of the quorum that it has."""
        self.woken = asyncio.Event()
        self.is_over = False


class Watchers(AppliedListener):
    """Listens after the committed log, so that a page can read what it is told."""

    def __init__(self) -> None:
        self.recent = RecentBatches()
        self.one_in_a_turn = OneInATurn()
        """Held while a page is told what no other was told last: pages that come back are at offsets of their own."""
        self._watching: dict[Watcher, None] = {}
        self._by_principal = Counter[str]()
        """How many of these each principal has."""
        self._woken: deque[Watcher] = deque()
        self._pieces = Pieces(self._wake_next, pieces_max=FEEDS_WOKEN_AT_ONCE)
        self._is_due = False
        self._is_over = False
        self._look: Look | None = None
        self._view: dict[str, Any] = {}
        self._beat_at_s = 0.0
        self.view = b""
        """The event that says how the quorum looks from here."""
        self.number = 0
        """Of the view; grows with each that is told."""

    def __len__(self) -> int:
        return len(self._watching)

    # --- what is applied

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:
        self.recent.on_applied(batch, frame, image, delta)
        self._tell_soon()

    def on_restored(self, image: MetadataImage) -> None:
        self.recent.on_restored(image)
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._watching and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(TOLD_AFTER_S, self._tell)

    def _tell(self) -> None:
        self._is_due = False
        self._wake_all()

    def _wake_all(self) -> None:
        self._woken.extend(self._watching)
        self._pieces.wake()

    def _wake_next(self) -> bool:
        """Wake one page; answer whether there was one."""
        if not self._woken:
            return False
        self._woken.popleft().woken.set()
        return True

    # --- how the quorum looks

    def _look_again(self) -> None:
        """Look once in LOOK_S while there are pages, and tell them what looks different; what does not, once in BEAT_S."""
        if not self._watching or self._look is None:
            self._look = None
            return
        loop = asyncio.get_running_loop()
        view, now_s = self._look(), loop.time()
        if view != self._view or now_s - self._beat_at_s >= BEAT_S:
            self._view, self._beat_at_s = view, now_s
            self.view = event_of("quorum", view)
            self.number += 1
            self._wake_all()
        loop.call_later(LOOK_S, self._look_again)

    # --- what pages ask

    @contextmanager
    def watching(self, look: Look, principal: str | None = None) -> Iterator[Watcher]:
        """Hold the place of one page. `look` returns how the quorum looks from here; `principal` is whose page it is, None
        while identity is off.

        Raises:
            ThrottlingQuotaExceeded: too many pages watch, or too many of this principal.
        """
        if len(self._watching) >= WATCHERS_MAX:
            raise ThrottlingQuotaExceeded(f"{WATCHERS_MAX} pages follow this controller already: ask another")
        if principal is not None and self._by_principal[principal] >= WATCHERS_PER_PRINCIPAL_MAX:
            raise ThrottlingQuotaExceeded(
                f"{WATCHERS_PER_PRINCIPAL_MAX} pages of {principal} follow this controller already: close some, or ask "
                "another"
            )
        watcher = Watcher()
        watcher.is_over = self._is_over
        self._watching[watcher] = None
        if principal is not None:
            self._by_principal[principal] += 1
        if self._look is None:
            self._look, self._view = look, {}
            self._look_again()
        try:
            yield watcher
        finally:
            del self._watching[watcher]
            if principal is not None:
                self._by_principal[principal] -= 1
                if not self._by_principal[principal]:
                    del self._by_principal[principal]

    def end(self) -> None:
        """Let all pages go: this node stops."""
        self._is_over = True
        for watcher in self._watching:
            watcher.is_over = True
            watcher.woken.set()
