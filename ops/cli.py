"""Edge: `metaquorum`: the registry of nouns, exit codes and error reports; only the noun that is called is imported."""

import argparse
import errno
import importlib
import importlib.metadata
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from metadata_log.errors import (
    Fault,
    MetadataError,
    OutcomeUnknown,
    Rejected,
    Unavailable,
    leaves,
    most_telling,
)
from metadata_log.replay.packages import PackageMissing, missing_package
from ops import when
from ops.admin.connect import Misuse
from ops.arguments import UNRECOGNIZED, USAGE, Noun, Parser, Run, SharedFlags
from ops.talk import accept_any_encoding, one_line, say

OK, REJECTED, UNAVAILABLE, UNKNOWN, FAULT = 0, 3, 4, 5, 6
INTERRUPTED: Final = 130
"""The code that a shell expects of a program ended by Ctrl-C: 128 plus SIGINT's number."""

NOUNS: Final[Mapping[str, tuple[str, str]]] = {
    "up": ("up", "Run a local cluster in the foreground: format what is not there, start what is."),
    "storage": ("storage", "Data directories of controllers and brokers."),
    "controller": ("process", "A controller's process."),
    "broker": ("process", "A broker's process."),
    "quorum": ("quorum", "The controllers."),
    "controllers": ("controllers", "The controllers' registrations."),
    "brokers": ("brokers", "The brokers that follow the log."),
    "topics": ("topics", "Topics and their partitions."),
    "partitions": ("partitions", "Partitions of all topics, and elections of their leaders."),
    "configs": ("configs", "Settings of topics, brokers and the cluster."),
    "whatif": ("whatif", "What the controller would decide; nothing is written."),
    "features": ("features", "Levels at which the cluster's features are finalized."),
    "log": ("log", "The metadata log."),
    "snapshot": ("snapshot", "Snapshots: the log, folded."),
    "state": ("state", "Show the whole state, now or as it was."),
    "replay": ("replay", "An exported log, replayed."),
    "bench": ("bench", "Measure, beside a peer."),
}
"""Each noun: its file in ops/verbs, which has `add_parsers(noun)` and the verbs' functions, and its line of help."""

EXAMPLES: Final = """\
examples:
  metaquorum up                                     start three controllers and three brokers here
  metaquorum topics create orders --partitions 6 --replication-factor 3
  metaquorum brokers list -o json
  metaquorum quorum health --wait --for 30s --expect-brokers 3
  metaquorum log dump --from -10m                   what happened in the last ten minutes
"""

OUTPUT_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

EXIT_CODES: Final = """\
exit codes: 0 ok, 2 usage, 3 refused, 4 unavailable, 5 outcome unknown, 6 fault; quorum health: 0 green, 10 yellow, 20 red
Controllers are found by --bootstrap, else METAQUORUM_BOOTSTRAP, else ./metaquorum-data/cluster.json.
Times may be written 2026-01-01T10:00Z or -2h, durations 500ms, 30s, 1h30m.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; every error is one line on stderr."""
    accept_any_encoding()
    try:
        refuse_what_would_mislead()
        args = parsed(sys.argv[1:] if argv is None else argv)
        run: Run = args.run
        try:
            code = run(args)
        except Misuse as misuse:
            args.fail(str(misuse))
        sys.stdout.flush()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()  # the reader (`| head`) has seen enough
        return OK
    except BaseExceptionGroup as group:
        return report(most_telling(leaves(group)))
    except Exception as error:  # noqa: BLE001 the one place where everything ends: no traceback reaches a user
        return report(error)
    return code


def _discard_output() -> None:
    """Drop the output that is not written yet; otherwise Python would report the error again when it flushes at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report(error: BaseException) -> int:
    """Print an error as one line, and return the exit code of its family."""
    match error:
        case OutcomeUnknown():
            code = UNKNOWN
        case Unavailable():
            code = UNAVAILABLE
        case Rejected():
            code = REJECTED
        case _:
            code = FAULT
    if isinstance(error, MetadataError):
        name = type(error).__name__ if isinstance(error, Fault) else error.error
        say(f"{name}: {error.message}")
        if "request_id" in error.context:
            say(f"its request id is {error.context['request_id']}")
    elif isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    elif isinstance(error, OSError) and error.filename is not None:
        say(f"{error.filename}: {error.strerror}")
    elif isinstance(error, OSError) and error.errno in OUTPUT_FULL:
        say(f"the output cannot be written: {error.strerror}; make room, or send it elsewhere")
        _discard_output()
    elif isinstance(error, ModuleNotFoundError) and isinstance(
        missing := missing_package(error), PackageMissing
    ):
        say(missing.message)
    else:
        say(f"a bug: {type(error).__name__}: {one_line(str(error))}; {where_to_look(error)}")
    return code


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
    owners = importlib.metadata.packages_distributions()
    for name in ("ops", "quorum"):
        others = sorted({owner for owner in owners.get(name, ()) if owner.lower() != "metaquorum"})
        if others:
            raise WontRun(
                f"the distribution {others[0]} owns the module name {name!r} too; install metaquorum into a "
                "virtual environment of its own"
            )


class WontRun(Fault):
    """This Python environment cannot run us safely; the message names what to change."""


def joined(argv: Sequence[str]) -> list[str]:
    """Return a command line with `--at -2h` as `--at=-2h`: argparse would take -2h for a flag."""
    words: list[str] = []
    for word in argv:
        if words and words[-1].startswith("--") and "=" not in words[-1] and when.looks_like_ago(word):
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a command line.

    An argument that the verb does not know is refused by the verb's own parser, which suggests one of its options.
    """
    words = joined(argv)
    noun = next((word for word in words if not word.startswith("-")), "")
    args, unknown = make_parser(only=noun).parse_known_args(words)
    if unknown:
        args.fail(f"{UNRECOGNIZED}{' '.join(unknown)}")
    return args


def make_parser(*, only: str | None = None) -> Parser:
    """Return the parser of all nouns, or of the noun `only`: the files of the others are not imported then."""
    root = Parser(
        prog="metaquorum",
        description=f"A metadata quorum: controllers agree on one log, brokers follow it.\n\n{EXAMPLES}",
        epilog=EXIT_CODES,
    )
    nouns = root.add_subparsers(metavar="NOUN", required=True, parser_class=Parser)
    flags = SharedFlags()
    for name, (module, about) in NOUNS.items():
        if only is None or only == name:
            importlib.import_module(f"ops.verbs.{module}").add_parsers(Noun(nouns, name, about, flags))
        else:
            nouns.add_parser(name, help=about)
    return root


if __name__ == "__main__":
    sys.exit(main())
