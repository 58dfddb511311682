"""Pure: the steps from ZooKeeper to a quorum, their order, and what is refused on the way.

The release that bridges is 3.9: the last whose brokers run under ZooKeeper, and one whose logs every later release opens.
An older one comes in two steps: to 3.9 under ZooKeeper, then here. Source: KIP-500, "Bridge release"; KIP-866.
Tests: tests/unit/metadata_log/zookeeper/test_bridge.py.
"""

import enum
from collections.abc import Iterator
from typing import Final

import msgspec

from metadata_log.zookeeper.imported import Imported
from metadata_log.zookeeper.values import ControllerNode

BRIDGE: Final = "3.9"
CONTROLLER_PATH: Final = "/controller"
EPOCH_PATH: Final = "/controller_epoch"
CHECKED_FIRST: Final = ("/brokers/ids", CONTROLLER_PATH, EPOCH_PATH, "/cluster/id", "/migration")
"""What tells whether a cluster is stopped, and which it is: a few nodes, of any tree."""
NAMED_MAX: Final = 20
"""Nodes that one message names."""


class Step(enum.IntEnum):
    """What is done, in this order; each needs that the one before is done."""

    STOPPED = 1
    """No broker and no controller of the old cluster runs, and its release is the one that bridges."""
    CLAIMED = 2
    """The quorum's controller holds `/controller`, above the last epoch: no broker can become the controller."""
    READ = 3
    """All of the tree was read, after the claim: nothing else writes it."""
    WRITTEN = 4
    """A controller's directory begins with what was read."""


def steps(done: Step | None) -> Step | None:
    """Return the step that comes after one; None: all are done."""
    after = 1 if done is None else done + 1
    return Step(after) if after <= Step.WRITTEN else None


def claim(node_id: int, epoch: int, unix_ms: int) -> bytes:
    """Return what a controller of ours writes to `/controller`, as a KRaft controller does in Kafka's migration."""
    told = {"version": 2, "brokerid": node_id, "timestamp": str(unix_ms), "kraftControllerEpoch": epoch}
    return msgspec.json.encode(told)


def is_claimed_by(controller: ControllerNode | None, node_id: int) -> bool:
    """Answer whether `/controller` has the claim of this controller of ours, by an earlier call or by this one."""
    return controller is not None and controller.kraft_epoch >= 0 and controller.brokerid == node_id


def refusals(found: Imported, *, node_id: int, cluster_id: str) -> Iterator[str]:
    """Yield why a tree cannot be taken over by controller `node_id` of a cluster, each with the cure."""
    if found.brokers:
        named = ", ".join(
            f"{broker.broker_id} ({', '.join(broker.endpoints)})" for broker in found.brokers[:NAMED_MAX]
        )
        yield (
            f"brokers run under ZooKeeper: {named}. Stop them all; a killed one is gone once its session has ended "
            "(zookeeper.session.timeout.ms, 18 s by default)"
        )
    controller = found.controller
    if found.controller_is_ephemeral and controller is not None:
        yield f"broker {controller.brokerid} is the controller: stop it, as all brokers"
    elif controller is not None and not is_claimed_by(controller, node_id):
        yield (
            f"{CONTROLLER_PATH} is held for controller {controller.brokerid} in epoch {controller.kraft_epoch}: another "
            f"quorum has taken this cluster over. If it never will, delete {CONTROLLER_PATH} in ZooKeeper's shell"
        )
    if found.migrated_to is not None:
        yield (
            f"a migration to KRaft was begun by controller {found.migrated_to} (/migration): finish it and use "
            "`storage import-kafka`, or take it back as Kafka's documentation says"
        )
    if found.cluster_id is None:
        yield "there is no /cluster/id: name the part of the ensemble that Kafka uses, such as host:2181/kafka"
    elif found.cluster_id != cluster_id:
        yield (
            f"the tree is of cluster {found.cluster_id}, and the settings of {cluster_id}: brokers know their cluster by "
            f'its id. Write cluster_id = "{found.cluster_id}" into the settings, and format the directory so'
        )
    elif not found.controller_epoch:
        yield f"there is no {EPOCH_PATH}, or it is 0: no broker was ever the controller, so there is nothing to take over"
    if found.topics_without_id:
        yield (
            f"{found.topics_without_id} topics have no id, so the cluster is older than 2.8, or its "
            f"inter.broker.protocol.version is. Upgrade it to {BRIDGE} first, with that setting at {BRIDGE}, and start it: "
            "its controller gives each topic an id"
        )
    for path, why in found.findings.damaged[:NAMED_MAX]:
        yield f"{path}: {why}. Correct the node in ZooKeeper's shell, or delete the topic, under {BRIDGE}"
    if (more := len(found.findings.damaged) - NAMED_MAX) > 0:
        yield f"{more} further nodes cannot be read"
