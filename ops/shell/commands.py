"""Pure: the commands of the shell: each reads a state's tree, or moves to another moment. docs/shell.md has a session.

They are those of kafka-metadata-shell (ls, cd, pwd, cat, find, tree, history, man) and further ones: grep, at, diff.
"""

import argparse
import fnmatch
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from metadata_log.errors import InvalidRequest
from metadata_log.image.metadata_image import MetadataImage
from ops.shell.tree import (
    Directory,
    File,
    Node,
    Path,
    differences,
    matching,
    node_at,
    path_of,
    root,
    text_of,
    walk,
)
from ops.when import time_text

TREE_DEPTH: Final = 2


class Moment(NamedTuple):
    """A state, and how it was found."""

    image: MetadataImage
    note: str = ""
    """What the reader should know of it: "500 lies inside the batch 18-1017; shown at 18"."""


class Source(Protocol):
    """Where states come from: a cluster, or a log in files."""

    def state_at(self, when: str | None) -> Moment:
        """Return the state at an offset or a time; None: the newest there is.

        Raises:
            InvalidRequest: it is no moment.
            OffsetInFuture, OffsetCompacted: the log does not reach it.
        """

    def history(self, path: Path) -> Iterator[str]:
        """Yield a line for each change of what a path shows, the oldest first.

        Raises:
            InvalidRequest: this source tells nothing of such a path.
        """


class Command(NamedTuple):
    """A command of the shell."""

    name: str
    usage: str
    about: str
    run: Callable[..., Iterator[str]]
    """Takes the shell and, by name, what its options say."""
    options: Sequence[tuple[tuple[str, ...], Mapping[str, Any]]]


class Shell:
    """A place in the tree of the state at some moment."""

    def __init__(self, source: Source, when: str | None = None) -> None:
        self.source = source
        self.cwd: Path = ()
        self.move(when)

    def move(self, when: str | None) -> str:
        """Take the state at another moment, and return what is to be said of it; raises as `Source.state_at`."""
        self.moment = self.source.state_at(when)
        self.tree = root(self.moment.image)
        while not isinstance(node_at(self.tree, self.cwd), Directory):
            self.cwd = self.cwd[:-1]
        return self.moment.note

    @property
    def prompt(self) -> str:
        return f"[{self.moment.image.end_offset}] {text_of(self.cwd)} > "

    def run(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the lines that a command prints; no words are no command.

        Raises:
            InvalidRequest: there is no such command or path, or it is used wrongly.
            MetadataError: the source cannot answer.
        """
        if not words:
            return
        command = COMMANDS.get("man" if words[0] == "help" else words[0])
        if command is None:
            raise InvalidRequest(f"there is no command {words[0]!r}: {', '.join(COMMANDS)}, exit")
        yield from command.run(self, **vars(_parsed(command, words[1:])))

    def found(self, texts: Sequence[str]) -> list[tuple[Path, Node]]:
        """Return the nodes that paths with wildcards name; without one, the current directory.

        Raises:
            InvalidRequest: one of them names nothing.
        """
        nodes: list[tuple[Path, Node]] = []
        for text in texts or [""]:
            these = [*matching(self.tree, path_of(text, below=self.cwd))]
            if not these:
                raise InvalidRequest(f"there is no {text_of(path_of(text, below=self.cwd))}")
            nodes += these
        return nodes

    def completions(self, text: str) -> list[str]:
        """Return the paths that begin with `text`, a directory's with a slash after it."""
        above, slash, begun = text.rpartition("/")
        directory = node_at(self.tree, path_of(above + slash, below=self.cwd))
        if not isinstance(directory, Directory):
            return []
        return [
            f"{above}{slash}{_shown(name, directory.child(name))}"
            for name in directory.names()
            if name.startswith(begun)
        ]


def words_of(line: str) -> list[str]:
    """Return the words of a line, with quotes and comments as in a shell.

    Raises:
        InvalidRequest: a quotation does not end.
    """
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise InvalidRequest(f"{error}: {line}") from error


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidRequest(f"{self.prog}: {message}; `man {self.prog}` says more")


def _parsed(command: Command, words: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog=command.name, add_help=False, allow_abbrev=False)
    for names, more in command.options:
        parser.add_argument(*names, **more)
    takes_time = command.options and not any(names[0].startswith("-") for names, _ in command.options)
    return parser.parse_args(["--", *words] if takes_time else words)  # -2h is a time, and no option


def _shown(name: str, node: Node | None) -> str:
    return f"{name}/" if isinstance(node, Directory) else name


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# --- commands


def _ls(shell: Shell, *, paths: Sequence[str], long: bool) -> Iterator[str]:
    found = shell.found(paths)
    for place, (path, node) in enumerate(found):
        if len(found) > 1 and isinstance(node, Directory):
            yield from ("", f"{text_of(path)}:") if place else (f"{text_of(path)}:",)
        if isinstance(node, File):
            yield text_of(path)
            continue
        for name in node.names():
            child = node.child(name)
            is_told = long and isinstance(child, File)
            yield f"{name}  {_compact(child.read())}" if is_told else _shown(name, child)  # type: ignore[union-attr]


def _cd(shell: Shell, *, path: str) -> Iterator[str]:
    there = path_of(path, below=shell.cwd)
    node = node_at(shell.tree, there)
    if not isinstance(node, Directory):
        raise InvalidRequest(f"{text_of(there)} is no directory" if node else f"there is no {text_of(there)}")
    shell.cwd = there
    yield from ()


def _pwd(shell: Shell) -> Iterator[str]:
    yield text_of(shell.cwd)


def _cat(shell: Shell, *, paths: Sequence[str]) -> Iterator[str]:
    for path, node in shell.found(paths):
        if isinstance(node, Directory):
            raise InvalidRequest(
                f"{text_of(path)} is a directory: `ls -l` shows its files, `tree` all below it"
            )
        value = node.read()
        yield (
            json.dumps(value, indent=2, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
        )


def _find(shell: Shell, *, paths: Sequence[str], name: str | None, kind: str | None) -> Iterator[str]:
    for start, node in shell.found(paths):
        for path, each in walk(node, start):
            is_named = name is None or fnmatch.fnmatchcase(path[-1] if path else "/", name)
            if is_named and kind in (None, "d" if isinstance(each, Directory) else "f"):
                yield text_of(path)


def _grep(
    shell: Shell, *, pattern: str, paths: Sequence[str], ignore_case: bool, files: bool
) -> Iterator[str]:
    try:
        wanted = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise InvalidRequest(f"{pattern!r} is no regular expression: {error}") from error
    for start, node in shell.found(paths):
        for path, each in walk(node, start):
            if isinstance(each, File) and wanted.search(text := _compact(each.read())):
                yield text_of(path) if files else f"{text_of(path)}: {text}"


def _tree(shell: Shell, *, paths: Sequence[str], depth: int) -> Iterator[str]:
    for start, node in shell.found(paths):
        for path, each in walk(node, start, depth=depth):
            below = len(path) - len(start)
            yield text_of(path) if below == 0 else f"{'  ' * below}{_shown(path[-1], each)}"


def _at(shell: Shell, *, when: str | None) -> Iterator[str]:
    note = shell.move(None if when == "now" else when) if when else ""
    if note:
        yield note
    image = shell.moment.image
    written_at = time_text(image.last_time_ms) if image.last_time_ms else "the beginning"
    yield f"the state at offset {image.end_offset}, epoch {image.controller_epoch}, {written_at}"


def _diff(shell: Shell, *, first: str, last: str | None) -> Iterator[str]:
    before = shell.source.state_at(first)
    after = shell.source.state_at(None if last == "now" else last) if last else shell.moment
    yield from (f"# {moment.note}" for moment in (before, after) if moment.note)
    yield f"# offset {before.image.end_offset} -> {after.image.end_offset}"
    was, now = (node_at(root(moment.image), shell.cwd) for moment in (before, after))
    yield from difference_lines(differences(was, now, shell.cwd))


def difference_lines(found: Iterable[tuple[Path, Any, Any]]) -> Iterator[str]:
    """Yield what differs in a line for each field: + what came, - what went, ~ what is another."""
    for path, was, now in found:
        if isinstance(was, dict) and isinstance(now, dict):
            for field in dict.fromkeys([*was, *now]):
                if was.get(field) != now.get(field):
                    yield f"~ {text_of(path)} {field}: {_compact(was.get(field))} -> {_compact(now.get(field))}"
        elif was is None or now is None:
            yield f"{'+' if was is None else '-'} {text_of(path)} {_compact(now if was is None else was)}"
        else:
            yield f"~ {text_of(path)}: {_compact(was)} -> {_compact(now)}"


def _history(shell: Shell, *, path: str) -> Iterator[str]:
    yield from shell.source.history(path_of(path, below=shell.cwd))


def _man(_: Shell, *, command: str | None) -> Iterator[str]:
    if command is None:
        width = max(len(each.usage) for each in COMMANDS.values())
        yield from (f"{each.usage:{width}}  {each.about}" for each in COMMANDS.values())
        yield f"{'exit':{width}}  Leave the shell."
        return
    told = COMMANDS.get(command)
    if told is None:
        raise InvalidRequest(f"there is no command {command!r}: {', '.join(COMMANDS)}")
    yield from (told.usage, "", told.about)
    for names, more in told.options:
        if names[0].startswith("-"):
            yield f"  {', '.join(names)}  {more['help']}"


_PATHS: Final = (("paths",), {"nargs": "*"})
COMMANDS: Final[Mapping[str, Command]] = {
    command.name: command
    for command in (
        Command(
            "ls",
            "ls [-l] [PATH...]",
            "List directories; a directory's name ends in a slash.",
            _ls,
            ((("-l", "--long"), {"action": "store_true", "help": "with the value of each file"}), _PATHS),
        ),
        Command("cd", "cd [PATH]", "Go to a directory.", _cd, ((("path",), {"nargs": "?", "default": "/"}),)),
        Command("pwd", "pwd", "Print the current directory.", _pwd, ()),
        Command("cat", "cat PATH...", "Print files as JSON.", _cat, ((("paths",), {"nargs": "+"}),)),
        Command(
            "find",
            "find [PATH...] [-name PATTERN] [-type d|f]",
            "Print the paths below a directory.",
            _find,
            (
                (("-name",), {"help": "those whose last name matches, with * and ?"}),
                (("-type",), {"dest": "kind", "choices": ("d", "f"), "help": "directories or files alone"}),
                _PATHS,
            ),
        ),
        Command(
            "grep",
            "grep [-i] [-l] PATTERN [PATH...]",
            "Print the files in whose JSON a regular expression is found: grep '\"leader\":11,' /topics.",
            _grep,
            (
                (("-i", "--ignore-case"), {"action": "store_true", "help": "capitals or not"}),
                (("-l", "--files"), {"action": "store_true", "help": "the paths alone"}),
                (("pattern",), {}),
                _PATHS,
            ),
        ),
        Command(
            "tree",
            "tree [-L DEPTH] [PATH...]",
            "Print a directory and what is below it, indented.",
            _tree,
            (
                (
                    ("-L", "--depth"),
                    {"type": int, "default": TREE_DEPTH, "help": f"how many levels; default: {TREE_DEPTH}"},
                ),
                _PATHS,
            ),
        ),
        Command(
            "at",
            "at [WHEN]",
            "Go to the state at an offset or a time (1234, -2h, 2026-01-01T10:00Z, now), or say which is shown.",
            _at,
            ((("when",), {"nargs": "?"}),),
        ),
        Command(
            "diff",
            "diff FROM [TO]",
            "Print what differs below the current directory between two moments; without TO, up to what is shown.",
            _diff,
            ((("first",), {}), (("last",), {"nargs": "?"})),
        ),
        Command(
            "history",
            "history [PATH]",
            "Print the changes below a path (without one, of the current directory), with their causes.",
            _history,
            ((("path",), {"nargs": "?", "default": ""}),),
        ),
        Command("man", "man [COMMAND]", "Say what a command does.", _man, ((("command",), {"nargs": "?"}),)),
    )
}
"""By name."""
