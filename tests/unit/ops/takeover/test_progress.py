"""Edge: how far a log is read is told every few seconds, and what is read meanwhile is not."""

import random
from pathlib import Path

from ops.takeover.kafka_state import kafka_state
from ops.takeover.progress import EVERY_S, Progress
from tests.support.kafka_log import unpacked


def test_a_line_comes_with_each_interval() -> None:
    said, now_s = list[str](), 100.0
    progress = Progress(said.append, now_s=lambda: now_s)
    for passed_s, done in ((0.0, 1), (EVERY_S - 1, 10), (1.0, 25), (EVERY_S - 1, 30), (1.0, 99)):
        now_s += passed_s
        progress(Path("k1"), "checked", done, 200)
    assert said == ["k1: 12 % of the log is checked ...", "k1: 49 % of the log is checked ..."]


def test_an_empty_log_has_no_part() -> None:
    said, now_s = list[str](), 0.0
    progress = Progress(said.append, now_s=lambda: now_s)
    now_s = EVERY_S
    progress(Path("k1"), "applied", 0, 0)
    assert said == ["k1: 0 % of the log is applied ..."]


def test_every_log_is_checked_and_one_is_applied(tmp_path: Path) -> None:
    recorded = unpacked(tmp_path)
    directories = [recorded / "controller-1", recorded / "controller-3"]
    told = list[tuple[Path, str, int, int]]()
    found = kafka_state(directories, rng=random.Random(1), progress=lambda *each: told.append(each))
    for directory, what in (
        (directories[0], "checked"),
        (directories[1], "checked"),
        (found.of.path, "applied"),
    ):
        done = [each[2] for each in told if each[:2] == (directory, what)]
        assert done == sorted(done) and len(done) > 1, (directory, what)
        assert all(each[2] <= each[3] for each in told)
    assert {each[:2] for each in told if each[1] == "applied"} == {(found.of.path, "applied")}
    assert told[-1][2] == told[-1][3] == found.of.end.end_offset
