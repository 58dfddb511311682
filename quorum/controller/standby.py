"""Edge: what every controller does, also one that stands by: it applies what is committed, and leads when Raft says so.

- `committed` is what the quorum agreed. While this node leads there is a `reign`, whose tip is `committed` plus its
  batches in flight.
- The epoch comes from the log. A node that Raft calls leader appends a claim and is *active* once it sees that claim
  applied, as long as it has led without a break since.
- A newer claim, of any controller, ends all older waiters: what they wait for can no longer apply.

Tests: tests/unit/quorum/controller/test_controller.py.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from metadata_log.apply import Applied, applying, is_next, may_be_refused
from metadata_log.batch import Envelope, RecordBatch
from metadata_log.codec import (
    DamagedFrame,
    batch_of,
    check_frames,
    damaged_answer,
    decoding,
    encoding,
)
from metadata_log.errors import (
    InvariantBroken,
    MetadataError,
    NotController,
    OutcomeUnknown,
    two_histories,
)
from metadata_log.ids import BrokerId, NodeId, Uuid, uuid_text
from metadata_log.image.features import metaquorum_version
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.configs import MIN_IN_SYNC_REPLICAS
from metadata_log.records.features import METAQUORUM_VERSION_LEVEL
from metadata_log.records.quorum import (
    KAFKA_ENDPOINT,
    KRAFT_VERSION_LEVEL,
    RAFT_ENDPOINT,
    Voter,
    VoterEndpoint,
)
from metadata_log.records.registry import level_of
from metadata_log.sliced import Sliced, at_once
from quorum.controller.applied_listener import AppliedListener
from quorum.controller.reign import InFlight, Reign
from quorum.controller.sessions import Sessions
from quorum.controller.token_hmacs import TokenHmacs
from quorum.controller.waiters import Waiter, Waiters
from quorum.decide.decision import Decision
from quorum.decide.founding import Founding
from quorum.decide.quorum import claim, identities
from quorum.node.config import ControllerSettings, VoterSettings
from quorum.raft.raft_log import RaftLog, Voters
from quorum.views.broker_counts import BrokerCounts
from quorum.views.counted_elections import CountedElections
from quorum.views.metrics import ControllerMetrics

log = logging.getLogger("quorum.controller.controller")

COMPLETE_ACTIVATION: Final = "completeActivation"
"""What a controller does by itself bears the name of the event in Kafka's QuorumController."""


class Standby:
    """Implements RaftListener; `raft` is attached once, before it runs."""

    raft: RaftLog
    founding: Founding | None = None
    """What `storage format` was told to found a cluster with; None: the settings say it. It counts in an empty log."""

    def __init__(
        self,
        *,
        settings: ControllerSettings,
        now_ms: Callable[[], int],
        unix_ms: Callable[[], int],
        load_snapshot: Callable[[str], MetadataImage],
        http_url: Callable[[NodeId], str | None] | None = None,
    ) -> None:
        """Create a controller; `http_url` returns where another one answers HTTP, by default as the settings say."""
        self._settings = settings
        self._http_url = http_url or settings.url_of
        self._now_ms = now_ms
        self._unix_ms = unix_ms
        self._load_snapshot = load_snapshot
        self.broker_counts = BrokerCounts()
        self.elections = CountedElections()
        self.tokens = TokenHmacs()
        """Of delegation tokens; off until it gets the secret key."""
        self._listeners: list[AppliedListener] = [self.broker_counts, self.elections, self.tokens]
        self.committed: MetadataImage = EMPTY
        self.reign: Reign | None = None
        """None: this node does not lead. It is the active controller once the claim of its reign is applied."""
        self.metrics = ControllerMetrics()
        self.leader_hint: NodeId | None = None
        self._leaderless_since_ms = now_ms()
        """When the last leader was lost; it counts while `leader_hint` is None."""
        self._waiters = Waiters(settings.timing.commit_timeout_ms, on_unknown=self.metrics.writes_unknown.inc)
        self._transfers: list[asyncio.Future[NodeId]] = []
        self._voters: Voters = {}
        """The voters as Raft reported them last."""

    def attach(self, raft: RaftLog, listeners: Sequence[AppliedListener]) -> None:
        self.raft = raft
        self._listeners.extend(listeners)

    # --- the active controller

    @property
    def is_active(self) -> bool:
        """Whether the newest applied claim is ours and we have led without a break since appending it."""
        return self.reign is not None and self.reign.is_active

    @property
    def active_reign(self) -> Reign:
        """The reign that decides.

        Raises:
            NotController: this node is not active.
        """
        if self.reign is None or not self.reign.is_active:
            raise self.not_controller()
        return self.reign

    @property
    def tip(self) -> MetadataImage:
        """The state with our batches in flight; raises as `active_reign`."""
        return self.active_reign.tip

    @property
    def sessions(self) -> Sessions:
        """What the active controller heard of brokers; raises as `active_reign`."""
        return self.active_reign.sessions

    def not_controller(self) -> NotController:
        """Return the error that names the active controller as far as it is known here."""
        leader = self.leader_hint
        if leader is None:
            passed_ms = self._now_ms() - self._leaderless_since_ms
            return NotController("no controller is active now", controller_id=-1, leaderless_ms=passed_ms)
        if leader == self._settings.node_id:
            return NotController("no controller is active now", controller_id=-1)
        return NotController(
            f"the active controller is {leader}",
            controller_id=leader,
            controller_url=self._http_url(leader),
        )

    def is_fenced(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        """Answer whether nothing of what is decided by now has this registration serve."""
        broker = (self.committed if self.reign is None else self.reign.tip).brokers.get(broker_id)
        return broker is None or broker.broker_epoch != broker_epoch or broker.fenced

    # --- what waits for records

    async def settled(self, end_offset: int) -> None:
        """Wait until all records below `end_offset` are applied under our claim; raises as `submit`."""
        waiter = self._waiter(end_offset, claim_epoch=self.active_reign.epoch, request_id=None, wrote=False)
        await self._wait(waiter, self._now_ms())

    def _waiter(
        self, end_offset: int, *, claim_epoch: int, request_id: Uuid | None, wrote: bool
    ) -> asyncio.Future[None] | None:
        """Return what ends once all records below `end_offset` are applied under a claim; None if they are.

        Raises:
            NotController: a newer claim is applied, and so nothing would end it.
        """
        committed = self.committed
        if committed.controller_epoch > claim_epoch:
            raise self.not_controller()
        if committed.end_offset >= end_offset and committed.controller_epoch == claim_epoch:
            return None
        return self._waiters.add(
            controller_epoch=claim_epoch, end_offset=end_offset, request_id=request_id, wrote=wrote
        )

    async def _wait(self, waiter: asyncio.Future[None] | None, began_ms: int) -> None:
        if waiter is not None:
            await waiter
            self.metrics.commit_seconds.observe((self._now_ms() - began_ms) / 1000)

    @property
    def is_waited_for(self) -> bool:
        """Whether a write waits for its records."""
        return bool(self._waiters)

    def stop_waiting(self) -> None:
        """End all waits: this controller will not learn whether their records commit."""
        self._waiters.end_all(
            lambda waiter: (
                OutcomeUnknown("this controller is stopping; repeat with the same request id elsewhere")
                if waiter.wrote
                else self.not_controller()
            )
        )

    # --- leading

    def on_leadership(self, *, is_leader: bool) -> None:
        if is_leader:
            self._claim()
            return
        self._end_reign()

    def _claim(self) -> None:
        """Append a claim on the committed image: whatever was appended before this leadership is applied."""
        self._end_reign()
        image = self.committed
        settings = self._settings
        min_isr = settings.topics.static_configs[MIN_IN_SYNC_REPLICAS]
        decision = claim(
            image,
            node_id=settings.node_id,
            cluster_id=settings.cluster_id,
            voters=configured_voters(settings),
            founding=self.founding or Founding.at(settings.features.founding_metadata_version),
            min_insync_replicas=min_isr,
            is_handed_over=self.raft.status().was_asked_to_lead,
        )
        self.reign = Reign(image, session_timeout_ms=settings.timing.session_timeout_ms)
        actor = f"Controller:{settings.node_id}"
        envelope = Envelope(actor, cause=decision.cause, operation=COMPLETE_ACTIVATION)
        at_once(self._extending(self.reign, decision, envelope))

    def _end_reign(self) -> None:
        ended, self.reign = self.reign, None
        if ended is None:
            return
        for change in ended.changes:
            change.end(None)
        if ended.is_active:
            log.info("controller_resigned", extra={"controller_epoch": ended.epoch})
            for listener in self._listeners:
                listener.on_activity(active=False)

    def resign(self) -> None:
        """Refuse further writes because this controller is about to stop; writes under way are answered once they commit."""
        self._end_reign()

    def _extending(self, reign: Reign, decision: Decision, envelope: Envelope) -> Sliced[RecordBatch]:
        """Encode records and apply them to the tip, in slices, then append them at once: half a batch is never visible."""
        tip = reign.tip
        # The first claim finalizes the level at which its other records are known.
        present = metaquorum_version(tip.features) if tip.end_offset else METAQUORUM_VERSION_LEVEL
        if (level := level_of(decision.records)) > present:
            raise InvariantBroken(
                f"a decision needs metaquorum.version {level}, and the cluster is at {present}: older nodes would stop at it"
            )
        body = yield from encoding(envelope, decision.records)
        batch, frame = batch_of(
            body,
            base_offset=tip.end_offset,
            controller_epoch=reign.epoch,
            appended_at_ms=self._unix_ms(),
            previous_crc=tip.last_crc,
            envelope=envelope,
            records=decision.records,
        )
        image, delta = yield from applying(tip, batch)
        self.raft.append(frame, _changed_voters(tip, image))
        self.metrics.records_appended.inc(len(decision.records))
        reign.extend(InFlight(batch=batch, frame=frame, image=image, delta=delta))
        return batch

    async def transfer(self, to: NodeId | None) -> NodeId:
        """Ask a voter to lead (None: the most caught-up other one), and return the new leader once Raft reports it.

        `to` may be this controller, which leads already: the request then repeats one that was carried out.

        Raises:
            NotController: not active.
            InvalidRequest: `to` is no voter that is reachable.
            OutcomeUnknown: no other leader was reported within two election timeouts; this node may still lead.
        """
        if not self.is_active:
            raise self.not_controller()
        if to == self._settings.node_id:
            await self.raft.read_index()
            return to
        self.raft.transfer_leadership(to)
        taken_over: asyncio.Future[NodeId] = asyncio.get_running_loop().create_future()
        self._transfers.append(taken_over)
        patience_ms = 2 * self._settings.timing.election_timeout_max_ms
        try:
            async with asyncio.timeout(patience_ms / 1000):
                return await taken_over
        except TimeoutError as error:
            raise OutcomeUnknown(
                f"no other controller was reported as leader within {patience_ms} ms; `quorum status` shows who leads"
            ) from error
        finally:
            self._transfers.remove(taken_over)

    def on_leader_hint(self, leader_id: NodeId | None) -> None:
        if leader_id is None and self.leader_hint is not None:
            self._leaderless_since_ms = self._now_ms()
        self.leader_hint = leader_id
        if leader_id is not None and leader_id != self._settings.node_id:
            for taken_over in self._transfers:
                if not taken_over.done():
                    taken_over.set_result(leader_id)

    def on_voters(self, voters: Voters) -> None:
        recorded = identities(self.committed.quorum.voters or ())
        if recorded != dict(voters):
            raise InvariantBroken(
                f"Raft's voters are {_listed(voters)}, the log's {_listed(recorded)}: they change together or not at all"
            )
        if recorded != self._voters:  # each leadership begins with the voters in force
            log.info("voters_changed" if self._voters else "voters_read", extra={"voters": _listed(voters)})
            self._voters = recorded

    # --- what is committed

    def check(self, frames: bytes) -> None:
        check_frames(frames)

    def committing(self, frames: bytes) -> Sliced[None]:
        at = 0
        while self.reign is not None and (own := self.reign.take_committed(frames, at)) is not None:
            at += len(own.frame)
            self._take(own.batch, own.frame, own)
        while at < len(frames):
            with _named():
                batch, end = yield from decoding(frames, at)
            applied = (yield from applying(self.committed, batch)) if is_next(self.committed, batch) else None
            self._take(batch, frames[at:end], None, applied)
            at = end

    def on_rest(self) -> None:
        for listener in self._listeners:
            listener.on_rest()

    def _may_refuse(self, batch: RecordBatch) -> bool:
        """Answer whether a committed batch that does not continue the state here is refused by all, or applied already."""
        return may_be_refused(self.committed, batch)

    def _of_another_history(self, batch: RecordBatch) -> InvariantBroken:
        """Return the fault of a node that alone refuses what the quorum committed."""
        state = self.committed
        return two_histories(
            f"the quorum committed a batch of epoch {batch.controller_epoch} at offset {batch.base_offset} behind crc "
            f"{batch.previous_crc:08x}; this node is at offset {state.end_offset}, crc {state.last_crc:08x}, epoch "
            f"{state.controller_epoch}"
        )

    def _take(
        self, batch: RecordBatch, frame: bytes, own: InFlight | None, applied: Applied | None = None
    ) -> None:
        """Make the image after a committed batch visible, which `own` or `applied` holds."""
        if not is_next(self.committed, batch):
            if own is not None or not self._may_refuse(batch):
                raise self._of_another_history(batch)
            self.metrics.batches_refused.inc()
            return
        made = applied if own is None else Applied(own.image, own.delta)
        assert made is not None, "a batch that is the next has been applied"
        image, delta = made
        self.committed = image
        self.metrics.batches_applied.inc()
        self.metrics.records_applied.inc(len(batch.records))
        if batch.claim is not None:
            self._on_claim(batch)
        for listener in self._listeners:
            listener.on_applied(batch, frame, image, delta)
        self._waiters.complete(controller_epoch=image.controller_epoch, end_offset=image.end_offset)

    def _on_claim(self, batch: RecordBatch) -> None:
        self.metrics.claims_applied.inc()
        claimed = batch.claim
        assert claimed is not None
        reign = self.reign
        self._waiters.fail_before(batch.controller_epoch, self.not_controller)
        if reign is None or batch.controller_epoch != reign.epoch:
            if reign is not None and batch.controller_epoch > reign.epoch:
                self._end_reign()
            return
        reign.begin(self.committed, now_ms=self._now_ms(), unix_ms=self._unix_ms())
        log.info(
            "controller_active",
            extra={"controller_epoch": batch.controller_epoch, "offset": batch.base_offset},
        )
        for listener in self._listeners:
            listener.on_activity(active=True)

    def on_restore(self, snapshot_id: str) -> None:
        self.committed = self._load_snapshot(snapshot_id)
        self.metrics.snapshots_installed.inc()
        self._end_reign()
        for listener in self._listeners:
            listener.on_restored(self.committed)
        self._waiters.end_all_in_slices(self._fate_after_restore)

    def _fate_after_restore(self, waiter: Waiter) -> MetadataError | None:
        if not waiter.wrote:
            return self.not_controller()
        if waiter.request_id is not None and self.committed.results.get(waiter.request_id) is not None:
            return None
        return OutcomeUnknown(
            "this controller fell behind and took a snapshot; repeat with the same request id"
        )


@contextmanager
def _named() -> Iterator[None]:
    """Name what is wrong with a payload of Raft's log.

    Raises:
        WrittenByAnotherVersion: a record is unknown to this release.
        InvariantBroken: it is no sequence of our frames.
    """
    try:
        yield
    except DamagedFrame as error:
        named = damaged_answer("the quorum's log", error)
        if error.another_version:
            raise named from error
        raise InvariantBroken(f"a payload is no sequence of our frames: {named.message}") from error


def _changed_voters(before: MetadataImage, after: MetadataImage) -> Voters | None:
    """Return the voters after a batch; None if they are the same members: Raft does not need their addresses."""
    if after.quorum.voters is None or after.quorum.voters is before.quorum.voters:
        return None
    voters = identities(after.quorum.voters)
    return None if before.quorum.voters is not None and identities(before.quorum.voters) == voters else voters


def _listed(voters: Voters) -> str:
    return ", ".join(f"{node_id}:{uuid_text(directory)}" for node_id, directory in sorted(voters.items()))


def configured_voters(settings: ControllerSettings) -> tuple[Voter, ...]:
    """Return the voters as the log records them: in order of id, each with its endpoints for Raft and Kafka's brokers."""
    return tuple(
        Voter(voter.id, voter.directory_id, _endpoints(voter), 0, KRAFT_VERSION_LEVEL)
        for voter in sorted(settings.voters, key=lambda voter: voter.id)
    )


def _endpoints(voter: VoterSettings) -> tuple[VoterEndpoint, ...]:
    raft = VoterEndpoint(RAFT_ENDPOINT, *voter.raft)
    return (raft,) if voter.kafka is None else (raft, VoterEndpoint(KAFKA_ENDPOINT, *voter.kafka))
