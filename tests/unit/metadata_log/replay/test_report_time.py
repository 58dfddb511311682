"""What the report says of time that nobody knows, of clocks that step, and of stops."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from metadata_log import replay
from metadata_log.batch import NO_ENVELOPE, Cause, Envelope
from metadata_log.ids import NO_LEADER, BrokerId, NodeId, TopicId, random_uuid
from metadata_log.image.metadata_image import EMPTY
from metadata_log.records.brokers import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from metadata_log.records.configs import TOPIC, ConfigRecord
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.quorum import WRITE_NO_OP, ControllerClaimRecord, NoOpRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import TopicRecord
from metadata_log.replay.export import export_log
from metadata_log.replay.report import report_of
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, Step, step_of

pytestmark = pytest.mark.slow

NOON_MS = 1_767_268_800_000
DAY_MS = 86_400_000
ORDERS = TopicId(random_uuid(random.Random(1)))
B11, B12 = BrokerId(11), BrokerId(12)
Story = Sequence[tuple[int, Envelope, list[Record]]]


def caused(code: str, broker_id: BrokerId) -> Envelope:
    return Envelope(cause=Cause(code, None, {"broker_id": broker_id}))


def registration(broker_id: BrokerId, epoch: int, process: int = 0) -> RegisterBrokerRecord:
    incarnation = random_uuid(random.Random(1_000 * broker_id + process))
    return RegisterBrokerRecord(broker_id, incarnation, epoch, (), (), None, True, False, (), None)


def claim(epoch: int, controller_id: int = 1) -> list[Record]:
    return [ControllerClaimRecord(NodeId(controller_id), epoch, CLUSTER_ID)]


def fenced(broker_id: BrokerId, epoch: int, *, is_fenced: bool = True) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id, epoch, fenced=is_fenced)


def change(**fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(ORDERS, 0, **fields)


BEGUN: Story = (
    (0, NO_ENVELOPE, claim(1)),
    (100, caused("BROKER_REGISTERED", B11), [registration(B11, 1)]),
    (200, caused("BROKER_UNFENCED", B11), [fenced(B11, 1, is_fenced=False)]),
    (
        1_000,
        Envelope("User:admin", operation="CreateTopics"),
        [
            TopicRecord(ORDERS, "orders"),
            PartitionRecord(
                ORDERS, 0, (B11,), (B11,), B11, 0, 0, 0, (), (), (), (), (random_uuid(random.Random(2)),)
            ),
            ConfigRecord(TOPIC, "orders", "min.insync.replicas", "1"),
        ],
    ),
)
NO_OP: list[Record] = [NoOpRecord()]
LOST: list[Record] = [change(leader=NO_LEADER), fenced(B11, 1)]
BACK: list[Record] = [fenced(B11, 1, is_fenced=False), change(leader=B11)]


def opened(story: Story, to: Path, **manifest: Any) -> replay.Log:
    steps: list[Step] = []
    image = EMPTY
    for after_ms, envelope, records in story:
        steps.append(step_of(image, records, appended_at_ms=NOON_MS + after_ms, envelope=envelope))
        image = steps[-1].image
    export_log(frames_of(steps), to, cluster_id=CLUSTER_ID, **manifest)
    return replay.open(to)


def rows(log: replay.Log, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = log.sql(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
    return found


def test_hours_in_which_nothing_ran_are_unknown(tmp_path: Path) -> None:
    """A cluster that was dead for six hours served for the rest, whatever its brokers were when it died."""
    hours_ms = 6 * 3_600_000
    log = opened(
        [*BEGUN, (hours_ms, NO_ENVELOPE, claim(2, 2)), (hours_ms + 4_000, NO_ENVELOPE, NO_OP)],
        tmp_path,
    )
    columns = ("known_ms", "unknown_ms", "serving_ms", "availability_percent")
    assert rows(log, "broker_availability", *columns) == [(4_900, hours_ms - 1_000, 4_800, 97.9592)]
    told = report_of(log)
    assert "for 5 h 59 min the log proves nothing" in told.split("## Summary")[1].splitlines()[2]
    assert "- Unknown for 5 h 59 min, known for 5.0 s" in told
    assert "- Broker 11 served 97.96% of the known time, 4.9 s; 5 h 59 min are unknown" in told
    assert json.loads(report_of(log, "json"))["time"]["unknown_ms"] == hours_ms - 1_000


def test_a_quiet_night_is_known(tmp_path: Path) -> None:
    """Marks of a quiet controller, and the claim that they bear, prove that it was there."""
    mark = Envelope("Controller:1", operation=WRITE_NO_OP)
    log = opened([*BEGUN, *((at, mark, NO_OP) for at in range(31_000, 3_600_000, 32_000))], tmp_path)
    assert rows(log, "broker_availability", "unknown_ms", "availability_percent")[0][0] == 0
    assert "nknown for" not in report_of(log)


@pytest.mark.parametrize("ahead_ms", [-DAY_MS, DAY_MS])
def test_a_clock_that_steps_makes_no_outage_and_no_service(ahead_ms: int, tmp_path: Path) -> None:
    """A controller whose clock is a day off leads for four seconds, while a broker is away."""
    story: Story = [
        *BEGUN,
        (2_000, caused("SESSION_EXPIRED", B11), LOST),
        (5_000 + ahead_ms, NO_ENVELOPE, claim(2, 2)),
        (9_000 + ahead_ms, caused("BROKER_UNFENCED", B11), BACK),
        (10_000, NO_ENVELOPE, claim(3, 1)),
        (11_000, NO_ENVELOPE, NO_OP),
    ]
    log = opened(story, tmp_path)
    (served,) = rows(log, "broker_availability", "known_ms", "serving_ms", "outages", "clock_stepped")
    assert served[0] < 12_000 and served[0] - served[1] >= 4_000 and served[2:] == (1, True)
    ((leaderless_ms, unknown_ms, stepped),) = rows(
        log, "leaderless_spells", "duration_ms", "unknown_ms", "clock_stepped"
    )
    assert 4_000 <= leaderless_ms <= 7_000 and unknown_ms < 12_000 and stepped
    told = report_of(log)
    assert "**Clocks stepped back 1 time**, by 23 h 59 min at most" in told
    first_sentence, without_leader = (
        told.split("## Summary")[1].splitlines()[2],
        told.split("## Time without a leader")[1],
    )
    assert "A clock stepped meanwhile: it may have been more or less." in first_sentence
    assert " (a clock stepped) |" in without_leader.split("##")[0] and "partition time" in told
    assert rows(log, "unavailability", "clock_stepped") == [(True,)]
    (spells,) = [line for line in told.splitlines() if line.startswith("- Partitions without a leader: ")]
    assert spells.endswith(" (a clock stepped)")
    assert "1 d 0 h of" not in told and "100.00" not in told
    assert json.loads(report_of(log, "json"))["time"]["clock_steps_back"]["times"] == 1
    gaps = [gap for (gap,) in rows(log, "incidents", "write_gap_at_most_ms") if gap is not None]
    assert max(gaps, default=0) < DAY_MS


def test_what_is_open_at_the_end_is_open_up_to_the_end_of_the_part(tmp_path: Path) -> None:
    """A part between two times within an outage holds that outage, though nothing was written in it."""
    mark = Envelope("Controller:1", operation=WRITE_NO_OP)
    story: Story = [
        *BEGUN,
        (2_000, caused("SESSION_EXPIRED", B11), LOST),
        (32_000, mark, NO_OP),
        (62_000, mark, NO_OP),
    ]
    log = opened(story, tmp_path)
    part = log.between("2026-01-01T12:00:10Z", "2026-01-01T12:00:25Z")
    assert rows(part, "leaderless_spells", "duration_ms", "unknown_ms", "lasting") == [(15_000, 0, True)]
    assert rows(part, "incidents", "trigger", "partition_ms", "to_ts") == [("before", 15_000, None)]
    assert rows(part, "broker_availability", "availability_percent", "longest_outage_ms") == [(0.0, 15_000)]
    assert "15.0 s of partition time" in report_of(part).split("## Summary")[1].split("\n\n")[1]
    assert report_of(part, "html").startswith("<!doctype html>") and json.loads(report_of(part, "json"))


def test_the_first_sentence_names_what_is_known_and_what_it_may_have_been(tmp_path: Path) -> None:
    """Goal: an outage that reaches through a silence is not told as its known part alone, nor ranked by it.

    Method: four seconds without a leader, hours of silence within them; and a whole known outage of eight seconds.
    """
    hours_ms = 6 * 3_600_000
    lost, back = caused("SESSION_EXPIRED", B11), caused("BROKER_UNFENCED", B11)
    story: Story = [
        *BEGUN,
        (2_000, lost, LOST),
        (10_000, back, BACK),
        (11_000, lost, LOST),
        (13_000, NO_ENVELOPE, NO_OP),
        (13_000 + hours_ms, NO_ENVELOPE, claim(2, 2)),
        (15_000 + hours_ms, back, BACK),
    ]
    told = report_of(opened(story, tmp_path))
    assert told.split("## Summary")[1].splitlines()[2] == (
        "- **Partitions were without a leader 2 times, for 12.0 s to 6 h 0 min of partition time: `orders` for 12.0 s to "
        "6 h 0 min. But for 6 h 0 min the log proves nothing.**"
    )
    first, second = [line for line in told.splitlines() if "| broker 11 lost |" in line]
    assert ("4.0 s and 6 h 0 min unknown" in first, "| 8.0 s |" in second) == (True, True)


def test_an_export_counts_up_to_when_it_was_observed(tmp_path: Path) -> None:
    story: Story = [*BEGUN, (2_000, caused("SESSION_EXPIRED", B11), LOST)]
    log = opened(story, tmp_path, observed_until_ms=NOON_MS + 44_000)
    assert rows(log, "leaderless_spells", "duration_ms", "unknown_ms") == [(42_000, 0)]
    assert rows(log, "fencings", "duration_ms") == [(42_000,)]
    assert log.between("2026-01-01T12:00:03Z", "2026-01-01T12:00:40Z").last.end_offset == log.last.end_offset
    again = opened(story, tmp_path, observed_until_ms=NOON_MS + 50_000)
    assert rows(again, "leaderless_spells", "duration_ms") == [(48_000,)]


def test_a_stop_that_takes_leaders_is_an_incident_and_another_is_none(tmp_path: Path) -> None:
    stop = caused("SHUTDOWN_GRANTED", B11)
    log = opened([*BEGUN, (2_000, stop, LOST), (5_000, caused("BROKER_UNFENCED", B11), BACK)], tmp_path / "a")
    assert rows(log, "incidents", "trigger", "verdict", "left_leaderless", "partition_ms") == [
        ("broker", "stopped", 1, 3_000)
    ]
    assert "0 losses of brokers, 1 stop of a broker that left partitions without a leader" in report_of(log)
    calm = opened([*BEGUN[:3], (2_000, stop, [fenced(B11, 1)])], tmp_path / "b")
    assert rows(calm, "incidents", "trigger") == []
    assert rows(calm, "fencings", "verdict") == [("stopped",)]


def test_a_fencing_that_nothing_explains_is_a_stop_or_a_loss(tmp_path: Path) -> None:
    silent = caused("STOPPED_OR_SILENT", B11)
    registered = Envelope(cause=Cause("BROKER_REGISTERED", None, {"broker_id": 11, "clean": False}))
    story: Story = [
        *BEGUN[:3],
        (2_000, silent, [fenced(B11, 1)]),
        (
            7_000,
            registered,
            [registration(B11, 4, 1)],
        ),
    ]
    log = opened(story, tmp_path)
    assert rows(log, "fencings", "verdict") == [("stopped or lost",)]
    told = report_of(log)
    assert "0 losses of brokers, 1 stop or loss, the log does not tell which" in told
    assert "broker 11 fenced (stopped, or silent)" in told
    assert "broker 11 registered again\n" in told


def test_topics_that_refused_writes_are_named_with_the_cause(tmp_path: Path) -> None:
    partition = PartitionRecord(
        ORDERS,
        0,
        (B11, B12),
        (B11, B12),
        B11,
        0,
        0,
        0,
        (),
        (),
        (),
        (),
        tuple(random_uuid(random.Random(n)) for n in (3, 4)),
    )
    story: Story = [
        *BEGUN[:3],
        (300, caused("BROKER_REGISTERED", B12), [registration(B12, 3)]),
        (400, caused("BROKER_UNFENCED", B12), [fenced(B12, 3, is_fenced=False)]),
        (
            1_000,
            Envelope("User:admin", operation="CreateTopics"),
            [
                TopicRecord(ORDERS, "orders"),
                partition,
                ConfigRecord(TOPIC, "orders", "min.insync.replicas", "2"),
            ],
        ),
        (2_000, caused("SESSION_EXPIRED", B12), [change(isr=(B11,)), fenced(B12, 3)]),
        (5_000, caused("ISR_REPORTED", B11), [change(isr=(B11, B12))]),
    ]
    log = opened(story, tmp_path)
    told = report_of(log)
    first = told.split("## Summary\n\n")[1].splitlines()[0]
    assert first == (
        "- **Partitions were under min.insync.replicas 1 time, for 3.0 s of partition time: `orders` for 3.0 s.**"
    )
    listed = told.split("## Under min.insync.replicas")[1].split("\n\n")[1].splitlines()[2]
    assert listed.startswith(
        "| orders | session expired, broker 12 | 1 | 1 | 3.0 s |  | 2026-01-01 12:00:02.000 |"
    )
    (group,) = json.loads(report_of(log, "json"))["under_min_isr"]
    assert (group["topic_name"], group["broker_id"], group["total_ms"]) == ("orders", 12, 3_000)


def test_the_first_sentence_says_that_nothing_was_harmed(tmp_path: Path) -> None:
    first = report_of(opened(BEGUN, tmp_path)).split("## Summary\n\n")[1].splitlines()[0]
    assert (
        first
        == "- **Every partition had a leader and as many replicas in sync as writes with acks=all need.**"
    )


def test_a_start_of_all_controllers_is_no_crash(tmp_path: Path) -> None:
    def process(controller_id: int, number: int) -> list[Record]:
        incarnation = random_uuid(random.Random(100 * controller_id + number))
        return [RegisterControllerRecord(NodeId(controller_id), incarnation, 0, False, (), ())]

    begun: Story = (
        (0, NO_ENVELOPE, claim(1)),
        (10, NO_ENVELOPE, process(1, 1)),
        (20, NO_ENVELOPE, process(2, 1)),
    )
    both = [
        (60_000, NO_ENVELOPE, claim(2, 2)),
        (60_100, NO_ENVELOPE, process(1, 2)),
        (60_200, NO_ENVELOPE, process(2, 2)),
    ]
    one = [
        (60_000, NO_ENVELOPE, claim(2, 2)),
        (60_100, NO_ENVELOPE, process(1, 2)),
        (60_200, NO_ENVELOPE, process(2, 1)),
    ]
    handed: Story = [(100, NO_ENVELOPE, claim(2, 2)), (60_100, NO_ENVELOPE, process(1, 2))]
    idle: Story = [
        (60_000, Envelope(cause=Cause("CONTROLLER_CLAIMED", None, {"handed_over": True})), claim(2, 2)),
        (70_100, NO_ENVELOPE, process(1, 2)),
    ]
    stories = (
        (both, "restart"),
        (one, "crash"),
        (handed, "stopped"),
        (idle, "stopped"),
        (idle[:1], "handover"),
        ([(60_000, NO_ENVELOPE, claim(2, 2))], "unknown"),
    )
    for place, (later, kind) in enumerate(stories):
        log = opened([*begun, *later], tmp_path / str(place))
        assert rows(log, "controller_takeovers", "kind") == [("founded",), (kind,)]
