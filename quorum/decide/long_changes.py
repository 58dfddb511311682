"""Pure: the next part of a change that takes a broker out of service, of its directories, or of its leaderships.
Tests: tests/unit/quorum/controller/test_changes.py.
"""

from msgspec import structs

from metadata_log.batch import Cause
from quorum.decide.brokers import UnregisterBroker, unregister
from quorum.decide.context import DecideContext
from quorum.decide.decision import (
    Decision,
    RegistrationChanged,
    SessionChange,
    ShutdownLeft,
    Walk,
    WalkKind,
)
from quorum.decide.fencing import fenced
from quorum.decide.heartbeat import failure_part, stop_part


def next_part(walk: Walk, cause: Cause, context: DecideContext) -> Decision:
    """Decide the part after the one before, or the first where nothing of the walk is known; `cause` is that of all parts.

    Nothing is left to do where the broker is registered no more, or under another epoch.
    """
    broker = context.image.brokers.get(walk.broker_id)
    if broker is None or broker.broker_epoch != walk.broker_epoch:
        return Decision()
    match walk.kind:
        case WalkKind.STOPS:
            return stop_part(context, broker)
        case WalkKind.REMOVED:
            return unregister(context, UnregisterBroker(broker_id=walk.broker_id))
        case WalkKind.FAILED:
            decision = failure_part(context, broker, walk.log_dirs)
            over: tuple[SessionChange, ...] = (RegistrationChanged(walk.broker_id),)
        case _:
            decision = fenced(context, broker, cause, kind=walk.kind)
            over = (ShutdownLeft(walk.broker_id), RegistrationChanged(walk.broker_id))
    if decision.more:
        return decision
    return structs.replace(decision, session_changes=(*decision.session_changes, *over))
