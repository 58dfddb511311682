"""Edge: `python -m tests.state_page`: writes the drawings of docs/states.md from the tables of states in the code."""

import enum
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker_agent import lifecycle
from quorum.fetch import poll
from quorum.raft import node_state

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "states.md"
MARK: Final = "<!-- what follows is written by `python -m tests.state_page` -->"
Table = Mapping[Any, Mapping[Any, Any]]


class Machine(NamedTuple):
    title: str
    about: str
    file: str
    edges: Table
    first: enum.Enum


A_BROKER: Final = Machine(
    "A broker",
    "Clients are served in ONLINE and STOPPING.",
    "broker_agent/lifecycle.py",
    lifecycle.TRANSITIONS,
    lifecycle.State.OFFLINE,
)
MACHINES: Final = (
    Machine(
        "A node of Raft",
        "From its start to its end. The engine alone knows who is candidate; a node that the engine elected leads once all "
        "that its log held before is applied.",
        "quorum/raft/node_state.py",
        node_state.EDGES,
        node_state.State.MADE,
    ),
    A_BROKER,
    Machine(
        "A poll",
        "From its arrival at a controller to its answer.",
        "quorum/fetch/poll.py",
        poll.MOVES,
        poll.PollState.ARRIVED,
    ),
)


def drawn(machine: Machine) -> Iterator[str]:
    yield "```mermaid\nstateDiagram-v2\n"
    yield f"    [*] --> {machine.first.name}\n"
    for state, edges in machine.edges.items():
        for edge, to in edges.items():
            if to is not state:
                yield f"    {state.name} --> {to.name}: {_named(edge)}\n"
    yield "```\n"
    staying = [f"{state.name}: {_named(edge)}" for state, edge, to in _rows(machine) if to is state]
    if staying:
        yield f"\nWithout effect: {'; '.join(staying)}. Any other event in a state is a bug, and ends the process.\n"


def _rows(machine: Machine) -> Iterator[tuple[enum.Enum, enum.Enum, enum.Enum]]:
    for state, edges in machine.edges.items():
        for edge, to in edges.items():
            yield state, edge, to


def _named(edge: enum.Enum) -> str:
    return edge.value if isinstance(edge.value, str) else edge.name.lower().replace("_", " ")


def page() -> str:
    """Return the drawings as the code has them now."""
    parts = ["\n"]
    for machine in MACHINES:
        parts += [
            f"## {machine.title}\n\n{machine.about} Table: `{machine.file}`.\n\n",
            *drawn(machine),
            "\n",
        ]
    return "".join(parts)


def written(text: str) -> str:
    return text.partition(MARK)[0] + MARK + "\n" + page().rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
