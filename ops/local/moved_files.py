"""Edge: the files of a local cluster after one of its nodes has moved: every node's settings, and cluster.json.
Tests: tests/cluster/test_move.py.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from broker_agent.config import BrokerSettings
from metadata_log.errors import InvalidSettings
from metadata_log.node.addresses import HostPort, address_text, read_url
from metadata_log.node.disk.durable_files import replace_file
from metadata_log.node.identity.credentials import TlsFiles
from ops.admin.moving import Move
from ops.local.layout import Member, read_cluster_file
from ops.settings import load_broker_settings, load_controller_settings
from ops.settings_writing import broker_toml, controller_toml
from quorum.node.config import ControllerSettings

Settings = TypeVar("Settings", ControllerSettings, BrokerSettings)


def write_move(directory: Path, move: Move) -> None:
    """Let all files of a local cluster name a node's new addresses; again changes nothing.

    Raises:
        InvalidSettings: there is no such node, or a file is none.
    """
    _, controllers, brokers = read_cluster_file(directory / "cluster.json")
    member = next(
        (one for one in (*controllers, *brokers) if (one.role, one.id) == (move.role, move.id)), None
    )
    if member is None:
        raise InvalidSettings(f"{directory} has no {move.name}")
    before = member.http
    for one in controllers:
        _write_controller(directory / one.config, one, move)
    for one in brokers:
        if not one.is_of_kafka:
            _write_broker(directory / one.config, one, move, before)
    _write_cluster_file(directory / "cluster.json", move)


def _write_controller(config: Path, member: Member, move: Move) -> None:
    settings = load_controller_settings(config)
    if move.role == "controller":
        voters = tuple(
            replace(
                voter,
                http=move.http or voter.http,
                raft=move.raft or voter.raft,
                kafka=move.kafka or voter.kafka,
            )
            if voter.id == move.id
            else voter
            for voter in settings.voters
        )
        settings = replace(settings, voters=voters)
        if member.id == move.id:
            settings = replace(
                settings,
                listen_http=_http(move) or settings.listen_http,
                listen_raft=move.raft or settings.listen_raft,
                listen_kafka=move.kafka or settings.listen_kafka,
            )
    replace_file(config, controller_toml(_relative(settings, config), data_dir=member.data).encode())


def _write_broker(config: Path, member: Member, move: Move, before: str) -> None:
    settings = load_broker_settings(config)
    if move.role == "controller":
        controllers = tuple(move.http or url if url == before else url for url in settings.controllers)
        settings = replace(settings, controllers=controllers)
    elif member.id == move.id:
        settings = replace(settings, listen_http=_http(move) or settings.listen_http)
    replace_file(config, broker_toml(_relative(settings, config), data_dir=member.data).encode())


def _relative(settings: Settings, config: Path) -> Settings:
    """Return settings whose files below the folder of the settings file are named from there, as `up` wrote them."""

    def named(path: Path | None) -> Path | None:
        folder = config.parent
        return path.relative_to(folder) if path is not None and path.is_relative_to(folder) else path

    tls = settings.tls
    if tls is not None:
        certificate, key, ca = (named(each) or each for each in (tls.certificate, tls.key, tls.ca))
        tls = TlsFiles(certificate, key, ca, named(tls.revoked))
    if isinstance(settings, ControllerSettings):
        tokens = settings.delegation_tokens
        tokens = replace(tokens, secret_key_file=named(tokens.secret_key_file))
        settings = replace(settings, delegation_tokens=tokens)
    return replace(
        settings, tls=tls, principals=named(settings.principals), token_file=named(settings.token_file)
    )


def _http(move: Move) -> HostPort | None:
    return None if move.http is None else read_url(move.http)


def _write_cluster_file(file: Path, move: Move) -> None:
    value = json.loads(file.read_bytes())
    told = {
        "http": move.http,
        "raft": None if move.raft is None else address_text(move.raft),
        "kafka": None if move.kafka is None else address_text(move.kafka),
    }
    for row in value[f"{move.role}s"]:
        if row["id"] == move.id:
            row |= {name: address for name, address in told.items() if address is not None}
    value["bootstrap"] = [row["http"] for row in value["controllers"]]
    replace_file(file, json.dumps(value, indent=2).encode() + b"\n")
