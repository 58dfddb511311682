"""Edge: what a command would write now: decided on the live state by the controller's own rules; nothing is written."""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from metadata_log.ids import NodeId, TopicId, uuid_from_text
from metadata_log.records.registry import json_rows, to_json, type_name
from metadata_log.wire.commands import Command
from ops.admin.client import ClusterClient
from ops.admin.items import ItemRequest, in_parts


class Foreseen(NamedTuple):
    """What would be written on the state at `end_offset` (exclusive), in how many batches, and the items that would be
    refused.
    """

    end_offset: int
    records: list[dict[str, Any]]
    refused: list[dict[str, Any]]
    batches: int
    names: dict[str, str]
    """Of the topics that the records name, by id."""


def what_if(client: ClusterClient, operation: str, *bodies: Mapping[str, Any]) -> Foreseen:
    """Return what requests with these bodies would write, one after the other; raises as `foresee`."""
    from quorum.http.batch import KINDS

    return foresee(client, [KINDS[operation].read(body) for body in bodies])


def what_if_items(
    client: ClusterClient, request: ItemRequest, items: Sequence[Mapping[str, Any]], **more: Any
) -> Foreseen:
    """Return what `send_items` would write."""
    dry = DryRun(client)
    results = dry.decide_items(request, items, **more)
    return dry.foreseen()._replace(refused=[one for one in results if one["error"] is not None])


def foresee(
    client: ClusterClient, commands: Sequence[Command], *, linked: Collection[NodeId] | None = None
) -> Foreseen:
    """Return what the active controller would write if it carried out the commands one after the other.

    `linked` are the controllers that run, as far as that is known.

    Raises:
        Rejected: one of the commands would be refused.
    """
    dry = DryRun(client, linked=linked)
    for command in commands:
        dry.decide(command)
    return dry.foreseen()


class DryRun:
    """The state of a running cluster, on which commands are decided as its active controller would; nothing is written.

    Replicas without an assignment are placed by chance, and new topics get chance ids: the real ones will differ.
    """

    def __init__(self, client: ClusterClient, *, linked: Collection[NodeId] | None = None) -> None:
        from ops.admin.live_state import live_image, live_options
        from quorum.whatif.cluster import Cluster

        self.cluster: Cluster = Cluster(
            live_options(client),
            live_image(client),
            checks_as_brokers=True,
            linked=linked,
            # The output has masks of secrets: their keys must be unguessable.
            rng=random.SystemRandom(),
        )
        self._before = self.cluster.image
        self._refused: list[dict[str, Any]] = []

    def decide(self, command: Command) -> list[dict[str, Any]]:
        """Carry out a command, and return the results of its items, if it has some.

        Raises:
            Rejected: it would be refused.
        """
        outcome: Any = self.cluster.decide(command).result()
        results = json_rows(getattr(outcome, "results", ()))
        self._refused += [one for one in results if one["error"] is not None]
        return results

    def decide_items(
        self, request: ItemRequest, items: Sequence[Mapping[str, Any]], **more: Any
    ) -> list[dict[str, Any]]:
        """Carry out what `send_items` would send, and return the results."""
        from quorum.http.batch import KINDS

        def send(some: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
            return self.decide(KINDS[request.operation].read({request.items: some, **more}))

        return in_parts(send, items, request.items_max, is_one=more.get("all_or_nothing", False))

    def foreseen(self) -> Foreseen:
        """Return what would be written."""
        written = self.cluster.take_written()
        records = [
            {"type": type_name(record), **to_json(record)} for batch in written for record in batch.records
        ]
        return Foreseen(self._before.end_offset, records, self._refused, len(written), self._names(records))

    def _names(self, records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        names: dict[str, str] = {}
        for text in {record["topic_id"] for record in records if record.get("topic_id")}:
            topic_id = TopicId(uuid_from_text(text))
            topic = self.cluster.image.topics.known(topic_id) or self._before.topics.known(topic_id)
            if topic is not None:
                names[text] = topic.name
        return names


def what_balancing_writes(client: ClusterClient, percentage: int) -> Foreseen:
    """Return the elections that balancing would hold now, for brokers whose imbalance exceeds `percentage`."""
    from quorum.decide.sweeps import Sweep, SweepKind

    dry = DryRun(client)
    sweep = Sweep(SweepKind.BALANCE, imbalance_percentage=percentage)
    while dry.cluster.sweep(sweep):
        pass
    return dry.foreseen()
