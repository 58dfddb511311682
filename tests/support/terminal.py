"""A terminal at which an operator answers a verb that asks first."""

import io
import sys

import pytest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def answering(monkeypatch: pytest.MonkeyPatch, answer: str) -> Terminal:
    """Let an operator answer the next question; return the screen. The empty answer ends the input."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n" if answer else ""))
    monkeypatch.setattr(sys, "stderr", screen)
    return screen
