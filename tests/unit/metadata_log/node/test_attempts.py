"""Edge: several nodes asked at once, played by functions that wait for what the test says."""

import socket
import threading
from collections.abc import Callable

import pytest

from metadata_log.node.attempts import Attempt, Attempts, answers_in_time, first_answer

LONG_S = 60.0
"""A wait that no test lets pass."""


class Nodes:
    """Nodes by name: each does what the test gave it, and `asked` has their names in order."""

    def __init__(self, **acts: Callable[[], str]) -> None:
        self.acts = acts
        self.asked: list[str] = []
        self.thaw = threading.Event()

    def __call__(self, attempt: Attempt) -> str:
        self.asked.append(attempt.url)
        return self.acts[attempt.url]()

    def frozen(self) -> str:
        assert self.thaw.wait(LONG_S)
        return "late"


def refuse() -> str:
    raise ConnectionRefusedError("no")


def test_the_next_node_is_asked_while_the_first_is_silent() -> None:
    nodes = Nodes(b=lambda: "b", c=lambda: "c")
    nodes.acts["a"] = nodes.frozen
    waited: list[str] = []
    found = first_answer(
        "abc", nodes, hedge_s=0.02, silent_max_s=LONG_S, waited=lambda one: waited.append(one.url)
    )
    assert (found, nodes.asked, waited) == ("b", ["a", "b"], ["a"])
    nodes.thaw.set()


def test_one_that_fails_is_passed_over_at_once_and_the_error_is_the_first() -> None:
    nodes = Nodes(a=refuse, b=lambda: "b")
    assert first_answer("ab", nodes, hedge_s=LONG_S, silent_max_s=LONG_S) == "b"
    with pytest.raises(ConnectionRefusedError):
        first_answer("a", nodes, hedge_s=LONG_S, silent_max_s=LONG_S)


def test_a_refusal_of_the_second_waits_for_the_first() -> None:
    """Goal: a node that has less than the first must not decide while the first may still answer."""
    nodes = Nodes()

    def refuse_and_thaw() -> str:
        nodes.thaw.set()
        raise LookupError("not here")

    nodes.acts |= {"a": nodes.frozen, "b": refuse_and_thaw}
    assert first_answer("ab", nodes, hedge_s=0.02, silent_max_s=LONG_S) == "late"


def test_silence_of_all_is_a_time_out() -> None:
    nodes = Nodes()
    nodes.acts |= {"a": nodes.frozen, "b": nodes.frozen}
    with pytest.raises(TimeoutError):
        first_answer("ab", nodes, hedge_s=0.01, silent_max_s=0.05)
    assert nodes.asked == ["a", "b"]
    nodes.thaw.set()


def test_all_are_asked_and_one_that_is_silent_is_left_out() -> None:
    nodes = Nodes(b=lambda: "b", c=lambda: "c")
    nodes.acts["a"] = nodes.frozen
    assert answers_in_time("abc", nodes, least_s=0.1, most_s=LONG_S) == {"b": "b", "c": "c"}
    nodes.thaw.set()


def test_what_is_no_sound_answer_leaves_the_others_their_time() -> None:
    """Goal: a refused connection, which takes no time, must not make a busy node silent."""
    nodes = Nodes(a=lambda: "refused")

    def thaw_when_waited_for(_: Attempt) -> None:
        nodes.thaw.set()

    nodes.acts["b"] = nodes.frozen
    found = answers_in_time(
        "ab",
        nodes,
        least_s=0.01,
        most_s=LONG_S,
        is_sound=lambda text: text != "refused",
        waited=thaw_when_waited_for,
    )
    assert found == {"a": "refused", "b": "late"}


def test_the_end_cancels_what_is_waited_for() -> None:
    """Method: two ends of a connection; the attempt reads from one of them, to which nothing is sent."""
    ours, theirs = socket.socketpair()
    connected, ended = threading.Event(), threading.Event()

    def ask(attempt: Attempt) -> bytes:
        attempt.holds(ours)
        connected.set()
        data = ours.recv(1)
        ended.set()
        return data

    with ours, theirs:
        with Attempts[bytes]() as attempts:
            attempts.begin(Attempt("a"), ask)
            assert connected.wait(LONG_S)
        assert ended.wait(LONG_S)
        assert theirs.recv(1) == b""
