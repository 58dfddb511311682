"""Pure: requests in Kafka's protocol, whole and damaged: what Kafka's own clients send, and what strangers make of it."""

import gzip
import json
import random
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import tests.golden
from metadata_log.kafka.messages import PRINCIPAL, REQUESTS, Malformed, message_writer, request_header
from tests.support.kafka_client import request_bytes

VECTORS: Final = Path(tests.golden.__path__[0]) / "kafka" / "message_vectors.jsonl.gz"
"""Requests of each kind in each version, as Kafka's Java classes write them."""
ENVELOPE: Final = 58
NO_ID: Final = bytes(16)
EXTREMES: Final = (
    *(b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0"),
    *(b"\xff" * 10, b"\x7f" + b"\xff" * 7, b"\x80" * 9 + b"\1", b"\xff\xff", b"\x7f\xff", b"\x80\0", b"\0"),
)
"""Lengths, numbers and varints that nobody means."""
SENSIBLE: Final[Sequence[tuple[int, int, tuple[Any, ...]]]] = (
    (18, 4, ("a client", "1")),
    (19, 7, ([("t", 2, 1, (), [("retention.ms", "5")]), ("u", -1, -1, [(0, (11,))], ())], 1_000, False)),
    (19, 7, ([("v", 1, 1, (), ())], 1_000, True)),
    (20, 6, ([("t", NO_ID), (None, bytes(15) + b"\7")], (), 1_000)),
    (32, 4, ([(2, "t", None), (4, "", ("a",))], True, True)),
    (33, 2, ([(4, "", [("log.retention.ms", "5")])], False)),
    (37, 3, ([("t", 3, None), ("u", 2, [((11,),)])], 1_000, False)),
    (43, 2, (0, None, 1_000)),
    (43, 2, (1, [("t", (0, 1))], 1_000)),
    (44, 1, ([(4, "", [("log.retention.ms", 0, "5")]), (2, "t", [("cleanup.policy", 2, "compact")])], False)),
    (45, 1, (1_000, True, [("t", [(0, (11,)), (1, None)])])),
    (46, 0, (1_000, None)),
    (55, 2, ([("__cluster_metadata", [(0,)])],)),
    (57, 2, (1_000, [("metadata.version", 30, False, 1)], True)),
    (60, 2, (True, 2, False)),
    (64, 0, (11,)),
    (80, 1, (None, 1_000, 9, NO_ID, [("CONTROLLER", "h", 1)], True)),
    (81, 0, (None, 9, NO_ID)),
)


class Forged(NamedTuple):
    """What a stranger sends: with the size before it. `correlation_id` is that of the answer, if there is one at all."""

    data: bytes
    correlation_id: int | None
    kind: str


@cache
def seeds() -> tuple[bytes, ...]:
    """Return whole requests, without their sizes."""
    whole = [request_bytes(*one) for one in SENSIBLE]
    for line in gzip.decompress(VECTORS.read_bytes()).decode().splitlines():
        vector = json.loads(line)
        if vector["kind"] == "request":
            key, version = vector["number"], vector["version"]
            head = struct.pack(">hhih", key, version, 7, 1) + b"c"
            if version in REQUESTS[key].flexible:
                head += b"\0"
            whole.append(head + bytes.fromhex(vector["bytes"]))
    return tuple(whole)


class Forger:
    """Makes requests by chance."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._seeds = seeds()
        self._sent = 0

    def next(self) -> Forged:
        """Return the next request."""
        rng = self._rng
        self._sent += 1
        kind = rng.choice(
            ("whole", "bytes", "extremes", "cut", "longer", "spliced", "head", "random", "size")
        )
        data = self._numbered(rng.choice(self._seeds))
        match kind:
            case "bytes":
                data = self._with_bytes(data)
            case "extremes":
                data = self._with_extremes(data)
            case "cut":
                data = data[: rng.randrange(len(data))]
            case "longer":
                data += rng.randbytes(rng.choice((1, 4, 100, 20_000)))
            case "spliced":
                other = rng.choice(self._seeds)
                at = rng.randrange(8, len(data))
                data = data[:at] + other[min(at, len(other)) :]
            case "head":
                head = struct.pack(">hh", rng.choice((rng.randrange(-2, 100), rng.randrange(1 << 15))), 0)
                data = head[:2] + struct.pack(">h", rng.randrange(-2, 20)) + data[4:]
            case "random":
                data = rng.randbytes(rng.choice((0, 1, 7, 8, 64, 1_000)))
        if kind != "random" and rng.random() < 0.2:
            data = self._numbered(self._wrapped(data))
        if kind == "size":
            size = rng.choice((-1, -(1 << 31), (1 << 31) - 1, 3 << 20, len(data) + 1, 0))
            return Forged(struct.pack(">i", size) + data, None, kind)
        return Forged(struct.pack(">i", len(data)) + data, _correlation_id(data), kind)

    def _numbered(self, data: bytes) -> bytes:
        return data[:4] + struct.pack(">i", self._sent) + data[8:]

    def _with_bytes(self, data: bytes) -> bytes:
        changed, rng = bytearray(data), self._rng
        for _ in range(rng.choice((1, 1, 2, 8))):
            changed[rng.randrange(8, len(changed))] = rng.randrange(256)
        return bytes(changed)

    def _with_extremes(self, data: bytes) -> bytes:
        at, put = self._rng.randrange(8, len(data)), self._rng.choice(EXTREMES)
        return data[:at] + put + data[at + len(put) * self._rng.randrange(2) :]

    def _wrapped(self, data: bytes) -> bytes:
        """Return an envelope with a request in it, which may be an envelope itself."""
        principal = struct.pack(">h", 0) + message_writer(PRINCIPAL, 0)(("User", "mallory", False))
        if self._rng.random() < 0.1:
            principal = self._rng.randbytes(self._rng.randrange(12))
        return request_bytes(ENVELOPE, 0, (data, principal, bytes((10, 0, 0, 9))))


def _correlation_id(data: bytes) -> int | None:
    """Return which answer a request may get; None: its connection is closed for certain."""
    try:
        return request_header(data).correlation_id
    except Malformed:
        return None
