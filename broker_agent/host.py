"""Pure: what a BrokerAgent needs of its host: the data plane of the broker.
Tests: tests/unit/broker_agent/test_agent_host.py.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from broker_agent.replicas import Instruction
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import PartitionKey


class Host(Protocol):
    """Keeps the replicas of one broker. It is called on the event loop between two batches, so it must be quick.

    An exception out of it ends the broker.
    """

    @property
    def known_offset(self) -> int:
        """End offset of the newest image that the host's disks remember; 0 if they remember none.

        An older image calls no replica a stray.
        """
        ...

    def held(self) -> Iterable[PartitionKey]:
        """Return the replicas on the disks, once the image can be compared with them."""
        ...

    def carry_out(self, instructions: Sequence[Instruction], image: MetadataImage) -> None:
        """Carry instructions out, in their order; `image` is the newest one.

        It is called for every batch, also without an instruction, but not while the image may be old. An instruction may
        come twice, and Delete for a replica that is not there.
        """
        ...
