"""Edge: A poll is in one state, and moves as the table says."""

import itertools

import pytest

from metadata_log.errors import NotController
from metadata_log.node.identity.rights import ANYBODY
from quorum.controller.callers import Caller
from quorum.fetch.poll import MOVES, Outcome, Poll, PollEvent, PollState
from tests.support.lab import fetch_of


def made(state: PollState, outcomes: list[Outcome]) -> Poll:
    request = fetch_of(11, 5, applied=7)
    poll = Poll(request, Caller(ANYBODY), arrived_ms=1, arrived_end=7, done=outcomes.append)
    poll.state = state
    return poll


@pytest.mark.parametrize(("state", "event"), list(itertools.product(PollState, PollEvent)))
def test_only_the_moves_of_the_table_are_made(state: PollState, event: PollEvent) -> None:
    poll = made(state, [])
    to = MOVES[state].get(event)
    if to is not None:
        poll.on(event)
        assert poll.state is to
    else:
        with pytest.raises(AssertionError, match=f"{event.name} of a poll that is {state.name}"):
            poll.on(event)


@pytest.mark.parametrize("state", list(PollState))
def test_each_poll_has_one_outcome_wherever_it_is(state: PollState) -> None:
    outcomes: list[Outcome] = []
    poll = made(state, outcomes)
    refusal = NotController("no controller is active now", controller_id=-1)
    for _ in range(2):
        poll.finish(refusal)
    assert poll.is_over
    assert outcomes == ([] if state is PollState.OVER else [refusal])


def test_a_poll_is_answered_only_after_a_proof_or_with_a_commit_of_its_own() -> None:
    """What was refused, or has no proof yet, is never due."""
    assert {state for state, moves in MOVES.items() if PollState.DUE in moves.values()} == {
        PollState.ARRIVED,
        PollState.WAITING,
        PollState.PROVING,
        PollState.COLD,
    }
    assert all(PollEvent.ENDED in moves for state, moves in MOVES.items() if state is not PollState.OVER)
