"""Pure: the loss of brokers as a page shows it: plain values, bounded however much is lost.
Tests: tests/unit/quorum/http/test_past.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage
from quorum.whatif.cluster import Cluster, Options
from quorum.whatif.losses import Step, lose

SUFFERING_NAMED_MAX: Final = 100
"""Partitions of one step that are named."""


def losses_foreseen(
    image: MetadataImage, settings: Mapping[str, Any], broker_ids: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Yield what the loss of brokers, one after the other, does to partitions; `settings` as /v1/quorum/settings has them.

    A broker that is not registered, or is fenced already, changes nothing.
    """
    cluster = Cluster(Options.of_settings(settings), image)
    known = [BrokerId(one) for one in dict.fromkeys(broker_ids) if one in image.brokers]
    return map(_row, lose(cluster, known))


def _row(step: Step) -> dict[str, Any]:
    return {
        "broker": step.broker_id,
        "records": len(step.records),
        "leaders_moved": step.leaders_moved,
        "unclean": step.unclean,
        "leaderless": step.leaderless,
        "under_min_isr": step.under_min_isr,
        "suffering": [
            {
                "topic": one.topic,
                "partition": one.partition_id,
                "leader": one.leader,
                "isr": list(one.isr),
                "replicas": list(one.replicas),
                "min_isr": one.min_isr,
            }
            for one in step.suffering[:SUFFERING_NAMED_MAX]
        ],
    }
