"""Pure: settings files as text, which `ops/settings.py` reads as the same settings.

Tests: tests/unit/ops/test_settings.py.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker_agent.config import BrokerSettings
from metadata_log.node.audit_settings import AuditSettings
from metadata_log.node.disk.data_directory import Role
from ops import settings_values as of
from ops.settings import KEYS, keys_of
from ops.settings_values import Around
from quorum.node.config import (
    AclSettings,
    ControllerSettings,
    DelegationTokenSettings,
    FeatureSettings,
    KafkaSettings,
)


def controller_toml(settings: ControllerSettings, *, data_dir: str) -> str:
    """Return the file that `load_controller_settings` reads as `settings`; `data_dir` is relative to the file."""
    voters = [key for key in KEYS if key.table == "voters"]
    around = Around(Path(), tls=settings.tls is not None)
    rows = [
        [
            (key.key, key.kind.write(value, around))
            for key in voters
            if (value := getattr(voter, key.key)) is not None
        ]
        for voter in settings.voters
    ]
    return _toml([*_tables(settings, "controller", data_dir), *(("[[voters]]", row) for row in rows)])


def broker_toml(settings: BrokerSettings, *, data_dir: str) -> str:
    """Return the file that `load_broker_settings` reads as `settings`; `data_dir` is relative to the file."""
    around = Around(Path(), tls=settings.tls is not None)
    tables = _tables(settings, "broker", data_dir)
    if settings.advertised_listeners:
        rows = [
            (json.dumps(name), of.LISTENER.write(at, around)) for name, *at in settings.advertised_listeners
        ]
        tables.append(("[advertised.listeners]", rows))
    return _toml(tables)


def _tables(
    settings: ControllerSettings | BrokerSettings, role: Role, data_dir: str
) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Return the tables with a key for each setting that has a value."""
    around = Around(Path(), tls=settings.tls is not None)
    is_secure = settings.tls is not None and settings.principals is not None
    given = {"data_dir": data_dir, "insecure": None if is_secure else True}
    left_out = {"voters", "advertised.listeners"}
    if isinstance(settings, ControllerSettings) and settings.kafka == KafkaSettings():
        left_out.add("kafka")  # releases without the listener read such a file, too
    if isinstance(settings, ControllerSettings) and settings.acls == AclSettings():
        left_out.add("acls")
    if isinstance(settings, ControllerSettings) and settings.delegation_tokens == DelegationTokenSettings():
        left_out.add("delegation_tokens")
    if isinstance(settings, ControllerSettings) and settings.features == FeatureSettings():
        left_out.add("features")  # nor do older releases know other levels
    if settings.audit == AuditSettings():
        left_out.add("audit")  # nor do older releases know of an audit log
    tables: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for key in keys_of(role):
        if key.table not in left_out:
            value: Any = given[key.key] if key.key in given else _value(settings, key.field)
            if value is not None and value != ():
                tables[key.table].append((key.key, key.kind.write(value, around)))
    return [(f"[{name}]" if name else "", rows) for name, rows in tables.items()]


def _value(settings: object, field: Sequence[str]) -> Any:
    for name in field:
        settings = None if settings is None else getattr(settings, name)
    return settings


def _toml(tables: Sequence[tuple[str, Sequence[tuple[str, Any]]]]) -> str:
    """Return TOML; a JSON string, number or list of strings is written in TOML the same way."""
    return "\n".join(
        "".join([f"{head}\n" if head else "", *(f"{name} = {json.dumps(value)}\n" for name, value in rows)])
        for head, rows in tables
    )
