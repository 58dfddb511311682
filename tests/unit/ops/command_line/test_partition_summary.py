"""Pure: many partitions in a few lines."""

from typing import Any

from ops.command_line.partition_summary import SHOWN_MAX, by_broker, by_topic, causes, short, summary
from ops.command_line.render import PLAIN, Column


def partition(
    topic: str, number: int, *, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3)
) -> dict[str, Any]:
    return {"topic": topic, "partition": number, "leader": leader, "replicas": [1, 2, 3], "isr": list(isr)}


SOME = [partition("a", 0), partition("a", 1, isr=(1, 2)), partition("b", 0, leader=-1, isr=(3,))]


def test_brokers_have_what_they_lead_and_lack() -> None:
    rows = by_broker(SOME)
    assert [(row["broker"], row["leaders"], row["replicas"], row["not_in_sync"]) for row in rows] == [
        (1, 2, 3, 1),
        (2, 0, 3, 1),
        (3, 0, 3, 1),
    ]


def test_topics_with_most_partitions_come_first() -> None:
    assert [tuple(row.values()) for row in by_topic(SOME)] == [("a", 2, 0, 1), ("b", 1, 1, 1)]


def test_a_broker_that_is_away_is_the_reason_for_all_that_lack_it() -> None:
    """Goal: one line instead of 1,012 rows."""
    many = [partition("t", number, isr=(1, 2)) for number in range(1_012)]
    lines = summary(many, {1: "ONLINE", 2: "ONLINE", 3: "FENCED"}, PLAIN).splitlines()
    assert lines[:2] == ["1,012 partitions of 1 topic", "1,012 partitions because broker 3 is away (FENCED)"]
    assert len(lines) < 10


def test_a_broker_that_is_online_and_not_in_sync_is_named_too() -> None:
    assert [*causes([SOME[1]], {3: "ONLINE"})] == [
        "1 partition: broker 3 is online, and its replica is not in sync"
    ]
    assert [*causes([SOME[1]], {})] == ["1 partition because broker 3 is away (not registered)"]


def test_a_long_table_says_how_many_rows_it_leaves_out() -> None:
    rows = [{"n": number} for number in range(SHOWN_MAX + 3)]
    lines = short((Column("n"),), rows, PLAIN).splitlines()
    assert len(lines) == 1 + SHOWN_MAX + 1 and lines[-1] == "... and 3 more"
    assert "more" not in short((Column("n"),), rows[:SHOWN_MAX], PLAIN)
