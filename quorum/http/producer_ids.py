"""Edge: producer ids over HTTP: a broker gets a block of them. Tests: tests/unit/quorum/http/test_administration.py."""

from typing import Annotated, Final

from aiohttp import web
from msgspec import Meta

from metadata_log.ids import BrokerId
from metadata_log.wire.commands import AllocateProducerIds
from metadata_log.wire.shapes import INT32_MAX, Natural, Shape, read_shape
from quorum.decide.producer_ids import ProducerIdsAllocated
from quorum.http.bodies import caller_of
from quorum.http.door import Door
from quorum.http.routes import writing


class WantedBlock(Shape, frozen=True):
    broker_id: Annotated[BrokerId, Meta(ge=0, le=INT32_MAX)]
    broker_epoch: Natural


async def allocate(door: Door, request: web.Request) -> web.Response:
    wanted = read_shape(await door.broker_body(request), WantedBlock, "producer_ids")
    command = AllocateProducerIds(broker_id=wanted.broker_id, broker_epoch=wanted.broker_epoch)
    # Without a request id: if the answer is lost, its block is never used; only numbers are lost with it.
    written = await door.controller.submit(command, caller_of(request))
    assert isinstance(written.outcome, ProducerIdsAllocated)
    return door.ok(request, {"first": written.outcome.first, "length": written.outcome.length})


ROUTES: Final = (writing("POST", "/v1/producer-ids", allocate, "AllocateProducerIds"),)
