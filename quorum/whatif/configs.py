"""Pure: the operations of scripts on settings and features. Tests: tests/unit/quorum/whatif/test_kafka_scripts.py."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from quorum.decide.configs import (
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
    LegacyAlterConfigs,
    ResourceChange,
    ResourcesAltered,
)
from quorum.decide.features import FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.whatif.operation import Answer, Line, Run, or_default, result

_TYPES: Final = {"TOPIC": 2, "BROKER": 4}


def _resources(line: Line) -> tuple[ResourceChange, ...]:
    return tuple(
        ResourceChange(
            _TYPES.get(resource["resource_type"], resource["resource_type"]),
            or_default(resource, "resource_name", ""),
            tuple(
                ConfigChange(change["name"], _operation(change.get("config_operation")), change.get("value"))
                for change in resource["configs"]
            ),
        )
        for resource in line["resources"]
    )


def _operation(value: Any) -> ConfigOperation:
    if value is None:
        return ConfigOperation.SET
    return ConfigOperation[value] if isinstance(value, str) else ConfigOperation(value)


def alter_incrementally(run: Run, line: Line) -> Answer:
    validate_only = bool(line.get("validate_only"))
    return _shown(
        run.decide(IncrementalAlterConfigs(resources=_resources(line), validate_only=validate_only))
    )


def alter_wholly(run: Run, line: Line) -> Answer:
    validate_only = bool(line.get("validate_only"))
    return _shown(run.decide(LegacyAlterConfigs(resources=_resources(line), validate_only=validate_only)))


def _shown(outcome: Any) -> Answer:
    assert isinstance(outcome, ResourcesAltered)
    return {
        "results": [
            result(
                each.error,
                each.message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each in outcome.results
        ]
    }


def update_features(run: Run, line: Line) -> Answer:
    updates = tuple(
        FeatureUpdate(
            each["feature"], each["max_version_level"], UpgradeType(or_default(each, "upgrade_type", 1))
        )
        for each in line["feature_updates"]
    )
    run.decide(UpdateFeatures(updates=updates, validate_only=bool(line.get("validate_only"))))
    return {}


OPERATIONS: Final[Mapping[str, Callable[[Run, Mapping[str, Any]], Answer]]] = {
    "IncrementalAlterConfigs": alter_incrementally,
    "LegacyAlterConfigs": alter_wholly,
    "UpdateFeatures": update_features,
}
