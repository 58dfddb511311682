"""Edge: `config check`: settings files of nodes, looked at without starting one."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metadata_log.errors import MetadataError
from metadata_log.node.disk.data_directory import Role, read_meta
from metadata_log.node.identity.access import Access
from ops.command_line.changes import REFUSED
from ops.command_line.options import Noun, Output, argument, output
from ops.command_line.render import Column
from ops.command_line.values import existing_path

if TYPE_CHECKING:
    from broker_agent.config import BrokerSettings
    from quorum.node.config import ControllerSettings

CHECKED: Final = (
    Column("file"),
    Column("result", tone=lambda result: "good" if result == "ok" else "bad"),
    Column("detail"),
)
NOUN: Final = Noun()


@NOUN.verb(
    "check",
    "Check settings files without starting a node: every key, the files that they name, and the data directory.",
    "config check controller.toml",
    "config check metaquorum-data/*.toml -o json",
)
@argument("files", "FILE...", nargs=-1, required=True, read=existing_path)
@output
def run_check(asked: Output, *, files: Sequence[Path]) -> int:
    """Show each fault of each file; REFUSED if a node would not start with one of them."""
    found: list[dict[str, Any]] = []
    for file in files:
        faults = [{"file": str(file), "result": "fault", "detail": fault} for fault in _faults(file)]
        found += faults or [{"file": str(file), "result": "ok", "detail": ""}]
    asked.show_items(found, CHECKED, empty="")
    return REFUSED if any(one["result"] != "ok" for one in found) else 0


def _faults(file: Path) -> Iterator[str]:
    from ops.settings import load_checked

    settings, faults = load_checked(file)
    yield from (fault.removeprefix(f"{file}: ") for fault in faults)
    if settings is not None:
        yield from _around(settings)


def _around(settings: "ControllerSettings | BrokerSettings") -> Iterator[str]:
    """Yield the faults of what the settings name: certificates, principals, the data directory."""
    is_broker = hasattr(settings, "broker_id")
    role: Role = "broker" if is_broker else "controller"
    node_id = getattr(settings, "broker_id" if is_broker else "node_id")
    for check in (
        lambda: settings.tls is None or settings.tls.client(),
        lambda: settings.principals is None or Access(settings.principals, cluster_id=settings.cluster_id),
        lambda: read_meta(settings.data_dir, role, node_id, settings.cluster_id),
    ):
        try:
            check()
        except MetadataError as error:
            yield error.message
