"""Pure: what a seeded bug is: where it stands, what stands there instead, and what notices it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

ROOMS: Final = ("files", "doors", "forwards", "plans")
"""Runs of one room of the code alone; all others are runs of whole quorums or clusters."""


@dataclass(frozen=True, slots=True)
class Seeds:
    """Simulated runs with seeds from 1 on, `most` at most."""

    profile: str
    most: int
    voters: int = 3
    observers: int = 0
    brokers: int = 3
    raft_only: bool = False
    hostile: bool = False
    followers: int = 0
    """Brokers of Kafka beside those of the cluster, which then send heartbeats as Kafka's do, too."""

    def __str__(self) -> str:
        if self.profile in ROOMS:
            return f"seeds, {self.profile}"
        level = "raft" if self.raft_only else "cluster"
        brokers = "" if self.brokers == 3 else f", {self.brokers} brokers"
        strangers = ", among strangers" if self.hostile else ""
        kafka = f", {self.followers} of Kafka" if self.followers else ""
        return f"seeds, {level}, {self.profile}, {self.voters} voters{brokers}{kafka}{strangers}"


@dataclass(frozen=True, slots=True)
class Directed:
    """A test that fails under the mutant."""

    test: str

    def __str__(self) -> str:
        return f"`{self.test.rsplit('/', 1)[-1]}`"


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    breaks: str
    target: str
    """module:Class.attribute, or module:attribute."""
    replacement: Callable[[Any], Any]
    """Given what was there, returns what stands there instead."""
    caught_by: Seeds | Directed
    elsewhere: tuple[str, ...] = ()
    """Modules that import the target by its name: it is replaced there, too."""


def always(value: object) -> Callable[[Any], Any]:
    """Replace a method by one that returns `value`."""
    return lambda _original: lambda *_args, **_kwargs: value


def leaves_cleanly(original: Any) -> Any:
    """Take every former process of a broker for one that stopped in order."""
    return lambda *args, **_rest: original(*args, is_clean=True)


async def at_once(*_args: object) -> None:
    """In place of a wait."""


def reads_at_once(_original: Any) -> Any:
    return at_once
