"""Edge: how long `/healthz` of a controller takes while a benchmark runs."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

PROBE_EVERY_S: Final = 0.005


@asynccontextmanager
async def healthz_times(leader: str) -> AsyncIterator[list[float]]:
    """Fill the list yielded with what each `HEAD /healthz` took, in ms: no turn of the leader's loop was longer."""
    host, port = leader.removeprefix("http://").split(":")
    taken: list[float] = []

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            began = time.monotonic()
            writer.write(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            taken.append((time.monotonic() - began) * 1000)
            await asyncio.sleep(PROBE_EVERY_S)

    async def ask_on() -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(host, int(port))
                try:
                    await ask(reader, writer)
                finally:
                    writer.close()
            await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as group:
        asking = group.create_task(ask_on())
        try:
            yield taken
        finally:
            asking.cancel()
