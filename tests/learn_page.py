"""Edge: writes docs/learn.md, the page of the stories that `metaquorum learn` tells: `python -m tests.learn_page`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ops.stories.registry import STORIES
from tests.rows.table import ROWS

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "learn.md"
HEAD: Final = """\
# Learn

`metaquorum learn` tells stories of replication and of consumer groups. Each one starts three controllers and a few brokers
of Apache Kafka in a temporary directory, does to them what it tells, shows what was seen (log ends, high watermarks, ISRs,
epochs, counts of records), and stops them. A story whose end is another than the one it tells fails, and says what was
expected and what was seen.

    metaquorum learn                        # the stories
    metaquorum learn high-watermark         # one of them, as it happens: about a minute
    metaquorum learn acks -o json           # what was seen, for programs

It needs what `./ops/up --kafka` needs, 2 GB of memory, and no cluster. Nothing of a cluster that runs is touched. Ctrl-C
stops its nodes. What a story leaves that is killed with kill -9, the next one stops.

Nothing is simulated. Each broker has a listener for each follower, so each pair of brokers has a link of its own, which
passes through the process of the story. There an answer to a follower can be held and let through, so that a follower is at
exactly 7 of 10 records, and a link can be cut. Nodes are killed with kill -9. The log end of a replica is what it answers to
a ListOffsets request as a debugging reader; its high watermark is that of its answer to a fetch.

The tests in `tests/kafka/stories` look at the same stories.

| story | what it tells | brokers | what it shows |
|---|---|---:|---|
"""
DIFFERENCES: Final = (
    (
        "A follower that asks for nothing leaves the ISR.",
        "It leaves once there is a record that it lacks. With the whole log of its leader it stays, however silent.",
    ),
    (
        "Two reasons for leaving the ISR, with a time for each.",
        "One rule since KIP-16: a follower must have caught up with the log end within `replica.lag.time.max.ms`.",
    ),
    ("`replica.fetch.wait.max.ms` must be less than `replica.lag.time.max.ms`.", "It may be equal."),
    (
        "A replica that returns is truncated to its checkpointed high watermark.",
        "It is truncated to where its last epoch ended in the leader's log (KIP-101). In the story that is the same.",
    ),
    (
        "A late retry of a commit is refused.",
        "It is refused if the group has rebalanced since (ILLEGAL_GENERATION). Within a generation it counts.",
    ),
    (
        "A rebalance repeats the records since the last automatic commit.",
        "A client commits before it hands its partitions over: what is repeated is what a killed consumer did not commit.",
    ),
    (
        "A follower serves no client.",
        "It refuses writes. It serves reads of consumers that name their rack (KIP-392).",
    ),
    (
        "An ISR that shrinks below `min.insync.replicas` after an append: NOT_ENOUGH_REPLICAS_AFTER_APPEND.",
        "The high watermark stands still meanwhile (KIP-966), so the answer is REQUEST_TIMED_OUT.",
    ),
)
"""What the documents say, and what Kafka 4.3.1 does instead."""
DIFFERENCES_HEAD: Final = """
## Where Kafka 4.3 does not do what the documents say

| the documents | Kafka 4.3.1, as the stories see it |
|---|---|
"""


def page() -> str:
    differences = "".join(f"| {said} | {done} |\n" for said, done in DIFFERENCES)
    return HEAD + "".join(_rows()) + DIFFERENCES_HEAD + differences


def _rows() -> Iterator[str]:
    for name, story in STORIES.items():
        shown = "; ".join(ROWS[row].meaning for row in story.rows)
        yield f"| `{name}` | {story.about} | {story.brokers} | {shown} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
