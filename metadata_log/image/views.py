"""Pure: the image as HTTP and the CLI show it; shapes as in docs/formats.md."""

from collections.abc import Mapping
from typing import Any

from metadata_log.digest import digest
from metadata_log.ids import uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import PartitionImage, TopicImage
from metadata_log.records.configs import TOPIC, shown_value
from metadata_log.records.partitions import RECOVERING
from metadata_log.records.registry import json_rows


def describe_topic(
    image: MetadataImage, topic: TopicImage, settings: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return one topic in full; `settings` stand in for the image's where the topic is only about to be."""
    if settings is None:
        settings = image.configs.get((TOPIC, topic.name)) or {}
    return {
        "name": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "configs": {name: shown_value(name, settings[name]) for name in sorted(settings)},
        "partitions": [
            describe_partition(partition_id, partition)
            for partition_id, partition in enumerate(topic.partitions)
        ],
    }


def describe_partition(partition_id: int, partition: PartitionImage) -> dict[str, Any]:
    recovering = partition.leader_recovery_state == RECOVERING
    return {
        "partition": partition_id,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "adding_replicas": list(partition.adding_replicas),
        "removing_replicas": list(partition.removing_replicas),
        "leader_recovery_state": "RECOVERING" if recovering else "RECOVERED",
        "eligible_leader_replicas": list(partition.eligible_leader_replicas),
        "last_known_elr": list(partition.last_known_elr),
        "directories": [uuid_text(directory) for directory in partition.directories],
    }


def list_topics(image: MetadataImage) -> list[dict[str, Any]]:
    """Return the topics by name; the replication factor is that of partition 0."""
    return [
        {
            "name": name,
            "topic_id": uuid_text(topic_id),
            "partition_count": len(image.topics[topic_id].partitions),
            "replication_factor": len(image.topics[topic_id].partitions[0].replicas),
        }
        for name, topic_id in sorted(image.topic_ids.items())
    ]


def configs_items(image: MetadataImage, resource_type: int, resource_name: str) -> list[dict[str, Any]]:
    return settings_items(
        resource_type, resource_name, image.configs.get((resource_type, resource_name)) or {}
    )


def state_json(image: MetadataImage) -> dict[str, Any]:
    """Return the whole state at one position; brokers and voters have the fields of their records.

    "topics" is an iterator: there may be a million partitions, and whoever sends them does so piece by piece.
    """
    return {
        "end_offset": image.end_offset,
        "controller_epoch": image.controller_epoch,
        "time_ms": image.last_time_ms,
        "digest": digest(image),
        "brokers": json_rows([image.brokers[broker_id] for broker_id in sorted(image.brokers)]),
        "topics": (
            describe_topic(image, image.topics[topic_id]) for _, topic_id in sorted(image.topic_ids.items())
        ),
        "configs": [
            item
            for resource_type, resource_name in sorted(image.configs)
            for item in configs_items(image, resource_type, resource_name)
        ],
        "features": {name: image.features[name] for name in sorted(image.features)},
        "next_producer_id": image.next_producer_id,
        "kraft_version": image.kraft_version,
        "voters": json_rows(image.voters or ()),
    }


def settings_items(
    resource_type: int, resource_name: str, settings: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return settings as HTTP lists them, by name; sensitive values as `sha256:` and their hex."""
    kind = "topic" if resource_type == TOPIC else "broker"
    return [
        {
            "resource_type": kind,
            "resource_name": resource_name,
            "name": name,
            "value": shown_value(name, settings[name]),
        }
        for name in sorted(settings)
    ]
