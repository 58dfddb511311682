"""Pure: a cluster at a glance, as one controller sees it: what is wrong, since when and because of what, and how much there
is. What it costs does not grow with the partitions. Tests: tests/unit/quorum/http/test_overview.py.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage
from quorum.views.partition_health import PartitionHealth
from quorum.views.since import Beginning, Since
from quorum.views.status import QuorumStatus

RED: Final = frozenset(
    {
        *("PARTITIONS_OFFLINE", "PARTITIONS_UNDER_MIN_ISR", "NO_LEADER", "NOT_COMMITTING", "DISK_STALLED"),
        *("CERTIFICATE_EXPIRED", "CERTIFICATE_NOT_YET_VALID"),
        *("AUTHORITY_EXPIRED", "AUTHORITY_NOT_YET_VALID", "NO_BROKER_ONLINE"),
    }
)
"""What refuses clients or other nodes; the rest is yellow."""
AWAY_NAMED_MAX: Final = 20
"""Brokers that are out of service and named one by one."""


class Trouble(NamedTuple):
    """Something that an operator should see to; `since` is the batch with which it began, where this process knows it."""

    code: str
    detail: str
    since: Beginning | None = None
    subject: str | None = None
    """What of the console shows it: "brokers/11"."""

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "level": "red" if self.code in RED else "yellow",
            "detail": self.detail,
            "since": None if self.since is None else self.since.to_json(),
            "subject": self.subject,
        }


def overview(status: QuorumStatus, since: Since, image: MetadataImage, *, now_ms: int) -> dict[str, Any]:
    """Return `/v1/overview`; `now_ms` is Unix time."""
    raft, health = status.raft(), status.partitions()
    leader_id = -1 if raft.leader_id is None else raft.leader_id
    return {
        "cluster_id": status.settings.cluster_id,
        "node_id": status.settings.node_id,
        "leader_id": leader_id,
        "leader_url": None if raft.leader_id is None else _url(status, leader_id),
        "is_active": status.controller.is_active,
        "controller_epoch": image.controller_epoch,
        "end_offset": image.end_offset,
        "log_start_offset": status.committed_log.log_start_offset,
        "last_time_ms": image.last_time_ms,
        "now_ms": now_ms,
        "leads_since": None if since.claim is None else since.claim.to_json(),
        "troubles": sorted(
            (trouble.to_json() for trouble in _troubles(status, since, image, health)),
            key=lambda trouble: trouble["level"],
        ),
        "recent_warnings": status.recent_warnings(),
        "partitions": health._asdict(),
        "topics": len(image.topics.ids),
        "deleted_topics": len(image.topics.deleted),
        "brokers": Counter(_state(image, broker_id) for broker_id in image.brokers),
        "voters": len(raft.voters),
    }


def _url(status: QuorumStatus, node_id: int) -> str | None:
    own = status.settings
    return own.http_url if node_id == own.node_id else status.url(node_id)  # type: ignore[arg-type]


def _state(image: MetadataImage, broker_id: BrokerId) -> str:
    broker = image.brokers[broker_id]
    return "FENCED" if broker.fenced else "STOPPING" if broker.in_controlled_shutdown else "ONLINE"


def _troubles(
    status: QuorumStatus, since: Since, image: MetadataImage, health: PartitionHealth
) -> Iterator[Trouble]:
    for reason in (*status.reasons_not_ready(), *status.node_warnings()):
        yield Trouble(reason["code"], reason["detail"], subject="quorum")
    for peer in status.raft().peers:
        if peer.is_voter and not peer.reachable:
            yield Trouble("VOTER_UNREACHABLE", f"no link with controller {peer.node_id}", subject="quorum")
        elif peer.is_voter and peer.is_silent:
            silent = f"controller {peer.node_id} is linked, and does not answer: it is frozen, or waits for its disk"
            yield Trouble("VOTER_UNREACHABLE", silent, subject="quorum")
    yield from _of_brokers(since, image)
    yield from _of_partitions(status, since, health)


def _of_brokers(since: Since, image: MetadataImage) -> Iterator[Trouble]:
    away = [one for one in image.brokers if _state(image, one) != "ONLINE"]
    if image.brokers and len(away) == len(image.brokers):
        yield Trouble("NO_BROKER_ONLINE", f"none of {len(away)} brokers is online", subject="brokers")
    for broker_id in sorted(away[:AWAY_NAMED_MAX]):
        state = _state(image, broker_id)
        detail = f"broker {broker_id} is {state.lower()}"
        yield Trouble(f"BROKER_{state}", detail, since.of_broker(broker_id), f"brokers/{broker_id}")
    if len(away) > AWAY_NAMED_MAX:
        yield Trouble(
            "BROKERS_AWAY", f"{len(away) - AWAY_NAMED_MAX} further brokers are away", subject="brokers"
        )


def _of_partitions(status: QuorumStatus, since: Since, health: PartitionHealth) -> Iterator[Trouble]:
    rows = (
        ("PARTITIONS_OFFLINE", health.offline, "offline", "have no leader", "unavailable"),
        (
            *("PARTITIONS_UNDER_MIN_ISR", health.under_min_isr, "under_min_isr"),
            *("refuse writes with acks=all", "under-min-isr"),
        ),
        (
            *("PARTITIONS_UNDER_REPLICATED", health.under_replicated, "under_replicated"),
            *("lack a replica in their ISR", "under-replicated"),
        ),
    )
    for code, count, name, what, only in rows:
        if count:
            partitions = f"{count} partition{'s' if count > 1 else ''}"
            yield Trouble(code, f"{partitions} {what}", since.of_count(name), f"topics?only={only}")
    for reason in status.stuck():
        yield Trouble(
            reason["code"], reason["detail"], since.of_count("reassigning"), "topics?only=reassigning"
        )
