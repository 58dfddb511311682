"""Each analysis beside plain Python that walks the same history (tests/support/plain_analyses.py)."""

import re
import string
from collections import Counter
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from metadata_log import replay
from metadata_log.ids import NO_LEADER, NodeId, Uuid
from metadata_log.image.metadata_image import EMPTY
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.quorum import ControllerClaimRecord, VotersRecord
from metadata_log.records.registry import Record, type_name
from metadata_log.replay import analyses
from metadata_log.replay.analyses import spark_steps, spark_text
from metadata_log.replay.catalog import needs
from metadata_log.replay.export import export_log
from tests.schema_page import PAGE, questions, written
from tests.support import plain_analyses as plain
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, Step, claim, history_of, step_of
from tests.support.plain_clock import gaps

SEEDS = [pytest.param(seed, marks=pytest.mark.slow) for seed in (21, 22)]


@pytest.fixture(scope="module", params=SEEDS)
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Step], replay.Log]:
    history = [*history_of(request.param, 220)]
    to = tmp_path_factory.mktemp("export")
    export_log(frames_of(history), to, cluster_id=CLUSTER_ID)
    return history, replay.open(to)


def rows(log: replay.Log, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = log.table(name).to_arrow_table().to_pylist()
    return found


def spells_of(log: replay.Log, name: str) -> Counter[plain.Spell]:
    return Counter(plain.Spell(*(row[field] for field in plain.Spell._fields)) for row in rows(log, name))


def test_spells_under_replicated(told: tuple[list[Step], replay.Log]) -> None:
    history, log = told
    assert spells_of(log, "under_replicated_spells") == Counter(plain.spells(history, plain.under_replicated))
    assert spells_of(log, "not_preferred_spells") == Counter(plain.spells(history, plain.not_preferred))


def test_spells_under_min_isr(told: tuple[list[Step], replay.Log]) -> None:
    """Goal: settings of topics and of the cluster change under living, deleted and restored topics."""
    history, log = told
    assert spells_of(log, "under_min_isr_spells") == Counter(plain.spells(history, plain.under_min_isr))


def test_spells_without_a_leader(told: tuple[list[Step], replay.Log]) -> None:
    history, log = told
    wanted = plain.spells(history, lambda _moment, _topic, image: image.leader == NO_LEADER)
    # A leader that is elected and lost in one batch, or again and again nobody, is an interval of its own in the log.
    assert {(s.topic_name, s.partition) for s in wanted} == {
        (s.topic_name, s.partition) for s in spells_of(log, "leaderless_spells")
    }
    assert sum(s.duration_ms for s in wanted) == sum(
        s.duration_ms for s in spells_of(log, "leaderless_spells")
    )


def test_leaderships_that_moved(told: tuple[list[Step], replay.Log]) -> None:
    history, log = told
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows(log, "leader_moves"):
        key = (row["batch_base"], row["cause_code"], row["prev_leader"], row["leader"])
        found[key] += row["partition_count"]
    assert found == plain.leader_moves(history)


def test_churn_by_topic_and_cause(told: tuple[list[Step], replay.Log]) -> None:
    history, log = told
    found: dict[tuple[str, str], list[int]] = {}
    for row in rows(log, "topic_churn"):
        counts = [row[name] for name in ("leader_changes", "losses", "isr_shrinks", "isr_expands")]
        # Topics that had one name after each other are rows of their own.
        before = found.get((row["topic_name"], row["cause_code"]), [0] * 4)
        found[row["topic_name"], row["cause_code"]] = [a + b for a, b in zip(before, counts, strict=True)]
    assert found == plain.topic_churn(history)


def test_time_without_a_leader_by_topic(told: tuple[list[Step], replay.Log]) -> None:
    history, log = told
    wanted, found = Counter[str](), Counter[str]()
    for spell in plain.spells(history, lambda _moment, _topic, image: image.leader == NO_LEADER):
        wanted[spell.topic_name] += spell.duration_ms
    for row in rows(log, "unavailability"):
        found[row["topic_name"]] += row["total_ms"]
    assert found == wanted


def test_history_names_who_asked_for_each_change(told: tuple[list[Step], replay.Log]) -> None:
    """Partitions and brokers included: what a user asked for has the user, what a controller decided has its node."""
    history, log = told
    found = [(row["key"].partition(":")[0], row["log_offset"], row["actor"]) for row in rows(log, "history")]
    actors = {
        offset: step.batch.envelope.actor
        for step in history
        for offset in range(step.batch.base_offset, step.batch.end_offset)
    }
    assert {kind for kind, _, _ in found} >= {"topic", "broker"}
    assert [(offset, actor) for _, offset, actor in found if actor != actors[offset]] == []
    assert {actor for _, _, actor in found} > {None}


@pytest.mark.parametrize(
    ("table", "types"),
    [
        ("topic_events", {"Topic", "RemoveTopic", "TopicTombstone", "TopicRestore"}),
        ("cluster_events", {"FeatureLevel", "ProducerIds"}),
    ],
)
def test_events_are_the_records_of_their_types(
    told: tuple[list[Step], replay.Log], table: str, types: set[str]
) -> None:
    history, log = told
    wanted = [
        (offset, type_name(record), step.batch.envelope.actor, step.batch.envelope.operation)
        for step in history
        for offset, record in enumerate(step.batch.records, step.batch.base_offset)
        if type_name(record) in types
    ]
    fields = ("log_offset", "type_name", "actor", "operation")
    assert [tuple(row[field] for field in fields) for row in rows(log, table)] == wanted


def test_who_left_and_joined_isrs(told: tuple[list[Step], replay.Log]) -> None:
    history, log = told
    found = [
        (row["log_offset"], row["topic_name"], row["partition"], row["brokers_out"], row["brokers_in"])
        for row in rows(log, "isr_events")
    ]
    assert sorted(found) == sorted(plain.isr_events(history))
    assert all(
        row["kind"] == ("shrink" if row["size_after"] < row["size_before"] else "expand")
        for row in rows(log, "isr_events")
        if row["size_after"] != row["size_before"]
    )


def test_churn_is_the_changes_of_each_hour(told: tuple[list[Step], replay.Log]) -> None:
    _, log = told
    shrinks: Counter[datetime] = Counter()
    for row in rows(log, "isr_events"):
        hour = row["ts"].replace(minute=0, second=0, microsecond=0)
        shrinks[hour] += row["size_after"] < row["size_before"]
    churn = rows(log, "churn")
    found: Counter[datetime] = Counter()
    for row in churn:
        found[row["hour"]] += row["isr_shrinks"]
    assert +found == +shrinks
    flaps = [
        spell
        for spell in rows(log, "under_replicated_spells")
        if not spell["lasting"] and (spell["to_ts"] - spell["from_ts"]).total_seconds() <= 300
    ]
    assert sum(row["flaps"] for row in churn) == len(flaps)


def test_availability_adds_up(told: tuple[list[Step], replay.Log]) -> None:
    _, log = told
    intervals = rows(log, "broker_state_intervals")
    for row in rows(log, "broker_availability"):
        mine = [each for each in intervals if each["broker_id"] == row["broker_id"]]
        serving = sum(each["duration_ms"] for each in mine if each["state"] in {"ONLINE", "STOPPING"})
        removed = sum(
            each["duration_ms"]
            for each in mine
            if each["state"] == "OFFLINE" and each["cause_code"] == "BROKER_UNREGISTERED"
        )
        known = sum(each["duration_ms"] for each in mine) - removed
        assert (row["serving_ms"], row["known_ms"]) == (serving, known)
        assert row["processes"] == len({each["incarnation_id"] for each in mine} - {None})
        assert row["state"] == max(mine, key=lambda each: each["from_offset"])["state"]
        if known:
            assert row["availability_percent"] == round(100 * serving / known, 4)
        longest = current = outages = 0
        served = False
        for each in sorted(mine, key=lambda each: each["from_offset"]):
            if each["state"] in {"ONLINE", "STOPPING"}:
                served, current = True, -1
            elif served and not (each["state"] == "OFFLINE" and each["cause_code"] == "BROKER_UNREGISTERED"):
                outages += current == -1
                current = max(current, 0) + each["duration_ms"]
                longest = max(longest, current)
        assert (row["outages"], row["longest_outage_ms"]) == (outages, longest)


def test_takeovers_are_the_claims(told: tuple[list[Step], replay.Log]) -> None:
    history, log = told
    claims = [
        (at, step)
        for at, step in enumerate(history)
        if isinstance(step.batch.records[0], ControllerClaimRecord)
    ]
    wanted, passed = [], gaps(history)
    for place, (at, step) in enumerate(claims):
        before = passed[at]
        gap = None if at == 0 or before.is_step else before.known_ms + before.unknown_ms
        end = (
            claims[place + 1][1].batch.base_offset
            if place + 1 < len(claims)
            else history[-1].batch.end_offset
        )
        claim = step.batch.claim
        assert claim is not None
        wanted.append((claim.controller_id, step.batch.base_offset, gap, end - step.batch.base_offset))
    found = rows(log, "controller_takeovers")
    assert [
        (r["controller_id"], r["first_offset"], r["silent_ms"], r["record_count"]) for r in found
    ] == wanted
    kinds = {r["first_offset"]: r["kind"] for r in found}
    assert kinds == plain.takeover_kinds(history)


def _registered(controller_id: int, process: int) -> RegisterControllerRecord:
    return RegisterControllerRecord(NodeId(controller_id), Uuid(bytes([process]) * 16), 0, False, (), ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("later", "kinds"),
    [
        # (after seconds, who claims, or whose process registers)
        ((), ["unknown"]),
        (((9, 1, 12),), ["crash"]),
        (((9, 1, 11),), ["handover"]),
        (((602, 1, 12),), ["unknown"]),
        (((9, 1, None),), ["handover", "unknown"]),
        (((9, 1, None), (10, 1, 12)), ["crash", "unknown"]),
        (((9, 1, None), (10, 3, None), (20, 1, 12)), ["handover", "unknown", "crash"]),
        (((9, 3, None), (20, 3, 31)), ["unknown", "unknown"]),
    ],
)
def test_a_controller_that_stays_dead_handed_nothing_over(
    later: tuple[tuple[int, int, int | None], ...], kinds: list[str], tmp_path: Path
) -> None:
    """Goal: a takeover is a hand-over only if the former process lived on. Method: controller 2 takes over from 1."""
    history: list[Step] = []
    image = EMPTY
    for after_s, controller_id, process in ((0, 1, None), (0, 1, 11), (0, 2, 21), (1, 2, None), *later):
        record: Record = (
            claim(image, controller_id=controller_id)
            if process is None
            else _registered(controller_id, process)
        )
        history.append(step_of(image, [record], appended_at_ms=1_000 * (1_000 + after_s)))
        image = history[-1].image
    export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    found = {row["first_offset"]: row["kind"] for row in rows(replay.open(tmp_path), "controller_takeovers")}
    assert list(found.values()) == ["founded", *kinds]
    assert found == plain.takeover_kinds(history)


def test_voters_over_time(told: tuple[list[Step], replay.Log]) -> None:
    history, log = told
    wanted = [
        (offset, [voter.node_id for voter in record.voters])
        for step in history
        for offset, record in enumerate(step.batch.records, step.batch.base_offset)
        if isinstance(record, VotersRecord)
    ]
    found = rows(log, "voters_over_time")
    assert [(row["log_offset"], row["voter_ids"]) for row in found] == wanted
    before: set[int] = set()
    for row in found:
        now = set(row["voter_ids"])
        assert (set(row["added"]), set(row["removed"])) == (now - before, before - now)
        before = now


def test_the_balance_of_leaderships(told: tuple[list[Step], replay.Log]) -> None:
    history, log = told
    *_, last = plain.moments(history)
    images = list(last.partitions.values())
    for row in rows(log, "leadership_balance"):
        broker = row["broker_id"]
        preferred = [image for image in images if image.replicas[0] == broker]
        assert row["leaders"] == sum(image.leader == broker for image in images)
        assert row["preferred"] == len(preferred)
        assert row["replicas"] == sum(broker in image.replicas for image in images)
        assert row["in_sync"] == sum(broker in image.isr for image in images)
        astray = sum(image.leader != broker for image in preferred)
        assert row["imbalance_percent"] == (round(100 * astray / len(preferred), 2) if preferred else 0)


def test_the_logs_health(told: tuple[list[Step], replay.Log]) -> None:
    history, log = told
    found = rows(log, "log_health")
    assert sum(row["record_count"] for row in found) == history[-1].batch.end_offset
    assert sum(row["batch_count"] for row in found) == len(history)
    assert all(row["missing"] == 0 and not row["is_overlapped"] for row in found)
    steps = [a.batch.appended_at_ms - b.batch.appended_at_ms for a, b in pairwise(history)]
    assert sum(row["clock_steps_back"] for row in found) == sum(step > 0 for step in steps)
    assert max(row["largest_step_ms"] for row in found) == max(0, *steps)


def test_who_did_what(told: tuple[list[Step], replay.Log]) -> None:
    history, log = told
    wanted = [
        (
            step.batch.base_offset,
            step.batch.envelope.actor,
            step.batch.envelope.operation,
            len(step.batch.records),
        )
        for step in history
        if step.batch.envelope.actor is not None or step.batch.envelope.operation is not None
    ]
    found = rows(log, "actions")
    assert [(r["log_offset"], r["actor"], r["operation"], r["record_count"]) for r in found] == wanted


def test_a_part_has_the_spells_that_reach_into_it(told: tuple[list[Step], replay.Log]) -> None:
    """Goal: what began before counts from where the part begins. Method: spells of the whole log, cut to the part."""
    history, log = told
    end = history[-1].batch.end_offset
    part = log.between(end // 3, 2 * end // 3)
    first, last = part.first, part.last
    cut = Counter(
        (
            spell.topic_name,
            spell.partition,
            None if spell.to_offset is None or spell.to_offset >= last.end_offset else spell.to_offset,
        )
        for spell in plain.spells(history, plain.under_min_isr)
        if spell.from_offset < last.end_offset
        and (spell.to_offset is None or spell.to_offset >= first.end_offset)
    )
    found = rows(part, "under_min_isr_spells")
    assert Counter((row["topic_name"], row["partition"], row["to_offset"]) for row in found) == cut
    assert all(row["duration_ms"] >= 0 for row in found)


def test_a_takeover_in_a_part_names_the_controller_before(told: tuple[list[Step], replay.Log]) -> None:
    """Goal: the record before a claim names the former controller, if no claim of the part does."""
    history, log = told
    claims = rows(log, "controller_takeovers")
    assert len(claims) > 2
    second = claims[1]["first_offset"]
    before = next(step.batch for step in history if step.batch.end_offset == second)
    (found, *_) = rows(log.between(before.base_offset), "controller_takeovers")
    if before.claim is None:
        assert (found["first_offset"], found["former_id"]) == (second, claims[0]["controller_id"])


def test_the_page_of_tables_is_what_the_code_says() -> None:
    """Write it anew with `python -m tests.schema_page`."""
    assert PAGE.read_text() == written(PAGE.read_text())


@pytest.mark.parametrize("told", SEEDS[:1], indirect=True)
@pytest.mark.parametrize(("question", "query"), questions(PAGE.read_text()))
def test_the_ten_questions_have_answers(
    question: str, query: str, told: tuple[list[Step], replay.Log]
) -> None:
    _, log = told
    assert log.sql(query).to_arrow_table().num_rows >= 0
    assert len(questions(PAGE.read_text())) == 10


@pytest.mark.parametrize("name", sorted(path.stem for path in Path(analyses.__file__).parent.glob("*.sql")))
def test_spark_keeps_what_is_marked_and_named_more_than_once(name: str) -> None:
    """Tests of Spark (tests/spark/test_replay.py) compare the answers."""
    text, steps = spark_text(name), spark_steps(name)
    assert text.count("-- kept") == len(steps.kept)
    known = set(needs(name))
    for kept, query in steps.kept:
        assert len(re.findall(rf"(?:FROM|JOIN) {kept}\b", text)) > 1, (
            f"{kept} is named once: nothing is gained"
        )
        assert fields(query) <= known
        known.add(kept)
    assert fields(steps.query) <= known
    assert steps.kept or steps.query == text


def fields(text: str) -> set[str]:
    return {field for _, field, _, _ in string.Formatter().parse(text) if field}
