"""Edge: the parts of one controller that its doors use. Tests: tests/unit/quorum/node/test_server.py."""

from collections.abc import Callable
from dataclasses import dataclass

from metadata_log.errors import Fault
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.body_buffers import BodyBuffers
from metadata_log.node.http.server import ConnectionBound
from metadata_log.node.identity.access import Access
from metadata_log.node.identity.tls import Tls
from metadata_log.node.threads import Threads
from quorum.controller.controller import Controller
from quorum.fetch.service import FetchService
from quorum.kafka.kafka_log import KafkaLog
from quorum.log.committed_log import CommittedLog
from quorum.log.past import Past
from quorum.log.snapshot_keeper import SnapshotKeeper
from quorum.log.topic_feeds import TopicFeeds
from quorum.log.watchers import Watchers
from quorum.node.config import ControllerSettings
from quorum.views.since import Since
from quorum.views.status import QuorumStatus
from snapshots.store import SnapshotStore


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What every door to one controller shares. Bounds on connections, bytes and threads are counted here, for all doors
    together.
    """

    settings: ControllerSettings
    controller: Controller
    committed_log: CommittedLog
    fetches: FetchService
    kafka_log: KafkaLog
    feeds: TopicFeeds
    watchers: Watchers
    keeper: SnapshotKeeper
    store: SnapshotStore
    status: QuorumStatus
    since: Since
    bodies: Threads
    """Decode large bodies of requests."""
    reads: Threads
    downloads: Threads
    logins: Threads
    """Make the credentials by which delegation tokens log in."""
    past: Past
    connections: ConnectionBound
    body_buffers: BodyBuffers
    buffers: AnswerBuffers
    access: Access
    tls: Tls | None
    now_ms: Callable[[], int]
    on_fault: Callable[[Fault], None]
