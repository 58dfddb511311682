"""Edge: `quotas list|set|delete`: the quotas of clients."""

import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ops.admin.items import ALTER_QUOTAS
from ops.admin.state_diff import entity_text
from ops.command_line.changes import Change, carry_out, change_of_items, result_columns
from ops.command_line.options import Network, Noun, R, argument, either, flag, option, reading, sharing
from ops.command_line.render import Column
from ops.command_line.talk import fail_usage, say


def _values(quotas: Mapping[str, float]) -> str:
    return ", ".join(f"{key}={value:.15g}" for key, value in quotas.items())


ENTITY: Final = Column("entity", "OF", entity_text)
QUOTAS: Final = (ENTITY, Column("quotas", show=_values))
CHANGED: Final = result_columns(ENTITY, done="changed")
REMOVED: Final = result_columns(ENTITY, done="removed")
NOUN: Final = Noun()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entity(Change):
    """Whose quotas are asked for."""

    user: str | None
    user_default: bool
    client_id: str | None
    client_id_default: bool
    ip: str | None
    ip_default: bool

    @property
    def parts(self) -> dict[str, str | None]:
        """Return what a request names; None is the default."""
        given = (
            ("user", self.user, self.user_default),
            ("client_id", self.client_id, self.client_id_default),
            ("ip", self.ip, self.ip_default),
        )
        return {word: name for word, name, is_default in given if name is not None or is_default}


def _whose(run: R) -> R:
    """Declare the entity, by name or as the default of its type."""
    for declare in (
        flag("--ip-default", help="each address without a quota of its own"),
        option("--ip", metavar="ADDRESS", help="clients at this address"),
        flag("--client-id-default", help="each client id without a quota of its own"),
        option("--client-id", metavar="ID", help="clients of this id, or with a user its clients of this id"),
        flag("--user-default", help="each user without a quota of its own"),
        option("--user", metavar="NAME", help="a user, without User: before its name"),
        either("user", "user_default"),
        either("client_id", "client_id_default"),
        either("ip", "ip_default"),
    ):
        run = declare(run)
    return run


def _changing(run: R) -> R:
    return _whose(sharing(_Entity)(change_of_items(run)))


@NOUN.verb(
    "list", "List quotas: all, or those of entities.", "quotas list", "quotas list --user alice --strict"
)
@flag("--strict", help="those of exactly this entity, and not of its combinations")
@_whose
@reading
def run_list(
    asked: Network,
    *,
    strict: bool,
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_id_default: bool,
    ip: str | None,
    ip_default: bool,
) -> int:
    given = (
        ("user", user, user_default),
        ("client_id", client_id, client_id_default),
        ("ip", ip, ip_default),
    )
    named = {word: name for word, name, is_default in given if name is not None or is_default}
    if strict and not named:
        fail_usage("--strict is of an entity: name it")
    items = _listed(asked, named, strict=strict)
    asked.show_items(items, QUOTAS, empty="no quotas")
    return 0


def _listed(asked: Network, named: Mapping[str, str | None], *, strict: bool) -> list[dict[str, Any]]:
    query = {word: name for word, name in named.items() if name is not None}
    if defaults := [word for word, name in named.items() if name is None]:
        query["defaults"] = ",".join(defaults)
    if strict:
        query["strict"] = "true"
    return asked.client().items(f"/v1/quotas?{urllib.parse.urlencode(query)}")


@NOUN.verb(
    "set",
    "Set quotas of an entity. Keys: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate; "
    "of addresses connection_creation_rate.",
    "quotas set --user alice producer_byte_rate=1048576",
    "quotas set --user-default --client-id app controller_mutation_rate=2.5",
)
@argument("keys", "KEY=NUMBER...", nargs=-1, required=True)
@_changing
def run_set(asked: _Entity, *, keys: Sequence[str]) -> int:
    values: dict[str, float] = {}
    for pair in keys:
        key, equals, text = pair.partition("=")
        if not equals or key in values:
            fail_usage(f"{pair!r} is not KEY=NUMBER" if not equals else f"{key} is given twice")
        try:
            values[key] = float(text)
        except ValueError:
            fail_usage(f"{text!r} is no number")
    return carry_out(asked, ALTER_QUOTAS, [_parts(asked) | {"set": values}], CHANGED)


@NOUN.verb(
    "delete",
    "Remove quotas of an entity: those named, or all that it has.",
    "quotas delete --user alice producer_byte_rate",
)
@argument("keys", "KEY...", nargs=-1)
@_changing
def run_delete(asked: _Entity, *, keys: Sequence[str]) -> int:
    parts = _parts(asked)
    there = [key for item in _listed(asked, asked.parts, strict=True) for key in item["quotas"]]
    wanted = list(dict.fromkeys(keys)) or there
    if lacking := [key for key in wanted if key not in there]:
        say(f"it has no quota {', '.join(lacking)}")
    if not wanted:
        say("it has no quotas")
    items = [parts | {"unset": wanted}] if wanted else []
    return carry_out(asked, ALTER_QUOTAS, items, REMOVED, empty="nothing was removed")


def _parts(asked: _Entity) -> dict[str, Any]:
    if not asked.parts:
        fail_usage("name an entity: --user, --client-id, both of them, or --ip")
    return dict(asked.parts)
