"""A request with many items as several commands."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from metadata_log.errors import InvariantBroken, MetadataError, NotController, OutcomeUnknown, PolicyViolation
from quorum.kafka.parts_of_requests import Part, decided_in_parts
from tests.support.callers import anybody


class Deciding:
    """A controller that answers each command with it, or fails as told."""

    is_active = True

    def __init__(self, *failures: MetadataError | None) -> None:
        self.failures = list(failures)
        self.asked: list[tuple[str, ...]] = []

    async def submit(self, command: Any, _: object) -> Any:
        self.asked.append(command)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        return SimpleNamespace(outcome="".join(command))

    def not_controller(self) -> NotController:
        return NotController("ask another")


def decided(deciding: Deciding, items: str, **how: Any) -> list[Part]:
    door: Any = SimpleNamespace(controller=deciding)
    command_of: Any = tuple
    return asyncio.run(decided_in_parts(door, anybody(), items, command_of, **how))


def test_items_are_packed_in_order_and_a_heavy_one_is_alone() -> None:
    deciding = Deciding()
    parts = decided(deciding, "abXcdef", weight=lambda item: 9 if item == "X" else 1, weight_max=3)
    assert parts == [Part([*some], some) for some in ("ab", "X", "cde", "f")]
    assert deciding.asked == [("a", "b"), ("X",), ("c", "d", "e"), ("f",)]
    assert decided(Deciding(), "") == []


def test_what_is_named_twice_is_decided_together() -> None:
    parts = decided(Deciding(), "abcabd", weight_max=2, name=lambda item: item)
    assert [part.outcome for part in parts] == ["aa", "bb", "cd"]


def test_what_is_named_ever_so_often_is_decided_as_if_named_twice() -> None:
    """Goal: no command grows with the times that one thing is named."""
    deciding = Deciding()
    decided(deciding, "a" * 1_000 + "bcb" * 1_000, weight_max=3, name=lambda item: item)
    assert deciding.asked == [("a", "a"), ("b", "b"), ("c", "c")]
    deciding = Deciding()
    decided(deciding, "aAA" * 1_000 + "b", weight_max=9, name=str.lower, alike=lambda item: item)
    assert deciding.asked == [("a", "A", "A", "a", "b")]


def test_a_later_failure_is_that_of_the_items_that_are_left() -> None:
    unknown = OutcomeUnknown("perhaps")
    deciding = Deciding(None, unknown)
    assert decided(deciding, "abc", weight_max=1) == [
        Part(["a"], "a"),
        Part(["b"], unknown),
        Part(["c"], unknown),
    ]
    assert len(deciding.asked) == 2


@pytest.mark.parametrize(
    "failures",
    [
        (PolicyViolation("too much"),),
        (None, NotController("no longer")),
        (None, InvariantBroken("a fault")),
    ],
)
def test_what_concerns_the_whole_request_is_raised(failures: tuple[MetadataError | None, ...]) -> None:
    with pytest.raises(MetadataError) as raised:
        decided(Deciding(*failures), "abc", weight_max=1)
    assert raised.value is failures[-1]


def test_one_that_does_not_lead_says_so_before_the_first_item() -> None:
    deciding = Deciding()
    deciding.is_active = False
    with pytest.raises(NotController):
        decided(deciding, "")
