"""Edge: a cluster as an administrator's program sees it: what verbs ask in common, with the types of the answers."""

import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NotRequired, TypedDict, cast

from ops.admin.client import ClusterClient
from ops.admin.items import ItemRequest, Sent, send_items


class Endpoint(TypedDict):
    """Where a node listens; `security_protocol` is the number that Kafka gives it."""

    name: str
    host: str
    port: int
    security_protocol: int


class Broker(TypedDict):
    """A broker as the active controller sees it. Offsets are exclusive; None: the broker has not reported yet."""

    broker_id: int
    state: str
    broker_epoch: int
    incarnation_id: str
    rack: str | None
    endpoints: list[Endpoint]
    control_state: str
    registration_state: str
    in_controlled_shutdown: bool
    is_cordoned: NotRequired[bool]
    """Whether each of its log directories is cordoned, so that it gets no new replica; older controllers do not say it."""
    shutdown_offset: int | None
    waits_for: str | None
    applied_offset: int | None
    lag_records: int | None
    last_contact_ms_ago: int | None
    metadata_age_ms: int | None
    """Time since the broker is known to have had all that there was."""
    would_serve_stale: bool | None
    """Whether it serves its clients, and has not reported all that there is."""


class Topic(TypedDict):
    """A topic in short."""

    name: str
    topic_id: str
    partition_count: int
    replication_factor: int


class Partition(TypedDict):
    """A partition; `leader` is -1 where it has none, and `preferred` is its first replica."""

    topic: str
    partition: int
    leader: int
    preferred: int
    replicas: list[int]
    isr: list[int]


class Reassignment(TypedDict):
    """A reassignment under way; `why_stuck` is None while it can go on."""

    topic: str
    partition: int
    replicas: list[int]
    isr: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    why_stuck: str | None


class Cluster(ClusterClient):
    """A cluster of which its controllers are asked. Each method raises as `ClusterClient.get` or, a change, as `write`.

    Answers keep fields that this release does not know.
    """

    def brokers(self) -> list[Broker]:
        return cast("list[Broker]", self.items("/v1/brokers"))

    def topics(self) -> list[Topic]:
        return cast("list[Topic]", self.items("/v1/topics"))

    def topic(self, name: str) -> dict[str, Any]:
        """Return a topic with its settings and partitions."""
        topic: dict[str, Any] = self.read(f"/v1/topics/{quoted(name)}")
        return topic

    def deleted_topics(self) -> list[dict[str, Any]]:
        """Return the topics that can be restored, and until when."""
        return self.items("/v1/topics?deleted=true")

    def partitions(self, topic: str | None = None, *, only: str | None = None) -> Iterator[Partition]:
        """Yield the partitions of a topic, or of all; `only` is a word of the route, such as `under-replicated`."""
        wanted = {"topic": topic, "only": only}
        while True:
            query = urllib.parse.urlencode({key: value for key, value in wanted.items() if value is not None})
            page = self.read(f"/v1/partitions?{query}")
            for partition in page["items"]:
                yield cast("Partition", {**partition, "preferred": partition["replicas"][0]})
            if page["next_after"] is None:
                return
            wanted["after"] = page["next_after"]

    def reassignments(self, topic: str | None = None) -> list[Reassignment]:
        """Return the reassignments under way.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        under_way = cast("list[Reassignment]", self.items("/v1/partitions/reassignments"))
        found = [one for one in under_way if topic in (None, one["topic"])]
        if topic is not None and not found:
            self.topic(topic)
        return found

    def controllers(self) -> list[dict[str, Any]]:
        """Return the controllers that registered."""
        return self.items("/v1/controllers")

    def configs(self, resource: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return settings of {"topic": NAME}, {"broker": ID} or {"cluster": 1}, with `effective` those that count."""
        return self.items(f"/v1/configs?{urllib.parse.urlencode(resource)}")

    def change(self, request: ItemRequest, items: Sequence[Mapping[str, Any]], **more: Any) -> Sent:
        """Carry out a change of several items, such as CREATE_TOPICS of `ops.admin.items`; raises as `send_items`."""
        return send_items(self, request, items, **more)

    def items(self, path: str) -> list[dict[str, Any]]:
        """Return the items of a route that lists some, such as /v1/features."""
        items: list[dict[str, Any]] = self.read(path)["items"]
        return items


def quoted(name: str) -> str:
    """Return a name as one segment of a path; dots alone would be taken for a folder."""
    segment = urllib.parse.quote(name, safe="")
    return segment.replace(".", "%2E") if set(segment) == {"."} else segment
