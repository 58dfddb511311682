"""Rules of what controllers answer to those who follow the log, and an observer that follows it at any controller.

What an answer must be is read from the states that were committed, by their offsets.
"""

import asyncio
import random
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from broker_agent.follower import Follower, Position, position_of
from metadata_log.errors import MetadataError
from metadata_log.sliced import at_once
from metadata_log.wire.fetch import (
    OBSERVER,
    BrokerState,
    FetchAnswer,
    FetchKind,
    FetchRequest,
    decode_fetch_body,
    encode_fetch_body,
)
from tests.simulation.rules.rule import rule
from tests.simulation.world.cluster_node import CLUSTER_ID, READS, ClusterNode
from tests.support.callers import anybody
from tests.support.lab import fetch_of

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld
    from tests.simulation.world.cluster_controller import SimulatedController


LOOK_SECONDS: Final = 0.25
WOKEN_SECONDS: Final = 1.0
"""Within so long an awake controller has a poll answered for which there is news."""
LEADER_SECONDS: Final = 0.1
"""A follower looks only now and then whether its leader is heard."""
OBSERVER_WAIT_MS: Final = 500
OBSERVER_BYTES: Final = 8_000
STRANGE_POLLS: Final = 0.03
"""The share of an observer's polls before which another one asks from a history that is not the log's."""
STRANGE_BACK: Final = 100
"""Such a history parts from the log at one of so many newest states."""


def check_answer(
    world: "ClusterWorld", request: FetchRequest, answer: FetchAnswer, frames: bytes, first_offset: int | None
) -> None:
    """Hold an answer to the state that the log has at its high watermark."""
    if frames and first_offset != request.fetch_offset:
        raise Observer.answers_continue(f"asked from {request.fetch_offset}, answered from {first_offset}")
    image = world.properties.images.get(answer.high_watermark)
    if image is None:
        return
    broker, expected = image.brokers.get(request.broker_id), None
    if broker is not None and broker.broker_epoch == request.broker_epoch:
        if broker.fenced:
            expected = BrokerState.FENCED
        else:
            expected = BrokerState.STOPPING if broker.in_controlled_shutdown else BrokerState.ONLINE
    if answer.broker_state is not expected:
        raise Observer.states_are_the_logs(
            f"{request.broker_id} hears {answer.broker_state} and is {expected} at {image.end_offset}"
        )


async def watch_polls(controller: "SimulatedController") -> None:
    """Look at the polls of one controller, and at its feeds, as long as its process runs."""
    world, loop = controller.world, controller.world.loop
    rng = random.Random(world.seed ^ 0xFEED ^ controller.incarnation)
    stale: dict[int, float] = {}
    is_busy = world.profile.is_heavy or world.profile.is_weighty
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        await controller.node.awake()
        controller.heard_of.check_waiters()
        end, now = controller.committed_log.end_offset, loop.time()
        polls = controller.fetches.polls
        if polls._ready and not polls._slices._is_due:
            raise Observer.polls_are_woken(f"{len(polls._ready)} polls are due, and no slice is")
        waiting = {id(poll): poll for poll in polls.under_way if not poll.is_over}
        # One for which there was news when it arrived waits for a proof of the leadership, perhaps until that is lost.
        late = {number for number, poll in waiting.items() if 0 < poll.arrived_end <= poll.waits_at < end}
        stale = {number: stale.get(number, now) for number in late}
        if controller.is_active and not is_busy:
            # A poll that is far behind waits for a thread that reads segments, too.
            could_not_until = max(controller.node.rested_until, controller.node.busy_until[READS])
            for number, since in stale.items():
                if now - max(since, could_not_until) > WOKEN_SECONDS:
                    request = waiting[number].request
                    raise Observer.polls_are_woken(
                        f"{request.broker_id} waits at {waiting[number].waits_at} of {end}"
                    )
        _check_names(controller, rng)


def _check_names(controller: "SimulatedController", rng: random.Random) -> None:
    """Ask for a filter of a topic's name from an offset of a while ago on."""
    images, feeds = controller.world.properties.images, controller.feeds
    ends = [*images]
    newest = bisect_right(ends, controller.committed.end_offset)
    if newest < 2:
        return
    image = images[ends[rng.randrange(max(newest - 100, 0), newest)]]
    names = sorted({*image.topics.ids, *controller.committed.topics.ids})
    if not names:
        return
    name = rng.choice(names)
    made = feeds.filter_at(image.end_offset, names=(name,), ids=())
    if made is None:
        return
    living = {topic_id for topic_id, topic in image.topics.by_id.items() if topic.name == name}
    expected = living | {topic_id for topic_id, of in image.topics.deleted.items() if of.topic.name == name}
    if {*made.ids} != expected:
        raise Observer.feeds_know_the_names(
            f"at {image.end_offset} {len(made.ids)} topics are named {name}, and not {len(expected)}"
        )


class Observer:
    """Follows the log by the polls that a follower may answer, at whichever controller."""

    states_are_the_logs = rule(
        "the state that an answer names is that of the registration at the answer's high watermark"
    )
    answers_continue = rule("the frames of an answer begin where the poll asked")
    strangers_get_no_delta = rule("nobody is sent frames behind a batch that is not the log's")
    polls_are_woken = rule("no poll waits on, once there is news for it")
    observers_are_current = rule(
        "a controller without a leader answers no observer, and none is told that it diverges"
    )
    feeds_know_the_names = rule("a filter from an earlier offset knows the topics that bore its names there")

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self._rng = random.Random(world.seed ^ 0x0B5)
        self._follower = Follower()

    async def live(self) -> None:
        world = self._world
        while not world.violations and not world.is_quiet:
            node = self._rng.choice([*world.nodes.values()])
            assert isinstance(node, ClusterNode)
            for _ in range(self._rng.randrange(1, 8)):
                try:
                    async with asyncio.timeout(2.0):
                        if self._rng.random() < STRANGE_POLLS:
                            await self._poll_as_stranger(node)
                        answer, frames = await self._poll(node, self._follower.position)
                except (TimeoutError, ConnectionError, MetadataError):
                    await asyncio.sleep(0.05)
                    break
                await self._take(answer, frames)

    async def _poll_as_stranger(self, node: ClusterNode) -> None:
        """Ask from where another history than the log's ends: as long as one of the log, with another last batch."""
        images = self._world.properties.images
        ends = [*images][-STRANGE_BACK:]
        if not ends:
            return
        image = images[self._rng.choice(ends)]
        at = position_of(image)._replace(last_crc=image.last_crc ^ 1)
        answer, frames = await self._poll(node, at)
        if frames:
            raise self.strangers_get_no_delta(
                f"node {node.node_id} answers {answer.kind.name} behind a foreign batch at {image.end_offset}"
            )

    async def _poll(self, node: ClusterNode, at: Position) -> tuple[FetchAnswer, bytes]:
        request = replace(
            fetch_of(OBSERVER, -1, applied=at.fetch_offset),
            cluster_id=CLUSTER_ID,
            last_epoch=at.last_epoch,
            last_crc=at.last_crc,
            max_bytes=OBSERVER_BYTES,
            max_wait_ms=OBSERVER_WAIT_MS,
        )

        async def serve(controller: "SimulatedController") -> tuple[FetchAnswer, bytes]:
            reply = await controller.fetches.fetch(request, anybody(), takes_stale=True)
            self._check_leader(controller)
            return decode_fetch_body(encode_fetch_body(reply.answer, reply.frames))

        answer, frames = await self._world.remote(node, serve, is_poll=True)
        batches = [received.batch for received in self._world.received(frames)]
        check_answer(self._world, request, answer, frames, batches[0].base_offset if batches else None)
        return answer, frames

    def _check_leader(self, controller: "SimulatedController") -> None:
        if controller.is_active or not controller.is_running:
            return
        world, node = self._world, controller.node
        now = world.loop.time()
        heard = max(controller.led_until, world.checks.rules.last_heard.get(node.node_id, -1.0))
        bound = world.settings.election_timeout_min_ms / 1000 + LEADER_SECONDS
        if now - heard > bound and now - node.rested_until > bound and not node.is_leader():
            raise self.observers_are_current(f"node {node.node_id} heard its leader at {heard:.3f} s")

    async def _take(self, answer: FetchAnswer, frames: bytes) -> None:
        world = self._world
        match answer.kind:
            case FetchKind.DELTA:
                for batch in (received.batch for received in world.received(frames)):
                    applied = at_once(self._follower.making(batch))
                    self._follower.take(batch, applied)
                    world.properties.applied("an observer", batch, applied.image)
            case FetchKind.IMAGE:
                assert answer.snapshot is not None
                image = await world.download(answer.snapshot)
                if image is not None:
                    self._follower.replace(image)
            case FetchKind.DIVERGING:
                world.violated(self.observers_are_current("one was told that its history diverges"))
