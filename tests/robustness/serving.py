"""Edge: asks brokers all the time whether they serve, and checks that none serves after it was fenced for its silence."""

import asyncio
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from metadata_log.batch import RecordBatch
from metadata_log.records.brokers import BrokerRegistrationChangeRecord
from tests.robustness.clients import new_session

ASK_S: Final = 0.1
ATTEMPT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a broker said when it was asked for metadata; `call` and `returned` in Unix nanoseconds."""

    broker_id: int
    call: int
    returned: int
    served: bool


@dataclass(slots=True)
class Asker:
    """Asks each broker for metadata, one question at a time."""

    urls: Mapping[int, str]
    tls: ssl.SSLContext | None = None
    answers: list[Answer] = field(default_factory=list)

    async def run(self, stop: asyncio.Event) -> None:
        async with new_session(self.tls, total_s=ATTEMPT_S) as session, asyncio.TaskGroup() as group:
            for broker_id in self.urls:
                group.create_task(self._ask(session, broker_id, stop))

    async def _ask(self, session: aiohttp.ClientSession, broker_id: int, stop: asyncio.Event) -> None:
        while not stop.is_set():
            call = time.time_ns()
            with suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(f"{self.urls[broker_id]}/v1/metadata") as response:
                    await response.read()
                self.answers.append(Answer(broker_id, call, time.time_ns(), response.status == 200))
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), ASK_S)


def fencings(log: Iterable[RecordBatch]) -> int:
    """Return how often a broker was fenced for its silence."""
    return sum(_was_silent(batch) and any(_fenced(record) for record in batch.records) for batch in log)


def served_while_fenced(
    answers: Sequence[Answer], log: Sequence[RecordBatch], seen: Sequence[tuple[int, int]]
) -> list[str]:
    """Return the answers that a broker gave although it was fenced for its silence, each in words.

    `seen` are the instants (Unix ns) at which somebody had the committed log up to an offset (exclusive). A broker may
    not serve from the commit of its fencing on, so not who asks once that is seen; until an unfencing is appended.
    """
    found = []
    fenced_from: dict[int, tuple[int, int]] = {}
    for batch in log:
        for record in batch.records:
            if not isinstance(record, BrokerRegistrationChangeRecord) or record.fenced is None:
                continue
            begun = fenced_from.pop(record.broker_id, None)
            if begun is not None:
                found += _within(answers, record.broker_id, *begun, until=batch.appended_at_ms * 1_000_000)
            if record.fenced and _was_silent(batch):
                at = min((at for at, end_offset in seen if end_offset >= batch.end_offset), default=None)
                if at is not None:
                    fenced_from[record.broker_id] = (batch.base_offset, at)
    for broker_id, begun in fenced_from.items():
        found += _within(answers, broker_id, *begun, until=None)
    return found


def _within(
    answers: Sequence[Answer], broker_id: int, offset: int, after: int, *, until: int | None
) -> list[str]:
    return [
        f"broker {broker_id}, fenced at offset {offset}, served {(answer.call - after) / 1e6:.0f} ms after that was seen"
        for answer in answers
        if answer.served
        and answer.broker_id == broker_id
        and answer.call > after
        and (until is None or answer.returned < until)
    ]


def _was_silent(batch: RecordBatch) -> bool:
    return batch.envelope.cause is not None and batch.envelope.cause.code == "SESSION_EXPIRED"


def _fenced(record: object) -> bool:
    return isinstance(record, BrokerRegistrationChangeRecord) and record.fenced is True
