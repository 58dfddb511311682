"""Edge: `features list|upgrade|downgrade`."""

import argparse
from typing import Final

from ops import render
from ops.arguments import Noun, client_from
from ops.dry_run import show_what_if
from ops.render import Column
from ops.talk import show

NEW_CLUSTERS: Final = (
    "A new cluster begins without eligible leader replicas, with which one of Kafka 4.1 or later begins: "
    "see the example."
)
FEATURES: Final = (
    Column("feature"),
    Column("level"),
    Column("supported_min", "MIN"),
    Column("supported_max", "MAX"),
)


def add_parsers(noun: Noun) -> None:
    noun.verb(
        "list",
        "List the features that are finalized, and those that can be.",
        run=run_list,
        parent=noun.flags.network,
        examples=("features list",),
    )
    for name, does, run in (
        ("upgrade", f"Finalize a feature at a higher level. {NEW_CLUSTERS}", run_upgrade),
        ("downgrade", "Finalize a feature at a lower level; 0 switches it off.", run_downgrade),
    ):
        level = 1 if name == "upgrade" else 0
        verb = noun.verb(
            name,
            does,
            run=run,
            parent=noun.flags.network,
            examples=(f"features {name} eligible.leader.replicas.version={level}",),
        )
        verb.add_argument("feature", type=_level, metavar="NAME=LEVEL")
        verb.add_argument("--dry-run", action="store_true", help="show the records, and write nothing")


def _level(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not name or not equals or not level.isascii() or not level.isdigit() or len(level) > 5:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=LEVEL")
    return name, int(level)


def run_list(args: argparse.Namespace) -> int:
    items = client_from(args).read("/v1/features")["items"]
    show(args, items, table=lambda: render.table(FEATURES, items, empty="no features"))
    return 0


def run_upgrade(args: argparse.Namespace) -> int:
    return _update(args, "upgrade")


def run_downgrade(args: argparse.Namespace) -> int:
    return _update(args, "safe_downgrade")


def _update(args: argparse.Namespace, upgrade_type: str) -> int:
    name, level = args.feature
    body = {"updates": [{"feature": name, "level": level, "upgrade_type": upgrade_type}]}
    if args.dry_run:
        return show_what_if(args, "UpdateFeatures", body)
    written = client_from(args).write("POST", "/v1/features", body)
    show(args, written, table=lambda: render.table(FEATURES[:2], written["features"], empty=""))
    return 0
