"""Pure: what a cluster is founded with: the levels of its features, and the first credentials of users.

Kafka calls these bootstrap records. The first claim of all writes them after the voters; no later one does.
Source: Kafka's Formatter and BootstrapMetadata of 4.3.1. Tests: tests/unit/quorum/decide/test_founding.py.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

from metadata_log.errors import InvalidRequest
from metadata_log.metadata_versions import (
    DEPENDS_ON,
    METADATA_VERSIONS,
    OUR_BROKERS_FROM,
    SCRAM_FROM,
    UNSTABLE_LEVEL,
    formatted_with,
    level_of,
    name_of,
    newest,
)
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, MIN_IN_SYNC_REPLICAS, ConfigRecord
from metadata_log.records.features import (
    BROKERS_FEATURES,
    ELIGIBLE_LEADER_REPLICAS_LEVEL,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METADATA_VERSION_MIN,
    FeatureLevelRecord,
)
from metadata_log.records.quorum import KRAFT_VERSION_LEVEL
from metadata_log.records.registry import Record
from metadata_log.records.users import UserScramCredentialRecord

CHOSEN: Final[Mapping[str, int]] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: ELIGIBLE_LEADER_REPLICAS_LEVEL,
    KRAFT_VERSION: KRAFT_VERSION_LEVEL,
    **BROKERS_FEATURES,
}
"""The features whose levels a founder may choose beside metadata.version, with the newest level of each."""


class Founding(NamedTuple):
    """What the first claim writes after the voters; `levels` are those of further features, without those at 0."""

    metadata_version: int = METADATA_VERSION_LEVEL
    kraft_version: int = KRAFT_VERSION_LEVEL
    levels: tuple[tuple[str, int], ...] = ()
    credentials: tuple[UserScramCredentialRecord, ...] = ()

    @classmethod
    def at(cls, metadata_version: int) -> Self:
        """Return what `kafka-storage format` of 4.3.1 founds at a level, where nothing else is asked for.

        No node is registered yet. A controller that knows the level of metaquorum.version with which a cluster is founded
        supports all of these levels, and a broker must register each of them.
        """
        return cls(metadata_version, levels=tuple(sorted(formatted_with(metadata_version).items())))

    def records(self, *, min_insync_replicas: str) -> tuple[Record, ...]:
        """Return the records beside those of the voters, of metadata.version and of metaquorum.version.

        With eligible leader replicas on, the cluster's min.insync.replicas is in the log from the beginning.
        """
        records: list[Record] = [FeatureLevelRecord(name, level) for name, level in self.levels]
        if ELIGIBLE_LEADER_REPLICAS_VERSION in dict(self.levels):
            records.append(ConfigRecord(BROKER, CLUSTER_DEFAULT, MIN_IN_SYNC_REPLICAS, min_insync_replicas))
        return (*records, *self.credentials)


NEWEST: Final = Founding()
"""The newest levels, and no further feature."""


def chosen(
    *,
    release: str | None,
    features: Sequence[tuple[str, int]],
    credentials: Sequence[UserScramCredentialRecord],
    otherwise: int,
    unstable: bool,
    for_kafka: bool,
) -> Founding:
    """Return what a founder asks for; of a feature that is named twice the last level counts, as in Kafka.

    `otherwise` is the level of metadata.version where none is named.

    Raises:
        InvalidRequest: Kafka's format refuses it, in these words; or only Kafka's brokers register at the level, and none
            come.
    """
    wanted = dict(features)
    level = _metadata_version(release, wanted, otherwise, unstable=unstable)
    if level < OUR_BROKERS_FROM and not for_kafka:
        raise InvalidRequest(
            f"{METADATA_VERSION} {level}: without [listen] kafka it must be at least {OUR_BROKERS_FROM}: other brokers say "
            "their log directories"
        )
    for name, of in wanted.items():
        _check(name, of, level)
    if credentials and level < SCRAM_FROM:
        raise InvalidRequest(f"SCRAM is only supported in {METADATA_VERSION} {name_of(SCRAM_FROM)} or later.")
    usual = Founding.at(level)
    levels = {**dict(usual.levels), **wanted}
    return Founding(
        level,
        levels.pop(KRAFT_VERSION, usual.kraft_version),
        tuple(sorted((name, of) for name, of in levels.items() if of)),
        tuple(credentials),
    )


def _metadata_version(release: str | None, wanted: dict[str, int], otherwise: int, *, unstable: bool) -> int:
    """Return the level of metadata.version, and take it out of what is wanted."""
    level: int | None = wanted.pop(METADATA_VERSION, None)
    if level is not None and release is not None:
        raise InvalidRequest(
            f"Use --release-version instead of --feature {METADATA_VERSION}=X to avoid ambiguity."
        )
    if level is not None and name_of(level) is None:
        raise InvalidRequest(
            f"No MetadataVersion with feature level {level}. Valid feature levels are from {METADATA_VERSION_MIN} to "
            f"{UNSTABLE_LEVEL}."
        )
    most = newest(unstable=unstable)
    if release is not None and ((level := level_of(release)) is None or release.isdigit() or level > most):
        known = ", ".join(each.name for each in METADATA_VERSIONS if each.level <= most)
        raise InvalidRequest(
            f"Unknown {METADATA_VERSION} '{release}'. Supported {METADATA_VERSION} are: {known}"
        )
    if level is None:
        return otherwise
    if level > most:
        raise InvalidRequest(
            f"{METADATA_VERSION} {name_of(level)} is not yet stable: unstable_levels = true in [features] takes it"
        )
    return level


def _check(name: str, level: int, metadata_version: int) -> None:
    if name not in CHOSEN:
        raise InvalidRequest(
            f"Unsupported feature: {name}. Supported features are: {', '.join(sorted(CHOSEN))}"
        )
    if not 0 <= level <= CHOSEN[name]:
        raise InvalidRequest(f"No feature:{name} with feature level {level}")
    least = DEPENDS_ON.get((name, level), 0)
    if metadata_version < least:
        raise InvalidRequest(
            f"{name} could not be set to {level} because it depends on {METADATA_VERSION} level {least}"
        )
