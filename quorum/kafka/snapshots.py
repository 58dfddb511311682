"""Edge: FetchSnapshot: Kafka's brokers load a snapshot piece by piece.

Source: handleFetchSnapshotRequest of Kafka's KafkaRaftClient 4.3.1 (KIP-630).
"""

from typing import Final

from metadata_log.errors import InvalidRequest, MetadataError
from metadata_log.ids import BrokerId
from metadata_log.kafka.reading import Values
from quorum.controller.callers import authorize_poll
from quorum.kafka.door import NO_THROTTLE, Api, Asked, KafkaDoor, Waits
from quorum.kafka.errors import NONE, kafka_error
from quorum.kafka.fetch import check_cluster
from quorum.kafka.fetches import METADATA_TOPIC
from quorum.kafka.replies import SnapshotName, refusal

FETCH_SNAPSHOT: Final = 59
ENDPOINTS_FROM: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3


async def fetch_snapshot(door: KafkaDoor, asked: Asked) -> Values:
    """Return a piece of a snapshot, or why there is none: for the leader's epoch, 74, 75 or 6; 98; 99.

    Raises:
        InconsistentClusterId: it is for another cluster.
        InvalidRequest: it asks for several snapshots.
        NotAuthorized: it is of another broker than its sender.
    """
    cluster_id, replica_id, max_bytes, topics = asked.values
    check_cluster(cluster_id, door.settings.cluster_id)
    authorize_poll(asked.caller, BrokerId(replica_id), door.controller.committed)
    if len(topics) != 1 or len(topics[0][1]) != 1:
        raise InvalidRequest("one snapshot is fetched in a request")
    topic, ((number, epoch, snapshot, position, _),) = topics[0]
    name = SnapshotName(*snapshot)
    fetches, now = door.kafka_log.fetches, door.kafka_log.fetches.leadership()
    size, data = 0, b""
    error = UNKNOWN_TOPIC_OR_PARTITION if (topic, number) != (METADATA_TOPIC, 0) else refusal(epoch, now)
    if error is None:
        try:
            size, data = await door.kafka_log.snapshots.read(name, position, max_bytes, door.downloads.run)
        except MetadataError as refused:
            error = kafka_error(refused, to_broker=True).code
        now = fetches.leadership()
    partition = (number, error or NONE, name, (now.leader, now.epoch), size, position, data)
    endpoints = fetches.endpoints(now) if asked.version >= ENDPOINTS_FROM else ()
    return (NO_THROTTLE, NONE, ((topic, (partition,)),), tuple(each[:3] for each in endpoints))


APIS: Final = (Api(FETCH_SNAPSHOT, Waits(fetch_snapshot), "BrokerHeartbeat"),)
