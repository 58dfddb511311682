"""Pure: the table of a broker's routes: its own, and those that it sends on to the active controller.
Tests: tests/unit/broker_agent/test_forwarding.py.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from metadata_log.node.http.routes import NAMES, RouteKey, RouteRule
from metadata_log.node.identity.rights import Right

FORWARDED: Final[Sequence[RouteKey]] = (
    ("GET", "/v1/topics"),
    ("POST", "/v1/topics"),
    ("POST", "/v1/topics/partitions"),
    ("POST", "/v1/topics/delete"),
    ("POST", "/v1/topics/undelete"),
    ("GET", "/v1/topics/{name}"),
    ("DELETE", "/v1/topics/{name}"),
    ("GET", "/v1/partitions"),
    ("POST", "/v1/partitions/elect"),
    ("POST", "/v1/partitions/reassign"),
    ("GET", "/v1/partitions/reassignments"),
    ("GET", "/v1/partitions/imbalance"),
    ("GET", "/v1/configs"),
    ("PATCH", "/v1/configs"),
    ("PUT", "/v1/configs"),
    ("GET", "/v1/brokers"),
    ("GET", "/v1/brokers/{id}"),
    ("DELETE", "/v1/brokers/{id}"),
    ("GET", "/v1/controllers"),
    ("DELETE", "/v1/controllers/{id}"),
    ("GET", "/v1/quotas"),
    ("PATCH", "/v1/quotas"),
    ("GET", "/v1/users"),
    ("PATCH", "/v1/users"),
    ("GET", "/v1/tokens"),
    ("POST", "/v1/tokens"),
    ("POST", "/v1/tokens/renew"),
    ("POST", "/v1/tokens/expire"),
    ("GET", "/v1/features"),
    ("GET", "/v1/features/preview"),
    ("POST", "/v1/features"),
    ("GET", "/v1/acls"),
    ("GET", "/v1/acls/explain"),
    ("POST", "/v1/acls"),
    ("POST", "/v1/acls/delete"),
    ("POST", "/v1/batch"),
    ("GET", "/v1/state"),
    ("GET", "/v1/diff"),
    ("GET", "/v1/digest"),
    ("GET", "/v1/log/lines"),
    ("GET", "/v1/events"),
    ("GET", "/v1/overview"),
    ("GET", "/v1/past"),
    ("GET", "/v1/whatif"),
    ("GET", "/v1/snapshots"),
    ("POST", "/v1/snapshots"),
    ("GET", "/v1/quorum"),
    ("GET", "/v1/quorum/settings"),
    ("POST", "/v1/quorum/transfer"),
    ("POST", "/v1/quorum/voters"),
    ("DELETE", "/v1/quorum/voters/{id}"),
)
"""The controllers' surface for admins. A house test compares it with the controllers' table of routes."""
RULES: Final[Mapping[RouteKey, RouteRule]] = {
    ("GET", "/healthz"): RouteRule(Right.OPEN, None),
    ("GET", "/readyz"): RouteRule(Right.OPEN, None),  # all but the codes of its reasons: READ
    ("GET", "/metrics"): RouteRule(Right.READ, None),
    ("GET", "/v1/metadata"): RouteRule(Right.READ, {"topics": NAMES}),
    ("GET", "/v1/status"): RouteRule(Right.READ),
    ("GET", "/"): RouteRule(Right.OPEN),
    ("GET", "/console/{name}"): RouteRule(Right.OPEN),
    ("GET", "/v1/session"): RouteRule(Right.OPEN),
    ("GET", "/v1/principals"): RouteRule(Right.PRINCIPALS),
    ("POST", "/v1/session"): RouteRule(Right.OPEN),
    ("DELETE", "/v1/session"): RouteRule(Right.OPEN),
    ("POST", "/v1/brokers/register"): RouteRule(Right.OPEN),  # says that this is no controller
    ("POST", "/v1/controllers/register"): RouteRule(Right.OPEN),
    # What is forwarded needs a TOKEN here; the controller checks its right and its query.
    **dict.fromkeys(FORWARDED, RouteRule(Right.TOKEN, None)),
}
