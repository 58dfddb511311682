"""Rules of the large requests of a controller: what overtakes each while it rests, and how often it begins again."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from metadata_log.wire.commands import Command
from tests.simulation.rules.rule import rule

if TYPE_CHECKING:
    from tests.simulation.world.cluster_controller import SimulatedController

OVERTAKEN_TIMES: Final = 3
"""From then on a large request is decided before anything else is."""


class Overtaking:
    """The requests of one controller each time that one is decided, and when parts of long changes are due."""

    a_large_request_lets_parts_by = rule("parts of long changes overtake a large request, until some have")
    a_part_waits_for_one_slice = rule(
        "a part of a long change waits for no more of a large request than a slice"
    )
    what_is_overtaken_is_decided = rule("a request begins again OVERTAKEN_TIMES at most")

    def __init__(self, controller: "SimulatedController") -> None:
        self._controller = controller
        self._decided: dict[asyncio.Task[Any] | None, int] = {}
        """How often the request has been decided that each task carries out. One may outlive many that come later."""
        self._times = 0
        """How often the request has been decided that is decided now, or was decided last."""

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Follow a request for as long as the task that calls this carries it out."""
        task = asyncio.current_task()
        self._decided[task] = 0
        try:
            yield
        finally:
            del self._decided[task]

    def begins(self, command: Command) -> None:
        """Note that a request is decided, perhaps once more."""
        task = asyncio.current_task()
        times = self._decided[task]
        self._decided[task] = self._times = times + 1
        if times > OVERTAKEN_TIMES:
            self._violated(self.what_is_overtaken_is_decided(f"{type(command).__name__} begins again"))

    def is_resting(self) -> bool:
        """Answer whether a request rests that a part of a long change, which is due, may overtake."""
        turns = self._controller.turns
        if not turns.is_mid_decision:
            return False
        if turns.is_exclusive and self._times <= OVERTAKEN_TIMES:
            self._violated(self.a_large_request_lets_parts_by(f"it is decided for the {self._times}. time"))
        return not turns.is_exclusive

    def part_waited(self, seconds: float) -> None:
        """Check how long a part waited that was due while a request rested between two slices."""
        self._controller.world.consequences["parts that overtook a large request"] += 1
        if seconds > 0:
            self._violated(self.a_part_waits_for_one_slice(f"a part waited for {1000 * seconds:.1f} ms"))

    def _violated(self, broken: Exception) -> None:
        self._controller.world.violated(broken)
