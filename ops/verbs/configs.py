"""Edge: `configs list|describe|set|unset|append|subtract|replace`, of topics, brokers, the cluster and groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from metadata_log.errors import InvalidConfig
from metadata_log.wire.shapes import INT32_MAX
from ops.admin.cluster import Cluster
from ops.admin.items import ALTER_CONFIGS, REPLACE_CONFIGS, ItemRequest
from ops.command_line import render
from ops.command_line.changes import Change, carry_out, change_of_items, result_columns
from ops.command_line.options import (
    Network,
    Noun,
    Output,
    R,
    argument,
    either,
    flag,
    option,
    reading,
    sharing,
)
from ops.command_line.render import Column
from ops.command_line.talk import fail_usage, say
from ops.command_line.values import from_to
from ops.verbs.topics import key_values

CONFIGS: Final = (
    Column("resource_type", "OF"),
    Column("resource_name", "WHOSE"),
    Column("name"),
    Column("value"),
)
DESCRIBED: Final = (Column("name"), Column("source"), Column("type"), Column("value"))
CHANGED: Final = result_columns(*CONFIGS[:2], done="changed")
REPLACED: Final = result_columns(*CONFIGS[:2], done="replaced")
NOUN: Final = Noun()
ID: Final = from_to(0, INT32_MAX)


def _of_one(run: R, *more: str) -> R:
    """Declare whose settings are shown, and which: `topic`, `broker`, `cluster` and `keys`, or one of `more`."""
    for declare in (
        argument("keys", "K...", nargs=-1),
        flag("--cluster"),
        option("--broker", read=ID, metavar="ID"),
        option("--topic", metavar="T"),
        either("topic", "broker", "cluster", *more, required=True),
    ):
        run = declare(run)
    return reading(run)


def _of_one_or_all(run: R) -> R:
    return _of_one(
        _of_clients(flag("--all", "of_all", help="of all topics, brokers, groups and client metrics")(run)),
        *("of_all", "group", "client_metrics"),
    )


def _of_clients(run: R, **more: Any) -> R:
    """Declare `group` and `client_metrics`, whose settings Kafka's brokers carry out."""
    run = option("--client-metrics", metavar="NAME", help="a subscription to clients' metrics", **more)(run)
    return option("--group", metavar="G", help="a group of consumers or of others", **more)(run)


@NOUN.verb(
    "list",
    "Show the settings that are set.",
    "configs list --topic orders",
    "configs list --all retention.ms",
)
@_of_one_or_all
def run_list(
    asked: Network,
    *,
    topic: str | None,
    broker: int | None,
    cluster: bool,
    of_all: bool,
    group: str | None,
    client_metrics: str | None,
    keys: Sequence[str],
) -> int:
    """Show all settings of one resource or of all, or those named."""
    client = asked.client()
    of_clients = {"group": group, "client_metrics": client_metrics}
    resource = {kind: name for kind, name in of_clients.items() if name is not None}
    items = _everywhere(client) if of_all else client.configs(resource or _resource(topic, broker, cluster))
    if unknown := _unknown(keys, items):
        say(f"not set here: {unknown}; `configs describe` shows what counts instead")
    _show(asked, CONFIGS, keys, items)
    return 0


@NOUN.verb(
    "describe",
    "Show the settings that count, and the layer that each comes from.",
    "configs describe --broker 11 min.insync.replicas",
)
@option(
    "--on",
    read=ID,
    metavar="ID",
    help="with --topic: as this broker sees it; default: as the active controller does",
)
@_of_one
def run_describe(
    asked: Network,
    *,
    topic: str | None,
    broker: int | None,
    cluster: bool,
    keys: Sequence[str],
    on: int | None,
) -> int:
    """Show the effective settings of one resource, or those named."""
    if on is not None and topic is None:
        fail_usage("--on is of a topic: name it with --topic")
    resource = _resource(topic, broker, cluster) | {"effective": 1} | ({} if on is None else {"on": on})
    items = asked.client().configs(resource)
    if unknown := _unknown(keys, items):
        raise InvalidConfig(f"no such setting: {unknown}")
    _show(asked, DESCRIBED, keys, items)
    return 0


def _resource(topic: str | None, broker: int | None, cluster: bool) -> dict[str, Any]:
    assert cluster or topic is not None or broker is not None, "the options name one of them"
    if topic is not None:
        return {"topic": topic}
    return {"broker": broker} if broker is not None else {"cluster": 1}


def _everywhere(client: Cluster) -> list[dict[str, Any]]:
    """Return the settings of all topics, brokers, groups and subscriptions of metrics, as the state has them."""
    found: list[dict[str, Any]] = client.read("/v1/state?only=configs")["configs"]
    return found


def _unknown(keys: Sequence[str], items: Sequence[render.Row]) -> str:
    return ", ".join(sorted(set(keys) - {item["name"] for item in items}))


def _show(asked: Output, columns: Sequence[Column], keys: Sequence[str], items: Sequence[render.Row]) -> None:
    named = [item for item in items if not keys or item["name"] in keys]
    asked.show_items(named, columns, empty="no settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration(Change):
    """A change of settings of some topics, brokers, the cluster, groups and clients' metrics."""

    topic: Sequence[str]
    broker: Sequence[int]
    cluster: bool
    group: Sequence[str]
    client_metrics: Sequence[str]

    def carry_out(self, request: ItemRequest, columns: Sequence[Column], **alter: Any) -> int:
        resources: list[dict[str, Any]] = [{"topic": name} for name in self.topic]
        resources += [{"broker": broker_id} for broker_id in self.broker]
        resources += [{"cluster": True}] if self.cluster else []
        resources += [{"group": name} for name in self.group]
        resources += [{"client_metrics": name} for name in self.client_metrics]
        if not resources:
            fail_usage("--topic, --broker, --cluster, --group or --client-metrics is needed")
        return carry_out(self, request, [resource | alter for resource in resources], columns)


def _of_some(run: R) -> R:
    """Declare whose settings are changed: the verb gets an Alteration."""
    run = _of_clients(run, multiple=True)
    for declare in (
        flag("--cluster", help="for all brokers"),
        option("--broker", multiple=True, read=ID, metavar="ID", help="may be repeated"),
        option("--topic", multiple=True, metavar="T", help="may be repeated"),
    ):
        run = declare(run)
    return sharing(Alteration)(change_of_items(run))


def _examples(words: str) -> tuple[str, str]:
    return f"configs {words}", f"configs {words} --dry-run"


@NOUN.verb("set", "Set settings.", *_examples("set --topic orders --topic payments retention.ms=1000"))
@argument("keys", "K=V|K=@FILE|K=-...", nargs=-1, required=True)
@_of_some
def run_set(asked: Alteration, *, keys: Sequence[str]) -> int:
    return asked.carry_out(ALTER_CONFIGS, CHANGED, set=key_values(keys))


@NOUN.verb(
    "unset", "Remove settings: the layer below counts again.", *_examples("unset --broker 11 num.io.threads")
)
@argument("keys", "K...", nargs=-1, required=True)
@_of_some
def run_unset(asked: Alteration, *, keys: Sequence[str]) -> int:
    return asked.carry_out(ALTER_CONFIGS, CHANGED, unset=list(dict.fromkeys(keys)))


@NOUN.verb(
    "append", "Add items to settings that are lists.", *_examples("append --topic t cleanup.policy=compact")
)
@argument("keys", "K=V...", nargs=-1, required=True)
@_of_some
def run_append(asked: Alteration, *, keys: Sequence[str]) -> int:
    return asked.carry_out(ALTER_CONFIGS, CHANGED, append=key_values(keys))


@NOUN.verb("subtract", "Take items from lists.", *_examples("subtract --topic t cleanup.policy=delete"))
@argument("keys", "K=V...", nargs=-1, required=True)
@_of_some
def run_subtract(asked: Alteration, *, keys: Sequence[str]) -> int:
    return asked.carry_out(ALTER_CONFIGS, CHANGED, subtract=key_values(keys))


@NOUN.verb(
    "replace", "Set these settings, and remove all others.", *_examples("replace --topic t flush.ms=5")
)
@argument("keys", "K=V...", nargs=-1)
@_of_some
def run_replace(asked: Alteration, *, keys: Sequence[str]) -> int:
    return asked.carry_out(REPLACE_CONFIGS, REPLACED, configs=key_values(keys))
