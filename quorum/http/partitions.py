"""Edge: partitions over HTTP: brokers report the ISRs of those they lead."""

from typing import Final

from aiohttp import web

from metadata_log.wire.commands import AlterPartition
from quorum.decide.partitions import PartitionsAltered
from quorum.http.bodies import read_broker_body
from quorum.http.door import Door


async def alter_partitions(door: Door, request: web.Request) -> web.Response:
    command = AlterPartition.from_map(await read_broker_body(request, door.bodies))
    # Without a request id: a report that is repeated finds newer partition epochs, or nothing to change.
    written = await door.controller.submit(command, actor=f"Broker:{command.broker_id}", request_id=None)
    assert isinstance(written.outcome, PartitionsAltered)
    return door.ok(request, {"partitions": [altered._asdict() for altered in written.outcome.results]})


ROUTES: Final = (("POST", "/v1/partitions/alter", alter_partitions),)
