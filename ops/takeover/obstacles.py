"""Edge: what would keep Kafka's brokers and topics from going on under our controllers, as far as Kafka's log shows it.

Brokers keep their files. So they look for one listener, speak one protocol there, and log in under one name; what they have
been told since they registered no log shows, and an operator may accept each obstacle by its code.
Tests: tests/unit/ops/takeover/test_obstacles.py.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from metadata_log.errors import InvalidSettings
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.metadata_versions import OTHER_LEADERS_FROM
from metadata_log.node.addresses import address_text
from metadata_log.node.identity.access import Access
from metadata_log.node.identity.rights import Right
from metadata_log.records.brokers import BrokerEndpoint, RegisterBrokerRecord
from metadata_log.records.configs import TOPIC
from metadata_log.records.features import METADATA_VERSION
from metadata_log.records.quorum import VoterEndpoint
from metadata_log.records.users import MECHANISMS
from metadata_log.replay.kinds import PARTITION
from ops.takeover.kafka_state import KafkaState
from ops.takeover.majority import listed
from quorum.node.config import KAFKA_SECURITY, ControllerSettings

REMOTE_STORAGE_ENABLE: Final = "remote.storage.enable"
NAMES_MAX: Final = 10
"""Of topics in one sentence."""


class Obstacle(NamedTuple):
    """Why a takeover is refused that would be whole, by a code of CODES, and what to change."""

    code: str
    detail: str


def obstacles(state: KafkaState, controllers: Sequence[ControllerSettings]) -> list[Obstacle]:
    """Return what stands against a takeover by these controllers, each thing once, in the order of CODES."""
    return [Obstacle(code, detail) for code, find in _FINDERS.items() for detail in find(state, controllers)]


def _other_listener(state: KafkaState, controllers: Sequence[ControllerSettings]) -> Iterator[str]:
    names = {endpoint.name for _, endpoint in listeners_of(state.image)}
    others = [each for each in controllers if names and each.kafka.listener_name not in names]
    if others:
        yield (
            f"{_controllers(others)}: brokers are told of the listener {others[0].kafka.listener_name}, and Kafka's "
            f"controllers are under {', '.join(sorted(names))}: set listener_name in [kafka] to the first of the brokers' "
            "controller.listener.names"
        )


def _other_protocol(state: KafkaState, controllers: Sequence[ControllerSettings]) -> Iterator[str]:
    """Compare the protocol of the listener that brokers look for: others of Kafka's controllers are not theirs."""
    others: dict[tuple[str, str], list[ControllerSettings]] = {}
    for settings in controllers:
        numbers = {
            endpoint.security_protocol
            for controller in state.image.controllers.values()
            for endpoint in controller.endpoints
            if endpoint.name == settings.kafka.listener_name
        }
        spoken = [name for number, name in enumerate(KAFKA_SECURITY) if number in numbers]
        if spoken and settings.kafka_security not in spoken:
            theirs = " or ".join(f'"{name}"' for name in spoken)
            others.setdefault((settings.kafka_security, theirs), []).append(settings)
    for (ours, theirs), of in others.items():
        yield (
            f"{_controllers(of)}: brokers would have to speak {ours} at [listen] kafka, and Kafka's controllers spoke "
            f"{theirs} there: set security = {theirs} in [kafka], with [tls] and [identity] as it needs them. Where each "
            f"broker's listener.security.protocol.map says {ours} by now, accept it"
        )


def _addresses_unknown(state: KafkaState, controllers: Sequence[ControllerSettings]) -> Iterator[str]:
    unfound = not_found_by_brokers(state, controllers)
    if unfound is not None:
        yield (
            f"{unfound}. Where that is done, or where the setting has ours under another name of their hosts, accept it"
        )


def _logins_unknown(state: KafkaState, controllers: Sequence[ControllerSettings]) -> Iterator[str]:
    """Look whether each broker has a login of its own, PLAIN or SCRAM, where it shows no certificate."""
    yield from dict.fromkeys(
        found for each in controllers if (found := _not_let_in(state.image, each)) is not None
    )


def _not_let_in(image: MetadataImage, settings: ControllerSettings) -> str | None:
    if settings.principals is None or settings.kafka_security == "tls" or not image.brokers:
        return None
    if settings.kafka_security == "plaintext":
        return (
            "no broker has an identity at a listener in the clear without SASL, and [identity] asks for one: set security "
            "in [kafka], or leave [identity] out"
        )
    try:
        access = Access(settings.principals, cluster_id=settings.cluster_id)
    except InvalidSettings as error:
        return f"whether brokers could log in is not known. {error.message}"
    unknown = [int(each) for each in sorted(image.brokers) if not _may_log_in(access, image, int(each))]
    if not unknown:
        return None
    return (
        f"{settings.principals}: brokers could not log in, and would stay fenced, or end: {listed(unknown)}. "
        'Each needs a row `name = "Broker:ID"` with the role broker and `user`, the name in its file, which no other broker '
        "has; for PLAIN the token_sha256 of its password, too; for SCRAM Kafka's log has that user's credential. Brokers "
        "that share one name get names of their own first, while Kafka's controllers run, and are restarted one by one"
    )


def _may_log_in(access: Access, image: MetadataImage, broker_id: int) -> bool:
    principal = access.named(f"Broker:{broker_id}")
    by_scram = principal.user is not None and any(
        (principal.user, mechanism) in image.users for mechanism in MECHANISMS
    )
    return principal.has(Right.BROKER) and (by_scram or access.has_token(principal.name))


def _tiers_off(state: KafkaState, controllers: Sequence[ControllerSettings]) -> Iterator[str]:
    tiered = topics_with_tiers(state.image)
    without = [each for each in controllers if not each.topics.remote_log_storage_system_enable]
    if tiered and without:
        more = len(tiered) - NAMES_MAX
        named = ", ".join(tiered[:NAMES_MAX]) + (f" and {more:,} more" if more > 0 else "")
        yield (
            f"{_controllers(without)}: no change of the settings of topics that have tiers ({REMOTE_STORAGE_ENABLE}) would "
            f"be taken: {named}. Set remote_log_storage_system_enable = true in [topics]"
        )


_FINDERS: Final[dict[str, Callable[[KafkaState, Sequence[ControllerSettings]], Iterator[str]]]] = {
    "OTHER_LISTENER": _other_listener,
    "OTHER_PROTOCOL": _other_protocol,
    "ADDRESSES_UNKNOWN": _addresses_unknown,
    "LOGINS_UNKNOWN": _logins_unknown,
    "TIERS_OFF": _tiers_off,
}
CODES: Final = tuple(_FINDERS)


# --- what comes after


def hints(state: KafkaState, controllers: Sequence[ControllerSettings]) -> Iterator[str]:
    """Yield what an operator has to see to, since neither Kafka's log nor our settings can show that it is done."""
    if combined := combined_nodes(state):
        servers = ",".join(
            address_text(voter.kafka)
            for each in controllers
            for voter in each.voters
            if voter.id == each.node_id and voter.kafka is not None
        )
        yield (
            f"{'nodes' if len(combined) > 1 else 'node'} {listed(combined)} of Kafka: broker and controller in one. Start "
            "each again as a broker alone, after this: process.roles=broker, no listener of controllers in listeners and "
            f"advertised.listeners, no controller.quorum.voters, controller.quorum.bootstrap.servers={servers}; and move "
            f"{PARTITION} out of its metadata directory: with it, it would elect itself, and never come here"
        )
    by_certificate = [
        each for each in controllers if each.kafka_security == "tls" and each.principals is not None
    ]
    if by_certificate:
        yield (
            "brokers' certificates are not looked at: each broker needs one of its own, with the URI metaquorum://"
            f"{by_certificate[0].cluster_id}/broker/ID. A broker with another stays fenced, or ends"
        )
    replicas = max(each.topics.default_replication_factor for each in controllers)
    brokers = len(state.image.brokers)
    if 0 < brokers < replicas:
        yield (
            f"a topic whose creator names no number of replicas would get {replicas}, and is refused with {brokers} "
            f"broker{'s' if brokers > 1 else ''}. Kafka's default is 1: set default_replication_factor in [topics]"
        )


def combined_nodes(state: KafkaState) -> list[int]:
    """Return the brokers of Kafka that are controllers, too: they stop with these."""
    known = {*(state.voters or ()), *map(int, state.image.controllers)}
    return sorted(int(each) for each in state.image.brokers if int(each) in known)


def topics_with_tiers(image: MetadataImage) -> list[str]:
    """Return the names of the topics whose settings say so."""
    return sorted(
        name
        for (resource_type, name), settings in image.configs.items()
        if resource_type == TOPIC and settings.get(REMOTE_STORAGE_ENABLE, "").strip().lower() == "true"
    )


def _controllers(of: Sequence[ControllerSettings]) -> str:
    return f"controller{'s' if len(of) > 1 else ''} {listed([each.node_id for each in of])}"


# --- where brokers look


def not_found_by_brokers(state: KafkaState, controllers: Sequence[ControllerSettings]) -> str | None:
    """Return why brokers would not find our controllers without new settings; None: one is found, and tells of the others.

    At kraft.version 0 the settings of each broker name the voters. The log says where these listen from metadata.version
    3.7 on, and before it their ids alone. A broker from before 3.9 knows no others: it ends when another one leads.
    """
    if state.image.quorum.kraft_version or state.voters is None:
        return None
    listened = {
        (node_id, (endpoint.host, endpoint.port))
        for node_id, endpoint in listeners_of(state.image)
        if node_id in state.voters
    }
    ours = {
        (int(voter.id), voter.kafka)
        for settings in controllers
        for voter in settings.voters
        if voter.id == settings.node_id and voter.kafka is not None
    }
    found = {(node_id, at) for node_id, at in ours if (node_id, at) in listened}
    if not listened:
        found = {(node_id, at) for node_id, at in ours if node_id in state.voters}
    old = [int(each) for each, broker in sorted(state.image.brokers.items()) if _finds_only_voters(broker)]
    if found and (found == ours or not old):
        return None
    addresses = ",".join(address_text(address) for _, address in sorted(ours))
    theirs = ", ".join(f"{node_id}@{address_text(address)}" for node_id, address in sorted(listened))
    quorum = (
        "Kafka's quorum was named by controller.quorum.voters (kraft.version 0): its controllers were "
        f"{theirs or listed(state.voters)}, and "
    )
    if old:
        unfound = ", ".join(f"{node_id}@{address_text(at)}" for node_id, at in sorted(ours - found))
        return (
            f"{quorum}{unfound} is none of them. Broker{'s' if len(old) > 1 else ''} {listed(old)} of a release before 3.9 "
            "would end when one leads that this setting does not name: give each of ours the id and the address of one of "
            "these, or upgrade the brokers first"
        )
    return (
        f"{quorum}none of ours has such an id and address, so the brokers would not find them. Give ours one of these; or, "
        f"while Kafka's controllers run, add controller.quorum.bootstrap.servers={addresses} and Kafka's addresses to each "
        "broker's settings, beside that one, and restart the brokers one by one"
    )


def _finds_only_voters(broker: RegisterBrokerRecord) -> bool:
    """Answer whether a broker of Kafka's is of a release that follows no leader but the voters of its settings."""
    levels = [each.max_version for each in broker.features if each.name == METADATA_VERSION]
    return any(level < OTHER_LEADERS_FROM for level in levels)


def listeners_of(image: MetadataImage) -> Iterator[tuple[int, VoterEndpoint | BrokerEndpoint]]:
    """Yield where Kafka's controllers listened: as voters, and as they registered; at kraft.version 0 only the latter."""
    for voter in image.quorum.voters or ():
        yield from ((voter.node_id, endpoint) for endpoint in voter.endpoints)
    for node_id, controller in sorted(image.controllers.items()):
        yield from ((node_id, endpoint) for endpoint in controller.endpoints)
