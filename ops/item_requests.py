"""Edge: requests with many items: sent in requests of a bounded size, or only shown, and a result of each item."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from metadata_log.errors import ElectionNotNeeded
from ops import render
from ops.client import client_from
from ops.dry_run import show_what_if
from ops.render import Column
from ops.talk import fail_usage, show

Item = TypeVar("Item")

REFUSED: Final = 3
"""The exit code where an item was refused, as for a request that is."""


def result_columns(*identity: Column, done: str) -> tuple[Column, ...]:
    """Return the columns of results: what names an item, then its error or `done`, and why."""
    return (
        *identity,
        Column("error", "RESULT", lambda error: done if error is None else str(error)),
        Column("message", show=lambda message: "" if message is None else str(message)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRequest:
    """Where items of one kind are sent: at most `items_max` in a list of the name `items`, which the answer has as well."""

    operation: str
    method: str
    path: str
    items: str
    items_max: int
    columns: Sequence[Column]
    empty: str = "nothing was asked"


def add_flags(verb: argparse.ArgumentParser, *, all_or_nothing: bool = True) -> None:
    """Add --dry-run and --all-or-nothing."""
    verb.add_argument("--dry-run", action="store_true", help="show the records, and write nothing")
    if all_or_nothing:
        verb.add_argument(
            "--all-or-nothing", action="store_true", help="write nothing if one of them is refused"
        )


def carry_out(
    args: argparse.Namespace, request: ItemRequest, items: Sequence[Mapping[str, Any]], **more: Any
) -> int:
    """Send the items with the fields `more`, or show what would be written; return REFUSED if one was refused."""
    bodies = [{request.items: some, **more} for some in chunks(items, request.items_max)]
    if args.all_or_nothing:
        if len(bodies) > 1:
            fail_usage(args, f"{len(items)} at once; --all-or-nothing takes at most {request.items_max}")
        bodies = [{**body, "all_or_nothing": True} for body in bodies]
    if args.dry_run:
        return show_what_if(args, request.operation, *bodies)
    client = client_from(args)
    results = [
        one for body in bodies for one in client.write(request.method, request.path, body)[request.items]
    ]
    show(args, results, table=lambda: render.table(request.columns, results, empty=request.empty))
    return 0 if all(one["error"] in (None, ElectionNotNeeded.error) for one in results) else REFUSED


def chunks(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    waiting = iter(items)
    while some := list(islice(waiting, size)):
        yield some
