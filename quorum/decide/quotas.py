"""Pure: what quotas of clients may be, and what a change of them is written as.

Source: KIP-546, KIP-612, KIP-599; Kafka's ClientQuotaControlManager and QuotaConfig.
"""

import ipaddress
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_log.errors import InvalidRequest, Rejected
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.quotas import entity_of, in_order
from metadata_log.node.identity.rights import Right
from metadata_log.records.acls import AclOperation
from metadata_log.records.quotas import CLIENT_ID, IP, USER, ClientQuotaRecord, QuotaEntity
from metadata_log.wire.shapes import INT32_MAX, INT64_MAX
from quorum.decide.access import Access
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision
from quorum.decide.items import ManyItems, check_fits, why
from quorum.decide.levels import check_level
from quorum.decide.mutation_quota import CONTROLLER_MUTATION_RATE

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
_ANY_NUMBER: Final = None
_INT64_MAX: Final = float(INT64_MAX)
"""As Kafka compares with it: as a 64-bit float, 2^63."""
CLIENT_KEYS: Final[Mapping[str, float | None]] = {
    PRODUCER_BYTE_RATE: _INT64_MAX,
    CONSUMER_BYTE_RATE: _INT64_MAX,
    REQUEST_PERCENTAGE: _ANY_NUMBER,
    CONTROLLER_MUTATION_RATE: _ANY_NUMBER,
}
"""The keys of quotas of users and client ids, with the largest value of those that are whole numbers."""
IP_KEYS: Final[Mapping[str, float | None]] = {CONNECTION_CREATION_RATE: INT32_MAX}
_FRACTION_MAX: Final = 1e-6
"""A number that differs less from a whole one is taken for whole, as by Kafka."""


class QuotaChange(NamedTuple):
    """A key and its new value; None removes the quota."""

    key: str
    value: float | None


class EntityChange(NamedTuple):
    entity: tuple[QuotaEntity, ...]
    changes: tuple[QuotaChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotas(ManyItems):
    """Change quotas of entities in one batch; each entity gets a result of its own. Source: KIP-546."""

    entries: tuple[EntityChange, ...]
    validate_only: bool


class EntityAltered(NamedTuple):
    """What became of one entity: the error's name and text, None where its quotas are as asked."""

    entity: tuple[QuotaEntity, ...]
    error: str | None = None
    message: str | None = None


class QuotasAltered(NamedTuple):
    """What became of each entity, in the order of the request; of one given twice, once."""

    results: tuple[EntityAltered, ...]


def alter(context: DecideContext, command: AlterClientQuotas) -> Decision:
    """Decide changes of quotas; an entity that is refused does not change what becomes of the others.

    A value that is there already gives no record. An entity that is given again is refused with the one result that it
    has, and its first change counts; so it is with Kafka.

    Raises:
        UnsupportedVersion: some nodes of the cluster may not know records of quotas.
        PolicyViolation: the changes need more records than one batch holds.
    """
    check_level(context.image, ClientQuotaRecord, "quotas of clients")
    results: dict[tuple[QuotaEntity, ...], EntityAltered] = {}
    records: list[ClientQuotaRecord] = []
    for entry in command.entries:
        entity = in_order(entry.entity)
        try:
            if entity in results:
                raise InvalidRequest("the entity is given twice")
            records += _changed(context.image, entity, entry)
        except Rejected as refusal:
            results[entity] = EntityAltered(entity, *why(refusal))
        else:
            results[entity] = EntityAltered(entity)
    check_fits(len(records), "quotas")
    return Decision(
        records=() if command.validate_only else records, outcome=QuotasAltered(tuple(results.values()))
    )


def _changed(
    image: MetadataImage, entity: tuple[QuotaEntity, ...], entry: EntityChange
) -> list[ClientQuotaRecord]:
    """Return the records of one entity's changes; raises InvalidRequest."""
    times = Counter(change.key for change in entry.changes)
    if twice := sorted(key for key, count in times.items() if count > 1):
        raise InvalidRequest(f"a quota is given twice: {', '.join(twice)}")
    keys = _keys_of(entry.entity)
    before: Mapping[str, float] = image.quotas.get(entity_of(entity)) or {}
    records = []
    for key, value in entry.changes:
        if value is None:
            if key in before:
                records.append(ClientQuotaRecord(entity, key, 0.0, remove=True))
            continue
        _check_value(keys, key, value)
        if before.get(key) != value:
            records.append(ClientQuotaRecord(entity, key, float(value), remove=False))
    return records


def _keys_of(entity: Sequence[QuotaEntity]) -> Mapping[str, float | None]:
    """Return the keys that an entity's quotas may have; raises InvalidRequest."""
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(f"{kind!r} has no quotas: there are {USER}, {CLIENT_ID} and {IP}")
        if name == "":
            raise InvalidRequest(f"the name of a {kind} is empty; a name of null is the default")
    kinds = {kind for kind, _ in entity}
    if not kinds:
        raise InvalidRequest(f"a quota is of a {USER}, a {CLIENT_ID}, both of them, or an {IP}: name one")
    if IP not in kinds:
        return CLIENT_KEYS
    if kinds != {IP}:
        raise InvalidRequest(f"an {IP} has quotas alone, and not together with a {USER} or a {CLIENT_ID}")
    for _, name in entity:
        if name is not None and not _is_address(name):
            raise InvalidRequest(f"{name[:100]!r} is no numeric IP address")
    return IP_KEYS


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(keys: Mapping[str, float | None], key: str, value: float) -> None:
    if key not in keys:
        raise InvalidRequest(f"{key[:100]!r} is no quota of this entity: there are {', '.join(sorted(keys))}")
    if not (value > 0 and math.isfinite(value)):
        raise InvalidRequest(f"{key} must be a number greater than 0, not {value}")
    largest = keys[key]
    if largest is None:
        return
    if value > largest:
        raise InvalidRequest(f"{key} is at most {int(largest)}, not {value}")
    if math.fmod(value, 1.0) > _FRACTION_MAX:
        raise InvalidRequest(f"{key} must be a whole number, not {value}")


_ALTERS: Final = Access(Right.CLUSTER, AclOperation.ALTER_CONFIGS)
DECISIONS: Final = (Decides(AlterClientQuotas, "AlterClientQuotas", QuotasAltered, _ALTERS, alter),)
OTHER_OPERATIONS: Final = {"DescribeClientQuotas": Access(Right.READ, AclOperation.DESCRIBE_CONFIGS)}
