"""Edge: clients that read and write registers through the proxies, and record each operation and its answer.

A register is one setting of the cluster, written whatever it holds, or a topic, whose value is one of its settings: it
is created where it is not and deleted where it is, and either is refused otherwise. Each write has a value of its own and
one request id, whatever it takes until it is answered; one that is never answered may have happened, or may yet.
"""

import asyncio
import random
import ssl
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from metadata_log.codec import decode_all
from metadata_log.kafka_settings import BROKER_SETTINGS, PER_BROKER
from tests.robustness.history import Kind, Operation

ATTEMPT_S: Final = 1.0
OPERATION_S: Final = 4.0
THINK_S: Final = 0.02
WATCH_S: Final = 0.2
WRITE_SHARE: Final = 0.32
CONDITIONAL_SHARE: Final = 0.1
TOPIC_READ_SHARE: Final = 0.25
"""Of the reads."""
REGISTERS: Final = tuple(
    name for name, known in BROKER_SETTINGS.items() if known.type == "LONG" and name not in PER_BROKER
)
"""Settings of all brokers that take any number and are shown: the registers that clients write and read."""
TOPICS: Final = 6
TOPIC_SETTING: Final = "flush.messages"
EXISTS: Final = "TOPIC_ALREADY_EXISTS"
UNKNOWN: Final = "UNKNOWN_TOPIC_OR_PARTITION"
NO_BROKER: Final = "INVALID_REPLICATION_FACTOR"
"""No broker is online that could host a new topic."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The first answer that was more than `not now` or `not here`. `in_doubt`: an earlier attempt may yet be carried out."""

    body: dict[str, Any]
    in_doubt: bool

    @property
    def error(self) -> str | None:
        return self.body.get("error")


def new_session(tls: ssl.SSLContext | None = None, *, total_s: float = ATTEMPT_S) -> aiohttp.ClientSession:
    """Return a session that sends each request once. `tls`: under a certificate, to nodes that have one."""
    connector = aiohttp.TCPConnector(ssl=True if tls is None else tls)
    made = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=total_s))
    # A DELETE whose connection ends would be sent again unseen; then a refusal is no proof that it was not carried out.
    made._retry_connection = False
    return made


@dataclass(slots=True)
class Load:
    """What all clients share: where controllers are reached, who leads, and what happened."""

    urls: dict[int, str]
    rng: random.Random
    in_fault: Callable[[], bool]
    tls: ssl.SSLContext | None = None
    history: list[Operation] = field(default_factory=list)
    leader_id: int | None = None
    last_seen: dict[str, str] = field(default_factory=dict)
    """What a topic held when it was last created or read."""
    values: dict[str, str] = field(default_factory=dict)
    """What the topic of an id was created with, where anybody heard so."""
    deleted: list[tuple[Operation, str]] = field(default_factory=list)
    """Deletions, with the ids of what they deleted."""

    async def client(self, number: int, end: float) -> None:
        """Read and write until the monotonic time `end`."""
        rng = random.Random(self.rng.getrandbits(64))
        async with new_session(self.tls) as session:
            client = Client(self, number, session, rng)
            while time.monotonic() < end:
                await client.operate()
                await asyncio.sleep(rng.uniform(0, THINK_S))

    def finish(self) -> list[Operation]:
        """Return the history, once all clients have ended: only now is it known what each deletion found."""
        for done, topic_id in self.deleted:
            if topic_id in self.values:
                done.expected = self.values[topic_id]
            else:
                done.op, done.expected = "write", None  # of what was there, it is known only that it is gone
        return self.history


@dataclass(slots=True)
class Client:
    """Does one operation after the other, and adds to the history what it heard."""

    load: Load
    number: int
    session: aiohttp.ClientSession
    rng: random.Random
    count: int = 0

    async def operate(self) -> None:
        rng = self.rng
        self.count += 1
        register, topic = rng.choice(REGISTERS), f"t{rng.randrange(TOPICS)}"
        kind = rng.random()
        if kind < WRITE_SHARE:
            await self.write(register)
        elif kind < WRITE_SHARE + CONDITIONAL_SHARE:
            await (self.create if rng.random() < 0.5 else self.delete)(topic)
        elif rng.random() < TOPIC_READ_SHARE:
            await self.read_topic(topic)
        else:
            await self.read(register)

    def _begin(self, op: Kind, key: str, value: str | None = None, expected: str | None = None) -> Operation:
        request_id = None if op == "read" else str(uuid.UUID(int=self.rng.getrandbits(128)))
        return Operation(
            self.number,
            op,
            key,
            value,
            None,
            time.monotonic_ns(),
            None,
            None,
            expected,
            request_id,
            self.load.in_fault(),
        )

    def _end(self, done: Operation, *, ok: bool, result: str | None = None) -> None:
        done.ok, done.returned, done.result = ok, time.monotonic_ns(), result

    def _value(self) -> str:
        """Return a value that nobody else writes; it is an integer, as settings of topics are checked."""
        return str(self.number * 10**9 + self.count)

    async def write(self, key: str) -> None:
        done = self._begin("write", key, self._value())
        self.load.history.append(done)
        body = {"cluster": True, "set": {key: done.value}}
        if await self._ask("PATCH", "/v1/configs", done, json=body) is not None:
            self._end(done, ok=True)

    async def read(self, key: str) -> None:
        done = self._begin("read", key)
        answer = await self._ask("GET", "/v1/configs?cluster=1", done)
        if answer is None:
            return  # a read without an answer says nothing
        items = {item["name"]: item["value"] for item in answer.body["items"]}
        self._end(done, ok=True, result=items.get(key))
        self.load.history.append(done)

    async def create(self, name: str) -> None:
        done = self._begin("cas", name, self._value())
        body = {
            "name": name,
            "partitions": 1,
            "replication_factor": 1,
            "configs": {TOPIC_SETTING: done.value},
        }
        answer = await self._ask("POST", "/v1/topics", done, EXISTS, NO_BROKER, json=body)
        if answer is None or (answer.error is not None and answer.in_doubt):
            pass  # of what is refused now, an earlier attempt may be carried out later
        elif answer.error == NO_BROKER:
            return  # whether the topic is there was not asked yet
        elif answer.error == EXISTS:
            self._end(done, ok=False)
        else:
            self._end(done, ok=True)
            assert self._saw(answer.body) == done.value, answer.body
        self.load.history.append(done)

    async def delete(self, name: str) -> None:
        """Delete whatever there is: what the topic held, its id tells; refused, nothing was there."""
        expected = self.load.last_seen.get(name)
        if expected is None:
            return  # nobody has seen it yet
        done = self._begin("cas", name, None, expected)
        answer = await self._ask("DELETE", f"/v1/topics/{name}", done, UNKNOWN)
        if answer is None or (answer.error is not None and answer.in_doubt):
            done.op, done.expected = "write", None  # if it happened, it found whatever was there
        elif answer.error == UNKNOWN:
            self._end(done, ok=False)
        else:
            self._end(done, ok=True)
            self.load.deleted.append((done, answer.body["topic_id"]))
        self.load.history.append(done)

    async def read_topic(self, name: str) -> None:
        done = self._begin("read", name)
        answer = await self._ask("GET", f"/v1/topics/{name}", done, UNKNOWN)
        if answer is None:
            return
        self._end(done, ok=True, result=None if answer.error else self._saw(answer.body))
        self.load.history.append(done)

    def _saw(self, topic: dict[str, Any]) -> str:
        value: str = topic["configs"][TOPIC_SETTING]
        self.load.last_seen[topic["name"]] = self.load.values[topic["topic_id"]] = value
        return value

    async def _ask(
        self, method: str, path: str, done: Operation, *refusals: str, json: object = None
    ) -> _Answer | None:
        """Ask whoever leads until somebody answers, for a while; None: nobody did. `refusals` are answers."""
        load, rng = self.load, self.rng
        headers = {} if done.request_id is None else {"X-Request-Id": done.request_id}
        deadline = time.monotonic() + OPERATION_S
        in_doubt = False
        while time.monotonic() < deadline:
            node_id = load.leader_id or rng.choice(sorted(load.urls))
            try:
                async with self.session.request(
                    method, load.urls[node_id] + path, json=json, headers=headers
                ) as response:
                    answer = await response.json()
            except (aiohttp.ClientError, TimeoutError, ValueError):
                in_doubt = True
                if load.leader_id == node_id:
                    load.leader_id = None
            else:
                if response.status in (200, 201) or answer.get("error") in refusals:
                    load.leader_id = node_id
                    return _Answer(answer, in_doubt)
                if response.status not in (421, 429, 503, 504):
                    raise AssertionError(f"{method} {path}: {response.status} {answer}")
                in_doubt |= response.status == 504
                told = answer.get("controller_id", -1)
                load.leader_id = told if told in load.urls and told != node_id else None
            await asyncio.sleep(rng.uniform(0.005, 0.05))
        return None


@dataclass(slots=True)
class Watcher:
    """Follows the committed log at whichever controller answers: every offset once, in order, the same everywhere."""

    urls: dict[int, str]
    rng: random.Random
    tls: ssl.SSLContext | None = None
    frames: list[bytes] = field(default_factory=list)
    end_offset: int = 0
    last_crc: int = 0
    seen: list[tuple[int, int]] = field(default_factory=list)
    """When (Unix ns) we had the log up to which offset (exclusive)."""
    broken: str | None = None

    async def run(self, stop: asyncio.Event) -> None:
        async with new_session(self.tls) as session:
            while not stop.is_set() and self.broken is None:
                with suppress(aiohttp.ClientError, TimeoutError):
                    await self.follow(session, self.rng.choice(sorted(self.urls)))
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), WATCH_S)

    async def follow(self, session: aiohttp.ClientSession, node_id: int) -> None:
        """Take what one controller has behind our end."""
        url = f"{self.urls[node_id]}/v1/log?consistency=stale&from={self.end_offset}"
        async with session.get(url) as response:
            body = await response.read()
            if response.status != 200:
                return  # it is behind us: OFFSET_IN_FUTURE
        for batch, frame in decode_all(body):
            if (batch.base_offset, batch.previous_crc) != (self.end_offset, self.last_crc):
                self.broken = f"controller {node_id} continued offset {self.end_offset} with a batch at {batch.base_offset}"
                return
            self.frames.append(frame)
            self.end_offset, self.last_crc = batch.end_offset, batch.crc
        self.seen.append((time.time_ns(), self.end_offset))


def write_history(history: list[Operation], path: Path) -> None:
    """Write one JSON object a line, in the order of the calls, for other checkers."""
    with path.open("w") as file:
        file.writelines(f"{done.line()}\n" for done in sorted(history, key=lambda done: done.call))
