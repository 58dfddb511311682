"""Edge: a broker written from docs/formats.md alone, with msgpack and an HTTP client: a model for other languages.

`python outside_broker.py CLUSTER_ID BROKER_ID CONTROLLER_URL...` registers, follows the log and checks every frame. A line
on stdin, or its end, makes it ask to be let go; then it prints {"end_offset", "controller_epoch", "digest"} of its state.
"""

import hmac
import json
import struct
import sys
from functools import partial, reduce
from hashlib import sha256
from os import urandom
from select import select
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from msgpack import packb, unpackb

RECORDS = {  # by type: the letter of the entity's line in the digest, how many fields are its key, each field's column
    0: ("b", 1, (0, 2, 1, 6, 7, 5, 3, 4, 8, 9)), 17: ("b", 1, (0, 1, 3, 4, 8, 9)), 1: ("b", 1, (0, 1)), 2: ("t", 1, (0, 1)),
    3: ("p", 2, (0, 1, 6, 7, 2, 3, 4, 5, 8, 9, 10, 11, 12)), 5: ("p", 2, (0, 1, 2, 7, 6, 8, 9, 5, 10, 11, 12)),
    4: ("c", 3, (0, 1, 2, 3, 4)), 12: ("f", 1, (0, 1)), 1004: ("q", 0, (0,)), 1005: ("v", 0, (0,)),
    27: ("n", 1, (0, 2, 1, 3, 4, 5)), 1010: ("n", 1, (0, 1)),
    11: ("s", 2, (0, 1, 2, 3, 4, 5, 6)), 22: ("s", 2, (0, 1)),
    10: ("k", 1, (0, 1, 2, 3, 4, 5, 6)), 26: ("k", 1, (0,)),
    14: ("u", 2, (0, 1, 2)),  # without its last field, which says that it is removed
    18: ("a", 1, (0, 1, 2, 3, 4, 5, 6, 7)), 19: ("a", 1, (0,)),
    15: ("i", 0, (0, 0, 0)), 1002: ("snapshot", 0, (0, 1, 2, 3, 4)),  # of a 15 its last field alone; a 1002 until its 1003
}  # fmt: skip
SECRETS = (
    b"password",
    b"sasl.jaas.config",
    b"ssl.keystore.key",
    b"ssl.keystore.certificate.chain",
    b"ssl.truststore.certificates",
    b"secret",
)
CRCS = [reduce(lambda crc, _: crc >> 1 ^ 0x82F63B78 * (crc & 1), range(8), byte) for byte in range(256)]
crc32c = partial(reduce, lambda crc, byte: crc >> 8 ^ CRCS[(crc ^ byte) & 255])


def text(value: Any, separator: str = ",") -> str:
    """Return a column of the digest: text and bytes in hex, lists comma-joined, what is in their items colon-joined."""
    if isinstance(value, list):
        return separator.join(text(item, ":") for item in value)
    if isinstance(value, float):
        return repr(value)
    return "" if value is None else value.hex() if isinstance(value, bytes) else str(int(value))


def masked(_name: bytes, secret: bytes, key: bytes | None = None) -> bytes:
    """Return what stands for a secret: of a record of version 0, which has no key, a plain hash."""
    if key is None:
        return b"sha256:" + sha256(secret).hexdigest().encode()
    return b"hmac-sha256:" + hmac.new(key, secret, sha256).hexdigest().encode()


class State(dict[tuple[Any, ...], dict[int, Any]]):  # the columns of each entity's line, by letter and key
    offset, epoch, crc = 0, -1, 0  # the end of the frames folded so far

    def take(self, data: bytes) -> None:
        """Check and fold whole frames: of the log, or into an empty state those of a snapshot, which count from 0."""
        while data:
            start, size, base, count, epoch, _, previous, crc = struct.unpack_from(">IIqIiqII", data)
            frame, data = data[: 40 + size], data[40 + size :]
            assert crc ^ 0xFFFFFFFF == crc32c(frame[:36] + frame[40:], 0xFFFFFFFF), "damaged"
            assert (start, base, previous) == (0x4D510100, self.offset, self.crc), "another format, or a gap"
            self.offset, self.epoch, self.crc = base + count, epoch, crc
            for kind, version, *fields in unpackb(frame[40:], raw=True)[1]:
                assert version == 0 or (kind, version) == (4, 1), (
                    f"version {version} of record type {kind} is unknown"
                )
                self.fold(kind, fields)

    def fold(self, kind: int, fields: list[Any]) -> None:
        if kind == 1003:
            _, self.offset, self.epoch, _, self.crc = self.pop(("snapshot",)).values()
            assert fields[1].decode() == self.digest(), "a snapshot of another state"
        elif kind == 9 or (
            kind == 1006 and ("t", fields[0]) in self
        ):  # in a snapshot a 1006 is what there is
            gone = {("t", fields[0]), ("c", 2, self.get(("t", fields[0]), {1: None})[1])}
            gone |= {("p", fields[0]), ("d", fields[0])} if kind == 9 else set()
            for key in [key for key in self if key[:2] in gone or key[:3] in gone]:
                del self[key]
            for key in [key for key in self if key[:2] == ("p", fields[0])]:
                self[key] = self[key] | {2: -1}
        if kind == 1006:  # without what has passed of its time
            self["d", fields[0]] = dict(enumerate(fields[:5]))
        elif kind == 1007:
            self["t", fields[0]] = {0: fields[0], 1: self.pop(("d", fields[0]))[1]}
        elif kind not in (9, 20, 1000, 1001, 1003, 1006):
            letter, keys, columns = RECORDS[kind]  # where it is not there, it is another version's
            key = (letter, *(packb(field) if isinstance(field, list) else field for field in fields[:keys]))
            told = dict(zip(columns, fields, strict=kind not in (4, 14)))
            if kind in (5, 17):
                told = self[key] | {column: value for column, value in told.items() if value is not None}
            if kind == 5:  # naming a leader is an election; any change counts
                told |= {3: told[3] + (fields[2] is not None), 4: told[4] + 1}
            self[key] = told
            is_removed = (kind == 4 and fields[3] is None) or (kind == 12 and not fields[1])
            if kind in (1, 19, 22, 26, 1010) or is_removed or (kind == 14 and fields[3]):
                self.pop(key, None)

    def digest(self) -> str:
        buckets = [[0, 0, 0] for _ in range(256)]
        for (letter, *_), entity in self.items():
            for row in [dict(enumerate(voter)) for voter in entity[0]] if letter == "v" else [entity]:
                columns = [row[column] for column in sorted(row)]
                if letter == "c":
                    is_secret = 4 in row or row[2].endswith(SECRETS)  # 4: the key of its mask
                    columns[3:] = [masked(*columns[2:]) if is_secret else row[3]]
                if letter == "s":  # 2 to 4: secrets, where there is a key of their masks, 6
                    masks = [hmac.digest(row[6], row[n], "sha256") if row[6] else row[n] for n in (2, 3, 4)]
                    columns[2:] = [*masks, row[5]]
                line = "|".join([letter, *map(text, columns)])
                line += "-" * (letter == "b" and row[9] is None)  # whether any are cordoned was not told
                h = sha256(line.encode()).hexdigest()
                bucket = buckets[int(h[:2], 16)]
                bucket[:] = bucket[0] + 1, bucket[1] ^ int(h[2:17], 16), bucket[2] ^ int(h[17:32], 16)
        lines = [f"{bucket:02x}:{n}:{x1:015x}:{x2:015x}\n" for bucket, (n, x1, x2) in enumerate(buckets)]
        return sha256("".join(lines).encode()).hexdigest()


def call(urls: list[str], path: str, data: bytes | None = None) -> bytes:
    """Return the first 200, asking round; `urls` begins with whoever answered last."""
    for _ in range(1_000):
        request = Request(urls[0] + path, data, {"Content-Type": "application/msgpack"})
        try:
            return bytes(build_opener(ProxyHandler({})).open(request, timeout=10).read())
        except OSError as error:
            if getattr(error, "code", 503) not in (404, 421, 429, 503, 504):
                raise
        urls.append(urls.pop(0))
        select([], [], [], 0.02)
    raise AssertionError("no controller answers")


if __name__ == "__main__":
    _, cluster_id, broker_id, *urls = sys.argv
    who = {"cluster_id": cluster_id, "broker_id": int(broker_id), "incarnation_id": urandom(16)}
    what = {"endpoints": [["PLAINTEXT", "127.0.0.1", 9, 0]], "rack": None, "previous_broker_epoch": -1}
    my = {
        "features": [
            ["metadata.version", 25, 30],
            ["eligible.leader.replicas.version", 0, 1],
            ["metaquorum.version", 1, 5],
            ["transaction.version", 0, 2],
            *([f"{of}.version", 0, 1] for of in ("group", "share", "streams")),
        ],
        "log_dirs": [urandom(16)],
    }
    who["broker_epoch"] = unpackb(call(urls, "/v1/brokers/register", packb(who | what | my)))["broker_epoch"]
    asks = {"max_wait_ms": 200, "want_fence": False, "offline_log_dirs": [], "cordoned_log_dirs": None}
    state, head = State(), dict[str, Any]()
    while not head.get("should_shut_down"):
        where = {"fetch_offset": state.offset, "last_epoch": state.epoch, "last_crc": state.crc}
        wants = {"applied_offset": state.offset, "want_shut_down": bool(select([sys.stdin], [], [], 0)[0])}
        answer = call(urls, "/v1/metadata/fetch", packb(who | asks | where | wants | {"max_bytes": 1 << 20}))
        end = 4 + int.from_bytes(answer[:4])
        head, frames = unpackb(answer[4:end]), answer[end:]
        assert head["kind"] != "DIVERGING", "our log is not theirs"  # a real broker would begin anew
        if head["kind"] == "IMAGE":
            state, frames = State(), call(urls, "/v1/metadata/snapshots/" + head["snapshot"]["id"])
        state.take(frames)
        assert not head["snapshot"] or state.offset == head["snapshot"]["end_offset"], "half a snapshot"
    print(json.dumps({"end_offset": state.offset, "controller_epoch": state.epoch, "digest": state.digest()}))
