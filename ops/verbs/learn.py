"""Edge: `learn`: stories of replication and of consumer groups, on brokers of Kafka that it starts and stops.
Tests: tests/unit/ops/verbs/test_learn.py.
"""

import signal
from typing import Any, Final

from ops.command_line.options import Output, Verb, argument, output
from ops.command_line.render import Column
from ops.command_line.talk import fail_usage, put

LISTED: Final = (Column("story"), Column("brokers"), Column("about"))
NOT_HERE: Final = (
    "what runs Kafka's brokers is not in the installed package; it is in the source repository of metaquorum: there, "
    "`./ops/check` installs what it needs, and `.venv/bin/metaquorum learn` runs it"
)


@argument("story", "STORY", required=False, help="default: list the stories")
@output
def run_learn(asked: Output, *, story: str | None) -> int:
    """Tell a story on a cluster of its own; Ctrl-C stops it. Without a name, list the stories."""
    try:
        from ops.stories.registry import STORIES
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("ops.stories"):
            raise
        fail_usage(NOT_HERE)
    if story is None:
        rows = [
            {"story": name, "about": each.about, "brokers": each.brokers, "rows": list(each.rows)}
            for name, each in STORIES.items()
        ]
        asked.show_items(rows, LISTED, empty="no stories")
        return 0
    if story not in STORIES:
        fail_usage(f"there is no story {story!r}: {', '.join(STORIES)}")
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if asked.is_text:
            put(line, flush=True)

    facts = _told(story, tell)
    if not asked.is_text:
        asked.show({"story": story, "facts": _plain(facts), "told": told}, table=str)
    return 0


def _told(story: str, tell: Any) -> dict[str, Any]:
    from ops.processes import keep_files_private

    try:
        from ops.stories.telling import tell_alone
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        fail_usage(
            "a story needs the packages of Kafka's clients and of Spark, which brings Java: `./ops/up --kafka` or "
            "`./ops/check` installs them"
        )
    keep_files_private()
    # Nodes have sessions of their own: they stop where Python unwinds, which it does at SIGINT alone.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    return tell_alone(story, tell)


def _plain(value: Any) -> Any:
    """Return what was seen as JSON has it: keys are text, and so are bytes."""
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple() | set():
            return [_plain(item) for item in value]
        case bytes():
            return value.decode(errors="replace")
        case _:
            return value


NOUN: Final = Verb(run_learn, examples=("learn", "learn high-watermark", "learn acks -o json"))
