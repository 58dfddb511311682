"""The report shows the death of a broker as its operator saw it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from metadata_log import replay
from metadata_log.batch import NO_ENVELOPE, Cause, Envelope
from metadata_log.ids import NO_LEADER, BrokerId, NodeId, TopicId, Uuid
from metadata_log.image.metadata_image import EMPTY
from metadata_log.records.brokers import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FeatureRange,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, TOPIC, ConfigRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.quorum import ControllerClaimRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord
from metadata_log.replay.engines import DuckDb, rows
from metadata_log.replay.export import export_log
from metadata_log.replay.library import Log
from metadata_log.replay.page.drawn import NAME_CHARS
from metadata_log.replay.report import report, report_of
from metadata_log.replay.tables import Export, open_export
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, Step, step_of

pytestmark = pytest.mark.slow

NOON_MS = 1_767_268_800_000
"""2026-01-01 12:00:00 UTC."""
ORDERS = TopicId(b"orders orders or")
B11, B12 = BrokerId(11), BrokerId(12)


def _registration(broker_id: BrokerId, offset: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id,
        Uuid(bytes([broker_id, offset]) * 8),
        offset,
        (BrokerEndpoint("PLAINTEXT", "localhost", 9092, 0),),
        (FeatureRange("metadata.version", 25, 30),),
        None,
        True,
        False,
        (Uuid(bytes([broker_id]) * 16),),
        None,
    )


def _partition(partition_id: int, leader: BrokerId) -> PartitionRecord:
    replicas = (leader, B12 if leader == B11 else B11)
    directories = tuple(Uuid(bytes([replica]) * 16) for replica in replicas)
    return PartitionRecord(
        ORDERS, partition_id, replicas, replicas, leader, 0, 0, 0, (), (), (), (), directories
    )


def _caused(code: str, broker_id: BrokerId, **detail: object) -> Envelope:
    return Envelope(cause=Cause(code, None, {"broker_id": broker_id, **detail}))


STORY: Sequence[tuple[int, Envelope, list[Record]]] = (
    (0, NO_ENVELOPE, [ControllerClaimRecord(NodeId(1), 1, CLUSTER_ID)]),
    (1_000, _caused("BROKER_REGISTERED", B11, clean=False), [_registration(B11, 1)]),
    (1_200, _caused("BROKER_UNFENCED", B11), [BrokerRegistrationChangeRecord(B11, 1, fenced=False)]),
    (1_300, _caused("BROKER_REGISTERED", B12, clean=False), [_registration(B12, 3)]),
    (1_500, _caused("BROKER_UNFENCED", B12), [BrokerRegistrationChangeRecord(B12, 3, fenced=False)]),
    (
        2_000,
        Envelope("admin", Uuid(bytes(range(16))), bytes(32), None, "CreateTopic", b"\x80"),
        [TopicRecord(ORDERS, "orders"), _partition(0, B11), _partition(1, B12)],
    ),
    (
        3_120,
        _caused("SESSION_EXPIRED", B12, silent_ms=3_004),
        [
            PartitionChangeRecord(ORDERS, 0, isr=(B11,)),
            PartitionChangeRecord(ORDERS, 1, leader=B11, isr=(B11,)),
            BrokerRegistrationChangeRecord(B12, 3, fenced=True),
        ],
    ),
    (5_000, NO_ENVELOPE, [ControllerClaimRecord(NodeId(2), 2, CLUSTER_ID)]),
    (
        6_000,
        _caused("SESSION_EXPIRED", B11, silent_ms=3_010),
        [
            PartitionChangeRecord(ORDERS, 0, leader=NO_LEADER),
            PartitionChangeRecord(ORDERS, 1, leader=NO_LEADER),
            BrokerRegistrationChangeRecord(B11, 1, fenced=True),
        ],
    ),
    (7_500, _caused("BROKER_REGISTERED", B12, clean=False), [_registration(B12, 15)]),
    (
        8_000,
        _caused("BROKER_UNFENCED", B11),
        [
            BrokerRegistrationChangeRecord(B11, 1, fenced=False),
            PartitionChangeRecord(ORDERS, 0, leader=B11),
            PartitionChangeRecord(ORDERS, 1, leader=B11),
        ],
    ),
    (9_000, Envelope(actor="admin"), [RemoveTopicRecord(ORDERS)]),
)


Story = Sequence[tuple[int, Envelope, list[Record]]]


def _exported(story: Story, to: Path, **options: Any) -> Path:
    steps: list[Step] = []
    image = EMPTY
    for after_ms, envelope, records in story:
        steps.append(step_of(image, records, appended_at_ms=NOON_MS + after_ms, envelope=envelope))
        image = steps[-1].image
    export_log(frames_of(steps), to, cluster_id=CLUSTER_ID, **options)
    return to


def _events(export: Path) -> list[str]:
    return _events_in(report(DuckDb(is_quick=True), export))


def _events_in(told: str) -> list[str]:
    happened = told.split("## Controllers", maxsplit=1)[0].split("## What happened")[1]
    return [line.removeprefix("- ") for line in happened.splitlines() if line.startswith("- ")]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _exported(STORY, tmp_path_factory.mktemp("export"))


@pytest.fixture(scope="module")
def told(export: Path) -> str:
    return report(DuckDb(is_quick=True), export)


def test_the_report_tells_what_happened_in_order(told: str) -> None:
    assert _events_in(told) == [
        "12:00:00.000 offset 0: the cluster was founded; controller 1 took charge with epoch 1",
        "12:00:01.000 offset 1: broker 11 registered for the first time",
        "12:00:01.200 offset 2: broker 11 unfenced: online after 200 ms fenced",
        "12:00:01.300 offset 3: broker 12 registered for the first time",
        "12:00:01.500 offset 4: broker 12 unfenced: online after 200 ms fenced",
        "12:00:02.000 offset 5: topic orders created by admin (request AAECAwQFBgcICQoLDA0ODw)",
        "12:00:03.120 offset 9: broker 12 lost 1 leadership: 1 to broker 11 (session expired, silent 3,004 ms)",
        "12:00:03.120 offset 10: broker 12 fenced (session expired, silent 3,004 ms)",
        "12:00:05.000 offset 11: controller 2 took over with epoch 2, 1.9 s after the last record before",
        "12:00:06.000 offset 12: broker 11 lost 2 leaderships: 2 left without a leader (session expired, silent 3,010 ms)",
        "12:00:06.000 offset 14: broker 11 fenced (session expired, silent 3,010 ms)",
        "12:00:07.500 offset 15: broker 12 registered again, after an unclean stop",
        "12:00:08.000 offset 16: broker 11 unfenced: online after 2.0 s offline",
        "12:00:08.000 offset 17: 2 leaderless partitions got a leader: 2 to broker 11 (caught up)",
        "12:00:09.000 offset 19: topic orders deleted by admin",
    ]
    assert "| orders | 2 | 2 | 4.0 s |  | 2.0 s | 0 |" in told


def test_intervals_follow_the_log(export: Path) -> None:
    opened = open_export(export)
    led = _columns(
        opened, "leader_intervals", "partition", "leader", "from_offset", "to_offset", "duration_ms"
    )
    assert sorted(led) == [
        (0, -1, 12, 17, 2_000),
        (0, 11, 6, 12, 4_000),
        (0, 11, 17, 19, 1_000),
        (1, -1, 13, 18, 2_000),
        (1, 11, 9, 13, 2_880),
        (1, 11, 18, 19, 1_000),
        (1, 12, 7, 9, 1_120),
    ]
    states = _columns(
        opened, "broker_state_intervals", "broker_id", "state", "from_offset", "duration_ms", "lasting"
    )
    assert states == [
        (11, "FENCED", 1, 200, False),
        (11, "ONLINE", 2, 4_800, False),
        (12, "FENCED", 3, 200, False),
        (12, "ONLINE", 4, 1_620, False),
        (12, "OFFLINE", 10, 4_380, False),
        (11, "OFFLINE", 14, 2_000, False),
        (12, "FENCED", 15, 1_500, True),
        (11, "ONLINE", 16, 1_000, True),
    ]
    claims = _columns(
        opened, "controller_takeovers", "controller_id", "first_offset", "silent_ms", "record_count"
    )
    assert claims == [(1, 0, None, 11), (2, 11, 1_880, 9)]


AGAIN: Story = (
    (0, NO_ENVELOPE, [ControllerClaimRecord(NodeId(1), 1, CLUSTER_ID)]),
    (1_000, _caused("BROKER_REGISTERED", B11, clean=False), [_registration(B11, 1)]),
    (1_100, _caused("BROKER_REGISTERED", B11, clean=False), [_registration(B11, 1)]),
    (1_200, _caused("BROKER_UNFENCED", B11), [BrokerRegistrationChangeRecord(B11, 1, fenced=False)]),
    (2_000, _caused("BROKER_REGISTERED", B11, clean=False), [_registration(B11, 1)._replace(fenced=False)]),
    (3_000, _caused("SESSION_EXPIRED", B11), [BrokerRegistrationChangeRecord(B11, 1, fenced=True)]),
    (4_000, _caused("BROKER_REGISTERED", B11, clean=False), [_registration(B11, 1)]),
    (4_500, _caused("BROKER_UNFENCED", B11), [BrokerRegistrationChangeRecord(B11, 1, fenced=False)]),
    (5_000, _caused("BROKER_UNREGISTERED", B11), [UnregisterBrokerRecord(B11, 1)]),
    (6_000, _caused("BROKER_REGISTERED", B11, clean=False), [_registration(B11, 9)]),
)
"""One process registers again: fenced, online, and given up for dead."""


@pytest.mark.parametrize("from_offset", [None, 4])
def test_registering_once_more_is_no_change_of_state(from_offset: int | None, tmp_path: Path) -> None:
    opened = open_export(_exported(AGAIN, tmp_path, from_offset=from_offset))
    states = _columns(opened, "broker_state_intervals", "broker_epoch", "state", "from_offset", "duration_ms")
    assert states[-5:] == [
        (1, "OFFLINE", 5, 1_000),
        (1, "FENCED", 6, 500),
        (1, "ONLINE", 7, 500),
        (1, "OFFLINE", 8, 1_000),
        (9, "FENCED", 9, 0),
    ]
    if from_offset is None:
        assert states[:-5] == [(1, "FENCED", 1, 200), (1, "ONLINE", 3, 1_800)]
    else:
        assert [state[:2] for state in states[:-5]] == [(1, "ONLINE")]


def test_registering_once_more_is_told_as_that(tmp_path: Path) -> None:
    assert _events(_exported(AGAIN, tmp_path))[1:] == [
        "12:00:01.000 offset 1: broker 11 registered for the first time",
        "12:00:01.100 offset 2: broker 11 registered once more, by the same process",
        "12:00:01.200 offset 3: broker 11 unfenced: online after 200 ms fenced",
        "12:00:02.000 offset 4: broker 11 registered once more, by the same process",
        "12:00:03.000 offset 5: broker 11 fenced (session expired)",
        "12:00:04.000 offset 6: broker 11 registered once more, by the same process: fenced, no longer offline",
        "12:00:04.500 offset 7: broker 11 unfenced: online after 500 ms fenced",
        "12:00:05.000 offset 8: broker 11 removed from the cluster",
        "12:00:06.000 offset 9: broker 11 registered again",
    ]


def test_changes_of_settings_are_told_without_secrets(tmp_path: Path) -> None:
    by_admin = Envelope(actor="admin")
    many: list[Record] = [ConfigRecord(TOPIC, "orders", f"x.{n}", str(n)) for n in range(5)]
    story: Story = (
        (0, NO_ENVELOPE, [ControllerClaimRecord(NodeId(1), 1, CLUSTER_ID)]),
        (1_000, by_admin, [TopicRecord(ORDERS, "orders")]),
        (2_000, by_admin, [ConfigRecord(TOPIC, "orders", "min.insync.replicas", "1")]),
        (3_000, by_admin, many),
        (
            4_000,
            by_admin,
            [ConfigRecord(TOPIC, "orders", "x.0", None), ConfigRecord(TOPIC, "orders", "x.1", "")],
        ),
        (5_000, NO_ENVELOPE, [ConfigRecord(BROKER, "11", "ssl.key.password", "hunter2")]),
        (6_000, by_admin, [ConfigRecord(BROKER, CLUSTER_DEFAULT, "note", "a\nb" + "c" * 100)]),
    )
    hashed = "sha256:f52fbd32b2b3b86ff88ef6c490628285f482af15ddcb29541f94bcf526a3f6c7"
    assert _events(_exported(story, tmp_path))[2:] == [
        "12:00:02.000 offset 2: setting of topic orders changed by admin: min.insync.replicas=1",
        "12:00:03.000 offset 3: settings of topic orders changed by admin: x.0=0, x.1=1, x.2=2 and 2 more",
        '12:00:04.000 offset 8: settings of topic orders changed by admin: x.0 deleted, x.1=""',
        f"12:00:05.000 offset 10: setting of broker 11 changed: ssl.key.password={hashed}",
        f"12:00:06.000 offset 11: setting of all brokers changed by admin: note=a b{'c' * 77}...",
    ]


def _columns(export: Export, table: str, *names: str) -> list[tuple[Any, ...]]:
    log = Log(DuckDb(is_quick=True), export)
    return rows(log.engine.arrow(log.table_of(table)).select(names))


def test_losses_of_brokers_have_a_verdict_and_end_with_the_recovery(export: Path) -> None:
    """C11: a broker that the new controller never heard of was fenced for the controller's sake, not its own."""
    opened = open_export(export)
    assert _columns(opened, "fencings", "broker_id", "silent_ms", "verdict", "duration_ms") == [
        (12, 3_004, "unknown", 5_880),
        (11, 3_010, "controller", 2_000),
    ]
    shown = (
        "incident",
        "trigger",
        "node_id",
        "leaders_moved",
        "left_leaderless",
        "leaderless_ms",
        "write_gap_at_most_ms",
    )
    assert _columns(opened, "incidents", *shown) == [
        (1, "broker", 12, 1, 0, 0, None),
        (1, "controller", 2, 0, 0, 0, 1_880),
        (1, "broker", 11, 0, 2, 2_000, None),
    ]
    availability = _columns(
        opened, "broker_availability", "broker_id", "availability_percent", "longest_outage_ms"
    )
    assert availability == [(11, 72.5, 2_000), (12, 21.039, 5_880)]


def test_the_head_says_from_when_to_when(export: Path, told: str) -> None:
    assert "- From 2026-01-01 12:00:00.000 to 2026-01-01 12:00:09.000 UTC: 9.0 s" in told
    before = report_of(replay.open(export).between("2026-01-01T11:00:00Z", None))
    assert "- From 2026-01-01 12:00:00.000 to 2026-01-01 12:00:09.000 UTC: 9.0 s" in before
    assert "- no record of the log is as old as 2026-01-01 11:00:00; shown from its beginning" in before


def test_a_long_name_in_a_chart_is_cut_visibly(tmp_path: Path, export: Path) -> None:
    """Goal: a reader sees that a name is not whole. Method: a name that fits, and one that does not."""
    name = "a.topic.of.quite.a.long.name"
    long: list[Record] = [TopicRecord(ORDERS, name), _partition(0, B11)]
    story: Story = (*STORY[:5], (2_000, NO_ENVELOPE, long))
    page = report_of(replay.open(_exported(story, tmp_path)), "html")
    assert f">\N{HORIZONTAL ELLIPSIS}{f'{name}:0'[1 - NAME_CHARS :]}</text>" in page
    assert ">orders:0</text>" in report_of(replay.open(export), "html")


def test_the_report_of_a_part_tells_of_the_part_alone(export: Path) -> None:
    """Goal: nothing from before is told as if it happened in the part, and what reaches in is counted everywhere."""
    part = replay.open(export).between(11, 15)
    told = report_of(part)
    assert told.split("## When it began\n\n")[1].split("\n\n")[0].splitlines() == [
        "- Controller 1 was in charge",
        "- Broker 12 was offline since 2026-01-01 12:00:03.120 (session expired): still out at the end",
        "- 2 partitions under-replicated",
    ]
    assert "- Out of service already when it began: broker 12 (still out at the end)\n" in told
    happened = told.split("## What happened")[1].split("##")[0].splitlines()
    assert [line.split(":", 3)[2][7:] for line in happened if line.startswith("- ")] == [
        "offset 11",
        "offset 12",
        "offset 14",
    ]
    assert "| 12 | OFFLINE | before |  | 2.9 s so far | session expired |" in told
    assert "| 12 | 0 ms | 2.9 s | 0.00 |  | 1 | 2.9 s | 1 | OFFLINE |" in told
    assert json.loads(report_of(part, "json"))["began"] == {
        "controller_id": 1,
        "brokers_out": [12],
        "leaderless_spells": 0,
        "under_min_isr_spells": 0,
        "under_replicated_spells": 2,
    }


def test_what_began_before_a_part_is_said_to(export: Path) -> None:
    told = report_of(replay.open(export).between(15, 19))
    assert "- From 2026-01-01 12:00:06.000 to 2026-01-01 12:00:08.000 UTC: 2.0 s" in told, "as its intervals"
    for line in (
        "- Controller 2 was in charge",
        "- Broker 11 was offline since 2026-01-01 12:00:06.000 (session expired): back at offset 16",
        "- Broker 12 was offline since 2026-01-01 12:00:03.120 (session expired): still out at the end",
        "2 spells (2 from before), 4.0 s of partition time",
        "broker 11 unfenced: online; it was offline from before these offsets",
        "broker 12 registered again, after an unclean stop",
    ):
        assert line in told, line
    assert "broker 12 registered\n" in report_of(replay.open(export).between(3, 6))


def test_an_idle_log_makes_no_takeover_long(tmp_path: Path) -> None:
    """Goal: the time in which nobody wrote is no outage. Method: a loss ends, silence, a takeover."""
    story: Story = (
        *AGAIN[:4],
        (3_000, _caused("SESSION_EXPIRED", B11), [BrokerRegistrationChangeRecord(B11, 1, fenced=True)]),
        (5_000, _caused("BROKER_UNFENCED", B11), [BrokerRegistrationChangeRecord(B11, 1, fenced=False)]),
        (5_100, Envelope(actor="admin"), [TopicRecord(ORDERS, "orders")]),
        (30_400, NO_ENVELOPE, [ControllerClaimRecord(NodeId(2), 2, CLUSTER_ID)]),
        (30_500, _caused("SESSION_EXPIRED", B11), [BrokerRegistrationChangeRecord(B11, 1, fenced=True)]),
        (31_500, _caused("BROKER_UNFENCED", B11), [BrokerRegistrationChangeRecord(B11, 1, fenced=False)]),
    )
    export = _exported(story, tmp_path)
    shown = ("incident", "trigger", "write_gap_at_most_ms", "duration_ms")
    assert _columns(open_export(export), "incidents", *shown) == [
        (1, "broker", None, 2_000),
        (2, "controller", 25_300, None),
        (3, "broker", None, 1_000),
    ]
    told = report(DuckDb(is_quick=True), export)
    assert "1 takeover of a controller; write gaps of at most 25.3 s" in told
    listed = [line for line in told.split("## Incidents")[1].split("##")[0].splitlines() if "12:00" in line]
    assert [line.split(" | ")[-1] for line in listed] == ["2.0 s |", "1.0 s |", "at most 25.3 s |"]


def test_a_loss_ends_where_the_broker_is_removed(tmp_path: Path) -> None:
    story: Story = (
        *AGAIN[:4],
        (3_000, _caused("SESSION_EXPIRED", B11), [BrokerRegistrationChangeRecord(B11, 1, fenced=True)]),
        (9_000, _caused("BROKER_UNREGISTERED", B11), [UnregisterBrokerRecord(B11, 1)]),
        (12_000, Envelope(actor="admin"), [TopicRecord(ORDERS, "orders")]),
    )
    opened = open_export(_exported(story, tmp_path))
    assert _columns(opened, "fencings", "verdict", "back_ts", "duration_ms") == [("unknown", None, 6_000)]
    ((ended, duration),) = _columns(opened, "incidents", "to_ts", "duration_ms")
    assert ended is not None and duration == 6_000


def test_a_broker_that_was_removed_and_comes_back_was_not_out_of_service_between(tmp_path: Path) -> None:
    """Goal: a fencing lasts as long as its loss. Method: fenced, removed, registered anew; removed while it served."""
    story: Story = (
        *AGAIN[:4],
        (3_000, _caused("SESSION_EXPIRED", B11), [BrokerRegistrationChangeRecord(B11, 1, fenced=True)]),
        (4_000, _caused("BROKER_UNREGISTERED", B11), [UnregisterBrokerRecord(B11, 1)]),
        (60_000, _caused("BROKER_REGISTERED", B11, clean=False), [_registration(B11, 6)]),
        (61_000, _caused("BROKER_UNFENCED", B11), [BrokerRegistrationChangeRecord(B11, 6, fenced=False)]),
        (62_000, _caused("BROKER_UNREGISTERED", B11), [UnregisterBrokerRecord(B11, 6)]),
        (90_000, Envelope(actor="admin"), [TopicRecord(ORDERS, "orders")]),
    )
    opened = open_export(_exported(story, tmp_path))
    assert _columns(opened, "fencings", "verdict", "duration_ms") == [("broker", 1_000), ("removed", 0)]
    assert _columns(opened, "incidents", "verdict", "duration_ms") == [("broker", 1_000), ("removed", 0)]


def test_the_summary_names_eight_who_asked_and_counts_the_others(tmp_path: Path) -> None:
    by_each: Story = [
        (1_000, Envelope(actor=f"User:{n:02}"), [TopicRecord(_topic(n), f"t{n}")]) for n in range(10)
    ]
    story: Story = [(0, NO_ENVELOPE, [ControllerClaimRecord(NodeId(1), 1, CLUSTER_ID)]), *by_each]
    told = report(DuckDb(is_quick=True), _exported(story, tmp_path))
    (asked,) = [line for line in told.splitlines() if line.startswith("- Asked for by people and programs: ")]
    named = [f"User:{n:02} without an operation 1 time" for n in range(8)]
    assert asked.split(": ", 1)[1] == ", ".join(named) + " and 2 more"


def test_the_summary_counts_a_request_for_a_list_with_those_for_one(tmp_path: Path) -> None:
    names = ("CreateTopics", "CreateTopics.many")
    by_each: Story = [
        (1_000, Envelope(actor="User:anna", operation=name), [TopicRecord(_topic(n), name)])
        for n, name in enumerate(names)
    ]
    story: Story = [(0, NO_ENVELOPE, [ControllerClaimRecord(NodeId(1), 1, CLUSTER_ID)]), *by_each]
    told = report(DuckDb(is_quick=True), _exported(story, tmp_path))
    assert "- Asked for by people and programs: User:anna CreateTopics 2 times\n" in told


def _topic(number: int) -> TopicId:
    return TopicId(bytes([number]) * 16)


def test_what_others_wrote_is_no_markup_and_draws_on_no_screen(tmp_path: Path) -> None:
    """Goal: Markdown is safe to render and to print. Method: names, values and actors that would do something."""
    evil = "<img src=//h>\x1b[2J\x9b2J\n# forged\n| forged |![x](//h)<!--"
    by_evil = Envelope(actor=f"User:{evil}")
    story: Story = [
        (0, NO_ENVELOPE, [ControllerClaimRecord(NodeId(1), 1, CLUSTER_ID)]),
        (1_000, by_evil, [TopicRecord(ORDERS, evil), _partition(0, B11)]),
        (2_000, by_evil, [ConfigRecord(TOPIC, evil, evil, evil)]),
        (3_000, by_evil, [RemoveTopicRecord(ORDERS)]),
    ]
    log = Log(DuckDb(is_quick=True), open_export(_exported(story, tmp_path)))
    told = report_of(log)
    assert "src=//h" in told
    for line in told.splitlines():
        assert line.isprintable() and not line.startswith(("# forged", "| forged"))
    assert "<" not in told.replace("\\<", "") and "](" not in told
    page = report_of(log, "html")
    assert "<img" not in page and "\x1b" not in page
    assert report_of(log, "json").replace("\n", "").isprintable()
