"""Pure: lines about settings, features, producer ids and controllers, and a look at the whole state."""

from typing import Any

from metadata_log.records.features import BROKERS_FEATURES, METADATA_VERSION_LEVEL
from tests.differential.scripts import tiers
from tests.differential.scripts.picture import CONTROLLER_ID, LEFT_OUT, MIN_ISR, UNCLEAN, Picture
from tests.differential.scripts.topics import configs

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_TOPIC, _BROKER = 2, 4


def alter_configs(picture: Picture) -> None:
    kind = picture.rng.random()
    if picture.chance(0.3 if picture.has_remote_storage else 0.03):
        _alter_tiers(picture)
    elif kind < 0.6:
        _alter_topic(picture)
    elif kind < 0.7:
        name = picture.pick(picture.topics, "nothing")
        settings = configs(picture)
        picture.emit(
            "LegacyAlterConfigs",
            resources=[
                {
                    "resource_type": _TOPIC,
                    "resource_name": name,
                    "configs": [{"name": key, "value": value} for key, value in sorted(settings.items())],
                }
            ],
        )
        if name in picture.topics:
            picture.configs[name] = settings
    else:
        _alter_broker(picture)


def _alter_topic(picture: Picture) -> None:
    rng = picture.rng
    name = picture.pick(picture.topics, "nothing") if picture.chance(0.95) else "nothing"
    key = rng.choice([MIN_ISR, MIN_ISR, UNCLEAN, "retention.ms", "cleanup.policy"])
    value = {
        MIN_ISR: str(rng.choice([1, 2, 3])),
        UNCLEAN: rng.choice(["true", "false"]),
        "retention.ms": str(rng.randint(1, 9)),
        "cleanup.policy": rng.choice(["compact", "delete"]),
    }[key]
    if picture.chance(0.05):
        key, value = rng.choice([(MIN_ISR, "0"), (MIN_ISR, "x"), ("no.such.config", "1"), (UNCLEAN, "maybe")])
        _emit(picture, _TOPIC, name, key, _SET, value)
        return
    operation = rng.choice([_SET, _SET, _SET, _DELETE] if key != "cleanup.policy" else range(4))
    if picture.chance(0.03):
        operation, key, value = _APPEND, MIN_ISR, "1"
    validate = picture.chance(0.04)
    _emit(picture, _TOPIC, name, key, operation, value, validate_only=validate or LEFT_OUT)
    if name in picture.topics and not validate and operation in (_SET, _DELETE):
        if operation == _SET:
            picture.configs[name][key] = value
        else:
            picture.configs[name].pop(key, None)
        if key == MIN_ISR and picture.has_eligible:
            for partition in picture.topics[name]:
                partition.eligible = []


def _alter_tiers(picture: Picture) -> None:
    changes = [
        {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
        for name, value in sorted(tiers.changed(picture).items())
    ]
    name = picture.pick(picture.topics, "nothing")
    resource = {"resource_type": _TOPIC, "resource_name": name, "configs": changes}
    validate = picture.chance(0.04)
    picture.emit("IncrementalAlterConfigs", resources=[resource], validate_only=validate or LEFT_OUT)


def _alter_broker(picture: Picture) -> None:
    rng = picture.rng
    name = rng.choice(["", "", str(CONTROLLER_ID), str(picture.any_broker().broker_id), "444"])
    key = rng.choice([MIN_ISR, UNCLEAN, "log.retention.ms"])
    value = {
        MIN_ISR: str(rng.choice([1, 2, 3])),
        UNCLEAN: rng.choice(["true", "false"]),
        "log.retention.ms": "77",
    }[key]
    operation = rng.choice([_SET, _SET, _DELETE])
    _emit(picture, _BROKER, name, key, operation, value)
    if key == UNCLEAN and name in ("", str(CONTROLLER_ID)):
        picture.cluster_unclean = None if operation == _DELETE else value


def _emit(
    picture: Picture,
    resource_type: int,
    resource_name: str,
    key: str,
    operation: int,
    value: str,
    **fields: Any,
) -> None:
    config = {"name": key, "config_operation": operation, "value": None if operation == _DELETE else value}
    resource = {"resource_type": resource_type, "resource_name": resource_name, "configs": [config]}
    picture.emit("IncrementalAlterConfigs", resources=[resource], **fields)


def allocate_producer_ids(picture: Picture) -> None:
    broker_id = picture.any_broker().broker_id
    epoch = picture.rng.choice([LEFT_OUT, LEFT_OUT, LEFT_OUT, "+1"])
    picture.emit("AllocateProducerIds", broker_id=broker_id, broker_epoch=epoch)


def update_features(picture: Picture) -> None:
    rng, level = picture.rng, picture.mostly(picture.has_eligible, 0.7, not picture.has_eligible)
    near = [picture.level + step for step in (-2, -1, -1, 0, 1, 2, 5)]
    wanted = rng.choice([30, 29, 31, 99, 0, *near])
    update = rng.choice(
        [
            {
                "feature": "metadata.version",
                "max_version_level": wanted,
                "upgrade_type": rng.choice([1, 2, 3]),
            },
            {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1},
            {
                "feature": rng.choice(sorted(BROKERS_FEATURES)),
                "max_version_level": rng.choice([0, 1, 2, 3]),
                "upgrade_type": rng.choice([1, 2, 3]),
            },
            {
                "feature": "eligible.leader.replicas.version",
                "max_version_level": int(level),
                "upgrade_type": rng.choice([1, 1, 2, 3]),
            },
        ]
    )
    validate = picture.chance(0.3)
    if update["feature"] == "metadata.version" and not validate and update["upgrade_type"] == 1:
        picture.level = wanted if picture.level < wanted <= METADATA_VERSION_LEVEL else picture.level
    if update["feature"] == "eligible.leader.replicas.version" and not validate:
        picture.has_eligible = level
    picture.emit("UpdateFeatures", feature_updates=[update], validate_only=validate or LEFT_OUT)


def register_controller(picture: Picture) -> None:
    level = picture.rng.choice([22, 30])
    picture.emit(
        "RegisterController",
        controller_id=picture.rng.choice([CONTROLLER_ID, CONTROLLER_ID + 1]),
        incarnation_id=f"c-{len(picture.lines)}",
        features=[{"name": "metadata.version", "min_supported_version": 7, "max_supported_version": level}],
    )


def state(picture: Picture) -> None:
    picture.emit("State")
