"""Pure: the states of a node of Raft, as their whole table, and the drawings that are made from it."""

from collections.abc import Callable

import pytest

from metadata_log.errors import InvariantBroken
from quorum.raft.node_state import EDGES, Edge, NodeState, State
from tests.state_page import PAGE, written

METHODS: dict[Edge, Callable[[NodeState], object]] = {
    Edge.STARTED: NodeState.started,
    Edge.TAKES_PART: NodeState.takes_part,
    Edge.ELECTED: NodeState.elected,
    Edge.ELECTED_BEHIND: NodeState.elected_behind,
    Edge.CAUGHT_UP: NodeState.caught_up,
    Edge.CONFIRMED: NodeState.confirmed,
    Edge.CEASED: NodeState.ceased,
    Edge.CLOSED: NodeState.closed,
    Edge.ENDED: NodeState.ended,
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("edge", Edge)
def test_each_edge_has_one_method_and_leads_where_the_table_says(state: State, edge: Edge) -> None:
    node = NodeState()
    node.now = state
    to = EDGES[state].get(edge)
    if to is None:
        with pytest.raises(InvariantBroken, match=edge.value):
            METHODS[edge](node)
        assert node.now is state
    else:
        METHODS[edge](node)
        assert node.now is to


def test_it_leads_exactly_once_its_log_is_applied() -> None:
    leads = []
    for state in State:
        node = NodeState()
        node.now = state
        leads += [state] if node.leads else []
    assert leads == [State.LEADS_UNCONFIRMED, State.LEADS]


@pytest.mark.parametrize("state", [State.LEADS_UNCONFIRMED, State.LEADS])
def test_who_led_is_known_at_its_end(state: State) -> None:
    """Goal: the listener learns exactly once that a leadership has ended, by a loss or by a stop."""
    for end in (NodeState.ceased, NodeState.closed):
        node = NodeState()
        node.now = state
        assert end(node)
        assert not node.closed()


def test_the_drawings_are_those_of_the_tables() -> None:
    """Write them with `python -m tests.state_page`."""
    page = PAGE.read_text()
    assert page == written(page)
