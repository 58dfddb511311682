"""Pure: settings, users, tokens, quotas and ACLs of a tree of ZooKeeper, as records.

Source: Kafka 3.9's ZkConfigMigrationClient and ZkAclMigrationClient.
Tests: tests/unit/metadata_log/zookeeper/test_access.py.
"""

import base64
import binascii
import math
import random
from collections.abc import Iterator
from typing import Final

from metadata_log.ids import random_uuid
from metadata_log.kafka_settings import PASSWORDS
from metadata_log.records.acls import (
    AccessControlEntryRecord,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from metadata_log.records.configs import (
    BROKER,
    CLUSTER_DEFAULT,
    MASK_KEY_BYTES,
    TOPIC,
    ConfigRecord,
    is_sensitive,
)
from metadata_log.records.quotas import CLIENT_ID, IP, USER, ClientQuotaRecord, QuotaEntity
from metadata_log.records.tokens import DelegationTokenRecord
from metadata_log.records.users import MASK_KEY_BYTES as USER_KEY_BYTES
from metadata_log.records.users import MECHANISMS, UserScramCredentialRecord
from metadata_log.zookeeper.findings import Findings, Noted
from metadata_log.zookeeper.layout import Node
from metadata_log.zookeeper.values import (
    DEFAULT,
    AclEntry,
    AclsNode,
    DamagedNode,
    SettingsNode,
    TokenNode,
    entity_name,
    read,
)

ENCRYPTED: Final = (
    "{name}: encrypted under the brokers' password.encoder.secret; set it again: metaquorum configs set"
)
_MECHANISMS: Final = {name: number for number, name in MECHANISMS.items()}
_SCRAM_PARTS: Final = ("salt", "stored_key", "server_key", "iterations")
_OPERATIONS: Final = {one.name.replace("_", ""): one for one in AclOperation if one > AclOperation.ANY}
_PERMISSIONS: Final = {one.name: one for one in PermissionType if one > PermissionType.ANY}
_RESOURCES: Final = {one.name.replace("_", ""): one for one in ResourceType if one > ResourceType.ANY}


def _settings(data: bytes) -> dict[str, str]:
    """Return a node's settings; one without data has children alone."""
    return read(SettingsNode, data).config if data else {}


def topic_settings(name: str, node: Node, rng: random.Random) -> Iterator[ConfigRecord]:
    """Yield a topic's settings; raises DamagedNode."""
    for key, value in sorted(_settings(node.data).items()):
        yield ConfigRecord(TOPIC, name, key, value, _key(TOPIC, key, rng))


def broker_settings(name: str, node: Node, rng: random.Random, findings: Findings) -> Iterator[ConfigRecord]:
    """Yield the settings of a broker, or of all; passwords are noted, for the brokers alone can read them.

    Raises:
        DamagedNode: it cannot be read, or is of a broker without a number.
    """
    if name != DEFAULT and not (name.isascii() and name.isdigit()):
        raise DamagedNode(f"{name!r} is no id of a broker")
    resource = CLUSTER_DEFAULT if name == DEFAULT else str(int(name))
    for key, value in sorted(_settings(node.data).items()):
        if key.endswith(PASSWORDS):
            findings.left_out.append(Noted(node.path, ENCRYPTED.format(name=key)))
        else:
            yield ConfigRecord(BROKER, resource, key, value, _key(BROKER, key, rng))


def _key(resource_type: int, name: str, rng: random.Random) -> bytes | None:
    return rng.randbytes(MASK_KEY_BYTES) if is_sensitive(resource_type, name) else None


def user(
    name: str, node: Node, rng: random.Random
) -> Iterator[UserScramCredentialRecord | ClientQuotaRecord]:
    """Yield a user's credentials, then the quotas; raises DamagedNode."""
    settings, decoded = _settings(node.data), entity_name(name)
    quotas = {}
    for key, value in sorted(settings.items()):
        if key not in _MECHANISMS:
            quotas[key] = value
        elif decoded is None:
            raise DamagedNode(f"{key} of all users: a password belongs to one")
        else:
            yield _credential(decoded, _MECHANISMS[key], value, rng)
    yield from _quotas((QuotaEntity(USER, decoded),), quotas)


def _credential(name: str, mechanism: int, text: str, rng: random.Random) -> UserScramCredentialRecord:
    parts = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    if sorted(parts) != sorted(_SCRAM_PARTS):
        raise DamagedNode(f"{MECHANISMS[mechanism]} has {', '.join(sorted(parts)) or 'nothing'}")
    try:
        salt, stored, server = (base64.b64decode(parts[each], validate=True) for each in _SCRAM_PARTS[:3])
        iterations = int(parts["iterations"])
    except (binascii.Error, ValueError) as error:
        raise DamagedNode(f"{MECHANISMS[mechanism]} of user {name} is no credential") from error
    if iterations < 1 or not salt or not stored or not server:
        raise DamagedNode(f"{MECHANISMS[mechanism]} of user {name} is no credential")
    return UserScramCredentialRecord(
        name, mechanism, salt, stored, server, iterations, rng.randbytes(USER_KEY_BYTES)
    )


def user_client(user_name: str, client: str, node: Node) -> Iterator[ClientQuotaRecord]:
    """Yield the quotas of a user's client; raises DamagedNode."""
    entity = (QuotaEntity(CLIENT_ID, entity_name(client)), QuotaEntity(USER, entity_name(user_name)))
    yield from _quotas(entity, _settings(node.data))


def client(name: str, node: Node) -> Iterator[ClientQuotaRecord]:
    """Yield the quotas of a client id; raises DamagedNode."""
    yield from _quotas((QuotaEntity(CLIENT_ID, entity_name(name)),), _settings(node.data))


def ip(name: str, node: Node) -> Iterator[ClientQuotaRecord]:
    """Yield the quotas of an address; raises DamagedNode."""
    yield from _quotas((QuotaEntity(IP, entity_name(name)),), _settings(node.data))


def _quotas(entity: tuple[QuotaEntity, ...], settings: dict[str, str]) -> Iterator[ClientQuotaRecord]:
    for key, text in sorted(settings.items()):
        try:
            value = float(text)
        except ValueError as error:
            raise DamagedNode(f"{key}={text} is no number") from error
        if not math.isfinite(value):
            raise DamagedNode(f"{key}={text} is not finite")
        yield ClientQuotaRecord(entity, key, value, remove=False)


def token(node: Node) -> DelegationTokenRecord:
    """Return a delegation token; raises DamagedNode."""
    found = read(TokenNode, node.data)
    return DelegationTokenRecord(
        found.token_id,
        found.owner,
        found.token_requester or found.owner,
        found.renewers,
        found.issue_timestamp,
        found.max_timestamp,
        found.expiry_timestamp,
    )


def acls(
    kind: str, name: str, node: Node, rng: random.Random, *, pattern: PatternType
) -> Iterator[AccessControlEntryRecord]:
    """Yield the ACLs of a resource, or of all whose names begin so; raises DamagedNode."""
    resource = _RESOURCES.get(kind.upper())
    if resource is None:
        raise DamagedNode(f"{kind!r} is no type of resources")
    for entry in read(AclsNode, node.data).acls if node.data else ():
        yield AccessControlEntryRecord(random_uuid(rng), int(resource), name, int(pattern), *_rule(entry))


def _rule(entry: AclEntry) -> tuple[str, str, int, int]:
    operation = _OPERATIONS.get(entry.operation.upper().replace("_", ""))
    permission = _PERMISSIONS.get(entry.permission_type.upper())
    if operation is None or permission is None or ":" not in entry.principal:
        raise DamagedNode(
            f"{entry.permission_type} {entry.operation} for {entry.principal} from {entry.host} is no ACL"
        )
    return entry.principal, entry.host, int(operation), int(permission)
