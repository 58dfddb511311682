"""Edge: what a noun declares its verbs with, on click: verbs, their options, what verbs share, and kinds of values.

A verb is a function. Its options reach it as keyword arguments; what verbs share reaches it as one value, `Output` or
`Network`. A usage error names what is wrong, and suggests the nearest known name for a misspelt one.
Tests: tests/unit/ops/test_cli.py.
"""

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import click
from click.core import ParameterSource

from ops.command_line import render, terminal
from ops.command_line.render import OUTPUTS, ROW_OUTPUTS
from ops.command_line.talk import put, say
from ops.command_line.values import seconds
from ops.given import SHOWN, TIMEOUT_S, Misuse

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ops.admin.cluster import Cluster

Run: TypeAlias = Callable[..., int]
"""What a verb does; it returns the exit code."""
R = TypeVar("R", bound=Run)
"""A verb under what is declared of it."""
USAGE: Final = 2
"""The exit code of a usage error."""
UNRECOGNIZED: Final = "unrecognized arguments: "
_CONTEXT: Final = {"max_content_width": 110, "help_option_names": ["-h", "--help"]}
_SIMILAR: Final = 0.75
OTHER_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {"ls": "list", "show": "describe", "get": "describe", "add": "create", "rm": "delete", "remove": "delete"}
)
"""What other tools call a verb, and what it is called here."""
WATCH_S: Final = 2.0
"""How long --watch pauses: a person reads no faster, and the cluster hardly notices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How a verb shows its answer."""

    output: str = "table"

    @property
    def is_text(self) -> bool:
        return self.output in render.TEXT

    @property
    def look(self) -> render.Look:
        """How tables are drawn where stdout leads."""
        return terminal.look(is_wide=self.output == "wide")

    def show(self, value: Any, *, table: Callable[[], str]) -> None:
        """Print a result as the options ask for it."""
        shown = render.rendered(value, output=cast("render.Output", self.output), table=table)
        if self.is_text and shown:
            terminal.show_text(shown)
        elif shown:
            put(shown, output=self.output)

    def table(self, columns: Sequence[render.Column], items: Iterable[render.Row], *, empty: str) -> str:
        return render.table(columns, items, empty=empty, look=self.look)

    def show_items(self, items: Sequence[Any], columns: Sequence[render.Column], *, empty: str) -> None:
        """Print items; their table has these columns."""
        self.show(items, table=lambda: self.table(columns, items, empty=empty))

    def show_fields(self, value: Mapping[str, Any]) -> None:
        """Print one thing; its table has a line for each field."""
        self.show(
            value, table=lambda: render.fields((key, render.plain(item)) for key, item in value.items())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Network(Output):
    """Which cluster a verb asks, what it shows there, and how long it waits for an answer."""

    bootstrap: str | None = None
    context: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    token_file: str | None = None
    insecure: bool = False
    timeout: float = TIMEOUT_S
    consistent: bool = True

    def client(self) -> "Cluster":
        from ops.admin.connect import connect

        files = {name: getattr(self, name) for name in SHOWN}
        return connect(
            self.bootstrap,
            context=self.context,
            timeout_s=self.timeout,
            insecure=self.insecure,
            say=say,
            takes_stale=not self.consistent,
            **files,
        )


class Kind(click.ParamType[Any]):
    """A kind of value that `read` reads from text; its ValueError names what is wanted. A shell completes `words`."""

    def __init__(self, read: Callable[[str], Any], words: Callable[[], Iterable[str]] = tuple) -> None:
        self.name = getattr(read, "__name__", "value")
        self.read = read
        self.words = words

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        begun = incomplete.upper()
        return [CompletionItem(word) for word in sorted(self.words()) if word.upper().startswith(begun)]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value  # a default
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class OneOf(click.Choice[str]):
    """One of some words; capitals, and - or _ within them, do not matter: Kafka's tools write Read and DescribeConfigs."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in self.choices:
            return value
        found = [known for known in self.choices if _plain(known) == _plain(str(value))]
        if len(found) != 1:
            self.fail(_invalid_choice(value, self.choices), param, ctx)
        return found[0]


def _plain(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")


def _invalid_choice(given: str, known: Sequence[str]) -> str:
    if near := suggestion(given, known):
        return f"invalid choice: {given!r}{near}"
    return f"invalid choice: {given!r} (choose from {', '.join(map(repr, known))})"


def suggestion(given: str, known: Sequence[str]) -> str:
    """Return the end of a refusal of a word: which of the known ones is meant, if one is like it."""
    if given == "fence" and "drain" in known:
        return "; a broker that is stopped is fenced, and drain --leaders-only takes its leaderships: no verb fences one"
    near = [OTHER_WORDS[given]] if OTHER_WORDS.get(given) in known else []
    near = near or difflib.get_close_matches(given, known, n=1, cutoff=_SIMILAR)
    return f"; did you mean {near[0]}?" if near else ""


class SectionedOption(click.Option):
    """An option that help shows under the heading `section`; the empty text is no value, unless it `may_be_empty`."""

    def __init__(
        self, *names: str, section: str = "options", may_be_empty: bool = False, **more: Any
    ) -> None:
        super().__init__(names, **more)
        self.section = section
        self.may_be_empty = may_be_empty

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        if not self.may_be_empty:
            _refuse_empty(self, ctx, value)
        return super().type_cast_value(ctx, value)


class Positional(click.Argument):
    """A positional argument; usage shows one that may be left out in brackets. The empty text is no value."""

    def make_metavar(self, ctx: click.Context) -> str:
        shown = super().make_metavar(ctx)
        return shown if self.required or shown.startswith("[") else f"[{shown}]"

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        _refuse_empty(self, ctx, value)
        return super().type_cast_value(ctx, value)


def _refuse_empty(param: click.Parameter, ctx: click.Context, value: Any) -> None:
    """Refuse the empty text, as a shell gives it for a variable that is not set: it would name nothing, or everything."""
    if value == "" or (isinstance(value, tuple | list) and "" in value):
        raise click.BadParameter(
            "the empty text is no value: leave it out, or say which is meant", ctx, param
        )


def option(*names: str, **more: Any) -> Callable[[R], R]:
    """Declare an option: its words, and its keyword if that is another.

    `more` is what click.Option takes, and `section`, `may_be_empty`, `read` (of a value's text) with `words` that a shell
    completes, or `choices`.
    """
    return declaring(SectionedOption(*names, **_typed(more)))


def flag(*names: str, **more: Any) -> Callable[[R], R]:
    """Declare an option without a value."""
    return option(*names, is_flag=True, **more)


def argument(name: str, metavar: str, **more: Any) -> Callable[[R], R]:
    """Declare a positional argument; `more` is what click.Argument takes, and `read` or `choices`."""
    return declaring(Positional([name], metavar=metavar, **_typed(more)))


def _typed(more: dict[str, Any]) -> dict[str, Any]:
    if "read" in more:
        more["type"] = Kind(more.pop("read"), more.pop("words", tuple))
    if "choices" in more:
        more["type"] = OneOf(more.pop("choices"))
    return more


def declaring(*params: click.Parameter) -> Callable[[R], R]:
    """Declare parameters that are made elsewhere, above those declared so far."""

    def declare(run: R) -> R:
        run.__dict__.setdefault("params", [])[:0] = params
        return run

    return declare


def together(*declared: Callable[[Run], Run]) -> Callable[[Run], Run]:
    """Declare all of these, in this order."""

    def declare(run: Run) -> Run:
        for each in reversed(declared):
            run = each(run)
        return run

    return declare


def either(*names: str, required: bool = False) -> Callable[[R], R]:
    """Declare that at most one of these parameters may be given, or exactly one."""

    def declare(run: R) -> R:
        run.__dict__.setdefault("choices", []).append((names, required))
        return run

    return declare


def output(run: R) -> R:
    """Declare how the answer is shown: the verb gets it as `asked`, an Output."""
    return output_as(*OUTPUTS)(run)


def rows(run: R) -> R:
    """Declare how an answer is shown that is a table of the log."""
    return output_as(*OUTPUTS, *ROW_OUTPUTS)(run)


def output_as(*choices: str, default: str = "table", told: str = "") -> Callable[[R], R]:
    """Declare as what the answer can be shown; `told` says what the default is."""
    return _sharing(Output, _output(choices, default, told or default))


def _output(choices: Sequence[str], default: str, told: str) -> list[click.Parameter]:
    words = OneOf(choices)
    return [
        _in("output", "-o", "--output", type=words, default=default, help=f"default: {told}"),
        _in("output", "--json", "as_json", is_flag=True, help="as -o json"),
    ]


def _in(section: str, *names: str, **more: Any) -> click.Parameter:
    return SectionedOption(*names, section=section, **more)


def network(run: R) -> R:
    """Declare what asks a cluster: the verb gets it as `asked`, a Network."""
    return _network(TIMEOUT_S)(run)


def reading(run: R) -> R:
    """Declare what asks a cluster and changes nothing: without an active controller, another one answers."""
    consistent = _in(
        "network", "--consistent", is_flag=True, help="take the active controller's answer alone"
    )
    return network(declaring(consistent)(run))


def watchable(run: R) -> R:
    """Declare that a verb can be run again and again, which its function does not see."""
    live = [
        _in("output", "--watch", is_flag=True, help="again and again, until Ctrl-C"),
        _in(
            "output",
            "--every",
            type=Kind(seconds),
            default=WATCH_S,
            metavar="S",
            help=f"of --watch; default: {WATCH_S:g}",
        ),
    ]
    return declaring(*live)(run)


def patient(run: R) -> R:
    """Declare what asks a cluster and waits for something to happen there."""
    return _network(60.0)(run)


def network_as(*choices: str, default: str, told: str) -> Callable[[R], R]:
    """Declare what asks a cluster and shows its answer as one of these; `told` says what the default is."""
    return _network(TIMEOUT_S, _output(choices, default, told))


def _network(timeout_s: float, shown: Sequence[click.Parameter] = ()) -> Callable[[R], R]:
    told = f"repetitions included; default: {timeout_s:g}"
    asked = [
        _in("network", "--bootstrap", metavar="URL[,URL...]", help="controllers to ask, or brokers"),
        _in("network", "--context", metavar="NAME", help="a cluster that `context set` named"),
        *shown_files("network"),
        _in("network", "--timeout", type=Kind(seconds), default=timeout_s, metavar="S", help=told),
    ]
    return _sharing(Network, [*asked, *(shown or _output(OUTPUTS, "table", "table"))])


def shown_files(section: str) -> list[click.Parameter]:
    """Return the options that say what a client shows, and whom it trusts."""
    files = {
        "--ca": "the authority of the nodes' certificates",
        "--cert": "the certificate that this client shows",
        "--key": "its key",
        "--token-file": "a file with the bearer token that this client shows",
    }
    variables = {word: f"METAQUORUM_{word[2:].replace('-', '_').upper()}" for word in files}
    clear = "send the token to http:// addresses, too, in the clear"
    return [
        *(
            _in(section, word, metavar="FILE", help=f"{what}; else {variables[word]}")
            for word, what in files.items()
        ),
        _in(section, "--insecure", is_flag=True, help=clear),
    ]


def _sharing(shared: type[Output], params: list[click.Parameter]) -> Callable[[R], R]:
    def declare(run: R) -> R:
        return sharing(shared)(either("output", "as_json")(declaring(*params)(run)))

    return declare


def sharing(shared: type[Output]) -> Callable[[R], R]:
    """Declare as what the verb gets `asked`: the declared options that are fields of `shared`."""

    def declare(run: R) -> R:
        run.__dict__["shared"] = shared
        return run

    return declare


class Verb(click.Command):
    """A verb of the command line, or a noun that is one by itself."""

    def __init__(
        self, run: Run, *, name: str | None = None, about: str = "", examples: Sequence[str]
    ) -> None:
        super().__init__(
            name,
            callback=run,
            params=list(getattr(run, "params", ())),
            help=about,
            short_help=about,
            context_settings={**_CONTEXT},
        )
        self.examples = tuple(examples)
        self.shared: type[Output] | None = getattr(run, "shared", None)
        self.choices: Sequence[tuple[tuple[str, ...], bool]] = getattr(run, "choices", ())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True  # so that one sentence names all of them
        rest = super().parse_args(ctx, args)
        if ctx.resilient_parsing:
            return rest
        if rest:
            raise click.UsageError(f"{UNRECOGNIZED}{' '.join(rest)}", ctx)
        for names, required in self.choices:
            given = [name for name in names if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
            if len(given) > 1:
                first, second = (self._hint(name) for name in given[:2])
                raise click.UsageError(f"argument {second}: not allowed with argument {first}", ctx)
            if required and not given:
                listed = " ".join(map(self._hint, names))
                raise click.UsageError(f"one of the arguments {listed} is required", ctx)
        return rest

    def _hint(self, name: str) -> str:
        return hint(next(param for param in self.params if param.name == name))

    def values(self, ctx: click.Context) -> dict[str, Any]:
        """Return what the verb's function gets."""
        values = dict(ctx.params)
        if values.pop("as_json", False):
            values["output"] = "json"
        if self.shared is not None:
            names = [each.name for each in dataclasses.fields(self.shared)]
            values["asked"] = self.shared(**{name: values.pop(name) for name in names if name in values})
        return values

    def invoke(self, ctx: click.Context) -> Any:
        assert self.callback is not None
        values = self.values(ctx)
        is_watched, every_s = values.pop("watch", False), WATCH_S
        if "watch" in ctx.params:
            every_s = values.pop("every")
        run = partial(ctx.invoke, self.callback, **values)
        try:
            return terminal.watch(run, every_s=every_s) if is_watched else run()
        except Misuse as error:
            raise click.UsageError(str(error), ctx) from error

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, " ".join(self.collect_usage_pieces(ctx)), prefix="usage: ")

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(self.help or "")
        with formatter.section("examples"):
            formatter.write("".join(f"  metaquorum {example}\n" for example in self.examples))
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            is_positional = isinstance(param, click.Argument)
            section = "positional arguments" if is_positional else getattr(param, "section", "options")
            if record := param.get_help_record(ctx):
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records, col_max=28)


class NothingNamed(click.UsageError):
    """A noun without a verb, or no noun: its help is shown, which lists what there is."""


class Noun(click.Group):
    """A noun of the command line: its file in ops/verbs declares each verb with `verb`."""

    def __init__(self) -> None:
        super().__init__(no_args_is_help=False, subcommand_metavar="VERB", context_settings={**_CONTEXT})

    def verb(self, name: str, about: str, *examples: str) -> Callable[[R], R]:
        """Declare a verb: what it does, in one sentence, and examples without the word metaquorum."""

        def declare(run: R) -> R:
            self.add_command(Verb(run, name=name, about=about, examples=examples))
            return run

        return declare

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 as click calls it
        return list(self.commands)  # in the order in which they are declared

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            raise NothingNamed(f"the following arguments are required: {self.subcommand_metavar}", ctx)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            wrong = _invalid_choice(args[0], known)
            raise click.UsageError(f"argument {self.subcommand_metavar}: {wrong}", ctx)
        return super().resolve_command(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, f"[-h] {self.subcommand_metavar} ...", prefix="usage: ")

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        formatter.write(self.help or "")
        formatter.write_paragraph()
        with formatter.section("positional arguments"):
            formatter.write_dl(self.listed())

    def listed(self) -> list[tuple[str, str]]:
        """Return each command with its line of help."""
        return [(name, command.short_help or "") for name, command in self.commands.items()]


def hint(param: click.Parameter) -> str:
    """Return a parameter as usage errors name it."""
    return "/".join(param.opts) if isinstance(param, click.Option) else param.human_readable_name


def told(error: click.UsageError) -> str:
    """Return a usage error in a line: what is wrong with which argument, and the nearest known one."""
    match error:
        case click.NoSuchOption(ctx=ctx):
            known = [] if ctx is None else [word for param in ctx.command.params for word in param.opts]
            return f"{UNRECOGNIZED}{error.option_name}{suggestion(error.option_name, known)}"
        case click.MissingParameter(param=click.Parameter() as param):
            return f"the following arguments are required: {hint(param)}"
        case click.BadParameter(param=click.Parameter() as param):
            return f"argument {hint(param)}: {error.message}"
    return error.message
