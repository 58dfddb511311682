"""Edge: requests with many items: sent in requests of a bounded size, or only shown, and a result of each item."""

import argparse
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from metadata_log.errors import ElectionNotNeeded, PolicyViolation
from ops import render
from ops.arguments import client_from
from ops.dry_run import DryRun, show_foreseen
from ops.render import Column
from ops.talk import fail_usage, say, show

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
    if args.all_or_nothing:
        if len(items) > request.items_max:
            fail_usage(f"{len(items)} at once; --all-or-nothing takes at most {request.items_max}")
        more = {**more, "all_or_nothing": True}
    if args.dry_run:
        return _show_dry_run(args, request, items, more)
    client = client_from(args)
    written: list[bool] = []

    def send(some: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        answer = client.write(request.method, request.path, {request.items: some, **more})
        written.append(answer["offsets"]["base"] < answer["offsets"]["end"])
        results: list[dict[str, Any]] = answer[request.items]
        return results

    results = in_parts(send, items, request.items_max, is_one=args.all_or_nothing)
    is_trial = bool(more.get("validate_only"))
    if written and not any(written) and not is_trial and all(one["error"] is None for one in results):
        say("nothing was written: all was as asked already")
    show(args, results, table=lambda: render.table(request.columns, results, empty=request.empty))
    return 0 if all(one["error"] in (None, ElectionNotNeeded.error) for one in results) else REFUSED


def _show_dry_run(
    args: argparse.Namespace,
    request: ItemRequest,
    items: Sequence[Mapping[str, Any]],
    more: Mapping[str, Any],
) -> int:
    from quorum.http.batch import KINDS

    dry = DryRun(args)

    def send(some: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return dry.decide(KINDS[request.operation].read({request.items: some, **more}))

    results = in_parts(send, items, request.items_max, is_one=args.all_or_nothing)
    refused = [one for one in results if one["error"] is not None]
    return show_foreseen(args, dry.foreseen()._replace(refused=refused))


def in_parts(
    send: Callable[[Sequence[Item]], list[dict[str, Any]]],
    items: Sequence[Item],
    size: int,
    *,
    is_one: bool = False,
) -> list[dict[str, Any]]:
    """Return the results of all items, sent in requests of at most `size`.

    One that the controller refuses because its records exceed a batch is sent again in halves, unless it `is_one`.

    Raises:
        PolicyViolation: one item alone exceeds a batch, and it is the only one asked for, or the request is one.
    """
    results: list[dict[str, Any]] = []
    waiting = deque(chunks(items, size))
    while waiting:
        some = waiting.popleft()
        try:
            results += send(some)
        except PolicyViolation as refusal:
            if is_one or len(items) == 1:
                raise
            if len(some) > 1:
                half = len(some) // 2
                waiting.extendleft((some[half:], some[:half]))
                continue
            item: Any = some[0]
            results.append({**item, "error": refusal.error, "message": refusal.message})
    return results


def chunks(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    waiting = iter(items)
    while some := list(islice(waiting, size)):
        yield some
