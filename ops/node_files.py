"""Edge: how files get to nodes: by an operator's own command, or into the places that a local cluster's settings name.
Tests: tests/cluster/test_certificates.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from metadata_log.errors import InvalidSettings
from metadata_log.node.disk.durable_files import replace_file
from ops.admin.certificate_rotation import Install
from ops.admin.shown_certificates import Target
from ops.command_line.talk import fail_usage
from ops.local.layout import read_cluster_file
from ops.node_commands import run_for
from ops.settings import load_broker_settings, load_controller_settings


def installer(
    local: Path | None, command: Sequence[str] | None, patience_s: float, cluster_id: str
) -> Install:
    """Return what brings a file to a node: a command of the operator's, or for a local cluster a copy."""
    if command is not None:

        def by_command(target: Target, name: str, file: Path) -> None:
            places = {"id": target.id, "role": target.role, "host": target.host, "file": file, "name": name}
            run_for(command, places, name=target.name, patience_s=patience_s)

        return by_command
    return _local_installer(local or Path(), cluster_id)


def _local_installer(directory: Path, cluster_id: str) -> Install:
    """Return what puts a file in place of the one that a node's settings name."""
    place_of: dict[tuple[str, int], Mapping[str, Path | None]] = {}
    if (directory / "cluster.json").exists():
        found, controllers, brokers = read_cluster_file(directory / "cluster.json")
        if found != cluster_id:
            fail_usage(
                f"--local {directory} is cluster {found}, and the cluster that is asked is {cluster_id}"
            )
        for member in (*controllers, *brokers):
            if not member.is_of_kafka:
                place_of[member.role, member.id] = _places(directory / member.config, member.role)

    def install(target: Target, name: str, file: Path) -> None:
        places = place_of.get((target.role, target.id), {})
        place = places.get(name)
        if place is None:
            raise InvalidSettings(f"{target.name}: the settings in {directory} name no file for {name}")
        if place.resolve() != file.resolve():
            replace_file(place, file.read_bytes())

    return install


def _places(config: Path, role: str) -> Mapping[str, Path | None]:
    tls = (load_broker_settings(config) if role == "broker" else load_controller_settings(config)).tls
    if tls is None:
        return {}
    return {"node.crt": tls.certificate, "node.key": tls.key, "ca.crt": tls.ca, "revoked.toml": tls.revoked}
