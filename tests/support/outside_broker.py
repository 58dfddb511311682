"""E: a broker from docs/formats.md alone, with msgpack and an HTTP client: where to begin in another language.

    python outside_broker.py CLUSTER_ID BROKER_ID CONTROLLER_URL...

It registers, follows the log and checks every frame. A line on stdin, or its end, makes it ask to be let go; then it prints
{"end_offset", "controller_epoch", "digest"} of what it folded. What goes wrong ends it; a real broker would begin anew.
"""

import hashlib
import json
import os
import select
import struct
import sys
import urllib.request
from typing import Any

import msgpack

HEADER = struct.Struct(">HBBIqIiqII")
ENTITIES = {0: ("b", 1), 2: ("t", 1), 3: ("p", 2), 4: ("c", 3), 12: ("f", 1), 15: ("i", 0), 1004: ("q", 0)}
"""Records that say all of an entity: by type, the letter of its line in the digest, and how many fields are its key."""
CHANGES = {5: ("p", 2, (4, 3, 2, 8, 9, 7, 10, 11, 12)), 17: ("b", 1, (2, 6, 7, 8, 9))}
"""Records that change some of it: the same, and where the fields behind the key stand in the entity's own record."""
COLUMNS = {"b": (0, 2, 1, 6, 7, 5, 3, 4, 8, 9), "p": (0, 1, 4, 5, 6, 7, 2, 3, 8, 9, 10, 11, 12), "i": (2,)}
"""Which fields of its record stand in an entity's line; of the others all do, in order."""
SECRETS = ("password", "sasl.jaas.config", "ssl.keystore.key", "ssl.truststore.certificates", "secret")
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class State:
    """The newest record of each entity, by letter and key, and the position up to which the log is folded."""

    def __init__(self) -> None:
        self.entities: dict[tuple[Any, ...], list[Any]] = {}
        self.offset, self.epoch, self.crc = 0, -1, 0
        self.snapshot_header: list[Any] = []

    def take(self, data: bytes) -> None:
        """Check and fold whole frames: of the log, or into an empty state those of a snapshot, which count from 0."""
        while data:
            magic, form, flags, size, base, count, epoch, _, previous_crc, crc = HEADER.unpack_from(data)
            frame, data = data[: 40 + size], data[40 + size :]
            assert (magic, form, flags, len(frame)) == (0x4D51, 1, 0, 40 + size), "no whole frame"
            assert crc == crc32c(frame[:36] + frame[40:]), "damaged"
            assert (base, previous_crc) == (self.offset, self.crc), "a gap"
            self.offset, self.epoch, self.crc = base + count, epoch, crc
            for kind, version, *fields in msgpack.unpackb(frame[40:])[1]:
                assert version == 0, f"version {version} of record type {kind} is unknown"
                self.fold(kind, fields)

    def fold(self, kind: int, fields: list[Any]) -> None:
        entities = self.entities
        if kind in ENTITIES:
            letter, keys = ENTITIES[kind]
            entities[letter, *fields[:keys]] = fields
            if kind in (4, 12) and fields[-1] in (None, 0):
                del entities[letter, *fields[:keys]]
        elif kind in CHANGES:
            letter, keys, places = CHANGES[kind]
            entity = entities[letter, *fields[:keys]]
            for place, value in zip(places, fields[keys:], strict=True):
                entity[place] = entity[place] if value is None else value
            if kind == 5:
                entity[5] += fields[2] is not None  # naming a leader is an election
                entity[6] += 1
        elif kind == 1:
            del entities["b", fields[0]]
        elif kind == 9:
            _, name = entities.pop(("t", fields[0]))
            for key in list(entities):
                if key[:2] == ("p", fields[0]) or key[:3] == ("c", 2, name):
                    del entities[key]
        elif kind == 1005:
            self.entities = {key: entity for key, entity in entities.items() if key[0] != "v"}
            self.entities |= {("v", voter[0]): voter for voter in fields[0]}
        elif kind == 1002:
            self.snapshot_header = fields
        elif kind == 1003:
            assert fields[1] == self.digest(), "a snapshot of another state"
            _, self.offset, self.epoch, _, self.crc = self.snapshot_header
        else:
            assert kind in (20, 1000, 1001), f"record type {kind} is unknown"

    def digest(self) -> str:
        buckets = [[0, 0, 0] for _ in range(256)]
        for (letter, *key), entity in self.entities.items():
            columns = [entity[place] for place in COLUMNS.get(letter, range(len(entity)))]
            if letter == "c" and key[2].endswith(SECRETS):
                columns[3] = "sha256:" + hashlib.sha256(columns[3].encode()).hexdigest()
            line = "|".join([letter, *map(text, columns)])
            if letter == "b" and columns[-1] is None:
                line += "-"  # whether directories are cordoned was not told
            h = hashlib.sha256(line.encode()).hexdigest()
            bucket, x1, x2 = int(h[0:2], 16), int(h[2:17], 16), int(h[17:32], 16)
            n, y1, y2 = buckets[bucket]
            buckets[bucket] = [n + 1, x1 ^ y1, x2 ^ y2]
        lines = [f"{bucket:02x}:{n}:{x1:015x}:{x2:015x}\n" for bucket, (n, x1, x2) in enumerate(buckets)]
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def text(value: Any, separator: str = ",") -> str:
    """Return a column of the digest: text and bytes in hex, lists comma-joined, what is in their items colon-joined."""
    if isinstance(value, list):
        return separator.join(text(item, ":") for item in value)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return value.hex()
    return "" if value is None else str(int(value))


def call(urls: list[str], path: str, body: Any = None) -> bytes:
    """Return the first 200, asking round; `urls` begins with whoever answered last."""
    data = None if body is None else msgpack.packb(body)
    for _ in range(1_000):
        request = urllib.request.Request(urls[0] + path, data, {"Content-Type": "application/msgpack"})
        try:
            with HTTP.open(request, timeout=10) as answer:
                return bytes(answer.read())
        except OSError as error:
            if getattr(error, "code", 503) not in (404, 421, 429, 503, 504):
                raise
        urls.append(urls.pop(0))
        select.select([], [], [], 0.02)
    raise AssertionError("no controller answers")


def main(cluster_id: str, broker_id: int, urls: list[str]) -> None:
    state, leaving = State(), False
    who = {"cluster_id": cluster_id, "broker_id": broker_id, "incarnation_id": os.urandom(16)}
    versions = [["metadata.version", 25, 30], ["metaquorum.version", 1, 1]]
    what = {"endpoints": [["PLAINTEXT", "127.0.0.1", 9, 0]], "features": versions, "rack": None}
    disks = {"log_dirs": [os.urandom(16)], "previous_broker_epoch": -1}
    answer = call(urls, "/v1/brokers/register", who | what | disks)
    who["broker_epoch"] = msgpack.unpackb(answer)["broker_epoch"]
    head: dict[str, Any] = {}
    while not head.get("should_shut_down"):
        leaving = leaving or bool(select.select([sys.stdin], [], [], 0)[0])
        position = {"fetch_offset": state.offset, "last_epoch": state.epoch, "last_crc": state.crc}
        wishes = {"want_fence": False, "want_shut_down": leaving, "max_bytes": 1 << 20, "max_wait_ms": 200}
        tells = {"applied_offset": state.offset, "offline_log_dirs": [], "cordoned_log_dirs": None}
        answer = call(urls, "/v1/metadata/fetch", who | position | wishes | tells)
        end = 4 + int.from_bytes(answer[:4])
        head, frames = msgpack.unpackb(answer[4:end]), answer[end:]
        assert head["kind"] != "DIVERGING", "our log is not theirs"
        if head["kind"] == "IMAGE":
            state = State()
            state.take(call(urls, "/v1/metadata/snapshots/" + head["snapshot"]["id"]))
            assert state.offset == head["snapshot"]["end_offset"], "a snapshot without its end"
        state.take(frames)
    print(json.dumps({"end_offset": state.offset, "controller_epoch": state.epoch, "digest": state.digest()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
