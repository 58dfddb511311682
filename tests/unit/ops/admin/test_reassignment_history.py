"""Edge: the history of reassignments, of the live log and of an export of it."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metadata_log.apply import apply
from metadata_log.batch import NO_ENVELOPE, Envelope
from metadata_log.codec import decode
from metadata_log.errors import Rejected
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.replay.engines import DuckDb
from metadata_log.replay.export import export_log
from metadata_log.replay.library import Log
from metadata_log.replay.tables import open_export
from metadata_log.wire.commands import AlterPartition, Command, IsrMember, ReportedIsr
from ops.admin.explain import History
from ops.admin.explain import Step as Before
from ops.admin.reassignment_history import Found, reassignments_of
from quorum.decide.decision import Decision
from quorum.decide.deleted_topics import UndeleteTopics
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment
from quorum.decide.topics import DeleteTopic
from tests.support.decisions import CLUSTER_ID, World, ids
from tests.support.exports import frames_of
from tests.support.histories import Step

pytestmark = pytest.mark.slow


class Operators(World):
    """A world whose batches have their causes and actors, and come some time after each other."""

    def carry_out(self, decision: Decision) -> None:
        self.envelope = Envelope(actor=f"User:{self.now_ms % 3}", cause=decision.cause)
        super().carry_out(decision)
        self.envelope = NO_ENVELOPE

    def ask(self, command: Command) -> None:
        self.now_ms += 700
        decision = self.decide(command)
        if decision.refusal is not None:
            raise decision.refusal

    def reassign(self, topic: str, partition: int, replicas: str | None) -> None:
        wanted = None if replicas is None else ids(replicas)
        self.ask(
            AlterPartitionReassignments(
                reassignments=(Reassignment(topic, partition, wanted),), allow_replication_factor_change=True
            )
        )

    def report(self, topic: str, partition_id: int) -> None:
        """Report every replica that may join in the ISR."""
        topic_id = self.image.topics.ids[topic]
        partition = self.image.topics.by_id[topic_id].partitions[partition_id]
        fit = [
            broker_id
            for broker_id in sorted({*partition.replicas, *partition.isr})
            if broker_id in partition.replicas
            and (broker := self.image.brokers.get(broker_id)) is not None
            and not broker.fenced
        ]
        if partition.leader not in fit:
            return
        self.ask(
            AlterPartition(
                broker_id=partition.leader,
                broker_epoch=self.image.brokers[partition.leader].broker_epoch,
                partitions=(
                    ReportedIsr(
                        topic_id,
                        partition_id,
                        partition.leader_epoch,
                        partition.partition_epoch,
                        tuple(IsrMember(one, -1) for one in fit),
                        partition.leader_recovery_state,
                    ),
                ),
            )
        )


def a_world(seed: int = 1) -> Operators:
    world = Operators(seed=seed, undelete_window_ms=40_000)
    for broker_id in (1, 2, 3, 4, 5):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    world.run("create t on=1,2/2,3/3,1")
    world.run("create u on=1,2,3")
    return world


def steps_of(world: World) -> list[Step]:
    steps: list[Step] = []
    image = EMPTY
    for frame in world.frames:
        batch, _ = decode(frame)
        image = apply(image, batch).image
        steps.append(Step(batch, frame, image))
    return steps


def found_in(steps: list[Step], *, begin: int = 0, most: int = 1_000, since: int = 0) -> Found:
    def before() -> Iterator[Before]:
        image = EMPTY if begin == 0 else steps[begin - 1].image
        for step in steps[begin:]:
            yield Before(image, step.batch)
            image = step.image

    history = History(EMPTY if begin == 0 else steps[begin - 1].image, before())
    return reassignments_of(
        history,
        is_wanted=lambda one: one.begun_offset is None or one.begun_offset >= since,
        most=most,
    )


def shown(found: Found) -> list[dict[str, Any]]:
    return [one.shown(found.now_ms) for one in found.items]


def exported(steps: list[Step], directory: Path, *, begin: int = 0) -> list[dict[str, Any]]:
    """Return what an export of the log tells, with the names of the command line."""
    at: MetadataImage | None = steps[begin - 1].image if begin else None
    export_log(
        frames_of(steps),
        directory,
        cluster_id=CLUSTER_ID,
        from_offset=0 if at is None else at.end_offset,
        snapshot=at,
    )
    log = Log(DuckDb(is_quick=True), open_export(directory))
    rows = log.engine.arrow(log.table_of("reassignments")).to_pylist()
    return [
        {
            "topic": row["topic_name"],
            "partition": row["partition"],
            "topic_id": row["topic_id"],
            "begun_offset": row["begun_offset"],
            "begun_ms": _ms(row["begun_ts"]),
            "actor": row["actor"],
            "from": row["from_replicas"],
            "to": row["to_replicas"],
            "ended": row["ended"],
            "ended_offset": row["ended_offset"],
            "ended_ms": _ms(row["ended_ts"]),
            "duration_ms": row["duration_ms"],
            "why_stuck": row["why_stuck"],
        }
        for row in rows
    ]


def _ms(time: Any) -> int | None:
    return None if time is None else round(time.timestamp() * 1_000)


def test_each_reassignment_is_told_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    """C21: completed, cancelled, replaced, at once, under way, stuck, and gone with its topic."""
    world = a_world()
    world.reassign("t", 0, "3,4")
    world.report("t", 0)
    world.reassign("t", 1, "4,5")
    world.reassign("t", 1, None)
    world.reassign("t", 2, "4,1")
    world.reassign("t", 2, "5,1")
    world.reassign("u", 0, "3,2,1")
    world.reassign("u", 0, "4,2,1")
    world.run("delete u")
    world.ask(UndeleteTopics(topics=("u",)))
    world.run("delete u")
    world.ask(DeleteTopic(name="u", now=True))
    world.run("expire 5")
    steps = steps_of(world)
    told = shown(found_in(steps))
    assert [(one["topic"], one["partition"], one["from"], one["to"], one["ended"]) for one in told] == [
        ("t", 0, [1, 2], [3, 4], "completed"),
        ("t", 1, [2, 3], [4, 5], "cancelled"),
        ("t", 2, [3, 1], [4, 1], "replaced"),
        ("t", 2, [4, 1, 3], [5, 1], None),
        ("u", 0, [1, 2, 3], [3, 2, 1], "completed"),
        ("u", 0, [3, 2, 1], [4, 2, 1], "topic deleted"),
    ]
    assert told[0]["actor"] is not None
    assert told[3]["why_stuck"] == "broker 5, which is added, is fenced"
    assert told[4]["duration_ms"] == 0
    assert exported(steps, tmp_path) == told


def test_a_long_history_is_told_in_pages(tmp_path: Path) -> None:
    """Goal: nothing is left out or told twice. Method: pages of two, each from where the one before says."""
    world = a_world()
    for replicas in ("3,4", "1,2", "4,5", "2,3", "5,1"):
        world.reassign("t", 0, replicas)
    steps = steps_of(world)
    whole = shown(found_in(steps))
    since, paged = 0, []
    while True:
        page = found_in(steps, most=2, since=since)
        paged += shown(page)
        if page.next_offset is None:
            break
        since = page.next_offset
    assert paged == whole
    assert exported(steps, tmp_path) == whole


@pytest.mark.parametrize("seed", range(3))
def test_the_live_log_and_its_export_tell_the_same(tmp_path: Path, seed: int) -> None:
    """Goal: two readers, one history. Method: random operators; both read from the beginning, and from a snapshot."""
    rng = random.Random(seed)
    world = a_world(seed)
    for _ in range(120):
        topic = rng.choice(("t", "u", "v"))
        known = world.image.topics.named(topic)
        partition = rng.randrange(len(known.partitions)) if known is not None else 0
        try:
            match rng.randrange(12):
                case 0 | 1 | 2 | 3:
                    replicas = rng.sample(range(1, 6), rng.randrange(1, 5))
                    world.reassign(topic, partition, ",".join(map(str, replicas)))
                case 4:
                    world.reassign(topic, partition, None)
                case 5 | 6 | 7 if known is not None:
                    world.report(topic, partition)
                case 8:
                    world.run(f"expire {rng.randrange(1, 6)}")
                case 9:
                    world.run(f"heartbeat {rng.randrange(1, 6)}")
                case 10:
                    world.run(f"create {topic} on=1,2/4,5" if known is None else f"delete {topic}")
                case 11:
                    back = rng.random() < 0.6
                    world.ask(UndeleteTopics(topics=(topic,)) if back else DeleteTopic(name=topic, now=True))
        except Rejected:
            continue
    steps = steps_of(world)
    told = shown(found_in(steps))
    assert exported(steps, tmp_path / "whole") == told
    begin = rng.randrange(10, len(steps))
    rest = shown(found_in(steps, begin=begin))
    assert exported(steps, tmp_path / "rest", begin=begin) == rest
    first = steps[begin].batch.base_offset
    begun_later = [one for one in rest if one["begun_offset"] is not None]
    assert begun_later == [one for one in told if one["begun_offset"] >= first]
