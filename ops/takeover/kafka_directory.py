"""Edge: whose a directory of Kafka's is, and with what its cluster was founded; it is only read.

Tests: tests/unit/ops/takeover/test_kafka_directory.py.
"""

import fcntl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from metadata_log.errors import InvalidRequest
from metadata_log.ids import Uuid, uuid_from_text
from metadata_log.node.disk.durable_files import renamed_os_errors
from metadata_log.records.users import MECHANISMS
from metadata_log.replay.kafka.files import batches_of, decoded
from ops.java_properties import read_properties

LOCK: Final = ".lock"
"""In each directory of a running process of Kafka's."""
META: Final = "meta.properties"
FOUNDING: Final = "bootstrap.checkpoint"
"""What `kafka-storage format` leaves in the directory of the metadata log; a controller reads it while the log is empty."""


class Owner(NamedTuple):
    """What a meta.properties says."""

    node_id: int
    directory_id: Uuid | None
    """None: a release before directories had one."""


def owner_of(folder: Path) -> Owner | None:
    """Return whose directory it is; None: it has no meta.properties.

    Raises:
        InvalidRequest: the file does not say it.
    """
    file = folder / META
    if not file.is_file():
        return None
    with renamed_os_errors(file):
        text = file.read_text(errors="replace")
    properties = read_properties(text)
    try:
        node_id = int(properties["node.id"])
    except (ValueError, KeyError) as error:
        raise InvalidRequest(f"{file}: names no node.id: take a controller's directory") from error
    try:
        named = properties.get("directory.id")
        return Owner(node_id, None if named is None else uuid_from_text(named))
    except ValueError as error:
        raise InvalidRequest(f"{file}: directory.id: {error}") from error


def is_locked(folder: Path) -> bool:
    """Answer whether a process of Kafka's runs in a directory: it holds a lock there, on which Java and Python agree.

    The directory may be one that can only be read.
    """
    file = folder / LOCK
    if not file.is_file():
        return False
    with renamed_os_errors(file), file.open("rb") as opened_file:
        try:
            fcntl.lockf(opened_file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.lockf(opened_file, fcntl.LOCK_UN)
    return False


class Founded(NamedTuple):
    """With what a cluster is founded; `users` are names and mechanisms, without what could be used."""

    features: Mapping[str, int]
    users: tuple[tuple[str, str], ...]


def founding_in(folder: Path) -> Founded | None:
    """Return what a bootstrap.checkpoint says; None: the directory has none.

    Raises:
        DamagedFile: it is damaged.
        WrittenByAnotherVersion: a record has a version that this release does not know.
    """
    file = folder / FOUNDING
    if not file.is_file():
        return None
    features: dict[str, int] = {}
    users: list[tuple[str, str]] = []
    for batch in batches_of(file, is_last=False):
        for _, record in decoded(file, batch):
            fields: Mapping[str, Any] = record.fields or {}
            if record.name == "FeatureLevel":
                features[fields["name"]] = fields["feature_level"]
            elif record.name == "UserScramCredential":
                mechanism = fields["mechanism"]
                users.append((fields["name"], MECHANISMS.get(mechanism, str(mechanism))))
    return Founded(features, tuple(users))
