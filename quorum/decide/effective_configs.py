"""Pure: the value of a topic's setting that counts: its own, else the controller's, else the cluster's, else the static one.

Source: Kafka's ConfigurationControlManager and KafkaConfigSchema. Tests: tests/unit/quorum/decide/test_configs.py.
"""

from typing import Final

from metadata_log.ids import TopicId
from metadata_log.image.configs import ConfigsImage
from metadata_log.image.topics import TopicImage
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, MIN_IN_SYNC_REPLICAS, TOPIC
from quorum.decide.context import DecideContext

UNCLEAN_LEADER_ELECTION: Final = "unclean.leader.election.enable"
_DEFAULTS: Final = {MIN_IN_SYNC_REPLICAS: "1", UNCLEAN_LEADER_ELECTION: "false"}


def effective_config(context: DecideContext, topic_name: str, name: str) -> str:
    """Return the value that counts for a topic; `name` is one of the two settings that decisions rest on."""
    settings = context.image.configs.get((TOPIC, topic_name))
    if settings is not None and name in settings:
        return settings[name]
    dynamic = default_config(context.image.configs, context.node_id, name)
    return static_config(context, name) if dynamic is None else dynamic


def default_config(configs: ConfigsImage, node_id: int, name: str) -> str | None:
    """Return the value for topics that set none, as far as the log has one.

    The controller's own layer is the dynamic configuration of the broker with its id.
    """
    for resource in ((BROKER, str(node_id)), (BROKER, CLUSTER_DEFAULT)):
        settings = configs.get(resource)
        if settings is not None and name in settings:
            return settings[name]
    return None


def static_config(context: DecideContext, name: str) -> str:
    """Return the value of one of these settings where the log does not set it."""
    return context.static_configs.get(name, _DEFAULTS[name])


def is_unclean_allowed(context: DecideContext, topic_id: TopicId) -> bool:
    """Answer whether a topic accepts lost messages for a leader."""
    name = context.image.topics.by_id[topic_id].name
    return effective_config(context, name, UNCLEAN_LEADER_ELECTION).strip().lower() == "true"


def min_isr_of(context: DecideContext, topic: TopicImage) -> int:
    """Return how many in-sync replicas a write needs, at most as many as the first partition has replicas."""
    wanted = min_isr_number(effective_config(context, topic.name, MIN_IN_SYNC_REPLICAS))
    if wanted is None:
        wanted = min_isr_number(static_config(context, MIN_IN_SYNC_REPLICAS)) or 1
    return min(wanted, len(topic.partitions[0].replicas))


def min_isr_number(value: str | None) -> int | None:
    """Return a value of min.insync.replicas as a number; None if it is none.

    Kafka's controller stores any text as a broker's or the cluster's setting, and then fails at each decision that needs the
    number. Here such a value does not count.
    """
    try:
        return None if value is None else int(value.strip())
    except ValueError:
        return None
