"""Pure: what the data of a node says, by its shape; the earliest designs are read as their documents write them.

Tests: tests/unit/metadata_log/zookeeper/test_values.py.
"""

import re
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote_plus

import msgspec

T = TypeVar("T")

DEFAULT: Final = "<default>"
"""The name of a node for all entities without one of their own."""
_WORD: Final = re.compile(r"([{,]\s*)([A-Za-z_]+)\s*:")
_SET: Final = re.compile(r"\{([\s\d,]*)\}")
_LIST: Final = re.compile(r"\s*[\[{(]?\s*((?:\d+\s*(?:,\s*\d+\s*)*)?)[\]})]?\s*")


class DamagedNode(ValueError):
    """The data of a node is not what a Kafka writes there."""


class TopicNode(msgspec.Struct, frozen=True):
    """Versions 1 to 3: 2 added the reassignments, 3 the id."""

    version: int
    partitions: dict[int, tuple[int, ...]]
    topic_id: str | None = None
    adding_replicas: dict[int, tuple[int, ...]] = {}
    removing_replicas: dict[int, tuple[int, ...]] = {}


class StateNode(msgspec.Struct, frozen=True):
    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    version: int = 1
    controller_epoch: int = 0
    leader_recovery_state: int = 0


class OldStateNode(msgspec.Struct, frozen=True):
    """What the second design calls leaderAndISR; its documents spell the epoch as here, or leave it out."""

    leader: int
    isr: tuple[int, ...] = msgspec.field(name="ISR")
    leader_epoch: int = msgspec.field(name="leader_epoc", default=0)


class ReassignedPartition(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    replicas: tuple[int, ...]


class ReassignmentsNode(msgspec.Struct, frozen=True):
    partitions: tuple[ReassignedPartition, ...]
    version: int = 1


class SettingsNode(msgspec.Struct, frozen=True):
    config: dict[str, str]
    version: int = 1


class AclEntry(msgspec.Struct, frozen=True, rename="camel"):
    principal: str
    permission_type: str
    operation: str
    host: str = "*"


class AclsNode(msgspec.Struct, frozen=True):
    acls: tuple[AclEntry, ...]
    version: int = 1


class ProducerIdsNode(msgspec.Struct, frozen=True):
    """A block of ids, both ends inclusive; the numbers are text."""

    broker: int
    block_start: str
    block_end: str
    version: int = 1


class TokenNode(msgspec.Struct, frozen=True, rename="camel"):
    """A delegation token, without its HMAC; times are Unix ms. Version 3 has the requester."""

    owner: str
    issue_timestamp: int
    max_timestamp: int
    expiry_timestamp: int
    token_id: str
    renewers: tuple[str, ...] = ()
    token_requester: str | None = None
    version: int = 1


class FeaturesNode(msgspec.Struct, frozen=True):
    features: dict[str, Any]
    version: int = 1
    status: int = 0


class ClusterIdNode(msgspec.Struct, frozen=True):
    id: str
    version: str = "1"


class ControllerNode(msgspec.Struct, frozen=True, rename={"kraft_epoch": "kraftControllerEpoch"}):
    """Version 2 has the epoch of the KRaft controller that holds the node, -1 where a broker does."""

    brokerid: int
    version: int = 1
    kraft_epoch: int = -1


class MigrationNode(msgspec.Struct, frozen=True):
    kraft_controller_id: int = -1
    kraft_controller_epoch: int = -1
    version: int = 0


class BrokerNode(msgspec.Struct, frozen=True):
    """Endpoints since version 2; the node of the first design is `host:port` without any JSON."""

    host: str | None = None
    port: int = -1
    version: int = 1
    endpoints: tuple[str, ...] = ()
    rack: str | None = None


_VERSIONS: Final[dict[type, int]] = {
    TopicNode: 3,
    StateNode: 1,
    ControllerNode: 2,
    BrokerNode: 5,
    FeaturesNode: 2,
    TokenNode: 3,
}
"""The newest version of each shape in 3.9, where it is not 1."""


def read(shape: type[T], data: bytes) -> T:
    """Return the data of a node.

    Raises:
        DamagedNode: it is no JSON of this shape, or of a version that 3.9 does not know.
    """
    if not data:
        raise DamagedNode("it is empty")
    try:
        value = msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedNode(str(error)) from error
    newest, version = _VERSIONS.get(shape, 1), int(getattr(value, "version", 1))
    if version > newest:
        raise DamagedNode(f"it has version {version}, and Kafka 3.9 knows versions up to {newest}")
    return value


def read_topic(data: bytes) -> TopicNode:
    """Return a topic; the third design's documents write partitions and replicas without anything around them.

    Raises:
        DamagedNode: as `read`.
    """
    try:
        bare = msgspec.json.decode(_as_json(data), type=dict[int, tuple[int, ...]])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return read(TopicNode, data)
    return TopicNode(version=1, partitions=bare)


def read_state(data: bytes) -> StateNode:
    """Return leader and ISR of a partition, as 3.9 or as the second design has them.

    Raises:
        DamagedNode: as `read`.
    """
    try:
        old = msgspec.json.decode(_as_json(data), type=OldStateNode)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return read(StateNode, data)
    return StateNode(leader=old.leader, isr=old.isr, leader_epoch=old.leader_epoch)


def _as_json(data: bytes) -> bytes:
    """Return what the documents write as JSON: their names have no quotes, and their sets are in braces."""
    text = _WORD.sub(r'\1"\2":', data.decode())
    return _SET.sub(r"[\1]", text).encode()


def read_numbers(data: bytes) -> tuple[int, ...]:
    """Return a list of broker ids, with brackets or without.

    Raises:
        DamagedNode: it is none.
    """
    found = _LIST.fullmatch(data.decode(errors="replace"))
    if found is None:
        raise DamagedNode("it is no list of broker ids")
    return tuple(int(number) for number in found[1].split(",") if number.strip())


def read_number(data: bytes) -> int:
    """Return a number.

    Raises:
        DamagedNode: it is none.
    """
    text = data.decode(errors="replace").strip()
    if not text.isascii() or not text.lstrip("-").isdigit():
        raise DamagedNode("it is no number")
    return int(text)


class BrokerAddress(NamedTuple):
    """A broker that has a node, and its endpoints as text."""

    broker_id: int
    endpoints: tuple[str, ...]


def read_broker(broker_id: int, data: bytes) -> BrokerAddress:
    """Return a broker; the first design has `host:port`.

    Raises:
        DamagedNode: as `read`.
    """
    if re.fullmatch(rb"[\w.\-\[\]:]+:\d+", data):
        return BrokerAddress(broker_id, (data.decode(),))
    node = read(BrokerNode, data)
    return BrokerAddress(broker_id, node.endpoints or (f"{node.host}:{node.port}",))


def entity_name(text: str) -> str | None:
    """Return the name of a user or client from that of its node; None: the node is for all others.

    Source: Kafka's Sanitizer: `URLEncoder`, with %20 for a blank and %2A for an asterisk.

    Raises:
        DamagedNode: an escape is not UTF-8.
    """
    if text == DEFAULT:
        return None
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError as error:
        raise DamagedNode(f"its name {text!r} is not encoded as Kafka does") from error
