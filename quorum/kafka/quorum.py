"""Edge: the quorum in Kafka's protocol: it is described, and its voters are changed."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from metadata_log.errors import InconsistentClusterId, InvalidRequest, NotController
from metadata_log.ids import NodeId, Uuid
from metadata_log.kafka.reading import Values
from metadata_log.node.addresses import read_address
from metadata_log.records.quorum import KAFKA_ENDPOINT
from quorum.decide.quorum import AddVoter, RemoveVoter, has_static_voters
from quorum.fetch.service import NO_DIRECTORY
from quorum.kafka.door import NO_THROTTLE, Api, Asked, KafkaDoor, Waits
from quorum.kafka.errors import NONE, KafkaError
from quorum.raft.raft_log import PeerStatus

DESCRIBE_QUORUM, ADD_VOTER, REMOVE_VOTER = 55, 80, 81
TOPIC: Final = "__cluster_metadata"
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER = 3, 6
NODES_FROM: Final = 2
"""The first version whose answer has the addresses of the voters, and the directory ids of all."""
UNKNOWN: Final = -1
"""An offset, a time or an id that is not known here."""


# --- description


async def describe_quorum(door: KafkaDoor, asked: Asked) -> Values:
    """Return the quorum's partition, once a majority confirms that this controller leads; Kafka's tools ask for it alone.

    Raises:
        InvalidRequest: several partitions are asked for, or several topics.
        NotController: not active, or no longer.
    """
    [topics] = asked.values
    if not _is_short(topics):
        raise InvalidRequest("ask for one partition of one topic: the quorum has no other")
    await door.controller.read(lambda image: image)
    rows = [
        (topic, [_partition(door, topic, partition_id, asked.version) for (partition_id,) in partitions])
        for topic, partitions in topics
    ]
    return (NONE, None, rows, tuple(_nodes(door)) if asked.version >= NODES_FROM else ())


def _is_short(topics: Sequence[Values]) -> bool:
    """Answer whether a request names one partition at most: 2 MiB may name 400,000, each of which would get a row."""
    return len(topics) <= 1 and all(len(partitions) <= 1 for _, partitions in topics)


def _partition(door: KafkaDoor, topic: str, partition_id: int, version: int) -> Values:
    if (topic, partition_id) != (TOPIC, 0):
        error = KafkaError(UNKNOWN_TOPIC_OR_PARTITION, "the quorum has one partition of one topic")
        return _unknown_partition(partition_id, error)
    committed = door.controller.committed
    raft = door.status.raft()
    now_ms = door.controller.time_of_day_ms()
    peers = {(peer.node_id, peer.directory_id): peer for peer in raft.peers}
    voters = [
        _replica(door, node_id, directory_id, peers.get((node_id, directory_id)), now_ms)
        for node_id, directory_id in sorted(raft.voters.items())
    ]
    observers = [
        _replica(door, peer.node_id, peer.directory_id, peer, now_ms)
        for peer in raft.peers
        if not peer.is_voter
    ]
    observers += [_replica(door, peer.node_id, peer.directory_id, peer, now_ms) for peer in raft.gone]
    observers += _brokers(door, now_ms)
    if version < NODES_FROM:
        voters, observers = map(_without_directories, (voters, observers))
    elif has_static_voters(committed):
        voters = _without_directories(voters)
    return (
        partition_id,
        NONE,
        None,
        door.settings.node_id,
        committed.controller_epoch,
        committed.end_offset,
        voters,
        observers,
    )


def _without_directories(replicas: Sequence[Values]) -> list[Values]:
    return [(node_id, NO_DIRECTORY, *rest) for node_id, _, *rest in replicas]


def _replica(
    door: KafkaDoor, node_id: NodeId, directory_id: Uuid, peer: PeerStatus | None, now_ms: int
) -> Values:
    """Return a controller, its log's end, and when it last fetched and was caught up.

    Of the log of one that is behind only the number of missing entries is known. Each counts as one record here, and most
    have more. So the end that is told is an upper bound, but for entries without a committed record: those under way, and
    the one with which a leadership begins.
    """
    end_offset = door.controller.committed.end_offset
    if (node_id, directory_id) == (door.settings.node_id, door.status.directory_id):
        return (node_id, directory_id, end_offset, now_ms, now_ms)
    if peer is None:
        return (node_id, directory_id, UNKNOWN, UNKNOWN, UNKNOWN)
    return (
        node_id,
        directory_id,
        UNKNOWN if peer.entries_behind is None else max(end_offset - peer.entries_behind, 0),
        _time(peer.last_fetch_ms_ago, now_ms),
        _time(peer.last_caught_up_ms_ago, now_ms),
    )


def _time(ms_ago: int | None, now_ms: int) -> int:
    return UNKNOWN if ms_ago is None else now_ms - ms_ago


def _brokers(door: KafkaDoor, now_ms: int) -> Iterator[Values]:
    """Yield the brokers that fetch here, Kafka's and ours: what each has read, when it last fetched and was caught up.

    Our brokers' polls name no directory.
    """
    began_ms = now_ms - door.now_ms()
    for each in chain(door.kafka_log.fetches.observers(), door.fetches.observers()):
        caught_up_ms = each.last_caught_up_ms
        yield (
            each.replica_id,
            each.directory_id,
            each.log_end_offset,
            began_ms + each.last_fetch_ms,
            UNKNOWN if caught_up_ms is None else began_ms + caught_up_ms,
        )


def _nodes(door: KafkaDoor) -> Iterator[Values]:
    """Yield the voters with the address at which brokers and tools reach them."""
    name = door.settings.kafka.listener_name
    for voter in door.controller.committed.quorum.voters or ():
        address = voter.address(KAFKA_ENDPOINT)
        if address is not None:
            yield (voter.node_id, [(name, *address)])


def _unknown_partition(partition_id: int, error: KafkaError) -> Values:
    return (partition_id, error.code, error.message, UNKNOWN, UNKNOWN, UNKNOWN, (), ())


def _refused(_api: Api, asked: Asked, error: KafkaError) -> Values:
    """Return an error for the partition, as Kafka's Raft client answers; one for the whole where many are asked for."""
    if error.code == NotController.code:
        error = KafkaError(NOT_LEADER_OR_FOLLOWER, error.message)
    [topics] = asked.values
    if not topics or not _is_short(topics):
        return (error.code, error.message, (), ())
    rows = [
        (topic, [_unknown_partition(partition_id, error) for (partition_id,) in partitions])
        for topic, partitions in topics
    ]
    return (NONE, None, rows, ())


# --- voters


async def add_voter(door: KafkaDoor, asked: Asked) -> Values:
    """Make an observer a voter. The request names the address for Kafka's brokers; that for Raft the observer has told."""
    cluster_id, _, voter_id, directory_id, _, _ = asked.values
    _check_cluster(door, cluster_id)
    address = door.status.address(NodeId(voter_id))
    if address is None:
        raise InvalidRequest(
            f"controller {voter_id} is not linked with the active one: start it, or use metaquorum quorum add-voter"
        )
    host, port = read_address(address)
    command = AddVoter(
        voter_id=NodeId(voter_id), directory_id=Uuid(directory_id), host=host, port=port, validate_only=False
    )
    await door.controller.submit(command, asked.caller)
    return (NO_THROTTLE, NONE, None)


async def remove_voter(door: KafkaDoor, asked: Asked) -> Values:
    cluster_id, voter_id, directory_id = asked.values
    _check_cluster(door, cluster_id)
    command = RemoveVoter(voter_id=NodeId(voter_id), directory_id=Uuid(directory_id), validate_only=False)
    await door.controller.submit(command, asked.caller)
    return (NO_THROTTLE, NONE, None)


def _check_cluster(door: KafkaDoor, cluster_id: str | None) -> None:
    if cluster_id not in (None, door.settings.cluster_id):
        raise InconsistentClusterId(f"this is cluster {door.settings.cluster_id}")


APIS: Final = (
    Api(DESCRIBE_QUORUM, Waits(describe_quorum), "DescribeQuorum", _refused, in_envelopes=True),
    Api(ADD_VOTER, Waits(add_voter), "AddRaftVoter", in_envelopes=True),
    Api(REMOVE_VOTER, Waits(remove_voter), "RemoveRaftVoter", in_envelopes=True),
)
