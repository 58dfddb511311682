"""Edge: one question to several nodes: each is asked in a thread, what ends first is taken, what is left is cancelled.

A node that is frozen accepts a connection and never answers, so no node is waited for alone: once all that were asked are
silent, the next is asked. A daemon thread that cannot be cancelled, because it still connects, ends with its own time-out.
Tests: tests/unit/metadata_log/node/test_attempts.py.
"""

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPResponse, IncompleteRead
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, Generic, TypeVar

T = TypeVar("T")
HEDGE_S: Final = 0.15
"""After this silence the next node is asked, too: an answer from memory takes some milliseconds."""
PIECE_BYTES: Final = 256 * 1024
BULK_HEDGE_S: Final = 0.5
"""The same where an answer is computed, or was just seen to come: a second node would do the same work."""


class AnswerTooLarge(Exception):
    """An answer has more bytes than any of ours."""


class Attempt:
    """One node being asked. Its thread says what it holds and hears; the thread that began it reads and cancels."""

    def __init__(self, url: str, kind: str = "") -> None:
        """`kind` distinguishes several questions to one node."""
        self.url = url
        self.kind = kind
        self.is_heard = False
        self.is_cancelled = False
        self._heard_s = time.monotonic()
        self._socket: socket.socket | None = None

    @property
    def silent_s(self) -> float:
        """For how long the node has sent nothing, since it was asked or since its last bytes."""
        return time.monotonic() - self._heard_s

    @property
    def is_connected(self) -> bool:
        """Whether the node accepted the connection, so that it may have received what was sent."""
        return self._socket is not None

    def heard(self) -> None:
        """Note that bytes of an answer arrived."""
        self._heard_s = time.monotonic()
        self.is_heard = True

    def read_whole(self, response: HTTPResponse, *, most: int) -> bytes:
        """Return the body of an answer that holds at most `most` bytes.

        Raises:
            IncompleteRead: the connection broke before the announced end.
            AnswerTooLarge: it has more.
        """
        self.heard()
        pieces: list[bytes] = []
        size, announced = 0, response.length
        while announced is None or size < announced:
            piece = response.read1(PIECE_BYTES if announced is None else min(PIECE_BYTES, announced - size))
            if not piece:
                break
            self.heard()
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise AnswerTooLarge(f"answered with more than {most} bytes")
        if announced is not None and size < announced:
            raise IncompleteRead(b"", announced - size)
        return b"".join(pieces)

    def holds(self, connected: socket.socket | None) -> None:
        """Name the socket on which the answer is waited for, so that `cancel` ends the wait."""
        self._socket = connected
        if self.is_cancelled:
            self.cancel()

    def cancel(self) -> None:
        """End the wait for the answer, whose node sees the connection end."""
        self.is_cancelled = True
        if self._socket is not None:
            # TLS has a shutdown of its own, which would wait for the node.
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class Ended(Generic[T]):
    """An attempt that ended, in `result` or in `error`; as a context manager it takes the error of what it holds."""

    def __init__(self, attempt: Attempt, queue: "SimpleQueue[Ended[T]]") -> None:
        self.attempt = attempt
        self.error: BaseException | None = None
        self._found: tuple[T, ...] = ()
        self._queue = queue

    def __enter__(self) -> "Ended[T]":
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        """Hand the outcome to the thread that waits, which raises the error."""
        self.error = error
        self._queue.put(self)
        return True

    def found(self, result: T) -> None:
        self._found = (result,)

    @property
    def result(self) -> T:
        """Return the result.

        Raises:
            BaseException: what the attempt raised.
        """
        if self.error is not None:
            raise self.error
        return self._found[0]


class Attempts(Generic[T]):
    """The attempts of one question. Use it as a context manager: its end cancels what is still waited for."""

    def __init__(self) -> None:
        self._ended: SimpleQueue[Ended[T]] = SimpleQueue()
        self.running: list[Attempt] = []

    def __enter__(self) -> "Attempts[T]":
        return self

    def __exit__(self, *_: object) -> None:
        for attempt in self.running:
            attempt.cancel()

    def begin(self, attempt: Attempt, ask: Callable[[Attempt], T]) -> None:
        """Ask in a thread of its own."""

        def run() -> None:
            with Ended(attempt, self._ended) as ended:
                ended.found(ask(attempt))

        self.running.append(attempt)
        Thread(target=run, name=f"asks {attempt.url}", daemon=True).start()

    def next_ended(self, wait_s: float) -> Ended[T] | None:
        """Return the next attempt that ends, None if none does in time."""
        try:
            ended = self._ended.get(timeout=max(0.0, wait_s))
        except Empty:
            return None
        self.running.remove(ended.attempt)
        return ended

    def is_asked(self, url: str, kind: str = "") -> bool:
        """Answer whether a node is being asked this."""
        return any((one.url, one.kind) == (url, kind) for one in self.running)

    def silence_s(self) -> float | None:
        """For how long every node that is asked has been silent; None: no node is asked."""
        return min((one.silent_s for one in self.running), default=None)


def first_answer(
    urls: Sequence[str],
    ask: Callable[[Attempt], T],
    *,
    hedge_s: float,
    silent_max_s: float,
    waited: Callable[[Attempt], None] = lambda _: None,
) -> T:
    """Return the answer of the first node, or of a later one if those before it are silent or fail.

    The next node is asked once all that were asked failed or were silent for `hedge_s`; `waited` gets each that was. A
    refusal of one counts once the nodes before it have failed, or have been silent for `silent_max_s`.

    Raises:
        Exception: what the first node raised that did not remain silent.
        TimeoutError: all remained silent.
    """
    waiting, errors, told = list(urls), dict[str, BaseException](), set[str]()
    with Attempts[T]() as attempts:
        while True:
            silence_s = attempts.silence_s()
            if silence_s is not None and silence_s >= hedge_s:
                for attempt in attempts.running:
                    if attempt.url not in told:
                        told.add(attempt.url)
                        waited(attempt)
            if waiting and (silence_s is None or silence_s >= hedge_s):
                attempts.begin(Attempt(waiting.pop(0)), ask)
                continue
            if not waiting and (silence_s is None or silence_s >= silent_max_s):
                break
            wait_s = (hedge_s if waiting else silent_max_s) - (silence_s or 0.0)
            ended = attempts.next_ended(wait_s)
            if ended is not None and ended.error is None:
                return ended.result
            if ended is not None and ended.error is not None:
                errors[ended.attempt.url] = ended.error
    for url in urls:
        if url in errors:
            raise errors[url]
    raise TimeoutError(f"no answer within {silent_max_s:.1f} s")


def answers_in_time(
    urls: Sequence[str],
    ask: Callable[[Attempt], T],
    *,
    least_s: float,
    most_s: float,
    is_sound: Callable[[T], bool] = lambda _: True,
    waited: Callable[[Attempt], None] = lambda _: None,
) -> dict[str, T]:
    """Ask all nodes at once, and return the answers by URL of those that gave one in time.

    In time is what comes within `least_s`, or within four times what the first sound answer took: a busy machine is slow in
    all of its nodes. Without a sound answer that is `most_s`. `waited` gets each that is waited for after BULK_HEDGE_S.

    Raises:
        Exception: what an attempt raised.
    """
    found: dict[str, T] = {}
    began_s = time.monotonic()
    ends_s = began_s + most_s
    with Attempts[T]() as attempts:
        for url in urls:
            attempts.begin(Attempt(url), ask)
        say_s: float | None = began_s + BULK_HEDGE_S
        while attempts.running:
            until_s = ends_s if say_s is None else min(ends_s, say_s)
            ended = attempts.next_ended(until_s - time.monotonic())
            if ended is None and until_s == ends_s:
                break
            if ended is None:
                say_s = None
                for attempt in attempts.running:
                    waited(attempt)
                continue
            if is_sound(ended.result) and not any(map(is_sound, found.values())):
                took_s = time.monotonic() - began_s
                ends_s = min(ends_s, began_s + max(least_s, 4 * took_s))
            found[ended.attempt.url] = ended.result
    return found
