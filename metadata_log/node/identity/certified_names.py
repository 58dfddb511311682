"""Pure: the principal that a certificate names: its URI metaquorum://CLUSTER/broker|controller|user/NAME.
Tests: tests/unit/metadata_log/node/identity/test_tls.py.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

SCHEME: Final = "metaquorum"
NODES: Final = {"broker": "Broker", "controller": "Controller"}
NAME: Final = re.compile(r"(?:User|Broker|Controller):[!-~]{1,200}")
_NODE_ID: Final = re.compile("0|[1-9][0-9]{0,9}")


def name_in(certificate: Mapping[str, Any], cluster_id: str | None) -> str | None:
    """Return the principal's name in a certificate of this cluster; of any cluster where `cluster_id` is None."""
    for kind, value in certificate.get("subjectAltName", ()):
        scheme, _, rest = value.partition("://")
        if kind != "URI" or scheme != SCHEME:
            continue
        cluster, _, named = rest.partition("/")
        if cluster_id not in (None, cluster):
            continue
        role, _, who = named.partition("/")
        if role in NODES and _NODE_ID.fullmatch(who):
            return f"{NODES[role]}:{who}"
        if role == "user" and NAME.fullmatch(f"User:{who}"):
            return f"User:{who}"
    return None
