"""Edge: what a command would write now: decided on the live state by the controller's own rules; nothing is written."""

import argparse
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from metadata_log.ids import NodeId
from metadata_log.records.registry import json_rows, to_json, type_name
from metadata_log.wire.commands import Command
from ops import render
from ops.arguments import client_from
from ops.talk import show


class Foreseen(NamedTuple):
    """What would be written on the state at `end_offset` (exclusive), in how many batches, and the items that would be
    refused.
    """

    end_offset: int
    records: list[dict[str, Any]]
    refused: list[dict[str, Any]]
    batches: int


def show_what_if(args: argparse.Namespace, operation: str, *bodies: Mapping[str, Any]) -> int:
    """Print the records that requests with these bodies would write one after the other, and the items they would refuse.

    Raises:
        Rejected: one of the requests would be refused.
    """
    from quorum.http.batch import KINDS

    return show_foreseen(args, foresee(args, [KINDS[operation].read(body) for body in bodies]))


def foresee(
    args: argparse.Namespace, commands: Sequence[Command], *, linked: Collection[NodeId] | None = None
) -> Foreseen:
    """Return what the active controller would write if it carried out the commands one after the other.

    `linked` are the controllers that run, as far as that is known.

    Raises:
        Rejected: one of the commands would be refused.
    """
    dry = DryRun(args, linked=linked)
    for command in commands:
        dry.decide(command)
    return dry.foreseen()


class DryRun:
    """The state of a running cluster, on which commands are decided as its active controller would; nothing is written.

    Replicas that nobody assigns are placed by chance, and new topics get chance ids: the real ones will differ.
    """

    def __init__(self, args: argparse.Namespace, *, linked: Collection[NodeId] | None = None) -> None:
        from ops.admin.live_state import live_image, live_options
        from quorum.whatif.cluster import Cluster

        client = client_from(args)
        self.cluster: Cluster = Cluster(
            live_options(client),
            live_image(client),
            checks_as_brokers=True,
            linked=linked,
            # What is printed has masks of secrets: nobody else may draw their keys.
            rng=random.SystemRandom(),
        )
        self._end_offset = self.cluster.image.end_offset
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

    def foreseen(self) -> Foreseen:
        """Return what would be written."""
        written = self.cluster.take_written()
        records = [
            {"type": type_name(record), **to_json(record)} for batch in written for record in batch.records
        ]
        return Foreseen(self._end_offset, records, self._refused, len(written))


def show_balancing(args: argparse.Namespace, percentage: int) -> int:
    """Print the records of the elections that balancing would hold now, for brokers whose imbalance exceeds `percentage`."""
    from quorum.decide.sweeps import Sweep, SweepKind

    dry = DryRun(args)
    sweep = Sweep(SweepKind.BALANCE, imbalance_percentage=percentage)
    while dry.cluster.sweep(sweep):
        pass
    return show_foreseen(args, dry.foreseen())


def show_foreseen(args: argparse.Namespace, foreseen: Foreseen) -> int:
    def table() -> str:
        refused = [f"refused: {_line(error)}" for error in foreseen.refused]
        counts = f"{len(foreseen.records)} records in {foreseen.batches} batches, {len(refused)} refused"
        return "\n".join([record_lines(foreseen.records), *refused, counts])

    show(args, foreseen._asdict(), table=table)
    return 0


def record_lines(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each record."""
    return "\n".join(map(_line, records)) or "nothing would be written"


def _line(record: Mapping[str, Any]) -> str:
    told = (
        f"{name}={render.plain(value)}"
        for name, value in record.items()
        if name != "type" and value is not None
    )
    return f"{record.get('type', '')} {' '.join(told)}".strip()
