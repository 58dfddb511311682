"""Edge: `diff`: what changed in the state of a running cluster between two moments.
Tests: tests/unit/ops/verbs/test_live.py.
"""

from collections import Counter
from typing import Any, Final

from ops.admin.bulk_reads import Source, bulk_source, read_in_bulk
from ops.admin.cluster import Cluster
from ops.admin.exchange import JSON
from ops.admin.state_diff import state_diff
from ops.command_line.options import Network, Verb, option, reading
from ops.command_line.partition_summary import SHOWN_MAX
from ops.command_line.render import Column, plain
from ops.command_line.talk import say
from ops.command_line.values import moment
from ops.when import When, time_text

CHANGES: Final = (
    Column("what"),
    Column("key"),
    Column("change"),
    Column("field", show=lambda field: "" if field is None else plain(field)),
    Column("before", show=lambda value: "" if value is None else plain(value)),
    Column("after", show=lambda value: "" if value is None else plain(value)),
)


@option(
    "--from", "--since", "first", read=moment, required=True, metavar="WHEN", help="an end offset or a time"
)
@option("--to", "--until", "last", read=moment, metavar="WHEN", help="default: now")
@reading
def run_diff(asked: Network, *, first: When, last: When | None) -> int:
    client = asked.client()
    source = bulk_source(client)
    before = _state(client, source, first.query)
    after = _state(client, source, str(source.end_offset) if last is None else last.query)
    for word, state in (("from", before), ("to", after)):
        say(
            f"{word} offset {state['end_offset']}, {time_text(state['time_ms']) if state['time_ms'] else 'the beginning'}"
        )
    found = [*state_diff(before, after)]

    def table() -> str:
        rows = asked.table(CHANGES, found, empty="nothing changed")
        if len(found) <= SHOWN_MAX:
            return rows
        counts = Counter((one["what"], one["change"]) for one in found)
        head = ", ".join(
            f"{count:,} changes of a {what}: {change}" for (what, change), count in counts.most_common()
        )
        return f"{head}\n\n{rows}"

    asked.show(found, table=table)
    return 0


NOUN: Final = Verb(
    run_diff, examples=("diff --from -10m", "diff --from 1200 --to 1400 -o json", "diff --from -2h --to -1h")
)


def _state(client: Cluster, source: Source, at: str) -> dict[str, Any]:
    state: dict[str, Any] = read_in_bulk(client, source, f"/v1/state?at={at}", accept=JSON).json()
    return state
