"""Pure: counts of partitions that lack something, checked against one look at each, and reassignments that cannot end."""

from collections.abc import Mapping
from typing import Any

import pytest

from metadata_log.ids import NO_LEADER, BrokerId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.records.configs import TOPIC
from quorum.views.partition_health import SELECTIONS, partition_health, selected, why_stuck
from tests.support.decisions import World
from tests.support.histories import history_of


def min_isr(image: MetadataImage, topic: str, default: int) -> int:
    own: Mapping[str, str] = image.configs.get((TOPIC, topic)) or {}
    return int(own.get("min.insync.replicas", default))


@pytest.mark.parametrize("default", [1, 2, 3])
@pytest.mark.parametrize("seed", range(20))
def test_counts_and_lists_agree_with_a_look_at_each_partition(seed: int, default: int) -> None:
    for step in history_of(seed, 30)[::7]:
        image = step.image
        health = partition_health(image, default)
        found = {
            selection: [(topic.name, number) for topic, number, _ in selected(image, selection, default)]
            for selection in (*SELECTIONS, None)
        }
        every = [
            (topic.name, number, partition, min(min_isr(image, topic.name, default), len(partition.replicas)))
            for topic in sorted(image.topics.by_id.values(), key=lambda each: each.name)
            for number, partition in enumerate(topic.partitions)
        ]
        assert found[None] == [(name, number) for name, number, _, _ in every]
        assert found["unavailable"] == [(n, i) for n, i, p, _ in every if p.leader == NO_LEADER]
        assert found["under-replicated"] == [(n, i) for n, i, p, _ in every if len(p.isr) < len(p.replicas)]
        assert found["under-min-isr"] == [(n, i) for n, i, p, needed in every if len(p.isr) < needed]
        assert found["at-min-isr"] == [(n, i) for n, i, p, needed in every if len(p.isr) == needed]
        assert found["not-preferred"] == [(n, i) for n, i, p, _ in every if p.leader != p.replicas[0]]
        assert health._replace(one_loss_from_refusal=0) == (
            len(every),
            len(found["unavailable"]),
            len(found["under-replicated"]),
            len(found["under-min-isr"]),
            len(found["at-min-isr"]),
            0,
            len(found["not-preferred"]),
            len(found["reassigning"]),
        )
        assert health.one_loss_from_refusal == sum(
            len(p.isr) == needed < len(p.replicas) for _, _, p, needed in every
        )


def reassigned(**fields: Any) -> PartitionImage:
    one, two = BrokerId(1), BrokerId(2)
    sound = PartitionImage((one, two), (one,), one, 0, 0, 0, (two,), (), (), (), (Uuid(bytes(16)),) * 2)
    return sound._replace(**fields)


@pytest.mark.parametrize(
    ("partition", "why"),
    [
        (reassigned(), None),
        (reassigned(removing_replicas=(2,)), "both added and removed"),
        (reassigned(leader=NO_LEADER), "no leader"),
        (reassigned(adding_replicas=(9,)), "not registered"),
        (reassigned(adding_replicas=(9,), isr=(1, 9)), None),
        (reassigned(adding_replicas=(3,)), "is fenced"),
    ],
)
def test_a_reassignment_that_cannot_end_has_a_reason(partition: PartitionImage, why: str | None) -> None:
    """C21: a target that is dead, not registered or shutting down, or that nobody could report."""
    world = World()
    for line in ("register 1", "register 2", "register 3", "heartbeat 1", "heartbeat 2"):
        world.run(line)
    told = why_stuck(world.image, partition)
    assert told is None if why is None else told is not None and why in told
