"""Edge: doors open in order and close in the opposite one, also where one of them cannot open."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, cast

import pytest

from metadata_log.errors import CannotListen
from quorum.node import doors
from quorum.node.parts import Parts

PARTS = cast("Parts", object())


class Door(ModuleType):
    """A door that notes what happens to it."""

    def __init__(self, name: str, happened: list[str], *, is_taken: bool = False) -> None:
        super().__init__(f"quorum.{name}.listener")
        self._name, self._happened, self._is_taken = name, happened, is_taken

    @asynccontextmanager
    async def listening(self, parts: Parts) -> AsyncIterator[None]:
        assert parts is PARTS
        if self._is_taken:
            raise CannotListen(self._name)
        self._happened.append(f"{self._name} opens")
        yield
        self._happened.append(f"{self._name} closes")


def _opened(monkeypatch: pytest.MonkeyPatch, *made: Door) -> None:
    async def serve() -> None:
        async with doors.open_doors(PARTS):
            cast("Any", made[0])._happened.append("serves")

    for door in made:
        monkeypatch.setitem(sys.modules, door.__name__, door)
    monkeypatch.setattr(doors, "DOORS", tuple(door._name for door in made))
    asyncio.run(serve())


def test_doors_open_in_order_and_close_in_the_opposite_one(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    _opened(monkeypatch, Door("a", happened), Door("b", happened))
    assert happened == ["a opens", "b opens", "serves", "b closes", "a closes"]


def test_a_door_that_cannot_open_closes_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    with pytest.raises(CannotListen, match="b"):
        _opened(monkeypatch, Door("a", happened), Door("b", happened, is_taken=True))
    assert happened == ["a opens"]


def test_each_door_has_a_listener() -> None:
    for name in doors.DOORS:
        assert callable(import_module(f"quorum.{name}.listener").listening)
