"""Edge: what every handler of Kafka's protocol needs: the parts of the node, a request as it is read, and what answers it.

A handler is given the values of a request as `metadata_log/kafka/messages.py` reads them, and returns those of the answer in
the order of the schema's fields; or it raises a MetadataError, for which its row of the table has the answer.

Tests: tests/unit/quorum/kafka/test_connection.py.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from metadata_log.errors import AuthenticationFailed, Fault, MetadataError, ThrottlingQuotaExceeded
from metadata_log.kafka.messages import ANSWERS, REQUESTS, answer_tail
from metadata_log.kafka.reading import Values
from metadata_log.kafka.schemas import Versions
from metadata_log.node.identity.access import Peer
from metadata_log.node.identity.certified_names import NAME
from metadata_log.node.identity.rights import Principal, Right
from metadata_log.records.acls import AclOperation
from metadata_log.records.users import UserScramCredentialRecord
from quorum.controller.callers import Caller, authorize, may_ask_later
from quorum.decide.access import CLUSTER
from quorum.decide.registry import OPERATIONS
from quorum.decide.tokens import is_over
from quorum.kafka.errors import KafkaError, kafka_error, whole
from quorum.kafka.refused_brokers import RefusedBrokers
from quorum.kafka.token_logins import TokenLogins
from quorum.node.parts import Parts

_PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))
_NAME_LENGTH_MAX: Final = 200


@dataclass(frozen=True, kw_only=True)
class KafkaDoor(Parts):
    """The parts of one controller as the handlers of Kafka's protocol use them."""

    apis: "Mapping[int, Api]"
    """What is answered here, by key."""

    @classmethod
    def of(cls, parts: Parts, apis: "Mapping[int, Api]") -> "KafkaDoor":
        return cls(**{field.name: getattr(parts, field.name) for field in fields(Parts)}, apis=apis)

    @cached_property
    def plain_topic(self) -> "Shown":
        """The settings of a topic that has none of its own, as answers show them."""
        return Shown()

    @cached_property
    def advertised(self) -> tuple[tuple[int, int, int], ...]:
        """Key, oldest and newest version of each request that clients may send."""
        return tuple((key, *api.versions) for key, api in sorted(self.apis.items()) if api.is_advertised)

    def principal(self, certificate: Mapping[str, Any] | None, login: "Login") -> Principal:
        """Return the principal of a connection; NOBODY before login. A login by SCRAM counts while its credential does.

        Raises:
            AuthenticationFailed: what the connection has shown counts no longer.
        """
        proved = login.proved
        if proved is None:
            return self.access.principal(Peer(certificate, login.credential))
        if isinstance(proved, ProvedToken):
            return self._of_token(proved.token_id)
        now = self.controller.committed.users.get((proved.name, proved.mechanism))
        if now is None or now != proved.credential:
            raise AuthenticationFailed("the credential of this login was changed or taken away: log in again")
        return self.access.of_user(proved.name) or self.named("User", proved.name)

    def _of_token(self, token_id: str) -> Principal:
        """Return the owner of a delegation token by which a connection logged in, while the token lasts."""
        token = self.controller.committed.tokens.get(token_id)
        if token is None or is_over(token, self.controller.time_of_day_ms()):
            raise AuthenticationFailed("the delegation token of this login has ended: log in with another")
        kind, _, name = token.owner.partition(":")
        return self.named(kind, name)._replace(by_token=True)

    def named(self, kind: str, name: str) -> Principal:
        """Return the principal of a name that Kafka's login or one of its brokers proves: the file of principals gives it
        its rights.
        """
        known = f"{kind}:{name}"
        if kind == "User" and NAME.fullmatch(known):
            return self.access.named(known)
        # No file of principals has such a name: it has no rights while identity is on. Records show it in plain characters.
        shown = quote(known, safe=_PRINTABLE.replace("%", ""))[:_NAME_LENGTH_MAX]
        return self.access.named(f"User:{shown}")._replace(acl_name=known)

    @cached_property
    def token_logins(self) -> TokenLogins:
        return TokenLogins(self.controller.tokens, self.logins)

    @cached_property
    def not_registered(self) -> RefusedBrokers:
        return RefusedBrokers(self.now_ms)


class Proved(NamedTuple):
    """Which user has shown by SCRAM that it knows its password, and the credential at that time."""

    name: str
    mechanism: int
    credential: UserScramCredentialRecord | None


class ProvedToken(NamedTuple):
    """Of which delegation token a client has shown by SCRAM that it knows the HMAC."""

    token_id: str


class Shown:
    """What answers showed last, and what it was made of. To make the same for each request costs more than its decision."""

    __slots__ = ("made_of", "rows")

    def __init__(self) -> None:
        self.made_of: object = None
        self.rows: Sequence[Values] = ()


class Login:
    """What a connection has shown by SASL: `credential` is a token, `is_new` until the connection knows of it.

    `exchange` is a login by SCRAM under way, `proved` one that is done.
    """

    __slots__ = ("credential", "exchange", "has_failed", "is_new", "mechanism", "proved")

    def __init__(self) -> None:
        self.mechanism: str | None = None
        self.credential: str | None = None
        self.exchange: Any = None
        self.proved: Proved | ProvedToken | None = None
        self.is_new = False
        self.has_failed = False
        """Its connection is closed after the answer."""


class Asked(NamedTuple):
    """A request: its version, the values of its fields, and who sends it; `login` is that of its connection.

    `made` is what a handler that parks made of the values.
    """

    version: int
    values: Values
    caller: Caller
    login: Login | None = None
    made: Any = None


Answer: TypeAlias = Values | bytes
"""Bytes are all that comes after the correlation id, as `answer_tail` makes it. Connections may share them."""
Done: TypeAlias = Callable[[Answer | MetadataError], None]
"""Ends a request that is parked, once, on the event loop. Does nothing where the client is gone."""
GiveUp: TypeAlias = Callable[[], None]
"""Called when the client of a parked request is gone."""


class AtOnce(NamedTuple):
    """Handles what can be answered in the turn of the loop in which it is read."""

    answer: Callable[[KafkaDoor, Asked], Answer]


class Waits(NamedTuple):
    """Handles what has to wait, for a commit or a proof of leadership: each request has a task."""

    answer: Callable[[KafkaDoor, Asked], Awaitable[Answer]]


class Parks(NamedTuple):
    """Handles what waits for news, without a task: `take` calls `done` at once, or later, and returns what gives it up.

    What needs a task all the same is returned as a coroutine of the answer. `make` makes of a request's values what `take`
    needs: once where the same sender repeats the same bytes, as idle brokers do.
    """

    take: Callable[[KafkaDoor, Asked, Done], GiveUp | Coroutine[Any, Any, Answer] | None]
    make: Callable[[KafkaDoor, Asked], Any] = lambda _door, asked: asked.values


_READS: Final = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
Refuse: TypeAlias = Callable[["Api", Asked, KafkaError], Values]
"""Makes the answer that says an error, from what was asked."""


def _wholly(api: "Api", _asked: Asked, error: KafkaError) -> Values:
    return whole(ANSWERS[api.key], error)


class Api(NamedTuple):
    """One row of the table: how requests of a key are handled.

    `operation` is what the sender must be allowed; None: it is answered before login, too. `refuse` says an error where
    clients look for it: Kafka's answers have one field for it, or one in each item.
    """

    key: int
    handler: AtOnce | Waits | Parks
    operation: str | None
    refuse: Refuse = _wholly
    in_envelopes: bool = False
    """Brokers forward it for their clients."""
    is_advertised: bool = True

    @property
    def versions(self) -> Versions:
        return REQUESTS[self.key].versions

    def check(self, door: KafkaDoor, caller: Caller) -> None:
        """Check that a caller may ask for this. Of what is decided, the decision's own step looks at the resources, too.

        Raises:
            AuthenticationFailed, NotAuthorized: as `authorize`.
        """
        if self.operation is None:
            return
        if Right.BROKER in caller.principal.rights and OPERATIONS[self.operation].right is Right.BROKER:
            return  # as of nearly all requests: no ACL gives or takes this right, and no audit log has its use
        if not may_ask_later(caller, self.operation):
            authorize(caller, self.operation, (CLUSTER,), door.controller.committed)
            audit = door.access.audit
            if OPERATIONS[self.operation].does in _READS and audit.takes_reads:
                audit.note(
                    door="kafka",
                    principal=caller.principal.name,
                    address=caller.address,
                    operation=self.operation,
                    outcome="allowed",
                )

    def refusal(self, door: KafkaDoor, asked: Asked, error: MetadataError) -> Values:
        """Return the answer that says an error."""
        if isinstance(error, Fault):
            door.on_fault(error)
        caller = asked.caller
        door.access.refusals.note(
            error,
            door="kafka",
            principal=caller.principal.name,
            address=caller.address,
            asked=REQUESTS[self.key].name,
        )
        return self.refuse(self, asked, kafka_error(error, to_broker=self._is_of_brokers))

    @property
    def _is_of_brokers(self) -> bool:
        """Whether brokers ask for themselves."""
        return self.operation is not None and OPERATIONS[self.operation].does is AclOperation.CLUSTER_ACTION

    def tail(self, version: int, answer: Answer) -> bytes:
        """Return the bytes of an answer after its correlation id."""
        return answer if isinstance(answer, bytes) else answer_tail(self.key, version, answer)


def answered_at_once(api: Api, handler: AtOnce, door: KafkaDoor, asked: Asked) -> Answer:
    """Return the answer of a handler, errors included."""
    try:
        api.check(door, asked.caller)
        return handler.answer(door, asked)
    except MetadataError as error:
        return api.refusal(door, asked, error)


async def answered_in_time(api: Api, handler: Waits, door: KafkaDoor, asked: Asked) -> Answer:
    """Return the answer of a handler that waits, errors included."""
    try:
        api.check(door, asked.caller)
        return await handler.answer(door, asked)
    except MetadataError as error:
        return api.refusal(door, asked, error)


async def tail_in_time(api: Api, door: KafkaDoor, version: int, answer: Answer) -> bytes:
    """Return the bytes of an answer after its correlation id; those of a large one are made in a thread."""
    if not is_large(answer):
        return api.tail(version, answer)
    try:
        return await door.reads.run(api.tail, version, answer)
    except ThrottlingQuotaExceeded:
        return api.tail(version, answer)  # what it tells is done: it is not refused


def is_large(answer: Answer) -> bool:
    """Return whether bytes have yet to be made of an answer, and it has many items, or items of items."""
    if isinstance(answer, bytes):
        return False
    count = 0
    for field in answer:
        if isinstance(field, _ITEMS):
            for row in field:
                count += 1
                if isinstance(row, tuple):
                    for cell in row:
                        if isinstance(cell, _ITEMS):
                            count += len(cell)
                if count > ITEMS_AT_ONCE:
                    return True
    return False


_ITEMS: Final = (list, tuple)


ITEMS_AT_ONCE: Final = 2_000
"""Of an answer that is encoded in one turn of the loop: a few milliseconds."""
NO_THROTTLE: Final = 0
"""The first field of most answers: how long Kafka's quotas have delayed a client, in ms."""
