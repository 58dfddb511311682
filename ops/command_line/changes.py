"""Edge: verbs that change a cluster: what they share, and how they show results, and what they would write.
Tests: tests/unit/ops/admin/test_dry_run.py.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from metadata_log.errors import ElectionNotNeeded
from ops.admin.items import ItemRequest, send_items
from ops.command_line import render
from ops.command_line.options import Network, R, flag, network, sharing
from ops.command_line.partition_summary import SHOWN_MAX, short
from ops.command_line.render import Column, Row
from ops.command_line.talk import fail_usage, say

if TYPE_CHECKING:
    from ops.admin.dry_run import Foreseen

NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
HARMLESS: Final = (ElectionNotNeeded.error,)
AS_IT_WAS: Final = "as it was"
"""The result of an item that was as it was asked to be."""
REFUSED: Final = 3
"""The exit code where an item was refused, as for a request that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Network):
    """A change of a cluster: whether it is only shown, and whether a refused item stops all of it."""

    dry_run: bool = False
    all_or_nothing: bool = False

    def foreseen(self, operation: str, *bodies: Mapping[str, Any]) -> int:
        """Print the records that requests with these bodies would write one after the other."""
        from ops.admin.dry_run import what_if  # it imports what decides, which takes a while

        return show_foreseen(self, what_if(self.client(), operation, *bodies))


def change(run: R) -> R:
    """Declare a change: the verb gets it as `asked`, a Change with --dry-run."""
    dry = flag("--dry-run", help="show the records, and write nothing")
    return dry(sharing(Change)(network(run)))


def change_of_items(run: R) -> R:
    """Declare a change of several items: beside --dry-run it has --all-or-nothing."""
    whole = flag("--all-or-nothing", help="write nothing if one of them is refused")
    return whole(change(run))


def result_columns(*identity: Column, done: str) -> tuple[Column, ...]:
    """Return the columns of results: what names an item, then its error or `done`, and why."""
    return (
        *identity,
        Column("error", "RESULT", lambda error: done if error is None else str(error)),
        Column("message", show=lambda message: "" if message is None else str(message)),
    )


def carry_out(
    asked: Change,
    request: ItemRequest,
    items: Sequence[Mapping[str, Any]],
    columns: Sequence[Column],
    *,
    empty: str = "nothing was asked",
    harmless: Collection[str] = HARMLESS,
    **more: Any,
) -> int:
    """Send the items with the fields `more`, or show what would be written; return REFUSED if one was refused.

    `harmless` are errors that say that things are as they were wanted.
    """
    if asked.all_or_nothing:
        if len(items) > request.items_max:
            fail_usage(f"{len(items)} at once; --all-or-nothing takes at most {request.items_max}")
        more = {**more, "all_or_nothing": True}
    if asked.dry_run:
        from ops.admin.dry_run import what_if_items

        foreseen = what_if_items(asked.client(), request, items, **more)
        return show_foreseen(asked, foreseen, harmless=harmless)
    sent = send_items(asked.client(), request, items, **more)
    errors = {one["error"] for one in sent.results}
    if errors == {None} and not sent.is_written and not more.get("validate_only"):
        say("nothing was written: all was as asked already")
        columns = [replace(one, show=_as_before) if one.key == "error" else one for one in columns]
    asked.show(sent.results, table=lambda: _results(asked, columns, sent.results, empty))
    return 0 if errors <= {None, *harmless} else REFUSED


def _as_before(_error: object) -> str:
    return AS_IT_WAS


def _results(asked: Network, columns: Sequence[Column], results: Sequence[Row], empty: str) -> str:
    """Return results as a table; of many, how many came to what, and those alone that were refused."""
    if len(results) <= SHOWN_MAX or asked.look.is_wide:
        return asked.table(columns, results, empty=empty)
    result = next(column for column in columns if column.key == "error")
    counts = Counter(result.show(one["error"]) for one in results)
    head = ", ".join(f"{count:,} {what}" for what, count in counts.most_common())
    refused = [one for one in results if one["error"] is not None]
    return f"{head}\n\n{short(columns, refused, asked.look)}" if refused else head


def show_foreseen(asked: Network, foreseen: "Foreseen", *, harmless: Collection[str] = HARMLESS) -> int:
    """Show what would be written; return REFUSED if an item would be refused, as the change itself does."""
    value = foreseen._asdict()
    names = value.pop("names")

    def table() -> str:
        refused = [f"refused: {_line(error, names)}" for error in foreseen.refused]
        count, batches = len(foreseen.records), foreseen.batches
        written = (
            f"{count:,} record{'' if count == 1 else 's'} in {batches:,} batch{'' if batches == 1 else 'es'}"
        )
        counts = f"{written}, {len(refused)} refused"
        return "\n".join([record_lines(foreseen.records, names, asked.look), *refused, counts])

    asked.show(value, table=table)
    return 0 if {one["error"] for one in foreseen.refused} <= {*harmless} else REFUSED


def record_lines(
    records: Sequence[Mapping[str, Any]],
    names: Mapping[str, str] = NO_NAMES,
    look: render.Look = render.PLAIN,
) -> str:
    """Return a line for each record, of many for the first alone; `names` are those of topics, by id."""
    shown = records if look.is_wide else records[:SHOWN_MAX]
    lines = [_line(record, names) for record in shown]
    if len(shown) < len(records):
        counts = Counter(record.get("type", "") for record in records)
        lines = [
            ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common()),
            *lines,
            f"... and {len(records) - len(shown):,} more: -o wide shows all of them",
        ]
    return "\n".join(lines) or "nothing would be written"


def _line(record: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return a record in one line. A topic has its name there, if it is known, else its id."""
    told = []
    for name, value in record.items():
        if name == "topic_id" and value in names:
            told.append(f"topic={render.plain(names[value])}")
        elif name != "type" and value not in (None, []):
            told.append(f"{name}={render.plain(value)}")
    return f"{record.get('type', '')} {' '.join(told)}".strip()
