"""Pure: topics, settings, ACLs and quotas that a file declares, and how a cluster differs from them.

What the file does not name is left alone: topics, settings, numbers of partitions; of ACLs and quotas, which
`declared_access.py` compares, unless their deletion is asked for. Tests: tests/unit/ops/verbs/test_declared.py.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.kafka_settings import PASSWORDS, own_name
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, TOPIC, is_sensitive
from metadata_log.wire.shapes import convert
from ops.admin.declared_access import (
    AccessDrift,
    DeclaredAcl,
    DeclaredQuotas,
    Difference,
    access_drift,
    acl_rows,
    quota_rows,
)

Value: TypeAlias = str | int | float | bool
HIDDEN: Final = "(not shown)"
"""Replaces both values of a setting that Kafka does not know, since such a value may be a secret."""


class DeclaredTopic(msgspec.Struct, forbid_unknown_fields=True):
    """None: as the cluster's defaults are at the creation, and left alone later."""

    partitions: int | None = None
    replication_factor: int | None = None
    configs: dict[str, Value] = {}


class Declared(msgspec.Struct, forbid_unknown_fields=True):
    """Topics by name, the cluster's dynamic defaults, the settings of brokers by id, ACLs and quotas.

    None of a part: the file says nothing of it.
    """

    topics: dict[str, DeclaredTopic] = {}
    cluster: dict[str, Value] = {}
    brokers: dict[str, dict[str, Value]] = {}
    acls: list[DeclaredAcl] | None = None
    quotas: list[DeclaredQuotas] | None = None


@dataclass(slots=True)
class Drift:
    """How a cluster differs, and the items of the requests that make it as declared."""

    differences: list[Difference] = field(default_factory=list)
    creations: list[dict[str, Any]] = field(default_factory=list)
    growths: list[dict[str, Any]] = field(default_factory=list)
    alterations: list[dict[str, Any]] = field(default_factory=list)
    unable: list[Difference] = field(default_factory=list)
    """Differences that no request here removes."""
    access: AccessDrift = field(default_factory=AccessDrift)
    """Of ACLs and quotas; its differences are among the others."""


def read_declared(value: Any) -> Declared:
    """Return what plain values declare.

    Raises:
        ValueError: they have another shape, or declare a password; the text says where.
    """
    # One by one first: of a wrong value in a map, the check of the whole says the field, and not whose it is.
    for part, kind in (("topics", DeclaredTopic), ("brokers", dict[str, Value])):
        entries = value.get(part) if isinstance(value, dict) else None
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            convert(entry, kind, f"{part}.{name}")
    declared: Declared = convert(value, Declared, "declared")
    for broker_id in declared.brokers:
        if not (broker_id.isascii() and broker_id.isdigit()):
            raise ValueError(f"brokers: {broker_id!r} is no broker id")
    for resource, _, settings in _resources(declared):
        for name in settings:
            if own_name(name) in PASSWORDS:
                raise ValueError(f"{resource}: {name} is a secret: `configs set {name}=@FILE` sets it")
    acl_rows(declared.acls or ())
    quota_rows(declared.quotas or ())
    return declared


def drift(declared: Declared, image: MetadataImage, *, deletes: bool = False) -> Drift:
    """Return how the state of a cluster differs from what is declared.

    With `deletes` ACLs and quotas that are not declared are differences, too.
    """
    found = Drift(access=access_drift(declared.acls, declared.quotas, image, deletes=deletes))
    for name, wanted in sorted(declared.topics.items()):
        topic = image.topics.named(name)
        if topic is None:
            _create(found, name, wanted)
            continue
        count, factor = len(topic.partitions), len(_lasting(topic.partitions[0]))
        if wanted.partitions is not None and wanted.partitions != count:
            row = Difference(f"topic {name}", "partitions", str(wanted.partitions), str(count))
            found.differences.append(row)
            if wanted.partitions > count:
                growth = {"name": name, "partitions": wanted.partitions, "assignment": None}
                found.growths.append(growth)
            else:
                found.unable.append(row)
        if wanted.replication_factor is not None and wanted.replication_factor != factor:
            row = Difference(
                f"topic {name}", "replication factor", str(wanted.replication_factor), str(factor)
            )
            found.differences.append(row)
            found.unable.append(row)
    for resource, (kind, name), settings in _resources(declared):
        if kind == TOPIC and image.topics.named(name) is None:
            continue
        now: Mapping[str, str] = image.configs.get((kind, name), {})
        differing = {key: text for key, text in settings.items() if now.get(key) != text}
        for key in sorted(differing):
            row = Difference(resource, key, differing[key], now.get(key))
            if is_sensitive(kind, key):
                row = row._replace(declared=HIDDEN, now=None if row.now is None else HIDDEN)
            found.differences.append(row)
        if differing:
            found.alterations.append({**_address(kind, name), "set": differing, "unset": []})
    found.differences += found.access.differences
    return found


def _create(found: Drift, name: str, wanted: DeclaredTopic) -> None:
    found.differences.append(Difference(f"topic {name}", "the topic", "is there", None))
    found.creations.append(
        {
            "name": name,
            "partitions": -1 if wanted.partitions is None else wanted.partitions,
            "replication_factor": -1 if wanted.replication_factor is None else wanted.replication_factor,
            "configs": {key: _text(value) for key, value in wanted.configs.items()},
        }
    )


def _lasting(partition: Any) -> list[BrokerId]:
    """Return the replicas that a partition has once the reassignment under way is at its end."""
    return [one for one in partition.replicas if one not in partition.removing_replicas]


def _resources(declared: Declared) -> Iterator[tuple[str, tuple[int, str], dict[str, str]]]:
    """Yield each resource with settings: as it is called, its type and name, and the settings."""
    rows: list[tuple[str, tuple[int, str], Mapping[str, Value]]] = [
        (f"topic {name}", (TOPIC, name), topic.configs) for name, topic in sorted(declared.topics.items())
    ]
    rows.append(("cluster", (BROKER, CLUSTER_DEFAULT), declared.cluster))
    rows += [
        (f"broker {one}", (BROKER, str(int(one))), settings)
        for one, settings in sorted(declared.brokers.items())
    ]
    for resource, address, settings in rows:
        yield resource, address, {key: _text(value) for key, value in settings.items()}


def _address(kind: int, name: str) -> dict[str, Any]:
    if kind == TOPIC:
        return {"topic": name}
    return {"cluster": True} if name == CLUSTER_DEFAULT else {"broker": int(name)}


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
