"""Edge: the parts of which a noun builds its parsers: parsers that suggest, shared flags, and readers of single values."""

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from ops import values
from ops.admin.client import ClusterClient
from ops.admin.connect import SHOWN, connect
from ops.render import OUTPUTS, ROW_OUTPUTS
from ops.talk import say

USAGE: Final = 2
"""The exit code of a usage error."""
T = TypeVar("T")
UNRECOGNIZED: Final = "unrecognized arguments: "
_INVALID_CHOICE: Final = re.compile(
    r"argument [^:]+: invalid choice: (?P<given>.+) \(choose from (?P<choices>.+)\)"
)


class Parser(argparse.ArgumentParser):
    """An argument parser that suggests the nearest choice or option for a misspelt one.

    It adds no suggestion to any other message, because such a message names the options that it is about.
    """

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        given: list[str] = []
        known: list[str] = []
        if choice := _INVALID_CHOICE.fullmatch(message):
            given, known = [choice["given"].strip("'\"")], re.findall(r"[\w-]+", choice["choices"])
        elif message.startswith(UNRECOGNIZED):
            words = message.removeprefix(UNRECOGNIZED).split()
            given = [word.partition("=")[0] for word in words if word.startswith("--")]
            known = [option for action in self._actions for option in action.option_strings]
        for word in given:
            near = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
            if near:
                message = f"{message}; did you mean {near[0]}?"
                break
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def _read_by(read: Callable[[str], T]) -> Callable[[str], T]:
    def parse(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse


moment, seconds, existing_path = map(_read_by, (values.moment, values.seconds, values.existing_path))
directory, log_place = map(_read_by, (values.directory, values.log_place))


def uuid_of(what: str) -> Callable[[str], str]:
    return _read_by(values.uuid_of(what))


def from_to(low: int, high: int) -> Callable[[str], int]:
    return _read_by(values.from_to(low, high))


def add_shown(to: Any) -> None:
    """Add the flags that say what a client shows, and whom it trusts."""
    for flag, what in (
        ("--ca", "the authority of the nodes' certificates"),
        ("--cert", "the certificate that this client shows"),
        ("--key", "its key"),
        ("--token-file", "a file with the bearer token that this client shows"),
    ):
        to.add_argument(
            flag, metavar="FILE", help=f"{what}; else METAQUORUM_{flag[2:].replace('-', '_').upper()}"
        )
    to.add_argument(
        "--insecure", action="store_true", help="send the token to http:// addresses, too, in the clear"
    )


def client_from(args: argparse.Namespace) -> ClusterClient:
    """Return the client that the flags of a network verb ask for."""
    return connect(
        args.bootstrap,
        timeout_s=args.timeout,
        insecure=args.insecure,
        say=say,
        **{name: getattr(args, name) for name in SHOWN},
    )


Run: TypeAlias = Callable[[argparse.Namespace], int]
"""What a verb does with its arguments; it returns the exit code."""


def _output(choices: Sequence[str]) -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    shown = parent.add_argument_group("output").add_mutually_exclusive_group()
    shown.add_argument("-o", "--output", choices=choices, default="table", help="default: table")
    shown.add_argument("--json", dest="output", action="store_const", const="json", help="as -o json")
    return parent


class SharedFlags:
    """The flags that many verbs have in common, as parents of their parsers."""

    def __init__(self) -> None:
        self.output = _output(OUTPUTS)
        self.rows = _output((*OUTPUTS, *ROW_OUTPUTS))
        """Of verbs whose answer is a table of the log."""
        self.network = self._network(timeout_s=10)
        self.patient = self._network(timeout_s=60)
        """For verbs that wait for something to happen."""

    def _network(self, *, timeout_s: int) -> argparse.ArgumentParser:
        network = argparse.ArgumentParser(add_help=False, parents=[self.output])
        asked = network.add_argument_group("network")
        asked.add_argument("--bootstrap", metavar="URL[,URL...]", help="controllers to ask, or brokers")
        add_shown(asked)
        asked.add_argument(
            "--timeout",
            type=seconds,
            default=float(timeout_s),
            metavar="S",
            help=f"repetitions included; default: {timeout_s}",
        )
        return network


class Noun:
    """One noun of the command line, to which its file in ops/verbs adds parsers.

    A noun either has verbs (`topics list`) or is one command by itself (`state`).
    """

    def __init__(self, nouns: Any, name: str, about: str, flags: SharedFlags) -> None:
        self.name = name
        self.flags = flags
        self._about = about
        self._nouns = nouns
        self._verbs: Any = None

    def verb(
        self,
        name: str,
        about: str,
        *,
        run: Run,
        parent: argparse.ArgumentParser | None,
        examples: Sequence[str],
    ) -> Parser:
        """Add a verb; `fail` of its arguments ends in a usage error."""
        if self._verbs is None:
            parser = self._nouns.add_parser(self.name, help=self._about, description=self._about)
            self._verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
        return self._command(self._verbs, name, about, run=run, parent=parent, examples=examples)

    def command(self, *, run: Run, parent: argparse.ArgumentParser, examples: Sequence[str]) -> Parser:
        """Make the noun itself a command."""
        return self._command(self._nouns, self.name, self._about, run=run, parent=parent, examples=examples)

    @staticmethod
    def _command(
        commands: Any,
        name: str,
        about: str,
        *,
        run: Run,
        parent: argparse.ArgumentParser | None,
        examples: Sequence[str],
    ) -> Parser:
        listed = "\n".join(f"  metaquorum {example}" for example in examples)
        parser: Parser = commands.add_parser(
            name,
            help=about,
            description=f"{about}\n\nexamples:\n{listed}",
            parents=[] if parent is None else [parent],
        )
        parser.set_defaults(run=run, fail=parser.error)
        return parser
