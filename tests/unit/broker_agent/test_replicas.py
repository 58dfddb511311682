"""Pure: what hosts are told of their replicas, at a start and by each batch (A55, A56, A60), what is never deleted (C15)."""

import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_agent import replicas
from broker_agent.replicas import (
    Delete,
    Follow,
    Instruction,
    Lead,
    LocalReplicas,
    Phase,
    Start,
    Stop,
    Stray,
    Wait,
)
from metadata_log.apply import apply
from metadata_log.ids import UNASSIGNED, BrokerId, TopicId
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from metadata_log.image.topics import PartitionKey
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.partitions import RECOVERED, RECOVERING, PartitionChangeRecord
from quorum.decide.context import TopicDefaults
from quorum.decide.deleted_topics import UndeleteTopics
from quorum.decide.topics import DeleteTopic
from tests.support.decisions import World, ids, registration, word_uuid
from tests.support.histories import random_history, small_uuid

ME = BrokerId(1)


class Host:
    """A World with three brokers, and what the host on broker 1 was told."""

    def __init__(self, *, started: bool = True) -> None:
        self.world = World()
        self.local = LocalReplicas(ME)
        self.told: list[Instruction] = []
        for broker_id in (1, 2, 3):
            self.world.run(f"register {broker_id}")
            self.world.run(f"heartbeat {broker_id}")
        if started:
            self.start([])
        self.world.watchers.append(self.see)

    def see(self, before: MetadataImage, after: MetadataImage, delta: Delta | None) -> None:
        self.told += self.local.on_delta(before, after, delta)

    def run(self, *lines: str) -> list[str]:
        """Run some lines, and return what the host was told, as text."""
        self.told.clear()
        for line in lines:
            self.world.run(line)
        return self.texts(self.told)

    def change(self, name: str, partition_id: int, **changes: object) -> list[str]:
        self.told.clear()
        topic_id = self.world.image.topics.ids[name]
        self.world.write([PartitionChangeRecord(topic_id, partition_id, **changes)])  # type: ignore[arg-type]
        return self.texts(self.told)

    def start(self, held: Iterable[PartitionKey], *, known_offset: int = 0) -> list[str]:
        self.local.answered(self.world.image.end_offset)
        assert self.local.may_start(self.world.image, self.world.image.brokers[ME].broker_epoch)
        self.local.start(self.world.image, held, known_offset=known_offset)
        return self.texts(self.slices())

    def slices(self) -> list[Instruction]:
        told: list[Instruction] = []
        while self.local.phase is Phase.STARTING:
            told += self.local.next_slice(self.world.image)
        return told

    def key(self, name: str, partition_id: int = 0) -> PartitionKey:
        return self.world.image.topics.ids[name], partition_id

    def texts(self, told: Sequence[Instruction]) -> list[str]:
        names = {topic_id: name for name, topic_id in self.world.image.topics.ids.items()}
        return [_text(one, names.get(one.topic_id, "?")) for one in told]


def _text(one: Instruction, name: str) -> str:
    at = f"{name}-{one.partition_id}"
    match one:
        case Start():
            return f"start {one.topic}-{one.partition_id} in {'d1a' if one.directory == word_uuid('d1a') else '?'}"
        case Delete():
            return f"delete {one.topic}-{one.partition_id}{' with its topic' if one.topic_deleted else ''}"
        case Stray():
            return f"stray {at}"
        case Lead():
            p = one.partition
            return f"lead {at} {p.leader_epoch}/{p.partition_epoch} isr {','.join(map(str, p.isr))}"
        case Follow():
            return f"follow {at} {one.partition.leader}@{one.endpoint.host} {one.partition.leader_epoch}"
        case Wait():
            return f"wait {at}"
        case Stop():
            return f"stop {at}"


def test_a_new_topic_is_started_where_the_log_says_and_led_or_followed() -> None:
    host = Host()
    assert host.run("create t on=1,2/2,1/2,3") == [
        "start t-0 in d1a",
        "lead t-0 0/0 isr 1,2",
        "start t-1 in d1a",
        "follow t-1 2@b2 0",
    ]


def test_a_leader_learns_of_each_partition_epoch_and_a_follower_of_its_leader() -> None:
    host = Host()
    host.run("create t on=1,2,3", "create u on=2,1,3", "create v on=2,3")
    assert sorted(host.run("expire 3")) == ["follow u-0 2@b2 0", "lead t-0 0/1 isr 1,2"]
    assert sorted(host.run("expire 2")) == ["lead t-0 0/2 isr 1", "lead u-0 1/2 isr 1"]


def test_a_recovery_state_a_reassignment_and_an_election_reach_the_leader() -> None:
    host = Host()
    host.run("create t on=1,2")
    assert host.change("t", 0, leader=ME, isr=ids("1"), leader_recovery_state=RECOVERING) == [
        "lead t-0 1/1 isr 1"
    ]
    told = host.told[0]
    assert isinstance(told, Lead)
    assert told.partition.leader_recovery_state == RECOVERING
    host.change("t", 0, leader_recovery_state=RECOVERED)
    directories = tuple(word_uuid(f"d{broker_id}a") for broker_id in (1, 2, 3))
    host.change("t", 0, replicas=ids("1,2,3"), adding_replicas=ids("3"), directories=directories)
    told = host.told[0]
    assert isinstance(told, Lead)
    assert told.partition.adding_replicas == (3,)
    assert told.partition.replicas == (1, 2, 3)


def test_a_partition_without_a_leader_waits_and_so_does_one_whose_leader_cannot_be_reached() -> None:
    host = Host()
    host.run("create t on=2,1", "create u on=2,1")
    assert host.change("u", 0, leader=BrokerId(-1)) == ["wait u-0"]
    host.local = LocalReplicas(ME, listener="REPLICATION")
    assert sorted(host.start([host.key("t"), host.key("u")])) == ["wait t-0", "wait u-0"]


def test_the_endpoint_is_that_of_the_named_listener() -> None:
    host = Host()
    host.local = LocalReplicas(ME, listener="REPLICATION")
    two = (BrokerEndpoint("PLAINTEXT", "b2", 9092, 0), BrokerEndpoint("REPLICATION", "inner", 9093, 0))
    host.world.run("unregister 2")
    host.world.decide(registration(2, endpoints=two, incarnation_id=word_uuid("again")))
    host.world.run("heartbeat 2")
    host.start([])
    assert host.run("create t on=2,1") == [
        "start t-0 in d1a",
        "follow t-0 2@inner 0",
    ]


def test_a_replica_that_goes_elsewhere_is_deleted_and_one_that_comes_is_started() -> None:
    host = Host()
    host.run("create t on=1,2", "create u on=2,3")
    elsewhere = (word_uuid("d2a"), word_uuid("d3a"))
    there = host.change("t", 0, replicas=ids("2,3"), isr=ids("2"), leader=BrokerId(2), directories=elsewhere)
    assert there == ["delete t-0"]
    assert host.change("t", 0, isr=ids("2,3")) == []
    came = host.change(
        "u", 0, replicas=ids("2,3,1"), directories=(*elsewhere, UNASSIGNED), adding_replicas=ids("1")
    )
    assert came == ["start u-0 in ?", "follow u-0 2@b2 0"]


def test_a_deleted_topic_takes_its_replicas_along_before_one_of_its_name_is_started() -> None:
    """A55, A60: deleted and created again within one batch, a topic has another id."""
    host = Host()
    host.run("create t on=1,2/2,3")
    was = host.key("t")
    assert host.run("delete t") == ["delete t-0 with its topic"]
    host.run("create t on=1,2/2,3")
    world, told = host.world, host.told
    before = world.image
    world.watchers.clear()
    world.run("delete t")
    world.run("create t on=2,1")
    both = Delta(
        topics=frozenset({*before.topics.by_id, *world.image.topics.by_id}),
        partitions={host.key("t")[0]: (0,)},
    )
    told.clear()
    host.see(before, world.image, both)
    assert host.texts(told) == ["delete t-0 with its topic", "start t-0 in d1a", "follow t-0 2@b2 0"]
    assert host.key("t") != was


def test_a_topic_that_is_deleted_for_a_time_keeps_its_data() -> None:
    """C13: its replicas stop, are no strays after a start, and go on once it is restored."""
    host = Host()
    host.world.topic_defaults = TopicDefaults(undelete_window_ms=60_000)
    host.run("create t on=1,2/2,3/2,1")
    topic_id, _ = host.key("t")
    assert host.run("delete t") == ["stop ?-0", "stop ?-2"]
    again = Host(started=False)
    again.world = host.world
    assert again.start([(topic_id, 0), (topic_id, 2)]) == ["stop ?-0", "stop ?-2"]
    host.told.clear()
    host.world.decide(UndeleteTopics(topics=("t",)))
    assert host.texts(host.told) == ["lead t-0 1/1 isr 1,2", "follow t-2 2@b2 1"]
    host.run("delete t")
    host.told.clear()
    host.world.decide(DeleteTopic(name="t", now=True))
    assert host.texts(host.told) == ["delete t-0 with its topic", "delete t-2 with its topic"]


def test_a_broker_that_shuts_down_stops_what_goes_on_without_it() -> None:
    host = Host()
    host.run("create t on=2,1,3", "create u on=1,2", "create v on=2,1,3")
    assert sorted(host.run("heartbeat 1 shutdown")) == ["stop t-0", "stop u-0", "stop v-0"]
    assert host.change("t", 0, isr=ids("2,3")) == ["stop t-0"]
    assert host.change("v", 0, leader=BrokerId(-1)) == ["stop v-0"]


def test_a_change_that_leaves_the_partition_as_it_was_is_told_to_nobody() -> None:
    host = Host()
    host.run("create t on=1,2")
    host.told.clear()
    host.see(host.world.image, host.world.image, Delta(partitions={host.key("t")[0]: (0,)}))
    assert host.told == []


# --- starts


def test_nothing_is_said_before_the_image_has_caught_up_with_the_registration() -> None:
    """C15: an empty or old image deletes nothing, and calls nothing a stray."""
    host = Host(started=False)
    epoch = host.world.image.brokers[ME].broker_epoch
    assert host.run("create t on=1,2", "delete t") == []
    image = host.world.image
    assert not host.local.may_start(image, epoch)  # no answer yet
    host.local.answered(image.end_offset + 1)
    assert not host.local.may_start(image, epoch)  # behind the high watermark
    host.local.answered(image.end_offset)
    assert not host.local.may_start(EMPTY, epoch)
    assert not host.local.may_start(image, epoch + 1)  # the registration of this process is not in it
    assert not host.local.may_start(image, None)
    assert host.local.may_start(image, epoch)


def test_a_start_tells_strays_first_and_starts_what_is_missing() -> None:
    """A56, A60: a full image is all there is; what it does not assign here is a stray."""
    host = Host(started=False)
    host.run("create gone on=1,2", "create t on=1,2/2,1/2,3", "create u on=3,1")
    gone = host.key("gone")
    host.run("delete gone")
    held = [gone, host.key("t", 0), host.key("t", 2), (host.key("t")[0], 9)]
    told = host.start(held)
    assert sorted(told[:3]) == ["stray ?-0", "stray t-2", "stray t-9"]
    assert sorted(told[3:]) == [
        "follow t-1 2@b2 0",
        "follow u-0 3@b3 0",
        "lead t-0 0/0 isr 1,2",
        "start t-1 in d1a",
        "start u-0 in d1a",
    ]


def test_a_replaced_image_deletes_nothing_until_it_has_caught_up() -> None:
    host = Host()
    host.run("create t on=1,2")
    held = [host.key("t")]
    host.told.clear()
    host.see(host.world.image, EMPTY, None)
    assert host.run("delete t") == []
    epoch = host.world.image.brokers[ME].broker_epoch
    assert not host.local.may_start(host.world.image, epoch)  # the last answer was to another image
    assert host.start(held) == ["stray ?-0"]


@pytest.mark.parametrize(("known_offset", "is_stray"), [(0, True), (10_000, False)])
def test_an_image_older_than_what_the_host_knew_calls_nothing_a_stray(
    known_offset: int, is_stray: bool
) -> None:
    host = Host(started=False)
    told = host.start([(TopicId(small_uuid(9)), 0)], known_offset=known_offset)
    assert told == (["stray ?-0"] if is_stray else [])
    assert host.local.strays_withheld is not is_stray


def test_an_image_older_than_what_this_process_was_told_calls_nothing_a_stray() -> None:
    host = Host()
    old = host.world.image
    host.run("create t on=1,2")
    host.see(host.world.image, old, None)
    host.local.answered(old.end_offset)
    assert host.local.may_start(old, old.brokers[ME].broker_epoch)
    host.local.start(old, [host.key("t")])
    while host.local.phase is Phase.STARTING:
        assert host.local.next_slice(old) == []
    assert host.local.strays_withheld


def test_a_start_takes_as_many_slices_as_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "VISITS_PER_SLICE", 3)
    host = Host(started=False)
    host.run("create t on=" + "/".join(["1,2"] * 10))
    host.local.answered(0)
    host.local.start(host.world.image, [host.key("t", at) for at in range(5)])
    sizes = []
    while host.local.phase is Phase.STARTING:
        sizes.append(len(host.local.next_slice(host.world.image)))
    assert sizes == [0, 0, 3, 4, 6, 2]


# --- any history


class Model:
    """Carries instructions out, and asserts that each of them can be."""

    def __init__(self, held: Iterable[PartitionKey] = ()) -> None:
        self.roles: dict[PartitionKey, Instruction | None] = dict.fromkeys(held)

    def carry_out(self, told: Iterable[Instruction]) -> None:
        for one in told:
            key = (one.topic_id, one.partition_id)
            match one:
                case Start():
                    assert key not in self.roles, "a replica is started once"
                    self.roles[key] = None
                case Delete():
                    self.roles.pop(key, None)
                case Stray():
                    del self.roles[key]
                case _:
                    assert key in self.roles, "a replica is started before it has a role"
                    self.roles[key] = one

    def agrees(self, image: MetadataImage, broker_id: BrokerId) -> None:
        assigned = {
            (topic.topic_id, partition_id): partition
            for topic in (
                *image.topics.by_id.values(),
                *(each.topic for each in image.topics.deleted.values()),
            )
            for partition_id, partition in enumerate(topic.partitions)
            if broker_id in partition.replicas
        }
        assert self.roles.keys() == assigned.keys()
        for key, role in self.roles.items():
            assert isinstance(role, Lead | Follow | Wait | Stop)
            assert role.partition == assigned[key]
            assert isinstance(role, Lead) == (assigned[key].leader == broker_id)
            assert isinstance(role, Stop) or key[0] in image.topics.by_id


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_whatever_happens_and_whenever_it_starts_the_host_ends_with_what_the_image_assigns(seed: int) -> None:
    """Method: a history applied batch by batch, while a start in slices of two goes on; the disks hold anything before."""
    rng = random.Random(seed)
    broker_id = BrokerId(rng.randint(11, 18))
    history = random_history(rng, 60)
    keys = sorted({key for step in history for key in _keys(step.image)})
    held = [key for key in keys if rng.random() < 0.5]
    local, model = LocalReplicas(broker_id), Model(held)
    begins, image = rng.randrange(40), EMPTY
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicas, "VISITS_PER_SLICE", 2)
        for at, step in enumerate(history):
            after, delta = apply(image, step.batch)
            told = local.on_delta(image, after, delta)
            assert at >= begins or not told
            model.carry_out(told)
            image = after
            if at == begins:
                local.start(image, held)
            if local.phase is Phase.STARTING and rng.random() < 0.5:
                model.carry_out(local.next_slice(image))
            if local.phase is Phase.FOLLOWING:
                model.agrees(image, broker_id)
        while local.phase is Phase.STARTING:
            model.carry_out(local.next_slice(image))
    model.agrees(image, broker_id)


def _keys(image: MetadataImage) -> Iterable[PartitionKey]:
    for topic in image.topics.by_id.values():
        for partition_id in range(len(topic.partitions)):
            yield topic.topic_id, partition_id
