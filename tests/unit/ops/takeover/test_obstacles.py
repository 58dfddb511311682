"""What keeps Kafka's brokers and topics from going on under our controllers is listed, each thing with what to change."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metadata_log.ids import NodeId
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange
from metadata_log.records.configs import TOPIC
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.features import METADATA_VERSION
from metadata_log.records.quorum import Voter, VoterEndpoint
from metadata_log.records.users import SCRAM_SHA_512, UserScramCredentialRecord
from ops.takeover.kafka_state import KafkaState
from ops.takeover.obstacles import (
    CODES,
    NAMES_MAX,
    combined_nodes,
    hints,
    not_found_by_brokers,
    obstacles,
    topics_with_tiers,
)
from quorum.node.config import KAFKA_SECURITY, ControllerSettings, TopicSettings
from tests.support.kafka_log import config, partition, topic
from tests.support.lab import uuid
from tests.unit.ops.takeover.test_taking_over import kafka, ours


def found(state: KafkaState, controllers: list[ControllerSettings]) -> dict[str, str]:
    """Return what is found by its code, each once."""
    listed = obstacles(state, controllers)
    told = {each.code: each.detail for each in listed}
    assert len(told) == len(listed) and [*told] == [code for code in CODES if code in told]
    return told


@pytest.mark.parametrize("registered", [False, True])
def test_brokers_look_for_one_name_of_a_listener(tmp_path: Path, registered: bool) -> None:
    state = kafka(tmp_path)
    if registered:
        image = replace(state.image, controllers=_registered(state, BrokerEndpoint("CTRL", "h", 1, 0)))
    else:
        voter = Voter(NodeId(1), uuid(1), (VoterEndpoint("CTRL", "h", 1),), 0, 1)
        image = replace(state.image, quorum=state.image.quorum._replace(voters=(voter,), kraft_version=1))
    told = found(state._replace(image=image), ours(tmp_path))["OTHER_LISTENER"]
    assert "controllers 1, 2, 3:" in told and "under CTRL: set listener_name" in told


def _registered(state: KafkaState, *listeners: BrokerEndpoint) -> Any:
    registered = RegisterControllerRecord(NodeId(1), uuid(1), 0, False, listeners, ())
    return state.image.controllers.set(NodeId(1), registered)


@pytest.mark.parametrize("spoken", [1, 2, 3])
def test_brokers_speak_to_our_controllers_as_they_did_to_kafkas(tmp_path: Path, spoken: int) -> None:
    """Goal: brokers that would find our listener and could not speak to it are known before their controllers are gone."""
    state, controllers = kafka(tmp_path), ours(tmp_path)

    def known(protocol: int) -> KafkaState:
        """Return a state whose controller listens for brokers in this way, and for others in all ways."""
        listener = BrokerEndpoint(controllers[0].kafka.listener_name, "h", 1, protocol)
        others = [BrokerEndpoint(f"OTHER{number}", "h", 2 + number, number) for number in range(4)]
        return state._replace(image=replace(state.image, controllers=_registered(state, listener, *others)))

    told = found(known(spoken), controllers)["OTHER_PROTOCOL"]
    assert told.startswith("controllers 1, 2, 3:")
    assert f'set security = "{KAFKA_SECURITY[spoken]}" in [kafka]' in told
    assert "OTHER_PROTOCOL" not in found(known(0), controllers)
    assert "OTHER_PROTOCOL" not in found(known(-1), controllers), "a number that no protocol has"


def _at_kraft_version(state: KafkaState, level: int, *, of: int = 1, port: int = 9201) -> KafkaState:
    """Return the state of a quorum of controller 1, which registered under this port unless it is 0."""
    image = replace(state.image, quorum=state.image.quorum._replace(kraft_version=level))
    if port:
        listener = BrokerEndpoint("CONTROLLER", "127.0.0.1", port, 0)
        registered = RegisterControllerRecord(NodeId(of), uuid(1), 0, False, (listener,), ())
        image = replace(image, controllers=image.controllers.set(NodeId(of), registered))
    return state._replace(image=image, voters=(of,))


@pytest.mark.parametrize(
    ("level", "of", "port", "found"),
    [
        (0, 1, 9201, True),  # ours has its id and its address
        (0, 1, 9999, False),
        (0, 7, 9201, False),
        (0, 1, 0, True),  # before 3.7 no controller registers: the id is all that is known
        (0, 7, 0, False),
        (1, 7, 9999, True),  # the log names the voters, and the brokers look for servers
    ],
)
def test_brokers_with_fixed_voters_find_one_of_ours_among_them(
    tmp_path: Path, level: int, of: int, port: int, found: bool
) -> None:
    state = _at_kraft_version(kafka(tmp_path), level, of=of, port=port)
    told = not_found_by_brokers(state, ours(tmp_path))
    assert (told is None) is found
    if told is not None:
        assert "controller.quorum.bootstrap.servers=127.0.0.1:92" in told


@pytest.mark.parametrize("registered", [True, False])
def test_brokers_of_old_releases_follow_only_voters_of_their_settings(
    tmp_path: Path, registered: bool
) -> None:
    """Goal: a broker of 3.8 is not told of a leader at which it ends. Method: ours are 1, 2 and 3, and the voter is 1."""

    read = kafka(tmp_path)

    def with_broker(level: int) -> KafkaState:
        state = _at_kraft_version(read, 0, port=9201 if registered else 0)
        found = next(iter(state.image.brokers.values()))
        old = found._replace(features=(FeatureRange(METADATA_VERSION, 1, level),))
        brokers = state.image.brokers.set(found.broker_id, old)
        return state._replace(image=replace(state.image, brokers=brokers))

    told = not_found_by_brokers(with_broker(20), ours(tmp_path))
    assert told is not None
    assert "2@127.0.0.1:9202, 3@127.0.0.1:9203 is none of them" in told and "before 3.9" in told
    assert not_found_by_brokers(with_broker(20), ours(tmp_path, 1)) is None
    assert not_found_by_brokers(with_broker(21), ours(tmp_path)) is None


def sasl(directory: Path, *rows: str, security: str = "sasl_plaintext") -> list[ControllerSettings]:
    """Return the settings of controllers at which brokers log in, with this file of principals."""
    file = directory / "principals.toml"
    file.write_text("".join(f"[[principals]]\n{row}\n" for row in rows) or "principals = []")
    return [
        replace(each, principals=file, kafka=replace(each.kafka, security=security))
        for each in ours(directory)
    ]


TOKEN = f'token_sha256 = "{hashlib.sha256(b"the password of broker 11").hexdigest()}"'


@pytest.mark.parametrize(
    ("row", "is_let_in"),
    [
        (f'name = "Broker:11"\nroles = ["broker"]\n{TOKEN}', True),
        ('name = "Broker:11"\nroles = ["broker"]\nuser = "eleven"', True),
        ('name = "Broker:11"\nroles = ["broker"]\nuser = "twelve"', False),
        ('name = "Broker:11"\nroles = ["broker"]', False),
        (f'name = "Broker:11"\nroles = ["reader"]\n{TOKEN}', False),
        (f'name = "User:broker"\nroles = ["broker"]\n{TOKEN}', False),
    ],
)
def test_a_broker_whose_login_our_controllers_would_refuse_is_named(
    tmp_path: Path, row: str, is_let_in: bool
) -> None:
    """Goal: a broker of Kafka's that logs in under a shared name, or one that we do not know, does not end unforeseen.

    The user eleven has a credential of SCRAM in the log that is taken over; twelve has none.
    """
    state = kafka(tmp_path)
    credential = UserScramCredentialRecord(
        "eleven", SCRAM_SHA_512, b"salt", b"s" * 64, b"k" * 64, 4_096, None
    )
    users = state.image.users.set(("eleven", SCRAM_SHA_512), credential)
    state = state._replace(image=replace(state.image, users=users))
    told = found(state, sasl(tmp_path, row)).get("LOGINS_UNKNOWN")
    assert (told is None) is is_let_in
    if told is not None:
        assert "brokers could not log in, and would stay fenced, or end: 11." in told
    assert "LOGINS_UNKNOWN" not in found(state, ours(tmp_path))


def test_identity_needs_a_listener_that_shows_one(tmp_path: Path) -> None:
    """Certificates are the brokers' own: an operator is told what they need."""
    state = kafka(tmp_path)
    told = found(state, sasl(tmp_path, security="plaintext"))["LOGINS_UNKNOWN"]
    assert "no broker has an identity at a listener in the clear" in told
    by_certificate = sasl(tmp_path, security="tls")
    assert "LOGINS_UNKNOWN" not in found(state, by_certificate)
    (hint,) = hints(state, [replace(each, topics=FOR_ONE_BROKER) for each in by_certificate])
    assert f"metaquorum://{by_certificate[0].cluster_id}/broker/ID" in hint
    assert not [*hints(state, [replace(each, topics=FOR_ONE_BROKER) for each in ours(tmp_path)])]


FOR_ONE_BROKER = TopicSettings(default_replication_factor=1)


def test_a_default_that_the_brokers_are_too_few_for_is_said(tmp_path: Path) -> None:
    """Kafka's default is one replica; ours is three."""
    (hint,) = hints(kafka(tmp_path), ours(tmp_path))
    assert "would get 3, and is refused with 1 broker." in hint


def test_nodes_that_are_broker_and_controller_are_told_what_they_need(tmp_path: Path) -> None:
    """Goal: such a node does not elect itself from the voters in its own log, as one of 4.3.1 does."""
    state = kafka(tmp_path)
    assert combined_nodes(state) == []
    state = state._replace(voters=(11, 12))
    assert combined_nodes(state) == [11]
    hint = next(hints(state, ours(tmp_path)))
    assert hint.startswith("node 11 of Kafka: broker and controller in one.")
    servers = "127.0.0.1:9201,127.0.0.1:9202,127.0.0.1:9203"
    assert f"controller.quorum.bootstrap.servers={servers}; and move __cluster_metadata-0 out" in hint


def test_a_file_of_principals_that_is_not_here_says_who_logs_in_nowhere(tmp_path: Path) -> None:
    controllers = sasl(tmp_path)
    (tmp_path / "principals.toml").unlink()
    told = found(kafka(tmp_path), controllers)["LOGINS_UNKNOWN"]
    assert told.startswith("whether brokers could log in is not known. ")
    assert "principals.toml: No such file" in told


def test_topics_with_tiers_are_named_where_our_controllers_know_of_no_remote_storage(tmp_path: Path) -> None:
    names = [f"tiered-{number:02}" for number in range(NAMES_MAX + 2)]
    records = [
        record
        for number, name in enumerate(names, 100)
        for record in (
            topic(name, bytes([number]) * 16),
            partition(bytes([number]) * 16, 0, [11]),
            config(TOPIC, name, "remote.storage.enable", "TRUE"),
        )
    ]
    state = kafka(tmp_path, *records, config(TOPIC, "orders", "remote.storage.enable", "false"))
    assert topics_with_tiers(state.image) == names
    off, on = (
        [
            replace(each, topics=TopicSettings(remote_log_storage_system_enable=is_on))
            for each in ours(tmp_path)
        ]
        for is_on in (None, True)
    )
    told = found(state, [on[0], *off[1:]])["TIERS_OFF"]
    assert told.startswith("controllers 2, 3:") and "tiered-09 and 2 more" in told
    assert "TIERS_OFF" not in found(state, on)
    assert "TIERS_OFF" not in found(kafka(tmp_path / "plain"), off)
