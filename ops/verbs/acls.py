"""Edge: `acls list|explain|create|delete`."""

import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final

from metadata_log.errors import InvalidRequest, MetadataError
from ops.admin.cluster import Cluster
from ops.command_line.changes import REFUSED, Change, change, change_of_items, result_columns
from ops.command_line.guard import ask_first, guarded
from ops.command_line.options import Network, Noun, argument, flag, option, reading, together
from ops.command_line.render import Column
from ops.command_line.talk import fail_usage, say

TYPES: Final = ("topic", "group", "cluster", "transactional_id", "delegation_token", "user")
OPERATIONS: Final = (
    *("ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
    *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS"),
    "TWO_PHASE_COMMIT",
)
CLUSTER: Final = "kafka-cluster"
ACLS: Final = (
    Column("permission_type", "PERMISSION"),
    Column("principal"),
    Column("host"),
    Column("operation"),
    Column("resource_type", "TYPE"),
    Column("resource_name", "RESOURCE"),
    Column("pattern_type", "PATTERN"),
    Column("id", is_wide=True),
)
NOT_ENFORCED: Final = "ACLs do not count on this controller's doors: [acls] enforced is not true"
NOUN: Final = Noun()


def _resource(text: str) -> tuple[str, str]:
    """Return type and name of `topic:orders`; `cluster` alone is the cluster."""
    kind, colon, name = text.partition(":")
    kind = kind.lower().replace("-", "_")
    if kind == "cluster" and not colon:
        return kind, CLUSTER
    if kind not in TYPES or not name:
        raise ValueError(f"{text!r} is not TYPE:NAME, as topic:orders (types: {', '.join(TYPES)})")
    return kind, name


def _principal(text: str) -> str:
    """Read a principal, as kafka-acls does: it has a type."""
    if ":" not in text:
        raise ValueError(f"{text!r} has no type: wanted TYPE:NAME, as User:{text}")
    return text


_meant: Final = together(
    option("--resource", read=_resource, metavar="TYPE:NAME", help="such as topic:orders, or cluster"),
    option(
        "--pattern",
        choices=("literal", "prefixed", "match"),
        help="match: all that concern the resource of that name; default: literal and prefixed ones of that name",
    ),
    option("--principal", read=_principal, metavar="PRINCIPAL", help="such as User:alice"),
    option("--host", metavar="HOST", help="an address, or '*'"),
    option("--operation", choices=OPERATIONS),
    option("--permission", choices=("allow", "deny")),
)
"""The options of a filter: what is left out may be anything."""


def _filter(meant: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a filter, without those that may be anything."""
    kind, name = meant["resource"] or (None, None)
    given = {
        "resource_type": kind and kind.upper(),
        "resource_name": name,
        "pattern_type": meant["pattern"] and meant["pattern"].upper(),
        "principal": meant["principal"],
        "host": meant["host"],
        "operation": meant["operation"],
        "permission_type": meant["permission"] and meant["permission"].upper(),
    }
    return {key: value for key, value in given.items() if value is not None}


def say_doubts(acls: Sequence[Mapping[str, str]]) -> None:
    """Say which of these ACLs match nothing.

    Raises:
        Misuse: an operation is none of the resource's type, as kafka-acls refuses it.
    """
    from metadata_log.records.acls import AclOperation, PatternType, PermissionType, ResourceType
    from quorum.decide.acl_doubts import doubts, unsupported
    from quorum.decide.acls import Acl

    said: dict[str, None] = {}
    for one in acls:
        acl = Acl(
            ResourceType[one["resource_type"]],
            one["resource_name"],
            PatternType[one["pattern_type"]],
            one["principal"],
            one["host"],
            AclOperation[one["operation"]],
            PermissionType[one["permission_type"]],
        )
        if (why := unsupported(acl)) is not None:
            fail_usage(why)
        said |= dict.fromkeys(doubts(acl))
    for doubt in said:
        say(f"this matches nothing: {doubt}")


def _with(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urllib.parse.urlencode(query)}" if query else path


@NOUN.verb(
    "list",
    "List access control lists.",
    "acls list",
    "acls list --resource topic:orders --pattern match",
)
@_meant
@reading
def run_list(asked: Network, **meant: Any) -> int:
    listed = asked.client().read(_with("/v1/acls", _filter(meant)))
    if not listed["enforced"]:
        say(NOT_ENFORCED)
    asked.show_items(listed["items"], ACLS, empty="no ACLs")
    return 0


@NOUN.verb(
    "explain",
    "Tell whether a principal may do something, and which rule decides; exit code 3: it may not.",
    "acls explain User:alice WRITE topic:orders",
)
@argument("principal", "PRINCIPAL", read=_principal)
@argument("operation", "OPERATION", choices=OPERATIONS)
@argument("resource", "TYPE:NAME", read=_resource)
@option("--host", metavar="ADDRESS", help="from where; left out: rules of one host do not count")
@reading
def run_explain(
    asked: Network, *, principal: str, operation: str, resource: tuple[str, str], host: str | None
) -> int:
    query = {"principal": principal, "operation": operation, "resource": ":".join(resource)}
    if host is not None:
        query["host"] = host
    verdict = asked.client().read(_with("/v1/acls/explain", query))
    if not verdict.get("enforced", True):
        say(NOT_ENFORCED)
    if not verdict["allowed"] and (roles := verdict.get("roles")):  # a release before it has no such field
        say(f"the roles of {principal} come first, and count beside: {', '.join(roles)}")
    asked.show(verdict, table=lambda: _told(verdict, principal, operation, resource))
    return 0 if verdict["allowed"] else REFUSED


def _told(verdict: dict[str, Any], principal: str, operation: str, resource: tuple[str, str]) -> str:
    may = "may" if verdict["allowed"] else "may not"
    what = f"{principal} {may} {operation} {resource[0]} {resource[1]}"
    rule = verdict["rule"]
    if rule is None:
        return f"{what}: {verdict['why']}"
    kind, name = rule["resource_type"].lower(), rule["resource_name"]
    on = (
        f"each {kind} whose name begins with {name}"
        if rule["pattern_type"] == "PREFIXED"
        else f"{kind} {name}"
    )
    return (
        f"{what}: ACL {rule['id']} {'allows' if rule['permission_type'] == 'ALLOW' else 'denies'} {rule['principal']} "
        f"{rule['operation']} on {on} from host {rule['host']}"
    )


@NOUN.verb(
    "create",
    "Create access control lists: one for each operation.",
    "acls create --principal User:alice --operation READ --resource topic:orders",
    "acls create --principal User:bob --operation ALL --resource topic:team- --prefixed",
)
@option(
    "--principal",
    required=True,
    read=_principal,
    metavar="PRINCIPAL",
    help="such as User:alice; User:* is everybody",
)
@option("--operation", required=True, multiple=True, choices=OPERATIONS, help="can be given several times")
@option("--resource", required=True, read=_resource, metavar="TYPE:NAME", help="'*' as the name is all")
@flag("--prefixed", help="all resources whose names begin so")
@flag("--deny", help="what is denied counts before what is allowed")
@option("--host", default="*", metavar="HOST", help="the address from which; default: any")
@change_of_items
def run_create(
    asked: Change,
    *,
    principal: str,
    operation: tuple[str, ...],
    resource: tuple[str, str],
    prefixed: bool,
    deny: bool,
    host: str,
) -> int:
    acls = [
        {
            "resource_type": resource[0].upper(),
            "resource_name": resource[1],
            "pattern_type": "PREFIXED" if prefixed else "LITERAL",
            "principal": principal,
            "host": host,
            "operation": each,
            "permission_type": "DENY" if deny else "ALLOW",
        }
        for each in operation
    ]
    say_doubts(acls)
    body = {"acls": acls, "all_or_nothing": asked.all_or_nothing}
    client = asked.client()
    if asked.dry_run:
        _are_enforced(client, acls[0])
        return asked.foreseen("CreateAcls", body)
    written = client.write("POST", "/v1/acls", body)
    written["enforced"] = _are_enforced(client, acls[0])
    rows = [{**acl, **result} for acl, result in zip(acls, written["acls"], strict=True)]
    columns = result_columns(*ACLS[:-1], done="there")
    asked.show(written, table=lambda: asked.table(columns, rows, empty=""))
    return REFUSED if any(row["error"] for row in rows) else 0


def _are_enforced(client: Cluster, acl: Mapping[str, str]) -> bool | None:
    """Return whether ACLs count, and say so where they do not; None is not known: this client may not read them."""
    try:
        enforced: bool | None = client.read(_with("/v1/acls", acl)).get("enforced")
    except MetadataError:
        return None
    if enforced is False:
        say(f"{NOT_ENFORCED}: what is created is kept, and allows and denies nothing until it is")
    return enforced


@NOUN.verb(
    "delete",
    "Delete all access control lists that the options mean, in steps of at most 10,000; an ended one can be repeated.",
    "acls delete --principal User:alice",
    "acls delete --resource topic:orders --dry-run",
)
@_meant
@flag("--all", "everything", help="needed to delete all of them")
@change
@guarded
def run_delete(asked: Change, *, everything: bool, yes: bool, **meant: Any) -> int:
    wanted = _filter(meant)
    if not wanted and not everything:
        fail_usage("this would delete all ACLs: say which, or --all")
    body = {"filters": [wanted], "in_steps": True}
    if asked.dry_run:
        return asked.foreseen("DeleteAcls", body)
    which = " ".join(f"{key}={value}" for key, value in wanted.items()) or "all of them"
    if not ask_first(f"ACLs are deleted: {which}", lambda: (), yes=yes):
        return REFUSED
    client, deleted = asked.client(), list[dict[str, Any]]()
    while True:
        written = client.write("POST", "/v1/acls/delete", body)
        (result,) = written["filters"]
        if result["error"] is not None:
            raise InvalidRequest(result["message"])
        deleted += result["acls"]
        if not written["left"]:
            break
        say(f"{written['deleted']:,} deleted, {written['left']:,} are left")
    asked.show_items(deleted, ACLS[:-1], empty="no ACL was meant")
    return 0
