"""Who asked for a record of Kafka's log, and how a broker's service ended, as far as its log tells."""

import struct
from pathlib import Path

import pytest

from metadata_log import replay
from metadata_log.replay.report import report_of
from tests.support import kafka_log as by_hand

pytestmark = pytest.mark.slow

TOPIC = bytes(15) + b"\x07"
FOUNDED = by_hand.batch(0, [by_hand.leader_change(1, [1])], control=2)
VERSION = by_hand.feature("metadata.version", 27)
MIN_ISR = by_hand.config(4, "", "min.insync.replicas", "1")
NO_OP = by_hand.value(20, 0, b"")


def begin(name: str) -> bytes:
    return by_hand.value(23, 0, b"", {0: by_hand.string(name)})


END = by_hand.value(24, 0, b"")


def opened(tmp_path: Path, *batches: bytes) -> replay.Log:
    return replay.open(by_hand.written(tmp_path, list(batches)))


@pytest.mark.parametrize(
    "founding",
    [
        [begin("Bootstrap records"), VERSION, MIN_ISR, END],
        [VERSION, MIN_ISR],
    ],
)
def test_nobody_asked_for_what_a_cluster_begins_with(founding: list[bytes], tmp_path: Path) -> None:
    """A transaction of that name, or the first batch of an empty log; what comes later was asked for."""
    end = 1 + len(founding)
    log = opened(
        tmp_path,
        FOUNDED,
        by_hand.batch(1, founding),
        by_hand.batch(end, [by_hand.config(4, "", "log.retention.ms", "5")]),
        by_hand.batch(end + 1, [by_hand.feature("metadata.version", 28)]),
    )
    operations = log.sql(
        "SELECT actor, operation, count(*) FROM records WHERE type IN (4, 12) GROUP BY ALL ORDER BY ALL"
    )
    assert operations.fetchall() == [
        ("Controller:1", "completeActivation", 2),
        (None, "IncrementalAlterConfigs", 1),
        (None, "UpdateFeatures", 1),
    ]
    asked = report_of(log).split("Asked for by people and programs: ")[1].splitlines()[0]
    assert asked == "somebody IncrementalAlterConfigs 1 time, somebody UpdateFeatures 1 time"


def test_a_log_that_begins_without_features_was_asked_for_its_settings(tmp_path: Path) -> None:
    log = opened(tmp_path, FOUNDED, by_hand.batch(1, [MIN_ISR]))
    assert log.sql("SELECT operation FROM config_changes").fetchall() == [("IncrementalAlterConfigs",)]


def test_settings_beside_eligible_leader_replicas_are_the_features(tmp_path: Path) -> None:
    """Kafka writes min.insync.replicas when that feature is finalized, whatever was asked for."""
    both = [by_hand.feature("eligible.leader.replicas.version", 1), MIN_ISR]
    log = opened(tmp_path, FOUNDED, by_hand.batch(1, [VERSION]), by_hand.batch(2, both))
    assert log.sql("SELECT log_offset, operation FROM actions WHERE actor IS NULL").fetchall() == [
        (2, "UpdateFeatures")
    ]


SERVING = [
    by_hand.batch(1, [VERSION], after_ms=100),
    by_hand.batch(2, [by_hand.broker(1, 2), by_hand.broker(11, 3)], after_ms=200),
    by_hand.batch(
        4,
        [by_hand.broker_change(1, 2, {0: b"\xff"}), by_hand.broker_change(11, 3, {0: b"\xff"})],
        after_ms=300,
    ),
    by_hand.batch(6, [by_hand.topic("t", TOPIC), by_hand.partition(TOPIC, 0, [1, 11])], after_ms=400),
]
SHRINKS = by_hand.partition_change(TOPIC, 0, {0: by_hand.ints([1])})


def fencing(broker_id: int, epoch: int) -> bytes:
    return by_hand.broker_change(broker_id, epoch, {0: b"\x01"})


def quiet(base: int, after_ms: int) -> bytes:
    return by_hand.batch(base, [NO_OP], after_ms=after_ms)


@pytest.mark.parametrize("beside", [[], [SHRINKS]])
def test_a_broker_that_led_nothing_stopped_or_fell_silent(beside: list[bytes], tmp_path: Path) -> None:
    """Kafka gives a broker that asks to stop and leads nothing its leave at once, and takes it out of ISRs."""
    gone = by_hand.batch(8, [*beside, fencing(11, 3)], after_ms=1_000)
    log = opened(tmp_path, FOUNDED, *SERVING, gone, quiet(9 + len(beside), 6_000))
    assert log.sql("SELECT broker_id, cause_code, verdict FROM fencings").fetchall() == [
        (11, "STOPPED_OR_SILENT", "stopped or lost")
    ]
    assert log.sql(
        "SELECT state FROM broker_state_intervals WHERE broker_id = 11 AND lasting"
    ).fetchall() == [("OFFLINE",)]
    assert log.sql("SELECT verdict FROM incidents").fetchall() == [("stopped or lost",)]
    told = report_of(log)
    assert "broker 11 fenced (stopped, or silent)" in told and "()" not in told


def test_a_broker_that_lost_leaders_fell_silent(tmp_path: Path) -> None:
    lost = by_hand.partition_change(TOPIC, 0, {1: struct.pack(">i", 11), 0: by_hand.ints([11])})
    log = opened(
        tmp_path, FOUNDED, *SERVING, by_hand.batch(8, [lost, fencing(1, 2)], after_ms=1_000), quiet(10, 6_000)
    )
    assert log.sql("SELECT broker_id, cause_code FROM fencings").fetchall() == [(1, "SESSION_EXPIRED")]


@pytest.mark.parametrize(("until_ms", "verdict"), [(1_400, "stopped"), (4_000, "stopped or lost")])
def test_a_node_that_ends_with_its_controller_stopped(until_ms: int, verdict: str, tmp_path: Path) -> None:
    """The controller of the same process writes its broker's fencing, and then nothing more."""
    gone = by_hand.batch(8, [fencing(1, 2)], after_ms=1_000)
    again = by_hand.batch(10, [by_hand.leader_change(1, [1])], control=2, epoch=2, after_ms=90_000)
    log = opened(tmp_path, FOUNDED, *SERVING, gone, quiet(9, until_ms), again)
    assert log.sql("SELECT verdict FROM fencings").fetchall() == [(verdict,)]
    told = "1 stop or loss" if verdict != "stopped" else "0 losses of brokers, 1 takeover"
    assert told in report_of(log)
    assert log.sql("SELECT sum(unknown_ms) > 0 FROM broker_availability").fetchall() == [(True,)]


def test_a_silence_within_one_claim_is_unknown_too(tmp_path: Path) -> None:
    """A machine that slept goes on with its claim; a session that expires when it wakes is the silence's work."""
    lost = by_hand.partition_change(TOPIC, 0, {1: struct.pack(">i", 11), 0: by_hand.ints([11])})
    hour_ms = 3_600_000
    log = opened(
        tmp_path,
        FOUNDED,
        *SERVING,
        quiet(8, 1_000),
        quiet(9, hour_ms),
        by_hand.batch(10, [lost, fencing(1, 2)], after_ms=hour_ms + 7_000),
        quiet(12, hour_ms + 8_000),
    )
    assert log.sql("SELECT verdict FROM fencings").fetchall() == [("controller",)]
    known, unknown = log.sql(
        "SELECT known_ms, unknown_ms FROM broker_availability WHERE broker_id = 1"
    ).fetchall()[0]
    # Nothing was seen of the broker in the session that it got when its controller woke.
    assert (known, unknown) == (800 + 1_000, hour_ms - 1_000 + 7_000)
    assert log.sql("SELECT unknown_ms FROM broker_availability WHERE broker_id = 11").fetchall() == [
        (hour_ms - 1_000,)
    ]
