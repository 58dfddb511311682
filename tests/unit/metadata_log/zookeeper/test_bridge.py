"""The steps from ZooKeeper to a quorum: their order, what is refused before each, and what the refusal says to do."""

import json

import pytest

from metadata_log.zookeeper.bridge import NAMED_MAX, Step, claim, is_claimed_by, refusals, steps
from metadata_log.zookeeper.imported import Imported, imported
from metadata_log.zookeeper.layout import Node
from metadata_log.zookeeper.values import ControllerNode, read
from tests.unit.metadata_log.zookeeper.test_imported import WHOLE
from tests.unit.metadata_log.zookeeper.test_topics import topic, tree

CLUSTER = "xLsWgpSwTl--KVWOvwWCeQ"


def refused(found: Imported, *, node_id: int = 3000, cluster_id: str = CLUSTER) -> list[str]:
    return [*refusals(found, node_id=node_id, cluster_id=cluster_id)]


def test_a111_the_steps_come_in_one_order() -> None:
    """Stopped, then claimed, then read, then written: what is read before the claim may still change."""
    order, done = [], None
    while (after := steps(done)) is not None:
        order.append(after)
        done = after
    assert order == [Step.STOPPED, Step.CLAIMED, Step.READ, Step.WRITTEN]


def test_a110_a_cluster_of_the_bridge_release_is_taken_over() -> None:
    assert refused(tree(WHOLE)) == []


def test_a110_an_older_cluster_is_refused_until_the_bridge_release_has_run_it() -> None:
    """Old to here: refused. Old to 3.9 to here: its controller has given each topic an id."""
    old = {**WHOLE, "/brokers/topics/t": '{"version":1,"partitions":{"0":[1],"1":[1]}}'}
    (reason,) = refused(
        tree({**old, "/brokers/topics/t/partitions/0/state": '{"leader":1,"isr":[1],"leader_epoch":0}'})
    )
    assert reason.startswith("1 topics have no id") and "Upgrade it to 3.9 first" in reason
    assert refused(tree({**WHOLE, "/brokers/topics/t": topic({"0": [2, 1], "1": [1, 2]})})) == []


def test_brokers_that_run_are_named_with_their_addresses() -> None:
    (reason,) = refused(tree({**WHOLE, "/brokers/ids/1": "h:9092", "/brokers/ids/2": "i:9092"}))
    assert "1 (h:9092), 2 (i:9092). Stop them all" in reason


def controller(text: str, *, is_ephemeral: bool) -> Imported:
    nodes = [Node("/controller", text.encode(), 0, is_ephemeral)]
    nodes.append(Node("/cluster/id", json.dumps(WHOLE["/cluster/id"]).encode()))
    nodes.append(Node("/controller_epoch", b"17"))
    return imported(nodes, None)  # type: ignore[arg-type]  # nothing is drawn


def test_a_broker_that_is_the_controller_is_named() -> None:
    (reason,) = refused(controller('{"version":1,"brokerid":2}', is_ephemeral=True))
    assert reason == "broker 2 is the controller: stop it, as all brokers"


@pytest.mark.parametrize(("node_id", "is_refused"), [(3000, False), (3001, True)])
def test_a111_our_own_claim_is_held_on_and_that_of_others_refused(node_id: int, is_refused: bool) -> None:
    text = claim(3000, 18, 1_700_000_000_000).decode()
    found = refused(controller(text, is_ephemeral=False), node_id=node_id)
    assert [reason.startswith("/controller is held for controller 3000 in epoch 18") for reason in found] == (
        [True] if is_refused else []
    )


def test_a111_the_claim_is_what_a_kraft_controller_of_kafka_writes() -> None:
    """Source: ControllerZNode.encode of 3.9."""
    assert claim(3000, 18, 1_700_000_000_000) == (
        b'{"version":2,"brokerid":3000,"timestamp":"1700000000000","kraftControllerEpoch":18}'
    )
    assert is_claimed_by(read(ControllerNode, claim(3000, 18, 1)), 3000)
    assert not is_claimed_by(ControllerNode(brokerid=3000, version=2), 3000), "that is a broker of this id"
    assert not is_claimed_by(None, 3000)


def test_b89_a_migration_that_was_begun_is_refused() -> None:
    (reason,) = refused(tree({**WHOLE, "/migration": {"kraft_controller_id": 3000}}))
    assert "a migration to KRaft was begun by controller 3000" in reason


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("/cluster/id", '{"version":"1","id":"another"}', 'Write cluster_id = "another" into the settings'),
        ("/controller_epoch", "0", "no broker was ever the controller"),
        ("/config/clients/c", "{", "/config/clients/c: Input data was truncated"),
    ],
)
def test_what_else_is_refused(path: str, value: str, reason: str) -> None:
    (found,) = refused(tree({**WHOLE, path: value}))
    assert reason in found


def test_a_tree_that_is_none_of_kafkas_is_refused() -> None:
    (reason,) = refused(tree({"/hbase": ""}))
    assert "there is no /cluster/id" in reason


def test_many_damaged_nodes_make_one_more_line() -> None:
    found = refused(tree({**WHOLE, **{f"/config/clients/{number}": "{" for number in range(NAMED_MAX + 5)}}))
    assert len(found) == NAMED_MAX + 1 and found[-1] == "5 further nodes cannot be read"
