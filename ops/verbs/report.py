"""Edge: `report`: what happened to a running cluster, told from its log as `replay report` tells it of an export.
Tests: tests/cluster/test_plans.py.
"""

from typing import Final

from ops.command_line.options import Network, Verb, network_as, option
from ops.command_line.values import from_to, moment
from ops.given import SHOWN
from ops.when import When


@option("--topic", metavar="NAME", help="of topics, this one alone")
@option("--broker", read=from_to(0, 2**31 - 1), metavar="ID", help="of brokers, this one alone")
@option("--from", "--since", "first", read=moment, metavar="WHEN")
@option("--to", "--until", "last", read=moment, metavar="WHEN", help="default: the end")
@network_as("md", "html", "json", default="md", told="md, which is Markdown")
def run_report(
    asked: Network, *, topic: str | None, broker: int | None, first: When | None, last: When | None
) -> int:
    from ops.admin.connect import named
    from ops.verbs import replay

    files = {name: getattr(asked, name) for name in SHOWN}
    place = named(asked.bootstrap, asked.context, files, insecure=asked.insecure)
    shown = {name: str(file) for name, file in place.files_to_show().items()}
    source = replay.Source(
        output=asked.output,
        export=",".join(place.urls),
        form=None,
        skip_damaged=False,
        insecure=place.insecure,
        ca=shown.get("ca"),
        cert=shown.get("cert"),
        key=shown.get("key"),
        token_file=shown.get("token_file"),
    )
    return replay.run_report(source, topic=topic, broker=broker, first=first, last=last)


NOUN: Final = Verb(
    run_report,
    examples=("report", "report --since -2h -o html > report.html", "report --topic orders --broker 13"),
)
