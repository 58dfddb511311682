"""Edge: what `storage info` shows of a directory beside its owner: with what its cluster was to be founded, and its process.

Of a user that the founding has, only the name and the mechanism are shown. Tests: tests/unit/ops/verbs/test_storage_info.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metadata_log.errors import ForeignDirectory
from metadata_log.ids import uuid_text
from metadata_log.metadata_versions import name_of
from metadata_log.records.features import KRAFT_VERSION, METADATA_VERSION
from metadata_log.records.users import MECHANISMS
from ops.command_line import render
from ops.processes import running_process
from quorum.node.bootstrap import read_bootstrap

_OF_PROCESS = ("pid", "http", "raft", "started_at_ms", "log")


def of_ours(data_dir: Path) -> dict[str, Any]:
    """Return what is shown of a directory of ours beside its owner.

    Raises:
        DamagedFile, WrittenByAnotherVersion: as `read_bootstrap`.
    """
    process = running_process(data_dir)
    founding = read_bootstrap(data_dir)
    founded: dict[str, Any] | None = None
    if founding is not None:
        levels = {METADATA_VERSION: founding.metadata_version, KRAFT_VERSION: founding.kraft_version}
        users = [(each.name, MECHANISMS[each.mechanism]) for each in founding.credentials]
        founded = _founded(levels | dict(founding.levels), users)
    return (
        {"founded_with": founded}
        | {"running": process is not None}
        | {name: None if process is None else process.get(name) for name in _OF_PROCESS}
    )


def is_kafkas(directory: Path) -> bool:
    """Answer whether a directory is one of a node of Kafka's."""
    from ops.takeover.kafka_directory import META

    return (directory / META).is_file() and not (directory / "meta.json").exists()


def of_kafkas(directory: Path) -> dict[str, Any]:
    """Return what is shown of a directory of Kafka's.

    Raises:
        ForeignDirectory: its meta.properties names no cluster.
        InvalidRequest, DamagedFile, WrittenByAnotherVersion: as `owner_of` and `founding_in`.
    """
    from metadata_log.replay.kafka.files import UNKNOWN_CLUSTER, cluster_id_of
    from ops.takeover.kafka_directory import META, founding_in, is_locked, owner_of

    owner, cluster_id, founding = owner_of(directory), cluster_id_of(directory), founding_in(directory)
    assert owner is not None, "the caller has seen its file"
    if cluster_id == UNKNOWN_CLUSTER:
        raise ForeignDirectory(f"{directory / META}: names no cluster.id: format the directory first")
    return {
        "role": "kafka",
        "id": owner.node_id,
        "cluster_id": cluster_id,
        "directory_id": None if owner.directory_id is None else uuid_text(owner.directory_id),
        "data_dir": str(directory),
        "founded_with": None if founding is None else _founded(founding.features, founding.users),
        "running": is_locked(directory),
    }


def _founded(levels: Mapping[str, int], users: Sequence[tuple[str, str]]) -> dict[str, Any]:
    return {
        "release": name_of(levels.get(METADATA_VERSION, 0)),
        "features": dict(sorted(levels.items())),
        "users": [{"name": name, "mechanism": mechanism} for name, mechanism in users],
    }


def table(described: Mapping[str, Any]) -> str:
    """Return the lines for people: what a cluster is founded with has three."""
    lines = []
    for key, value in described.items():
        if key == "founded_with" and value is not None:
            users = [f"{each['name']} ({each['mechanism']})" for each in value["users"]]
            lines += [
                ("founded_with", render.plain(value["release"])),
                ("features", render.plain(value["features"])),
                ("users", render.plain(users)),
            ]
        else:
            lines.append((key, render.plain(value)))
    return render.fields(lines)
