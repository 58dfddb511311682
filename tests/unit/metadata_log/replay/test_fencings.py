"""The post-mortem of fencings: each verdict, and the time that was lost (C11)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from metadata_log import replay
from metadata_log.batch import NO_ENVELOPE, Cause, Envelope
from metadata_log.codec import FrameHeader, decode_all, read_header
from metadata_log.ids import BrokerId
from metadata_log.records.brokers import UnregisterBrokerRecord
from metadata_log.records.registry import Record
from metadata_log.replay.export import export_log
from metadata_log.replay.report.words import cause
from quorum.controller.controller import Controller
from tests.support.callers import anybody
from tests.support.lab import CLUSTER, Lab, online, poll, uuid
from tests.support.lab import registration as lab_registration
from tests.unit.metadata_log.replay.test_report_time import (
    NO_OP,
    claim,
    fenced,
    opened,
    registration,
    rows,
)

pytestmark = pytest.mark.slow

SILENT_MS = 3_000
MINUTE_MS = 60_000


class Told:
    """A log in the making: a controller that marks every 4 s that it is there, and what happens to brokers meanwhile."""

    def __init__(self) -> None:
        self.story: list[tuple[int, Envelope, list[Record]]] = [(0, NO_ENVELOPE, claim(1))]
        self.epochs: dict[int, int] = {}

    @property
    def end_offset(self) -> int:
        return sum(len(records) for _, _, records in self.story)

    def write(
        self, at_ms: int, code: str | None, broker_id: int, *records: Record, link: str | None = None
    ) -> int:
        """Append records; return the offset of the first."""
        self._mark_until(at_ms)
        offset = self.end_offset
        detail: dict[str, object] = {"broker_id": broker_id}
        detail |= {"silent_ms": SILENT_MS} if code == "SESSION_EXPIRED" else {}
        detail |= {} if link is None else {"link": link}
        envelope = NO_ENVELOPE if code is None else Envelope(cause=Cause(code, None, detail))
        self.story.append((at_ms, envelope, list(records)))
        return offset

    def _mark_until(self, at_ms: int) -> None:
        last_ms = self.story[-1][0]
        self.story += [(at, NO_ENVELOPE, NO_OP) for at in range(last_ms + 4_000, at_ms, 4_000)]

    def register(self, at_ms: int, broker_id: int, process: int = 0) -> int:
        self._mark_until(at_ms)
        self.epochs[broker_id] = epoch = self.end_offset
        return self.write(
            at_ms, "BROKER_REGISTERED", broker_id, registration(BrokerId(broker_id), epoch, process)
        )

    def fence(self, at_ms: int, broker_id: int, code: str, link: str | None = None) -> int:
        record = fenced(BrokerId(broker_id), self.epochs[broker_id])
        return self.write(at_ms, code, broker_id, record, link=link)

    def unfence(self, at_ms: int, broker_id: int) -> None:
        record = fenced(BrokerId(broker_id), self.epochs[broker_id], is_fenced=False)
        self.write(at_ms, "BROKER_UNFENCED", broker_id, record)

    def serve(self, at_ms: int, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.register(at_ms, broker_id)
            self.unfence(at_ms, broker_id)


RETURNS, ANOTHER_PROCESS, NEVER = "the same process returns", "another process registers", "nothing more"
CASES = (
    # cause, what comes behind it, the verdict, how long it lasted
    ("SESSION_EXPIRED", RETURNS, "network", 5_000),
    ("SESSION_EXPIRED", ANOTHER_PROCESS, "broker", 5_000),
    ("LOG_DIR_OFFLINE", RETURNS, "disk", 5_000),
    ("SHUTDOWN_GRANTED", ANOTHER_PROCESS, "stopped", 5_000),
    ("CONTROLLED_SHUTDOWN", RETURNS, "stopped", 5_000),
    ("FENCE_REQUESTED", RETURNS, "stopped", 5_000),
    ("STOPPED_OR_SILENT", RETURNS, "network", 5_000),
    ("STOPPED_OR_SILENT", ANOTHER_PROCESS, "stopped or lost", 5_000),
    ("BROKER_UNREGISTERED", NEVER, "removed", 0),
    ("BROKER_REGISTERED", RETURNS, "broker", 5_000),
    ("SESSION_EXPIRED", NEVER, "unknown", 7_000),
)


def test_each_verdict(tmp_path: Path) -> None:
    """One broker after the other goes out of service while the rest serves; each for a reason of its own."""
    told, wanted = Told(), []
    told.serve(1_000, *range(11, 11 + len(CASES)))
    for number, (code, then, verdict, duration_ms) in enumerate(CASES):
        broker_id, at_ms = 11 + number, (number + 1) * MINUTE_MS
        if code == "BROKER_REGISTERED":
            offset = told.register(at_ms, broker_id, process=1)
        elif code == "BROKER_UNREGISTERED":
            record = UnregisterBrokerRecord(BrokerId(broker_id), told.epochs[broker_id])
            offset = told.write(at_ms, code, broker_id, record)
        else:
            offset = told.fence(at_ms, broker_id, code)
        if then == ANOTHER_PROCESS:
            told.register(at_ms + 3_000, broker_id, process=1)
        if then != NEVER:
            told.unfence(at_ms + 5_000, broker_id)
        is_same = None if then == NEVER else then == RETURNS and code != "BROKER_REGISTERED"
        wanted.append((offset, broker_id, verdict, duration_ms, is_same, int(code == "SESSION_EXPIRED")))
    told.write(len(CASES) * MINUTE_MS + 7_000, None, 0, *NO_OP)
    log = opened(told.story, tmp_path)
    shown = ("log_offset", "broker_id", "verdict", "duration_ms", "same_process", "burst")
    assert rows(log, "fencings", *shown) == wanted


def test_what_is_blamed_on_the_controller_and_the_millisecond_behind_it(tmp_path: Path) -> None:
    """Half of all brokers that fall silent within 2 s have one cause, and so has a silence that began before the controller
    did, or within a second of that. A millisecond more, and each broker has its own.
    """
    told = Told()
    told.serve(1_000, 11, 12)
    for at_ms, apart_ms in ((MINUTE_MS, 2_000), (2 * MINUTE_MS, 2_001)):
        told.fence(at_ms, 11, "SESSION_EXPIRED")
        told.fence(at_ms + apart_ms, 12, "SESSION_EXPIRED")
        told.unfence(at_ms + 5_000, 11)
        told.unfence(at_ms + 6_000, 12)
    for epoch, later_ms in ((2, SILENT_MS + 1_000), (3, SILENT_MS + 1_001)):
        at_ms = (epoch + 1) * MINUTE_MS
        told.write(at_ms, None, 0, *claim(epoch, epoch))
        told.fence(at_ms + later_ms, 11, "SESSION_EXPIRED")
        told.unfence(at_ms + later_ms + 5_000, 11)
    log = opened(told.story, tmp_path)
    assert rows(log, "fencings", "broker_id", "verdict", "burst") == [
        (11, "controller", 2),
        (12, "controller", 2),
        (11, "network", 1),
        (12, "network", 1),
        (11, "controller", 1),
        (11, "network", 1),
    ]


@pytest.mark.parametrize(
    ("link", "then", "verdict"),
    [
        ("acknowledges", RETURNS, "stalled"),
        ("acknowledges", ANOTHER_PROCESS, "stalled"),
        ("acknowledges", NEVER, "stalled"),
        ("unread", RETURNS, "controller"),
        ("unread", NEVER, "controller"),
        ("ended", RETURNS, "network"),
        ("ended", ANOTHER_PROCESS, "broker"),
        ("ended", NEVER, "unknown"),
        ("unanswered", RETURNS, "network"),
        ("unanswered", ANOTHER_PROCESS, "broker"),
        ("unanswered", NEVER, "unknown"),
    ],
)
def test_c11_what_the_connection_of_a_silent_broker_showed(
    link: str, then: str, verdict: str, tmp_path: Path
) -> None:
    told = Told()
    told.serve(1_000, 11, 12, 13)
    told.fence(MINUTE_MS, 11, "SESSION_EXPIRED", link)
    if then == ANOTHER_PROCESS:
        told.register(MINUTE_MS + 3_000, 11, process=1)
    if then != NEVER:
        told.unfence(MINUTE_MS + 5_000, 11)
    found = rows(opened(told.story, tmp_path), "fencings", "verdict", "link")
    assert found == [(verdict, link)]


def test_c11_brokers_that_stand_still_together_are_not_the_controllers_fault(tmp_path: Path) -> None:
    told = Told()
    told.serve(1_000, 11, 12)
    for broker_id in (11, 12):
        told.fence(MINUTE_MS, broker_id, "SESSION_EXPIRED", "acknowledges")
    found = rows(opened(told.story, tmp_path), "fencings", "broker_id", "verdict", "burst")
    assert found == [(11, "stalled", 2), (12, "stalled", 2)]


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ("acknowledges", ", its process stood still or was too busy"),
        ("unanswered", ", nothing sent to it was acknowledged"),
        ("ended", ", its connection had ended"),
        ("unread", ", the controller had not read it"),
        ("of a later release", ""),
        (None, ""),
    ],
)
def test_c11_the_report_says_what_the_connection_showed(link: str | None, says: str) -> None:
    detail = json.dumps({"broker_id": 11, "silent_ms": 9_001} | ({} if link is None else {"link": link}))
    assert cause("SESSION_EXPIRED", detail) == f"session expired, silent 9,001 ms{says}"


def logged(lab: Lab, to: Path) -> replay.Log:
    """Export the log that a lab's controllers wrote."""
    frames = [frame for payload in lab.quorum.log for _, frame in decode_all(payload)]

    def from_offset(offset: int, until: int | None = None) -> Iterator[tuple[FrameHeader, bytes]]:
        for frame in frames:
            header = read_header(frame)
            if header.end_offset > offset and (until is None or header.end_offset <= until):
                yield header, frame

    export_log(from_offset, to, cluster_id=CLUSTER)
    return replay.open(to)


async def test_a_link_a_process_and_a_controller_that_fail_have_three_verdicts(tmp_path: Path) -> None:
    """C11, as shipped controllers write it: broker 11 is cut off and comes back, the process of broker 12 ends and another
    one registers, and broker 13 cannot reach the controller that takes over until its session is over.
    """

    def heartbeat(lab: Lab, controller: Controller, broker_id: int) -> None:
        image = controller.committed
        broker = image.brokers[BrokerId(broker_id)]
        incarnation = 1 if broker.incarnation_id == uuid(1_000 + broker_id) else 2
        wishes = poll(broker_id, broker.broker_epoch, applied=image.end_offset, incarnation=incarnation)
        controller.heartbeat(wishes, anybody())
        lab.quorum.commit()

    lab = Lab()

    def pass_by(controller: Controller, *alive: int) -> None:
        """Let 12 s pass, in which the sessions of those that are not alive end."""
        for _ in range(24):
            lab.now_ms += 500
            for broker_id in alive:
                heartbeat(lab, controller, broker_id)
            controller.check_sessions()
            lab.quorum.commit()

    first = lab.lead(1)
    for broker_id in (11, 12, 13, 14):
        await online(lab, first, broker_id)
    pass_by(first, 11, 12, 13, 14)
    pass_by(first, 12, 13, 14)
    heartbeat(lab, first, 11)
    pass_by(first, 11, 13, 14)
    await lab.write(first, lab_registration(12, incarnation=2))
    heartbeat(lab, first, 12)
    second = lab.lead(2)
    pass_by(second, 11, 12, 14)
    heartbeat(lab, second, 13)
    log = logged(lab, tmp_path)
    found = rows(log, "fencings", "broker_id", "verdict", "silent_ms > 9000 AND silent_ms <= 10000")
    assert found == [(11, "network", True), (12, "broker", True), (13, "controller", True)]
