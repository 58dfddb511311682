"""The checker of histories against hand-made histories, brute force, and the simulator's checker."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.robustness.clients import write_history
from tests.robustness.history import Operation, _least_used, _State, check
from tests.simulation.rules import registers


def read(found: str | None, call: int, returned: int) -> Operation:
    return Operation(2, "read", "k", None, True, call, returned, found)


def write(value: str | None, call: int, returned: int | None = None) -> Operation:
    return Operation(1, "write", "k", value, None if returned is None else True, call, returned, None)


def cas(expected: str | None, value: str | None, call: int, returned: int | None = None) -> Operation:
    return Operation(1, "cas", "k", value, None if returned is None else True, call, returned, None, expected)


def refused(expected: str | None, found: str | None, call: int, returned: int) -> Operation:
    """Return a refused cas; `found` is not told where nothing was expected."""
    return Operation(1, "cas", "k", "never", False, call, returned, found, expected)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([], id="nothing-happened"),
        pytest.param([write("a", 0, 1), read("a", 2, 3)], id="in-order"),
        pytest.param([write("a", 0, 5), read(None, 2, 3), read("a", 4, 6)], id="while-it-is-written"),
        pytest.param([write("a", 0), read("a", 50, 60)], id="unknown-and-it-happened"),
        pytest.param([write("a", 0), read(None, 50, 60)], id="unknown-and-it-did-not"),
        pytest.param([write("a", 0, 1), read(None, 1, 2)], id="one-moment-is-no-order"),
        pytest.param(
            [cas(None, "a", 0, 1), cas("a", None, 2, 3), cas(None, "b", 4, 5)], id="one-after-another"
        ),
        pytest.param([cas(None, "a", 0, 9), cas("a", None, 0, 9), cas(None, "b", 0, 9)], id="all-at-once"),
        pytest.param([cas(None, "a", 0, 1), refused(None, None, 2, 3)], id="refused-as-it-exists"),
        pytest.param(
            [cas(None, "a", 0, 9), refused(None, None, 2, 3), refused("x", None, 0, 9)],
            id="refused-meanwhile",
        ),
        pytest.param([refused("a", None, 0, 1), cas(None, "a", 2, 3)], id="refused-as-nothing-is-there"),
        pytest.param([write("b", 0, 1), refused("a", "b", 2, 3)], id="refused-as-something-else-is-there"),
        pytest.param([cas(None, "a", 0), refused(None, None, 2, 3)], id="refused-for-one-of-unknown-outcome"),
        pytest.param([cas(None, "a", 0), read("a", 2, 3), cas("a", None, 4, 5)], id="unknown-and-it-was-met"),
        pytest.param(
            [cas(None, "a", 0, 1), write(None, 2), read(None, 4, 5), cas(None, "b", 6, 7)],
            id="deleted-by-one-of-unknown-outcome",
        ),
        pytest.param(
            [cas(None, "a", 0, 1), write(None, 2), read("a", 4, 5), cas(None, "b", 6, 7)],
            id="deleted-by-it-much-later",
        ),
        pytest.param(
            [write(None, 0, 9), read(None, 1, 2), cas(None, "a", 3, 4), read(None, 5, 6)],
            id="emptied-late-though-it-was-empty-before",
        ),
        pytest.param(
            [cas(None, "a", 0, 1), cas("x", None, 2), cas("a", None, 3), read(None, 4, 5)],
            id="deleted-by-one-of-two-of-unknown-outcome",
        ),
    ],
)
def test_histories_that_could_be(history: list[Operation]) -> None:
    assert check(history) is None


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([write("a", 0, 1), read(None, 2, 3)], id="stale"),
        pytest.param([write("a", 0, 9), read("a", 2, 3), read(None, 4, 5)], id="back-again"),
        pytest.param(
            [write("a", 0, 1), write("b", 0), read("b", 2, 3), read("a", 4, 5)], id="unknown-undone"
        ),
        pytest.param([read("x", 0, 1)], id="never-written"),
        pytest.param([read("a", 0, 1), write("a", 2)], id="unknown-and-read-before-its-call"),
        pytest.param([cas(None, "a", 0, 1), cas(None, "b", 2, 3)], id="created-twice"),
        pytest.param([cas(None, "a", 0, 9), cas(None, "b", 0, 9)], id="created-twice-at-once"),
        pytest.param([cas(None, "a", 0, 1), cas("a", None, 2, 9), cas("a", None, 2, 9)], id="deleted-twice"),
        pytest.param([cas("a", None, 0, 1)], id="deleted-what-never-was"),
        pytest.param(
            [cas(None, "a", 0, 1), write("b", 2, 3), cas("a", None, 4, 5)], id="deleted-what-is-no-more"
        ),
        pytest.param([refused(None, None, 0, 1)], id="refused-although-nothing-was-there"),
        pytest.param([cas(None, "a", 0, 1), refused("a", None, 2, 3)], id="refused-although-it-was-there"),
        pytest.param(
            [cas(None, "b", 0, 1), refused("a", None, 2, 3)], id="refused-for-nothing-although-something-was"
        ),
        pytest.param([cas(None, "b", 0, 1), refused("b", "b", 2, 3)], id="refused-for-what-it-expected"),
        pytest.param([refused(None, None, 0, 1), cas(None, "a", 2, 3)], id="refused-for-what-came-later"),
        pytest.param(
            [cas(None, "a", 0, 1), refused(None, None, 2, 3), read(None, 4, 5)], id="refused-and-yet-gone"
        ),
        pytest.param(
            [refused(None, None, 0, 1), cas(None, "a", 2)], id="refused-for-an-unknown-one-before-its-call"
        ),
        pytest.param(
            [cas(None, "a", 0, 1), write(None, 2), read(None, 4, 5), cas(None, "b", 6, 7), read(None, 8, 9)],
            id="one-of-unknown-outcome-happened-twice",
        ),
        pytest.param(
            [cas(None, "u", 0), refused(None, None, 2, 3), read(None, 4, 5)],
            id="unknown-created-and-gone-by-itself",
        ),
        pytest.param(
            [
                cas(None, "u", 0),
                write(None, 0),
                refused(None, None, 2, 3),
                read(None, 4, 5),
                refused(None, None, 6, 7),
            ],
            id="one-that-nobody-met-happened-twice",
        ),
        pytest.param([replace(write("a", 0, 1), key="j"), read("a", 2, 3)], id="another-key-s-value"),
    ],
)
def test_histories_that_cannot_be(history: list[Operation]) -> None:
    assert check(history) is not None


def could_be(history: Sequence[Operation]) -> bool:
    """Try every order, with every choice of those of unknown outcome left out."""
    optional = [done for done in history if done.ok is None]
    certain = [done for done in history if done.ok is not None]
    return any(
        _is_witness(order)
        for count in range(len(optional) + 1)
        for happened in itertools.combinations(optional, count)
        for order in itertools.permutations([*certain, *happened])
    )


def _is_witness(order: Sequence[Operation]) -> bool:
    value = None
    for position, done in enumerate(order):
        if any(later.returned is not None and later.returned < done.call for later in order[position + 1 :]):
            return False
        match done.op, done.ok:
            case "read", _:
                if value != done.result:
                    return False
            case "write", _:
                value = done.value
            case "cas", False:
                if value == done.expected or (done.expected is not None and value != done.result):
                    return False
            case "cas", _:
                if value != done.expected:
                    return False
                value = done.value
    return True


def random_history(rng: random.Random) -> list[Operation]:
    history: list[Operation] = []
    moments = iter(rng.sample(range(100), 20))
    for number in range(rng.randint(1, 6)):
        call, returned = sorted((next(moments), next(moments)))
        met = rng.choice([None, *(done.value for done in history if done.op != "read")])
        answered = None if rng.random() < 0.3 else returned
        history.append(
            rng.choice(
                [
                    read(met, call, returned),
                    write(rng.choice([None, str(number)]), call, answered),
                    cas(met, rng.choice([None, str(number)]), call, answered),
                    cas(None, str(number), call, answered),
                    refused(
                        met,
                        rng.choice([None, *(done.value for done in history)]) if met else None,
                        call,
                        returned,
                    ),
                ]
            )
        )
    return history


@pytest.mark.slow
def test_the_verdict_is_that_of_brute_force() -> None:
    rng = random.Random(1)
    verdicts = []
    for _ in range(2_000):
        history = random_history(rng)
        verdicts.append(could_be(history))
        assert (check(history) is None) == verdicts[-1], history
    assert 400 < sum(verdicts) < 1_600


def clients_of_one_register(rng: random.Random, *, operations: int, torn: float) -> list[Operation]:
    """Return what four clients asked and heard; each read is, with the chance `torn`, of the value before the last."""
    history: list[Operation] = []
    written: list[str | None] = [None, None]
    free_at = [0] * 4
    now = 0
    for number in range(operations):
        client = min(range(4), key=free_at.__getitem__)
        call = free_at[client]
        now = max(now, call) + 1
        returned = now + rng.randint(1, 6)
        if rng.random() < 0.5:
            is_known = rng.random() < 0.9
            history.append(write(str(number), call, returned if is_known else None))
            if is_known or rng.random() < 0.5:
                written.append(str(number))
        else:
            history.append(read(written[-2 if rng.random() < torn else -1], call, returned))
        free_at[client] = returned + 1
    return history


@pytest.mark.slow
def test_the_verdict_on_registers_is_that_of_the_other_checker() -> None:
    rng = random.Random(2)
    verdicts = []
    for _ in range(200):
        history = clients_of_one_register(rng, operations=60, torn=rng.choice((0, 0.02, 0.2)))
        other = registers.check(
            registers.Operation(
                key=done.key,
                value=(done.result if done.op == "read" else done.value) or registers.NEVER_WRITTEN,
                is_write=done.op == "write",
                began=done.call,
                ended=registers.INFINITY if done.returned is None else done.returned,
            )
            for done in history
        )
        verdicts.append(other is None)
        assert (check(history) is None) == verdicts[-1], history
    assert 40 < sum(verdicts) < 160


def test_many_of_unknown_outcome_do_not_keep_the_search() -> None:
    """Every other round proves that one creation and one deletion happened; the others may have, or may yet."""
    history = []
    for number in range(400):
        at = 10 * number
        history += [cas(None, str(number), at), write(None, at), read(None, at + 3, at + 4)]
        if number % 2:
            history.append(refused(None, None, at + 1, at + 2))
    assert check(history) is None
    assert check([*history, read("0", 4_001, 4_002)]) is None
    assert check([*history, read("400", 4_001, 4_002)]) is not None


def test_of_states_otherwise_the_same_those_that_used_least_are_kept() -> None:
    one_and_none, two_and_none, none_and_two = (
        _State("a", frozenset(), used) for used in ((1, 0), (2, 0), (0, 2))
    )
    other_value = _State("b", frozenset(), (2, 0))
    under_way = _State("a", frozenset({7}), (2, 0))
    kept = {one_and_none, none_and_two, other_value, under_way}
    assert set(_least_used([*kept, two_and_none])) == kept


def test_a_lost_write_in_a_long_history_is_found(tmp_path: Path) -> None:
    """Take one read of a long sound history back to a value long before."""
    history = []
    for number in range(200):
        history.append(write(f"v{number}", 10 * number, 10 * number + 3))
        history.append(read(f"v{number}", 10 * number + 4, 10 * number + 6))
    assert check(history) is None
    history[301] = replace(history[301], result="v149")
    assert check(history) is not None
    write_history(history, tmp_path / "h.jsonl")
    assert len((tmp_path / "h.jsonl").read_text().splitlines()) == 400
