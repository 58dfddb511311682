"""Clients that contest the same few topic names: the check decides whether each refusal is right.

The value of a topic is a setting of its creation, a new one each time. The answers are checked as the robustness run
checks its clients' (`tests.robustness.history`): a refusal by a controller that was deposed, or that rests on what never
committed, fits no order.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from metadata_log.errors import (
    InvalidReplicationFactor,
    NotController,
    OutcomeUnknown,
    Rejected,
    TopicAlreadyExists,
    Unavailable,
    UnknownTopicOrPartition,
)
from metadata_log.ids import NodeId, TopicId, Uuid, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.configs import TOPIC
from metadata_log.wire.commands import Command
from quorum.decide.topics import CreateTopic, DeleteTopic
from tests.robustness.history import Kind, Operation, check
from tests.simulation.rules.rule import rule

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld


SETTING = "retention.ms"
NAMES = 2
NAME_SECONDS = 20.0
"""After this time they use other names, so that the history of each name stays short."""
PAUSE_SECONDS = 0.3
"""Mean time between two operations of one contender."""
PATIENCE_SECONDS = 6.0
ATTEMPT_SECONDS = 2.0


class Contest:
    """What all contenders of one world asked and heard."""

    contest_is_linearizable = rule(
        "clients that create, delete and read the same topics hear what fits one order"
    )

    def __init__(self, world: "ClusterWorld") -> None:
        self.world = world
        self.history: list[Operation] = []
        self.refused = 0
        self._values: dict[str, str] = {}
        """What each topic held, by its id."""
        self._node = world.rng.choice(list(world.nodes.values()))
        """Who answered last."""
        self._deleted: list[tuple[Operation, str]] = []
        """What was deleted by id; what it held, the log tells."""

    def created(self, topic_id: TopicId, value: str) -> None:
        """Take from the log what a topic was created with."""
        self._values[uuid_text(topic_id)] = value

    def contradiction(self) -> str | None:
        for done, topic_id in self._deleted:
            done.expected = self._values[topic_id]
        return check(self.history)

    async def contend(self, client: int) -> None:
        """Create, delete and read, one after the other."""
        world, rng = self.world, self.world.rng
        count = 0
        while not world.violations and not world.is_quiet:
            await asyncio.sleep(rng.expovariate(1 / PAUSE_SECONDS))
            count += 1
            name = f"c{int(world.loop.time() / NAME_SECONDS)}-{rng.randrange(NAMES)}"
            request_id = Uuid(((0xC0 + client << 32) + count).to_bytes(16, "little"))
            world.subjects[request_id] = name
            kind = rng.random()
            if kind < 0.4:
                await self._create(client, name, str(client * 10**6 + count), request_id)
            elif kind < 0.7:
                await self._delete(client, name, request_id)
            else:
                await self._read(client, name)

    def _begin(self, client: int, op: Kind, name: str, value: str | None) -> Operation:
        return Operation(client, op, name, value, None, self._now_ns(), None, None)

    def _end(self, done: Operation, *, ok: bool, result: str | None = None) -> None:
        done.ok, done.returned, done.result = ok, self._now_ns(), result

    def _now_ns(self) -> int:
        return int(self.world.loop.time() * 1e9)

    async def _create(self, client: int, name: str, value: str, request_id: Uuid) -> None:
        done = self._begin(client, "cas", name, value)
        command = CreateTopic(
            name=name,
            partitions=1,
            replication_factor=1,
            assignment=None,
            configs={SETTING: value},
            validate_only=False,
        )
        answer, in_doubt = await self._submit(command, request_id)
        if answer is None or (isinstance(answer, Rejected) and in_doubt):
            pass  # of what is refused now, an earlier attempt may be carried out later
        elif isinstance(answer, InvalidReplicationFactor):
            return  # no broker is up; whether the topic is there was not asked yet
        elif isinstance(answer, TopicAlreadyExists):
            self.refused += 1
            self._end(done, ok=False)
        elif isinstance(answer, Rejected):
            raise answer
        else:
            self._end(done, ok=True)
        self.history.append(done)

    async def _delete(self, client: int, name: str, request_id: Uuid) -> None:
        done = self._begin(client, "write", name, None)
        answer, in_doubt = await self._submit(DeleteTopic(name=name), request_id)
        if answer is None or (isinstance(answer, Rejected) and in_doubt):
            pass
        elif isinstance(answer, UnknownTopicOrPartition):
            self.refused += 1
            done.op = "read"  # it found nothing
            self._end(done, ok=True)
        elif isinstance(answer, Rejected):
            raise answer
        else:
            done.op = "cas"
            self._end(done, ok=True)
            self._deleted.append((done, uuid_text(answer.topic_id)))
        self.history.append(done)

    async def _read(self, client: int, name: str) -> None:
        done = self._begin(client, "read", name, None)
        world = self.world

        def value(image: MetadataImage) -> str | None:
            return None if image.topics.named(name) is None else image.configs[TOPIC, name][SETTING]

        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                node = (
                    self._node if world.rng.random() < 0.5 else world.rng.choice(list(world.nodes.values()))
                )
                found = await world.remote(node, lambda controller: controller.read(value))
        except (TimeoutError, ConnectionError, NotController):
            return  # a read without an answer says nothing
        self._end(done, ok=True, result=found)
        self.history.append(done)

    async def _submit(self, command: Command, request_id: Uuid) -> tuple[Any, bool]:
        """Ask whoever leads until somebody answers, for a while; return the answer or the refusal, None if there was
        neither, and whether an earlier attempt may yet be carried out.
        """
        world, rng = self.world, self.world.rng
        in_doubt = False
        until = world.loop.time() + PATIENCE_SECONDS
        while world.loop.time() < until:
            try:
                async with asyncio.timeout(ATTEMPT_SECONDS):
                    return (await world.submit(self._node, command, request_id)).outcome, in_doubt
            except Rejected as refusal:
                return refusal, in_doubt
            except (TimeoutError, ConnectionError, OutcomeUnknown):
                in_doubt, named = True, None
            except (NotController, Unavailable) as error:
                named = error.context.get("controller_url")
            self._node = (
                rng.choice(list(world.nodes.values()))
                if named is None
                else world.nodes[NodeId(int(str(named).removeprefix("http://")))]
            )
            await asyncio.sleep(rng.uniform(0.005, 0.05))
        return None, in_doubt
