"""Pure: what a change rests on, step by step."""

from typing import Any

from ops.admin.steps_back import STEPS_MAX, StepsBack


def about(offset: int, rests_on: int | None) -> dict[str, Any]:
    return {
        "offset": offset,
        "time_ms": offset * 10,
        "why": f"why {offset}",
        "actor": "User:a",
        "request_id": None,
        "rests_on": rests_on,
        "changed": "not told",
    }


def test_the_nearest_step_comes_first_and_the_last_has_no_cause() -> None:
    back = StepsBack()
    back.remember(about(3, None))
    back.remember(about(7, 3))
    assert [step["offset"] for step in back.of(about(9, 7))] == [7, 3]
    assert back.of(about(9, 7))[0] == {
        "offset": 7,
        "time_ms": 70,
        "why": "why 7",
        "actor": "User:a",
        "request_id": None,
    }
    assert back.of(about(9, None)) == []


def test_what_lies_before_the_log_has_its_offset_alone() -> None:
    (step,) = StepsBack().of(about(9, 5))
    assert (step["offset"], step["why"]) == (5, None)


def test_a_chain_is_bounded() -> None:
    back = StepsBack()
    for offset in range(1, 50):
        back.remember(about(offset, offset - 1 if offset > 1 else None))
    assert len(back.of(about(50, 49))) == STEPS_MAX
