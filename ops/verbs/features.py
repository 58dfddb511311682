"""Edge: `features list|upgrade|downgrade`."""

from typing import Final

from ops.changes import Change, change
from ops.options import Network, Noun, argument, reading
from ops.render import Column

NEW_CLUSTERS: Final = (
    "A new cluster without a listener for Kafka's brokers begins without eligible leader replicas, with which one of "
    "Kafka 4.1 or later begins: see the example."
)
FEATURES: Final = (
    Column("feature"),
    Column("level"),
    Column("supported_min", "MIN"),
    Column("supported_max", "MAX"),
)


NOUN: Final = Noun()


@NOUN.verb("list", "List the features that are finalized, and those that can be.", "features list")
@reading
def run_list(asked: Network) -> int:
    items = asked.client().items("/v1/features")
    asked.show_items(items, FEATURES, empty="no features")
    return 0


def _level(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not name or not equals or not level.isascii() or not level.isdigit() or len(level) > 5:
        raise ValueError(f"{text!r} is not NAME=LEVEL")
    return name, int(level)


@NOUN.verb(
    "upgrade",
    f"Finalize a feature at a higher level. {NEW_CLUSTERS}",
    "features upgrade eligible.leader.replicas.version=1",
)
@argument("feature", "NAME=LEVEL", read=_level)
@change
def run_upgrade(asked: Change, *, feature: tuple[str, int]) -> int:
    return _update(asked, feature, "upgrade")


@NOUN.verb(
    "downgrade",
    "Finalize a feature at a lower level; 0 switches it off.",
    "features downgrade eligible.leader.replicas.version=0",
)
@argument("feature", "NAME=LEVEL", read=_level)
@change
def run_downgrade(asked: Change, *, feature: tuple[str, int]) -> int:
    return _update(asked, feature, "safe_downgrade")


def _update(asked: Change, feature: tuple[str, int], upgrade_type: str) -> int:
    name, level = feature
    body = {"updates": [{"feature": name, "level": level, "upgrade_type": upgrade_type}]}
    if asked.dry_run:
        return asked.foreseen("UpdateFeatures", body)
    written = asked.client().write("POST", "/v1/features", body)
    asked.show(written, table=lambda: asked.table(FEATURES[:2], written["features"], empty=""))
    return 0
