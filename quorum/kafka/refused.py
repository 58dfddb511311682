"""Edge: requests that no controller here serves, refused with the error that Kafka's own clients and tools understand."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from metadata_log.kafka.messages import ANSWERS, REQUESTS
from metadata_log.kafka.reading import Values
from quorum.kafka.door import ITEMS_AT_ONCE, NO_THROTTLE, Api, Asked, AtOnce, KafkaDoor, Waits
from quorum.kafka.errors import UNSUPPORTED_VERSION, KafkaError, whole

log = logging.getLogger(__name__)

NO_ACLS: Final = KafkaError(54, "this controller has no access control lists")
"""SECURITY_DISABLED, as from a Kafka without an authorizer."""
NO_TOKENS: Final = KafkaError(61, "this controller has no delegation tokens")
"""DELEGATION_TOKEN_AUTH_DISABLED."""
NO_KAFKA_CONTROLLERS: Final = KafkaError(
    UNSUPPORTED_VERSION, "controllers of Kafka cannot take part in this quorum"
)
NOTHING: Final = "DescribeCluster"
"""What may be refused to whom: nothing is told that a description of the cluster does not tell."""
CONTROLLERS_ONLY: Final = (52, 53, 54, 70, 82)
"""Vote, BeginQuorumEpoch, EndQuorumEpoch, ControllerRegistration, UpdateRaftVoter: only a controller of Kafka sends them."""


def _each_acl(values: Values) -> Values:
    return (NO_THROTTLE, [tuple(NO_ACLS) for _ in values[0]])


def _each_filter(values: Values) -> Values:
    return (NO_THROTTLE, [(*NO_ACLS, ()) for _ in values[0]])


def _of(make: Callable[[Values], Values]) -> Waits:
    """Return what refuses each item. There may be 100,000: the rows of many are made in a thread, and encoded in one."""

    async def refuse(door: KafkaDoor, asked: Asked) -> Values:
        items = sum(len(each) for each in asked.values if isinstance(each, tuple))
        return make(asked.values) if items <= ITEMS_AT_ONCE else await door.reads.run(make, asked.values)

    return Waits(refuse)


def _whole(key: int, error: KafkaError) -> AtOnce:
    return AtOnce(lambda _door, _asked: whole(ANSWERS[key], error))


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
    Api(29, _whole(29, NO_ACLS), NOTHING),
    Api(30, _of(_each_acl), NOTHING, in_envelopes=True),
    Api(31, _of(_each_filter), NOTHING, in_envelopes=True),
    *(Api(key, _whole(key, NO_TOKENS), NOTHING, in_envelopes=True) for key in (38, 39, 40)),
    Api(41, _whole(41, NO_TOKENS), NOTHING),
    *(
        Api(key, AtOnce(partial(_ASKING.refuse, key)), NOTHING, is_advertised=False)
        for key in CONTROLLERS_ONLY
    ),
)
