"""Pure: a roll of controllers and brokers: which node is next, what makes its restart unsafe, and when it is back.

How far a roll is, the log says: each process registers, so a node that registered at or after the offset at which the roll
began is rolled. Nothing else is kept.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from metadata_log.ids import BrokerId, NodeId, TopicId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import VOTER_CAUGHT_UP_MS
from metadata_log.records.brokers import BrokerEndpoint
from quorum.whatif.cluster import Cluster, Options
from quorum.whatif.losses import Suffering, roll

Role: TypeAlias = Literal["controller", "broker"]


class Node(NamedTuple):
    """A process that is registered; `registered` is the offset of its registration."""

    role: Role
    id: int
    host: str
    incarnation_id: Uuid
    registered: int

    @property
    def name(self) -> str:
        return f"{self.role} {self.id}"


class View(NamedTuple):
    """A cluster at one moment: its state, and its voters as the leader sees them."""

    image: MetadataImage
    leader_id: int
    voters: Sequence[Mapping[str, Any]]

    def is_down(self, node: Node) -> bool:
        """Answer whether a node is out of service already: to restart it can do no harm."""
        if node.role == "broker":
            return not self.image.is_active(BrokerId(node.id))
        voter = _voter(self.voters, node.id)
        return voter is not None and not voter["reachable"]

    def leads(self, node: Node) -> bool:
        return node.role == "controller" and node.id == self.leader_id


def in_order(view: View, roles: Collection[Role]) -> list[Node]:
    """Return the nodes in the order in which they are restarted: controllers, the leader last of them, then brokers.

    Those that are down come first.
    """
    found = [one for one in _nodes(view.image) if one.role in roles]
    return sorted(
        found,
        key=lambda one: (one.role == "broker", not view.is_down(one), view.leads(one), one.id),
    )


def left(nodes: Iterable[Node], since: int) -> list[Node]:
    """Return the nodes that have not registered since an offset."""
    return [one for one in nodes if one.registered < since]


def node_now(image: MetadataImage, node: Node) -> Node | None:
    """Return a node as it is registered now."""
    return next((one for one in _nodes(image) if (one.role, one.id) == (node.role, node.id)), None)


def _nodes(image: MetadataImage) -> Iterator[Node]:
    for controller_id, controller in sorted(image.controllers.items()):
        yield Node(
            "controller",
            controller_id,
            _host(controller.endpoints),
            controller.incarnation_id,
            controller.registration_epoch,
        )
    for broker_id, broker in sorted(image.brokers.items()):
        yield Node("broker", broker_id, _host(broker.endpoints), broker.incarnation_id, broker.broker_epoch)


def _host(endpoints: Sequence[BrokerEndpoint]) -> str:
    return endpoints[0].host if endpoints else ""


# --- is it safe?


def why_no_majority(view: View, node_id: int) -> str | None:
    """Return why the quorum could not commit without a controller; None: it can, or the controller does not vote."""
    if _voter(view.voters, NodeId(node_id)) is None:
        return None
    others = [one for one in view.voters if one["id"] != node_id]
    able = [one["id"] for one in others if _is_caught_up(one)]
    majority = len(view.voters) // 2 + 1
    if len(able) >= majority:
        return None
    return (
        f"of {len(view.voters)} voters only {able} would be left that hold the whole log, and {majority} must"
    )


def _is_caught_up(voter: Mapping[str, Any]) -> bool:
    ago = voter["last_caught_up_ms_ago"]
    return voter["reachable"] and ago is not None and ago <= VOTER_CAUGHT_UP_MS


def suffering(image: MetadataImage, options: Options, broker_id: BrokerId) -> tuple[Suffering, ...]:
    """Return the partitions that an orderly stop of a broker leaves without a leader or below min.insync.replicas."""
    stopped = next(roll(Cluster(options, image), [broker_id]))
    return stopped.suffering


def told(suffers: Sequence[Suffering]) -> str:
    """Return what the first of some partitions suffers, and how many there are."""
    one = suffers[0]
    what = (
        "would have no leader"
        if one.is_leaderless
        else f"would have {len(one.isr)} in-sync replicas of the {one.min_isr} of min.insync.replicas"
    )
    more = f", and {len(suffers) - 1:,} partitions more suffer" if len(suffers) > 1 else ""
    return f"{one.topic}:{one.partition_id} {what}{more}"


# --- is it back?


def in_sync_on(image: MetadataImage, broker_id: BrokerId) -> frozenset[tuple[TopicId, int]]:
    """Return the partitions whose ISR a broker is in."""
    return frozenset(
        (topic_id, partition_id)
        for topic_id, partition_id, partition in image.topics.partitions_on(broker_id)
        if broker_id in partition.isr
    )


def why_not_back(view: View, before: Node, in_sync: Collection[tuple[TopicId, int]]) -> str | None:
    """Return what a node that was restarted still lacks; None: it is back.

    `before` is the node as it was, `in_sync` the partitions whose ISR it was in. Partitions that are gone, or have no
    replica there any more, do not count.
    """
    now = node_now(view.image, before)
    if now is None or now.incarnation_id == before.incarnation_id:
        return "no new process has registered"
    if view.is_down(before):
        return "it is registered, and not in service yet"
    if before.role == "controller":
        voter = _voter(view.voters, before.id)
        return None if voter is None or _is_caught_up(voter) else "it does not hold the whole log yet"
    broker_id = BrokerId(before.id)
    lacking = 0
    for key in in_sync:
        partition = view.image.topics.partition(key)
        lacking += (
            partition is not None and broker_id in partition.replicas and broker_id not in partition.isr
        )
    return f"{lacking:,} ISRs lack it" if lacking else None


def _voter(voters: Iterable[Mapping[str, Any]], node_id: int) -> Mapping[str, Any] | None:
    return next((one for one in voters if one["id"] == node_id), None)
