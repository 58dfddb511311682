"""Edge: features in Kafka's protocol: their finalized levels are changed."""

from typing import Final

from metadata_log.errors import InvalidUpdateVersion
from metadata_log.kafka.reading import Values
from quorum.decide.features import FeaturesUpdated, FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.kafka.door import NO_THROTTLE, Api, Asked, KafkaDoor, Waits
from quorum.kafka.errors import NONE

UPDATE_FEATURES: Final = 57
TYPES_FROM: Final = 1
"""The first version that tells an upgrade from two kinds of downgrade."""
_TYPES: Final = frozenset(UpgradeType)


async def update_features(door: KafkaDoor, asked: Asked) -> Values:
    _, updates, validate_only = asked.values
    command = UpdateFeatures(
        updates=tuple(_update(update, has_type=asked.version >= TYPES_FROM) for update in updates),
        validate_only=validate_only,
    )
    written = await door.controller.submit(command, asked.caller)
    outcome = written.outcome
    assert isinstance(outcome, FeaturesUpdated)
    return (NO_THROTTLE, NONE, None, [(feature, NONE, None) for feature, _ in outcome.levels])


def _update(update: Values, *, has_type: bool) -> FeatureUpdate:
    feature, level, may_fall, upgrade_type = update
    if not has_type:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if may_fall else UpgradeType.UPGRADE
    if upgrade_type not in _TYPES:
        raise InvalidUpdateVersion(f"{feature}: the upgrade type {upgrade_type} is not known")
    return FeatureUpdate(feature, level, UpgradeType(upgrade_type))


APIS: Final = (Api(UPDATE_FEATURES, Waits(update_features), "UpdateFeatures", in_envelopes=True),)
