"""Pure: the keys a batch touched; what stood there before and after is read from the two images."""

from dataclasses import dataclass

from metadata_log.ids import BrokerId, TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """Each set holds what was created, changed or removed; a key may look the same before and after."""

    brokers: frozenset[BrokerId] = frozenset()
    topics: frozenset[TopicId] = frozenset()
    """Topics created or removed."""
    partitions: frozenset[tuple[TopicId, int]] = frozenset()
    """Partitions created or changed; those of a removed topic are not listed one by one."""
    configs: frozenset[tuple[int, str, str]] = frozenset()
    features: frozenset[str] = frozenset()
    quorum: bool = False
    """The quorum's version or voters."""
    claim: bool = False
    producer_ids: bool = False
