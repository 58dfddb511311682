"""Pure: the two messages of a handshake between controllers, and the rules by which a node refuses another.

    hello                        {type "hello", version 2, cluster_id str, node_id int, directory_id bin,
                                  http str, raft str, founding bin, checksums bool (absent: false),
                                  redials bool (absent: false)}
    probe                        {type "probe"} instead of a hello: the acceptor answers {type "raft"}, and closes
    verdict                      {type "welcome"} or {type "refused", error str, message str}

`http` is the node's URL without trailing slash (at most 2,000 bytes), `raft` the "host:port" where others reach it.

If both hellos say `checksums`, each message after the handshake has its CRC-32C before it (`link.py`). Older releases do
not say it. A node that says `redials` dials the other end when a link asks for that (`renewal.py`).

`founding` is `founding_sha256` of the voters in the node's settings, while no voters are set in its log, else empty.
Two nodes that would found different quorums refuse each other. Once voters are set, only the log counts.
Tests: tests/unit/quorum/raft/test_transport.py.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import msgpack
from msgspec import Meta

from metadata_log.ids import NodeId, Uuid, uuid_text
from metadata_log.limits import CONTROLLERS_MAX
from metadata_log.node.addresses import ADDRESS_BYTES_MAX, URL_BYTES_MAX, is_address, is_node_url
from metadata_log.wire.shapes import INT64_MAX, RawUuid, convert
from quorum.raft.raft_log import Member, Voters
from quorum.raft.voters import to_rows

INCONSISTENT_CLUSTER_ID: Final = "INCONSISTENT_CLUSTER_ID"
INCONSISTENT_VOTER_SET: Final = "INCONSISTENT_VOTER_SET"
VOTER_DIRECTORY_CHANGED: Final = "VOTER_DIRECTORY_CHANGED"
TOO_MANY_OBSERVERS: Final = "TOO_MANY_OBSERVERS"
REFUSALS: Final = frozenset(
    {INCONSISTENT_CLUSTER_ID, INCONSISTENT_VOTER_SET, VOTER_DIRECTORY_CHANGED, TOO_MANY_OBSERVERS}
)

PROBE: Final = {"type": "probe"}
PROBED: Final = {"type": "raft"}
"""For a command that was given this port instead of that of HTTP: it says nothing of the node."""

_VERSION: Final = 2
_REFUSAL_LENGTH_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Hello:
    """A node's identity and addresses; the fields are those of the message."""

    cluster_id: Annotated[str, Meta(min_length=22, max_length=22)]
    node_id: Annotated[NodeId, Meta(ge=0, le=INT64_MAX)]
    directory_id: RawUuid
    http: str
    raft: str
    founding: bytes
    checksums: bool = True
    redials: bool = True

    @property
    def member(self) -> Member:
        return Member(self.node_id, self.directory_id)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node refuses a link to another; `error` is one of REFUSALS."""

    error: str
    message: str


def founding_sha256(voters: Voters) -> bytes:
    """Return a digest that is equal on two nodes if they would found the same quorum.

    It covers ids and directories, not addresses: one node may have different addresses for different peers.
    """
    return hashlib.sha256(msgpack.packb(to_rows(voters))).digest()


def objection_to(
    hello: Hello, *, own: Hello, dialled: NodeId | None, voters: Voters, linked: Mapping[NodeId, Uuid]
) -> Refusal | None:
    """Return why this node refuses a link to the node that sent `hello`; None if it admits it.

    `dialled` is the node whose address was dialled, if this node dialled; `linked` maps each linked peer to its directory.
    """
    peer = hello.node_id
    if hello.cluster_id != own.cluster_id:
        what = f"node {own.node_id} belongs to cluster {own.cluster_id}, node {peer} to {hello.cluster_id}"
        return Refusal(INCONSISTENT_CLUSTER_ID, what)
    if dialled is not None and peer != dialled:
        return Refusal(INCONSISTENT_VOTER_SET, f"the address of node {dialled} is answered by node {peer}")
    if hello.founding and own.founding and hello.founding != own.founding:
        what = f"nodes {own.node_id} and {peer} have different voters in their settings"
        return Refusal(INCONSISTENT_VOTER_SET, what)
    if peer == own.node_id:
        what = (
            f"node {peer} meets itself, or a copy of its directory"
            if hello.directory_id == own.directory_id
            else f"two processes are node {peer}: one has directory {uuid_text(own.directory_id)}, the other "
            f"{uuid_text(hello.directory_id)}. Stop one of them"
        )
        return Refusal(VOTER_DIRECTORY_CHANGED, what)
    if voters.get(peer) == hello.directory_id:
        return None
    if peer in linked and voters.get(peer) == linked[peer]:
        what = (
            f"voter {peer} comes with directory {uuid_text(hello.directory_id)}, and still runs under its old one, "
            f"{uuid_text(linked[peer])}: two processes are node {peer}. Stop one of them"
        )
        return Refusal(VOTER_DIRECTORY_CHANGED, what)
    observers = sum(node_id != peer and voters.get(node_id) != linked[node_id] for node_id in linked)
    if observers >= CONTROLLERS_MAX:
        what = f"{observers} controllers that are no voters are linked to node {own.node_id} already"
        return Refusal(TOO_MANY_OBSERVERS, what)
    return None


def hello_message(hello: Hello) -> dict[str, Any]:
    return {
        "type": "hello",
        "version": _VERSION,
        "cluster_id": hello.cluster_id,
        "node_id": hello.node_id,
        "directory_id": hello.directory_id,
        "http": hello.http,
        "raft": hello.raft,
        "founding": hello.founding,
        "checksums": hello.checksums,
        "redials": hello.redials,
    }


def hello_from(message: object) -> Hello:
    """Return the other node's hello; unknown fields are ignored, so that a later release can add some.

    Raises:
        ValueError: it is no hello of version 2.
    """
    match message:
        case {"type": "hello", "version": 2, **fields}:
            hello: Hello = convert({"checksums": False, "redials": False, **fields}, Hello, "hello")
        case _:
            raise ValueError("no hello of version 2")
    if len(hello.http.encode()) > URL_BYTES_MAX or not is_node_url(hello.http):
        raise ValueError("hello.http: no URL of a node")
    if len(hello.raft.encode()) > ADDRESS_BYTES_MAX or not is_address(hello.raft):
        raise ValueError("hello.raft: no host:port")
    if len(hello.founding) not in (0, hashlib.sha256().digest_size):
        raise ValueError("hello.founding: no SHA-256")
    return hello


def verdict_message(objection: Refusal | None) -> dict[str, Any]:
    if objection is None:
        return {"type": "welcome"}
    return {"type": "refused", "error": objection.error, "message": objection.message}


def refusal_from(message: object) -> Refusal | None:
    """Return the other node's verdict: None if it admits this one.

    Raises:
        ValueError: it is no verdict.
    """
    match message:
        case {"type": "welcome"}:
            return None
        case {"type": "refused"}:
            refusal: Refusal = convert(message, Refusal, "refused")
        case _:
            raise ValueError("no verdict on our hello")
    if refusal.error not in REFUSALS:
        raise ValueError("refused.error: no reason of this release")
    return replace(refusal, message=refusal.message[:_REFUSAL_LENGTH_MAX])
