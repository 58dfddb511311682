"""Pure: the levels of metadata.version: their names, what each adds, and the levels of other features that belong to one.

Levels below 7 are of releases from which Kafka 4.0 and later cannot be upgraded. Source: Kafka's MetadataVersion and Feature
of 4.3.1; `python -m tests.differential` decides at every level beside Kafka's controller.
Tests: tests/unit/metadata_log/test_metadata_versions.py.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from metadata_log.records.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION_LEVEL,
    METADATA_VERSION_MIN,
)


class MetadataVersion(NamedTuple):
    """`adds` says what a record of this level can hold that one of the level before cannot; None: nothing."""

    level: int
    name: str
    adds: str | None = None


METADATA_VERSIONS: Final = tuple(
    MetadataVersion(*row)
    for row in (
        (7, "3.3-IV3", "controlled shutdown of a broker"),
        (8, "3.4-IV0", "migration from ZooKeeper"),
        (9, "3.5-IV0"),
        (10, "3.5-IV1"),
        (11, "3.5-IV2", "SCRAM credentials"),
        (12, "3.6-IV0"),
        (13, "3.6-IV1", "metadata transactions"),
        (14, "3.6-IV2", "delegation tokens"),
        (15, "3.7-IV0", "registrations of controllers"),
        (16, "3.7-IV1"),
        (17, "3.7-IV2", "log directories of brokers and of replicas"),
        (18, "3.7-IV3"),
        (19, "3.7-IV4"),
        (20, "3.8-IV0"),
        (21, "3.9-IV0"),
        (22, "4.0-IV0"),
        (23, "4.0-IV1", "eligible leader replicas"),
        (24, "4.0-IV2"),
        (25, "4.0-IV3"),
        (26, "4.1-IV0"),
        (27, "4.1-IV1"),
        (28, "4.2-IV0"),
        (29, "4.2-IV1"),
        (30, "4.3-IV0", "cordoned log directories"),
        (31, "4.4-IV0"),
    )
)
_NAMES: Final[Mapping[int, str]] = {each.level: each.name for each in METADATA_VERSIONS}
_LEVELS: Final[Mapping[str, int]] = {
    **{each.name.partition("-")[0]: each.level for each in METADATA_VERSIONS},
    **{each.name: each.level for each in METADATA_VERSIONS},
}
"""By name; a release means the newest of its levels."""
UNSTABLE_LEVEL: Final = METADATA_VERSIONS[-1].level
"""Kafka may still change what this level means: a cluster takes it only where all controllers' settings ask for it."""

SCRAM_FROM: Final = 11
"""The first level whose log has SCRAM credentials. Source: KIP-900."""
NO_EPOCH_BUMP_FROM: Final = 12
"""Below this level the leader epoch of a partition rises whenever a replica leaves its ISR. Source: KAFKA-15021."""
TRANSACTIONS_FROM: Final = 13
TOKENS_FROM: Final = 14
"""The first level whose log has delegation tokens. Source: KIP-900."""
CONTROLLERS_FROM: Final = 15
"""The first level whose log has registrations of controllers. Source: KIP-919."""
DIRECTORIES_FROM: Final = 17
"""The first level at which brokers say their log directories, and partitions those of their replicas. Source: KIP-858."""
OUR_BROKERS_FROM: Final = DIRECTORIES_FROM
"""The oldest level at which brokers that are not Kafka's register: their hosts say where replicas lie."""
OTHER_LEADERS_FROM: Final = 21
"""The newest level of 3.9, whose brokers follow a leader that controller.quorum.voters does not name. Source: KIP-853."""
ELIGIBLE_FROM: Final = 23
"""The first level whose partitions have eligible leader replicas. Source: KIP-966."""
CORDONED_FROM: Final = 30
"""The first level at which brokers say which directories are cordoned. Source: KIP-1066."""

_SINCE: Final[Mapping[str, Mapping[int, int]]] = {
    "transaction.version": {24: 2},
    "group.version": {22: 1},
    ELIGIBLE_LEADER_REPLICAS_VERSION: {26: 1},
    "share.version": {28: 1},
    "streams.version": {29: 1},
}
"""From which level of metadata.version on Kafka formats a cluster with which level of another feature."""
DEPENDS_ON: Final[Mapping[tuple[str, int], int]] = {(ELIGIBLE_LEADER_REPLICAS_VERSION, 1): ELIGIBLE_FROM}
"""The lowest level of metadata.version at which a level of another feature may be finalized."""


def name_of(level: int) -> str | None:
    """Return Kafka's name of a level, as 4.3-IV0; None: there is no such level."""
    return _NAMES.get(level)


def level_of(text: str) -> int | None:
    """Return the level of a name, a release, or a number: 4.1-IV1, 4.1 and 27 are one; None: there is no such level."""
    if text.isascii() and text.isdigit():
        return int(text) if int(text) in _NAMES else None
    return _LEVELS.get(text)


def added_between(level: int, present: int) -> tuple[MetadataVersion, ...]:
    """Return the levels above `level`, up to the present one, whose records hold what those of `level` cannot."""
    return tuple(
        each for each in METADATA_VERSIONS if level < each.level <= present and each.adds is not None
    )


def newest(*, unstable: bool) -> int:
    return UNSTABLE_LEVEL if unstable else METADATA_VERSION_LEVEL


def formatted_with(level: int) -> dict[str, int]:
    """Return the levels of the other features with which Kafka formats a cluster at a level; those of 0 are left out."""
    found = {
        name: max((of for since, of in levels.items() if since <= level), default=0)
        for name, levels in _SINCE.items()
    }
    return {name: of for name, of in found.items() if of}


assert _NAMES.keys() == set(range(METADATA_VERSION_MIN, UNSTABLE_LEVEL + 1)), "a level is left out"
