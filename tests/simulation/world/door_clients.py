"""Clients of a simulated controller's HTTP: who they are, what they ask, and how they cut it into pieces."""

import asyncio
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from metadata_log import limits
from metadata_log.node.identity.rights import ROLES, Right
from tests.simulation.rules.rule import rule
from tests.simulation.world.door_connections import ServerEnd

if TYPE_CHECKING:
    from tests.simulation.world.door_run import DoorRun


ANSWERS_OWED_MAX: Final = 4
"""Whole answers of the log that a client may be owed, beyond what the kernel takes."""
ANSWERED_IN_S: Final = 3.0
"""Polls wait for less, and nothing else waits."""
PRINCIPALS_LIVE: Final = (0.4, 2.5)
GRACE_S: Final = limits.IDENTITY_CHECK_S + 0.1
PEOPLE: Final = ("User:admin", "User:reader", "Broker:11", "Broker:12", "Controller:2")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and what its answer must be held to."""

    data: bytes
    seams: tuple[int, ...]
    """Where a client likes to cut it."""
    method: str
    path: str
    route: tuple[str, str]
    is_foreign: bool = False
    speaks_as: str | None = None
    """The node that it names as its sender."""
    key: str | None = None
    """The setting that it writes."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(slots=True)
class Due:
    asked: Asked
    at: float


@dataclass(frozen=True, slots=True)
class Who:
    """How a client shows itself: by the token or the certificate of a principal, or not at all."""

    name: str | None
    by_certificate: bool = False


@dataclass(slots=True)
class Principals:
    """What stood in the file, and since when."""

    changes: list[tuple[float, dict[str, str]]] = field(default_factory=list)

    def may(self, who: Who, right: Right, since: float, until: float) -> bool:
        """Return whether this principal had a right at any time, as far as the node may know."""
        if right is Right.OPEN:
            return True
        if who.name is None:
            return False
        ends = [at for at, _ in self.changes[1:]] + [float("inf")]
        for (begin, rows), end in zip(self.changes, ends, strict=True):
            if begin > until or end + GRACE_S < since:
                continue
            role = rows.get(who.name)
            if role is None and who.by_certificate:
                role = {"Broker": "broker", "Controller": "controller"}.get(who.name.partition(":")[0])
            if role is not None and (right is Right.IDENTITY or right in ROLES[role]):
                return True
        return False


def token_of(name: str) -> str:
    return f"token-of-{name.replace(':', '-')}-0123456789"


class Client:
    """One client: it connects, asks, and reads at its own pace."""

    who_reads_is_answered = rule("a client that reads is answered within ANSWERED_IN_S")

    def __init__(self, run: "DoorRun") -> None:
        rng = run.rng
        self.run, self.rng, self.loop = run, random.Random(rng.getrandbits(64)), run.loop
        self.address = f"10.0.0.{rng.randint(1, 3)}"
        self.who = Who(rng.choice((None, *PEOPLE, *PEOPLE)), by_certificate=rng.random() < 0.5)
        self.is_page = rng.random() < 0.25
        """Whether a foreign page makes it ask."""
        self.pipelines = rng.random() < 0.4
        self.reads = rng.random() > 0.15
        self.cuts = rng.choice((0.0, 0.3, 0.9))
        """The chance that a request comes in pieces."""
        self.end: ServerEnd | None = None
        self.due: deque[Due] = deque()
        self._received = bytearray()
        self._wakes = asyncio.Event()
        self._reads_later = False

    # --- its connection

    def connect(self) -> None:
        self.due.clear()
        self._received.clear()
        self.end = self.run.connect(self)

    def written_to(self) -> None:
        """Take what the server sent, in a moment; unless this client reads nothing."""
        if not self._reads_later and self.reads:
            self._reads_later = True
            self.loop.call_outside(self.rng.uniform(0.0, 0.004), self._read)

    def _read(self) -> None:
        self._reads_later = False
        end = self.end
        if end is None:
            return
        self._received += end.take(self.rng.choice((100, 5_000, 1 << 20)))
        while self._received and self._take_answer():
            pass
        if end.unread:
            self.written_to()
        self._wakes.set()

    def _take_answer(self) -> bool:
        """Hold the next answer to the rules, if all of it is here."""
        head, separator, rest = bytes(self._received).partition(b"\r\n\r\n")
        if not separator:
            return False
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            size = _chunked_bytes(rest)
            if size is None:
                return False
        else:
            size = int(headers.get("content-length", 0))
        if len(rest) < size:
            return False
        status = int(first.split(" ")[1])
        del self._received[: len(head) + 4 + size]
        if not self.due:
            self.run.answers_nothing(first)
            return False
        self.run.check_answer(self, self.due.popleft(), status, headers)
        return True

    def check_answered(self) -> None:
        if self.reads and self.due and self.end is not None and not self.end.is_closing_:
            waited = self.loop.time() - self.due[0].at
            if waited > ANSWERED_IN_S:
                raise self.who_reads_is_answered(f"{self.due[0].asked} waits for {waited:.1f} s")

    # --- what it does

    async def live(self) -> None:
        rng = self.rng
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        while True:
            if self.end is None or self.end.is_lost:
                self.connect()
            await self._ask()
            await asyncio.sleep(rng.choice((0.0, 0.001, 0.02, 0.2)))
            if rng.random() < 0.04:
                assert self.end is not None
                self.end.lose(ConnectionResetError())

    async def _ask(self) -> None:
        rng = self.rng
        asked = self.run.request_of(self)
        pieces = [asked.data]
        if rng.random() < self.cuts:
            places = {rng.choice(asked.seams) for _ in range(rng.choice((0, 1, 1, 3)))}
            places |= {rng.randrange(len(asked.data)) for _ in range(rng.choice((0, 0, 0, 1, 4)))}
            cuts = sorted(places)
            pieces = [
                asked.data[begin:stop]
                for begin, stop in zip((0, *cuts), (*cuts, len(asked.data)), strict=True)
            ]
        end = self.end
        assert end is not None
        self.due.append(Due(asked, self.loop.time()))
        for piece in pieces:
            if piece and not end.is_lost:
                self.loop.call_soon(end.arrive, piece)
                await asyncio.sleep(rng.choice((0.0, 0.001, 0.01)))
        if self.pipelines or not self.reads:
            return
        while self.due and not end.is_lost:
            self._wakes.clear()
            await self._wakes.wait()


def _chunked_bytes(data: bytes) -> int | None:
    """Return how long a body in chunks is; None: its end is not here."""
    at = 0
    while True:
        line_end = data.find(b"\r\n", at)
        if line_end < 0:
            return None
        size = int(data[at:line_end], 16)
        at = line_end + 2 + size + 2
        if at > len(data):
            return None
        if not size:
            return at
