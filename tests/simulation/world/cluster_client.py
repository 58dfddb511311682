"""Clients of a simulated cluster."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from metadata_log.errors import NotController, OutcomeUnknown, Unavailable
from metadata_log.ids import NodeId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.configs import BROKER
from quorum.decide.configs import AlterConfigs
from tests.simulation.rules.registers import NEVER_WRITTEN, Operation
from tests.simulation.rules.rule import rule
from tests.simulation.world.cluster_node import uuid

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld
    from tests.simulation.world.node import SimulatedNode


KEY_SECONDS = 20.0
"""After this time clients use other keys, so that the history of each key stays short."""
REPEATER = 0xBE
"""In place of a client's number."""
WRITES_PER_SECOND = 44.0
BURSTS = (1, 1, 4, 8, 16)
"""How many writes a client sends at once."""


class SimulatedClient:
    """Reads and writes registers that it shares with others; a write goes under one request id until it is answered."""

    def __init__(self, world: "ClusterWorld", number: int) -> None:
        self.world = world
        self.number = number
        self.acknowledged = 0
        self._node = world.rng.choice(list(world.nodes.values()))

    def key(self) -> str:
        window = int(self.world.loop.time() / KEY_SECONDS)
        return f"k{window}-{self.world.rng.randrange(3)}"

    async def live(self) -> None:
        """Write at a steady mean rate, in bursts; what an outage held up is made up for after it."""
        world, rng, written = self.world, self.world.rng, 0
        bursts_per_second = WRITES_PER_SECOND / len(world.clients) * len(BURSTS) / sum(BURSTS)
        due = world.loop.time()
        while not world.violations and not world.is_quiet:
            due += rng.expovariate(bursts_per_second)
            await asyncio.sleep(max(due - world.loop.time(), rng.uniform(0.001, 0.01)))
            burst = rng.choice(BURSTS)
            if burst == 1:
                await self._write(written + 1)
            else:
                await asyncio.gather(*(self._write(written + 1 + number) for number in range(burst)))
            written += burst

    async def _write(self, value: int) -> None:
        world, rng, key = self.world, self.world.rng, self.key()
        request_id = uuid((self.number << 32) + value)
        world.subjects[request_id] = key
        text = f"{self.number}.{value}"
        command = AlterConfigs(resource_type=BROKER, resource_name="", set={key: text}, unset=())
        operation = Operation(key=key, value=text, is_write=True, began=world.loop.time())
        world.history.append(operation)
        while not world.violations:
            try:
                async with asyncio.timeout(2.0):
                    written = await world.submit(self._node, command, request_id)
            except NotController as error:
                self._go_on(error)
                if error.context.get("controller_url") is not None:
                    continue
            except Unavailable:
                pass
            except (TimeoutError, ConnectionError, OutcomeUnknown):
                self._go_on(None)
                if rng.random() < 0.1:
                    return  # nobody will ever know
            else:
                operation.ended = world.loop.time()
                world.acknowledged[request_id] = written.base_offset
                self.acknowledged += 1
                return
            await asyncio.sleep(rng.uniform(0.005, 0.05))

    def _go_on(self, error: NotController | None) -> None:
        """Ask another node: the one that was named, else any."""
        url = None if error is None else error.context.get("controller_url")
        nodes = self.world.nodes
        self._node = (
            self.world.rng.choice(list(nodes.values()))
            if url is None
            else nodes[NodeId(int(str(url).removeprefix("http://")))]
        )

    async def read(self, key: str, aimed_at: "SimulatedNode | None" = None) -> None:
        world = self.world

        def value(image: MetadataImage) -> str:
            settings = image.configs.get((BROKER, ""))
            return NEVER_WRITTEN if settings is None else settings.get(key, NEVER_WRITTEN)

        node = aimed_at or (
            self._node if world.rng.random() < 0.5 else world.rng.choice(list(world.nodes.values()))
        )
        began = world.loop.time()
        with suppress(TimeoutError, ConnectionError, NotController):
            async with asyncio.timeout(2.0):
                found = await world.remote(node, lambda controller: controller.read(value))
            world.reads_answered += 1
            world.history.append(
                Operation(key=key, value=found, is_write=False, began=began, ended=world.loop.time())
            )


class Answered(NamedTuple):
    """A request that was answered."""

    request_id: Uuid
    command: AlterConfigs


class Repeater:
    """Repeats requests long after they were answered.

    As long as the answer is kept, it is the first one again. Once it is evicted, the request is carried out as a new one.
    """

    repetition_gets_first_answer = rule("a request that is repeated gets the offset of its first answer")

    def __init__(self, world: "ClusterWorld", every: float) -> None:
        self._world = world
        self._every = every
        self._answered: list[Answered] = []

    async def live(self) -> None:
        world, rng = self._world, self._world.rng
        count = 0
        while not world.violations and not world.is_quiet:
            await asyncio.sleep(rng.expovariate(1 / self._every))
            count += 1
            command = AlterConfigs(
                resource_type=BROKER, resource_name="", set={"repeated": str(count)}, unset=()
            )
            request_id = uuid((REPEATER << 32) + count)
            if await self._ask(command, request_id) is not None:
                self._answered.append(Answered(request_id, command))
            if self._answered:
                await self._repeat(rng.randrange(len(self._answered)))

    async def _repeat(self, at: int) -> None:
        world, first = self._world, self._answered[at]
        known = world.properties.requests[first.request_id]
        base_offset = await self._ask(first.command, first.request_id)
        if base_offset is None or base_offset in known:
            return
        if not world.properties.may_be_evicted(known[-1]):
            world.violated(
                self.repetition_gets_first_answer(
                    f"{first.request_id.hex()} was answered at {known[-1]}, then at {base_offset}"
                )
            )
        world.sometimes("evicted request carried out again")

    async def _ask(self, command: AlterConfigs, request_id: Uuid) -> int | None:
        """Return at which offset a request was carried out; None if nobody says so."""
        world = self._world
        for node in world.rng.sample([*world.nodes.values()], len(world.nodes)):
            with suppress(TimeoutError, ConnectionError, Unavailable, OutcomeUnknown):
                async with asyncio.timeout(2.0):
                    return (await world.submit(node, command, request_id)).base_offset
        return None
