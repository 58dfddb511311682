"""States in which one field is not what the log says, as after an error of a node's memory."""

from dataclasses import replace

from metadata_log.image.metadata_image import MetadataImage


def flipped(image: MetadataImage, topic: str, partition_id: int) -> MetadataImage:
    """Return a state in which the leader epoch of a partition is another one, and no digest that is kept knows of it."""
    topics = image.topics
    found = topics.by_id[topics.ids[topic]]
    partition = found.partitions[partition_id]
    partitions = list(found.partitions)
    partitions[partition_id] = partition._replace(leader_epoch=partition.leader_epoch + 1)
    changed = found._replace(partitions=tuple(partitions))
    by_id = topics.by_id.set(found.topic_id, changed)
    return replace(image, topics=replace(topics, by_id=by_id), state_digest=image.state_digest)
