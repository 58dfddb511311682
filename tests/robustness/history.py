"""Pure: the operations of clients on registers, and an exact check of their linearizability, by search.

Each key is checked alone. The search walks its calls and returns in the order of time, with every state that the key may be
in: the value, and which operations under way or of unknown outcome have taken effect. An operation takes effect only when
the walk needs it: when an operation returns, the search tries each order of those under way that ends with it, and drops
states in which it cannot take effect. If no state is left, the history is not linearizable.

Two rules keep the search small. An operation that leaves the value as it is takes effect at once, because waiting gains
nothing. Operations of unknown outcome never return, so those with the same effect are only counted (all values that no
other operation met count as one). Of two states that are otherwise equal, the one that has used more of them is dropped.

Source: Lowe, Testing for linearizability, Concurrency and Computation 29 (2017), the just-in-time algorithm.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import le
from typing import Final, Literal, NamedTuple

Kind = Literal["read", "write", "cas"]

UNMET: Final = "(unmet)"
"""Any value that nobody read or expected."""


@dataclass(slots=True)
class Operation:
    """One operation; times are monotonic, in ns. `ok` and `returned` None: nobody knows whether it happened.

    A `cas` sets `value` where `expected` stands (None: nothing); it is refused, `ok` False, where something else does.
    `result` is what a read found, and what a refused `cas` found instead of an `expected` that is not None.
    """

    client: int
    op: Kind
    key: str
    value: str | None
    ok: bool | None
    call: int
    returned: int | None
    result: str | None
    expected: str | None = None
    request_id: str | None = None
    in_fault: bool = False

    @property
    def changes(self) -> bool:
        """Whether this is a write that was not refused."""
        return self.op != "read" and self.ok is not False

    def line(self) -> str:
        return json.dumps(
            {
                "client": self.client,
                "op": self.op,
                "key": self.key,
                "value": self.value,
                "expected": self.expected,
                "ok": self.ok,
                "call": self.call,
                "return": self.returned,
                "result": self.result,
            }
        )


class _State(NamedTuple):
    """What a key may be: its value, which operations under way took effect, and how many of each sort of unknown outcome."""

    value: str | None
    effective: frozenset[int]
    used: tuple[int, ...]


class _Key:
    """One key's states, as the walk goes on."""

    def __init__(self, operations: list[Operation]) -> None:
        self._operations = operations
        met = {done.result for done in operations} | {done.expected for done in operations} | {None}
        self._sorts: list[Operation] = []
        """One operation of unknown outcome for each effect that some have; `used` and `_begun` count in this order."""
        self._sort_of: dict[int, int] = {}
        places: dict[tuple[str, str | None, str | None], int] = {}
        for number, done in enumerate(operations):
            if done.ok is None:
                value = done.value if done.value in met else UNMET
                place = places.setdefault((done.op, done.expected, value), len(places))
                self._sort_of[number] = place
                if place == len(self._sorts):
                    self._sorts.append(replace(done, value=value))
        self._begun = [0] * len(self._sorts)
        self._under_way: set[int] = set()
        self._states = {_State(None, frozenset(), (0,) * len(self._sorts))}

    def contradiction(self) -> str | None:
        moments = sorted(
            [(done.call, False, number) for number, done in enumerate(self._operations)]
            + [
                (done.returned, True, n)
                for n, done in enumerate(self._operations)
                if done.returned is not None
            ]
        )
        for _, is_return, number in moments:
            if is_return:
                before = self._states
                self._states = set(_least_used(self._states_with(number)))
                self._under_way.discard(number)
                if not self._states:
                    values = sorted({repr(state.value) for state in before})
                    return f"{self._operations[number].line()} cannot be: before, it was one of {', '.join(values)}"
            elif number in self._sort_of:
                self._begun[self._sort_of[number]] += 1
            else:
                self._under_way.add(number)
        return None

    def _states_with(self, number: int) -> Iterator[_State]:
        """Yield the states in which an operation under way has just taken effect; it is forgotten in them."""
        waiting = list(self._states)
        seen = set(waiting)
        while waiting:
            state = self._with_all_that_change_nothing(waiting.pop())
            if number in state.effective:
                yield state._replace(effective=state.effective - {number})
                continue
            for after in self._changed(state):
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)

    def _with_all_that_change_nothing(self, state: _State) -> _State:
        idle = {
            number
            for number in self._under_way
            if not self._operations[number].changes
            and _after(self._operations[number], state.value) is not None
        }
        return state._replace(effective=state.effective | idle)

    def _changed(self, state: _State) -> Iterator[_State]:
        """Yield each state to which one more operation leads."""
        for number in self._under_way - state.effective:
            after = _after(self._operations[number], state.value)
            if after is not None:
                yield _State(*after, state.effective | {number}, state.used)
        for place, done in enumerate(self._sorts):
            after = _after(done, state.value)
            if after not in (None, (state.value,)) and state.used[place] < self._begun[place]:
                used = (*state.used[:place], state.used[place] + 1, *state.used[place + 1 :])
                yield _State(*after, state.effective, used)


def check(history: Iterable[Operation]) -> str | None:
    """Return what contradicts linearizability, None if nothing does. Before all, each key holds None."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for done in history:
        by_key[done.key].append(done)
    return next(filter(None, (_Key(operations).contradiction() for operations in by_key.values())), None)


def _after(done: Operation, value: str | None) -> tuple[str | None] | None:
    """Return what an operation leaves where it finds `value`; None: it cannot have found that."""
    if done.op == "read":
        can_be, left = value == done.result, value
    elif done.op == "write":
        can_be, left = True, done.value
    elif done.ok is not False:
        can_be, left = value == done.expected, done.value
    elif done.expected is None:
        can_be, left = value is not None, value
    else:
        can_be, left = value == done.result != done.expected, value
    return (left,) if can_be else None


def _least_used(states: Iterable[_State]) -> Iterator[_State]:
    """Yield the states but those that others equal but for having used less of what has an unknown outcome."""
    alike: dict[tuple[str | None, frozenset[int]], set[tuple[int, ...]]] = defaultdict(set)
    for value, effective, used in states:
        alike[value, effective].add(used)
    for (value, effective), all_used in alike.items():
        for used in all_used:
            if not any(other != used and all(map(le, other, used)) for other in all_used):
                yield _State(value, effective, used)
