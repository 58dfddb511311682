"""Edge: `shell`: the state as a tree, of a cluster or of files, walked with the commands of a shell, at any moment.
Tests: tests/unit/ops/shell/test_commands.py.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metadata_log.errors import MetadataError
from ops.command_line.options import Network, Verb, option, reading
from ops.command_line.talk import patience, put, say
from ops.command_line.values import existing_path

if TYPE_CHECKING:
    from ops.shell.commands import Shell, Source

_ENDS: Final = frozenset({"exit", "quit"})


@option(
    "-c",
    "--command",
    "commands",
    multiple=True,
    metavar="LINE",
    help="a command, instead of those on stdin; may be repeated",
)
@option("--at", metavar="WHEN", help="begin with the state at an end offset or a time; default: now")
@option(
    "--of",
    "path",
    read=existing_path,
    metavar="DIR|FILE",
    help="a log or a state in files instead of a cluster: an export, a data directory, a snapshot, Kafka's metadata.log.dir "
    "or checkpoint",
)
@reading
def run_shell(asked: Network, *, commands: Sequence[str], at: str | None, path: Path | None) -> int:
    from ops.shell.commands import Shell, words_of  # it imports the state, which no help needs

    with patience("the state is being read"):
        shell = Shell(_source(asked, path), at)
    if shell.moment.note:
        say(shell.moment.note)
    if not commands and sys.stdin.isatty():
        _talk(shell)
        return 0
    for line in commands or sys.stdin:
        if line.strip() in _ENDS:
            break
        _print(shell.run(words_of(line)))
    return 0


NOUN: Final = Verb(
    run_shell,
    examples=(
        "shell",
        "shell --at -2h",
        """shell -c 'ls -l /brokers' -c "find /topics -name 0" """.rstrip(),
        "shell --of /var/lib/kafka/metadata -c tree",
    ),
)


def _source(asked: Network, path: Path | None) -> "Source":
    from ops.shell.sources import ClusterSource, FileSource

    if path is None:
        return ClusterSource(asked.client())
    from metadata_log import replay

    log = replay.open(path)
    log.warns_of_cuts = False  # the shell says itself which batch boundary it shows
    for line in log.missing:
        say(line)
    return FileSource(log)


def _talk(shell: "Shell") -> None:
    """Answer commands typed at a prompt; what is refused is said, and the next one is awaited."""
    from ops.shell.commands import words_of

    say("`man` lists the commands; Ctrl-D ends the shell")
    _complete(shell)
    for line in _typed(shell):
        if line.strip() in _ENDS:
            return
        try:
            _print(shell.run(words_of(line)))
        except MetadataError as error:
            say(error.message)
        except KeyboardInterrupt:
            say("interrupted")


def _typed(shell: "Shell") -> Iterator[str]:
    with suppress(EOFError):
        while True:
            try:
                yield input(shell.prompt)
            except KeyboardInterrupt:
                put("")
    put("")


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        put(line)


def _complete(shell: "Shell") -> None:
    """Complete commands and paths with the tabulator, and keep the lines typed, where there is readline."""
    with suppress(ImportError):
        import readline

        from ops.shell.commands import COMMANDS

        def complete(text: str, place: int) -> str | None:
            begins = readline.get_begidx() == 0
            found = (
                [f"{name} " for name in COMMANDS if name.startswith(text)]
                if begins
                else shell.completions(text)
            )
            return found[place] if place < len(found) else None

        readline.set_completer(complete)
        readline.set_completer_delims(" \t\n'\"")
        readline.parse_and_bind("tab: complete")
