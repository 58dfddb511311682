"""Pure: the sender of a request, and the one step between reading a request and carrying it out: whether the sender may."""

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from metadata_log.batch import at_address
from metadata_log.errors import NotAuthorized, TopicNotAuthorized
from metadata_log.ids import BrokerId, Uuid, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.identity.refusals import DoorName
from metadata_log.node.identity.rights import ANYBODY, BROKER, Node, Principal, Right
from metadata_log.records.acls import AclOperation, ResourceType
from metadata_log.wire.commands import BrokerHeartbeat, Command
from metadata_log.wire.fetch import OBSERVER
from quorum.controller.broker_link import BrokerLink
from quorum.decide.access import CLUSTER, FETCH, Resource
from quorum.decide.authorizer import Question, Verdict, java_host, verdict_of
from quorum.decide.registry import BY_OPERATION, DECISIONS, OPERATIONS

_OPEN_TO_NAMES: Final = "DescribeCluster"
"""Where ACLs count, each principal may see the nodes, as in Kafka: clients cannot begin without."""
_HEARTBEAT: Final = DECISIONS[BrokerHeartbeat].operation


class Caller(NamedTuple):
    """The sender of a request, as its door knows it.

    `address` is the numeric one of the client's connection; None within this process. `request_id` makes the command
    repeatable; None: a repetition is another command. `trace_id` is that of its W3C trace context.
    `client_id` is what clients of Kafka call themselves. Without `is_strict` a quota of changes refuses nothing: the
    client's next request is delayed. `link` is the connection itself, where its door keeps it.
    """

    principal: Principal
    address: str | None = None
    request_id: Uuid | None = None
    trace_id: str | None = None
    door: DoorName = "http"
    client_id: str = ""
    is_strict: bool = True
    link: BrokerLink | None = None

    @property
    def node(self) -> Node | None:
        """The broker or controller that a certificate or a token proves; None: a client, or identity is off."""
        return self.principal.node

    @property
    def name(self) -> str:
        """The principal's name, by which ACLs and delegation tokens know it."""
        return self.principal.acl_name or self.principal.name

    @property
    def user(self) -> str:
        """The name that quotas of users have."""
        known = self.principal.acl_name
        return self.principal.name.removeprefix("User:") if known is None else known.partition(":")[2]

    def actor_of(self, command: Command) -> str:
        """Return the actor that the command's records show: the principal, or the node that alone may send it.

        A node is shown without its address while identity is off, since anybody may speak as it.
        """
        sender = DECISIONS[type(command)].access.sender
        if sender is None:
            return at_address(self.principal.name, self.address)
        return at_address(sender(command), None if self.principal is ANYBODY else self.address)


def authorize(caller: Caller, operation: str, resources: Iterable[Resource], image: MetadataImage) -> None:
    """Check that a caller may carry out an operation on all of these resources, whichever door it came through.

    Raises:
        AuthenticationFailed: the caller shows no identity.
        NotAuthorized: it lacks the right, by its roles and by ACLs; the message names the first resource. The right raw of
            a broker's role counts once that broker is registered.
    """
    right, principal = OPERATIONS[operation].right, caller.principal
    if not principal.has(right):
        if principal.may_ask_acls(right):
            _ask_acls(caller, operation, resources, image)
            return
        named = "".join(f" on {resource}" for resource in islice(resources, 1))
        raise principal.refusal(right, f"{operation}{named}")
    if right is Right.RAW and principal.raw_if_registered and not _is_registered(caller.node, image):
        raise NotAuthorized(
            f"{principal.name} has no right to {operation}: as a broker it has the right raw once it is registered"
        )


def may_ask_later(caller: Caller, operation: str) -> bool:
    """Answer whether a caller's right depends on resources that only its request names: the decision's step asks then."""
    right = OPERATIONS[operation].right
    return (
        operation in BY_OPERATION
        and right not in caller.principal.rights
        and caller.principal.may_ask_acls(right)
    )


def refusal_of(
    caller: Caller, operation: str, resource: Resource, image: MetadataImage
) -> NotAuthorized | None:
    """Return why ACLs refuse a caller an operation on one of many resources; None: they do not, or its roles allow it."""
    if not may_ask_later(caller, operation):
        return None
    try:
        _ask_acls(caller, operation, (resource,), image)
    except NotAuthorized as refusal:
        return refusal.with_traceback(None)  # its frames hold the image, and there may be many refusals
    return None


def _ask_acls(caller: Caller, operation: str, resources: Iterable[Resource], image: MetadataImage) -> None:
    """Check that ACLs allow an operation on all of these resources; who may create in the cluster may create any topic.

    Raises:
        NotAuthorized, TopicNotAuthorized: they do not; the message names the rule that denies.
        AuthorizerNotReady: nothing of the log is known here yet.
    """
    does = OPERATIONS[operation].does
    if operation == _OPEN_TO_NAMES:
        return
    if does is AclOperation.CREATE and _verdict(caller, does, CLUSTER, image).is_allowed:
        return
    for resource in resources:
        verdict = _verdict(caller, does, resource, image)
        if not verdict.is_allowed:
            denies = "" if verdict.rule is None else f": ACL {uuid_text(verdict.rule.id)} denies it"
            refused = TopicNotAuthorized if resource.type is ResourceType.TOPIC else NotAuthorized
            raise refused(
                f"{caller.principal.name} has no right to {operation} on {resource}: no role and no ACL gives it "
                f"{does.name} there{denies}"
            )


def _verdict(caller: Caller, does: AclOperation, resource: Resource, image: MetadataImage) -> Verdict:
    by_acls = caller.principal.by_acls
    assert by_acls is not None, "only who may ask ACLs asks them"
    host = "" if caller.address is None else java_host(caller.address)
    question = Question(caller.name, host, does, resource.type, resource.name)
    return verdict_of(image, question, allow_if_none=by_acls.allow_if_none)


def _is_registered(node: Node | None, image: MetadataImage) -> bool:
    return node is not None and node.kind == BROKER and node.id in image.brokers


def authorize_command(caller: Caller, command: Command, image: MetadataImage) -> None:
    """Check that a caller may have a command decided; `image` has the names of topics that the command names by id.

    Raises:
        AuthenticationFailed, NotAuthorized: as `authorize`, or the caller is not the node that alone may send this command.
    """
    decides = DECISIONS[type(command)]
    access = decides.access
    authorize(caller, decides.operation, access.resources(command, image), image)
    if access.sender is not None and caller.principal is not ANYBODY:
        caller.principal.check_is(access.sender(command))


def authorize_poll(caller: Caller, broker_id: BrokerId, image: MetadataImage) -> None:
    """Check that a caller may fetch the log as a broker, or as an observer.

    The active controller looks up by its epoch whether the broker is registered. Another controller may not know of it
    yet, and that is no reason for the broker to give up.

    Raises:
        AuthenticationFailed, NotAuthorized: as `authorize`, or the caller is not this broker.
    """
    if broker_id == OBSERVER:
        authorize(caller, FETCH, (CLUSTER,), image)
    else:
        authorize(caller, _HEARTBEAT, (CLUSTER,), image)
        caller.principal.check_is(f"{BROKER}:{broker_id}")
