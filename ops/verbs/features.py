"""Edge: `features list|upgrade|downgrade|preview`."""

from typing import Final
from urllib.parse import quote

from metadata_log.records.features import METAQUORUM_VERSION
from ops.command_line.changes import Change, change
from ops.command_line.options import Network, Noun, argument, flag, reading
from ops.command_line.render import Column

FEATURES: Final = (
    Column("feature"),
    Column("level"),
    Column("supported_min", "MIN"),
    Column("supported_max", "MAX"),
)


LOSSES: Final = (Column("kind"), Column("key"), Column("field"), Column("value"))
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
    "Finalize a feature at a higher level.",
    "features upgrade metadata.version=30",
)
@argument("feature", "NAME=LEVEL", read=_level)
@change
def run_upgrade(asked: Change, *, feature: tuple[str, int]) -> int:
    return _update(asked, feature, "upgrade")


@NOUN.verb(
    "downgrade",
    "Finalize a feature at a lower level; 0 switches it off. One that would lose metadata is refused, as in Kafka.",
    "features downgrade eligible.leader.replicas.version=0",
    "features downgrade metadata.version=27 --dry-run",
)
@argument("feature", "NAME=LEVEL", read=_level)
@flag(
    "--unsafe",
    help="ask for it as unsafe; Kafka 4.3 and this release refuse what loses metadata all the same",
)
@change
def run_downgrade(asked: Change, *, feature: tuple[str, int], unsafe: bool) -> int:
    return _update(asked, feature, "unsafe_downgrade" if unsafe else "safe_downgrade")


@NOUN.verb(
    "preview",
    "List what a lower level of a feature could not hold, row by row. Nothing is changed.",
    "features preview metadata.version=23",
    "features preview eligible.leader.replicas.version=0",
)
@argument("feature", "NAME=LEVEL", read=_level)
@reading
def run_preview(asked: Network, *, feature: tuple[str, int]) -> int:
    name, level = feature
    told = asked.client().read(f"/v1/features/preview?feature={quote(name, safe='')}&level={level}")

    def table() -> str:
        fields = f"{told['count']:,} field{'' if told['count'] == 1 else 's'}"
        lines = [f"{name} is {told['present']}; level {level} would lose {fields}"]
        if level >= told["present"]:
            lines = [f"{name} is {told['present']}: {level} is no lower level, and nothing would be lost"]
        elif name == METAQUORUM_VERSION:
            lines = [f"{name} is {told['present']}, and never falls: a downgrade is refused"]
        lines += [f"  {each['level']} ({each['name']}) added: {each['adds']}" for each in told["adds"]]
        if told["adds"]:
            lines.append("  so the downgrade is refused, as Kafka 4.3.1 refuses it")
        if len(told["items"]) < told["count"]:
            lines.append(f"  the first {len(told['items'])} are shown")
        rows = asked.table(LOSSES, told["items"], empty="")
        return "\n".join([*lines, *([rows] if told["items"] else [])])

    asked.show(told, table=table)
    return 0


def _update(asked: Change, feature: tuple[str, int], upgrade_type: str) -> int:
    name, level = feature
    body = {"updates": [{"feature": name, "level": level, "upgrade_type": upgrade_type}]}
    if asked.dry_run:
        return asked.foreseen("UpdateFeatures", body)
    written = asked.client().write("POST", "/v1/features", body)
    asked.show(written, table=lambda: asked.table(FEATURES[:2], written["features"], empty=""))
    return 0
