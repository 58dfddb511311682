"""Which changes in parts the log shows begun, and what a snapshot says of them."""

import pytest

from metadata_log.batch import Cause, Envelope, RecordBatch
from metadata_log.ids import BrokerId, NodeId, Uuid, uuid_text
from metadata_log.image.begun import (
    HEARD_OF,
    Begun,
    BegunImage,
    begun_after,
    begun_of,
    begun_records,
    cause_of,
    with_request,
)
from metadata_log.image.features import FeaturesImage
from metadata_log.image.metadata_image import EMPTY
from metadata_log.records.brokers import BrokerRegistrationChangeRecord
from metadata_log.records.features import METAQUORUM_VERSION
from metadata_log.records.quorum import ControllerClaimRecord, NoOpRecord
from metadata_log.records.registry import Record

ONE, TWO = BrokerId(1), BrokerId(2)
LEVEL = {level: EMPTY.features.set(METAQUORUM_VERSION, level) for level in (1, 2)}


def after(
    begun: BegunImage,
    cause: Cause | None,
    *records: Record,
    epoch: int = 5,
    features: FeaturesImage = LEVEL[2],
) -> BegunImage:
    batch = RecordBatch(
        base_offset=10,
        controller_epoch=epoch,
        appended_at_ms=0,
        previous_crc=0,
        crc=0,
        envelope=Envelope(cause=cause),
        records=records or (NoOpRecord(),),
    )
    return begun_after(begun, batch, features)


def silence(broker_id: BrokerId) -> Cause:
    return Cause("SESSION_EXPIRED", 7, {"broker_id": broker_id, "silent_ms": 9_001})


def claim(begun: BegunImage, epoch: int, features: FeaturesImage = LEVEL[2]) -> BegunImage:
    return after(begun, None, ControllerClaimRecord(NodeId(1), epoch, "c"), epoch=epoch, features=features)


def test_a_change_is_begun_until_the_record_of_its_brokers_registration() -> None:
    begun = after(after(EMPTY.begun, silence(ONE)), silence(TWO))
    assert begun[ONE] == Begun("SESSION_EXPIRED", 7, 5, is_kept=True)
    fenced = BrokerRegistrationChangeRecord(ONE, 7, fenced=True)
    assert set(after(begun, silence(ONE), fenced)) == {TWO}
    assert after(begun, Cause("ISR_REPORTED", None, {"broker_id": 1}), fenced) == begun
    assert after(begun, None) is begun


def test_a_log_of_an_earlier_release_says_what_was_given_up() -> None:
    begun = after(EMPTY.begun, silence(ONE))
    assert not after(begun, Cause(HEARD_OF, 7, {"broker_id": 1}))


@pytest.mark.parametrize(("level", "claims", "goes_on"), [(1, 1, True), (1, 2, False), (2, 2, True)])
def test_a_claim_ends_what_the_controller_before_it_may_not_have_known_of(
    level: int, claims: int, goes_on: bool
) -> None:
    begun = after(EMPTY.begun, silence(ONE), features=LEVEL[level])
    for epoch in range(6, 6 + claims):
        begun = claim(begun, epoch, LEVEL[level])
    assert (ONE in begun) is goes_on


def test_a_snapshot_says_what_began_at_a_level_that_knows_the_record() -> None:
    failed = Cause("LOG_DIR_OFFLINE", 7, {"broker_id": 1, "log_dirs": [uuid_text(Uuid(bytes(16)))]})
    removed = with_request(Cause("BROKER_UNREGISTERED", 8, {"broker_id": 2}), Uuid(bytes(16)), b"hash")
    begun = after(after(EMPTY.begun, failed), removed)
    records = list(begun_records(begun, LEVEL[2]))
    assert begun_of(records) == begun
    assert (records[0].log_dirs, records[1].request_sha256) == ((bytes(16),), b"hash")
    assert list(begun_records(begun, LEVEL[1])) == []
    before = after(EMPTY.begun, failed, features=LEVEL[1])
    assert list(begun_records(before, LEVEL[2])) == [], "other snapshots lack it"


def test_a_further_part_has_the_cause_of_those_before() -> None:
    for code, detail in (
        ("BROKER_REGISTERED", {"clean": True}),
        ("LOG_DIR_OFFLINE", {"log_dirs": [uuid_text(Uuid(bytes(16)))]}),
        ("FENCE_REQUESTED", {}),
    ):
        cause = Cause(code, 7, {"broker_id": ONE, **detail})
        assert cause_of(ONE, after(EMPTY.begun, cause)[ONE]) == cause


def test_facts_that_another_writer_put_into_a_cause_stop_nobody() -> None:
    odd = Cause(
        "LOG_DIR_OFFLINE", None, {"broker_id": 1, "log_dirs": [7], "request_id": "no", "request_sha256": "x"}
    )
    assert after(EMPTY.begun, odd)[ONE] == Begun("LOG_DIR_OFFLINE", -1, 5, is_kept=True)
