"""Pure: the state with which the log of a quorum begins, made of the records of another system.

The features are those with which the settings found a quorum, eligible leader replicas aside. With these, a broker that
registers without saying under which epoch it stopped leaves every ISR: brokers of another system can say none, and the
partitions would have no broker to lead them. So this feature is turned on once the brokers have registered.
Tests: tests/unit/quorum/node/test_beginning.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from metadata_log.apply import image_of
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.metadata_versions import SCRAM_FROM, TOKENS_FROM, name_of
from metadata_log.records.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    METAQUORUM_VERSION,
    METAQUORUM_VERSION_LEVEL,
    FeatureLevelRecord,
)
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.quorum import KRAFT_VERSION_LEVEL, QuorumVersionRecord, Voter, VotersRecord
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.records.tokens import DelegationTokenRecord
from metadata_log.records.users import UserScramCredentialRecord
from quorum.decide.founding import Founding
from quorum.node.config import ControllerSettings


def begun(
    records: Sequence[Record],
    *,
    settings: ControllerSettings,
    voters: Iterable[Voter],
    epoch: int,
    unix_ms: int,
) -> MetadataImage:
    """Return the state that `records` add up to, which are in the order of a snapshot, in a quorum of these voters.

    No controller leads yet: the first one claims the epoch above `epoch`. Each record takes an offset.

    Raises:
        InvariantBroken: the records contradict each other.
    """
    chosen = Founding.at(settings.features.founding_metadata_version)
    founding: tuple[Record, ...] = (
        QuorumVersionRecord(KRAFT_VERSION_LEVEL),
        VotersRecord(tuple(sorted(voters))),
        FeatureLevelRecord(METADATA_VERSION, chosen.metadata_version),
        FeatureLevelRecord(METAQUORUM_VERSION, METAQUORUM_VERSION_LEVEL),
        *(FeatureLevelRecord(*each) for each in chosen.levels if each[0] != ELIGIBLE_LEADER_REPLICAS_VERSION),
    )
    header = SnapshotHeaderRecord(
        cluster_id=settings.cluster_id,
        end_offset=len(founding) + len(records),
        controller_epoch=epoch,
        last_time_ms=unix_ms,
        last_crc=0,
    )
    return image_of(chain(founding, records), header=header)


def unfit(records: Iterable[Record], settings: ControllerSettings) -> Iterator[str]:
    """Yield why a controller with these settings cannot go on for the Kafka brokers of these records, each with the cure."""
    node_id, level = settings.node_id, settings.features.founding_metadata_version
    if settings.listen_kafka is None:
        yield "the settings have no [listen] kafka: Kafka's brokers would not find this controller"
    if not settings.is_listed:
        yield f"node {node_id} has no [[voters]] entry in its settings: it votes"
    replicas, kinds = set[int](), set[type]()
    for record in records:
        kinds.add(type(record))
        if isinstance(record, PartitionRecord):
            replicas.update(record.replicas)
    if node_id in replicas:
        yield (
            f"id {node_id} is a broker's, which has replicas, and controllers and brokers share one range of ids: "
            "give the controller another"
        )
    for kind, (what, since) in _KNOWN_FROM.items():
        if kind in kinds and level < since:
            yield (
                f"the log has {what} from metadata.version {name_of(since)} on, and the settings found a quorum at "
                f"{name_of(level)}: raise founding_metadata_version in [features] to {since}"
            )


_KNOWN_FROM: Final = {
    UserScramCredentialRecord: ("SCRAM credentials", SCRAM_FROM),
    DelegationTokenRecord: ("delegation tokens", TOKENS_FROM),
}
