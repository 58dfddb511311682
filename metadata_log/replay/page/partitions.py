"""Edge: a lane for each partition: who led it, and below whether its ISR was whole; the most harmed first.
Tests: tests/unit/metadata_log/replay/test_page.py.
"""

import html
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from metadata_log.ids import NO_LEADER
from metadata_log.replay.library import Log
from metadata_log.replay.page.drawn import Incident, asked, figure, lanes
from metadata_log.replay.page.scale import Scale, time_text
from metadata_log.replay.page.style import LEADERS, bar, key

LANES_MAX: Final = 60
CHANGES_MAX: Final = 5_000
"""Of all lanes; of more, the newest are drawn."""
_LETTER: Final = 6
"""Room for a digit of a leader's number."""
_HARMED: Final = """
    SELECT
        pkey,
        CAST(sum(leaderless) AS BIGINT) AS leaderless_ms,
        CAST(sum(min_isr) AS BIGINT) AS min_isr_ms,
        CAST(sum(thin) AS BIGINT) AS thin_ms,
        CAST(sum(changes) AS BIGINT) AS changes
    FROM (
        SELECT pkey, duration_ms AS leaderless, 0 AS min_isr, 0 AS thin, 0 AS changes FROM leaderless_spells
        UNION ALL SELECT pkey, 0, duration_ms, 0, 0 FROM under_min_isr_spells
        UNION ALL SELECT pkey, 0, 0, duration_ms, 0 FROM under_replicated_spells
        UNION ALL SELECT pkey, 0, 0, 0, 1 FROM partition_changes
    ) AS harm
    GROUP BY pkey
    HAVING sum(changes) > 0 OR sum(leaderless) > 0 OR sum(min_isr) > 0
"""
_ORDER: Final = "ORDER BY leaderless_ms DESC, min_isr_ms DESC, thin_ms DESC, changes DESC, pkey"


class _Stay(NamedTuple):
    """A partition as it was from one change to the next."""

    pkey: int
    name: str
    begin_ms: int
    leader: int | None
    isr: list[int]
    replicas: list[int]


class _Chosen(NamedTuple):
    """What is drawn: the newest stays of the most harmed partitions, when each ended, and how much there is in all."""

    order: Sequence[int]
    stays: Sequence[_Stay]
    ends: Sequence[int | None]
    partitions: int
    changes: int


def partitions(log: Log, scale: Scale, incidents: Sequence[Incident]) -> str:
    chosen = _chosen(log, scale.first_ms)
    if not chosen.stays:
        return figure("Partitions: none changed", "", [])
    names = {stay.pkey: stay.name for stay in chosen.stays}
    places = {pkey: place for place, pkey in enumerate(pkey for pkey in chosen.order if pkey in names)}
    leaders = sorted({stay.leader for stay in chosen.stays if stay.leader not in (None, NO_LEADER)})
    kinds: dict[int | None, str] = {leader: f"p{place % LEADERS}" for place, leader in enumerate(leaders)}
    kinds[NO_LEADER] = "lost"
    drawn: list[list[str]] = [[] for _ in places]
    for stay, end_ms in zip(chosen.stays, chosen.ends, strict=True):
        if stay.leader is not None:
            drawn[places[stay.pkey]].append(_drawn(stay, end_ms, scale, kinds))
    legend = "".join(key(kinds[leader], f"leader {leader}") for leader in leaders[:LEADERS])
    legend += key("lost", "no leader (&#10005;)", pattern="OFFLINE")
    thin = "".join(
        (
            key("ONLINE", "ISR whole"),
            key("FENCED", "smaller", pattern="FENCED"),
            key("OFFLINE", "one replica", pattern="OFFLINE"),
        )
    )
    details = [
        f"{scale.text}; above: the leader by number; below: {thin}",
        "longest without a leader first, then under min.insync.replicas, then under-replicated",
        f"the {LANES_MAX} most harmed of {chosen.partitions:,} partitions"
        if chosen.partitions > LANES_MAX
        else "",
        f"newest {CHANGES_MAX:,} of their {chosen.changes:,} changes" if chosen.changes > CHANGES_MAX else "",
        "colours repeat" if len(leaders) > LEADERS else "",
    ]
    panels = lanes([names[pkey] for pkey in places], drawn, scale=scale, incidents=incidents)
    return figure(f"Partitions {legend}", "; ".join(filter(None, details)), panels)


def _drawn(stay: _Stay, end_ms: int | None, scale: Scale, kinds: Mapping[int | None, str]) -> str:
    left, wide = scale.stretch(stay.begin_ms, scale.last_ms if end_ms is None else end_ms)
    whole = set(stay.isr) >= set(stay.replicas)
    is_lost = stay.leader == NO_LEADER
    led = "no leader" if is_lost else f"leader {stay.leader}"
    said = (
        f"<title>{html.escape(stay.name)}: {led}, ISR {', '.join(map(str, stay.isr))} of "
        f"{', '.join(map(str, stay.replicas))} from {time_text(stay.begin_ms)}</title>"
    )
    isr = "ONLINE" if whole else "OFFLINE" if len(stay.isr) == 1 else "FENCED"
    shapes = [
        bar(kinds[stay.leader], left, 1, wide, 9, pattern="OFFLINE" if is_lost else None),
        bar(isr, left, 11, wide, 3.5, pattern=None if whole else isr),
    ]
    letters = "\N{MULTIPLICATION X}" if is_lost else str(stay.leader)
    if wide >= _LETTER * (len(letters) + 1):
        shapes.append(f'<text class="inside" x="{left + 2:.1f}" y="8.5">{letters}</text>')
    return f"<g>{said}{''.join(shapes)}</g>"


def _chosen(log: Log, first_ms: int) -> _Chosen:
    """Choose the most harmed partitions. After a deletion, a stay has the leader None."""
    tables = ("leaderless_spells", "under_min_isr_spells", "under_replicated_spells", "partition_changes")
    harmed = asked(log, f"{_HARMED} {_ORDER} LIMIT {LANES_MAX}", *tables)
    if not harmed:
        return _Chosen([], [], [], 0, 0)
    ((total,),) = asked(log, f"SELECT count(*) AS n FROM ({_HARMED}) AS each", *tables)  # noqa: S608 our own text
    order = [row[0] for row in harmed]
    changes = sum(row[4] for row in harmed)
    among = ", ".join(map(str, order))
    newest = asked(
        log,
        "SELECT pkey, topic_name, partition, unix_millis(ts) AS at, op, leader, isr, replicas "  # noqa: S608 numbers
        f"FROM partition_changes WHERE pkey IN ({among}) ORDER BY log_offset DESC LIMIT {CHANGES_MAX}",
        "partition_changes",
    )
    before = asked(
        log,
        "SELECT * FROM (SELECT topic_seq * 16777216 + partition AS pkey, topic_name, partition, leader, isr, replicas "  # noqa: S608
        f"FROM initial WHERE partition IS NOT NULL) AS p WHERE pkey IN ({among})",
        "initial",
    )
    stays = [
        *(
            _Stay(pkey, f"{topic}:{n}", first_ms, *rest)
            for pkey, topic, n, *rest in before
            if changes <= CHANGES_MAX
        ),
        *(
            _Stay(pkey, f"{topic}:{n}", at, None if op == "delete" else leader, isr or [], replicas or [])
            for pkey, topic, n, at, op, leader, isr, replicas in reversed(newest)
        ),
    ]
    ends: list[int | None] = []
    next_ms: dict[int, int] = {}
    for stay in reversed(stays):
        ends.append(next_ms.get(stay.pkey))
        next_ms[stay.pkey] = stay.begin_ms
    return _Chosen(order, stays, ends[::-1], total, changes)
