"""Edge: the principal of a peer follows from its certificate and its credential alone, whichever door asks."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from metadata_log.errors import AuthenticationFailed
from metadata_log.node.identity.access import Access, Peer
from metadata_log.node.identity.rights import ANYBODY, NOBODY, ROLES, Right

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
ALICE = "the-token-of-alice-0123456789"
ENDED = "Nov 28 10:00:00 2026 GMT"


def certified(name: str, not_after: str = "Nov 28 10:00:00 2036 GMT") -> Mapping[str, Any]:
    return {"subjectAltName": (("URI", f"metaquorum://{CLUSTER}/{name}"),), "notAfter": not_after}


def access(directory: Path) -> Access:
    file = directory / "principals.toml"
    digest = hashlib.sha256(ALICE.encode()).hexdigest()
    rows = [("User:alice", ["admin"], digest), ("User:bob", ["reader"], None)]
    file.write_text(
        "".join(
            f'[[principals]]\nname = "{name}"\nroles = {json.dumps(roles)}\n'
            + ("" if sha256 is None else f'token_sha256 = "{sha256}"\n')
            for name, roles, sha256 in rows
        )
    )
    return Access(file, cluster_id=CLUSTER, unix_ms=lambda: 1_800_000_000_000)


@pytest.mark.parametrize(
    ("peer", "name", "rights"),
    [
        (Peer(), NOBODY.name, frozenset()),
        (Peer(address="192.0.2.1"), NOBODY.name, frozenset()),
        (Peer(certified("user/bob")), "User:bob", ROLES["reader"]),
        (Peer(certified("user/carol")), "User:carol", frozenset()),
        (Peer(certified("broker/11")), "Broker:11", ROLES["broker"]),
        (Peer(None, ALICE), "User:alice", ROLES["admin"]),
        (Peer(certified("broker/11"), ALICE), "User:alice", ROLES["admin"]),
        (Peer(certified("broker/11", ENDED), ALICE), "User:alice", ROLES["admin"]),
    ],
)
def test_a_credential_counts_before_a_certificate(
    tmp_path: Path, peer: Peer, name: str, rights: frozenset[Right]
) -> None:
    found = access(tmp_path).principal(peer)
    assert (found.name, found.rights) == (name, rights)


@pytest.mark.parametrize(
    ("peer", "why"),
    [
        (Peer(None, "another-token-0123456789"), "the token is none of this cluster's"),
        (Peer(None, ""), "the token is none of this cluster's"),
        (Peer(certified("broker/11"), ""), "the token is none of this cluster's"),
        (Peer(certified("broker/11", ENDED)), f"valid until {ENDED}: connect again"),
    ],
)
def test_what_proves_nothing_is_refused(tmp_path: Path, peer: Peer, why: str) -> None:
    with pytest.raises(AuthenticationFailed, match=why):
        access(tmp_path).principal(peer)


def test_while_identity_is_off_every_peer_is_the_same_principal_with_all_rights() -> None:
    off = Access(None, cluster_id=CLUSTER)
    assert {off.principal(peer) for peer in (Peer(), Peer(None, "x"), Peer(None, ALICE, "192.0.2.1"))} == {
        ANYBODY
    }
