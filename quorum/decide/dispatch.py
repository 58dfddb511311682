"""Pure: one command, one decision: the door through which the controller, a dry run and the tests all go."""

import random
from collections.abc import Mapping
from typing import Final, assert_never

from metadata_log.errors import Rejected
from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.wire.commands import (
    AddVoter,
    AlterConfigs,
    Command,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    RemoveVoter,
    UnregisterBroker,
)
from quorum.decide import brokers, configs, quorum, topics
from quorum.decide.decision import Decision
from quorum.sessions import Liveness

OPERATIONS: Final[Mapping[type[Command], str]] = {
    RegisterBroker: "RegisterBroker",
    UnregisterBroker: "UnregisterBroker",
    CreateTopic: "CreateTopics",
    DeleteTopic: "DeleteTopics",
    AlterConfigs: "IncrementalAlterConfigs",
    AddVoter: "AddRaftVoter",
    RemoveVoter: "RemoveRaftVoter",
}
"""The operations' names in envelopes, in scripts and in Kafka."""


def decide(
    image: MetadataImage,
    command: Command,
    *,
    liveness: Liveness,
    now_ms: int,
    rng: random.Random,
    cluster_id: str,
    ineligible: frozenset[BrokerId] = frozenset(),
) -> Decision:
    """Return what a command leads to on an image; a refusal is a decision too, and nothing is raised.

    `ineligible` are brokers whose fencing is not complete: they lead nothing and get no replica.
    """
    try:
        match command:
            case RegisterBroker():
                return brokers.register(
                    image,
                    command,
                    liveness=liveness,
                    now_ms=now_ms,
                    cluster_id=cluster_id,
                    ineligible=ineligible,
                )
            case UnregisterBroker():
                return brokers.unregister(image, command, ineligible=ineligible)
            case CreateTopic():
                return topics.create(image, command, rng=rng, ineligible=ineligible)
            case DeleteTopic():
                return topics.delete(image, command)
            case AlterConfigs():
                return configs.alter(image, command)
            case AddVoter():
                return quorum.add_voter(image, command)
            case RemoveVoter():
                return quorum.remove_voter(image, command)
            case _:
                assert_never(command)
    except Rejected as refusal:
        return Decision(refusal=refusal)
