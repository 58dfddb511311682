"""A rule of the sweeps of the active controller."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metadata_log.ids import NO_LEADER, BrokerId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import PartitionKey
from quorum.controller.upkeep import Sweeping
from quorum.decide.elections import has_online_directory
from quorum.decide.sweeps import Sweep, SweepKind
from tests.simulation.rules.batches import UNCLEAN_SETTING, setting_of
from tests.simulation.rules.rule import rule

if TYPE_CHECKING:
    from tests.simulation.world.cluster_controller import SimulatedController


class SweepRule:
    """Compares what waits for a sweep at its beginning and at its end."""

    sweeps_leave_nothing = rule(
        "what a sweep is for, and was there at its beginning, is done at its end, or has changed"
    )

    def __init__(self, controller: "SimulatedController", sweep: Sweeping) -> None:
        self._controller, self._sweep = controller, sweep
        self._reign = controller.reign
        self._out: set[BrokerId] = set()
        """Brokers that could not lead, or were being taken out of service, when one of the parts was made."""
        is_begun = isinstance(sweep, Sweep) and sweep._waiting is not None
        # One that was begun under a former claim goes on with what there was then.
        self._before = {} if is_begun else dict(self._waiting())

    def part_made(self) -> None:
        """Note who could get nothing from a part that has just been made."""
        controller = self._controller
        reign = controller.reign
        if reign is None:
            return
        image = reign.tip
        self._out |= {broker_id for broker_id, broker in image.brokers.items() if not broker.is_active}
        self._out |= {*controller.world.properties.sessions.parts.begun, *image.begun}
        self._out |= reign.changes.leaving()

    def ended(self) -> None:
        """Check what is left; a sweep under another claim looks at another state."""
        if self._reign is not self._controller.reign:
            return
        left = [key for key, partition in self._waiting() if self._before.get(key) is partition]
        if left:
            assert isinstance(self._sweep, Sweep)
            self._controller.world.violated(
                self.sweeps_leave_nothing(f"{self._sweep._kind.value} passed over {len(left)} partitions")
            )

    def _waiting(self) -> Iterator[tuple[PartitionKey, PartitionImage]]:
        controller = self._controller
        if not controller.is_active or not isinstance(self._sweep, Sweep):
            return
        image = controller.tip
        for topic_id, topic in image.topics.by_id.items():
            is_unclean = setting_of(image, topic, UNCLEAN_SETTING) == "true"
            for number, partition in enumerate(topic.partitions):
                if self._sweep._kind is SweepKind.BALANCE:
                    is_for_it = (
                        partition.replicas[0] in partition.isr and partition.replicas[0] != partition.leader
                    )
                    candidates = partition.replicas[:1]
                else:
                    is_for_it = is_unclean and partition.leader == NO_LEADER
                    candidates = partition.replicas
                if not is_for_it:
                    continue
                if any(_may_lead(image, each, partition) and each not in self._out for each in candidates):
                    yield (topic_id, number), partition


def _may_lead(image: MetadataImage, broker_id: BrokerId, partition: PartitionImage) -> bool:
    return image.is_active(broker_id) and has_online_directory(image, broker_id, partition)
