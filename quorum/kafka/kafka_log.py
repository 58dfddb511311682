"""Edge: the metadata log as Kafka's brokers see it: its batches, its snapshots, and the fetches that wait for them.

Tests: tests/unit/quorum/kafka/test_fetch.py.
"""

from collections.abc import Callable, Sequence

from quorum.controller.applied_listener import AppliedListener
from quorum.controller.controller import Controller
from quorum.kafka.derived_snapshots import DerivedSnapshots, RunInThread
from quorum.kafka.fetches import KafkaFetches
from quorum.kafka.translated_log import TranslatedLog
from quorum.log.committed_log import CommittedLog
from quorum.log.history_process import HistoryProcess
from quorum.log.snapshot_keeper import SnapshotKeeper
from quorum.node.config import ControllerSettings
from snapshots.store import SnapshotStore


class KafkaLog:
    """The three parts of it. Until the first broker asks they note a few facts about each batch, and do nothing else."""

    def __init__(
        self,
        *,
        settings: ControllerSettings,
        controller: Controller,
        committed_log: CommittedLog,
        keeper: SnapshotKeeper,
        store: SnapshotStore,
        now_ms: Callable[[], int],
        run_in_thread: RunInThread,
        process: HistoryProcess | None = None,
    ) -> None:
        """`run_in_thread` is for work of seconds, which `process` does where there is one."""
        listener = settings.kafka.listener_name
        self.translated = TranslatedLog(committed_log, listener=listener, now_ms=now_ms)
        self.snapshots = DerivedSnapshots(
            keeper,
            store,
            listener=listener,
            now_ms=now_ms,
            run_in_thread=run_in_thread,
            process=process,
        )
        self.fetches = KafkaFetches(
            settings=settings,
            controller=controller,
            translated=self.translated,
            snapshots=self.snapshots,
            log_bytes=lambda: committed_log.bytes_total,
            now_ms=now_ms,
        )
        self.snapshots.on_made = self.fetches.wake

    @property
    def listeners(self) -> Sequence[AppliedListener]:
        """What follows the log, after the committed log, in this order."""
        return (self.translated, self.fetches)
