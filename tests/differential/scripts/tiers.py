"""Pure: settings of topics about tiers, where brokers have a remote storage and where they have none."""

from typing import Final

from tests.differential.scripts.picture import Picture

REMOTE: Final = "remote.storage.enable"
DELETE_ON_DISABLE: Final = "remote.log.delete.on.disable"
_COPY_DISABLE: Final = "remote.log.copy.disable"
_BOOLEANS: Final = ("true", "false")
_WEEK_MS: Final = 7 * 24 * 3600 * 1000
_MS: Final = ("-2", "-2", "-1", "0", "5", str(_WEEK_MS), str(_WEEK_MS + 1))
_BYTES: Final = ("-2", "-2", "-1", "0", "5", "6")
_VALUES: Final = {
    REMOTE: (*_BOOLEANS, "true", " TRUE "),
    DELETE_ON_DISABLE: _BOOLEANS,
    _COPY_DISABLE: _BOOLEANS,
    "local.retention.ms": _MS,
    "local.retention.bytes": _BYTES,
    "retention.ms": ("-1", "5", "6", str(_WEEK_MS)),
    "retention.bytes": ("-1", "-1", "-2", "5", "6"),
    "cleanup.policy": ("delete", "delete", "", "delete,delete", "compact", "compact,delete"),
}
"""By setting: values that are right or wrong beside those of others."""


def of_new_topic(picture: Picture) -> dict[str, str]:
    """Return settings about tiers; most topics have none, or tiers that nothing is said against."""
    if not picture.chance(0.4 if picture.has_remote_storage else 0.05):
        return {}
    drawn = {REMOTE: "true"}
    if picture.chance(0.4):
        drawn |= _some(picture)
    return drawn


def changed(picture: Picture) -> dict[str, str | None]:
    """Return some settings about tiers with their new values; None: the setting is deleted."""
    if picture.chance(0.2):
        return {REMOTE: picture.rng.choice(["false", None]), DELETE_ON_DISABLE: "true"}
    return {name: None if picture.chance(0.2) else value for name, value in _some(picture).items()}


def _some(picture: Picture) -> dict[str, str]:
    names = picture.rng.sample(sorted(_VALUES), picture.rng.choice([1, 1, 2, 3]))
    return {name: picture.rng.choice(_VALUES[name]) for name in names}
