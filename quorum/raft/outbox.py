"""Pure: messages on their way out: which may leave at once, and which only after the sync of what the journal now holds.
Tests: tests/unit/quorum/raft/test_guard_rules.py.
"""

from typing import Protocol

from metadata_log.ids import NodeId
from quorum.raft.messages import Message


class SyncedLog(Protocol):
    synced_index: int
    """Entries up to this index are on stable storage."""


class Outbox:
    """`at_once` and `after_sync` gather until the adapter takes them."""

    def __init__(self, log: SyncedLog) -> None:
        self._log = log
        self.at_once: list[tuple[NodeId, Message]] = []
        self.after_sync: list[tuple[NodeId, Message]] = []
        self.answers_heartbeat = False
        """Whether the engine is being shown a heartbeat."""

    def send(self, target: NodeId, message: Message) -> None:
        at_once, after_sync = self.split_by_sync(message)
        if at_once is not None:
            self.at_once.append((target, at_once))
        if after_sync is not None:
            if after_sync["type"] == "next_node_idx":
                # A disk may hang for hours: of acknowledgements to one leader, only the newest is kept.
                self.after_sync = [
                    item for item in self.after_sync if not _is_superseded(item, target, after_sync)
                ]
            self.after_sync.append((target, after_sync))

    def split_by_sync(self, message: Message) -> tuple[Message | None, Message | None]:
        """Return what of a message may leave at once, and what after the sync.

        A vote waits for the sync of the term and vote that it rests on, an acknowledgement for the entries. A heartbeat is
        acknowledged at once as far as the log is synced, so that a slow disk does not depose a leader. A candidate asks for
        votes while its own vote is being synced, since it counts none before (`Elections.awaits_own_vote`). Only the log
        that it claims to hold must be durable: a voter may answer after the candidate has crashed and lost the rest.
        Source: etcd-io/raft sends MsgVote at once, and the candidate's vote for itself after the sync.
        """
        kind = message["type"]
        if kind == "response_vote":
            return None, message
        if kind == "request_vote":
            is_durable = message["last_log_index"] <= self._log.synced_index
            return (message, None) if is_durable else (None, message)
        if kind != "next_node_idx" or not message["success"]:
            return message, None
        synced_next = self._log.synced_index + 1
        if message["next_node_idx"] <= synced_next:
            return message, None
        return (message | {"next_node_idx": synced_next} if self.answers_heartbeat else None), message

    def take_at_once(self) -> list[tuple[NodeId, Message]]:
        taken, self.at_once = self.at_once, []
        return taken

    def take_after_sync(self) -> list[tuple[NodeId, Message]]:
        taken, self.after_sync = self.after_sync, []
        return taken


def _is_superseded(item: tuple[NodeId, Message], target: NodeId, newer: Message) -> bool:
    """Answer whether a message that waits acknowledges no more than a newer one to the same leader in the same term."""
    waiting = item[1]
    return (item[0], waiting["type"], waiting["term"]) == (target, newer["type"], newer["term"]) and waiting[
        "next_node_idx"
    ] <= newer["next_node_idx"]
