"""Edge: what the log cost those who write and read: the first sentence of the report.
Tests: tests/unit/metadata_log/replay/test_report.py.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from metadata_log.replay.library import Log
from metadata_log.replay.report.words import counted, duration

NAMED_MAX: Final = 3
"""Topics that the sentence names; of more, those that were harmed longest."""

_UNDER_MIN_ISR: Final = """
    SELECT
        s.topic_name, s.cause_code, CAST(get_json_object(c.cause_detail, '$.broker_id') AS INT) AS broker_id,
        count(DISTINCT s.partition) AS partition_count, count(*) AS spells,
        CAST(sum(s.duration_ms) AS BIGINT) AS total_ms, CAST(sum(s.unknown_ms) AS BIGINT) AS unknown_ms,
        max(CASE WHEN s.clock_stepped THEN 1 ELSE 0 END) = 1 AS clock_stepped,
        min(s.from_ts) AS from_ts, max(s.to_ts) AS to_ts, count(CASE WHEN s.lasting THEN 1 END) AS lasting,
        min(s.isr_size) AS isr_size, max(s.min_isr) AS min_isr
    FROM spells s LEFT JOIN changes c ON s.pkey = c.pkey AND s.from_offset = c.log_offset AND c.op <> 'delete'
    GROUP BY s.topic_name, s.cause_code, CAST(get_json_object(c.cause_detail, '$.broker_id') AS INT)
    ORDER BY total_ms DESC, topic_name, cause_code, broker_id
"""


def under_min_isr(log: Log) -> pa.Table:
    """Return which topics were under min.insync.replicas, when, and because of what."""
    tables = {"spells": log.table_of("under_min_isr_spells"), "changes": log.table_of("partition_changes")}
    return log.engine.arrow(log.engine.query(_UNDER_MIN_ISR, tables))


def impact(
    unavailable: Sequence[dict[str, Any]],
    under: Sequence[dict[str, Any]],
    unknown_ms: int,
    *,
    alarming_steps: bool,
) -> str:
    """Return the first sentence of the report: what partitions could not be written to, or read.

    `alarming_steps`: clocks stepped back so far that durations across a step mislead.
    """
    parts = [
        _harm(
            "without a leader",
            [(row["topic_name"], row["total_ms"], row["unknown_ms"], row["episodes"]) for row in unavailable],
        ),
        _harm(
            "under min.insync.replicas",
            [(row["topic_name"], row["total_ms"], row["unknown_ms"], row["spells"]) for row in under],
        ),
    ]
    told = (
        " ".join(f"Partitions were {part}." for part in parts if part)
        or "Every partition had a leader and as many replicas in sync as writes with acks=all need."
    )
    limits = f" But for {duration(unknown_ms)} the log proves nothing." if unknown_ms else ""
    if alarming_steps and any(row["clock_stepped"] for row in (*unavailable, *under)):
        limits += " A clock stepped meanwhile: it may have been more or less."
    return f"**{told}{limits}**"


def _harm(what: str, harmed: Sequence[tuple[str, int, int, int]]) -> str:
    """Return who was harmed, how often and for how long; `harmed` are topics, known and unknown time, and spells."""
    if not harmed:
        return ""
    known_ms: Counter[str] = Counter()
    at_most_ms: Counter[str] = Counter()
    for topic, known, unknown, _ in harmed:
        known_ms[topic] += int(known)
        at_most_ms[topic] += int(known) + int(unknown)
    topics = sorted(at_most_ms, key=lambda topic: (-at_most_ms[topic], topic))
    named = topics[:NAMED_MAX]
    shown = ", ".join(f"`{topic}` for {_from_to(known_ms[topic], at_most_ms[topic])}" for topic in named)
    more = len(topics) - len(named)
    others = f" and {counted(more, 'other topic', 'other topics')}" if more else ""
    spells = counted(sum(count for *_, count in harmed), "time", "times")
    total = _from_to(known_ms.total(), at_most_ms.total())
    return f"{what} {spells}, for {total} of partition time: {shown}{others}"


def _from_to(known_ms: int, at_most_ms: int) -> str:
    """Return how long something lasted: as far as known, and at most, where a silence of the log lies within it."""
    return duration(known_ms) + ("" if at_most_ms == known_ms else f" to {duration(at_most_ms)}")
