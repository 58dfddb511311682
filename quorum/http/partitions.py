"""Edge: partitions over HTTP: brokers report the ISRs of those they lead, operators ask for elections."""

from typing import Annotated, Any, Final, Literal

from aiohttp import web
from msgspec import Meta

from metadata_log.limits import ELECTIONS_MAX
from metadata_log.wire.commands import AlterPartition, ElectLeaders
from metadata_log.wire.shapes import Natural32, Shape, check_text, read_shape
from quorum.decide.partitions import LeadersElected, PartitionsAltered
from quorum.http.bodies import read_body, read_broker_body
from quorum.http.door import Door, Write


class NamedPartition(Shape, frozen=True):
    topic: str
    partition: Natural32


class WantedElections(Shape, frozen=True):
    election: Literal["preferred", "unclean"]
    partitions: Annotated[tuple[NamedPartition, ...], Meta(min_length=1, max_length=ELECTIONS_MAX)]


async def alter_partitions(door: Door, request: web.Request) -> web.Response:
    command = AlterPartition.from_map(await read_broker_body(request, door.bodies))
    # Without a request id: a report that is repeated finds newer partition epochs, or nothing to change.
    written = await door.controller.submit(command, actor=f"Broker:{command.broker_id}", request_id=None)
    assert isinstance(written.outcome, PartitionsAltered)
    return door.ok(request, {"partitions": [altered._asdict() for altered in written.outcome.results]})


async def elect_leaders(door: Door, request: web.Request) -> web.Response:
    return await door.write(request, _elections(await read_body(request, door.bodies)), _elected)


def _elections(body: Any) -> ElectLeaders:
    wanted = read_shape(body, WantedElections, "elections")
    for one in wanted.partitions:
        check_text("elections.topic", one.topic)
    return ElectLeaders(
        unclean=wanted.election == "unclean",
        partitions=tuple((one.topic, one.partition) for one in wanted.partitions),
    )


def _elected(outcome: LeadersElected) -> dict[str, Any]:
    return {
        "partitions": [
            {"topic": one.topic, "partition": one.partition_id, "error": one.error, "leader": one.leader}
            for one in outcome.results
        ]
    }


WRITES: Final = {"ElectLeaders": Write(_elections, _elected)}
ROUTES: Final = (
    ("POST", "/v1/partitions/alter", alter_partitions),
    ("POST", "/v1/partitions/elect", elect_leaders),
)
