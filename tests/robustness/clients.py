"""E: clients that read and write registers through the proxies, and remember exactly what they asked and heard.

A register is one setting of the cluster. Each write has a value of its own and one request id, whatever it takes until
it is answered; one that is never answered may have happened, or may yet.
"""

import asyncio
import json
import random
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from metadata_log.codec import decode_all
from tests.simulation import registers

ATTEMPT_S: Final = 1.0
OPERATION_S: Final = 4.0
THINK_S: Final = 0.02
WATCH_S: Final = 0.2
WRITE_SHARE: Final = 0.4
KEYS: Final = 20


@dataclass(slots=True)
class Operation:
    """One operation; times are monotonic, in ns. `ok` None: nobody knows whether it happened."""

    client: int
    op: str
    key: str
    value: str | None
    ok: bool | None
    call: int
    returned: int | None
    result: str | None
    request_id: str | None = None
    in_fault: bool = False

    def line(self) -> str:
        return json.dumps(
            {
                "client": self.client,
                "op": self.op,
                "key": self.key,
                "value": self.value,
                "expected": None,
                "ok": self.ok,
                "call": self.call,
                "return": self.returned,
                "result": self.result,
            }
        )


@dataclass(slots=True)
class Load:
    """What all clients share: where controllers are reached, who leads, and what happened."""

    urls: dict[int, str]
    rng: random.Random
    in_fault: Callable[[], bool]
    history: list[Operation] = field(default_factory=list)
    leader_id: int | None = None

    async def client(self, number: int, end: float) -> None:
        """Read and write until the monotonic time `end`."""
        rng = random.Random(self.rng.getrandbits(64))
        timeout = aiohttp.ClientTimeout(total=ATTEMPT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            count = 0
            while time.monotonic() < end:
                key = f"r{rng.randrange(KEYS)}"
                count += 1
                if rng.random() < WRITE_SHARE:
                    await self._write(session, number, key, f"{number}-{count}", rng)
                else:
                    await self._read(session, number, key, rng)
                await asyncio.sleep(rng.uniform(0, THINK_S))

    async def _write(
        self, session: aiohttp.ClientSession, number: int, key: str, value: str, rng: random.Random
    ) -> None:
        request_id = str(uuid.UUID(int=rng.getrandbits(128)))
        done = Operation(
            number, "write", key, value, None, time.monotonic_ns(), None, None, request_id, self.in_fault()
        )
        self.history.append(done)
        body = {"cluster": True, "set": {key: value}}
        answer = await self._ask(
            session, rng, "PATCH", "/v1/configs", json=body, headers={"X-Request-Id": request_id}
        )
        if answer is not None:
            done.ok, done.returned = True, time.monotonic_ns()

    async def _read(self, session: aiohttp.ClientSession, number: int, key: str, rng: random.Random) -> None:
        done = Operation(
            number, "read", key, None, False, time.monotonic_ns(), None, None, None, self.in_fault()
        )
        answer = await self._ask(session, rng, "GET", "/v1/configs?cluster=1")
        if answer is None:
            return  # a read without an answer says nothing
        items = {item["name"]: item["value"] for item in answer["items"]}
        done.ok, done.returned, done.result = True, time.monotonic_ns(), items.get(key)
        self.history.append(done)

    async def _ask(
        self, session: aiohttp.ClientSession, rng: random.Random, method: str, path: str, **how: Any
    ) -> Any:
        """Ask whoever leads until somebody answers, for a while; None: nobody did."""
        deadline = time.monotonic() + OPERATION_S
        while time.monotonic() < deadline:
            node_id = self.leader_id or rng.choice(sorted(self.urls))
            try:
                async with session.request(method, self.urls[node_id] + path, **how) as response:
                    answer = await response.json()
                    if response.status == 200:
                        self.leader_id = node_id
                        return answer
                    if response.status not in (421, 429, 503, 504):
                        raise AssertionError(f"{method} {path}: {response.status} {answer}")
                    told = answer.get("controller_id", -1)
                    self.leader_id = told if told in self.urls and told != node_id else None
            except (aiohttp.ClientError, TimeoutError, ValueError):
                if self.leader_id == node_id:
                    self.leader_id = None
            await asyncio.sleep(rng.uniform(0.005, 0.05))
        return None


@dataclass(slots=True)
class Watcher:
    """Follows the committed log at whichever controller answers: every offset once, in order, the same everywhere."""

    urls: dict[int, str]
    rng: random.Random
    frames: list[bytes] = field(default_factory=list)
    end_offset: int = 0
    last_crc: int = 0
    broken: str | None = None

    async def run(self, stop: asyncio.Event) -> None:
        timeout = aiohttp.ClientTimeout(total=ATTEMPT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
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


def check(history: list[Operation]) -> str | None:
    """Return what contradicts linearizability, None if nothing does."""
    return registers.check(
        registers.Operation(
            key=done.key,
            value=(done.value if done.op == "write" else done.result) or registers.NEVER_WRITTEN,
            is_write=done.op == "write",
            began=done.call / 1e9,
            ended=registers.INFINITY if done.returned is None else done.returned / 1e9,
        )
        for done in history
    )


def write_history(history: list[Operation], path: Path) -> None:
    """Write one JSON object a line, in the order of the calls, for other checkers."""
    with path.open("w") as file:
        file.writelines(f"{done.line()}\n" for done in sorted(history, key=lambda done: done.call))
