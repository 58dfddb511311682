"""Edge: the file in which `storage format` says what a controller founds a cluster with: bootstrap.json.

It counts while the log is empty; a cluster that is founded needs it no more. It has secrets: only its owner may read it.
Kafka's counterpart is bootstrap.checkpoint. Tests: tests/unit/quorum/node/test_bootstrap.py.
"""

import base64
from pathlib import Path
from typing import Annotated

from msgspec import Meta, structs

from metadata_log.errors import DamagedFile, UnknownFormat, another_version
from metadata_log.node.disk.data_directory import BOOTSTRAP
from metadata_log.node.disk.durable_files import checked_json, from_checked_json, renamed_os_errors
from metadata_log.records.users import UserScramCredentialRecord
from metadata_log.wire.shapes import INT32_MAX, Shape
from quorum.decide.founding import Founding

_Level = Annotated[int, Meta(ge=0, le=INT32_MAX)]


class _User(Shape, frozen=True):
    """A credential; bytes in base64."""

    name: str
    mechanism: int
    iterations: int
    salt: str
    stored_key: str
    server_key: str
    mask_key: str


class _File(Shape, frozen=True):
    metadata_version: _Level
    kraft_version: _Level
    features: dict[str, _Level]
    users: list[_User]


def content_of(founding: Founding) -> bytes:
    """Return the content of the file."""
    users = [
        _User(
            name=each.name,
            mechanism=each.mechanism,
            iterations=each.iterations,
            salt=_text(each.salt),
            stored_key=_text(each.stored_key),
            server_key=_text(each.server_key),
            mask_key=_text(each.mask_key or b""),
        )
        for each in founding.credentials
    ]
    fields = _File(
        metadata_version=founding.metadata_version,
        kraft_version=founding.kraft_version,
        features=dict(founding.levels),
        users=users,
    )
    return checked_json(structs.asdict(fields) | {"users": [structs.asdict(each) for each in users]})


def read_bootstrap(directory: Path) -> Founding | None:
    """Return what the file of a data directory says; None: there is none, and the settings say it.

    Raises:
        DamagedFile: it is not what was written.
        WrittenByAnotherVersion: its format is unknown to this release.
        DiskFailed: it cannot be read.
    """
    file = directory / BOOTSTRAP
    with renamed_os_errors(file):
        if not file.exists():
            return None
        content = file.read_bytes()
    try:
        found = from_checked_json(content, _File)
        return Founding(
            found.metadata_version,
            found.kraft_version,
            tuple(sorted(found.features.items())),
            tuple(map(_credential, found.users)),
        )
    except UnknownFormat as error:
        raise another_version(file, error) from error
    except ValueError as error:
        raise DamagedFile(
            f"{file}: does not say with what a cluster is founded ({error}): format again, or remove it where the cluster "
            "is founded already",
            path=str(file),
        ) from error


def _credential(user: _User) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        user.name,
        user.mechanism,
        _bytes(user.salt),
        _bytes(user.stored_key),
        _bytes(user.server_key),
        user.iterations,
        _bytes(user.mask_key),
    )


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
