"""Pure: the finalized features. Of those that Kafka lets change, this release has one: eligible leader replicas.

Source: KIP-584, KIP-966; Kafka's FeatureControlManager and ConfigurationControlManager.
"""

from typing import Final, NamedTuple

from metadata_log.errors import InvalidUpdateVersion
from metadata_log.records.brokers import FeatureRange
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, MIN_IN_SYNC_REPLICAS, ConfigRecord
from metadata_log.records.features import (
    ELIGIBLE_LEADER_REPLICAS_LEVEL,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    FeatureLevelRecord,
)
from metadata_log.records.registry import Record
from metadata_log.wire.commands import FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision
from quorum.decide.effective_configs import static_config

SUPPORTED: Final = {
    METADATA_VERSION: (METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, ELIGIBLE_LEADER_REPLICAS_LEVEL),
}
"""The levels, both ends inclusive, at which this release can finalize a feature."""


class FeaturesUpdated(NamedTuple):
    """The levels of the features that were asked for, by name."""

    levels: tuple[tuple[str, int], ...]


def update(context: DecideContext, command: UpdateFeatures) -> Decision:
    """Decide other levels of features, of all that are named or of none.

    With eligible leader replicas on, min.insync.replicas is one setting of the whole cluster: it is written if it was
    not, and those of single brokers are deleted.

    Raises:
        InvalidUpdateVersion: a level is not supported by this controller or by a broker, or lies in the other direction.
    """
    records: list[Record] = []
    for wanted in command.updates:
        _check(context, wanted)
        if wanted.feature != METADATA_VERSION:
            records.append(FeatureLevelRecord(wanted.feature, wanted.level))
    if any(each.feature == ELIGIBLE_LEADER_REPLICAS_VERSION and each.level > 0 for each in command.updates):
        records = [*_one_min_isr(context), *records]
    outcome = FeaturesUpdated(tuple((each.feature, each.level) for each in command.updates))
    return Decision(records=() if command.validate_only else records, outcome=outcome)


def _check(context: DecideContext, wanted: FeatureUpdate) -> None:
    name, level, upgrade_type = wanted
    where = f"{name} cannot become {level}"
    low, high = SUPPORTED.get(name, (0, 0))
    if name not in SUPPORTED or not low <= level <= high:
        raise InvalidUpdateVersion(f"{where}: this controller supports {low} to {high}")
    for broker_id, broker in sorted(context.image.brokers.items()):
        known = {feature.name: feature for feature in broker.features}.get(name, FeatureRange(name, 0, 0))
        if not known.min_version <= level <= known.max_version:
            raise InvalidUpdateVersion(
                f"{where}: broker {broker_id} supports {known.min_version} to {known.max_version}"
            )
    present = context.image.features.get(name, 0)
    if level < present and upgrade_type is UpgradeType.UPGRADE:
        raise InvalidUpdateVersion(f"{where}: it is {present}; ask for a downgrade")
    if level > present and upgrade_type is not UpgradeType.UPGRADE:
        raise InvalidUpdateVersion(f"{where}: it is {present}; ask for an upgrade")


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


DECISIONS: Final = (Decides(UpdateFeatures, "UpdateFeatures", FeaturesUpdated, update),)
