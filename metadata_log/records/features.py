"""Pure: what can happen to the finalized features. Tests: tests/unit/quorum/decide/test_controllers.py."""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from metadata_log.records.declaration import NO_SECRETS, record

METADATA_VERSION = "metadata.version"
METADATA_VERSION_LEVEL = 30
"""Kafka 4.3-IV0, the newest stable level; with it a cluster is founded. The finalized level decides record versions where a
log is translated for Kafka (`metadata_log/metadata_versions.py`)."""
METADATA_VERSION_MIN = 7
"""Kafka 3.3-IV3, the oldest level with which Kafka 4.3 starts."""
METAQUORUM_VERSION = "metaquorum.version"
METAQUORUM_VERSION_LEVEL = 5
"""The newest level that this release knows, with which it founds a cluster. Records that older releases do not know are
written only at the level that knows them (`levels` in `declaration.py`). Level 1 is what a54a930 knows and writes; level
4 has ACLs, SCRAM credentials and quotas of clients; level 5 has delegation tokens. A kind of record that comes later needs
a level of its own."""
METAQUORUM_VERSION_MIN = 1
KRAFT_VERSION = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
ELIGIBLE_LEADER_REPLICAS_LEVEL = 1
"""Level 1: brokers that left an ISR smaller than min.insync.replicas stay eligible to lead (KIP-966)."""
BROKERS_FEATURES: Final[Mapping[str, int]] = {
    "transaction.version": 2,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
}
"""The newest levels of Kafka 4.3 of features that mean something to its brokers and clients alone."""


@record(type_id=12, secret_fields=NO_SECRETS)
class FeatureLevelRecord(NamedTuple):
    """A feature was finalized at a level; 0 removes it."""

    name: str
    level: int


Record: TypeAlias = FeatureLevelRecord
