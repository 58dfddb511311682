"""Pure: why a batch was written, in words. Tests: tests/unit/ops/admin/test_explain.py."""

from collections.abc import Mapping
from typing import Final

from metadata_log.batch import Cause
from metadata_log.limits import QUIET_MARK_MS
from metadata_log.records.quorum import WRITE_NO_OP

CAUSES: Final[Mapping[str, str]] = {
    "BROKER_REGISTERED": "broker {broker_id} registered another run",
    "BROKER_UNREGISTERED": "broker {broker_id} was removed",
    "BROKER_UNFENCED": "broker {broker_id} had caught up and was unfenced",
    "CONTROLLED_SHUTDOWN": "broker {broker_id} asked to shut down",
    "CONTROLLER_CLAIMED": "controller {node_id} took over",
    "CONTROLLER_REGISTERED": "controller {controller_id} registered",
    "CONTROLLER_UNREGISTERED": "controller {controller_id} was removed from the registrations",
    "DELEGATION_TOKEN_EXPIRED": "delegation tokens had ended",
    "DIRECTORIES_REPORTED": "broker {broker_id} reported where its replicas lie",
    "ELIGIBLE_REPLICAS_CLEARED": "min.insync.replicas was about to change",
    "FENCE_REQUESTED": "broker {broker_id} asked to be fenced",
    "ISR_REPORTED": "its leader, broker {broker_id}, reported the ISR",
    "LEADERS_BALANCED": "leaderships were given back to first replicas",
    "LOG_DIR_CORDONED": "broker {broker_id} reported which directories are cordoned",
    "LOG_DIR_OFFLINE": "directories of broker {broker_id} failed",
    "PREFERRED_ELECTION_REQUESTED": "a preferred election was asked for",
    "PRODUCER_IDS_REQUESTED": "broker {broker_id} asked for producer ids",
    "REASSIGNMENT_REQUESTED": "a reassignment was asked for",
    "SESSION_EXPIRED": "broker {broker_id} was silent: its session ended",
    "SHUTDOWN_GRANTED": "broker {broker_id} shut down",
    "TOPIC_DELETED": "the topic was deleted; it can be restored for a time",
    "TOPIC_UNDELETED": "the topic was restored",
    "UNCLEAN_ELECTION_REQUESTED": "an unclean election was asked for",
    "UNCLEAN_SWEEP": "the topic accepts lost messages, and nobody else could lead",
    "UNDELETE_WINDOW_COUNTED": "deleted topics can still be restored; the log's time goes on",
    "UNDELETE_WINDOW_PASSED": "deleted topics could be restored no longer, and were removed",
}
LINKS: Final[Mapping[str, str]] = {
    "acknowledges": "its connection stayed up and acknowledged what was sent, so its process stood still or was too busy",
    "unanswered": "nothing that was sent to it was acknowledged: its link was cut, or its machine was gone",
    "ended": "its connection had ended",
    "unread": "what it had sent lay unread, so this controller was slow",
}
"""What the connection of a silent broker showed when its session ended."""
OF_A_LIST: Final = ".many"
"""What the log adds to the name of an operation that takes a list."""
_UNKNOWN: Final = {"broker_id": "?", "node_id": "?", "controller_id": "?"}


def why(cause: Cause | None, operation: str | None) -> str:
    """Return why a batch was written, in words."""
    if cause is None:
        if operation == WRITE_NO_OP:
            return f"nothing was written for {QUIET_MARK_MS // 1000} s"
        if (
            operation is not None and operation[:1].islower()
        ):  # what a controller does by itself, as Kafka names it
            return f"the controller's own {operation}"
        return (
            "it was asked for" if operation is None else f"{operation.removesuffix(OF_A_LIST)} was asked for"
        )
    told = CAUSES.get(cause.code, cause.code).format_map({**_UNKNOWN, **cause.detail})
    if cause.code == "CONTROLLER_CLAIMED" and cause.detail.get("handed_over"):
        told += ", which the one before had asked for"
    if cause.code == "SESSION_EXPIRED" and "silent_ms" in cause.detail:
        told += f" after {cause.detail['silent_ms']} ms"
        link = LINKS.get(str(cause.detail.get("link")))
        told += "" if link is None else f"; {link}"
    if cause.code == "FENCE_REQUESTED" and cause.detail.get("diverged"):
        return f"broker {cause.detail['broker_id']} had a history that is not the cluster's (DIVERGING), and rebuilds it"
    if cause.code == "BROKER_REGISTERED" and cause.ref_offset is None:
        return f"broker {cause.detail.get('broker_id', '?')} registered, and none was before"
    if cause.code == "BROKER_REGISTERED" and not cause.detail.get("clean", True):
        told += ", and the one before had not ended cleanly"
    return told
