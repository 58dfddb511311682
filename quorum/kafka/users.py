"""Edge: users' SCRAM credentials in Kafka's protocol: they are described and altered."""

from collections.abc import Iterable
from typing import Final

from metadata_log.errors import MetadataError
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.kafka.reading import Values
from quorum.decide.users import (
    AlterUserScramCredentials,
    Described,
    ScramDeletion,
    ScramUpsertion,
    describe,
)
from quorum.kafka.door import NO_THROTTLE, Api, Asked, KafkaDoor, Waits
from quorum.kafka.errors import NONE, KafkaError, item_error, kafka_error
from quorum.kafka.parts_of_requests import Part, decided_in_parts

DESCRIBE_CREDENTIALS, ALTER_CREDENTIALS = 50, 51
_BYTES_PER_WEIGHT: Final = 512
"""Names and salts may be long."""


async def describe_credentials(door: KafkaDoor, asked: Asked) -> Values:
    (users,) = asked.values
    image: MetadataImage = await door.controller.read(lambda image: image)
    names = None if users is None else [name for (name,) in users]

    def described() -> list[Values]:
        return [_described(each) for each in describe(image, names)]

    return (NO_THROTTLE, NONE, None, await door.reads.run(described))


def _described(found: Described) -> Values:
    if found.error is not None:
        return (found.user, *kafka_error(found.error), ())
    return (found.user, NONE, None, [(each.mechanism, each.iterations) for each in found.credentials])


async def alter_credentials(door: KafkaDoor, asked: Asked) -> Values:
    deletions, upsertions = asked.values
    changes: list[ScramDeletion | ScramUpsertion] = [
        *map(ScramDeletion._make, deletions),
        *map(ScramUpsertion._make, upsertions),
    ]
    parts = await decided_in_parts(
        door, asked.caller, changes, _command, weight=_weight, name=lambda change: change.name
    )
    return (NO_THROTTLE, list(_rows(parts)))


def _command(changes: Iterable[ScramDeletion | ScramUpsertion]) -> AlterUserScramCredentials:
    both = [*changes]
    return AlterUserScramCredentials(
        deletions=tuple(each for each in both if isinstance(each, ScramDeletion)),
        upsertions=tuple(each for each in both if isinstance(each, ScramUpsertion)),
    )


def _weight(change: ScramDeletion | ScramUpsertion) -> int:
    size = len(change.name) + (len(change.salt) if isinstance(change, ScramUpsertion) else 0)
    return 1 + size // _BYTES_PER_WEIGHT


def _rows(parts: Iterable[Part]) -> Iterable[Values]:
    for some, outcome in parts:
        if isinstance(outcome, MetadataError):
            error = kafka_error(outcome)
            for user in dict.fromkeys(each.name for each in some):
                yield (user, *error)
        else:
            for result in outcome.results:
                yield (result.user, *item_error(result.error, result.message))


def _refused(_api: Api, asked: Asked, error: KafkaError) -> Values:
    deletions, upsertions = asked.values
    users = dict.fromkeys(each[0] for each in (*deletions, *upsertions))
    return (NO_THROTTLE, [(user, *error) for user in users])


APIS: Final = (
    Api(DESCRIBE_CREDENTIALS, Waits(describe_credentials), "DescribeUserScramCredentials"),
    Api(
        ALTER_CREDENTIALS,
        Waits(alter_credentials),
        "AlterUserScramCredentials",
        _refused,
        in_envelopes=True,
    ),
)
