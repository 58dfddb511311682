"""Which answers of a broker violate the rule, and that brokers are asked at all."""

import asyncio

import pytest
from aiohttp import web

from metadata_log.batch import NO_ENVELOPE, Cause, RecordBatch
from metadata_log.codec import decode_all, encode
from metadata_log.ids import BrokerId
from metadata_log.records.brokers import BrokerRegistrationChangeRecord
from tests.robustness.serving import Answer, Asker, fencings, served_while_fenced

MS = 1_000_000


def batch(at: int, time_ms: int, code: str, *, fenced: bool, broker_id: int = 11) -> RecordBatch:
    _, frame = encode(
        base_offset=at,
        controller_epoch=1,
        appended_at_ms=time_ms,
        previous_crc=0,
        envelope=NO_ENVELOPE._replace(cause=Cause(code)),
        records=(BrokerRegistrationChangeRecord(BrokerId(broker_id), 5, fenced=fenced),),
    )
    ((decoded, _),) = decode_all(frame)
    return decoded


FENCED = batch(7, 1_000, "SESSION_EXPIRED", fenced=True)
UNFENCED = batch(8, 2_000, "BROKER_UNFENCED", fenced=False)
SEEN = [(900 * MS, 7), (1_100 * MS, 8), (1_050 * MS, 9), (2_200 * MS, 9)]


@pytest.mark.parametrize(
    ("call_ms", "returned_ms", "is_wrong"),
    [
        (1_000, 1_300, False),  # asked before anybody had seen the fencing
        (1_060, 1_300, True),
        (1_060, 1_999, True),
        (1_060, 2_000, False),  # it may have served once it was unfenced
        (2_100, 2_200, False),
    ],
)
def test_what_is_served_between_a_fencing_that_was_seen_and_the_unfencing_is_wrong(
    call_ms: int, returned_ms: int, *, is_wrong: bool
) -> None:
    answer = Answer(11, call_ms * MS, returned_ms * MS, served=True)
    told = served_while_fenced([answer], [FENCED, UNFENCED], SEEN)
    assert told == ["broker 11, fenced at offset 7, served 10 ms after that was seen"] * is_wrong


@pytest.mark.parametrize(
    ("answer", "log", "is_wrong"),
    [
        (Answer(11, 9_000 * MS, 9_001 * MS, served=True), [FENCED], True),
        (Answer(11, 9_000 * MS, 9_001 * MS, served=False), [FENCED], False),
        (Answer(12, 9_000 * MS, 9_001 * MS, served=True), [FENCED], False),
        (
            Answer(11, 9_000 * MS, 9_001 * MS, served=True),
            [batch(7, 1_000, "SHUTDOWN_GRANTED", fenced=True)],
            False,
        ),
        (Answer(11, 9_000 * MS, 9_001 * MS, served=True), [FENCED, FENCED, UNFENCED], False),
    ],
)
def test_who_is_asked_and_why_he_was_fenced_counts(
    answer: Answer, log: list[RecordBatch], *, is_wrong: bool
) -> None:
    assert bool(served_while_fenced([answer], log, SEEN)) == is_wrong


def test_a_fencing_that_nobody_saw_counts_for_nothing() -> None:
    answer = Answer(11, 9_000 * MS, 9_001 * MS, served=True)
    assert served_while_fenced([answer], [FENCED], [(900 * MS, 7)]) == []
    assert fencings([FENCED, UNFENCED]) == 1


def test_brokers_are_asked_and_those_that_do_not_answer_too() -> None:
    async def story() -> list[Answer]:
        async def answer(request: web.Request) -> web.Response:
            return web.Response(status=503 if request.path.startswith("/fenced") else 200)

        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            asker = Asker({11: url, 12: f"{url}/fenced", 13: "http://127.0.0.1:1"})
            stop = asyncio.Event()
            asking = asyncio.create_task(asker.run(stop))
            while len(asker.answers) < 4:
                await asyncio.sleep(0.01)
            stop.set()
            await asking
            return asker.answers
        finally:
            await runner.cleanup()

    answers = asyncio.run(story())
    assert {(answer.broker_id, answer.served) for answer in answers} == {(11, True), (12, False)}
    assert all(answer.call < answer.returned for answer in answers)
