"""Edge: the processor time that one fetch and one heartbeat of an idle broker take within the process, without its sockets.

A controller runs in this process, alone in its quorum, and serves Kafka's listener. The connections that are measured have
transports without sockets. What is left is what the listener does from a request's bytes to its answer's. A busy machine
makes rounds slower, never faster: the fastest of many counts.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from ops.bench.door import lone_settings, running
from quorum.kafka import listener
from quorum.kafka.connection import KafkaConnection, Serving
from quorum.kafka.door import KafkaDoor
from tests.kafka.idle_brokers import FIRST, fetch_of, serving
from tests.kafka.large_topics import EVERYTHING
from tests.support.kafka_client import KafkaClient, request_bytes, sized

_BROKERS: Final = 100
_SESSION_MS: Final = 600_000
"""No broker is fenced meanwhile."""
_WAIT_MS: Final = 1
_DUE_S: Final = 0.03
"""Until all fetches are due, a tick included."""


class _Transport(asyncio.Transport):
    """Takes answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = 0

    def write(self, _data: object) -> None:
        self.answered += 1

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _Socket() if name == "socket" else default

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever unsent."""

    def close(self) -> None:
        """The listener ends."""

    def abort(self) -> None:
        raise AssertionError("a connection was refused")


class _Socket:
    family = -1

    def setsockopt(self, *_: object) -> None:
        """No kernel has it."""


class _Client:
    """A connection over which the same request is sent again and again, each time with another correlation id."""

    def __init__(self, serving: Serving, request: bytes) -> None:
        self.transport = _Transport()
        self._connection = KafkaConnection(serving)
        self._connection.connection_made(self.transport)
        self._before, self._behind = request[:8], request[12:]
        self._sent = 0

    def send(self) -> None:
        self._sent += 1
        self._connection.data_received(self._before + self._sent.to_bytes(4, "big") + self._behind)

    @property
    def is_answered(self) -> bool:
        return self.transport.answered == self._sent


@dataclass(slots=True)
class IdleRequests:
    """Microseconds of a round's requests, by what they are."""

    fetches: list[float]
    heartbeats: list[float]

    def text(self) -> str:
        return (
            f"fetch {min(self.fetches):.1f} us, heartbeat {min(self.heartbeats):.1f} us of processor time, without sockets; "
            f"fastest of {len(self.fetches)} rounds of {_BROKERS}"
        )


async def idle_requests(directory: Path, *, rounds: int) -> IdleRequests:
    """Have brokers fetch and send heartbeats, and return what each request took."""
    settings = lone_settings(directory / "controller")
    settings = dataclasses.replace(
        settings, timing=dataclasses.replace(settings.timing, session_timeout_ms=_SESSION_MS)
    )
    assert settings.listen_kafka is not None
    made: list[Serving] = []

    def kept(door: KafkaDoor, **_: bool) -> Serving:
        made.append(Serving(door, counts_addresses=False))
        return made[0]

    taken = IdleRequests([], [])
    with patch.object(listener, "Serving", kept):
        async with running(settings):
            client = await KafkaClient.connect(settings.listen_kafka)
            epochs = [
                await serving(client, settings.cluster_id, FIRST + number) for number in range(_BROKERS)
            ]
            client.close()
            controller = made[0].door.controller
            position = (controller.committed.end_offset, controller.committed.controller_epoch)
            fetches = [
                _Client(made[0], sized(fetch_of(FIRST + number, position, wait_ms=_WAIT_MS)))
                for number in range(_BROKERS)
            ]
            heartbeats = [
                _Client(
                    made[0],
                    sized(request_bytes(63, 2, (FIRST + number, epoch, EVERYTHING, False, False, (), None))),
                )
                for number, epoch in enumerate(epochs)
            ]
            for _ in range(rounds):
                taken.fetches.append(await _taken(fetches, lambda: _let_fetches_end(made[0].door)))
                taken.heartbeats.append(await _taken(heartbeats, made[0].door.fetches.heartbeats._ring))
    return taken


async def _taken(clients: list[_Client], end: Callable[[], None]) -> float:
    """Return the processor time of each of some requests in microseconds; `end` ends their wait."""
    began = time.thread_time()
    for client in clients:
        client.send()
    spent = time.thread_time() - began
    time.sleep(_DUE_S)  # and the loop stands still: no timer ends the wait
    began = time.thread_time()
    end()
    while not all(client.is_answered for client in clients):
        await asyncio.sleep(0)
    return (spent + time.thread_time() - began) * 1e6 / len(clients)


def _let_fetches_end(door: KafkaDoor) -> None:
    ticks = door.kafka_log.fetches._parked
    for tick_ms in list(ticks._ticks):
        ticks._ticks[tick_ms].timer.cancel()
        ticks._ring(tick_ms)
