"""Edge: the story of consumer groups: who gets which partition, who coordinates, how members join, and where keys go.

Tests: tests/kafka/stories.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from ops.kafka.clients import settings
from ops.kafka.properties import LOG_DIRS
from ops.stories.members import (
    OFFSETS_TOPIC,
    Member,
    coordinator,
    partition_of,
    place_offsets_topic,
)
from ops.stories.probe import CLIENT_S, SILENT
from ops.stories.stage import DEADLINE_S, Facts, Sent, Stage

PARTITIONS: Final = 4
RECORDS: Final = 40
GROUPS: Final = 12
KEYS: Final = 24
HEARTBEAT_MS: Final = 300
"""A member learns with its next heartbeat that another one joins."""


def run(stage: Stage) -> Facts:
    """Share four partitions among 2, 4 and 5 consumers, and look behind that."""
    place_offsets_topic(stage)
    facts: Facts = {}
    replicas = [(stage.ids[number % 3],) for number in range(PARTITIONS)]
    _shares(stage, facts, stage.new_topic("shared", replicas))
    _coordinators(stage, facts)
    _joining(stage, facts, stage.new_topic("joined", replicas))
    _keys(stage, facts, stage.new_topic("keyed", replicas))
    return facts


def consumer(
    stage: Stage,
    group: str,
    topic: str,
    on_assign: Callable[[Consumer, object], None] = lambda _member, _share: None,
    **more: str | float | bool,
) -> Consumer:
    """Return a consumer that has subscribed to a topic; `on_assign` is called with each share that it gets."""
    chosen = {
        "group_id": group,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        **more,
    }
    member = Consumer(settings(stage.bootstrap, **chosen), logger=SILENT)
    member.subscribe([topic], on_assign=on_assign)
    return member


# --- shares


def _shares(stage: Stage, facts: Facts, topic: str) -> None:
    group, found = f"group-{topic}", Counter[int]()
    members: list[Consumer] = []
    assigned: list[Consumer] = []
    stage.step(
        f"{PARTITIONS} partitions; 2, 4 and 5 consumers in one group",
        "a partition goes to one consumer of a group; a consumer too many is idle",
    )
    facts["shares"] = {}
    for number, expected in ((2, [2, 2]), (4, [1, 1, 1, 1]), (5, [0, 1, 1, 1, 1])):
        members += [
            consumer(stage, group, topic, lambda member, _share: assigned.append(member))
            for _ in range(number - len(members))
        ]
        _until_shared(stage, members, expected, found, assigned)
        facts["shares"][number] = stage.expect(f"shares of {number} consumers", _sizes(members), expected)
    stage.step("another group of one consumer", "groups know nothing of each other: each gets every record")
    other, others = consumer(stage, f"other-{topic}", topic), Counter[int]()
    _until_shared(stage, [other], [PARTITIONS], others)
    facts["other_group"] = stage.expect("its share", _sizes([other]), [PARTITIONS])
    producer, sent = stage.producer("all"), Sent()
    for number in range(RECORDS):
        producer.produce(
            topic, partition=number % PARTITIONS, value=b"%d" % number, on_delivery=sent.delivered
        )
    producer.flush(DEADLINE_S)
    stage.until(
        "both groups have read all records",
        lambda: len(_read(members, found)) == RECORDS and len(_read([other], others)) == RECORDS,
    )
    facts["read"] = stage.expect(
        "records that each group read, and how often each",
        {"group": (len(found), set(found.values())), "other": (len(others), set(others.values()))},
        {"group": (RECORDS, {1}), "other": (RECORDS, {1})},
    )
    for member in (*members, other):
        member.close()


def _sizes(members: Sequence[Consumer]) -> list[int]:
    return sorted(len(member.assignment()) for member in members)


def _read(members: Sequence[Consumer], found: Counter[int]) -> Counter[int]:
    for member in members:
        for message in member.consume(100, timeout=0.01):
            if message.error() is None:
                found[int(message.value() or b"-1")] += 1
    return found


def _until_shared(
    stage: Stage,
    members: Sequence[Consumer],
    expected: list[int],
    found: Counter[int],
    assigned: Sequence[Consumer] | None = None,
) -> None:
    """Wait until the members have such shares, which together are all partitions.

    `assigned` has those that got a share, if an empty one: a consumer too many holds nothing before it has joined, either,
    and as it joins the others read from the beginning again.
    """

    def shared() -> bool:
        _read(members, found)
        if assigned is not None and not all(member in assigned for member in members):
            return False
        held = [one.partition for member in members for one in member.assignment()]
        return _sizes(members) == expected and sorted(held) == [*range(PARTITIONS)]

    stage.until(f"{len(members)} consumers have shares of {expected}", shared)


# --- coordinators


def _coordinators(stage: Stage, facts: Facts) -> None:
    stage.step(
        f"ask each broker for the coordinators of {GROUPS} groups",
        f"the hash of a group's name chooses a partition of {OFFSETS_TOPIC}, and the leader of that coordinates the group",
    )
    leaders = [stage.partition(OFFSETS_TOPIC, number)["leader"] for number in range(PARTITIONS)]
    names = [f"group-{number}" for number in range(GROUPS)]
    said = {name: {coordinator(stage, name, asked=broker_id) for broker_id in stage.ids} for name in names}
    facts["coordinators"] = stage.expect(
        "what all brokers answer", said, {name: {leaders[partition_of(name)]} for name in names}
    )
    facts["groups_of_brokers"] = dict(Counter(next(iter(ids)) for ids in said.values()))
    stage.tell(f"groups by coordinator: {facts['groups_of_brokers']}")


# --- joining


def _joining(stage: Stage, facts: Facts, topic: str) -> None:
    group = f"group-{topic}"
    kept = partition_of(group)
    stage.step(
        "three members join, one after the other, each request by hand",
        "the coordinator makes one of them the leader; the leader shares out, and the coordinator hands the shares on",
    )
    with (
        Member(stage, group, topic) as first,
        Member(stage, group, topic) as second,
        Member(stage, group, topic) as third,
    ):
        alone = first.join()
        first.begin_to_sync({first.member_id: range(PARTITIONS)})
        facts["alone"] = stage.expect(
            "generation and share of the first, alone",
            (alone.generation, first.share()),
            (1, (0, 1, 2, 3)),
        )
        second.begin_to_join()
        third.begin_to_join()
        stage.until("the coordinator knows all three", lambda: len(_described(stage, group)) == 3)
        facts["heartbeat"] = stage.expect(
            "the first one hears of it with its next heartbeat", first.heartbeat(), "REBALANCE_IN_PROGRESS"
        )
        first.begin_to_join()
        members = (first, second, third)
        joined = [member.joined() for member in members]
        facts["leaders"] = stage.expect("leaders", len({each.leader for each in joined}), 1)
        facts["told_of_members"] = stage.expect(
            "how many members each learns of: the leader all of them, the others none",
            sorted(len(each.members) for each in joined),
            [0, 0, 3],
        )
        facts["generation"] = stage.expect(
            "all are of one generation, the next one", sorted({each.generation for each in joined}), [2]
        )
        before = stage.log_end(OFFSETS_TOPIC, coordinator(stage, group, asked=stage.ids[0]), kept) or 0
        shares = dict(zip((member.member_id for member in members), ((0, 1), (2,), (3,)), strict=True))
        for member in members:
            is_leader = member.member_id == joined[0].leader
            member.begin_to_sync(shares if is_leader else {})
        got = {member.member_id: member.share() for member in members}
        facts["assigned"] = stage.expect("each has what the leader gave it", got == shares, True)
        facts["partitions"] = stage.expect(
            "and every partition is there once",
            sorted(one for each in got.values() for one in each),
            [0, 1, 2, 3],
        )
        facts["described"] = stage.expect(
            "a broker describes the same", _described(stage, group) == got, True
        )
        after = stage.log_end(OFFSETS_TOPIC, coordinator(stage, group, asked=stage.ids[0]), kept) or 0
        facts["stored"] = stage.expect(
            f"the coordinator wrote it to {OFFSETS_TOPIC}:{kept}", after > before, True
        )


def _described(stage: Stage, group: str) -> dict[str, tuple[int, ...]]:
    client = AdminClient(settings(stage.bootstrap), logger=SILENT)
    (described,) = client.describe_consumer_groups([group], request_timeout=CLIENT_S).values()
    return {
        member.member_id: tuple(sorted(one.partition for one in member.assignment.topic_partitions))
        for member in described.result(CLIENT_S).members
    }


# --- keys


def murmur2(data: bytes) -> int:
    """Return the unsigned hash by which Kafka's clients choose a partition. Source: Kafka's Utils.murmur2."""
    mixer, length = 0x5BD1E995, len(data)
    hashed = 0x9747B28C ^ length
    for at in range(0, length - length % 4, 4):
        word = int.from_bytes(data[at : at + 4], "little") * mixer & 0xFFFFFFFF
        hashed = (hashed * mixer & 0xFFFFFFFF) ^ ((word ^ word >> 24) * mixer & 0xFFFFFFFF)
    if rest := data[length - length % 4 :]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * mixer & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * mixer & 0xFFFFFFFF
    return hashed ^ hashed >> 15


def _keys(stage: Stage, facts: Facts, topic: str) -> None:
    keys = [b"key-%d" % number for number in range(KEYS)]
    stage.step(
        f"send {KEYS} keys to {PARTITIONS} partitions",
        "the partition of a key is its hash modulo the number of partitions, whatever the number of brokers is",
    )
    facts["by_hash"] = stage.expect(
        "each key is where its hash says",
        _partitions_of(stage, topic, keys) == [(murmur2(key) & 0x7FFFFFFF) % PARTITIONS for key in keys],
        True,
    )
    ends = [_end(stage, topic, number) for number in range(PARTITIONS)]
    stage.step("add a fifth partition", "records stay where they are; keys are spread anew over five")
    client = AdminClient(settings(stage.bootstrap), logger=SILENT)
    (grown,) = client.create_partitions(
        [NewPartitions(topic, PARTITIONS + 1, [[stage.ids[0]]])], operation_timeout=CLIENT_S
    ).values()
    grown.result(CLIENT_S)
    stage.until("the new partition is served", lambda: stage.log_end(topic, stage.ids[0], PARTITIONS) == 0)
    facts["grown"] = stage.expect(
        "log ends: as before, and 0 in the new one",
        [_end(stage, topic, number) for number in range(PARTITIONS + 1)],
        [*ends, 0],
    )
    facts["by_new_hash"] = stage.expect(
        "the same keys are where their hash modulo five says",
        _partitions_of(stage, topic, keys)
        == [(murmur2(key) & 0x7FFFFFFF) % (PARTITIONS + 1) for key in keys],
        True,
    )
    facts["new_has_keys"] = stage.expect(
        "some of them in the new one", (stage.log_end(topic, stage.ids[0], PARTITIONS) or 0) > 0, True
    )
    folder = stage.cluster.data(stage.ids[0]) / f"{LOG_DIRS}-1" / f"{topic}-{PARTITIONS}"
    facts["folder"] = stage.expect(f"its folder is {folder.name}", folder.is_dir(), True)
    default = stage.setting("broker", str(stage.ids[0]), "num.partitions")
    facts["default_partitions"] = stage.expect(
        "partitions of a topic that says no number", (default.value, default.source), ("1", "DEFAULT_CONFIG")
    )


def _end(stage: Stage, topic: str, number: int) -> int | None:
    return stage.log_end(topic, stage.partition(topic, number)["leader"], number)


def _partitions_of(stage: Stage, topic: str, keys: Sequence[bytes]) -> list[int | None]:
    """Send a record of each key with the partitioner of Kafka's own client, and return where each one went."""
    went: dict[bytes | None, int | None] = {}
    producer = stage.producer("all", partitioner="murmur2_random")
    for key in keys:
        producer.produce(
            topic,
            key=key,
            on_delivery=lambda _, message: went.update({message.key(): message.partition()}),
        )
    producer.flush(DEADLINE_S)
    return [went[key] for key in keys]
