"""Pure: what the active controller alone can say of a broker; shapes as in docs/formats.md."""

from typing import Any

from metadata_log.ids import BrokerId, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.registry import json_rows
from quorum.decide.brokers import state_of
from quorum.sessions import Liveness


def describe_broker(
    image: MetadataImage, broker_id: BrokerId, *, liveness: Liveness | None, now_ms: int
) -> dict[str, Any]:
    """Return a registered broker; what only the active controller knows is None where `liveness` is."""
    broker = image.brokers[broker_id]
    has_session = liveness is not None and liveness.has_session(broker_id, broker.broker_epoch, now_ms=now_ms)
    applied_offset = None if liveness is None else liveness.applied_offset(broker_id)
    contact_ms_ago = None if liveness is None else liveness.last_contact_ms_ago(broker_id, now_ms=now_ms)
    return {
        "broker_id": broker_id,
        "state": state_of(image, broker_id, has_session=has_session).value,
        "broker_epoch": broker.broker_epoch,
        "incarnation_id": uuid_text(broker.incarnation_id),
        "rack": broker.rack,
        "endpoints": json_rows(broker.endpoints),
        "applied_offset": applied_offset,
        "lag_records": None if applied_offset is None else max(image.end_offset - applied_offset, 0),
        "last_contact_ms_ago": contact_ms_ago,
    }
