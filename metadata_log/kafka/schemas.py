"""Pure: Kafka's metadata records: the table of their fields, and the bytes they are written in.

A value in the log is a frame version (1), the record's type, its version, and its fields, the first three as unsigned
varints. All versions are flexible: lengths are varints, and optional fields follow the others under tags. Source: KIP-631,
KIP-482, and the schemas of Apache Kafka 4.3.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

Read: TypeAlias = Callable[[int, bytes, int], tuple[Any, int]]
"""Reads a value in a version of its record from bytes at a place; returns the value and the place behind it."""


CONTROL_TYPES_FROM: Final = 10_000
"""Added to the number of a control record, which Kafka counts apart from those of data."""


class UnknownVersion(ValueError):
    """A record of a known type in a version, or a frame in a form, that this release does not know."""


class Field(NamedTuple):
    name: str
    read: Read
    since: int
    """The first version that has it."""
    tag: int | None
    """None: it stands in its place, and not among the tagged fields."""
    default: Any


class Schema(NamedTuple):
    """The fields of a record, or of a structure inside one."""

    name: str
    versions: int
    """The newest version that is known."""
    plain: tuple[Field, ...]
    tagged: Mapping[int, Field]

    def read(self, version: int, data: bytes, at: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        for field in self.plain:
            if version >= field.since:
                values[field.name], at = field.read(version, data, at)
            else:
                values[field.name] = field.default
        for field in self.tagged.values():
            values[field.name] = field.default
        count, at = uvarint(data, at)
        for _ in range(count):
            tag, at = uvarint(data, at)
            size, at = uvarint(data, at)
            end = _end(data, at, size)
            tagged = self.tagged.get(tag)
            if tagged is not None and version >= tagged.since:
                values[tagged.name], at = tagged.read(version, data, at)
                if at != end:
                    raise ValueError(f"field {tagged.name} ends at byte {at}, not at {end}")
            at = end
        return values, at


class Decoded(NamedTuple):
    """A record as Kafka wrote it; of an unknown type only the number is known, and `fields` is None."""

    type_id: int
    version: int
    name: str
    fields: dict[str, Any] | None
    raw: bytes


def decode(value: bytes) -> Decoded:
    """Return the record in a value of a data batch.

    Raises:
        UnknownVersion: this release does not know the version of this type; a guess could be wrong.
        ValueError: the bytes are no such record.
    """
    frame, at = uvarint(value, 0)
    if frame != 1:
        raise UnknownVersion(f"frame version {frame} of a record is unknown to this release, which knows 1")
    type_id, at = uvarint(value, at)
    version, at = uvarint(value, at)
    schema = RECORDS.get(type_id)
    if schema is None:
        return Decoded(type_id, version, f"Type{type_id}", None, value)
    return Decoded(type_id, version, schema.name, _read_whole(schema, version, value, at), value)


def decode_control(type_id: int, value: bytes) -> Decoded:
    """Return the record in a value of a control batch, whose key says the type; raises as `decode`."""
    schema = CONTROL.get(type_id)
    if schema is None:
        return Decoded(CONTROL_TYPES_FROM + type_id, 0, f"Control{type_id}", None, value)
    (version,) = struct.unpack_from(">h", value)
    return Decoded(
        CONTROL_TYPES_FROM + type_id, version, schema.name, _read_whole(schema, version, value, 2), value
    )


def _read_whole(schema: Schema, version: int, value: bytes, at: int) -> dict[str, Any]:
    if version > schema.versions:
        raise UnknownVersion(
            f"version {version} of {schema.name} is unknown to this release, which knows 0 to {schema.versions}"
        )
    fields, at = schema.read(version, value, at)
    if at != len(value):
        raise ValueError(f"{schema.name} ends at byte {at} of {len(value)}")
    return fields


# --- values


def uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint, seven bits a byte, the lowest first."""
    value = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a varint has more than 64 bits")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a signed varint in zigzag."""
    value, at = uvarint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _end(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise ValueError(f"{size} bytes are announced at byte {at} of {len(data)}")
    return at + size


def _fixed(form: str) -> Read:
    packed = struct.Struct(form)
    unpack, size = packed.unpack_from, packed.size

    def read(_version: int, data: bytes, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + size

    return read


def _uuid(_version: int, data: bytes, at: int) -> tuple[bytes, int]:
    end = _end(data, at, 16)
    return data[at:end], end


def _bytes(_version: int, data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = uvarint(data, at)
    if size == 0:
        return None, at
    end = _end(data, at, size - 1)
    return data[at:end], end


def _string(version: int, data: bytes, at: int) -> tuple[str | None, int]:
    value, at = _bytes(version, data, at)
    return None if value is None else value.decode(), at


def _array(of: Read) -> Read:
    def read(version: int, data: bytes, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, at = uvarint(data, at)
        if count == 0:
            return None, at
        _end(data, at, count - 1)  # each item has a byte at least: no count makes us work for nothing
        items = []
        for _ in range(count - 1):
            item, at = of(version, data, at)
            items.append(item)
        return tuple(items), at

    return read


_READS: Final[Mapping[str, Read]] = {
    "int8": _fixed(">b"),
    "int16": _fixed(">h"),
    "uint16": _fixed(">H"),
    "int32": _fixed(">i"),
    "int64": _fixed(">q"),
    "float64": _fixed(">d"),
    "bool": _fixed(">?"),
    "uuid": _uuid,
    "bytes": _bytes,
    "string": _string,
}


# --- the table

_DEFAULTS: Final[Mapping[str, Any]] = {"()": (), "None": None, "True": True, "False": False}


def _schemas(table: str) -> dict[int, Schema]:
    """Return the schemas of a table: number, name and newest version of a record; below it its fields, indented."""
    lines = [(len(line) - len(line.lstrip()), line.split()) for line in table.splitlines() if line.strip()]
    found: dict[int, Schema] = {}
    for place, (indent, words) in enumerate(lines):
        if indent == 0:
            found[int(words[0])] = _schema(words[1], int(words[2]), lines[place + 1 :], indent=4)
    return found


def _schema(name: str, versions: int, lines: Sequence[tuple[int, list[str]]], *, indent: int) -> Schema:
    fields = []
    for place, (depth, words) in enumerate(lines):
        if depth < indent:
            break
        if depth == indent:
            fields.append(_field(words, versions, lines[place + 1 :], indent=indent + 4))
    return Schema(
        name,
        versions,
        tuple(field for field in fields if field.tag is None),
        {field.tag: field for field in fields if field.tag is not None},
    )


def _field(
    words: Sequence[str], versions: int, below: Sequence[tuple[int, list[str]]], *, indent: int
) -> Field:
    name, kind, *more = words
    told = dict(zip(more[::2], more[1::2], strict=True))
    of = kind.removeprefix("[]")
    read = _READS[of] if of != "struct" else _schema(name, versions, below, indent=indent).read
    default = told.get("else")
    return Field(
        name,
        _array(read) if kind.startswith("[]") else read,
        int(told.get("since", 0)),
        int(told["tag"]) if "tag" in told else None,
        None if default is None else _DEFAULTS[default] if default in _DEFAULTS else int(default),
    )


RECORDS: Final[Mapping[int, Schema]] = _schemas("""
0 RegisterBroker 4
    broker_id int32
    is_migrating_zk_broker bool since 2 else False
    incarnation_id uuid
    broker_epoch int64
    end_points []struct
        name string
        host string
        port uint16
        security_protocol int16
    features []struct
        name string
        min_supported_version int16
        max_supported_version int16
    rack string
    fenced bool
    in_controlled_shutdown bool since 1 else False
    log_dirs []uuid since 3 tag 0 else ()
    cordoned_log_dirs []uuid since 4 tag 1 else None
1 UnregisterBroker 0
    broker_id int32
    broker_epoch int64
2 Topic 0
    name string
    topic_id uuid
3 Partition 2
    partition_id int32
    topic_id uuid
    replicas []int32
    isr []int32
    removing_replicas []int32
    adding_replicas []int32
    leader int32
    leader_recovery_state int8 tag 0 else 0
    leader_epoch int32
    partition_epoch int32
    directories []uuid since 1 else ()
    eligible_leader_replicas []int32 since 2 tag 1 else None
    last_known_elr []int32 since 2 tag 2 else None
4 Config 0
    resource_type int8
    resource_name string
    name string
    value string
5 PartitionChange 2
    partition_id int32
    topic_id uuid
    isr []int32 tag 0 else None
    leader int32 tag 1 else -2
    replicas []int32 tag 2 else None
    removing_replicas []int32 tag 3 else None
    adding_replicas []int32 tag 4 else None
    leader_recovery_state int8 tag 5 else -1
    eligible_leader_replicas []int32 since 2 tag 6 else None
    last_known_elr []int32 since 2 tag 7 else None
    directories []uuid since 1 tag 8 else None
7 FenceBroker 0
    id int32
    epoch int64
8 UnfenceBroker 0
    id int32
    epoch int64
9 RemoveTopic 0
    topic_id uuid
10 DelegationToken 0
    owner string
    requester string
    renewers []string
    issue_timestamp int64
    max_timestamp int64
    expiration_timestamp int64
    token_id string
11 UserScramCredential 0
    name string
    mechanism int8
    salt bytes
    stored_key bytes
    server_key bytes
    iterations int32
12 FeatureLevel 0
    name string
    feature_level int16
14 ClientQuota 0
    entity []struct
        entity_type string
        entity_name string
    key string
    value float64
    remove bool
15 ProducerIds 0
    broker_id int32
    broker_epoch int64
    next_producer_id int64
17 BrokerRegistrationChange 3
    broker_id int32
    broker_epoch int64
    fenced int8 tag 0 else 0
    in_controlled_shutdown int8 since 1 tag 1 else 0
    log_dirs []uuid since 2 tag 2 else ()
    cordoned_log_dirs []uuid since 3 tag 3 else None
18 AccessControlEntry 0
    id uuid
    resource_type int8
    resource_name string
    pattern_type int8
    principal string
    host string
    operation int8
    permission_type int8
19 RemoveAccessControlEntry 0
    id uuid
20 NoOp 0
21 ZkMigrationState 0
    zk_migration_state int8
22 RemoveUserScramCredential 0
    name string
    mechanism int8
23 BeginTransaction 0
    name string tag 0 else None
24 EndTransaction 0
25 AbortTransaction 0
    reason string tag 0 else None
26 RemoveDelegationToken 0
    token_id string
27 RegisterController 0
    controller_id int32
    incarnation_id uuid
    zk_migration_ready bool
    end_points []struct
        name string
        host string
        port uint16
        security_protocol int16
    features []struct
        name string
        min_supported_version int16
        max_supported_version int16
28 ClearElr 0
    topic_name string
29 UnregisterController 0
    controller_id int32
""")
"""By type. A field without a tag and without `since` stands in every version."""

CONTROL: Final[Mapping[int, Schema]] = _schemas("""
2 LeaderChange 1
    leader_id int32
    voters []struct
        voter_id int32
        voter_directory_id uuid since 1
    granting_voters []struct
        voter_id int32
        voter_directory_id uuid since 1
3 SnapshotHeader 0
    last_contained_log_timestamp int64
4 SnapshotFooter 0
5 KRaftVersion 0
    kraft_version int16
6 KRaftVoters 0
    voters []struct
        voter_id int32
        voter_directory_id uuid
        endpoints []struct
            name string
            host string
            port uint16
        kraft_version_feature struct
            min_supported_version int16
            max_supported_version int16
""")
"""The records of control batches, which the quorum itself writes, by type. Their first field is their version."""

SECRET_FIELDS: Final = frozenset({"salt", "stored_key", "server_key"})
"""Fields whose values are shown to nobody."""
