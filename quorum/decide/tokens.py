"""Pure: which delegation tokens there are to be: who may have one, who may renew it, and when it ends.

The owner, or somebody whom an ACL allows to, asks for a token. The owner and the renewers that it names move its end, up to
the latest end that it was issued with; an administrator can end it, too. The active controller removes what has ended.
Source: KIP-48, KIP-373, KIP-900; Kafka's DelegationTokenControlManager.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from metadata_log.batch import Cause
from metadata_log.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
    PolicyViolation,
    UnsupportedVersion,
)
from metadata_log.ids import random_uuid, uuid_text
from metadata_log.image.features import metadata_level
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.tokens import TokensImage
from metadata_log.limits import DELEGATION_TOKENS_MAX, DELEGATION_TOKENS_OF_OWNER_MAX
from metadata_log.metadata_versions import TOKENS_FROM
from metadata_log.node.identity.rights import Right
from metadata_log.records.acls import AclOperation, ResourceType
from metadata_log.records.features import METADATA_VERSION
from metadata_log.records.tokens import DelegationTokenRecord, RemoveDelegationTokenRecord
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, Sliced
from metadata_log.wire.commands import Command
from metadata_log.wire.shapes import INT64_MAX
from quorum.decide.access import Access, Resource
from quorum.decide.context import DecideContext, TokenRules
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision
from quorum.decide.levels import check_level

USER: Final = "User:"
"""How a principal begins that may renew a token."""
AT_ONCE: Final = -1
"""An expiry period that ends a token now; Kafka takes every negative number so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDelegationToken(Command):
    """Issue a token of the principal that asks.

    `max_lifetime_ms` below 1: as the settings say, which are also the most. `renewers` are written `User:NAME`.
    """

    renewers: tuple[str, ...] = ()
    max_lifetime_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDelegationTokenFor(Command):
    """Issue a token of another principal, `owner`. Source: KIP-373."""

    owner: str
    renewers: tuple[str, ...] = ()
    max_lifetime_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewDelegationToken(Command):
    """Move the end of a token, which its id or its HMAC names, to `renew_period_ms` from now (below 1: the settings')."""

    token_id: str | None = None
    hmac: bytes = b""
    renew_period_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireDelegationToken(Command):
    """Move the end of a token to `expiry_time_period_ms` from now; a negative number removes it."""

    token_id: str | None = None
    hmac: bytes = b""
    expiry_time_period_ms: int = AT_ONCE


class TokenCreated(NamedTuple):
    """What was issued; its HMAC follows from the id and from the secret key of this node."""

    token_id: str
    owner: str
    requester: str
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int


class TokenExpiry(NamedTuple):
    """When a token ends now; where it was removed, the time of that."""

    expiry_timestamp_ms: int


def create(
    context: DecideContext, command: CreateDelegationToken | CreateDelegationTokenFor
) -> Sliced[Decision]:
    """Decide a new token, whose requester is the principal that asks.

    Raises:
        DelegationTokenAuthDisabled: no secret key is set here.
        UnsupportedVersion: the log has tokens from level 5 of metaquorum.version and 14 of metadata.version on.
        InvalidPrincipalType: a renewer is no user.
        PolicyViolation: there are DELEGATION_TOKENS_MAX tokens already, or DELEGATION_TOKENS_OF_OWNER_MAX of this owner.
    """
    rules = _rules(context)
    for renewer in command.renewers:
        if not renewer.startswith(USER):
            raise InvalidPrincipalType(
                f"renewer {renewer[:100]!r}: a token is renewed by users, written {USER}NAME"
            )
    if len(context.image.tokens) >= DELEGATION_TOKENS_MAX:
        raise PolicyViolation(f"there are {DELEGATION_TOKENS_MAX} delegation tokens: expire some first")
    owner = command.owner if isinstance(command, CreateDelegationTokenFor) else context.requester
    if (yield from _are_many_of(owner, context.image.tokens)):
        raise PolicyViolation(
            f"{owner} has {DELEGATION_TOKENS_OF_OWNER_MAX} delegation tokens: expire some first"
        )
    now_ms, lifetime_ms = context.unix_ms, rules.max_lifetime_ms
    if command.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, command.max_lifetime_ms)
    max_ms = _sum(now_ms, lifetime_ms)
    expiry_ms = min(max_ms, _sum(now_ms, rules.expiry_time_ms))
    token_id = _new_id(context)
    record = DelegationTokenRecord(
        token_id, owner, context.requester, command.renewers, now_ms, max_ms, expiry_ms
    )
    outcome = TokenCreated(token_id, owner, context.requester, now_ms, expiry_ms, max_ms)
    return Decision(records=(record,), outcome=outcome)


def renew(context: DecideContext, command: RenewDelegationToken) -> Decision:
    """Decide a later, or an earlier, end of a token.

    Raises:
        DelegationTokenAuthDisabled, UnsupportedVersion: as `create`.
        DelegationTokenNotFound: there is no such token.
        DelegationTokenExpired: it has ended.
        DelegationTokenOwnerMismatch: the principal that asks neither owns it nor may renew it.
    """
    rules = _rules(context)
    token = _named(context, rules, command.token_id, command.hmac)
    _check_not_over(context, token)
    _check_may(context, token)
    period_ms = rules.expiry_time_ms
    if command.renew_period_ms > 0:
        period_ms = min(period_ms, command.renew_period_ms)
    return _moved(context, token, period_ms)


def expire(context: DecideContext, command: ExpireDelegationToken) -> Decision:
    """Decide the end of a token, at once or later; raises as `renew`. One that has ended can still be removed.

    An administrator may end the tokens of all, which Kafka's does not let it.
    """
    rules = _rules(context)
    token = _named(context, rules, command.token_id, command.hmac)
    if not context.is_administrator:
        _check_may(context, token)
    if command.expiry_time_period_ms < 0:
        removal = RemoveDelegationTokenRecord(token.token_id)
        return Decision(records=(removal,), outcome=TokenExpiry(context.unix_ms))
    _check_not_over(context, token)
    return _moved(context, token, command.expiry_time_period_ms)


def _rules(context: DecideContext) -> TokenRules:
    if context.tokens is None:
        raise DelegationTokenAuthDisabled(
            "no delegation tokens here: [delegation_tokens] secret_key_file is not set, for which Kafka has "
            "delegation.token.secret.key"
        )
    level = metadata_level(context.image.features)
    if level < TOKENS_FROM:
        raise UnsupportedVersion(
            f"{METADATA_VERSION} {level} has no delegation tokens; they begin at {TOKENS_FROM}"
        )
    check_level(context.image, DelegationTokenRecord, "delegation tokens")
    return context.tokens


def _are_many_of(owner: str, tokens: TokensImage) -> Sliced[bool]:
    """Answer whether an owner has as many tokens as one may have."""
    if len(tokens) < DELEGATION_TOKENS_OF_OWNER_MAX:
        return False
    count = 0
    for number, token in enumerate(tokens.values()):
        count += token.owner == owner
        if number % ITEMS_BETWEEN_RESTS == 0:
            yield
    return count >= DELEGATION_TOKENS_OF_OWNER_MAX


def _new_id(context: DecideContext) -> str:
    while True:
        token_id = uuid_text(random_uuid(context.rng))
        if token_id not in context.image.tokens:
            return token_id


def _named(
    context: DecideContext, rules: TokenRules, token_id: str | None, hmac: bytes
) -> DelegationTokenRecord:
    known = rules.id_of(hmac) if token_id is None else token_id
    token = None if known is None else context.image.tokens.get(known)
    if token is None:
        raise DelegationTokenNotFound(
            "there is no such delegation token: it was removed, or has another HMAC"
        )
    return token


def _check_not_over(context: DecideContext, token: DelegationTokenRecord) -> None:
    if is_over(token, context.unix_ms):
        raise DelegationTokenExpired(f"delegation token {token.token_id} has expired: ask for a new one")


def _check_may(context: DecideContext, token: DelegationTokenRecord) -> None:
    if not concerns(token, context.requester):
        raise DelegationTokenOwnerMismatch(
            f"{context.requester} neither owns delegation token {token.token_id} nor is one of its renewers"
        )


def _moved(context: DecideContext, token: DelegationTokenRecord, period_ms: int) -> Decision:
    expiry_ms = min(token.max_timestamp_ms, _sum(context.unix_ms, period_ms))
    moved = token._replace(expiry_timestamp_ms=expiry_ms)
    return Decision(records=(moved,), outcome=TokenExpiry(expiry_ms))


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, INT64_MAX)


def concerns(token: DelegationTokenRecord, principal: str) -> bool:
    """Answer whether a principal owns a token or may renew it."""
    return principal == token.owner or principal in token.renewers


def is_over(token: DelegationTokenRecord, unix_ms: int) -> bool:
    """Answer whether a token has ended; its last millisecond counts."""
    return min(token.max_timestamp_ms, token.expiry_timestamp_ms) < unix_ms


def visible(
    tokens: Iterable[DelegationTokenRecord],
    principal: str,
    owners: Collection[str] | None,
    may_describe: Callable[[DelegationTokenRecord], bool],
) -> list[DelegationTokenRecord]:
    """Return the tokens that a principal may see: those that concern it, and those that `may_describe` allows it.

    With `owners`, only those that concern one of them. Source: Kafka's DelegationTokenManager.filterToken.
    """
    return [
        token
        for token in tokens
        if (owners is None or any(concerns(token, owner) for owner in owners))
        and (concerns(token, principal) or may_describe(token))
    ]


class TokenSweep:
    """Removes the tokens that have ended, in parts."""

    operation: Final = "sweepExpiredDelegationTokens"

    def part(self, context: DecideContext) -> Decision:
        """Return the removals of one part; with `more` others are due at once."""
        ended = (each for each, token in context.image.tokens.items() if is_over(token, context.unix_ms))
        over = list(islice(ended, context.records_max + 1))
        if not over:
            return Decision()
        records = [RemoveDelegationTokenRecord(token_id) for token_id in over[: context.records_max]]
        cause = Cause("DELEGATION_TOKEN_EXPIRED", None, {})
        return Decision(records=records, cause=cause, more=len(records) < len(over))


def _of_owner(command: CreateDelegationTokenFor, _image: MetadataImage) -> Iterable[Resource]:
    return (Resource(ResourceType.USER, command.owner),)


_OF_EVERYBODY: Final = Access(Right.IDENTITY, AclOperation.ALTER)
"""Every principal may have tokens of its own; the decision looks at whose a token is."""
DECISIONS: Final = (
    Decides(CreateDelegationToken, "CreateDelegationToken", TokenCreated, _OF_EVERYBODY, create),
    Decides(
        CreateDelegationTokenFor,
        "CreateDelegationTokenFor",
        TokenCreated,
        Access(Right.CLUSTER, AclOperation.CREATE_TOKENS, _of_owner),
        create,
    ),
    Decides(RenewDelegationToken, "RenewDelegationToken", TokenExpiry, _OF_EVERYBODY, renew),
    Decides(ExpireDelegationToken, "ExpireDelegationToken", TokenExpiry, _OF_EVERYBODY, expire),
)
OTHER_OPERATIONS: Final[Mapping[str, Access]] = {
    "DescribeDelegationToken": Access(Right.IDENTITY, AclOperation.DESCRIBE),
    "DescribeTokenOf": Access(Right.CLUSTER, AclOperation.DESCRIBE),
    "DescribeTokensOf": Access(Right.CLUSTER, AclOperation.DESCRIBE_TOKENS),
}
"""The second and the third are asked for tokens of others: of a token by its id, and of an owner. Who may describe a token
gets its HMAC over Kafka's protocol, and so acts as its owner: to see the metadata is not enough."""
