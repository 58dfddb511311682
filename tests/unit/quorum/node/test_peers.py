"""Edge: where the other controllers are reached, and what a node does that a majority refuses."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from metadata_log.errors import QuorumRefused
from metadata_log.ids import NodeId
from metadata_log.limits import VOTER_CAUGHT_UP_MS
from metadata_log.records.quorum import RAFT_ENDPOINT, Voter, VoterEndpoint
from quorum.node.config import VoterSettings
from quorum.node.peers import Peers, dialled_addresses
from quorum.raft.handshake import TOO_MANY_OBSERVERS
from tests.support.lab import settings, uuid

OTHERS = (NodeId(2), NodeId(3))


def controller(**linked: str) -> tuple[Peers, Any]:
    """Return the peers of node 1 of three, and the transport that they look at."""
    transport = SimpleNamespace(
        members={
            NodeId(int(node[1:])): SimpleNamespace(http=url, raft=f"r{node}") for node, url in linked.items()
        },
        refusals={},
        voters=dict.fromkeys((NodeId(1), *OTHERS)),
        on_refused=None,
    )
    return Peers(settings(1), cast("Any", transport)), transport


def test_what_a_controller_reports_goes_before_the_settings() -> None:
    peers, _ = controller(n2="http://moved:80", n4="http://new:80")
    configured = settings(1).url_of(NodeId(3))
    assert configured is not None
    assert peers.url_of(NodeId(2)) == "http://moved:80"
    assert peers.url_of(NodeId(3)) == configured and peers.url_of(NodeId(5)) is None
    assert (peers.address_of(NodeId(2)), peers.address_of(NodeId(3))) == ("rn2", None)
    assert peers.urls() == ["http://moved:80", configured, "http://new:80"]
    assert peers.urls(first=NodeId(4)) == ["http://new:80", "http://moved:80", configured]


def test_controllers_that_follow_closely_are_named_in_turn() -> None:
    peers, _ = controller(n2="http://a:80", n3="http://b:80", n4="http://c:80")

    def status(*caught_up: int | None) -> Any:
        return SimpleNamespace(
            peers=[
                SimpleNamespace(node_id=NodeId(node_id), reachable=node_id != 4, last_caught_up_ms_ago=ago)
                for node_id, ago in zip((2, 3, 4), caught_up, strict=True)
            ]
        )

    assert {peers.next_read_replica(status(0, 0, 0)) for _ in range(2)} == {"http://a:80", "http://b:80"}
    assert peers.next_read_replica(status(None, VOTER_CAUGHT_UP_MS, 0)) == "http://b:80"
    assert peers.next_read_replica(status(None, VOTER_CAUGHT_UP_MS + 1, 0)) is None


@pytest.mark.parametrize(
    ("refusals", "stops"),
    [
        (("OTHER_CLUSTER",), False),
        (("OTHER_CLUSTER", "OTHER_CLUSTER"), True),
        (("OTHER_CLUSTER", TOO_MANY_OBSERVERS), False),
    ],
)
def test_a_node_that_most_others_refuse_stops(refusals: tuple[str, ...], stops: bool) -> None:
    _, transport = controller()
    transport.refusals = {
        node_id: SimpleNamespace(error=error) for node_id, error in zip(OTHERS, refusals, strict=False)
    }
    if stops:
        with pytest.raises(QuorumRefused, match="the other voters refuse this one"):
            transport.on_refused(NodeId(2), "OTHER_CLUSTER", "why")
    else:
        transport.on_refused(NodeId(2), "OTHER_CLUSTER", "why")


def test_the_settings_address_of_a_voter_goes_before_the_logs() -> None:
    def logged(node_id: int, port: int) -> Voter:
        endpoint = VoterEndpoint(RAFT_ENDPOINT, "logged", port)
        return Voter(NodeId(node_id), uuid(node_id), (endpoint,), 0, 1)

    image: Any = SimpleNamespace(quorum=SimpleNamespace(voters=(logged(2, 1), logged(9, 2))))
    own = settings(1)
    (second,) = (voter for voter in own.voters if voter.id == 2)
    assert isinstance(second, VoterSettings)
    addresses = dialled_addresses(own, image)
    assert addresses[NodeId(2)] == second.raft and addresses[NodeId(9)] == ("logged", 2)
