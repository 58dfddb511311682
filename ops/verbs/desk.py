"""Edge: `help`, what a noun or a verb does, and `completion`, the script with which a shell completes their words."""

from collections.abc import Sequence
from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from ops.command_line.options import Verb, argument, suggestion
from ops.command_line.talk import fail_usage, put

SHELLS: Final[dict[str, type[ShellComplete]]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}
VARIABLE: Final = "_METAQUORUM_COMPLETE"


@argument("words", "[NOUN [VERB]]", nargs=-1)
def run_help(*, words: Sequence[str]) -> int:
    """Show the help of what the words name: the same as --help after them."""
    ctx = click.get_current_context().find_root()
    command: click.Command = ctx.command
    for word in words:
        found = command.get_command(ctx, word) if isinstance(command, click.Group) else None
        if found is None:
            known = command.list_commands(ctx) if isinstance(command, click.Group) else []
            near = suggestion(word, known) or "; metaquorum help lists what there is"
            fail_usage(f"there is no {' '.join(words)!r}{near}")
        ctx = click.Context(found, parent=ctx, info_name=word)
        command = found
    click.echo(command.get_help(ctx))
    return 0


HELP: Final = Verb(run_help, examples=("help", "help topics", "help topics create"))


@argument("shell", "bash|zsh|fish", choices=tuple(SHELLS))
def run_completion(*, shell: str) -> int:
    """Print the script; the shell then asks us at each Tab."""
    complete = SHELLS[shell](click.get_current_context().find_root().command, {}, "metaquorum", VARIABLE)
    put(complete.source_template % complete.source_vars())
    return 0


COMPLETION: Final = Verb(
    run_completion,
    examples=(
        "completion bash > /etc/bash_completion.d/metaquorum",
        'completion zsh > "${fpath[1]}/_metaquorum"',
        "completion fish > ~/.config/fish/completions/metaquorum.fish",
    ),
)
