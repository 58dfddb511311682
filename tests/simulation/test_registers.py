"""The checker of histories against hand-made histories and brute force."""

import itertools
import random
from collections.abc import Sequence

import pytest

from tests.simulation.rules.registers import INFINITY, NEVER_WRITTEN, Operation, check


def write(value: str, began: float, ended: float = INFINITY) -> Operation:
    return Operation(key="k", value=value, is_write=True, began=began, ended=ended)


def read(value: str, began: float, ended: float) -> Operation:
    return Operation(key="k", value=value, is_write=False, began=began, ended=ended)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [read(NEVER_WRITTEN, 0, 1), write("a", 2, 3), read("a", 4, 5)],
        [write("a", 0, 9), read("a", 1, 2), write("b", 3, 4), read("b", 5, 6)],
        [write("a", 0, 9), write("b", 0, 9), read("b", 10, 11)],
        [write("a", 0, 1), write("b", 2), read("a", 3, 4), read("b", 5, 6)],
        [write("a", 0, 1), write("b", 2), read("a", 30, 40)],
        [write("a", 0, 3), read(NEVER_WRITTEN, 1, 2)],
    ],
)
def test_histories_that_one_register_could_have(history: list[Operation]) -> None:
    assert check(history) is None


@pytest.mark.parametrize(
    "history",
    [
        [write("a", 0, 1), read(NEVER_WRITTEN, 2, 3)],
        [write("a", 0, 1), write("b", 2, 3), read("a", 4, 5)],
        [write("a", 0, 9), read("a", 1, 2), read(NEVER_WRITTEN, 3, 4)],
        [write("a", 0, 1), write("b", 2), read("b", 3, 4), read("a", 5, 6)],
        [read("a", 0, 1), write("a", 2, 3)],
        [read("x", 0, 1)],
    ],
)
def test_histories_that_no_register_could_have(history: list[Operation]) -> None:
    assert check(history) is not None


def possible(history: Sequence[Operation]) -> bool:
    """Try every order, with every choice of unanswered writes left out."""
    optional = [operation for operation in history if operation.ended == INFINITY]
    for count in range(len(optional) + 1):
        for left_out in itertools.combinations(optional, count):
            kept = [operation for operation in history if not any(operation is other for other in left_out)]
            if any(_is_witness(order) for order in itertools.permutations(kept)):
                return True
    return False


def _is_witness(order: Sequence[Operation]) -> bool:
    value = NEVER_WRITTEN
    for position, operation in enumerate(order):
        if any(later.ended < operation.began for later in order[position + 1 :]):
            return False
        if operation.is_write:
            value = operation.value
        elif operation.value != value:
            return False
    return True


def test_the_verdict_is_that_of_brute_force() -> None:
    rng = random.Random(1)
    verdicts = []
    for _ in range(400):
        moments = iter(rng.sample(range(100), 12))
        history = []
        for number in range(rng.randint(1, 5)):
            began, ended = sorted((next(moments), next(moments)))
            if rng.random() < 0.5:
                history.append(write(str(number), began, INFINITY if rng.random() < 0.2 else ended))
            else:
                values = [operation.value for operation in history if operation.is_write]
                history.append(read(rng.choice([*values, NEVER_WRITTEN]), began, ended))
        verdicts.append(possible(history))
        assert (check(history) is None) == verdicts[-1], history
    assert 100 < sum(verdicts) < 390
