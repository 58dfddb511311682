"""Edge: a stranger at a port that speaks Kafka's protocol: it sends what it forged, and reads what comes back."""

import asyncio
import random
import ssl
import struct
from collections import Counter
from contextlib import suppress
from typing import Final

from tests.hostile_kafka.forgery import Forged, Forger

ALONE: Final = 0.7
"""The share of requests that have a connection of their own."""
BURST_MAX: Final = 6
"""Requests that are sent together."""
PATIENCE_S: Final = 0.3
"""For the next answer; a request that is parked may have none for a long time."""
ANSWER_BYTES_MAX: Final = 16 << 20


class Broken(Exception):
    """An answer is none."""


class Stranger:
    """Sends requests on one connection after the other, and counts what becomes of them."""

    def __init__(self, rng: random.Random, address: tuple[str, int], tls: ssl.SSLContext | None) -> None:
        self._rng = rng
        self._forger = Forger(rng)
        self._address = address
        self._tls = tls
        self.counted: Counter[str] = Counter()

    @property
    def read(self) -> int:
        """Requests that the other end has read: behind one that ends the connection it reads none."""
        return sum(self.counted[end] for end in ("answered", "closed", "given up"))

    async def visit(self) -> None:
        """Connect, send some requests together, and read their answers.

        Raises:
            Broken: an answer belongs to no request, or comes out of order.
            OSError: the port does not accept connections.
        """
        reader, writer = await asyncio.open_connection(*self._address, ssl=self._tls)
        together = 1 if self._rng.random() < ALONE else self._rng.randint(2, BURST_MAX)
        forged = [self._forger.next() for _ in range(together)]
        self.counted["sent"] += len(forged)
        self.counted.update(one.kind for one in forged)
        try:
            with suppress(ConnectionError, ssl.SSLError):
                writer.write(b"".join(one.data for one in forged))
                await self._read(reader, forged)
        finally:
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader, forged: list[Forged]) -> None:
        for one in forged:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    if not 4 <= size <= ANSWER_BYTES_MAX:
                        raise Broken(f"an answer of {size} bytes")
                    answer = await reader.readexactly(size)
            except asyncio.IncompleteReadError as end:
                if end.partial and len(end.partial) < 4:
                    raise Broken("the connection ends within a size") from end
                self.counted["closed"] += 1
                return
            except TimeoutError:
                self.counted["given up"] += 1
                return
            if int.from_bytes(answer[:4], signed=True) != one.correlation_id:
                raise Broken(f"an answer to {answer[:4].hex()} comes for {one.correlation_id} ({one.kind})")
            self.counted["answered"] += 1
