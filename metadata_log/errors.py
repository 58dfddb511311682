"""Pure: every error raised on purpose, in four families by what the caller may do next.

Names and numbers are Kafka's where Kafka has them (org.apache.kafka.common.protocol.Errors); numbers from 10001 are ours.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final


class MetadataError(Exception):
    """Base of every error raised on purpose. Raise a leaf, never a family."""

    error: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    code: ClassVar[int] = -1
    family: ClassVar[str] = "Fault"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **context: object) -> None:
        """Keep `context`: facts, keyed by the words of the glossary."""
        super().__init__(message)
        self.message = message
        self.context = context

    def __str__(self) -> str:
        return self.message


class Rejected(MetadataError):
    """Nothing was written; the same request will be refused again."""

    family = "Rejected"


class Unavailable(MetadataError):
    """Nothing was written; ask later, or ask elsewhere."""

    family = "Unavailable"
    retryable = True


class OutcomeUnknown(MetadataError):
    """It may still commit: repeat with the same request_id and get the first answer."""

    error, code, family, retryable = "REQUEST_TIMED_OUT", 7, "OutcomeUnknown", True


class Fault(MetadataError):
    """A bug or damaged data: the process stops and says what an operator can do. Only main() sees it."""


# --- Unavailable


class NotController(Unavailable):
    """This node is not the active controller, or ceased to be before the records were applied.

    `controller_id` and `controller_url` in the context name the active one where it is known; `leaderless_ms` is how long
    this node has known of none.
    """

    error, code = "NOT_CONTROLLER", 41


class BrokerNotAvailable(Unavailable):
    """This broker serves no client now: it is fenced or still starting."""

    error, code = "BROKER_NOT_AVAILABLE", 8


class ChangePending(Unavailable):
    """Another change of voters is in flight; nothing was appended. What Kafka's AddVoterHandler answers."""

    error, code = "REQUEST_TIMED_OUT", 7


class NotCaughtUp(Unavailable):
    """The observer lacks too much of the log to vote yet; Kafka answers likewise."""

    error, code = "REQUEST_TIMED_OUT", 7


class LogDamaged(Unavailable):
    """A file of the committed log is damaged here; it is being fetched from the other controllers."""

    error, code = "KAFKA_STORAGE_ERROR", 56


class AuthorizerNotReady(Unavailable):
    """This node has applied nothing of the log yet, so it knows no right. Kafka's exception of this name has no number."""

    error, code = "AUTHORIZER_NOT_READY", 10011


class ThrottlingQuotaExceeded(Unavailable):
    """A bound of this process is reached (queue, waiters, parked fetches); try again shortly."""

    error, code = "THROTTLING_QUOTA_EXCEEDED", 89


# --- Rejected


class InvalidRequest(Rejected):
    """The request does not follow the format, or contradicts itself."""

    error, code = "INVALID_REQUEST", 42


class UnknownTopicOrPartition(Rejected):
    error, code = "UNKNOWN_TOPIC_OR_PARTITION", 3


class UnknownTopicId(Rejected):
    error, code = "UNKNOWN_TOPIC_ID", 100


class TopicAlreadyExists(Rejected):
    error, code = "TOPIC_ALREADY_EXISTS", 36


class InvalidTopic(Rejected):
    """The name is empty, too long, has other characters, or collides with another in `.` and `_`."""

    error, code = "INVALID_TOPIC_EXCEPTION", 17


class InvalidPartitions(Rejected):
    error, code = "INVALID_PARTITIONS", 37


class InvalidReplicationFactor(Rejected):
    error, code = "INVALID_REPLICATION_FACTOR", 38


class InvalidReplicaAssignment(Rejected):
    error, code = "INVALID_REPLICA_ASSIGNMENT", 39


class InvalidConfig(Rejected):
    error, code = "INVALID_CONFIG", 40


class PolicyViolation(Rejected):
    """The request asks for more than a batch may hold."""

    error, code = "POLICY_VIOLATION", 44


class UnsupportedVersion(Rejected):
    """A broker's feature range lacks the finalized level."""

    error, code = "UNSUPPORTED_VERSION", 35


class StaleBrokerEpoch(Rejected):
    """The broker registered again, was removed, or never registered: register again."""

    error, code = "STALE_BROKER_EPOCH", 77


class DuplicateBrokerRegistration(Rejected):
    """Another incarnation of this broker id has a live session; it ends when that one stops or falls silent."""

    error, code, retryable = "DUPLICATE_BROKER_REGISTRATION", 101, True


class InvalidRegistration(Rejected):
    error, code = "INVALID_REGISTRATION", 119


class BrokerIdNotRegistered(Rejected):
    error, code = "BROKER_ID_NOT_REGISTERED", 102


class FencedLeaderEpoch(Rejected):
    """The broker reports under a leader epoch that is over."""

    error, code = "FENCED_LEADER_EPOCH", 74


class InvalidUpdateVersion(Rejected):
    """The broker reports on a partition epoch that is over: the partition has changed since."""

    error, code = "INVALID_UPDATE_VERSION", 95


class IneligibleReplica(Rejected):
    """A broker that is named for the ISR may not join it: it is fenced, stopping, gone, or registered again."""

    error, code = "INELIGIBLE_REPLICA", 107


class NewLeaderElected(Rejected):
    """The change was written, and it gave the partition another leader."""

    error, code = "NEW_LEADER_ELECTED", 108


class ElectionNotNeeded(Rejected):
    """The partition has the leader that the election would give it."""

    error, code = "ELECTION_NOT_NEEDED", 84


class PreferredLeaderNotAvailable(Rejected):
    """The first replica cannot lead now, and no other replica would replace the present leader."""

    error, code = "PREFERRED_LEADER_NOT_AVAILABLE", 80


class EligibleLeadersNotAvailable(Rejected):
    """No replica's broker may lead now."""

    error, code = "ELIGIBLE_LEADERS_NOT_AVAILABLE", 83


class NoReassignmentInProgress(Rejected):
    """There is no reassignment of the partition that could be cancelled."""

    error, code = "NO_REASSIGNMENT_IN_PROGRESS", 85


class OperationNotAttempted(Rejected):
    """Of one item of a request that asks for all or nothing: another item was refused, so nothing was written."""

    error, code = "OPERATION_NOT_ATTEMPTED", 55


class NotLeaderOrFollower(Rejected):
    """The broker has no replica of the partition."""

    error, code = "NOT_LEADER_OR_FOLLOWER", 6


class IdsExhausted(Rejected):
    """All producer ids were given away; nothing helps but another cluster. Kafka answers this error, too."""

    error, code = "UNKNOWN_SERVER_ERROR", -1


class CandidateIsNoReplica(Rejected):
    """A leaderless partition waits for a broker that has no replica of it any more. Kafka answers this error, too."""

    error, code = "UNKNOWN_SERVER_ERROR", -1


class UnknownControllerId(Rejected):
    """No controller is registered under this id."""

    error, code = "UNKNOWN_CONTROLLER_ID", 116


class NodeStillAlive(Rejected):
    """A controller that votes, or is linked with the active one, keeps its registration; stop it first.

    The command line says the same of a broker that is not offline; the route unregisters it, as Kafka's controller does.
    """

    error, code = "NODE_STILL_ALIVE", 10010


class DuplicateVoter(Rejected):
    """A voter has this id, with this directory or another: remove that one first."""

    error, code = "DUPLICATE_VOTER", 126


class VoterNotFound(Rejected):
    """No voter has this id with this directory."""

    error, code = "VOTER_NOT_FOUND", 127


class InconsistentClusterId(Rejected):
    """The caller belongs to another cluster."""

    error, code = "INCONSISTENT_CLUSTER_ID", 104


class SnapshotNotFound(Rejected):
    error, code = "SNAPSHOT_NOT_FOUND", 98


class PositionOutOfRange(Rejected):
    error, code = "POSITION_OUT_OF_RANGE", 99


class UnsupportedMediaType(Rejected):
    """The body's encoding is neither JSON nor msgpack, or is compressed."""

    error, code = "INVALID_REQUEST", 42


class RequestTooLarge(Rejected):
    error, code = "INVALID_REQUEST", 42


class MethodNotAllowed(Rejected):
    error, code = "INVALID_REQUEST", 42


class ExpectationFailed(Rejected):
    """The Expect header asks for something else than 100-continue."""

    error, code = "INVALID_REQUEST", 42


class AuthenticationFailed(Rejected):
    """Identity is on, and the request has none, or one that is not known here."""

    error, code = "SASL_AUTHENTICATION_FAILED", 58


class NotAuthorized(Rejected):
    """The principal has no right to this."""

    error, code = "CLUSTER_AUTHORIZATION_FAILED", 31


class TopicNotAuthorized(NotAuthorized):
    """The principal has no right to this topic."""

    error, code = "TOPIC_AUTHORIZATION_FAILED", 29


class ForeignCaller(Rejected):
    """A web page of somebody else may have sent this: Host is no name of this node, or Origin is another one."""

    error, code = "INVALID_REQUEST", 42


class UnknownRoute(Rejected):
    error, code = "INVALID_REQUEST", 42


class MutationQuotaExceeded(Rejected):
    """The client may create and delete no more partitions now (its quota controller_mutation_rate)."""

    error, code, retryable = "THROTTLING_QUOTA_EXCEEDED", 89, True


class UnsupportedSaslMechanism(Rejected):
    """The number or the name is of no mechanism of SASL that is known here."""

    error, code = "UNSUPPORTED_SASL_MECHANISM", 33


class ResourceNotFound(Rejected):
    """A user has no such credential."""

    error, code = "RESOURCE_NOT_FOUND", 91


class DuplicateResource(Rejected):
    """A request names a user twice."""

    error, code = "DUPLICATE_RESOURCE", 92


class UnacceptableCredential(Rejected):
    """A credential has no user, too few or too many iterations, or no password."""

    error, code = "UNACCEPTABLE_CREDENTIAL", 93


class DelegationTokenAuthDisabled(Rejected):
    """No secret key of delegation tokens is set on this node."""

    error, code = "DELEGATION_TOKEN_AUTH_DISABLED", 61


class DelegationTokenNotFound(Rejected):
    """No delegation token has this id, or this HMAC."""

    error, code = "DELEGATION_TOKEN_NOT_FOUND", 62


class DelegationTokenOwnerMismatch(Rejected):
    """The principal neither owns this delegation token nor is one of its renewers."""

    error, code = "DELEGATION_TOKEN_OWNER_MISMATCH", 63


class DelegationTokenRequestNotAllowed(Rejected):
    """The client asks for tokens in the clear, without an identity, or logged in by a token itself."""

    error, code = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", 64


class DelegationTokenNotAuthorized(NotAuthorized):
    """The principal may not have a delegation token of this owner."""

    error, code = "DELEGATION_TOKEN_AUTHORIZATION_FAILED", 65


class DelegationTokenExpired(Rejected):
    """The delegation token has ended."""

    error, code = "DELEGATION_TOKEN_EXPIRED", 66


class InvalidPrincipalType(Rejected):
    """A renewer of a delegation token is no user, or its owner has no type."""

    error, code = "INVALID_PRINCIPAL_TYPE", 67


class OffsetInFuture(Rejected):
    """The offset lies beyond the high watermark."""

    error, code = "OFFSET_IN_FUTURE", 10001


class OffsetCompacted(Rejected):
    """The offset lies below what this node still holds."""

    error, code = "OFFSET_COMPACTED", 10002


class UndeleteWindowPassed(Rejected):
    """The topic was deleted too long ago to be restored; it is about to be removed."""

    error, code = "UNDELETE_WINDOW_PASSED", 10003


# --- Fault


class InvariantBroken(Fault):
    """What cannot be was seen: a bug, or another program wrote our files.

    `runbook` in the context is the page of ops/runbooks/ that the message names; without one the process says what to do.
    """


class DamagedFile(Fault):
    """Bytes on disk are not what was written; the message names file and offset."""


class WrittenByAnotherVersion(Fault):
    """A file is sound, and of a format that this release does not know."""


class UnknownFormat(ValueError):
    """Bytes are sound, and of a format that this release does not know; the message says which."""


class ForeignDirectory(Fault):
    """A data directory belongs to another node, role or cluster, or was never formatted."""


class DirectoryInUse(Fault):
    """Another process holds the lock of this data directory."""


class DiskFailed(Fault):
    """A write or sync failed or the disk is full; nothing that follows could be trusted."""


class InvalidSettings(Fault):
    """A settings file is missing, malformed, or its values contradict each other."""


class QuorumRefused(Fault):
    """The other voters refuse this one: another cluster, another voter set, or a directory they do not know."""


class CannotListen(Fault):
    """An address is in use or not ours."""


def leaves(
    group: BaseExceptionGroup[BaseException], *, whole: BaseException | None = None
) -> Iterator[BaseException]:
    """Yield the errors within a group and the groups within it; `whole`, which may be a group itself, is not opened."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup) and error is not whole:
            yield from leaves(error, whole=whole)
        else:
            yield error


def most_telling(
    errors: Iterable[BaseException], *, least: type[BaseException] | tuple[()] = ()
) -> BaseException:
    """Return the error that says most about why tasks ended: a Fault before any other error raised on purpose.

    An error of the class `least` is returned only if there is no other.
    """
    return min(
        errors,
        key=lambda error: (
            isinstance(error, least),
            not isinstance(error, Fault),
            not isinstance(error, MetadataError),
        ),
    )


def two_histories(what: str) -> InvariantBroken:
    """Return the fault of a node that met another history than its own, and what to do."""
    return InvariantBroken(
        f"{what}: two quorums were founded under one cluster id, voters lost what they had acknowledged, or a directory is "
        "an older copy. Before anything else stop all controllers and copy their data directories, and format none: "
        "which history is to stand is for you to say (ops/runbooks/two-histories.md)",
        runbook="two-histories.md",
    )


def another_version(path: object, what: object) -> WrittenByAnotherVersion:
    """Return the fault that names a file of another version, and what to do."""
    return WrittenByAnotherVersion(
        f"{path}: {what}: another version of metaquorum wrote it; nothing is damaged, and nothing was changed: run that "
        "version, or give this one a data directory of its own",
        path=str(path),
    )


def _leaves(family: type[MetadataError]) -> list[type[MetadataError]]:
    return [leaf for child in family.__subclasses__() for leaf in (child, *_leaves(child))]


_OF_PEERS: Final[list[type[MetadataError]]] = [
    OutcomeUnknown,
    *_leaves(Unavailable),
    *_leaves(Rejected),
]
BY_NAME: Final = {leaf.error: leaf for leaf in reversed(_OF_PEERS) if leaf.error != MetadataError.error}
"""The class of an error's wire name; the first declared where several share one; all faults share one name."""
_BY_FAMILY: Final[dict[tuple[str, str | None], type[MetadataError]]] = {
    (leaf.error, leaf.family): leaf for leaf in reversed(_OF_PEERS)
}


def error_named(error: str, message: str, *, family: str | None = None, **context: object) -> MetadataError:
    """Return the error a peer sent by name; one unknown here is a Fault of the peer.

    `family`, where it was told, decides between what shares Kafka's REQUEST_TIMED_OUT: unknown, or surely not written.
    """
    leaf = _BY_FAMILY.get((error, family)) or BY_NAME.get(error, Fault)
    return leaf(message, **context)
