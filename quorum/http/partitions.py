"""Edge: partitions over HTTP: brokers report ISRs and directories, operators ask for elections and reassignments.
Tests: tests/unit/quorum/http/test_administration.py.
"""

from itertools import islice
from typing import Annotated, Any, Final, Literal

from aiohttp import web
from msgspec import Meta

from metadata_log.errors import InvalidRequest, UnknownTopicOrPartition
from metadata_log.ids import BrokerId, TopicId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import describe_partition
from metadata_log.items import Items
from metadata_log.limits import (
    ELECTIONS_MAX,
    ISR_CHANGES_MAX,
    LARGE_VIEW_ITEMS,
    LIST_ITEMS_MAX,
    PARTITIONS_LISTED_MAX,
    REASSIGNMENTS_MAX,
)
from metadata_log.node.http.routes import NAME, NUMBER, PLACE, one_of
from metadata_log.wire.commands import AlterPartition, AssignReplicasToDirs, ReplicaDirectory
from metadata_log.wire.shapes import INT32_MAX, Natural, Natural32, RawUuid, Shape, check_text, read_shape
from quorum.decide.directories import ReplicasAssigned
from quorum.decide.partitions import ElectLeaders, PartitionsAltered
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment, ongoing
from quorum.decide.sweeps import imbalances
from quorum.http.bodies import caller_of, integer
from quorum.http.door import Door, Write, carry_out, items_of, results_as
from quorum.http.routes import AS_FRESH, TRIAL, reading, topic_in_query, writing
from quorum.views.partition_health import SELECTIONS, selected, why_stuck

Replicas = Annotated[
    tuple[Annotated[BrokerId, Meta(ge=0, le=INT32_MAX)], ...], Meta(max_length=LIST_ITEMS_MAX)
]


class NamedPartition(Shape, frozen=True):
    topic: str
    partition: Natural32


class WantedElections(Shape, frozen=True):
    election: Literal["preferred", "unclean"]
    partitions: Annotated[tuple[NamedPartition, ...], Meta(min_length=1, max_length=ELECTIONS_MAX)]
    all_or_nothing: bool = False


async def alter_partitions(door: Door, request: web.Request) -> web.Response:
    command = AlterPartition.from_map(await door.broker_body(request))
    # Without a request id: a report that is repeated finds newer partition epochs, or nothing to change.
    written = await door.controller.submit(command, caller_of(request))
    assert isinstance(written.outcome, PartitionsAltered)
    return door.ok(request, {"partitions": [altered._asdict() for altered in written.outcome.results]})


def _elections(body: Any) -> ElectLeaders:
    wanted = read_shape(body, WantedElections, "elections")
    for one in wanted.partitions:
        check_text("elections.topic", one.topic)
    return ElectLeaders(
        unclean=wanted.election == "unclean",
        partitions=tuple((one.topic, one.partition) for one in wanted.partitions),
        all_or_nothing=wanted.all_or_nothing,
    )


class WantedReplicas(Shape, frozen=True):
    """The replicas that a partition shall have; null cancels the reassignment under way."""

    topic: str
    partition: Natural32
    replicas: Replicas | None


class WantedReassignments(Shape, frozen=True):
    partitions: Annotated[tuple[WantedReplicas, ...], Meta(min_length=1, max_length=REASSIGNMENTS_MAX)]
    allow_replication_factor_change: bool = True
    all_or_nothing: bool = False


def _reassignments(body: Any) -> AlterPartitionReassignments:
    wanted = read_shape(body, WantedReassignments, "reassignments")
    for one in wanted.partitions:
        check_text("reassignments.topic", one.topic)
    return AlterPartitionReassignments(
        reassignments=tuple(
            Reassignment(one.topic, one.partition, one.replicas) for one in wanted.partitions
        ),
        allow_replication_factor_change=wanted.allow_replication_factor_change,
        all_or_nothing=wanted.all_or_nothing,
    )


async def list_partitions(door: Door, request: web.Request) -> web.StreamResponse:
    """Answer with `limit` partitions, PARTITIONS_LISTED_MAX at most; if there are more, "next_after" says where to go on."""
    only, name, after = (request.query.get(key) for key in ("only", "topic", "after"))
    behind = None if after is None else _named_partition(after)
    default_min_isr = door.status.default_min_isr()
    limit = integer(request.query.get("limit", str(PARTITIONS_LISTED_MAX)), "limit")
    if not 1 <= limit <= PARTITIONS_LISTED_MAX:
        raise InvalidRequest(f"limit must be from 1 to {PARTITIONS_LISTED_MAX}")

    def view(image: MetadataImage) -> dict[str, Any]:
        topic = None if name is None else image.topics.named(name)
        if name is not None and topic is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        found = (
            (one, partition_id, partition)
            for one, partition_id, partition in selected(image, only, default_min_isr, topic)
            if behind is None or (one.name, partition_id) > behind
        )
        page = [*islice(found, limit + 1)]
        is_more = len(page) > limit
        del page[limit:]
        items = (
            {"topic": one.name, **describe_partition(partition_id, partition)}
            for one, partition_id, partition in page
        )
        last = f"{page[-1][0].name}:{page[-1][1]}" if is_more else None
        return items_of(image, Items(len(page), items)) | {"next_after": last}

    return await door.read_large(
        request, view, is_large=lambda image: image.topics.counts.partitions > LARGE_VIEW_ITEMS
    )


def _named_partition(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition(":")
    return name, int(number)


async def list_reassignments(door: Door, request: web.Request) -> web.StreamResponse:
    def view(image: MetadataImage) -> dict[str, Any]:
        found = ongoing(image.topics)
        reassignments = (
            {
                "topic": one.topic,
                "partition": one.partition_id,
                "replicas": list(one.replicas),
                "isr": list(image.topics.by_id[image.topics.ids[one.topic]].partitions[one.partition_id].isr),
                "adding_replicas": list(one.adding_replicas),
                "removing_replicas": list(one.removing_replicas),
                "why_stuck": why_stuck(
                    image, image.topics.by_id[image.topics.ids[one.topic]].partitions[one.partition_id]
                ),
            }
            for one in found
        )
        return items_of(image, Items(len(found), reassignments))

    def is_large(image: MetadataImage) -> bool:
        topics = image.topics.index.reassigning
        return len(topics) > LARGE_VIEW_ITEMS or sum(topics.values()) > LARGE_VIEW_ITEMS

    return await door.read_large(request, view, is_large=is_large)


class PlacedReplica(Shape, frozen=True):
    directory: RawUuid
    topic_id: Annotated[TopicId, Meta(min_length=16, max_length=16)]
    partition_id: Natural32


class PlacedReplicas(Shape, frozen=True):
    broker_id: Annotated[BrokerId, Meta(ge=0, le=INT32_MAX)]
    broker_epoch: Natural
    replicas: Annotated[tuple[PlacedReplica, ...], Meta(max_length=ISR_CHANGES_MAX)]


async def assign_directories(door: Door, request: web.Request) -> web.Response:
    placed = read_shape(await door.broker_body(request), PlacedReplicas, "directories")
    command = AssignReplicasToDirs(
        broker_id=placed.broker_id,
        broker_epoch=placed.broker_epoch,
        replicas=tuple(
            ReplicaDirectory(one.directory, one.topic_id, one.partition_id) for one in placed.replicas
        ),
    )
    written = await door.controller.submit(command, caller_of(request))
    assert isinstance(written.outcome, ReplicasAssigned)
    return door.ok(request, {"replicas": [one._asdict() for one in written.outcome.results]})


async def list_imbalances(door: Door, request: web.Request) -> web.Response:
    """Answer with each broker's share of the partitions it is preferred for that it does not lead."""
    elections = door.settings.elections
    percentage = elections.leader_imbalance_per_broker_percentage

    def view(image: MetadataImage) -> dict[str, Any]:
        rows = [
            {
                "broker_id": one.broker_id,
                "preferred": one.preferred,
                "led_elsewhere": one.elsewhere,
                "percent": round(one.percent, 2),
                "exceeds": one.exceeds(percentage),
            }
            for one in imbalances(image.topics.index)
        ]
        return items_of(image, rows) | {
            "percentage": percentage,
            "interval_seconds": elections.leader_imbalance_check_interval_seconds,
        }

    return door.ok(request, await door.read(request, view))


WRITES: Final = {
    "ElectLeaders": Write(_elections, results_as("partitions")),
    "AlterPartitionReassignments": Write(_reassignments, results_as("partitions")),
}
ROUTES: Final = (
    reading(
        "/v1/partitions",
        list_partitions,
        "DescribePartitions",
        {**AS_FRESH, "only": one_of(*SELECTIONS), "topic": NAME, "after": PLACE, "limit": NUMBER},
        resources=topic_in_query,
    ),
    writing("POST", "/v1/partitions/alter", alter_partitions, "AlterPartition"),
    writing("POST", "/v1/partitions/directories", assign_directories, "AssignReplicasToDirs"),
    writing("POST", "/v1/partitions/elect", carry_out(WRITES["ElectLeaders"]), "ElectLeaders", TRIAL),
    reading("/v1/partitions/imbalance", list_imbalances, "DescribeImbalance"),
    writing(
        "POST",
        "/v1/partitions/reassign",
        carry_out(WRITES["AlterPartitionReassignments"]),
        "AlterPartitionReassignments",
        TRIAL,
    ),
    reading("/v1/partitions/reassignments", list_reassignments, "ListPartitionReassignments"),
)
