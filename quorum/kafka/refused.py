"""Edge: requests that no controller here serves, refused with the error that Kafka's own clients and tools understand."""

import logging
from functools import partial
from typing import Final

from metadata_log.kafka.messages import ANSWERS, REQUESTS
from metadata_log.kafka.reading import Values
from quorum.kafka.door import Api, Asked, AtOnce, KafkaDoor
from quorum.kafka.errors import UNSUPPORTED_VERSION, KafkaError, whole

log = logging.getLogger(__name__)

NO_KAFKA_CONTROLLERS: Final = KafkaError(
    UNSUPPORTED_VERSION, "controllers of Kafka cannot take part in this quorum"
)
NOTHING: Final = "DescribeCluster"
"""What may be refused to whom: nothing is told that a description of the cluster does not tell."""
CONTROLLERS_ONLY: Final = (52, 53, 54, 70, 82)
"""Vote, BeginQuorumEpoch, EndQuorumEpoch, ControllerRegistration, UpdateRaftVoter: only a controller of Kafka sends them."""


class _Asking:
    """The addresses from which controllers of Kafka have asked; each is logged once."""

    ADDRESSES_MAX: Final = 100

    def __init__(self) -> None:
        self._addresses: set[str | None] = set()

    def refuse(self, key: int, _door: KafkaDoor, asked: Asked) -> Values:
        address = asked.caller.address
        if address not in self._addresses and len(self._addresses) < self.ADDRESSES_MAX:
            self._addresses.add(address)
            log.warning("kafka_controller_asked", extra={"address": address, "request": REQUESTS[key].name})
        return whole(ANSWERS[key], NO_KAFKA_CONTROLLERS)


_ASKING: Final = _Asking()
APIS: Final = (
    *(
        Api(key, AtOnce(partial(_ASKING.refuse, key)), NOTHING, is_advertised=False)
        for key in CONTROLLERS_ONLY
    ),
)
