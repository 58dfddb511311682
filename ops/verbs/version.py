"""Edge: `version`: the release of this client and of every node."""

from typing import Any, Final

from metadata_log.errors import MetadataError
from metadata_log.node.release import VERSION
from ops.admin import versions
from ops.command_line.options import Network, Verb, flag, reading
from ops.command_line.render import Column
from ops.command_line.talk import say
from ops.given import Misuse

VERSIONS: Final = (Column("node"), Column("version"), Column("address"))


@flag("--client", "client_only", help="of this client alone; no node is asked")
@reading
def run_version(asked: Network, *, client_only: bool) -> int:
    """Show versions; one that is not known is None: an older release, a broker of another make, or a silent node."""
    found: list[dict[str, Any]] = [{"node": "client", "version": VERSION, "address": None}]
    if not client_only:
        try:
            client = asked.client()
        except (MetadataError, Misuse) as error:
            say(f"no node was asked: {error}")
        else:
            found += versions.nodes(client)
    known = {one["version"] for one in found} - {None}
    asked.show_items(found, VERSIONS, empty="")
    if len(known) > 1:
        say(f"{len(known)} versions run: {', '.join(sorted(known))}")
    return 0


NOUN: Final = Verb(run_version, examples=("version", "version --client", "version -o json"))
