"""Edge: `metaquorum`: the registry of nouns, exit codes and error reports; only the noun that is called is imported."""

import errno
import gc
import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Never

import click

from metadata_log.errors import (
    Fault,
    InvalidSettings,
    MetadataError,
    OutcomeUnknown,
    Rejected,
    Unavailable,
    leaves,
    most_telling,
)
from metadata_log.node.release import VERSION
from metadata_log.printable import json_text
from ops.command_line.options import USAGE, NothingNamed, Noun, told
from ops.command_line.talk import accept_any_encoding, one_line, replace_closed_streams, say

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

OK, REJECTED, UNAVAILABLE, UNKNOWN, FAULT = 0, 3, 4, 5, 6
PROGRAM: Final = "metaquorum"
COMPLETE_VARIABLE: Final = "_METAQUORUM_COMPLETE"
"""Set by the completion of a shell: bash_source, zsh_source and fish_source print what a shell's profile evaluates."""
INVALID_SETTINGS: Final = "INVALID_SETTINGS"
YOUNG_MAX: Final = 50_000
"""New objects, less those that went, before a verb looks for cycles among them (Python: 700)."""
INTERRUPTED: Final = 130
"""The code that a shell expects of a program ended by Ctrl-C: 128 plus SIGINT's number."""

NOUNS: Final[Mapping[str, tuple[str, str]]] = {
    "up": ("up", "Run a local cluster in the foreground: format what is not there, start what is."),
    "context": ("context", "Clusters by name."),
    "config": ("config", "Settings files of nodes."),
    "storage": ("storage", "Data directories of controllers and brokers."),
    "controller": ("process:CONTROLLER", "A controller's process."),
    "broker": ("process:BROKER", "A broker's process."),
    "quorum": ("quorum", "The controllers."),
    "controllers": ("controllers", "The controllers' registrations."),
    "brokers": ("brokers", "The brokers that follow the log."),
    "topics": ("topics", "Topics and their partitions."),
    "partitions": ("partitions", "Partitions of all topics, and elections of their leaders."),
    "roll": ("roll", "Restarts of all nodes, one at a time."),
    "move": ("move", "Nodes that come to other addresses."),
    "certificates": (
        "certificates",
        "The certificates of nodes and users, and the authority that issues them.",
    ),
    "configs": ("configs", "Settings of topics, brokers and the cluster."),
    "quotas": ("quotas", "Quotas of users, client ids and addresses."),
    "users": ("users", "Users that log in by SCRAM."),
    "tokens": ("tokens", "Delegation tokens, with which clients log in as their owner."),
    "plan": ("declared:PLAN", "Show how a cluster differs from what a file declares."),
    "apply": ("declared:APPLY", "Make topics, settings, ACLs and quotas as a file declares them."),
    "whatif": ("whatif", "What the controller would decide; nothing is written."),
    "advise": ("advise", "What topics survive, what blocks their writes, and what to change."),
    "learn": ("learn", "Stories of replication and of groups, told on brokers of Kafka that run meanwhile."),
    "features": ("features", "Levels at which the cluster's features are finalized."),
    "acls": ("acls", "Access control lists: who may do what to which resources."),
    "log": ("log", "The metadata log."),
    "snapshot": ("snapshot", "Snapshots: the log, folded."),
    "backup": ("backup", "The state as a file, and controllers that begin with one."),
    "diff": ("diff", "Show what changed in the state between two moments."),
    "report": ("report", "Tell what happened to the cluster, from its log."),
    "top": ("top", "Show the cluster live."),
    "state": ("state", "Show the whole state, now or as it was."),
    "replay": ("replay", "An exported log, replayed."),
    "shell": (
        "shell",
        "The state as a tree, now or at any moment, with ls, cat, find, grep, diff and history.",
    ),
    "version": ("version", "The release of this client and of every node."),
    "completion": ("desk:COMPLETION", "Print what a shell evaluates to complete words (bash, zsh, fish)."),
    "help": ("desk:HELP", "Show what a noun or a verb does."),
    "bench": ("bench", "Measure, beside a peer."),
}
"""Each noun: its file in ops/verbs, what it is called there unless NOUN, and its line of help."""

EXAMPLES: Final = """\
examples:
  metaquorum up                                     start three controllers and three brokers here
  metaquorum topics create orders --partitions 6 --replication-factor 3
  metaquorum brokers list -o json
  metaquorum quorum health --wait --for 30s --expect-brokers 3
  metaquorum log dump --from -10m                   what happened in the last ten minutes
"""

_FACTS: Final = ("request_id", "controller_id", "controller_epoch", "broker_id")
"""What an error in JSON says beside its message, where it is known."""
OUTPUT_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

EXIT_CODES: Final = """\
exit codes: 0 ok, 2 usage, 3 refused, 4 unavailable, 5 outcome unknown, 6 fault; quorum health: 0 green, 10 yellow, 20 red
Controllers are found by --bootstrap or --context, else METAQUORUM_BOOTSTRAP, METAQUORUM_CONTEXT, the context in use, else
./metaquorum-data/cluster.json.
Times may be written 2026-01-01T10:00Z or -2h, durations 500ms, 30s, 1h30m.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; every error is one line on stderr."""
    replace_closed_streams()
    accept_any_encoding()
    words = sys.argv[1:] if argv is None else list(argv)
    as_json = asks_for_json(words)
    try:
        refuse_what_would_mislead()
        code = called(words)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        return refuse(error, as_json=as_json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()  # the reader (`| head`) has seen enough
        return OK
    except BaseExceptionGroup as group:
        return report(most_telling(leaves(group)), as_json=as_json)
    except Exception as error:  # noqa: BLE001 the one place where everything ends: no traceback reaches a user
        return report(error, as_json=as_json)
    return code


def asks_for_json(words: Sequence[str]) -> bool:
    """Answer whether a command line asks for JSON, also one that is wrong: its error is JSON, too."""
    formats = ("json", "jsonl")
    glued = {f"{option}{form}" for option in ("-o", "-o=", "--output=") for form in formats}
    asked = {pair for pair in pairwise(words) if pair[0] in {"-o", "--output"} and pair[1] in formats}
    return bool(asked) or "--json" in words or not glued.isdisjoint(words)


def refuse(error: click.UsageError, *, as_json: bool = False) -> int:
    """Print a usage error, and return its exit code."""
    if as_json:
        say_json("USAGE", told(error), USAGE)
        return USAGE
    with suppress(OSError):
        if error.ctx is not None:
            ctx = error.ctx
            print(ctx.get_help() if isinstance(error, NothingNamed) else ctx.get_usage(), file=sys.stderr)
        print(f"{PROGRAM if error.ctx is None else error.ctx.command_path}: {told(error)}", file=sys.stderr)
    return USAGE


def say_json(error: str, message: str, code: int, **more: object) -> None:
    """Print an error as one line of JSON on stderr."""
    with suppress(OSError):
        print(
            json_text({"error": error, "message": message, "exit_code": code, **more}),
            file=sys.stderr,
            flush=True,
        )


def _discard_output() -> None:
    """Drop the output that is not written yet; otherwise Python would report the error again when it flushes at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report(error: BaseException, *, as_json: bool = False) -> int:
    """Print an error as one line, and return the exit code of its family."""
    match error:
        case OutcomeUnknown():
            code = UNKNOWN
        case Unavailable():
            code = UNAVAILABLE
        case Rejected() | InvalidSettings():
            code = REJECTED
        case _:
            code = FAULT
    if isinstance(error, MetadataError):
        name = _name(error)
        if as_json:
            say_json(
                name,
                error.message,
                code,
                **{key: error.context[key] for key in _FACTS if key in error.context},
            )
            return code
        say(f"{name}: {error.message}")
        if "request_id" in error.context:
            say(f"its request id is {error.context['request_id']}")
    elif isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    else:
        message = _told(error)
        if as_json:
            say_json(type(error).__name__, message, code)
        else:
            say(message)
    return code


def _name(error: MetadataError) -> str:
    """Return what an error is called; a file that is not what it was given as is the caller's error, and no fault."""
    if isinstance(error, InvalidSettings):
        return INVALID_SETTINGS
    return type(error).__name__ if isinstance(error, Fault) else error.error


def _told(error: BaseException) -> str:
    """Return an error that is none of ours in a line."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in OUTPUT_FULL:
        _discard_output()
        return f"the output cannot be written: {error.strerror}; make room, or send it elsewhere"
    if isinstance(error, ModuleNotFoundError) and (which := _package_missing(error)):
        return which
    return f"a bug: {type(error).__name__}: {one_line(str(error))}; {where_to_look(error)}"


def _package_missing(error: ModuleNotFoundError) -> str | None:
    from metadata_log.replay.packages import PackageMissing, missing_package

    missing = missing_package(error)
    return missing.message if isinstance(missing, PackageMissing) else None


def where_to_look(error: BaseException) -> str:
    """Write the traceback to a file for a maintainer, and return where it is."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="metaquorum-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            traceback.print_exception(error, file=file)
    except OSError as cannot:
        return f"its details could not be kept ({cannot.strerror})"
    return f"please report it with {file.name}"


def refuse_what_would_mislead() -> None:
    """Refuse to run where asserts are disabled, or where another distribution's modules replace ours.

    Raises:
        Fault: Python runs with -O, or another distribution owns one of our top-level names.
    """
    if sys.flags.optimize:
        raise WontRun(
            "Python runs with -O or PYTHONOPTIMIZE, which drops the checks that keep a replica right"
        )
    for name in ("ops", "quorum"):
        others = sorted(other_owners(name))
        if others:
            raise WontRun(
                f"the distribution {others[0]} owns the module name {name!r} too; install metaquorum into a "
                "virtual environment of its own"
            )


def other_owners(package: str) -> Iterator[str]:
    """Yield the other distributions that install files of a package, by the list of files that each has.

    `importlib.metadata` knows it, too, ten times as slowly: at each start.
    """
    mine = f"\n{package}/".encode()
    for folder in dict.fromkeys(sys.path):
        for record in Path(folder or ".").glob("*.dist-info/RECORD"):
            owner = record.parent.name.partition("-")[0]
            if owner.lower() != "metaquorum" and mine in b"\n" + record.read_bytes():
                yield owner


class WontRun(Fault):
    """This Python environment cannot run us safely; the message names what to change."""


def _show_version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        print(f"{PROGRAM} {VERSION}")
        ctx.exit()


class Root(Noun):
    """The command line: nouns from the registry, each imported when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.subcommand_metavar = "NOUN"
        self.params.append(
            click.Option(
                ["--version"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_version,
                help="Show the release of this client and exit.",
            )
        )
        self.help = f"A metadata quorum: controllers agree on one log, brokers follow it.\n\n{EXAMPLES}"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 as click calls it
        return list(NOUNS)

    def listed(self) -> list[tuple[str, str]]:
        return [(name, about) for name, (_, about) in NOUNS.items()]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002 as click calls it
        if name not in NOUNS:
            return None
        place, about = NOUNS[name]
        module, _, attribute = place.partition(":")
        imported = importlib.import_module(f"ops.verbs.{module}")
        noun: click.Command = getattr(imported, attribute or "NOUN")
        noun.name, noun.help = name, about
        return noun

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":  # noqa: ARG002 as above
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=about)
            for name, (_, about) in NOUNS.items()
            if name.startswith(incomplete)
        ]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help(ctx, formatter)
        formatter.write(f"\n{EXIT_CODES}")


ROOT: Final = Root()


def called(words: Sequence[str]) -> int:
    """Run the verb that a command line names, and return its exit code.

    Raises:
        click.UsageError: no verb takes these words.
        click.exceptions.Exit: help was asked for, and shown.
    """
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        from click.shell_completion import shell_complete

        return shell_complete(ROOT, {}, PROGRAM, COMPLETE_VARIABLE, instruction)
    with ROOT.make_context(PROGRAM, list(words)) as ctx:
        code: int = ROOT.invoke(ctx)
    return code


def run() -> Never:
    """Run one verb as this process, and end with its exit code."""
    # A verb imports hundreds of modules, whose objects stay. To look for cycles among them takes a tenth of a report's time,
    # and so does a last look at the end.
    gc.set_threshold(YOUNG_MAX)
    code = main()
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    run()
