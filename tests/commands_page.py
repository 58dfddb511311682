"""Edge: `python -m tests.commands_page`: writes docs/commands.md from the command line and the table of routes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from ops.cli import NOUNS, PROGRAM, ROOT
from ops.command_line.options import Verb
from quorum.http.app import ROUTES

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
HEAD: Final = f"""\
# Commands and routes

Every verb of `{PROGRAM}`, with an example and the page that has more, and every route of the HTTP surface. This page is
written by `python -m tests.commands_page`. `{PROGRAM} NOUN VERB --help` has the options, and [formats.md](formats.md)
what each prints and takes. `{PROGRAM} completion bash|zsh|fish` prints what lets a shell complete all of it; the wheel
brings that, too, below `share/` of the installation.
"""
MORE: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("up", "config", "storage", "controller"), ("install.md", "services.md", "containers.md")
    ),
    **dict.fromkeys(
        ("context", "quorum", "controllers", "roll", "backup", "top", "version"), ("operate.md",)
    ),
    **dict.fromkeys(
        ("topics", "partitions", "configs", "plan", "apply", "brokers"), ("operate.md", "console.md")
    ),
    **dict.fromkeys(("log", "snapshot", "state", "diff", "report", "replay"), ("analytics.md",)),
    "broker": ("install.md", "broker-protocol.md"),
    **dict.fromkeys(("acls", "certificates"), ("secure.md",)),
    **dict.fromkeys(("advise", "move"), ("operate.md",)),
    **dict.fromkeys(("quotas", "users", "tokens"), ("kafka.md", "secure.md")),
    "shell": ("shell.md",),
    "features": ("../ops/runbooks/upgrade.md",),
    "whatif": ("operate.md", "testing.md"),
    "bench": ("measurements.md",),
    "learn": ("learn.md",),
}
"""The pages that have more of a noun; formats.md alone for the others."""
ROUTES_HEAD: Final = """
## Routes

`GET /openapi.json` of a node describes them for programs; the console of each node is at `/`. Brokers forward those
that are marked.

| route | operation | right | forwarded |
|---|---|---|---|
"""


def page() -> str:
    return HEAD + "".join(_nouns()) + ROUTES_HEAD + "".join(_routes())


def verbs() -> Iterator[tuple[str, str, Verb]]:
    """Yield each verb: its noun, its whole name, and what it is."""
    ctx = click.Context(ROOT)
    for noun in NOUNS:
        command = ROOT.get_command(ctx, noun)
        if isinstance(command, click.Group):
            for name in command.list_commands(ctx):
                verb = command.get_command(ctx, name)
                assert isinstance(verb, Verb)
                yield noun, f"{noun} {name}", verb
        else:
            assert isinstance(command, Verb)
            yield noun, noun, command


def _nouns() -> Iterator[str]:
    seen = None
    for noun, name, verb in verbs():
        if noun != seen:
            seen = noun
            pages = MORE.get(noun, ("formats.md",))
            links = ", ".join(f"[{each.rpartition('/')[2]}]({each})" for each in pages)
            yield f"\n## {noun}\n\n{NOUNS[noun][1]} More: {links}.\n\n| verb | what it does | example |\n|---|---|---|\n"
        example = verb.examples[0] if verb.examples else name
        yield f"| `{name}` | {_cell(verb.short_help or NOUNS[noun][1])} | `{PROGRAM} {_cell(example)}` |\n"


def _routes() -> Iterator[str]:
    for route in ROUTES:
        right = route.rule.right
        told = "none" if right is None else str(getattr(right, "value", right))
        yield f"| `{route.method} {route.path}` | {route.operation} | {told} | {'yes' if route.forwarded else ''} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
