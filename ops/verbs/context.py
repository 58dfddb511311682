"""Edge: `context list|set|use|delete`: named clusters of this user, instead of addresses and files on each line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ops.admin.connect import bootstrap_from, credentials_from, paired
from ops.command_line.options import Noun, Output, argument, declaring, flag, option, output, shown_files
from ops.command_line.render import Column
from ops.command_line.talk import fail_usage, say
from ops.contexts import Context, chosen, load, save
from ops.given import SHOWN

CONTEXTS: Final = (
    Column("name"),
    Column("in_use", "IN USE"),
    Column("bootstrap"),
    *(Column(name, is_wide=True) for name in SHOWN),
)
NOUN: Final = Noun()


@NOUN.verb("list", "List the contexts, and which one is in use.", "context list")
@output
def run_list(asked: Output) -> int:
    now = chosen()
    items: list[dict[str, Any]] = [
        {
            "name": name,
            "in_use": now is not None and now[0] == name,
            "bootstrap": list(context.bootstrap),
            **{each: context.files.get(each) for each in SHOWN},
            "insecure": context.insecure,
        }
        for name, context in sorted(load().by_name.items())
    ]
    asked.show_items(items, CONTEXTS, empty="no contexts: metaquorum context set NAME --bootstrap URL,...")
    return 0


@NOUN.verb(
    "set",
    "Name a cluster: its addresses, and the files that a client shows it. The first one is in use at once.",
    "context set local --bootstrap http://127.0.0.1:9001",
    "context set prod --bootstrap https://c1:9001,https://c2:9001 --ca ca.crt --cert me.crt --key me.key --use",
)
@argument("name", "NAME")
@option("--bootstrap", required=True, metavar="URL[,URL...]", help="controllers, or brokers")
@flag("--use", help="from now on")
@declaring(*shown_files("options"))
@output
def run_set(
    asked: Output, *, name: str, bootstrap: str, use: bool, insecure: bool, **files: str | None
) -> int:
    named = {key: str(Path(file).absolute()) for key, file in files.items() if file}
    for file in named.values():
        if not Path(file).is_file():
            fail_usage(f"there is no file {file}")
    paired({key: Path(file) for key, file in named.items()})
    context = Context(bootstrap=bootstrap_from(bootstrap), files=named, insecure=insecure)
    # A file that is no certificate, key or token is refused now, and not by the first verb that shows it.
    credentials_from(named, context.bootstrap, is_named=True, insecure=insecure, say=say)
    before = load()
    contexts = before.with_context(name, context)
    if use or not before.by_name:
        contexts = contexts.using(name)
    save(contexts)
    asked.show_fields({"name": name, "in_use": contexts.current == name, **context.to_json()})
    return 0


@NOUN.verb(
    "use",
    "Ask this cluster from now on, where a line names no other.",
    "context use prod",
    "context use --none",
)
@argument("name", "NAME", required=False)
@flag("--none", help="use none: addresses come from the environment, or ./metaquorum-data")
@output
def run_use(asked: Output, *, name: str | None, none: bool) -> int:
    if (name is None) != none:
        fail_usage("name a context, or give --none")
    save(load().using(name))
    asked.show(
        {"in_use": name}, table=lambda: f"context {name} is in use" if name else "no context is in use"
    )
    return 0


@NOUN.verb("delete", "Forget contexts; nothing is deleted of their clusters.", "context delete old")
@argument("names", "NAME...", nargs=-1, required=True)
@output
def run_delete(asked: Output, *, names: Sequence[str]) -> int:
    contexts = load()
    for name in names:
        contexts = contexts.without(name)
    save(contexts)
    if contexts.current is None and contexts.by_name:
        say("no context is in use now")
    asked.show({"deleted": list(names)}, table=lambda: f"forgotten: {', '.join(names)}")
    return 0
