"""The report as a page: round ticks, steps, links between incidents and the story, the most harmed partitions first."""

import re
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from metadata_log import replay
from metadata_log.replay.export import export_log
from metadata_log.replay.page import charts, page
from metadata_log.replay.page.counts import _steps
from metadata_log.replay.page.drawn import Incident, lanes, marks
from metadata_log.replay.page.scale import LEFT, SEEN, WIDTH, Scale
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, history_of

NOON_MS = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()) * 1000
HEAD = "# Cluster X\n\n- Offsets 0 to 9"


def test_ticks_are_round_and_few_at_every_length() -> None:
    for exponent in range(1, 45):
        span = int(2**exponent)
        ticks = Scale(NOON_MS + 7, NOON_MS + 7 + span).ticks()
        assert len(ticks) <= 9 and (span < 10 or len(ticks) >= 1)
        steps = {after.at_ms - before.at_ms for before, after in pairwise(ticks)}
        assert len(steps) <= 1
    ticks = Scale(NOON_MS, NOON_MS + 24 * 3_600_000).ticks()
    assert [tick.label for tick in ticks][:5] == ["01-31 12:00", "15:00", "18:00", "21:00", "02-01 00:00"]


def test_a_moment_outside_lies_at_the_edge() -> None:
    scale = Scale(1_000, 2_000)
    assert [scale.x(at) for at in (0, 1_000, 2_000, 9_000)] == [LEFT, LEFT, WIDTH, WIDTH]
    for begin, end in ((1_500, 1_500), (2_000, 2_000), (1_000, 2_000)):
        left, wide = scale.stretch(begin, end)
        assert wide >= SEEN and left >= LEFT and left + wide <= WIDTH, (
            "what is short is seen, at the end, too"
        )


def test_counts_are_drawn_as_steps() -> None:
    """Goal: nothing is drawn between two counts. Method: the path has horizontal and vertical lines alone."""
    path = _steps([0, 0, 2, 2, 1], Scale(0, 500), 100, 2, 100)
    assert re.fullmatch(r"M[\d.]+ [\d.]+(H[\d.]+V[\d.]+){2}H1000", path)


def test_an_incident_and_its_line_of_the_story_are_linked() -> None:
    story = "## What happened\n\n- 12:00:01.000 offset 1234: broker 11 fenced\n- 12:00:02.000 offset 1234: x"
    table = "## Incidents\n\n| no | offset | what |\n| --- | --- | --- |\n| 3 | 1234 | lost |\n| 3 | 1300 | lost |"
    figures = ['<figure><a href="#incident-3">3</a><a href="#incident-9">9</a></figure>']
    made = page([HEAD, "## Summary\n\nOne partition had no leader.\n\n- more", table, story], figures)
    assert '<tr id="incident-3"><td>3</td><td><a href="#at-1234">1234</a></td>' in made
    assert (
        '<li id="at-1234">12:00:01.000 offset 1234: broker 11 fenced <a href="#incident-3">incident 3</a></li>'
        in made
    )
    assert "<tr><td>3</td><td>1300</td>" in made, "a line that is not told is no link"
    assert made.index("One partition had no leader.") < made.index("<figure>") < made.index("Offsets 0 to 9")
    assert '<figure><a href="#incident-3">3</a>9</figure>' in made, (
        "an incident that the table leaves out is no link"
    )
    assert made.count("One partition had no leader.") == 1


def test_numbers_of_incidents_do_not_cover_each_other() -> None:
    drawn = list(marks([Incident(1, 0), Incident(2, 1), Incident(3, 900)], Scale(0, 1_000), 50))
    assert ["<text" in each for each in drawn] == [True, False, True]
    assert [re.search(r'href="#incident-(\d)"', each)[1] for each in drawn] == ["1", "2", "3"]  # type: ignore[index]


def test_many_lanes_are_panels_that_a_printer_keeps_whole() -> None:
    names = [f"broker {place}" for place in range(45)]
    assert len(lanes(names, [[] for _ in names], scale=Scale(0, 10), incidents=[])) == 3


@pytest.mark.slow
def test_the_most_harmed_partitions_come_first(tmp_path: Path) -> None:
    history = [*history_of(31, 120)]
    export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    log = replay.open(tmp_path)
    _, partitions, *_ = charts(log)
    names = re.findall(r'<text x="0" y="\d+">([^<]+:\d+)</text>', partitions)
    worst = log.sql("""
        SELECT topic_name || ':' || partition FROM leaderless_spells GROUP BY topic_name, partition, pkey
        QUALIFY rank() OVER (ORDER BY sum(duration_ms) DESC) = 1
    """).fetchall()
    first = names[0].lstrip("\N{HORIZONTAL ELLIPSIS}")
    assert any(name.endswith(first) for (name,) in worst), "of those that were without a leader for longest"
