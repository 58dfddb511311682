"""A part between two moments beside a fold with a clock (tests/support/plain_clock.py): silences, deaths and clock steps."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metadata_log import replay
from metadata_log.batch import Envelope
from metadata_log.errors import OffsetInFuture, PositionOutOfRange
from metadata_log.ids import NO_LEADER
from metadata_log.image.metadata_image import EMPTY
from metadata_log.records.quorum import WRITE_NO_OP, NoOpRecord
from metadata_log.replay.export import export_log
from tests.support import plain_analyses as plain
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, FIRST_TIME_MS, Step, next_step, step_of
from tests.support.plain_clock import Clock, Reading

pytestmark = pytest.mark.slow

WINDOWS = 10

DAY_MS = 86_400_000
CONDITIONS = {
    "leaderless_spells": lambda _moment, _topic, image: image.leader == NO_LEADER,
    "under_replicated_spells": plain.under_replicated,
    "not_preferred_spells": plain.not_preferred,
    "under_min_isr_spells": plain.under_min_isr,
}
CALM = (0, 1, 5, 700, 700, 5_000)
ROUGH = (*CALM, 12_000, 300_000, 6 * 3_600_000, -3, -4_000)


def history_of(rng: random.Random, batch_count: int) -> list[Step]:
    """Return a history whose controllers fall silent, mark that they are quiet, and have clocks that differ by a day."""
    image, time_ms, history = EMPTY, FIRST_TIME_MS + 10 * DAY_MS, list[Step]()
    while len(history) < batch_count:
        time_ms += rng.choice(ROUGH)
        if rng.random() < 0.01:
            time_ms += rng.choice((-DAY_MS, DAY_MS))
        if history and rng.random() < 0.2:
            mark = Envelope("Controller:1", operation=WRITE_NO_OP)
            step = step_of(image, [NoOpRecord()], appended_at_ms=time_ms, envelope=mark)
        else:
            step = next_step(rng, image, appended_at_ms=time_ms)
        history.append(step)
        image = step.image
    return history


def opened(history: list[Step], to: Path) -> replay.Log:
    export_log(frames_of(history), to, cluster_id=CLUSTER_ID)
    return replay.open(to)


Sums = Counter[tuple[str, int, int | None, bool]]


def wanted(
    history: list[Step],
    clock: Clock,
    spells: list[plain.Spell],
    first: tuple[int, Reading],
    last: tuple[int, Reading],
) -> Iterator[tuple[str, int, int | None, int, int]]:
    """Yield the spells that reach into a part: where they ended in it, and how long they lasted in it."""
    begin, end = first[1], last[1]
    for spell in spells:
        if spell.from_offset >= last[0] or (spell.to_offset is not None and spell.to_offset < first[0]):
            continue
        since = begin if spell.from_offset < first[0] else clock.at_record(spell.from_offset)
        is_open = spell.to_offset is None or spell.to_offset >= last[0]
        until = end if is_open or spell.to_offset is None else clock.at_record(spell.to_offset)
        passed = until - since
        yield (
            spell.topic_name,
            spell.partition,
            None if is_open else spell.to_offset,
            passed.known_ms,
            passed.unknown_ms,
        )


def by_partition(
    rows: Iterator[tuple[Any, ...]] | list[tuple[Any, ...]],
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return known and unknown time of each partition: a leader found and lost in one batch parts a spell in the log."""
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    for topic, partition, _, known, unknown in rows:
        before = sums.get((topic, partition), (0, 0))
        sums[topic, partition] = (before[0] + known, before[1] + unknown)
    return {key: both for key, both in sums.items() if both != (0, 0)}


def check_window(
    history: list[Step],
    log: replay.Log,
    clock: Clock,
    folds: dict[str, list[plain.Spell]],
    times: tuple[int, int],
) -> None:
    first, last = (clock.at_time(time_ms) for time_ms in times)
    part = log.between(*(replay_time(time_ms) for time_ms in times))
    assert (part.first.end_offset, part.last.end_offset) == (first[0], last[0])
    for table, spells in folds.items():
        found = part.sql(
            f"SELECT topic_name, partition, to_offset, duration_ms, unknown_ms FROM {table}"
        ).fetchall()
        assert by_partition(found) == by_partition(wanted(history, clock, spells, first, last)), (
            table,
            times,
        )
    passed = last[1] - first[1]
    for known, unknown in part.sql(
        "SELECT sum(duration_ms), sum(unknown_ms) FROM broker_state_intervals WHERE from_offset >= 0 "
        "AND broker_id NOT IN (SELECT broker_id FROM broker_changes) GROUP BY broker_id"
    ).fetchall():
        assert (known, unknown) == passed[:2], "a broker that does not change has one state all the while"


def replay_time(unix_ms: int) -> Any:
    return np.datetime64(unix_ms, "ms")


def test_a_part_between_two_times_is_a_fold_with_a_clock(tmp_path: Path) -> None:
    rng = random.Random(1)
    history = history_of(rng, 150)
    log, clock = opened(history, tmp_path), Clock(history)
    folds = {table: plain.spells(history, holds) for table, holds in CONDITIONS.items()}
    stamps = [step.batch.appended_at_ms for step in history]
    low, high = stamps[0], max(stamps)
    made = 0
    while made < WINDOWS:
        near = rng.choice(stamps)
        a, b = sorted(
            min(max(at, low), high - 1)
            for at in (
                near + rng.randint(-20_000, 20_000),
                rng.choice((near, rng.choice(stamps))) + rng.randint(0, 60_000),
            )
        )
        if clock.at_time(a) == clock.at_time(b):
            with pytest.raises(PositionOutOfRange):
                log.between(replay_time(a), replay_time(b))
            continue
        check_window(history, log, clock, folds, (a, b))
        made += 1


def test_parts_that_follow_each_other_add_up(tmp_path: Path) -> None:
    """Goal: nothing is counted twice, and nothing is lost, wherever a log is parted."""
    rng = random.Random(7)
    history = history_of(rng, 120)
    log = opened(history, tmp_path)
    stamps = sorted(step.batch.appended_at_ms for step in history)
    cuts = [None, *(replay_time(at + 1) for at in (stamps[30], stamps[60], stamps[90])), None]
    query = "SELECT coalesce(sum(duration_ms), 0), coalesce(sum(unknown_ms), 0) FROM leaderless_spells"
    parts = [log.between(a, b).sql(query).fetchall()[0] for a, b in pairwise(cuts)]
    assert [(sum(known), sum(unknown)) for known, unknown in [zip(*parts, strict=True)]] == log.sql(
        query
    ).fetchall()


def test_each_spell_without_a_leader_is_in_an_incident(tmp_path: Path) -> None:
    log = opened(history_of(random.Random(8), 150), tmp_path)
    end = log.export.end_offset
    for part in (log, log.between(end // 3, 2 * end // 3)):
        of_incidents = part.sql("SELECT sum(partition_ms), sum(partition_unknown_ms) FROM incidents")
        of_spells = part.sql("SELECT sum(duration_ms), sum(unknown_ms) FROM leaderless_spells")
        assert of_incidents.fetchall() == of_spells.fetchall()


def test_a_time_beyond_what_was_observed_is_refused(tmp_path: Path) -> None:
    history = history_of(random.Random(10), 30)
    log = opened(history, tmp_path)
    latest = max(step.batch.appended_at_ms for step in history)
    assert log.position(replay_time(latest)).end_offset <= history[-1].batch.end_offset
    for asks in (log.position, log.state_at, lambda at: log.between(None, at)):
        with pytest.raises(OffsetInFuture, match="lies beyond the time up to which this log was observed"):
            asks(replay_time(latest + 1))
