"""Pure: the finalized features: those of the controllers, and those that Kafka's brokers and clients look up here.

Source: KIP-584, KIP-966; Kafka's FeatureControlManager and ConfigurationControlManager.
Tests: tests/unit/quorum/decide/test_controllers.py.
"""

import enum
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_log.errors import InvalidRequest, InvalidUpdateVersion
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.metadata_versions import DEPENDS_ON, added_between, newest
from metadata_log.records.brokers import FeatureRange
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, MIN_IN_SYNC_REPLICAS, ConfigRecord
from metadata_log.records.features import (
    BROKERS_FEATURES,
    ELIGIBLE_LEADER_REPLICAS_LEVEL,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METADATA_VERSION_MIN,
    METAQUORUM_VERSION,
    METAQUORUM_VERSION_LEVEL,
    METAQUORUM_VERSION_MIN,
    FeatureLevelRecord,
)
from metadata_log.records.quorum import KRAFT_VERSION_LEVEL, QuorumVersionRecord, VotersRecord
from metadata_log.records.registry import Record
from metadata_log.wire.commands import Command
from quorum.decide.access import ALTERS_CLUSTER, DESCRIBES
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision
from quorum.decide.effective_configs import static_config
from quorum.decide.quorum import all_reached_at


class UpgradeType(enum.IntEnum):
    """Which way a feature's level may go; a downgrade is safe where nothing in the log is lost. Source: KIP-584."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    feature: str
    level: int
    upgrade_type: UpgradeType


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeatures(Command):
    """Finalize features at other levels, all of them or none. Source: KIP-584, KIP-1022."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool


SUPPORTED: Final = {
    METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_LEVEL),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, ELIGIBLE_LEADER_REPLICAS_LEVEL),
    METAQUORUM_VERSION: (METAQUORUM_VERSION_MIN, METAQUORUM_VERSION_LEVEL),
    **{name: (0, level) for name, level in BROKERS_FEATURES.items()},
}
"""The levels, both ends inclusive, at which this release can finalize a feature; unstable ones only on request."""
REGISTERED: Final = tuple(FeatureRange(name, *levels) for name, levels in sorted(SUPPORTED.items()))
"""What a controller of this release registers."""
_DISABLED: Final = (0, 0)
"""What a node supports of a feature that its registration does not name."""


def supported(*, unstable: bool) -> Mapping[str, tuple[int, int]]:
    """Return the levels at which a controller can finalize features, whose settings ask for unstable ones or do not."""
    return {**SUPPORTED, METADATA_VERSION: (METADATA_VERSION_MIN, newest(unstable=unstable))}


def registered(*, unstable: bool) -> tuple[FeatureRange, ...]:
    """Return what such a controller registers."""
    return tuple(FeatureRange(name, *levels) for name, levels in sorted(supported(unstable=unstable).items()))


class FeaturesUpdated(NamedTuple):
    """The levels of the features that were asked for, by name."""

    levels: tuple[tuple[str, int], ...]


def update(context: DecideContext, command: UpdateFeatures) -> Decision:
    """Decide other levels of features, of all that are named or of none.

    With eligible leader replicas on, min.insync.replicas is one setting of the whole cluster: it is written if it was
    not, and those of single brokers are deleted. A lower level of metadata.version is refused where its records cannot hold
    what those of the present one can, whether or not the log has any such record, and also where it is asked for as unsafe:
    Kafka 4.3.1 refuses both.

    Raises:
        InvalidRequest: a feature is given twice.
        InvalidUpdateVersion: a level is not supported by this controller, by a registered broker or controller, or a voter
            is not registered; or it lies in the other direction; or it would lower metaquorum.version or kraft.version, or
            lose metadata; or it needs a higher level of metadata.version.
    """
    records: list[Record] = []
    of_voters: tuple[Record, ...] = ()
    if context.checks_as_brokers:
        times = Counter(wanted.feature for wanted in command.updates)
        if twice := sorted(name for name, count in times.items() if count > 1):
            raise InvalidRequest(f"a feature is given twice: {', '.join(twice)}")
    proposed = {**context.image.features, **{wanted.feature: wanted.level for wanted in command.updates}}
    for wanted in command.updates:
        if wanted.feature == KRAFT_VERSION:
            of_voters = _raised_kraft_version(context, wanted)
            continue
        _check(context, wanted, proposed)
        records.append(FeatureLevelRecord(wanted.feature, wanted.level))
    if any(each.feature == ELIGIBLE_LEADER_REPLICAS_VERSION and each.level > 0 for each in command.updates):
        records = [*_one_min_isr(context), *records]
    outcome = FeaturesUpdated(tuple((each.feature, each.level) for each in command.updates))
    # Kafka's quorum writes those of voters itself, in a batch before the others.
    return Decision(records=() if command.validate_only else [*of_voters, *records], outcome=outcome)


def _raised_kraft_version(context: DecideContext, wanted: FeatureUpdate) -> tuple[Record, ...]:
    """Return what raises the level of the voters' own protocol, from which on the log says who votes, and where.

    A voter that registered other addresses than those of the settings is reached there from then on.
    The present level writes nothing: Kafka's tools ask for it together with all other levels of a release.
    Source: KIP-853; Kafka's LeaderState and KRaftVersionUpgrade of 4.3.1.
    """
    image = context.image
    name, level, upgrade_type = wanted
    present = image.quorum.kraft_version or 0
    where = f"{name} cannot become {level}"
    if level == present:
        return ()
    if not 0 <= level <= KRAFT_VERSION_LEVEL:
        raise InvalidUpdateVersion(f"{where}: this controller supports 0 to {KRAFT_VERSION_LEVEL}")
    if level < present:
        way = "ask for a downgrade" if upgrade_type is UpgradeType.UPGRADE else "it is never lowered"
        raise InvalidUpdateVersion(f"{where}: it is {present}; {way}")
    if upgrade_type is not UpgradeType.UPGRADE:
        raise InvalidUpdateVersion(f"{where}: it is {present}; ask for an upgrade")
    if blockers := "; ".join(_kraft_version_blockers(image, level)):
        raise InvalidUpdateVersion(f"{where}: {blockers}")
    return (QuorumVersionRecord(level), VotersRecord(all_reached_at(context)))


def _kraft_version_blockers(image: MetadataImage, level: int) -> Iterator[str]:
    """Yield what does not support a level. A broker that does not name the feature reads no record of the voters."""
    for broker_id, broker in sorted(image.brokers.items()):
        for name, low, high in broker.features:
            if name == KRAFT_VERSION and not low <= level <= high:
                yield _support("broker", [str(broker_id)], (low, high))
    for voter in image.quorum.voters or ():
        if not voter.min_version <= level <= voter.max_version:
            yield _support("voter", [str(voter.node_id)], (voter.min_version, voter.max_version))
        elif voter.node_id not in image.controllers:
            yield f"voter {voter.node_id} has not registered: start it"


def _check(context: DecideContext, wanted: FeatureUpdate, proposed: Mapping[str, int]) -> None:
    """Check one update; `proposed` are the levels of all features once all of the request are finalized."""
    name, level, upgrade_type = wanted
    where = f"{name} cannot become {level}"
    present = context.image.features.get(name, 0)
    known = supported(unstable=context.takes_unstable_levels)
    low, high = known.get(name, _DISABLED)
    if name not in known:
        raise InvalidUpdateVersion(f"{name} is no feature of this controller: {', '.join(sorted(known))} are")
    if not low <= level <= high:
        raise InvalidUpdateVersion(f"{where}: this controller supports {low} to {high}")
    if level < present and name == METAQUORUM_VERSION:
        raise InvalidUpdateVersion(
            f"{where}: it is {present}, and the log may hold records that nodes of level {level} do not know"
        )
    if blockers := "; ".join(_blockers(context, name, level)):
        raise InvalidUpdateVersion(
            f"{where}: {blockers}. Upgrade them; those that are gone for good: metaquorum brokers unregister ID, "
            "metaquorum controllers unregister ID"
        )
    if level < present and upgrade_type is UpgradeType.UPGRADE:
        raise InvalidUpdateVersion(f"{where}: it is {present}; ask for a downgrade")
    if level > present and upgrade_type is not UpgradeType.UPGRADE:
        raise InvalidUpdateVersion(f"{where}: it is {present}; ask for an upgrade")
    if name == METADATA_VERSION and (gone := added_between(level, present)):
        lost = ", ".join(f"{each.adds} ({each.level})" for each in reversed(gone))
        raise InvalidUpdateVersion(
            f"{where}: it is {present}, and records of {level} cannot hold: {lost}. Kafka 4.3.1 refuses this too, as safe "
            f"and as unsafe; metaquorum features preview {name}={level} lists what the cluster has of it"
        )
    least = DEPENDS_ON.get((name, level), 0)
    if proposed.get(METADATA_VERSION, METADATA_VERSION_LEVEL) < least:
        raise InvalidUpdateVersion(f"{where}: it needs {METADATA_VERSION} {least} or higher")


def _blockers(context: DecideContext, name: str, level: int) -> Iterator[str]:
    """Yield every registration that does not support a level, whether its process runs or not.

    Kafka names one at a time. A broker that does not name metaquorum.version reads none of our records: any level suits it.
    """
    image = context.image
    brokers: dict[tuple[int, int], list[str]] = defaultdict(list)
    for broker_id, broker in sorted(image.brokers.items()):
        levels = _levels_of(broker.features, name)
        if name == METAQUORUM_VERSION and levels == _DISABLED:
            continue
        if not levels[0] <= level <= levels[1]:
            brokers[levels].append(f"{broker_id} (fenced)" if broker.fenced else str(broker_id))
    for levels, who in sorted(brokers.items()):
        yield _support("broker", who, levels)
    controllers: dict[tuple[int, int], list[str]] = defaultdict(list)
    for controller_id, controller in sorted(image.controllers.items()):
        if controller_id == context.node_id:
            continue  # `supported` has decided already
        levels = _levels_of(controller.features, name)
        if not levels[0] <= level <= levels[1]:
            is_linked = context.is_linked(controller_id)
            controllers[levels].append(str(controller_id) if is_linked else f"{controller_id} (not linked)")
    for levels, who in sorted(controllers.items()):
        yield _support("controller", who, levels)
    voters = [voter.node_id for voter in image.quorum.voters or ()]
    unknown = [str(voter) for voter in voters if voter != context.node_id and voter not in image.controllers]
    if unknown:
        plural, has = ("s", "have") if len(unknown) > 1 else ("", "has")
        yield f"controller{plural} {', '.join(unknown)} {has} not registered, and may not support it"


def _levels_of(features: Sequence[FeatureRange], name: str) -> tuple[int, int]:
    for feature in features:
        if feature.name == name:
            return feature.min_version, feature.max_version
    return _DISABLED


def _support(what: str, who: Sequence[str], levels: tuple[int, int]) -> str:
    plural, verb = ("s", "support") if len(who) > 1 else ("", "supports")
    return f"{what}{plural} {', '.join(who)} {verb} {levels[0]} to {levels[1]}"


def _one_min_isr(context: DecideContext) -> list[ConfigRecord]:
    configs = context.image.configs
    records: list[ConfigRecord] = []
    if MIN_IN_SYNC_REPLICAS not in (configs.get((BROKER, CLUSTER_DEFAULT)) or {}):
        value = static_config(context, MIN_IN_SYNC_REPLICAS)
        records.append(ConfigRecord(BROKER, CLUSTER_DEFAULT, MIN_IN_SYNC_REPLICAS, value))
    for resource_type, name in sorted(configs):
        if (
            resource_type == BROKER
            and name != CLUSTER_DEFAULT
            and MIN_IN_SYNC_REPLICAS in configs[BROKER, name]
        ):
            records.append(ConfigRecord(BROKER, name, MIN_IN_SYNC_REPLICAS, None))
    return records


DECISIONS: Final = (Decides(UpdateFeatures, "UpdateFeatures", FeaturesUpdated, ALTERS_CLUSTER, update),)
OTHER_OPERATIONS: Final = {"DescribeFeatures": DESCRIBES}
