"""Pure: one digest for the whole state, kept incrementally and reproducible by any SQL engine.

Every entity is one line of text; its SHA-256 falls into one of 256 buckets by its first byte, and a bucket keeps the count
of its lines and the xor of two 60-bit halves of their hashes. So a change costs two hashes, the order of entities does not
matter, and two states that differ are narrowed to a bucket and then to a line.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeAlias

from metadata_log.image.brokers import BrokerImage
from metadata_log.image.topics import PartitionImage, TopicImage
from metadata_log.records.configs import shown_value
from metadata_log.records.quorum import Voter

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import MetadataImage

Bucket: TypeAlias = tuple[int, int, int]
"""Count of lines, xor of bits 8..67 and of bits 68..127 of their hashes (hex digits 2..16 and 17..31)."""
Buckets: TypeAlias = tuple[Bucket, ...]

EMPTY_BUCKETS: Final[Buckets] = ((0, 0, 0),) * 256
_LOW_60: Final = (1 << 60) - 1


def _text(text: str) -> str:
    return text.encode().hex()


def _integers(values: tuple[int, ...]) -> str:
    # Nearly all lists are short, and formatting is twice as fast as joining.
    return _SHORT[len(values)] % values if len(values) < len(_SHORT) else ",".join(map(str, values))


_SHORT: Final = tuple(",".join(["%d"] * length) for length in range(8))


def _uuids(values: Sequence[bytes]) -> str:
    return b"".join(values).hex(",", 16)


def broker_line(broker: BrokerImage) -> str:
    endpoints = ",".join(
        f"{_text(e.name)}:{_text(e.host)}:{e.port}:{e.security_protocol}" for e in broker.endpoints
    )
    features = ",".join(f"{_text(f.name)}:{f.min_version}:{f.max_version}" for f in broker.features)
    cordoned = "-" if broker.cordoned_log_dirs is None else _uuids(broker.cordoned_log_dirs)
    return (
        f"b|{broker.broker_id}|{broker.broker_epoch}|{broker.incarnation_id.hex()}|{broker.fenced:d}"
        f"|{broker.in_controlled_shutdown:d}|{_text(broker.rack or '')}|{endpoints}|{features}"
        f"|{_uuids(broker.log_dirs)}|{cordoned}"
    )


def partition_line(topic_id_hex: str, partition_id: int, partition: PartitionImage) -> str:
    # A cluster has a million of these lines, and most look alike: isr = replicas, no list but these two.
    (
        replicas,
        isr,
        leader,
        leader_epoch,
        partition_epoch,
        recovery,
        adding,
        removing,
        elr,
        last_known,
        dirs,
    ) = partition
    all_replicas = _integers(replicas)
    in_sync = all_replicas if isr == replicas else _integers(isr)
    rest = (
        f"{_integers(adding)}|{_integers(removing)}|{_integers(elr)}|{_integers(last_known)}"
        if adding or removing or elr or last_known
        else "|||"
    )
    return (
        f"p|{topic_id_hex}|{partition_id}|{leader}|{leader_epoch}|{partition_epoch}|{recovery}"
        f"|{all_replicas}|{in_sync}|{rest}|{_uuids(dirs)}"
    )


def topic_lines(topic: TopicImage) -> Iterator[str]:
    """Yield the lines of a topic and of its partitions."""
    topic_id_hex = topic.topic_id.hex()
    yield f"t|{topic_id_hex}|{_text(topic.name)}"
    for partition_id, partition in enumerate(topic.partitions):
        yield partition_line(topic_id_hex, partition_id, partition)


def config_line(resource_type: int, resource_name: str, name: str, value: str) -> str:
    return f"c|{resource_type}|{_text(resource_name)}|{_text(name)}|{_text(shown_value(name, value))}"


def feature_line(name: str, level: int) -> str:
    return f"f|{_text(name)}|{level}"


def producer_ids_line(next_producer_id: int) -> str:
    return f"i|{next_producer_id}"


def quorum_version_line(kraft_version: int) -> str:
    return f"q|{kraft_version}"


def voter_line(voter: Voter) -> str:
    endpoints = ",".join(f"{_text(e.name)}:{_text(e.host)}:{e.port}" for e in voter.endpoints)
    return f"v|{voter.node_id}|{voter.directory_id.hex()}|{endpoints}|{voter.min_version}|{voter.max_version}"


def lines(image: "MetadataImage") -> Iterator[str]:
    """Yield every entity's line; the reference for what is kept incrementally."""
    yield from (broker_line(broker) for broker in image.brokers.values())
    for topic in image.topics.values():
        yield from topic_lines(topic)
    for (resource_type, resource_name), settings in image.configs.items():
        yield from (
            config_line(resource_type, resource_name, name, value) for name, value in settings.items()
        )
    yield from (feature_line(name, level) for name, level in image.features.items())
    if image.next_producer_id is not None:
        yield producer_ids_line(image.next_producer_id)
    if image.kraft_version is not None:
        yield quorum_version_line(image.kraft_version)
    yield from (voter_line(voter) for voter in image.voters or ())


class DigestBuilder:
    """Adds and removes lines; made for one batch, then frozen into buckets again."""

    def __init__(self, buckets: Buckets) -> None:
        self._before = buckets
        self._changes: dict[int, list[int]] = {}
        """By bucket: the difference of its count, and the xor of both halves side by side in one integer."""

    def add(self, line: str) -> None:
        self._count((line,), 1)

    def remove(self, line: str) -> None:
        self._count((line,), -1)

    def add_all(self, lines: Iterable[str]) -> None:
        self._count(lines, 1)

    def remove_all(self, lines: Iterable[str]) -> None:
        self._count(lines, -1)

    def _count(self, lines: Iterable[str], difference: int) -> None:
        changes = self._changes
        for line in lines:
            digest = sha256(line.encode()).digest()
            change = changes.get(digest[0])
            if change is None:
                change = changes[digest[0]] = [0, 0]
            change[0] += difference
            change[1] ^= int.from_bytes(digest[1:16])  # hex digits 2..31

    def buckets(self) -> Buckets:
        after = list(self._before)
        for bucket, (difference, xor) in self._changes.items():
            count, x1, x2 = after[bucket]
            after[bucket] = (count + difference, x1 ^ xor >> 60, x2 ^ xor & _LOW_60)
        return tuple(after)


def buckets_of(image: "MetadataImage") -> Buckets:
    """Return the buckets of an image, from nothing."""
    builder = DigestBuilder(EMPTY_BUCKETS)
    builder.add_all(lines(image))
    return builder.buckets()


def digest_of_buckets(buckets: Buckets) -> str:
    """Return the digest, 64 hex digits."""
    text = "".join(f"{i:02x}:{count}:{x1:015x}:{x2:015x}\n" for i, (count, x1, x2) in enumerate(buckets))
    return sha256(text.encode()).hexdigest()


def digest(image: "MetadataImage") -> str:
    """Return the state digest of an image: 64 hex digits."""
    return digest_of_buckets(image.digest_buckets)
