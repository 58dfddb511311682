"""Edge: Fetch of the metadata log, as Kafka's brokers send it.

Source: handleFetchRequest of Kafka's KafkaRaftClient 4.3.1 (KIP-595).
"""

from typing import Final

from metadata_log import limits
from metadata_log.errors import InconsistentClusterId, InvalidRequest, UnsupportedVersion
from metadata_log.ids import BrokerId, Uuid
from metadata_log.kafka.messages import ANSWERS
from metadata_log.kafka.reading import Values
from metadata_log.node.identity.rights import ANYBODY
from metadata_log.wire.fetch import OBSERVER
from quorum.controller.callers import Caller, authorize_poll
from quorum.kafka.door import NO_THROTTLE, Api, Asked, Done, GiveUp, KafkaDoor, Parks
from quorum.kafka.errors import NONE, KafkaError, whole
from quorum.kafka.fetches import (
    FETCH,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    NO_EPOCH_END,
    NO_SNAPSHOT,
    Fetch,
)
from quorum.kafka.replies import NO_LEADER, Position

OLDEST: Final = 12
"""Older versions do not say which epoch a broker is at."""
WHOLE_ERROR_FROM: Final = 7
TOPIC_IDS_FROM: Final = 13
REPLICA_STATE_FROM: Final = 15


def take(door: KafkaDoor, asked: Asked, done: Done) -> GiveUp | None:
    """Answer a fetch at once, or park it.

    Raises:
        NotAuthorized: an observer is no longer a registered broker, as which it may read.
    """
    fetch: Fetch = asked.made
    if fetch.replica_id == OBSERVER:
        authorize_poll(asked.caller, OBSERVER, door.controller.committed)
    return door.kafka_log.fetches.take(fetch, done)


def fetch_of(door: KafkaDoor, asked: Asked) -> Fetch:
    """Return what a request says. Whether its sender is the broker whose fetch it is does not change as long as that is one.

    Raises:
        UnsupportedVersion: it is of a version older than OLDEST.
        InconsistentClusterId: it is for another cluster.
        InvalidRequest: it is not of the metadata log, or no position.
        NotAuthorized: it is of another broker than its sender.
    """
    version = asked.version
    if version < OLDEST:
        raise UnsupportedVersion(f"Fetch in version {version}: the metadata log needs {OLDEST} or newer")
    # fmt: off
    (
        asked_cluster, old_replica_id, replica_state, max_wait_ms, _, max_bytes, _, _, _, topics, _, _,
    ) = asked.values
    # fmt: on
    check_cluster(asked_cluster, door.settings.cluster_id)
    if len(topics) != 1 or len(topics[0][2]) != 1:
        raise InvalidRequest("a Fetch asks a controller for the metadata log, and nothing else")
    name, topic_id, ((number, epoch, offset, last_epoch, _, _, directory_id, high_watermark),) = topics[0]
    is_the_log = topic_id == METADATA_TOPIC_ID if version >= TOPIC_IDS_FROM else name == METADATA_TOPIC
    if not is_the_log or number != 0:
        raise InvalidRequest("a Fetch asks a controller for the metadata log, and nothing else")
    if min(max_wait_ms, epoch, offset, last_epoch) < 0:
        raise InvalidRequest(f"epoch {epoch}, offset {offset} and last epoch {last_epoch} are no position")
    replica_id = replica_state[0] if version >= REPLICA_STATE_FROM else old_replica_id
    authorize_poll(asked.caller, BrokerId(replica_id), door.controller.committed)
    return Fetch(
        version,
        Position(offset, last_epoch),
        epoch,
        max_wait_ms,
        min(max(max_bytes, 1), limits.FETCH_BYTES_DEFAULT),
        high_watermark,
        replica_id,
        Uuid(directory_id),
        _client(asked.caller),
    )


def _client(caller: Caller) -> str:
    return (caller.address or "") if caller.principal is ANYBODY else caller.principal.name


def check_cluster(asked: str | None, cluster_id: str) -> None:
    """Check that a request is for this cluster, if it says for which.

    Raises:
        InconsistentClusterId: it is for another one.
    """
    if asked is not None and asked != cluster_id:
        raise InconsistentClusterId(f"this is cluster {cluster_id}, not {asked}")


def _refused(_api: Api, asked: Asked, error: KafkaError) -> Values:
    """Return an error for the whole fetch; in versions that have no place for it, for the first partition: a request of
    2 MiB may name 500,000.
    """
    topics = asked.values[9]
    if asked.version >= WHOLE_ERROR_FROM or not topics or not topics[0][2]:
        return whole(ANSWERS[FETCH], error)
    name, topic_id, ((number, *_), *_) = topics[0]
    row = (number, error.code, -1, -1, -1, NO_EPOCH_END, (NO_LEADER, -1), NO_SNAPSHOT, (), -1, b"")
    return (NO_THROTTLE, NONE, 0, ((name, topic_id, (row,)),), ())


APIS: Final = (Api(FETCH, Parks(take, fetch_of), "BrokerHeartbeat", _refused),)
