"""Pure: the HTTP surface as a document of OpenAPI 3.1: from the table of routes and the shapes that handlers read.

Bytes are base64 there; in msgpack they are bin. Tests: tests/unit/quorum/http/test_openapi.py.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from metadata_log.node.console.login import Credentials
from metadata_log.node.http.answers import JSON, MSGPACK
from metadata_log.node.http.routes import RouteKey
from metadata_log.node.release import VERSION
from metadata_log.wire.commands import (
    AlteredPartitions,
    AlterPartition,
    RegisterBroker,
    RegisterController,
    Registered,
    ReplicasPlaced,
)
from metadata_log.wire.fetch import FetchAnswer, FetchRequest, SnapshotOffer
from quorum.decide.registry import OPERATIONS
from quorum.http import (
    acl_answers,
    acls,
    answer_parts,
    batch,
    configs,
    features,
    partitions,
    producer_ids,
    quorum,
    quotas,
    tokens,
    topics,
    users,
)
from quorum.http import answer_shapes as answers
from quorum.http.app import ROUTES
from quorum.http.bodies import NDJSON, OCTETS
from quorum.http.events import EVENT_STREAM
from quorum.http.routes import Route

TEXT: Final = "text/plain"
HTML: Final = "text/html"
_IN_PATH: Final = re.compile(r"{(\w+)}")


class Told(NamedTuple):
    """What the table of routes does not say: the shapes of body and answer, one or a choice, and their content types."""

    answer: Any = None
    """None: it is no map."""
    body: Any = None
    status: int = 200
    sent_as: Sequence[str] = (JSON, MSGPACK)
    answered_as: Sequence[str] = (JSON, MSGPACK)


def _of_nodes(answer: Any, body: Any) -> Told:
    return Told(answer, body, sent_as=(MSGPACK,), answered_as=(MSGPACK,))


TOLD: Final[Mapping[RouteKey, Told]] = {
    ("GET", "/v1/topics"): Told(answers.TopicsListed),
    ("POST", "/v1/topics"): Told(
        (answers.TopicCreated, answers.TopicsChanged), (topics.NewTopicAlone, topics.NewTopics), 201
    ),
    ("POST", "/v1/topics/partitions"): Told(answers.TopicsChanged, topics.GrownTopics),
    ("POST", "/v1/topics/delete"): Told(answers.TopicsEnded, topics.EndingTopics),
    ("POST", "/v1/topics/undelete"): Told(answers.TopicsEnded, topics.TopicsByNameOrId),
    ("GET", "/v1/topics/{name}"): Told(answers.Topic),
    ("DELETE", "/v1/topics/{name}"): Told(answers.TopicEnded),
    ("GET", "/v1/partitions"): Told(answers.PartitionsListed),
    ("POST", "/v1/partitions/alter"): _of_nodes(AlteredPartitions, AlterPartition),
    ("POST", "/v1/partitions/directories"): _of_nodes(ReplicasPlaced, partitions.PlacedReplicas),
    ("POST", "/v1/partitions/elect"): Told(answers.PartitionsChanged, partitions.WantedElections),
    ("GET", "/v1/partitions/imbalance"): Told(answers.Imbalances),
    ("POST", "/v1/partitions/reassign"): Told(answers.PartitionsChanged, partitions.WantedReassignments),
    ("GET", "/v1/partitions/reassignments"): Told(answers.Reassignments),
    ("POST", "/v1/brokers/register"): _of_nodes(Registered, RegisterBroker),
    ("GET", "/v1/brokers"): Told(answers.Brokers),
    ("GET", "/v1/brokers/{id}"): Told(answers.Broker),
    ("DELETE", "/v1/brokers/{id}"): Told(answers.BrokerGone),
    ("GET", "/v1/configs"): Told(answers.Configs),
    ("PATCH", "/v1/configs"): Told(
        (answers.ConfigsChanged, answers.ResourcesChanged), (configs.ChangeAlone, configs.Changes)
    ),
    ("PUT", "/v1/configs"): Told(answers.ResourcesChanged, configs.AllSettings),
    ("GET", "/v1/quotas"): Told(answers.Quotas),
    ("PATCH", "/v1/quotas"): Told(answers.QuotasChanged, quotas.WantedQuotas),
    ("GET", "/v1/users"): Told(answers.Users),
    ("PATCH", "/v1/users"): Told(answers.UsersChanged, users.ChangedCredentials),
    ("GET", "/v1/tokens"): Told(answers.Tokens),
    ("POST", "/v1/tokens"): Told(answers.TokenIssued, tokens.NewToken),
    ("POST", "/v1/tokens/renew"): Told(answers.TokenMoved, tokens.RenewedToken),
    ("POST", "/v1/tokens/expire"): Told(answers.TokenMoved, tokens.ExpiringToken),
    ("GET", "/v1/acls"): Told(acl_answers.Acls),
    ("GET", "/v1/acls/explain"): Told(acl_answers.AclVerdict),
    ("POST", "/v1/acls"): Told(acl_answers.AclsCreated, acls.NewAcls),
    ("POST", "/v1/acls/delete"): Told(acl_answers.AclsDeleted, acls.EndingAcls),
    ("GET", "/v1/features"): Told(answers.Features),
    ("GET", "/v1/features/preview"): Told(answers.LevelPreview),
    ("POST", "/v1/features"): Told(answers.FeaturesChanged, features.WantedLevels),
    ("POST", "/v1/producer-ids"): _of_nodes(answers.Block, producer_ids.WantedBlock),
    ("GET", "/v1/quorum"): Told(answers.Quorum),
    ("GET", "/v1/quorum/settings"): Told(answers.QuorumSettings),
    ("POST", "/v1/quorum/transfer"): Told(answers.Leader, quorum.Transfer),
    ("POST", "/v1/quorum/voters"): Told(answers.VotersChanged, quorum.NewVoter),
    ("DELETE", "/v1/quorum/voters/{id}"): Told(answers.VotersChanged),
    ("POST", "/v1/controllers/register"): _of_nodes(answers.ControllerChanged, RegisterController),
    ("GET", "/v1/controllers"): Told(answers.Registrations),
    ("DELETE", "/v1/controllers/{id}"): Told(answers.ControllerChanged),
    ("GET", "/v1/metadata/snapshots/{id}"): Told(answered_as=(OCTETS,)),
    ("GET", "/v1/snapshots"): Told(answers.Snapshots),
    ("POST", "/v1/snapshots"): Told(SnapshotOffer, status=201),
    ("POST", "/v1/batch"): Told(answers.Results, batch.Commands),
    ("GET", "/v1/events"): Told(answered_as=(EVENT_STREAM,)),
    ("POST", "/v1/metadata/fetch"): Told(
        FetchAnswer, FetchRequest, sent_as=(MSGPACK,), answered_as=(OCTETS,)
    ),
    ("GET", "/healthz"): Told(answers.Alive),
    ("GET", "/readyz"): Told(answers.Ready),
    ("GET", "/v1/log"): Told(answered_as=(OCTETS, NDJSON)),
    ("GET", "/v1/overview"): Told(answers.Overview),
    ("GET", "/v1/past"): Told(answers.Past),
    ("GET", "/v1/whatif"): Told(answers.Losses),
    ("GET", "/metrics"): Told(answered_as=(TEXT,)),
    ("GET", "/v1/state"): Told(answers.State),
    ("GET", "/openapi.json"): Told(answered_as=(JSON,)),
    ("GET", "/"): Told(answered_as=(HTML,)),
    ("GET", "/console/{name}"): Told(answered_as=(HTML, "text/css", "text/javascript")),
    ("GET", "/v1/session"): Told(answers.Session),
    ("POST", "/v1/session"): Told(body=Credentials, status=204, answered_as=()),
    ("DELETE", "/v1/session"): Told(status=204, answered_as=()),
    ("GET", "/v1/log/lines"): Told(answered_as=(NDJSON,)),
    ("GET", "/v1/principals"): Told(answers.Principals),
}
"""By route. One that is not here is described by its row in the table alone."""


@cache
def described() -> dict[str, Any]:
    """Return the description of all routes; it is made once."""
    kinds = [kind for told in TOLD.values() for kind in (*_kinds(told.answer), *_kinds(told.body))]
    kinds.append(answer_parts.Error)
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    by_kind = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        told = TOLD.get(route.key, Told())
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, told, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "metaquorum: the HTTP surface of a controller",
            "version": VERSION,
            "description": "docs/formats.md, section 3; for brokers docs/broker-protocol.md",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}, "certificate": {"type": "mutualTLS"}},
        },
        "security": [{}, {"token": []}, {"certificate": []}],
    }  # fmt: skip


def _operation(route: Route, told: Told, by_kind: Mapping[int, Any]) -> dict[str, Any]:
    right = OPERATIONS[route.operation].right.name.lower()
    done: dict[str, Any] = {"description": "done"}
    if told.answered_as:
        done["content"] = _content(told.answered_as, _schema(told.answer, by_kind))
    failed = {
        "description": "an error",
        "content": _content((JSON, MSGPACK), by_kind[id(answer_parts.Error)]),
    }
    operation: dict[str, Any] = {
        "summary": route.operation,
        "description": f"Needs the right {right} where identity is on.",
        "parameters": _parameters(route),
        "responses": {str(told.status): done, "default": failed},
    }
    if told.body is not None:
        content = _content(told.sent_as, _schema(told.body, by_kind))
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _kinds(of: Any) -> tuple[Any, ...]:
    return of if isinstance(of, tuple) else () if of is None else (of,)


def _schema(of: Any, by_kind: Mapping[int, Any]) -> Any:
    """Return the schema of a shape, or of any of several."""
    schemas = [by_kind[id(kind)] for kind in _kinds(of)]
    return {"anyOf": schemas} if len(schemas) > 1 else schemas[0] if schemas else {}


def _parameters(route: Route) -> list[dict[str, Any]]:
    found = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _IN_PATH.findall(route.path)
    ]
    for name, parameter in (route.parameters or {}).items():
        schema = {"type": "string", **parameter.schema}
        found.append({"name": name, "in": "query", "description": parameter.wanted, "schema": schema})
    if route.method != "GET":
        about = "a uuid: a repetition with the same one gets the first answer"
        schema = {"type": "string"}
        found.append({"name": "X-Request-Id", "in": "header", "description": about, "schema": schema})
    return found


def _content(kinds: Sequence[str], schema: Any) -> dict[str, Any]:
    return {kind: {"schema": schema} for kind in kinds}
