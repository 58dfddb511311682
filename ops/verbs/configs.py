"""Edge: `configs get|set|unset`, of a topic, a broker or the cluster."""

import argparse
import urllib.parse
from typing import Any

from metadata_log.wire.shapes import INT32_MAX
from ops import render
from ops.arguments import Noun, from_to
from ops.client import client_from
from ops.render import Column
from ops.talk import show
from ops.verbs.topics import key_values

CONFIGS = (Column("resource_type", "OF"), Column("resource_name", "WHOSE"), Column("name"), Column("value"))


def add_parsers(noun: Noun) -> None:
    for name, does, run, example, metavar in (
        ("get", "Show settings.", run_get, "--topic orders", "K"),
        ("set", "Set settings.", run_set, "--topic orders retention.ms=1000", "K=V"),
        ("unset", "Remove settings.", run_unset, "--broker 11 log.cleaner.threads", "K"),
    ):
        verb = noun.verb(
            name,
            does,
            run=run,
            parent=noun.flags.network,
            examples=(f"configs {name} {example}",),
        )
        whose = verb.add_mutually_exclusive_group(required=True)
        whose.add_argument("--topic", metavar="T")
        whose.add_argument("--broker", type=from_to(0, INT32_MAX), metavar="ID")
        whose.add_argument("--cluster", action="store_true")
        verb.add_argument("keys", nargs="*" if name == "get" else "+", metavar=metavar)


def run_get(args: argparse.Namespace) -> int:
    """Show all settings of one resource, or those named."""
    query = urllib.parse.urlencode(
        {"cluster": 1} if args.cluster else {key: str(value) for key, value in _resource(args).items()}
    )
    items = client_from(args).read(f"/v1/configs?{query}")["items"]
    if args.keys:
        items = [item for item in items if item["name"] in args.keys]
    _show(args, items)
    return 0


def run_set(args: argparse.Namespace) -> int:
    _alter(args, {"set": key_values(args, args.keys), "unset": []})
    return 0


def run_unset(args: argparse.Namespace) -> int:
    _alter(args, {"set": {}, "unset": list(dict.fromkeys(args.keys))})
    return 0


def _alter(args: argparse.Namespace, change: dict[str, Any]) -> None:
    answer = client_from(args).write("PATCH", "/v1/configs", _resource(args) | change)
    show(args, answer, table=lambda: render.table(CONFIGS, answer["items"], empty="no settings"))


def _resource(args: argparse.Namespace) -> dict[str, Any]:
    """Return what the flags name, as a body names it."""
    if args.topic is not None:
        return {"topic": args.topic}
    return {"broker": args.broker} if args.broker is not None else {"cluster": True}


def _show(args: argparse.Namespace, items: list[dict[str, Any]]) -> None:
    show(args, items, table=lambda: render.table(CONFIGS, items, empty="no settings"))
