"""Pure: fencing: a broker that must not serve leaves every ISR, and the record of its registration comes last.

Source: KIP-631, KIP-841. Tests: tests/unit/quorum/decide/test_brokers.py.
"""

from metadata_log.batch import Cause
from metadata_log.errors import StaleBrokerEpoch
from metadata_log.ids import BrokerId
from metadata_log.image.begun import SESSION_EXPIRED
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.brokers import BrokerRegistrationChangeRecord
from metadata_log.wire.fetch import BrokerState
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision, Walk, WalkKind
from quorum.decide.elections import changes_on_leaving
from quorum.decide.parts import part_of


def state_of(image: MetadataImage, broker_id: BrokerId, *, has_session: bool) -> BrokerState:
    """Return what the controller says a registered broker is."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return BrokerState.FENCED if broker is not None and has_session else BrokerState.OFFLINE
    return BrokerState.STOPPING if broker.in_controlled_shutdown else BrokerState.ONLINE


def registered(image: MetadataImage, broker_id: BrokerId, broker_epoch: int) -> BrokerImage:
    """Return the broker that is registered under this epoch.

    Raises:
        StaleBrokerEpoch: none is.
    """
    broker = image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != broker_epoch:
        raise StaleBrokerEpoch(
            f"broker {broker_id} is not registered at epoch {broker_epoch}", broker_id=broker_id
        )
    return broker


def fence(context: DecideContext, *, broker_id: BrokerId, broker_epoch: int) -> Decision:
    """Decide the records that take a silent broker out of service; the fencing record comes last.

    It is written for a broker that is fenced already, too: the log then says when its session ended. A broker that
    registered again is refused with STALE_BROKER_EPOCH.
    """
    try:
        broker = registered(context.image, broker_id, broker_epoch)
    except StaleBrokerEpoch as refusal:
        return Decision(refusal=refusal)
    cause = Cause(SESSION_EXPIRED, broker_epoch, {"broker_id": broker_id})
    return fenced(context, broker, cause)


def fenced(
    context: DecideContext, broker: BrokerImage, cause: Cause, *, kind: WalkKind = WalkKind.LEAVES
) -> Decision:
    """Decide that a broker leaves every ISR and is fenced, or a part of that."""
    walk = Walk(kind, broker.broker_id, broker.broker_epoch)
    records, more, walked = part_of(context, walk, changes_on_leaving(context, walk))
    if not more:
        records.append(BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=True))
    return Decision(records=records, cause=cause, session_changes=(walked,), more=more)
