"""Edge: any history, however it is cut, stored, grouped or read back, leads to the same image."""

import random
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from metadata_log.apply import apply, image_of, is_next
from metadata_log.codec import DamagedFrame, check_frame, decode, encode
from metadata_log.digest import digest
from metadata_log.ids import NO_LEADER, BrokerId, NodeId, TopicId, Uuid
from metadata_log.image import metadata_image
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage, buckets_of, lines
from metadata_log.image.partition_index import NO_MIN_ISR, PartitionCounts
from metadata_log.image.quotas import Entity
from metadata_log.image.quotas import entity_of as quota_entity
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.records.acls import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.configs import TOPIC, ConfigRecord
from metadata_log.records.controllers import RegisterControllerRecord, UnregisterControllerRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.quorum import ControllerClaimRecord
from metadata_log.records.quotas import ClientQuotaRecord
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.records.tokens import DelegationTokenRecord, RemoveDelegationTokenRecord
from metadata_log.records.topics import (
    RemoveTopicRecord,
    TopicRecord,
    TopicRestoreRecord,
    TopicTombstoneRecord,
)
from metadata_log.records.users import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from snapshots.fold import fold
from snapshots.history import image_at
from snapshots.snapshot_file import read_snapshot, write_snapshot
from snapshots.store import SnapshotStore
from tests.support.histories import history_of, random_history, step_of
from tests.support.independent_reader import frames
from tests.support.outside_broker import State

SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 40))]


def through_a_snapshot(image: MetadataImage) -> MetadataImage:
    if image.quorum.cluster_id is None:
        return image
    header = SnapshotHeaderRecord(
        image.quorum.cluster_id, image.end_offset, image.controller_epoch, image.last_time_ms, image.last_crc
    )
    return image_of(image.to_records(), header=header)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_snapshot_taken_anywhere_changes_nothing_after_it(seed: int) -> None:
    """Goal: compaction is invisible (A88, A94, A96): equal offsets are equal images, and an image has nothing that its
    records do not say. Method: one history applied whole, and again with the image
    rebuilt from its own records at a random cut; both ends must be the same image.
    """
    rng = random.Random(seed)
    history = random_history(rng, batch_count=40)
    cut = rng.randrange(len(history))
    whole = resumed = EMPTY
    for index, step in enumerate(history):
        if index == cut:
            resumed = through_a_snapshot(resumed)
        assert is_next(resumed, step.batch)
        whole, resumed = apply(whole, step.batch).image, apply(resumed, step.batch).image
        assert resumed == whole
        for topic_id, deleted in whole.topics.deleted.items():
            left_ms = resumed.topics.deleted[topic_id].left_ms(resumed.elapsed_ms)
            assert left_ms == deleted.left_ms(whole.elapsed_ms)
        assert resumed.digest_buckets == whole.digest_buckets
        assert list(resumed.to_records()) == list(whole.to_records())


@pytest.mark.parametrize("seed", SEEDS)
def test_the_digest_kept_is_the_digest_from_nothing(seed: int) -> None:
    for step in history_of(seed, 30):
        assert step.image.digest_buckets == buckets_of(step.image)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_digest_that_is_asked_for_now_and_then_is_the_digest_from_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(metadata_image, "UNCOUNTED_BATCHES_MAX", rng.choice([1, 10, 100]))
    monkeypatch.setattr(metadata_image, "UNCOUNTED_SMALL_BATCHES_MAX", rng.choice([1, 10, 100]))
    monkeypatch.setattr(metadata_image, "UNCOUNTED_LINES_MAX", rng.choice([0, 30, 3_000]))
    monkeypatch.setattr(metadata_image, "UNCOUNTED_BYTES_MAX", rng.choice([0, 30_000, 3_000_000]))
    monkeypatch.setattr(metadata_image, "LINES_COUNTED_AT_ONCE", rng.choice([0, 10, 1_000]))
    image = EMPTY
    for step in random_history(rng, batch_count=60):
        before, image = image, apply(image, step.batch).image
        if rng.random() < 0.1:
            asked = rng.choice([before, image])
            if rng.random() < 0.5:
                asked.state_digest.count_some(asked)
            else:
                assert asked.digest_buckets == buckets_of(asked)
    assert image.digest_buckets == buckets_of(image)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_index_of_partitions_is_the_one_from_nothing(seed: int) -> None:
    """A28: replicas by broker and leaders, as the log gives them."""
    for step in history_of(seed, 30):
        topics = step.image.topics
        on: dict[int, set[bytes]] = defaultdict(set)
        leaderships: Counter[int] = Counter()
        leaderless: Counter[bytes] = Counter()
        not_preferred: Counter[bytes] = Counter()
        preferred: Counter[int] = Counter()
        elsewhere: Counter[int] = Counter()
        reassigning: Counter[bytes] = Counter()
        eligible: Counter[bytes] = Counter()
        under_replicated: Counter[bytes] = Counter()
        isr_sizes: Counter[tuple[int, int, int]] = Counter()
        partitions = [(t.topic_id, p) for t in topics.by_id.values() for p in t.partitions]
        for topic_id, partition in partitions:
            for broker_id in (*partition.replicas, *partition.eligible_leader_replicas):
                on[broker_id].add(topic_id)
            not_preferred[topic_id] += partition.leader != partition.replicas[0]
            preferred[partition.replicas[0]] += 1
            elsewhere[partition.replicas[0]] += partition.leader != partition.replicas[0]
            reassigning[topic_id] += bool(partition.adding_replicas or partition.removing_replicas)
            eligible[topic_id] += bool(partition.eligible_leader_replicas or partition.last_known_elr)
            under_replicated[topic_id] += len(partition.isr) < len(partition.replicas)
            own: Mapping[str, str] = step.image.configs.get((TOPIC, topics.by_id[topic_id].name)) or {}
            own_min_isr = int(own.get("min.insync.replicas", NO_MIN_ISR))
            isr_sizes[own_min_isr, len(partition.replicas), len(partition.isr)] += 1
            if partition.leader == NO_LEADER:
                leaderless[topic_id] += 1
            else:
                leaderships[partition.leader] += 1
        for topic_id, deleted in topics.deleted.items():
            assert topic_id not in topics.by_id
            for partition in deleted.topic.partitions:
                assert partition.leader == NO_LEADER
                for broker_id in (*partition.replicas, *partition.eligible_leader_replicas):
                    on[broker_id].add(topic_id)
        assert {broker_id: list(ids) for broker_id, ids in topics.index.on_broker.items()} == {
            broker_id: sorted(ids) for broker_id, ids in on.items()
        }
        alike: dict[str, list[str]] = defaultdict(list)
        for name in sorted(topics.ids):
            if "." in name or "_" in name:
                alike[name.replace(".", "_")].append(name)
        assert {key: list(names) for key, names in topics.alike.items()} == alike
        assert dict(topics.index.leaderships) == leaderships
        assert dict(topics.index.preferred) == preferred
        assert dict(topics.index.preferred_elsewhere) == +elsewhere
        assert dict(topics.index.leaderless) == leaderless
        assert list(topics.index.leaderless_in_order) == sorted(leaderless)
        assert dict(topics.index.not_preferred) == +not_preferred
        assert dict(topics.index.reassigning) == +reassigning
        assert dict(topics.index.eligible) == +eligible
        assert dict(topics.index.under_replicated) == +under_replicated
        assert dict(topics.index.isr_sizes) == isr_sizes
        assert topics.counts == PartitionCounts(
            len(partitions),
            leaderless.total(),
            under_replicated.total(),
            not_preferred.total(),
            reassigning.total(),
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_walk_goes_on_behind_any_partition(seed: int) -> None:
    *_, last = history_of(seed, 30)
    topics = last.image.topics
    for broker_id, with_deleted in product(last.image.brokers, (False, True)):
        whole = list(topics.partitions_on(broker_id, with_deleted=with_deleted))
        keys = [(topic_id, partition_id) for topic_id, partition_id, _ in whole]
        assert keys == sorted(keys)
        assert with_deleted or all(topic_id in topics.by_id for topic_id, _ in keys)
        for place, key in enumerate(keys):
            behind = topics.partitions_on(broker_id, after=key, with_deleted=with_deleted)
            assert list(behind) == whole[place + 1 :]
    leaderless = list(topics.leaderless())
    for place, (topic_id, partition_id, partition) in enumerate(leaderless):
        assert partition.leader == NO_LEADER
        assert list(topics.leaderless(after=(topic_id, partition_id))) == leaderless[place + 1 :]
    assert len(leaderless) == topics.counts.leaderless


def touched_by(before: MetadataImage, records: Sequence[Record]) -> Delta:
    """Return the keys that records name, and the settings of topics that they remove, read from the records alone."""
    brokers, controllers, features = set[BrokerId](), set[NodeId](), set[str]()
    topics, configs = set[TopicId](), set[tuple[int, str, str]]()
    partitions: dict[TopicId, set[int]] = {}
    quotas, acls = set[tuple[Entity, str]](), set[Uuid]()
    users, tokens = set[tuple[str, int]](), set[str]()
    for record in records:
        match record:
            case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
                users.add((record.name, record.mechanism))
            case DelegationTokenRecord() | RemoveDelegationTokenRecord():
                tokens.add(record.token_id)
            case ClientQuotaRecord():
                quotas.add((quota_entity(record.entity), record.key))
            case AccessControlEntryRecord() | RemoveAccessControlEntryRecord():
                acls.add(record.id)
            case RegisterBrokerRecord() | BrokerRegistrationChangeRecord() | UnregisterBrokerRecord():
                brokers.add(record.broker_id)
            case RegisterControllerRecord() | UnregisterControllerRecord():
                controllers.add(record.controller_id)
            case FeatureLevelRecord():
                features.add(record.name)
            case ConfigRecord():
                configs.add((record.resource_type, record.resource_name, record.name))
            case PartitionRecord() | PartitionChangeRecord():
                partitions.setdefault(record.topic_id, set()).add(record.partition_id)
            case TopicRecord() | TopicRestoreRecord() | TopicTombstoneRecord() | RemoveTopicRecord():
                topics.add(record.topic_id)
        if isinstance(record, RemoveTopicRecord):
            partitions.pop(record.topic_id, None)
        if (
            isinstance(record, RemoveTopicRecord | TopicTombstoneRecord)
            and record.topic_id in before.topics.by_id
        ):
            name = before.topics.by_id[record.topic_id].name
            configs |= {(TOPIC, name, setting) for setting in before.configs.get((TOPIC, name), {})}
    return Delta(
        brokers=frozenset(brokers),
        controllers=frozenset(controllers),
        features=frozenset(features),
        topics=frozenset(topics),
        partitions={topic_id: array("I", sorted(touched)) for topic_id, touched in partitions.items()},
        configs=frozenset(configs),
        quotas=frozenset(quotas),
        acls=frozenset(acls),
        users=frozenset(users),
        tokens=frozenset(tokens),
        claim=any(isinstance(record, ControllerClaimRecord) for record in records),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_delta_names_every_key_that_differs(seed: int) -> None:
    """Goal: a delta names what differs, and nothing that no record of the batch speaks of."""
    before = EMPTY
    for step in history_of(seed, 30):
        after, delta = apply(before, step.batch)
        named = touched_by(before, step.batch.records)
        assert delta == replace(named, quorum=delta.quorum, producer_ids=delta.producer_ids)
        assert {
            node_id
            for node_id in {*before.controllers, *after.controllers}
            if before.controllers.get(node_id) != after.controllers.get(node_id)
        } <= delta.controllers
        assert {
            b for b in {*before.brokers, *after.brokers} if before.brokers.get(b) != after.brokers.get(b)
        } <= delta.brokers
        assert {*before.topics.by_id} ^ {*after.topics.by_id} <= delta.topics
        assert {*before.topics.deleted} ^ {*after.topics.deleted} <= delta.topics
        for topic_id in {*before.topics.by_id} & {*after.topics.by_id} - delta.topics:
            was, now = before.topics.by_id[topic_id].partitions, after.topics.by_id[topic_id].partitions
            changed = {i for i in range(len(now)) if i >= len(was) or was[i] != now[i]}
            assert changed <= {*delta.partitions.get(topic_id, ())}
        settings = [
            {(*resource, name): value for resource, s in image.configs.items() for name, value in s.items()}
            for image in (before, after)
        ]
        assert {key for key, _ in settings[0].items() ^ settings[1].items()} <= delta.configs
        values = [
            {
                ((entity, key), value)
                for entity, quotas in image.quotas.items()
                for key, value in quotas.items()
            }
            for image in (before, after)
        ]
        assert {key for key, _ in values[0] ^ values[1]} <= delta.quotas
        assert {*before.acls.by_id} ^ {*after.acls.by_id} <= delta.acls
        assert {key for key, _ in {*before.users.items()} ^ {*after.users.items()}} <= delta.users
        assert {key for key, _ in {*before.tokens.items()} ^ {*after.tokens.items()}} <= delta.tokens
        assert {name for name, _ in {*before.features.items()} ^ {*after.features.items()}} <= delta.features
        assert delta.quorum == (
            (before.quorum.kraft_version, before.quorum.voters)
            != (after.quorum.kraft_version, after.quorum.voters)
        )
        assert delta.producer_ids == (before.next_producer_id != after.next_producer_id)
        before = after


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_encoded_is_decoded(seed: int) -> None:
    for step in history_of(seed, 30):
        assert decode(step.frame) == (step.batch, len(step.frame))
        batch = step.batch
        again = encode(
            base_offset=batch.base_offset,
            controller_epoch=batch.controller_epoch,
            appended_at_ms=batch.appended_at_ms,
            previous_crc=batch.previous_crc,
            envelope=batch.envelope,
            records=batch.records,
        )
        assert again == (batch, step.frame), "equal batches have equal bytes"


@pytest.mark.parametrize("seed", range(5))
def test_a_frame_with_any_bit_flipped_is_refused(seed: int) -> None:
    frame = history_of(seed, 3)[-1].frame
    for bit in range(len(frame) * 8):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedFrame):
            check_frame(bytes(flipped))


def entity_of(record: Record, topic_ids: dict[str, TopicId]) -> tuple[object, ...]:
    """Return the one entity a record is about; a topic is one entity with its partitions and settings."""
    match record:
        case RegisterBrokerRecord() | UnregisterBrokerRecord() | BrokerRegistrationChangeRecord():
            return ("broker", record.broker_id)
        case TopicRecord() | PartitionRecord() | PartitionChangeRecord() | RemoveTopicRecord():
            return ("topic", record.topic_id)
        case TopicTombstoneRecord() | TopicRestoreRecord():
            return ("topic", record.topic_id)
        case ConfigRecord() if record.resource_type == TOPIC:
            return ("topic", topic_ids[record.resource_name])
        case ConfigRecord():
            return ("config", record.resource_type, record.resource_name)
        case _:
            return ("cluster",)


@pytest.mark.parametrize("seed", SEEDS)
def test_entities_do_not_depend_on_each_other(seed: int) -> None:
    """Goal: the licence to fold in parallel. Method: the records of each entity alone, from nothing; the
    lines of all entities together must be those of the log folded in order.
    """
    history = history_of(seed, 40)
    of_entity: dict[tuple[object, ...], list[Record]] = defaultdict(list)
    topic_ids: dict[str, TopicId] = {}
    names: dict[TopicId, str] = {}
    for step in history:
        for record in step.batch.records:
            if isinstance(record, TopicRecord):
                topic_ids[record.name], names[record.topic_id] = record.topic_id, record.name
            elif isinstance(record, TopicRestoreRecord):
                topic_ids[names[record.topic_id]] = record.topic_id
            of_entity[entity_of(record, topic_ids)].append(record)
    alone = [
        line
        for records in of_entity.values()
        if (stated := [record for record in records if not isinstance(record, ControllerClaimRecord)])
        for line in lines(step_of(EMPTY, stated).image)
    ]
    assert sorted(alone) == sorted(lines(history[-1].image))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_the_log_and_its_snapshots_tell_the_state_at_every_offset(tmp_path: Path, seed: int) -> None:
    """C1"""
    rng = random.Random(seed)
    history = random_history(rng, batch_count=25)
    log = SegmentedLog.open(tmp_path / "log", segment_bytes=1_500)
    store = SnapshotStore(tmp_path / "snapshots")
    for step in history:
        log.append(step.frame, check_frame(step.frame))
        if rng.random() < 0.2:
            write_snapshot(step.image, store.directory)
    image, ends = EMPTY, {0: EMPTY} | {step.image.end_offset: step.image for step in history}
    for offset in range(log.end_offset + 1):
        image = ends.get(offset, image)
        assert image_at(log, store, offset) == image, "inside a batch: as it was before it"
    log.close()


@pytest.mark.parametrize("seed", range(8))
def test_an_independent_reader_agrees(tmp_path: Path, seed: int) -> None:
    history = history_of(seed, 40)
    data = b"".join(step.frame for step in history)
    found = [header for header, _, _ in frames(data)]
    batches = [step.batch for step in history]
    assert found == [
        (b.base_offset, len(b.records), b.controller_epoch, b.appended_at_ms, b.crc) for b in batches
    ]
    image = history[-1].image
    path = write_snapshot(image, tmp_path)
    _, _, (header, *_) = next(frames(path.read_bytes()))
    position = [image.end_offset, image.controller_epoch, image.last_time_ms, image.last_crc]
    assert header == [1002, 0, "A" * 22, *position]
    state = State()
    state.take(path.read_bytes())
    assert [state.offset, state.epoch, image.last_time_ms, state.crc] == position
    assert state.digest() == digest(image)
    assert read_snapshot(path) == fold(batches)
