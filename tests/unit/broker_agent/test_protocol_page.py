"""Edge: docs/broker-protocol.md says what the code does: its drawing, its tables, and an exchange that the code can read."""

import re

import pytest

from metadata_log import errors
from metadata_log.codec import decode
from metadata_log.records.brokers import RegisterBrokerRecord
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.wire.bodies import unpack
from metadata_log.wire.commands import RegisterBroker, Registered
from metadata_log.wire.fetch import FetchKind, FetchRequest, decode_fetch_body
from tests.protocol_page import (
    AFTER_A_PAUSE,
    AGAIN_ELSEWHERE,
    GIVE_UP,
    MEANINGS,
    PAGE,
    REGISTER_AGAIN,
    SHAPES,
    TOLD,
    advice,
    written,
)


def test_the_page_is_as_the_code_has_it() -> None:
    """Write it with `python -m tests.protocol_page`."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page)


def test_every_field_has_a_meaning_and_no_other() -> None:
    assert set(MEANINGS) == {
        f"{shape.__name__}.{name}" for shape in SHAPES.values() for name in shape.__struct_fields__
    }


def exchange() -> list[bytes]:
    """Return the bodies whose bytes the page shows, in order."""
    shown = PAGE.read_text(encoding="utf-8").partition("<!-- exchange")[2]
    blocks = shown.split("\n\n**")[1:]
    return [bytes.fromhex("".join(re.findall(r"^    ([0-9a-f]+)", block, re.MULTILINE))) for block in blocks]


def test_the_exchange_on_the_page_is_one_that_the_code_reads() -> None:
    """Goal: the bytes can be copied. Method: the page's text alone, through the decoders of both sides."""
    register, registered, first, image, snapshot, second, delta, third, diverging = exchange()
    command = RegisterBroker.from_map(unpack(register))
    told = Registered.from_map(unpack(registered))
    assert FetchRequest.from_map(unpack(first)).fetch_offset == 0
    offered = decode_fetch_body(image)[0].snapshot
    assert offered is not None
    (header,) = decode(snapshot)[0].records
    assert isinstance(header, SnapshotHeaderRecord)
    behind = FetchRequest.from_map(unpack(second))
    assert (behind.fetch_offset, behind.last_epoch, behind.last_crc) == (
        offered.end_offset,
        header.controller_epoch,
        header.last_crc,
    )
    answer, frames = decode_fetch_body(delta)
    assert answer.kind is FetchKind.DELTA
    (registration,) = decode(frames)[0].records
    assert isinstance(registration, RegisterBrokerRecord)
    assert registration.broker_epoch == told.broker_epoch
    last = FetchRequest.from_map(unpack(third))
    assert (last.broker_id, last.broker_epoch) == (command.broker_id, told.broker_epoch)
    assert last.fetch_offset == answer.high_watermark
    assert decode_fetch_body(diverging)[0].diverging is not None


@pytest.mark.parametrize("kind", TOLD)
def test_an_error_that_is_not_on_the_page_is_judged_by_its_family(
    kind: type[errors.MetadataError],
) -> None:
    by_name = {errors.StaleBrokerEpoch, errors.DuplicateBrokerRegistration, errors.ThrottlingQuotaExceeded}
    wanted = GIVE_UP if issubclass(kind, errors.Rejected) else AGAIN_ELSEWHERE
    assert (advice(kind, is_registered=True) == wanted) == (kind not in by_name)


def test_every_other_error_of_a_controller_is_judged_by_its_family() -> None:
    for kind in {*errors.BY_NAME.values()} - set(TOLD):
        wanted = GIVE_UP if issubclass(kind, errors.Rejected) else AGAIN_ELSEWHERE
        assert advice(kind, is_registered=True) == wanted, kind


def test_what_is_told_by_name_is_what_the_page_says() -> None:
    assert advice(errors.StaleBrokerEpoch, is_registered=True) == REGISTER_AGAIN
    assert advice(errors.DuplicateBrokerRegistration, is_registered=False) == AFTER_A_PAUSE
    assert advice(errors.ThrottlingQuotaExceeded, is_registered=True) == AFTER_A_PAUSE
