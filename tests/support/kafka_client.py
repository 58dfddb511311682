"""A client of Kafka's protocol over a raw socket: it writes requests and reads answers by the schemas."""

import asyncio
import ssl
import struct
from typing import Any

from metadata_log.kafka.messages import (
    ANSWER_HEADER,
    ANSWERS,
    API_VERSIONS,
    REQUEST_HEADER,
    REQUESTS,
    message_reader,
    message_writer,
    read_whole,
)
from metadata_log.kafka.reading import Values

ANSWER_S = 60.0


def request_bytes(key: int, version: int, values: Values, *, correlation_id: int = 7) -> bytes:
    """Return a request without the size before it."""
    header_version = 2 if version in REQUESTS[key].flexible else 1
    header = message_writer(REQUEST_HEADER, header_version)((key, version, correlation_id, "a client"))
    return header + message_writer(REQUESTS[key], version)(values)


def answer_values(key: int, version: int, answer: bytes) -> tuple[int, Values]:
    """Return the correlation id and the values of an answer."""
    is_flexible = version in ANSWERS[key].flexible and key != API_VERSIONS
    (correlation_id,), at = message_reader(ANSWER_HEADER, 1 if is_flexible else 0)(answer, 0)
    return correlation_id, read_whole(ANSWERS[key], version, answer, at)


def sized(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


class KafkaClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._asked = 0

    @classmethod
    async def connect(cls, address: tuple[str, int], tls: ssl.SSLContext | None = None) -> "KafkaClient":
        return cls(*await asyncio.open_connection(*address, ssl=tls))

    def send(self, key: int, version: int, values: Values, *, correlation_id: int = 7) -> None:
        self.writer.write(sized(request_bytes(key, version, values, correlation_id=correlation_id)))

    async def answer(self) -> bytes:
        """Return the next answer without its size; raises IncompleteReadError where the connection ends."""
        async with asyncio.timeout(ANSWER_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def ask(self, key: int, version: int, *values: Any) -> Values:
        """Return the values of the answer to a request."""
        self._asked += 1
        self.send(key, version, values, correlation_id=self._asked)
        correlation_id, answered = answer_values(key, version, await self.answer())
        assert correlation_id == self._asked
        return answered

    async def is_closed(self) -> bool:
        """Wait until the other end closes the connection; False if it answers instead."""
        async with asyncio.timeout(ANSWER_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.close()
