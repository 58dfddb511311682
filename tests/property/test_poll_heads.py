"""Edge: the connection that answers polls frames each request as aiohttp's parser does, whatever a client sends.

Otherwise the bytes behind a request would be the next request to one of them, and its body to the other.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser, HttpRequestParserPy, RawRequestMessage

from quorum.http.poll_connection import PATH, read_head

HEADS_EACH: Final = 1_500
LINES: Final = (
    f"POST {PATH} HTTP/1.1".encode(),
    b"Host: localhost",
    b"Content-Type: application/msgpack",
    b"Accept: */*",
    b"User-Agent: x/1",
    b"Content-Length: 3",
)
FIRST_LINES: Final = tuple(
    line.replace(b"PATH", PATH.encode())
    for line in (
        b"GET PATH HTTP/1.1",
        b"HEAD / HTTP/1.1",
        b"CONNECT /x HTTP/1.1",
        b"CONNECT localhost:80 HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"FOO / HTTP/1.1",
        b"PRI /x HTTP/1.1",
        b"M-SEARCH / HTTP/1.1",
        b"post PATH HTTP/1.1",
        b"POST http://localhostPATH HTTP/1.1",
        b"POST //localhostPATH HTTP/1.1",
        b"POST PATH  HTTP/1.1",
        b"POST\tPATH HTTP/1.1",
        b" POST PATH HTTP/1.1",
        b"POST PATH HTTP/1.1 ",
        b"POST PATH HTTP/1.0",
        b"POST PATH HTTP/2.0",
        b"POST PATH?consistency=stale HTTP/1.1",
        b"POST PATH?consistency=stale#x HTTP/1.1",
        b"POST /v1/metadata/%66etch HTTP/1.1",
        b"POST /v1/x/../metadata/fetch HTTP/1.1",
        b"GET //[x/ HTTP/1.1",
    )
)
FURTHER_LINES: Final = (
    b"Transfer-Encoding: chunked",
    b"transfer-encoding:chunked",
    b"Transfer-Encoding : chunked",
    b"Content-Length: 3",
    b"Content-Length: 4",
    b"Content-Length: 03",
    b"Content-Length: +3",
    b"Content-Length: 3, 3",
    b"Content-Length:",
    b"Content-Length: 0x3",
    b"Content-Length: 1_0",
    b"Content-Length : 3",
    b"Content_Length: 3",
    b"Connection: close",
    b"Connection: upgrade",
    b"Upgrade: websocket",
    b"Expect: 100-continue",
    b"Host: other",
    b"Host:",
    b" folded",
    b"\tfolded",
    b"X: a\nTransfer-Encoding: chunked",
    b"X: a\rTransfer-Encoding: chunked",
    b"X: a\x00b",
    b"X\x00: a",
    b": a",
    b"no colon",
    b"X: \xff",
    b"Trailer: X",
    b"Content-Encoding: gzip",
)
ODD_BYTES: Final = b"\x00\t\r\n \x7f\x80\xff:,;aZ0-_"
NEXT: Final = b"GET /next HTTP/1.1\r\nHost: localhost\r\n\r\n"


def mutated(rng: random.Random) -> bytes:
    lines = list(LINES)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        match rng.randrange(6):
            case 0:
                lines[0] = rng.choice(FIRST_LINES)
            case 1 | 2:
                lines.insert(rng.randrange(1, len(lines) + 1), rng.choice(FURTHER_LINES))
            case 3 if len(lines) > 1:
                del lines[rng.randrange(1, len(lines))]
            case _:
                place = rng.randrange(len(lines))
                line = bytearray(lines[place])
                at = rng.randrange(len(line) + 1)
                line[at : at + rng.randrange(2)] = bytes([rng.choice(ODD_BYTES)])
                lines[place] = bytes(line)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def requests_in(
    data: bytes, parser: type[HttpRequestParser], loop: asyncio.AbstractEventLoop
) -> Sequence[RawRequestMessage] | None:
    """Return the requests that aiohttp finds; None if it refuses what it reads."""
    try:
        messages, _, _ = parser(BaseProtocol(loop), loop, 2**16, auto_decompress=False).feed_data(data)
    except HttpProcessingError:
        return None
    return [message for message, _ in messages]


@pytest.mark.parametrize("parser", [HttpRequestParser, HttpRequestParserPy])
@pytest.mark.parametrize("seed", range(4))
def test_a_head_that_is_read_here_means_the_same_to_aiohttp(
    seed: int, parser: type[HttpRequestParser]
) -> None:
    async def story() -> tuple[int, int]:
        loop, rng = asyncio.get_running_loop(), random.Random(seed)
        understood = polls = 0
        for _ in range(HEADS_EACH):
            sent = mutated(rng)
            head = sent[: sent.find(b"\r\n\r\n") + 4]
            read = read_head(head)
            if read is None or read.body_bytes > 100:
                continue
            understood += 1
            polls += read.is_poll
            found = requests_in(head + bytes(read.body_bytes) + NEXT, parser, loop)
            if found is None:
                assert not read.is_poll, head
                continue
            first, behind = found
            assert behind.path == "/next", head
            if read.is_poll:
                assert (first.method, first.path.partition("?")[0]) == ("POST", PATH)
                assert first.headers.getall("Host") == [read.host]
                assert not (first.chunked or first.upgrade or first.should_close or first.compression)
        return understood, polls

    understood, polls = asyncio.run(story())
    assert understood > polls > HEADS_EACH / 20, "else nothing was compared"
