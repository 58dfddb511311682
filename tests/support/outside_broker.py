"""E: a broker written by a stranger from docs/formats.md alone: it imports nothing of ours.

    python outside_broker.py CLUSTER_ID BROKER_ID CONTROLLER_URL...

It registers, follows the log and checks every frame; a line on stdin (or its end) makes it ask to be let go. When the
controller grants that, it prints {"end_offset", "controller_epoch", "digest"} of what it folded.
"""

import hashlib
import http.client
import json
import os
import select
import struct
import sys
import urllib.parse
from typing import Any

import google_crc32c
import msgpack

HEADER = struct.Struct(">HBBIqIiqII")
SECRETS = ("password", "sasl.jaas.config", "ssl.keystore.key", "ssl.truststore.certificates", "secret")


class State:
    """The records, folded into plain dicts, and the position they stand at."""

    def __init__(self) -> None:
        self.brokers: dict[int, list[Any]] = {}
        self.topics: dict[bytes, str] = {}
        self.partitions: dict[tuple[bytes, int], list[Any]] = {}
        self.configs: dict[tuple[int, str, str], str] = {}
        self.features: dict[str, int] = {}
        self.voters: list[Any] = []
        self.next_producer_id: int | None = None
        self.kraft_version: int | None = None
        self.offset, self.epoch, self.crc = 0, -1, 0

    def take(self, data: bytes, *, snapshot: bool = False) -> None:
        """Check and fold whole frames; those of a snapshot count from 0 and end in a footer."""
        at, offset, crc = 0, 0 if snapshot else self.offset, 0 if snapshot else self.crc
        header = footer = None
        while at < len(data):
            magic, form, flags, size, base, count, epoch, _, previous_crc, own_crc = HEADER.unpack_from(
                data, at
            )
            body = data[at + 40 : at + 40 + size]
            assert (magic, form, flags, len(body)) == (0x4D51, 1, 0, size), "no whole frame"
            assert own_crc == google_crc32c.extend(google_crc32c.value(data[at : at + 36]), body), "crc"
            assert (base, previous_crc) == (offset, crc), "a gap"
            _, rows = msgpack.unpackb(body)
            assert len(rows) == count
            for kind, version, *fields in rows:
                assert version == 0, f"record {kind} version {version}"
                header = fields if kind == 1002 else header
                footer = fields if kind == 1003 else footer
                self.fold(kind, fields)
            at, offset, crc = at + 40 + size, base + count, own_crc
            if not snapshot:
                self.offset, self.epoch, self.crc = offset, epoch, crc
        if snapshot:
            assert header is not None and footer is not None and footer[1] == self.digest(), (
                "a wrong snapshot"
            )
            _, self.offset, self.epoch, _, self.crc = header

    def fold(self, kind: int, f: list[Any]) -> None:
        match kind:
            case 0:
                self.brokers[f[0]] = f
            case 1:
                del self.brokers[f[0]]
            case 2:
                self.topics[f[0]] = f[1]
            case 3:
                self.partitions[f[0], f[1]] = f[2:]
            case 4 if f[3] is None:
                self.configs.pop((f[0], f[1], f[2]), None)
            case 4:
                self.configs[f[0], f[1], f[2]] = f[3]
            case 5:
                partition = self.partitions[f[0], f[1]]
                # record: leader isr replicas adding removing recovery elr last_known directories
                for place, value in zip((2, 1, 0, 6, 7, 5, 8, 9, 10), f[2:], strict=True):
                    partition[place] = partition[place] if value is None else value
                partition[3] += f[2] is not None
                partition[4] += 1
            case 9:
                name = self.topics.pop(f[0])
                self.partitions = {key: row for key, row in self.partitions.items() if key[0] != f[0]}
                self.configs = {key: row for key, row in self.configs.items() if key[:2] != (2, name)}
            case 12 if f[1] == 0:
                self.features.pop(f[0], None)
            case 12:
                self.features[f[0]] = f[1]
            case 15:
                self.next_producer_id = f[2]
            case 17:
                broker = self.brokers[f[0]]
                assert broker[2] == f[1], "a change of another epoch"
                for place, value in zip((6, 7, 8, 9), f[2:], strict=True):
                    broker[place] = broker[place] if value is None else value
            case 1004:
                self.kraft_version = f[0]
            case 1005:
                self.voters = f[0]
            case 20 | 1000 | 1001 | 1002 | 1003:
                pass
            case _:
                raise AssertionError(f"record type {kind} is unknown")

    def lines(self) -> list[str]:
        def text(value: str) -> str:
            return value.encode().hex()

        def row(*columns: Any) -> str:
            return "|".join(
                ",".join(item.hex() if isinstance(item, bytes) else str(item) for item in column)
                if isinstance(column, list)
                else column.hex() if isinstance(column, bytes) else str(int(column)) if isinstance(column, bool)
                else str(column)
                for column in columns
            )  # fmt: skip

        lines = [
            row("b", i, b[2], b[1], b[6], b[7], text(b[5] or ""),
                [f"{text(e[0])}:{text(e[1])}:{e[2]}:{e[3]}" for e in b[3]],
                [f"{text(v[0])}:{v[1]}:{v[2]}" for v in b[4]], b[8], "-" if b[9] is None else b[9])
            for i, b in self.brokers.items()
        ]  # fmt: skip
        lines += [row("t", topic_id, text(name)) for topic_id, name in self.topics.items()]
        lines += [row("p", *key, *p[2:6], p[0], p[1], *p[6:]) for key, p in self.partitions.items()]
        for (kind, resource, name), value in self.configs.items():
            shown = (
                "sha256:" + hashlib.sha256(value.encode()).hexdigest() if name.endswith(SECRETS) else value
            )
            lines.append(row("c", kind, text(resource), text(name), text(shown)))
        lines += [row("f", text(name), level) for name, level in self.features.items()]
        lines += [] if self.next_producer_id is None else [row("i", self.next_producer_id)]
        lines += [] if self.kraft_version is None else [row("q", self.kraft_version)]
        for v in self.voters:
            lines.append(
                row("v", v[0], v[1], [f"{text(e[0])}:{text(e[1])}:{e[2]}" for e in v[2]], v[3], v[4])
            )
        return lines

    def digest(self) -> str:
        buckets = [[0, 0, 0] for _ in range(256)]
        for line in self.lines():
            h = hashlib.sha256(line.encode()).hexdigest()
            bucket = buckets[int(h[0:2], 16)]
            bucket[0] += 1
            bucket[1] ^= int(h[2:17], 16)
            bucket[2] ^= int(h[17:32], 16)
        text = "".join(f"{i:02x}:{n}:{x1:015x}:{x2:015x}\n" for i, (n, x1, x2) in enumerate(buckets))
        return hashlib.sha256(text.encode()).hexdigest()


class Quorum:
    """Whoever of the controllers answers."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls

    def call(self, method: str, path: str, body: Any = None) -> bytes:
        """Return the body of the first 200; the first of `urls` is the one that answered last."""
        for _ in range(1_000):
            url = urllib.parse.urlsplit(self.urls[0])
            connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=10)
            try:
                packed = None if body is None else msgpack.packb(body)
                connection.request(method, path, packed, {"Content-Type": "application/msgpack"})
                answer = connection.getresponse()
                content, named = answer.read(), answer.getheader("X-Controller")
            except OSError:
                content, named = b"", None
            else:
                if answer.status == 200:
                    return content
                assert answer.status in (404, 421, 429, 503, 504), (answer.status, content)
            finally:
                connection.close()
            self.urls = ([named] if named else []) + [u for u in self.urls[1:] if u != named] + self.urls[:1]
            select.select([], [], [], 0.02)
        raise AssertionError("no controller answers")


def main(cluster_id: str, broker_id: int, urls: list[str]) -> None:
    quorum, state, incarnation_id = Quorum(urls), State(), os.urandom(16)
    features = [["metadata.version", 25, 30], ["metaquorum.version", 1, 1]]
    who = {"cluster_id": cluster_id, "broker_id": broker_id, "incarnation_id": incarnation_id}
    registration = who | {
        "endpoints": [["PLAINTEXT", "127.0.0.1", 9, 0]], "features": features, "rack": None,
        "log_dirs": [os.urandom(16)], "previous_broker_epoch": -1,
    }  # fmt: skip
    registered = msgpack.unpackb(quorum.call("POST", "/v1/brokers/register", registration))
    who["broker_epoch"] = registered["broker_epoch"]
    leaving = False
    while True:
        leaving = leaving or bool(select.select([sys.stdin], [], [], 0)[0])
        fetch = who | {
            "fetch_offset": state.offset, "last_epoch": state.epoch, "last_crc": state.crc,
            "applied_offset": state.offset, "want_fence": False, "want_shut_down": leaving,
            "offline_log_dirs": [], "cordoned_log_dirs": None, "max_bytes": 1 << 20, "max_wait_ms": 200,
        }  # fmt: skip
        body = quorum.call("POST", "/v1/metadata/fetch", fetch)
        size = int.from_bytes(body[:4])
        head = msgpack.unpackb(body[4 : 4 + size])
        if head["kind"] == "IMAGE":
            state = State()
            state.take(quorum.call("GET", "/v1/metadata/snapshots/" + head["snapshot"]["id"]), snapshot=True)
        assert head["kind"] != "DIVERGING", head
        state.take(body[4 + size :])
        if head["should_shut_down"]:
            break
    print(json.dumps({"end_offset": state.offset, "controller_epoch": state.epoch, "digest": state.digest()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
