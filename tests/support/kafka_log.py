"""Edge: the recorded metadata log of an Apache Kafka cluster, and small ones written by hand."""

import struct
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import google_crc32c

RECORDING = Path(__file__).resolve().parents[1] / "golden" / "kafka" / "cluster_metadata.tar.xz"
"""Two controllers' directories of Kafka 4.3.1, Kafka's dumps of their segments, and the state that AdminClient saw."""


def unpacked(to: Path) -> Path:
    with tarfile.open(RECORDING) as recording:
        # Python before 3.11.4 has no filters, and the recording is our own.
        recording.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        recording.extractall(to)
    return to


def uvarint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def string(text: str | None) -> bytes:
    return b"\0" if text is None else uvarint(len(text.encode()) + 1) + text.encode()


def array(items: Iterable[bytes]) -> bytes:
    found = list(items)
    return uvarint(len(found) + 1) + b"".join(found)


def ints(values: Iterable[int]) -> bytes:
    return array(struct.pack(">i", value) for value in values)


def tagged(fields: Mapping[int, bytes]) -> bytes:
    return uvarint(len(fields)) + b"".join(
        uvarint(tag) + uvarint(len(content)) + content for tag, content in sorted(fields.items())
    )


def value(type_id: int, version: int, body: bytes, tags: Mapping[int, bytes] = {}) -> bytes:
    return b"\1" + uvarint(type_id) + uvarint(version) + body + tagged(tags)


def topic(name: str, topic_id: bytes) -> bytes:
    return value(2, 0, string(name) + topic_id)


def partition(topic_id: bytes, number: int, replicas: Sequence[int], *, elr: Sequence[int] = ()) -> bytes:
    body = struct.pack(">i", number) + topic_id + ints(replicas) + ints(replicas) + ints([]) + ints([])
    body += struct.pack(">iii", replicas[0], 0, 0) + array([bytes(16)] * len(replicas))
    return value(3, 2, body, {1: ints(elr)} if elr else {})


def partition_change(topic_id: bytes, number: int, tags: Mapping[int, bytes]) -> bytes:
    return value(5, 2, struct.pack(">i", number) + topic_id, tags)


def config(resource_type: int, resource: str, name: str, setting: str | None) -> bytes:
    return value(4, 0, bytes([resource_type]) + string(resource) + string(name) + string(setting))


def broker(broker_id: int, epoch: int) -> bytes:
    body = struct.pack(">i", broker_id) + b"\0" + bytes(15) + bytes([broker_id]) + struct.pack(">q", epoch)
    return value(0, 3, body + array([]) + array([]) + string(None) + b"\1\0")


def broker_change(broker_id: int, epoch: int, tags: Mapping[int, bytes]) -> bytes:
    return value(17, 1, struct.pack(">iq", broker_id, epoch), tags)


def feature(name: str, level: int) -> bytes:
    return value(12, 0, string(name) + struct.pack(">h", level))


def controller(node_id: int) -> bytes:
    body = struct.pack(">i", node_id) + b"\0" * 15 + bytes([node_id]) + b"\0" + array([]) + array([])
    return value(27, 0, body)


def fence_broker(broker_id: int, epoch: int) -> bytes:
    """Return how releases before metadata.version 3.3-IV2 fenced a broker."""
    return value(7, 0, struct.pack(">iq", broker_id, epoch))


def leader_change(leader_id: int, voters: Sequence[int]) -> bytes:
    ids = array(struct.pack(">i", voter) + b"\0" for voter in voters)
    return struct.pack(">hi", 0, leader_id) + ids + ids + b"\0"


def batch(
    base: int,
    values: Sequence[bytes],
    *,
    epoch: int = 1,
    control: int | None = None,
    attributes: int = 0,
    after_ms: int | None = None,
) -> bytes:
    """Return a record batch; `control` is the type of its records, where these are the quorum's own.

    It was appended `after_ms` since the beginning; None: a millisecond for each offset.
    """
    key = varint(-1) if control is None else varint(4) + struct.pack(">hh", 0, control)
    records = b""
    for delta, content in enumerate(values):
        record = b"\0" + varint(0) + varint(delta) + key + varint(len(content)) + content + varint(0)
        records += varint(len(record)) + record
    attributes |= 0 if control is None else 0x20
    time_ms = 1_700_000_000_000 + (base if after_ms is None else after_ms)
    head = struct.pack(">hiqqqhii", attributes, len(values) - 1, time_ms, time_ms, -1, -1, -1, len(values))
    body = head + records
    crc = google_crc32c.value(body)
    return struct.pack(">qiibI", base, len(body) + 9, epoch, 2, crc) + body


def written(directory: Path, *segments: Sequence[bytes]) -> Path:
    """Write batches as the segments of a partition directory, each named by its first offset."""
    folder = directory / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (directory / "meta.properties").write_text("version=1\ncluster.id=HandWrittenHandWritten\nnode.id=1\n")
    for batches in segments:
        (base,) = struct.unpack_from(">q", batches[0])
        (folder / f"{base:020d}.log").write_bytes(b"".join(batches))
    return directory


def checkpoint(end_offset: int, values: Sequence[bytes], *, epoch: int = 1) -> bytes:
    """Return the bytes of a checkpoint below an offset: its header, a batch of records, its footer."""
    header = struct.pack(">hq", 0, 1_700_000_000_000 + end_offset - 1) + b"\0"
    return b"".join(
        (
            batch(0, [header], control=3, epoch=epoch),
            batch(1, values, epoch=epoch),
            batch(1 + len(values), [struct.pack(">h", 0) + b"\0"], control=4, epoch=epoch),
        )
    )
