"""Edge: `configs list|describe|set|unset|append|subtract|replace`, of topics, brokers and the cluster."""

import argparse
import urllib.parse
from typing import Any, Final

from metadata_log.errors import InvalidConfig
from metadata_log.limits import REQUEST_ITEMS_MAX
from metadata_log.wire.shapes import INT32_MAX
from ops import render
from ops.arguments import Noun, client_from, from_to
from ops.item_requests import ItemRequest, add_flags, carry_out, result_columns
from ops.render import Column
from ops.talk import fail_usage, say, show
from ops.verbs.topics import key_values

CONFIGS: Final = (
    Column("resource_type", "OF"),
    Column("resource_name", "WHOSE"),
    Column("name"),
    Column("value"),
)
DESCRIBED: Final = (Column("name"), Column("value"), Column("source"), Column("type"))
CHANGE: Final = ItemRequest(
    operation="IncrementalAlterConfigs",
    method="PATCH",
    path="/v1/configs",
    items="resources",
    items_max=REQUEST_ITEMS_MAX,
    columns=result_columns(*CONFIGS[:2], done="changed"),
)
REPLACEMENT: Final = ItemRequest(
    operation="LegacyAlterConfigs",
    method="PUT",
    path="/v1/configs",
    items="resources",
    items_max=REQUEST_ITEMS_MAX,
    columns=result_columns(*CONFIGS[:2], done="replaced"),
)


def add_parsers(noun: Noun) -> None:
    for name, does, run, example in (
        ("list", "Show the settings that are set.", run_list, "--topic orders"),
        (
            "describe",
            "Show the settings that count, and the layer that each comes from.",
            run_describe,
            "--broker 11 min.insync.replicas",
        ),
    ):
        verb = noun.verb(
            name, does, run=run, parent=noun.flags.network, examples=(f"configs {name} {example}",)
        )
        whose = verb.add_mutually_exclusive_group(required=True)
        whose.add_argument("--topic", metavar="T")
        whose.add_argument("--broker", type=from_to(0, INT32_MAX), metavar="ID")
        whose.add_argument("--cluster", action="store_true")
        verb.add_argument("keys", nargs="*", metavar="K")
        if name == "describe":
            verb.add_argument(
                "--on",
                type=from_to(0, INT32_MAX),
                metavar="ID",
                help="with --topic: as this broker sees it; default: as the active controller does",
            )
    for name, does, run, example, metavar in (
        (
            "set",
            "Set settings.",
            run_set,
            "--topic orders --topic payments retention.ms=1000",
            "K=V|K=@FILE|K=-",
        ),
        (
            "unset",
            "Remove settings: the layer below counts again.",
            run_unset,
            "--broker 11 num.io.threads",
            "K",
        ),
        (
            "append",
            "Add items to settings that are lists.",
            run_append,
            "--topic t cleanup.policy=compact",
            "K=V",
        ),
        ("subtract", "Take items from lists.", run_subtract, "--topic t cleanup.policy=delete", "K=V"),
        ("replace", "Set these settings, and remove all others.", run_replace, "--topic t flush.ms=5", "K=V"),
    ):
        verb = noun.verb(
            name,
            does,
            run=run,
            parent=noun.flags.network,
            examples=(f"configs {name} {example}", f"configs {name} {example} --dry-run"),
        )
        verb.add_argument("--topic", action="append", default=[], metavar="T", help="may be repeated")
        verb.add_argument(
            "--broker",
            action="append",
            default=[],
            type=from_to(0, INT32_MAX),
            metavar="ID",
            help="may be repeated",
        )
        verb.add_argument("--cluster", action="store_true", help="for all brokers")
        verb.add_argument("keys", nargs="*" if name == "replace" else "+", metavar=metavar)
        add_flags(verb)


def run_list(args: argparse.Namespace) -> int:
    """Show all settings of one resource, or those named."""
    items = _asked(args, {})
    show(args, items, table=lambda: render.table(CONFIGS, items, empty="no settings"))
    return 0


def run_describe(args: argparse.Namespace) -> int:
    """Show the effective settings of one resource, or those named."""
    if args.on is not None and args.topic is None:
        fail_usage("--on is of a topic: name it with --topic")
    items = _asked(args, {"effective": 1} | ({} if args.on is None else {"on": args.on}))
    show(args, items, table=lambda: render.table(DESCRIBED, items, empty="no settings"))
    return 0


def _asked(args: argparse.Namespace, more: dict[str, int]) -> list[dict[str, Any]]:
    if args.topic is not None:
        whose: dict[str, Any] = {"topic": args.topic}
    else:
        whose = {"broker": args.broker} if args.broker is not None else {"cluster": 1}
    query = urllib.parse.urlencode(whose | more)
    items: list[dict[str, Any]] = client_from(args).read(f"/v1/configs?{query}")["items"]
    unknown = sorted(set(args.keys) - {item["name"] for item in items})
    if unknown and "effective" in more:
        raise InvalidConfig(f"no such setting: {', '.join(unknown)}")
    if unknown:
        say(f"not set here: {', '.join(unknown)}; `configs describe` shows what counts instead")
    return [item for item in items if not args.keys or item["name"] in args.keys]


def run_set(args: argparse.Namespace) -> int:
    return _change(args, {"set": key_values(args.keys)})


def run_unset(args: argparse.Namespace) -> int:
    return _change(args, {"unset": list(dict.fromkeys(args.keys))})


def run_append(args: argparse.Namespace) -> int:
    return _change(args, {"append": key_values(args.keys)})


def run_subtract(args: argparse.Namespace) -> int:
    return _change(args, {"subtract": key_values(args.keys)})


def run_replace(args: argparse.Namespace) -> int:
    return _carry_out(args, REPLACEMENT, {"configs": key_values(args.keys)})


def _change(args: argparse.Namespace, change: dict[str, Any]) -> int:
    return _carry_out(args, CHANGE, change)


def _carry_out(args: argparse.Namespace, request: ItemRequest, change: dict[str, Any]) -> int:
    resources: list[dict[str, Any]] = [{"topic": name} for name in args.topic]
    resources += [{"broker": broker_id} for broker_id in args.broker]
    resources += [{"cluster": True}] if args.cluster else []
    if not resources:
        fail_usage("--topic, --broker or --cluster is needed")
    return carry_out(args, request, [resource | change for resource in resources])
