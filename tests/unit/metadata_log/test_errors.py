"""Pure: which error of a group is the most telling one."""

import pytest

from metadata_log.errors import (
    DiskFailed,
    Fault,
    IdsExhausted,
    InvalidRequest,
    error_named,
    leaves,
    most_telling,
)

FAULT, REFUSAL, BUG, STOP = DiskFailed("d"), InvalidRequest("r"), ValueError("b"), KeyError("s")


@pytest.mark.parametrize(
    ("errors", "foremost"),
    [
        ([STOP, BUG, ExceptionGroup("inner", [REFUSAL, FAULT])], FAULT),
        ([STOP, BUG, REFUSAL], REFUSAL),
        ([STOP, BUG], BUG),
        ([STOP], STOP),
    ],
)
def test_a_fault_tells_most_and_a_stop_least(errors: list[Exception], foremost: Exception) -> None:
    assert most_telling(leaves(ExceptionGroup("tasks", errors)), least=KeyError) is foremost


def test_only_a_refusal_by_that_name_is_no_fault_of_the_peer() -> None:
    assert isinstance(error_named("UNKNOWN_SERVER_ERROR", "", family="Rejected"), IdsExhausted)
    for family in (None, "Fault"):
        assert type(error_named("UNKNOWN_SERVER_ERROR", "", family=family)) is Fault


def test_the_first_of_equals_is_taken() -> None:
    assert most_telling([BUG, STOP]) is BUG


def test_a_group_that_is_an_error_of_its_own_stays_whole() -> None:
    whole = ExceptionGroup("of the block", [BUG])
    assert list(leaves(ExceptionGroup("tasks", [whole, STOP]), whole=whole)) == [whole, STOP]
