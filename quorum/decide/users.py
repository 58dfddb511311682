"""Pure: what SCRAM credentials of users may be, and what a change of them is written as.

Source: KIP-554; Kafka's ScramControlManager; RFC 5802 for the two keys of a credential.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_log.errors import (
    DuplicateResource,
    Rejected,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from metadata_log.image.features import metadata_level
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.metadata_versions import SCRAM_FROM
from metadata_log.node.identity.rights import Right
from metadata_log.node.identity.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, keys_of
from metadata_log.orders import in_parts
from metadata_log.records.acls import AclOperation
from metadata_log.records.features import METADATA_VERSION
from metadata_log.records.registry import Record
from metadata_log.records.users import (
    MASK_KEY_BYTES,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from quorum.decide.access import Access
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision
from quorum.decide.items import ManyItems, check_fits, why
from quorum.decide.levels import check_level


class ScramDeletion(NamedTuple):
    name: str
    mechanism: int


class ScramUpsertion(NamedTuple):
    """A credential to be; the password comes salted and hashed, so that no controller knows it."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentials(ManyItems):
    """Give users credentials and take others away, in one batch; each user gets a result of its own. Source: KIP-554."""

    deletions: tuple[ScramDeletion, ...]
    upsertions: tuple[ScramUpsertion, ...]


class UserAltered(NamedTuple):
    """What became of one user: the error's name and text, None where its credentials are as asked."""

    user: str
    error: str | None = None
    message: str | None = None


class UsersAltered(NamedTuple):
    """What became of each user, each once: first those of deletions."""

    results: tuple[UserAltered, ...]


def alter(context: DecideContext, command: AlterUserScramCredentials) -> Decision:
    """Decide changes of credentials; a user that is refused does not change what becomes of the others.

    A user may be named once: a second change refuses both.

    Raises:
        UnsupportedVersion: some nodes of the cluster may not know records of credentials.
        PolicyViolation: the changes need more records than one batch holds.
    """
    check_level(context.image, UserScramCredentialRecord, "SCRAM credentials")
    made: dict[str, Record] = {}
    refused: dict[str, Rejected] = {}
    changes: list[ScramDeletion | ScramUpsertion] = [*command.deletions, *command.upsertions]
    level = metadata_level(context.image.features)
    for change in changes:
        name = change.name
        if level < SCRAM_FROM:
            refused[name] = UnsupportedVersion(
                f"{METADATA_VERSION} {level} has no SCRAM credentials; they begin at {SCRAM_FROM}"
            )
        if name in refused:
            continue
        try:
            if name in made:
                raise DuplicateResource("the credentials of a user can be changed once in a request")
            made[name] = _record(context, change)
        except Rejected as refusal:
            refused[name] = refusal
    check_fits(len(made), "credentials")
    names = dict.fromkeys(change.name for change in changes)
    results = (UserAltered(name, *(why(refused[name]) if name in refused else ())) for name in names)
    records = [record for name, record in made.items() if name not in refused]
    return Decision(records=records, outcome=UsersAltered(tuple(results)))


def _record(context: DecideContext, change: ScramDeletion | ScramUpsertion) -> Record:
    """Return the record of one change; raises a Rejected of its user."""
    if not change.name:
        raise UnacceptableCredential("a user needs a name")
    if change.mechanism not in HASHES:
        raise UnsupportedSaslMechanism(f"the mechanism {change.mechanism} is none of {_known()}")
    if isinstance(change, ScramDeletion):
        if (change.name, change.mechanism) not in context.image.users:
            raise ResourceNotFound("the user has no credential of this mechanism")
        return RemoveUserScramCredentialRecord(change.name, change.mechanism)
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        raise UnacceptableCredential(
            f"{change.iterations} iterations; from {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed"
        )
    if not change.salted_password:
        raise UnacceptableCredential("the salted password is empty")
    keys = keys_of(change.mechanism, change.salted_password)
    mask_key = context.rng.randbytes(MASK_KEY_BYTES)
    return UserScramCredentialRecord(
        change.name,
        change.mechanism,
        change.salt,
        keys.stored_key,
        keys.server_key,
        change.iterations,
        mask_key,
    )


def _known() -> str:
    return ", ".join(f"{number} ({name.upper()})" for number, name in HASHES.items())


class Described(NamedTuple):
    """The credentials of one user, by mechanism; `error` where there is none to describe."""

    user: str
    credentials: tuple[UserScramCredentialRecord, ...] = ()
    error: Rejected | None = None


def describe(image: MetadataImage, users: Iterable[str] | None) -> list[Described]:
    """Return the credentials of users, each once; None: of all that have some."""
    if users is None:
        found: dict[str, list[UserScramCredentialRecord]] = {}
        for key in in_parts(image.users):
            found.setdefault(key[0], []).append(image.users[key])
        return [Described(name, tuple(credentials)) for name, credentials in found.items()]
    times: dict[str, int] = {}
    for name in users:
        times[name] = times.get(name, 0) + 1
    return [_described(image, name, is_twice=count > 1) for name, count in times.items()]


def _described(image: MetadataImage, name: str, *, is_twice: bool) -> Described:
    if is_twice:
        return Described(name, error=DuplicateResource("the user is named twice"))
    credentials = tuple(image.users[name, kind] for kind in HASHES if (name, kind) in image.users)
    if not credentials:
        return Described(name, error=ResourceNotFound(f"user {name[:100]!r} has no SCRAM credentials"))
    return Described(name, credentials)


_ALTERS: Final = Access(Right.CLUSTER, AclOperation.ALTER)
DECISIONS: Final = (
    Decides(AlterUserScramCredentials, "AlterUserScramCredentials", UsersAltered, _ALTERS, alter),
)
OTHER_OPERATIONS: Final[Mapping[str, Access]] = {
    "DescribeUserScramCredentials": Access(Right.READ, AclOperation.DESCRIBE)
}
