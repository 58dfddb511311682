"""Edge: random legal histories: batches that a controller might have decided, with all kinds of records."""

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

import google_crc32c
import msgpack

from metadata_log.apply import apply
from metadata_log.batch import Cause, Envelope, RecordBatch
from metadata_log.codec import HEADER_BYTES, encode, frame_of, read_header
from metadata_log.ids import NO_LEADER, BrokerId, NodeId, TopicId, Uuid, random_uuid
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.acls import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from metadata_log.records.brokers import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FeatureRange,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, TOPIC, ConfigRecord, is_sensitive
from metadata_log.records.controllers import RegisterControllerRecord, UnregisterControllerRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    NoOpRecord,
    QuorumVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from metadata_log.records.quotas import CLIENT_ID, IP, USER, ClientQuotaRecord, QuotaEntity
from metadata_log.records.registry import Record
from metadata_log.records.tokens import DelegationTokenRecord, RemoveDelegationTokenRecord
from metadata_log.records.topics import (
    KeptSetting,
    RemoveTopicRecord,
    TopicRecord,
    TopicRestoreRecord,
    TopicTombstoneRecord,
)
from metadata_log.records.users import RemoveUserScramCredentialRecord, UserScramCredentialRecord

CLUSTER_ID = "A" * 22
FIRST_TIME_MS = 1_700_000_000_000


class Step(NamedTuple):
    """One batch, its frame, and the image behind it."""

    batch: RecordBatch
    frame: bytes
    image: MetadataImage


def random_history(rng: random.Random, batch_count: int, *, onto: MetadataImage = EMPTY) -> list[Step]:
    """Return `batch_count` batches that continue `onto`; the first of all is a claim."""
    return list(islice(_steps(rng, onto), batch_count))


def _steps(rng: random.Random, image: MetadataImage) -> Iterator[Step]:
    time_ms = image.last_time_ms or FIRST_TIME_MS
    while True:
        time_ms += rng.choice((0, 1, 5, 1_000, -3, 300_000))
        step = next_step(rng, image, appended_at_ms=time_ms)
        yield step
        image = step.image


def history_of(seed: int, batch_count: int) -> tuple[Step, ...]:
    """Return the random history of a seed: made once for all the tests that look at it.

    A shorter one is the beginning of a longer one, so what is known is continued.
    """
    steps, going_on = _kept(seed)
    while len(steps) < batch_count:
        steps.append(next(going_on))
    return tuple(steps[:batch_count])


@lru_cache(maxsize=256)
def _kept(seed: int) -> tuple[list[Step], Iterator[Step]]:
    return [], _steps(random.Random(seed), EMPTY)


def next_step(rng: random.Random, image: MetadataImage, *, appended_at_ms: int) -> Step:
    """Return one batch more; its records are decided one by one, each on the image behind the one before."""
    is_claim = image.end_offset == 0 or rng.random() < 0.05
    records: list[Record] = _claim(rng, image) if is_claim else []
    wanted = rng.choice((1, 1, 2, 3, 8))
    while len(records) < wanted:
        tip = image if not records else step_of(image, records, appended_at_ms=appended_at_ms).image
        records += rng.choice(_KINDS)(rng, tip)
    return step_of(image, records, appended_at_ms=appended_at_ms, envelope=_envelope(rng, image))


def step_of(
    image: MetadataImage,
    records: Sequence[Record],
    *,
    appended_at_ms: int = 0,
    envelope: Envelope | None = None,
) -> Step:
    """Return the batch of `records` that continues an image; a claim among them brings its epoch."""
    first = records[0]
    epoch = first.controller_epoch if isinstance(first, ControllerClaimRecord) else image.controller_epoch
    batch, frame = encode(
        base_offset=image.end_offset,
        controller_epoch=epoch,
        appended_at_ms=appended_at_ms,
        previous_crc=image.last_crc,
        envelope=Envelope() if envelope is None else envelope,
        records=records,
    )
    return Step(batch, frame, apply(image, batch).image)


NO_ENVELOPE_ROW = (None,) * 6
A_TOPIC_ID_OF_INT = msgpack.packb([NO_ENVELOPE_ROW, [[2, 0, 1, 2]]])
"""The body of a frame that no release writes: a Topic record's id is no uuid, nor is its name text."""
A_TYPE_UNKNOWN_HERE = msgpack.packb([NO_ENVELOPE_ROW, [[7777, 0]]])
A_NEWER_VERSION = msgpack.packb([NO_ENVELOPE_ROW, [[12, 9, "metadata.version", 30]]])


def frame_behind(frame: bytes, body: bytes, *, record_count: int = 1) -> bytes:
    """Return a sound frame that continues another's, whatever its body says."""
    before = read_header(frame)
    return frame_of(
        body,
        base_offset=before.end_offset,
        record_count=record_count,
        controller_epoch=before.controller_epoch,
        appended_at_ms=before.appended_at_ms,
        previous_crc=before.crc,
    )[0]


def rewritten(
    history: Sequence[Step], rewrite: Callable[[int, tuple[Any, ...]], tuple[Any, ...]]
) -> list[bytes]:
    """Return the frames of a history with `rewrite(offset, row)` for each record's row, each continuing the one before."""
    frames, crc = [], 0
    for step in history:
        header = read_header(step.frame)
        envelope, rows = msgpack.unpackb(step.frame[HEADER_BYTES:], use_list=False)
        rows = [rewrite(offset, row) for offset, row in enumerate(rows, header.base_offset)]
        frame, crc = frame_of(
            msgpack.packb([envelope, rows]),
            base_offset=header.base_offset,
            record_count=header.record_count,
            controller_epoch=header.controller_epoch,
            appended_at_ms=header.appended_at_ms,
            previous_crc=crc,
        )
        frames.append(frame)
    return frames


def of_format_2(frame: bytes) -> bytes:
    """Return the frame as a release with another format might write it: its crc is right."""
    head = frame[:2] + b"\x02" + frame[3:36]
    crc = google_crc32c.extend(google_crc32c.value(head), frame[40:])
    return head + struct.pack(">I", crc) + frame[40:]


def claim(image: MetadataImage, *, controller_id: int = 1) -> ControllerClaimRecord:
    return ControllerClaimRecord(NodeId(controller_id), image.controller_epoch + 1, CLUSTER_ID)


def _envelope(rng: random.Random, image: MetadataImage) -> Envelope:
    cause = Cause(
        "session_expired", max(image.end_offset - 1, 0), {"z": 1, "broker_id": 11, "m": {"b": 1, "a": "ü"}}
    )
    if rng.random() < 0.5:
        return Envelope(cause=cause if rng.random() < 0.3 else None)
    repeated = rng.random() < 0.1 and len(image.results.by_id) > 0
    request_id = rng.choice(sorted(image.results.by_id)) if repeated else random_uuid(rng)
    return Envelope("operator", request_id, rng.randbytes(32), None, "create_topic", rng.randbytes(5))


def _claim(rng: random.Random, image: MetadataImage) -> list[Record]:
    records: list[Record] = [claim(image, controller_id=rng.randint(1, 3))]
    if image.end_offset == 0:
        records += [
            QuorumVersionRecord(1),
            _voters(rng),
            FeatureLevelRecord("metadata.version", 30),
            FeatureLevelRecord("metaquorum.version", 1),
        ]
    return records


def _voters(rng: random.Random) -> VotersRecord:
    return VotersRecord(
        tuple(
            Voter(
                NodeId(node_id),
                random_uuid(rng),
                (VoterEndpoint("CONTROLLER", "127.0.0.1", 9_000 + node_id),),
                0,
                1,
            )
            for node_id in range(1, rng.choice((2, 4)))
        )
    )


def _register(rng: random.Random, image: MetadataImage) -> list[Record]:
    log_dirs = tuple(random_uuid(rng) for _ in range(rng.randint(1, 2)))
    return [
        RegisterBrokerRecord(
            BrokerId(rng.randint(11, 18)),
            random_uuid(rng),
            image.end_offset,
            (BrokerEndpoint("PLAINTEXT", "host-ä", 9092, 0),),
            (FeatureRange("metadata.version", 25, 30), FeatureRange("metaquorum.version", 1, 1)),
            rng.choice((None, "r1", "r2")),
            True,
            False,
            log_dirs,
            rng.choice((None, (), log_dirs[:1])),
        )
    ]


def _change_registration(rng: random.Random, image: MetadataImage) -> list[Record]:
    if not image.brokers:
        return _register(rng, image)
    broker = image.brokers[rng.choice(sorted(image.brokers))]
    change = BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch)
    return [
        rng.choice(
            (
                change._replace(fenced=not broker.fenced),
                change._replace(fenced=False, in_controlled_shutdown=True),
                change._replace(log_dirs=broker.log_dirs[:1], cordoned_log_dirs=()),
            )
        )
    ]


def _unregister(rng: random.Random, image: MetadataImage) -> list[Record]:
    if not image.brokers or rng.random() < 0.7:
        return _register(rng, image)
    broker = image.brokers[rng.choice(sorted(image.brokers))]
    return [UnregisterBrokerRecord(broker.broker_id, broker.broker_epoch)]


def _replicas(rng: random.Random) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(b) for b in rng.sample(range(11, 19), rng.randint(1, 3)))


def _partition(rng: random.Random, topic_id: TopicId, partition_id: int) -> PartitionRecord:
    replicas = _replicas(rng)
    directories = tuple(random_uuid(rng) for _ in replicas)
    return PartitionRecord(
        topic_id, partition_id, replicas, replicas, replicas[0], 0, 0, 0, (), (), (), (), directories
    )


def _create_topic(rng: random.Random, image: MetadataImage) -> list[Record]:
    name = rng.choice(("orders", "payments", "clicks", "a.b", "log", "audit-2"))
    if name in image.topics.ids:
        return _change_partition(rng, image)
    topic_id = TopicId(random_uuid(rng))
    partitions = [_partition(rng, topic_id, i) for i in range(rng.randint(1, 5))]
    settings: list[Record] = [ConfigRecord(TOPIC, name, "retention.ms", "1000")] if rng.random() < 0.5 else []
    return [TopicRecord(topic_id, name), *settings, *partitions]


def _some_topic(rng: random.Random, image: MetadataImage) -> TopicId | None:
    return rng.choice(sorted(image.topics.by_id)) if image.topics.by_id else None


def _add_partition(rng: random.Random, image: MetadataImage) -> list[Record]:
    topic_id = _some_topic(rng, image)
    if topic_id is None:
        return _create_topic(rng, image)
    return [_partition(rng, topic_id, len(image.topics.by_id[topic_id].partitions))]


def _change_partition(rng: random.Random, image: MetadataImage) -> list[Record]:
    topic_id = _some_topic(rng, image)
    if topic_id is None or not image.topics.by_id[topic_id].partitions:
        return [NoOpRecord()]
    partitions = image.topics.by_id[topic_id].partitions
    partition_id = rng.randrange(len(partitions))
    replicas = partitions[partition_id].replicas
    change = PartitionChangeRecord(topic_id, partition_id)
    new_replicas = _replicas(rng)
    return [
        rng.choice(
            (
                change._replace(leader=NO_LEADER),
                change._replace(leader=replicas[0], isr=replicas),
                change._replace(isr=partitions[partition_id].isr, eligible_leader_replicas=replicas[1:]),
                change._replace(
                    leader=new_replicas[0],
                    isr=new_replicas,
                    replicas=new_replicas,
                    directories=tuple(random_uuid(rng) for _ in new_replicas),
                    leader_recovery_state=1,
                ),
                change._replace(
                    adding_replicas=new_replicas, removing_replicas=(), last_known_elr=replicas[:1]
                ),
            )
        )
    ]


def _remove_topic(rng: random.Random, image: MetadataImage) -> list[Record]:
    topic_id = _some_topic(rng, image)
    return [NoOpRecord()] if topic_id is None or rng.random() < 0.4 else [RemoveTopicRecord(topic_id)]


def _delete_topic(rng: random.Random, image: MetadataImage) -> list[Record]:
    topic_id = _some_topic(rng, image)
    if topic_id is None:
        return _create_topic(rng, image)
    name = image.topics.by_id[topic_id].name
    settings = sorted((image.configs.get((TOPIC, name)) or {}).items())
    kept = tuple(KeptSetting(*setting) for setting in settings if not is_sensitive(TOPIC, setting[0]))
    return [TopicTombstoneRecord(topic_id, name, image.last_time_ms, rng.choice((1, 3_600_000)), kept, 0)]


def _change_deleted(rng: random.Random, image: MetadataImage) -> list[Record]:
    if not image.topics.deleted:
        return _delete_topic(rng, image)
    deleted = image.topics.deleted[rng.choice(sorted(image.topics.deleted))]
    topic_id, name, partitions = deleted.topic
    place = rng.randrange(len(partitions))
    change = PartitionChangeRecord(topic_id, place)
    if rng.random() < 0.3:
        return [change._replace(isr=partitions[place].isr[1:], eligible_leader_replicas=())]
    if rng.random() < 0.2 or name in image.topics.ids:
        return [RemoveTopicRecord(topic_id)]
    restored: list[Record] = [TopicRestoreRecord(topic_id)]
    restored += [ConfigRecord(TOPIC, name, setting, value) for setting, value in deleted.configs]
    if isr := partitions[place].isr:
        restored.append(change._replace(leader=isr[0]))
    return restored


PASSPHRASE: Final = "listener.name.x.sasl.oauthbearer.assertion.private.key.passphrase"
"""A secret that a release without mask keys wrote and showed in plain text."""


def _config(rng: random.Random, image: MetadataImage) -> list[Record]:
    value = rng.choice(("1", "a long värde", "", None))
    setting = rng.choice(("retention.ms", "cleanup.policy", "ssl.key.password", "min.insync.replicas"))
    if setting == "ssl.key.password" and image.end_offset % 2:
        setting = PASSPHRASE
    if setting == "min.insync.replicas" and value is not None:
        value = str(1 + len(value) % 3)
    resources = [
        (BROKER, CLUSTER_DEFAULT),
        (BROKER, "11"),
        *((TOPIC, name) for name in sorted(image.topics.ids)),
    ]
    resource_type, resource_name = rng.choice(resources)
    # Secrets of a release without mask keys stand among the others.
    has_key = value is not None and is_sensitive(resource_type, setting) and image.end_offset % 3 > 0
    mask_key = image.end_offset.to_bytes(16, "big") if has_key else None
    return [ConfigRecord(resource_type, resource_name, setting, value, mask_key)]


def _feature(rng: random.Random, image: MetadataImage) -> list[Record]:
    return [FeatureLevelRecord(rng.choice(("metaquorum.version", "group.version")), rng.randint(0, 2))]


def _producer_ids(rng: random.Random, image: MetadataImage) -> list[Record]:
    return [ProducerIdsRecord(BrokerId(11), 5, (image.next_producer_id or 0) + 1000)]


def _register_controller(rng: random.Random, image: MetadataImage) -> list[Record]:
    return [
        RegisterControllerRecord(
            NodeId(rng.randint(1, 4)),
            random_uuid(rng),
            image.end_offset,
            False,
            tuple(
                BrokerEndpoint(name, "host-ä", 9093, 0)
                for name in rng.choice(((), ("CONTROLLER",), ("A", "B")))
            ),
            rng.choice(((), (FeatureRange("metadata.version", 7, 30), FeatureRange("group.version", 0, 1)))),
        )
    ]


def _unregister_controller(rng: random.Random, image: MetadataImage) -> list[Record]:
    if not image.controllers:
        return _register_controller(rng, image)
    controller = image.controllers[rng.choice(sorted(image.controllers))]
    return [UnregisterControllerRecord(controller.controller_id, controller.registration_epoch)]


def _quota(rng: random.Random, image: MetadataImage) -> list[Record]:
    entity = rng.choice(
        (
            (QuotaEntity(USER, "ann"),),
            (QuotaEntity(USER, None),),
            (QuotaEntity(CLIENT_ID, "größe, =|"), QuotaEntity(USER, "ann")),
            (QuotaEntity(CLIENT_ID, None), QuotaEntity(USER, None)),
            (QuotaEntity(IP, "10.0.0.1"),),
        )
    )
    key = rng.choice(("producer_byte_rate", "request_percentage"))
    if rng.random() < 0.3:
        return [ClientQuotaRecord(entity, key, 0.0, remove=True)]
    return [ClientQuotaRecord(entity, key, rng.choice((1024.0, 0.1, 2.5, 1e16, 1e-7)), remove=False)]


def _create_acl(rng: random.Random, image: MetadataImage) -> list[Record]:
    acl = AccessControlEntryRecord(
        random_uuid(rng),
        rng.choice((2, 3)),
        rng.choice(("*", "t", "topic-ä", "topic")),
        rng.choice((3, 4)),
        rng.choice(("User:*", "User:ann", "User:CN=ä,O=b")),
        rng.choice(("*", "127.0.0.1")),
        rng.choice((2, 3, 8)),
        rng.choice((2, 3)),
    )
    return [] if image.acls.id_of(acl) else [acl]


def _remove_acl(rng: random.Random, image: MetadataImage) -> list[Record]:
    if not image.acls.by_id:
        return _create_acl(rng, image)
    return [RemoveAccessControlEntryRecord(rng.choice(sorted(image.acls.by_id)))]


def _credential(rng: random.Random, image: MetadataImage) -> list[Record]:
    if image.users and rng.random() < 0.3:
        return [RemoveUserScramCredentialRecord(*rng.choice(sorted(image.users)))]
    mask_key = rng.choice((None, rng.randbytes(16)))
    secrets = (rng.randbytes(9), rng.randbytes(32), rng.randbytes(32))
    name = rng.choice(("ann", "größe|"))
    return [UserScramCredentialRecord(name, rng.choice((1, 2)), *secrets, 4_096, mask_key)]


def _token(rng: random.Random, image: MetadataImage) -> list[Record]:
    if image.tokens and rng.random() < 0.3:
        return [RemoveDelegationTokenRecord(rng.choice(sorted(image.tokens)))]
    renewers = rng.choice(((), ("User:renée",), ("User:b,c", "User:d")))
    token_id = rng.choice(("MDEyMzQ1Njc4OWFiY2RlZg", "-größe_|"))
    return [DelegationTokenRecord(token_id, "User:ann", "User:bob", renewers, 7, 9_000, rng.randrange(9_000))]


def _new_voters(rng: random.Random, image: MetadataImage) -> list[Record]:
    return [_voters(rng)]


def _no_op(rng: random.Random, image: MetadataImage) -> list[Record]:
    return [NoOpRecord()]


_KINDS = (
    *(_register, _change_registration, _change_registration, _unregister),
    *(_create_topic, _create_topic, _add_partition, _change_partition, _change_partition, _change_partition),
    *(_remove_topic, _delete_topic, _change_deleted, _change_deleted),
    *(_config, _config, _feature, _producer_ids, _new_voters, _no_op),
    *(_register_controller, _register_controller, _unregister_controller),
    *(_quota, _quota),
    *(_create_acl, _create_acl, _remove_acl),
    *(_credential, _credential),
    *(_token, _token),
)


def small_uuid(number: int) -> Uuid:
    """Return a uuid that a reader of a failing test recognizes."""
    return Uuid(number.to_bytes(16) if number > 255 else bytes([0x40] + [0] * 14 + [number]))
